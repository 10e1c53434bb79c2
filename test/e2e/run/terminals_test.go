package run

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

const patience = 60 * time.Second

// pane is a terminal of the developer's, in tmux.
type pane struct {
	t    *testing.T
	h    *harness.Harness
	name string
}

// tmux runs one of tmux's commands on the test's own server.
func tmux(h *harness.Harness, args ...string) harness.Result {
	return h.Run("tmux", append([]string{"-S", filepath.Join(h.Home, "tmux.sock"), "-f", "/dev/null"}, args...)...)
}

// open starts a script in a new terminal of 80 columns and 24 rows.
func open(t *testing.T, h *harness.Harness, name, dir, script string) *pane {
	t.Helper()
	tmux(h, "new-session", "-d", "-s", name, "-x", "80", "-y", "24", "-c", dir, "sh", "-c", script+"; echo code=$?; sleep 1000").OK(t)
	t.Cleanup(func() { tmux(h, "kill-session", "-t", name) })
	return &pane{t, h, name}
}

func (p *pane) screen() string { return tmux(p.h, "capture-pane", "-p", "-t", p.name).Stdout }

// state is all that tmux tells of the terminal.
func (p *pane) state() string {
	return p.screen() + tmux(p.h, "display-message", "-p", "-t", p.name,
		"#{cursor_x} #{cursor_y} #{cursor_flag} #{alternate_on} #{mouse_any_flag} #{keypad_cursor_flag} #{wrap_flag} #{scroll_region_upper} #{scroll_region_lower}").Stdout
}

func (p *pane) types(keys ...string) {
	p.t.Helper()
	tmux(p.h, append([]string{"send-keys", "-t", p.name}, keys...)...).OK(p.t)
}

func (p *pane) sees(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(p.screen(), text); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: no %q on the screen\n%s", p.name, text, p.screen())
		}
	}
}

// answers presses a key when the prompt takes one.
func (p *pane) answers(key string) {
	p.t.Helper()
	time.Sleep(time.Second) // longer than the prompt's pause
	p.types(key)
}

func escalation(image string) harness.Options {
	return harness.Options{Config: "[general]\ncontrol_dir = \"~\"\n[escalation]\ntimeout = \"2m\"\n[profiles.default]\nimage = \"" + image + "\"\ncommand = [\"sh\"]\n"}
}

// Each request shows in its own terminal only, what is typed for the agent does not
// answer it, and afterwards the screen is as before.
func TestTerminals(t *testing.T) {
	h := harness.New(t, escalation(harness.Debian))
	ws := h.Workspace()
	const mark = `PS1='ready> ' exec lazaret run -- sh -c 'PS1="ready> " exec sh'`
	a := open(t, h, "a", ws, "("+mark+")")
	a.sees("ready>")
	b := open(t, h, "b", ws, "("+mark+")")
	b.sees("ready>")
	hash, err := harness.DomainHash("default", ws)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(h.Podman("ps", "--format={{.Names}}").OK(t), "lazaret-coord-"+hash); n != 1 {
		t.Fatalf("%d sandboxes, want 1", n)
	}
	c := open(t, h, "c", ws, "podman exec -it -e 'PS1=ready> ' lazaret-coord-"+hash+" sh")
	c.sees("ready>")
	d := open(t, h, "d", ws, "lazaret console")

	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			for _, p := range []*pane{a, b, c, d} {
				p.t = t
			}
			f(t)
		})
	}
	ask := func(p *pane, why string, others ...*pane) {
		p.t.Helper()
		p.types("-l", "lazaret-escalate -j 'wants "+why+"' -- echo by the host; echo code=$?")
		p.types("Enter")
		if p != c {
			p.sees("may this run on the host?")
			p.sees("wants " + why)
		} else {
			d.sees("echo by the host")
			d.types("Enter")
			d.sees("wants " + why)
		}
		for _, o := range others {
			if s := o.screen(); strings.Contains(s, "wants "+why) {
				p.t.Errorf("the request of %s shows in %s:\n%s", p.name, o.name, s)
			}
		}
	}
	run("approved in its own terminal", func(t *testing.T) {
		ask(a, "one", b, c, d)
		a.types("-l", "and typed for the agent")
		time.Sleep(2 * time.Second)
		if s := a.screen(); !strings.Contains(s, "may this run on the host?") {
			t.Fatalf("answered by keys that were typed for the agent:\n%s", s)
		}
		a.answers("a")
		a.sees("by the host\ncode=0")
	})
	run("denied in the other", func(t *testing.T) {
		ask(b, "two", a, c, d)
		b.answers("d")
		b.sees("code=126")
	})
	run("the plain exec's comes to the console", func(t *testing.T) {
		ask(c, "three", a, b)
		d.answers("a")
		c.sees("by the host\ncode=0")
	})
	run("the screen is as before", func(t *testing.T) {
		a.types("-l", "clear; (sleep 3; lazaret-escalate -j 'from behind' -- true >/dev/null 2>&1) & vim.tiny -u NONE -c 'set mouse=a' /etc/passwd")
		a.types("Enter")
		a.sees("root:x:0:0")
		time.Sleep(500 * time.Millisecond)
		before := a.state()
		a.sees("from behind")
		a.answers("d")
		h.Eventually("vim's screen comes back", patience, func() bool { return a.state() == before })
		a.types("-l", ":q!")
		a.types("Enter")
		a.sees("ready>")
	})
	run("size, job control, exit code", func(t *testing.T) {
		b.types("-l", "clear; stty size; sleep 100")
		b.types("Enter")
		b.sees("24 80")
		h.Eventually("the agent's program stops", patience, func() bool { // once it has begun
			b.types("C-z")
			time.Sleep(200 * time.Millisecond)
			return strings.Contains(b.screen(), "Stopped")
		})
		b.types("-l", "kill -9 %1; clear")
		b.types("Enter")
		tmux(h, "resize-window", "-t", "b", "-x", "70", "-y", "20").OK(t)
		h.Eventually("the size arrives", patience, func() bool {
			b.types("-l", "stty size")
			b.types("Enter")
			time.Sleep(200 * time.Millisecond)
			return strings.Contains(b.screen(), "20 70")
		})
		b.types("-l", "exit 5")
		b.types("Enter")
		b.sees("code=5")
		a.types("Enter") // the other goes on
		a.sees("ready>")
	})
	run("abort ends the sandbox", func(t *testing.T) {
		a.types("-l", "clear; lazaret-escalate -j 'the last' -- true")
		a.types("Enter")
		a.sees("the last")
		a.answers("q")
		a.sees("code=130")
		h.DomainEnds("default", ws)
	})
}

