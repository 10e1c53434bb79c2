package network

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

func (p *place) network() *wire.NetworkStatus {
	p.t.Helper()
	var n wire.NetworkStatus
	r := p.Run("lazaret", "net", "list", "--json", "--profile=filt", "--workspace="+p.ws)
	if r.Code != 0 {
		return nil
	}
	if err := json.Unmarshal([]byte(r.Stdout), &n); err != nil {
		p.t.Fatalf("%v: %s", err, r.Stdout)
	}
	return &n
}

// hold keeps a connection open from a sandbox, and returns what tells of its end.
func (p *place) hold(name, to string) <-chan struct{} {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := p.Command(ctx, "podman", "exec", name, "/workspace/probe", "hold", to)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	p.t.Cleanup(func() { cancel(); <-done })
	return done
}

// What is allowed and denied of a live network holds at once, and ends what is
// open; a sidecar or uplink that is killed lets nothing pass, and comes back.
func TestLive(t *testing.T) {
	each(t, func(t *testing.T, sandbox string) {
		w := newWorld(t)
		w.name("ok.test", "A "+good)
		w.name("late.test", "A "+good2)
		p := w.place(sandbox, profile("filt", "filtered", []string{"ok.test"}, nil))
		p.sandbox("c", filt)
		net := func(args ...string) string {
			t.Helper()
			args = append([]string{"net", args[0], "--profile=filt", "--workspace=" + p.ws}, args[1:]...)
			return p.Run("lazaret", args...).OK(t)
		}
		p.all("c", fails("no such host", "tcp", "late.test:22"), reaches("line", "tcp", "ok.test:22", "hi"))
		net("allow", "late.test")
		p.all("c", reaches("line", "tcp", "late.test:22", "hi"), reaches("tls", "tls", "late.test:443", "late.test"))
		ends := p.hold("c", "late.test:22")
		p.Eventually("the connection is there", 20*time.Second, func() bool { return strings.Contains(net("log"), "late.test:22") })
		net("deny", "late.test")
		select {
		case <-ends:
		case <-time.After(40 * time.Second):
			t.Error("a connection outlived the denial of its name")
		}
		p.all("c", fails("no such host", "tcp", "late.test:22"), fails("refused", "tcp", good2+":22"), reaches("line", "tcp", "ok.test:22", "hi"))
		p.Eventually("the log tells what went through the connection", 20*time.Second, func() bool {
			for line := range strings.Lines(net("log", "--json")) {
				var e plan.Event
				if json.Unmarshal([]byte(line), &e) == nil && e.Reason == plan.Ended && e.Name == "late.test" && e.Port == 22 && e.Up > 100 && e.Down > 100 {
					return true
				}
			}
			return false
		})

		for _, part := range []func(*wire.NetworkStatus) int{
			func(n *wire.NetworkStatus) int { return n.Sidecar },
			func(n *wire.NetworkStatus) int { return n.UplinkP },
		} {
			pid := part(p.network())
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatalf("kill %s: %v", strconv.Itoa(pid), err)
			}
			p.Eventually("the network is there again", 60*time.Second, func() bool {
				n := p.network()
				return n != nil && n.State == wire.NetworkUp && part(n) != pid
			})
			p.all("c", reaches("line", "tcp", "ok.test:22", "hi"), fails("no such host", "tcp", "late.test:22"), fails("refused", "tcp", bad+":22"))
		}
		// The coordinator's end is the network's, and the next start is a clean one.
		d := p.Domain("filt", p.ws)
		if err := syscall.Kill(d.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.Podman("rm", "-f", "-t", "0", "c").OK(t)
		p.sandbox("d", filt)
		p.all("d", reaches("line", "tcp", "ok.test:22", "hi"), fails("refused", "tcp", bad+":22"))
		if got := w.arrived(good+":22", good2+":22", good2+":443"); len(got) > 0 {
			t.Errorf("arrived in the world: %q", got)
		}
	})
}

// In learn mode everything passes that is not private, and the log and the list
// tell what would not have.
func TestLearn(t *testing.T) {
	each(t, func(t *testing.T, sandbox string) {
		w := newWorld(t)
		w.name("seen.test", "A "+bad)
		w.name("listed.test", "A "+good)
		w.name("in.test", "A "+private)
		p := w.place(sandbox, profile("filt", "learn", []string{"listed.test"}, nil))
		p.sandbox("c", filt)
		p.all("c",
			reaches("line", "tcp", "seen.test:22", "hi"), reaches("line", "tcp", bad+":9999", "hi"), reaches("line", "tcp", "listed.test:22", "hi"),
			reaches("tls", "tls", "seen.test:443", "seen.test"),
			fails("no such host", "tcp", "in.test:22"), fails("refused", "tcp", private+":22"), fails("refused", "tcp", metadata+":8080"))
		p.logged("seen.test", plan.WouldBlock)
		p.logged("in.test", plan.Blocked)
		p.Eventually("the list has what would be refused", 20*time.Second, func() bool {
			var would, listed bool
			for _, b := range p.network().Blocked {
				would = would || b.Would && b.Name == "seen.test" && b.Port == 22
				listed = listed || strings.Contains(b.Name, "listed.test")
			}
			return would && !listed
		})
		if got := w.arrived(bad+":22", bad+":443", bad+":9999", good+":22"); len(got) > 0 {
			t.Errorf("arrived in the world: %q", got)
		}
	})
}
