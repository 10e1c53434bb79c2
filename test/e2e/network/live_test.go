package network

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
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
		case <-time.After(3 * time.Minute):
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

		// Meanwhile it never stops trying what it may not.
		p.storm("c")
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
		d, n := p.Domain("filt", p.ws), p.network()
		if err := syscall.Kill(d.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.Eventually("the sidecar has ended with it", 20*time.Second, func() bool { return !serves(n.Sidecar) })
		for _, to := range []string{good + ":22", bad + ":22"} {
			p.Podman("exec", "c", "/tmp/probe", "tcp", to, "hi").Exit(t, 1) // the workspace is gone too
		}
		p.Podman("rm", "-f", "-t", "0", "c").OK(t)
		p.sandbox("d", filt)
		p.all("d", reaches("line", "tcp", "ok.test:22", "hi"), fails("refused", "tcp", bad+":22"))
		p.Eventually("the killed coordinator's uplink has ended", 20*time.Second, func() bool { return !serves(n.UplinkP) })
		if got := w.arrived(good+":22", good2+":22", good2+":443"); len(got) > 0 {
			t.Errorf("arrived in the world: %q", got)
		}
		if n := w.questions("evil.test"); n > 0 {
			t.Errorf("evil.test was asked for %d times", n)
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

// storm has a sandbox try, until its end, what it may reach and what it may not.
func (p *place) storm(name string) {
	p.t.Helper()
	p.WriteFile(filepath.Join(p.ws, "storm"), strings.ReplaceAll(
		"tcp ok.test:22 hi\ntcp "+bad+":22 hi\nudp "+bad+":9998\ntls "+bad+":443 evil.test\ndns "+bad+":53 evil.test A\ntcp evil.test:80 hi\n", " ", "\t"))
	p.Podman("exec", "-d", name, "sh", "-c", "cp /workspace/probe /workspace/storm /tmp; while :; do /tmp/probe all /tmp/storm >/dev/null; done").OK(p.t)
}

// serves tells whether a process is a sidecar or an uplink.
func serves(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(data), "\x00")
	return err == nil && slices.Contains([]string{"lazaret-netrouter", "pasta", "passt", "pasta.avx2", "slirp4netns"}, filepath.Base(name))
}

// Start after start, with something of the last one killed in between: each is a
// clean one, and nothing stays. LAZARET_NETWORK_STARTS says how many.
func TestStarts(t *testing.T) {
	t.Parallel()
	starts := 3
	if v := os.Getenv("LAZARET_NETWORK_STARTS"); v != "" {
		var err error
		if starts, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	w.name("ok.test", "A "+good)
	p := w.place(harness.SandboxCurrent, profile("filt", "filtered", []string{"ok.test"}, nil))
	var seen []int
	for i := range starts {
		p.sandbox("c", filt)
		n := p.network()
		if n == nil {
			t.Fatal("no network")
		}
		seen = append(seen, n.Sidecar, n.UplinkP)
		p.storm("c")
		p.all("c", reaches("line", "tcp", "ok.test:22", "hi"), fails("refused", "tcp", bad+":22"), fails("no such host", "tcp", "evil.test:22"))
		if i%4 < 3 {
			pid := []int{p.Domain("filt", p.ws).PID, n.Sidecar, n.UplinkP}[i%4]
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		p.Podman("rm", "-f", "-t", "0", "c").OK(t)
	}
	p.sandbox("c", filt)
	p.Podman("rm", "-f", "-t", "0", "c").OK(t)
	p.DomainEnds("filt", p.ws)
	p.Eventually("sidecars and uplinks have ended", 20*time.Second, func() bool { return !slices.ContainsFunc(seen, serves) })
	if got := w.arrived(good + ":22"); len(got) > 0 || w.questions("evil.test") > 0 {
		t.Errorf("arrived in the world: %q, and %d questions", got, w.questions("evil.test"))
	}
}