// A lazaret run that is killed leaves nothing behind; one of two takes only its own
// session with it.
func TestKilled(t *testing.T) {
	h := harness.New(t, escalation(harness.Busybox))
	ws := h.Workspace()
	pid := func(p *pane) int {
		t.Helper()
		p.sees("pid=")
		p.sees("ready")
		n, err := strconv.Atoi(regexp.MustCompile(`pid=(\d+)`).FindStringSubmatch(p.screen())[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	script := func(mark string) string {
		return fmt.Sprintf(`(sh -c 'echo pid=$$; exec lazaret run -- sh -c "trap true HUP; echo ready; sleep %s; sleep 600"')`, mark)
	}
	a, b := open(t, h, "a", ws, script("7001")), open(t, h, "b", ws, script("7002"))
	first, second := pid(a), pid(b)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	hash, err := harness.DomainHash("default", ws)
	if err != nil {
		t.Fatal(err)
	}
	h.Eventually("the killed one's processes end, the other's live", patience, func() bool {
		ps := h.Podman("exec", "lazaret-coord-"+hash, "ps").Stdout
		return !strings.Contains(ps, "sleep 7001") && strings.Contains(ps, "sleep 7002")
	})
	if err := syscall.Kill(second, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.DomainEnds("default", ws)
}

func TestDetachedAndFresh(t *testing.T) {
	h := harness.New(t, escalation(harness.Busybox))
	ws := h.Workspace()
	name := h.Sh(ws, `cd "$1" && lazaret run --detach -- sleep 600`, ws).OK(t)
	if !strings.HasPrefix(name, "lazaret-coord-") {
		t.Errorf("printed %q", name)
	}
	id := h.Inspect(name, ".Id")
	h.Sh(ws, `cd "$1" && lazaret run -- true`, ws).OK(t)
	if got := h.Inspect(name, ".Id"); got != id {
		t.Errorf("the sandbox ended with the second of its sessions")
	}
	h.Sh(ws, `cd "$1" && lazaret run --fresh -- true`, ws).OK(t)
	h.DomainEnds("default", ws)

	// Kept for podman's own verbs, without its guards, and no hindrance.
	h.Sh(ws, `cd "$1" && lazaret run --rm=false -- sh -c "echo kept >/note"`, ws).OK(t)
	h.DomainEnds("default", ws)
	h.Eventually("podman has cleaned the kept container up", patience, func() bool { return h.Inspect(name, ".State.Status") == "exited" })
	if diff := h.Podman("diff", name).OK(t); !strings.Contains(diff, "A /note") {
		t.Errorf("its changes: %s", diff)
	}
	h.Sh(ws, `cd "$1" && lazaret run -- true`, ws).OK(t)
	h.DomainEnds("default", ws)
	h.Podman("rm", "--force", "--ignore", name).OK(t)
}
