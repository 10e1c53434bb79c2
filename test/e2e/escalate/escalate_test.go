// Package escalate tests Host Escalation from the sandbox to a desk on the host, on
// real podman and runsc; the desks are the test's.
package escalate

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// background starts a command of the user's and hands on how it ended.
func background(t *testing.T, h *harness.Harness, args ...string) <-chan harness.Result {
	t.Helper()
	done := make(chan harness.Result, 1)
	go func() { done <- harness.Do(h.Command(t.Context(), args[0], args[1:]...)) }()
	return done
}

func wait(t *testing.T, done <-chan harness.Result) harness.Result {
	t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(time.Minute):
		t.Fatal("the command does not end within a minute")
	}
	return harness.Result{}
}

func TestAsk(t *testing.T) {
	harness.Each(t, harness.Options{Config: "[escalation]\ntimeout = \"2m\"\n"}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		bin := program(t, h, "testdesk", "./testdesk")
		h.Detached(ws, "box", harness.Debian, "sleep", "600")
		hash, err := harness.DomainHash("default", ws)
		if err != nil {
			t.Fatal(err)
		}
		d := open(t, h, bin, hash, wire.DeskConsole, "")

		t.Run("approved", func(t *testing.T) {
			done := background(t, h, "podman", "exec", "-w", "/workspace/src", "box", "lazaret-escalate", "-j", "need it", "--", "aws", "sts", "a b")
			ask := d.next(wire.EventAsk).Ask
			if ask.Command != "aws sts 'a b'" || ask.CWD != "/workspace/src" || ask.Justification != "need it" || ask.Kind != "exec" || ask.Sandbox != h.Inspect("box", ".Id") || ask.Domain.Hash != hash {
				t.Errorf("asked %+v", ask)
			}
			d.run(ask, 7, "out\n", "err\n")
			r := wait(t, done)
			if r.Exit(t, 7) != "out" || !strings.HasSuffix(r.Stderr, "err\n") {
				t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
			}
		})
		t.Run("denied with a reason", func(t *testing.T) {
			done := background(t, h, "podman", "exec", "box", "lazaret-escalate", "rm -rf / | cat")
			ask := d.next(wire.EventAsk).Ask
			if ask.Command != "rm -rf / | cat" {
				t.Errorf("asked %+v", ask)
			}
			d.reply(wire.DeskReply{Type: wire.ReplyDeny, ID: ask.ID, Reason: "not today"})
			r := wait(t, done)
			if r.Exit(t, 126); !strings.Contains(r.Stderr, "denied: not today") {
				t.Errorf("stderr %q", r.Stderr)
			}
		})
		t.Run("any uid, a login shell, by its path, without PATH", func(t *testing.T) {
			done := background(t, h, "podman", "exec", "-u", "4242:4242", "box", "bash", "-lc", "lazaret-escalate -- true && /run/lazaret/escalate -- true")
			for range 2 {
				d.run(d.next(wire.EventAsk).Ask, 0, "", "")
			}
			wait(t, done).OK(t)
		})
		t.Run("a scrubbed environment", func(t *testing.T) {
			done := background(t, h, "podman", "exec", "box", "sh", "-c", "env -i /run/lazaret/escalate -- true; exit $?")
			d.run(d.next(wire.EventAsk).Ask, 3, "", "")
			wait(t, done).Exit(t, 3)
		})
		t.Run("the container's own process", func(t *testing.T) {
			done := background(t, h, append([]string{"podman"}, append(h.LazaretArgs(ws), harness.Debian, "sh", "-c", "lazaret-escalate --json -- id")...)...)
			var ask *wire.Ask
			select {
			case r := <-done:
				r.OK(t)
			case e := <-d.events:
				ask = e.Ask
			}
			if ask == nil || ask.Kind != "run" {
				t.Errorf("asked %+v", ask)
			}
			d.run(ask, 0, "me", "")
			if out := wait(t, done).OK(t); !strings.Contains(out, `"stdout":"me"`) {
				t.Errorf("stdout %q", out)
			}
		})
		t.Run("the client goes away", func(t *testing.T) {
			h.Podman("exec", "box", "lazaret-escalate", "--timeout", "1s", "--", "true").Exit(t, 124)
			ask := d.next(wire.EventAsk).Ask
			if e := d.next(wire.EventGone); e.ID != ask.ID {
				t.Errorf("gone %+v", e)
			}
			d.none()
		})
		t.Run("nobody is there", func(t *testing.T) {
			d.cancel()
			r := h.Podman("exec", "box", "lazaret-escalate", "--timeout", "3s", "--", "true")
			if r.Exit(t, 124); !strings.Contains(r.Stderr, "nobody is there to ask") || strings.Count(r.Stderr, "nobody is there") != 1 {
				t.Errorf("stderr %q", r.Stderr)
			}
		})
		t.Run("the container's own command", func(t *testing.T) {
			h.Lazaret(ws, harness.Debian, "lazaret-escalate", "--timeout", "1s", "--", "true").Exit(t, 124)
		})
	})
}
