// Package network tests that a sandbox with a filtered network reaches what its
// profile lists, and nothing else, in a world of the test's own.
package network

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/nsutil"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// each runs a test once for every runsc, each in a world of its own.
func each(t *testing.T, test func(t *testing.T, sandbox string)) {
	t.Parallel()
	for _, s := range harness.Sandboxes() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			test(t, s.Path)
		})
	}
}

const filt = "--annotation=dev.lazaret.profile=filt"

func get(host, path string) string {
	return `GET ` + path + ` HTTP/1.1\r\nHost: ` + host + `\r\nConnection: close\r\n\r\n`
}

// One sandbox, from the attacker's side: what is listed is reached by whatever
// program, and for all else nothing at all arrives in the world.
func TestListedIsReachedAndNothingElse(t *testing.T) {
	each(t, func(t *testing.T, sandbox string) {
		w := newWorld(t)
		w.name("ok.test", "A "+good)
		w.name("port.test", "A "+good2)
		w.name("evil.test", "A "+bad)
		w.name("cdn.test", "A "+shared)
		w.name("a.wild.test", "A "+good)
		w.name("chain.test", "CNAME h1.cdn-x.test")
		w.name("h1.cdn-x.test", "CNAME h2.cdn-x.test")
		w.name("h2.cdn-x.test", "CNAME h3.cdn-x.test")
		w.name("h3.cdn-x.test", "CNAME h4.cdn-x.test")
		w.name("h4.cdn-x.test", "A "+good)
		w.name("loop.test", "CNAME loop2.test")
		w.name("loop2.test", "CNAME loop.test")
		w.name("denied.wild.test", "A "+good)
		w.name("via.test", "CNAME denied.wild.test")
		for name, addr := range map[string]string{"in1.test": private, "in2.test": metadata, "in3.test": "127.0.0.1", "in4.test": "198.19.255.2", "in5.test": "192.168.77.2", "in6.test": "100.64.0.1"} {
			w.name(name, "A "+addr)
		}
		w.vary("rebind.test", func(n int) []string {
			if n%2 == 1 {
				return []string{"A " + good}
			}
			return []string{"A " + private, "A " + metadata}
		})
		p := w.place(sandbox, profile("filt", "filtered", []string{
			"ok.test", "port.test:9999", "cdn.test:443", "*.wild.test", "chain.test:80", "loop.test", "via.test", "rebind.test",
			"in1.test", "in2.test", "in3.test", "in4.test", "in5.test", "in6.test", shared + ":8080",
		}, []string{"denied.wild.test"}))
		p.sandbox("c", filt)
		gw := strings.Fields(p.try("c", "server"))[0]

		var all []check
		add := func(c check) { all = append(all, c) }
		// What is listed, by names that any program looks up.
		add(reaches("http ok.test /x", "raw", "ok.test:80", get("ok.test", "/x")))
		add(reaches("line "+good+":22", "tcp", "ok.test:22", "hi"))
		add(reaches("hello", "udp", "ok.test:9998"))
		add(reaches("tls "+good+":443", "tls", "ok.test:443", "ok.test"))
		add(reaches("line "+good2+":9999", "tcp", "port.test:9999", "hi"))
		add(reaches("tls "+shared+":443", "tls", "cdn.test:443", "cdn.test"))
		add(reaches("http chain.test /", "raw", "chain.test:80", get("chain.test", "/")))
		add(reaches("line "+shared+":8080", "tcp", shared+":8080", "hi"))
		add(reaches("http a.wild.test /", "raw", "a.wild.test:80", get("a.wild.test", "/")))
		add(says("NOERROR A "+good, "dns", gw+":53", "ok.test", "A"))
		for _, kind := range []string{"AAAA", "HTTPS", "TXT", "MX"} {
			add(says("NOERROR (", "dns", gw+":53", "ok.test", kind))
		}
		// The busybox of the image has a resolver of another make.
		if r := p.Podman("exec", "c", "wget", "-q", "-O-", "http://ok.test/y"); !strings.Contains(r.OK(t), "http ok.test /y") {
			t.Errorf("wget: %q", r.Stdout)
		}
		// Names that are not: nobody is asked, by whatever way.
		unlisted := []string{"evil.test", "evilok.test", "ok.test.evil.test", "wild.test", "secret-data.evil.test", "denied.wild.test", "10.113.0.203.in-addr.arpa", "0x7f.1", "2130706433"}
		for _, name := range unlisted {
			for _, kind := range []string{"A", "AAAA", "TXT", "NULL", "HTTPS", "SRV", "PTR"} {
				if kind != "A" && name != "evil.test" && name != "10.113.0.203.in-addr.arpa" {
					continue
				}
				add(says("NXDOMAIN (", "dns", gw+":53", name, kind))
			}
		}
		// Other resolvers are the forwarder too.
		for _, server := range []string{resolver + ":53", bad + ":53", "8.8.8.8:53"} {
			for _, network := range []string{"udp", "tcp"} {
				add(says("NXDOMAIN (", "dns", server, "evil.test", "A", network))
			}
		}
		add(fails("", "dns", good+":853", "evil.test", "A", "tcp-tls"))

		// Addresses without a name, other ports, QUIC, IPv6, each refused at once.
		for _, to := range []string{bad + ":22", bad + ":9999", bad + ":8080", good2 + ":22", shared + ":22", good + ":853", private + ":22", metadata + ":8080", "127.0.0.1:22", "192.168.77.1:22", "192.168.77.2:22", "198.19.255.2:22", gw + ":22"} {
			add(fails("refused", "tcp", to))
		}
		for _, to := range []string{good + ":443", bad + ":9998", bad + ":443", metadata + ":9998"} {
			add(fails("refused", "udp", to))
		}
		for _, to := range []string{"[fd77::1]:22", "[2001:db8::1]:80", "[::ffff:198.51.100.10]:22", "[64:ff9b::c633:640a]:80", "[fe80::1%eth0]:22"} {
			add(fails("", "tcp", to))
		}
		// Listed names that lead inwards, and broken or denied chains of aliases.
		for _, name := range []string{"in1.test", "in2.test", "in3.test", "in4.test", "in5.test", "in6.test", "loop.test", "via.test"} {
			add(fails("no such host", "tcp", name+":22"))
		}
		for range 3 {
			add(says("", "dns", gw+":53", "rebind.test", "A"))
			add(fails("refused", "tcp", private+":22"))
		}
		// Another name on a listed address: server name and Host decide.
		add(fails("access denied", "tls", "cdn.test:443", "evil.test"))
		add(fails("access denied", "tls", shared+":443", "evil.test"))
		add(fails("access denied", "tls", bad+":443", ""))
		add(fails("access denied", "tls", good+":443", "198.51.100.10"))
		add(reaches("403 Forbidden", "raw", good+":80", get("evil.test", "/")))
		add(reaches("403 Forbidden", "raw", good+":80", get("198.51.100.10", "/")))
		add(reaches("403 Forbidden", "raw", good+":80", `GET http://evil.test/ HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n`))
		add(reaches("403 Forbidden", "raw", good+":80", `CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\nConnection: close\r\n\r\n`))
		add(reaches("400 Bad Request", "raw", good+":80", `GET / HTTP/1.1\r\nHost: ok.test\r\nHost: evil.test\r\nConnection: close\r\n\r\n`))
		add(reaches("400 Bad Request", "raw", good+":80", `not http at all\r\n\r\n`))
		// A request behind another, and one hidden in a body.
		add(reaches("403 Forbidden", "raw", good+":80", `GET /1 HTTP/1.1\r\nHost: ok.test\r\n\r\n`+get("evil.test", "/2")))
		add(reaches("", "raw", good+":80", `POST /3 HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n`+get("evil.test", "/4")))
		// Whatever address is asked for, a listed name leads to its own.
		add(reaches("tls "+shared+":443", "tls", bad+":443", "cdn.test"))
		p.all("c", all...)
		for _, name := range unlisted {
			if n := w.questions(name); n > 0 {
				t.Errorf("%s was asked for %d times upstream", name, n)
			}
		}
		// Not one packet for anything else, spoofed sources and raw frames with it.
		w.raw(p, "c")
		time.Sleep(200 * time.Millisecond)
		if got := w.arrived(good+":22", good+":80", good+":443", "17 "+good+":9998", good2+":9999", shared+":443", shared+":8080"); len(got) > 0 {
			t.Errorf("arrived in the world: %q", got)
		}
		if n := w.saw("evil.test"); n > 0 {
			t.Errorf("evil.test was reached %d times", n)
		}
		if n := w.questions("evil.test") + w.questions("in-addr.arpa"); n > 0 {
			t.Errorf("evil.test was asked for %d times", n)
		}
		p.logged("evil.test", "blocked")
		p.logged("ok.test", "allowed")
	})
}

// raw sends what a sandbox that has taken over its own runtime can: frames of its
// making, on the sandbox's own end of the link.
func (w *world) raw(p *place, container string) {
	w.t.Helper()
	pid := p.Inspect(container, ".State.Pid")
	ns, err := os.Open("/proc/" + pid + "/ns/net")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	if err := nsutil.Do(ns, func() error { return frames(p) }); err != nil {
		w.t.Fatal(err)
	}
}

// logged fails the test unless the domain's records tell of a name with a verdict.
func (p *place) logged(name, verdict string) {
	p.t.Helper()
	p.Eventually(fmt.Sprintf("the log says %s of %s", verdict, name), 30*time.Second, func() bool {
		log := p.Run("lazaret", "net", "log", "--json", "--profile=filt", "--workspace="+p.ws)
		for line := range strings.Lines(log.Stdout) {
			if strings.Contains(line, `"name":"`+name+`"`) && strings.Contains(line, `"verdict":"`+verdict+`"`) {
				return true
			}
		}
		return false
	})
}
