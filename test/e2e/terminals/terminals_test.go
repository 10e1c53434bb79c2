// Package terminals runs podman's interactive commands through lazaret-runtime on
// a pseudo-terminal: size, keys, job control, detaching, and the terminal's
// description inside.
package terminals

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const patience = time.Minute

// Case "podman exec -it": the terminal's size follows, Ctrl-C, Ctrl-Z and fg work,
// Ctrl-P Ctrl-Q detaches and attach comes back, at run and at exec alike. Older
// conmon gives exec a flag that runsc does not have.
func TestTerminal(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		run := append(h.LazaretArgs(ws), "-it", "--name=box", harness.Busybox, "sh")
		for _, c := range []struct {
			name string
			args []string
		}{
			{"run", run},
			{"exec", []string{"exec", "-it", "box", "sh"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				if c.name == "exec" {
					h.Detached(ws, "box", harness.Busybox, "sleep", "300")
				}
				term := h.Terminal("podman", c.args...)
				keys(t, h, term)
				if c.name == "exec" {
					if d := h.Domain("default", ws); len(d.Sessions) != 1 || !d.Sessions[0].Terminal {
						t.Errorf("sessions during exec -it: %+v", d.Sessions)
					}
				}

				term.Send("\x10")
				time.Sleep(200 * time.Millisecond) // podman looks for its keys one at a time, as they are typed
				term.Send("\x11")
				// podman 4.3 makes an error of it at exec, with runc too.
				if code := term.Wait(); code != 0 && (c.name != "exec" || !strings.Contains(term.Text(), "detached from container")) {
					t.Errorf("detached with exit %d\nterminal: %q", code, term.Text())
				}
				h.Podman("exec", "box", "true").OK(t)
				if c.name == "exec" {
					// podman has no way back to an exec; it runs on until the container ends.
					h.Podman("rm", "-f", "-t", "0", "box").OK(t)
					return
				}
				term = h.Terminal("podman", "attach", "box")
				term.Send("echo back-$((40+2))\r")
				term.Expect("back-42", patience)
				term.Send("exit 5\r")
				if code := term.Wait(); code != 5 && code != 0 { // podman 4.3 forgets it, with runc too
					t.Errorf("attach ended with exit %d, want 5", code)
				}
				h.Eventually("the container is removed", patience, func() bool { return h.Podman("container", "exists", "box").Code != 0 })
			})
		}
	})
}

// keys tries the terminal of a shell.
func keys(t *testing.T, h *harness.Harness, term *harness.Terminal) {
	t.Helper()
	// It is one, though gVisor has no name for it: tty says that it is none.
	term.Send("test -t 0 && test -t 1 && test -t 2; echo tty=$?\r")
	term.Expect("tty=0", patience)
	term.Send("stty size\r")
	term.Expect("24 80", patience)
	term.Resize(40, 132)
	h.Eventually("the new size arrives", patience, func() bool {
		term.Send("stty size\r")
		time.Sleep(100 * time.Millisecond)
		return strings.Contains(term.Text(), "40 132")
	})
	term.Send("sh -c 'trap \"stty size; exit\" WINCH; echo watch''ing; while :; do sleep 0.1; done'\r")
	term.Expect("watching", patience)
	term.Resize(30, 100)
	term.Expect("30 100", patience)

	term.Send("sh -c 'echo wait''ing; sleep 100'\r")
	term.Expect("waiting", patience)
	term.Send("\x03")
	term.Send("echo code=$?\r")
	term.Expect("code=130", patience)

	term.Send("sh -c 'echo will-st''op; sleep 1; echo fini''shed'\r")
	term.Expect("will-stop", patience)
	term.Send("\x1a")
	term.Expect("Stopped", patience)
	term.Send("fg\r")
	term.Expect("finished", patience)

	term.Send("sh -c 'echo read''ing; cat'; echo eof=$?\r")
	term.Expect("reading", patience)
	term.Send("\x04")
	term.Expect("eof=0", patience)
}

func TestTerminalsExitCode(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Detached(ws, "box", harness.Busybox, "sleep", "300")
		for _, c := range []struct {
			name string
			argv []string
			code int
		}{
			{"own code", []string{"sh", "-c", "exit 37"}, 37},
			{"missing command", []string{"nosuch"}, 127},
			{"directory", []string{"/etc"}, 126},
		} {
			t.Run(c.name, func(t *testing.T) {
				for verb, args := range map[string][]string{
					"run":  append(h.LazaretArgs(ws), "-it", harness.Busybox),
					"exec": {"exec", "-it", "box"},
				} {
					term := h.Terminal("podman", append(args, c.argv...)...)
					if code := term.Wait(); code != c.code {
						t.Errorf("%s: exit %d, want %d\nterminal: %q", verb, code, c.code, term.Text())
					}
				}
			})
		}
		h.Podman("rm", "-f", "-t", "0", "box").OK(t)
	})
}

// A terminal that is closed ends the session with it, and leaves the container.
func TestClosedTerminal(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Detached(ws, "box", harness.Busybox, "sleep", "300")
		term := h.Terminal("podman", "exec", "-it", "box", "sh")
		term.Send("echo re''ady\r")
		term.Expect("ready", patience)
		if n := len(h.Domain("default", ws).Sessions); n != 1 {
			t.Errorf("%d sessions, want 1", n)
		}
		term.Close()
		h.Eventually("the session has ended or can be ended", patience, func() bool {
			return len(h.Domain("default", ws).Sessions) == 0 || h.Podman("exec", "box", "killall", "sh").Code == 0
		})
		h.Podman("exec", "box", "true").OK(t)
		h.Podman("rm", "-f", "-t", "0", "box").OK(t)
	})
}

// entries are compiled on the host as a terminal's installation does.
const entries = `xterm-ghostty|ghostty|Ghostty,
	use=xterm-256color,
lazaret-made-up|a terminal that no image has,
	colors#0x7b, clear=\E[H\E[2Jmade-up, use=xterm-256color,
`

// Case "terminal type": an entry that only the host has makes tput, clear, tmux and
// vim work inside, at run and at exec.
func TestTerminfo(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.WriteFile(filepath.Join(h.Home, "terms.ti"), entries)
		h.Run("tic", "-x", "-o", filepath.Join(h.Home, ".terminfo"), filepath.Join(h.Home, "terms.ti")).OK(t)
		const try = `printf 'colors=%s\n' "$(tput colors)"; clear | od -An -c | tr -d ' \n'; echo
			tmux -L x -f /dev/null new -d 'sleep 20' && tmux -L x ls | grep -c . ; tmux -L x kill-server
			vim.tiny -u NONE -es -c 'quit!'; echo "vim=$?"
			vim.tiny --not-a-term -u NONE -c 'set term?' -c 'quit!' 2>&1 | grep -o 'term=[a-z-]*\|E558'`
		check := func(what, term, colors, clears string, r harness.Result) {
			t.Helper()
			got := strings.ReplaceAll(r.OK(t), "\r", "")
			for _, want := range []string{"colors=" + colors + "\n", clears, "\n1\n", "term=" + term, "vim=0"} {
				if !strings.Contains(got, want) {
					t.Errorf("%s, TERM=%s: no %q in %q", what, term, want, got)
				}
			}
			if r.Stderr != "" {
				t.Errorf("%s, TERM=%s: stderr %q", what, term, r.Stderr)
			}
		}
		h.Detached(ws, "box", harness.Debian, "sleep", "300")
		for _, c := range []struct{ term, colors, clears string }{
			{"lazaret-made-up", "123", "made-up"},
			{"xterm-ghostty", "256", `[H`},
		} {
			check("run", c.term, c.colors, c.clears, h.Lazaret(ws, "-t", "-e", "TERM="+c.term, harness.Debian, "sh", "-c", try))
			check("exec", c.term, c.colors, c.clears, h.Podman("exec", "-t", "-e", "TERM="+c.term, "box", "sh", "-c", try))
		}
		t.Run("nobody in the sandbox writes them", func(t *testing.T) {
			got := h.Podman("exec", "box", "sh", "-c", `for d in $(echo $TERMINFO_DIRS | tr : ' '); do case $d in /run/lazaret*) touch $d/x 2>/dev/null && echo wrote; echo seen;; esac; done`).OK(t)
			if got != "seen" {
				t.Errorf("got %q", got)
			}
		})
		h.Podman("rm", "-f", "-t", "0", "box").OK(t)
	})
}

// logs runs a container to its end and reads its log: with a terminal, conmon
// shows there what the runtime said.
func logs(h *harness.Harness, ws string, args ...string) harness.Result {
	h.Detached(ws, "run", args...)
	h.Podman("wait", "run")
	defer h.Podman("rm", "run")
	return h.Podman("logs", "run")
}

// Case "terminal type": whatever TERM is, the container starts; what nobody knows
// is a notice.
func TestOddTerms(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Detached(ws, "box", harness.Debian, "sleep", "300")
		for _, c := range []struct {
			term, want string
			notice     bool
		}{
			{"", "", false},
			{"dumb", "dumb", false},
			{"vt100", "vt100", false},
			{"nobody-knows-this", "nobody-knows-this", true},
			{"../../../etc/passwd", "../../../etc/passwd", true},
			{"x" + strings.Repeat("y", 3000), "x" + strings.Repeat("y", 3000), true},
		} {
			t.Run(fmt.Sprintf("%.20q", c.term), func(t *testing.T) {
				for verb, r := range map[string]harness.Result{
					"logs": logs(h, ws, "-t", "-e", "TERM="+c.term, harness.Debian, "sh", "-c", `echo "<$TERM>"`),
					"exec": h.Podman("exec", "-t", "-e", "TERM="+c.term, "box", "sh", "-c", `echo "<$TERM>"`),
				} {
					got := r.OK(t)
					if !strings.Contains(got, "<"+c.want+">") {
						t.Errorf("%s: got %.200q", verb, got)
					}
					said := strings.Contains(r.Stdout+r.Stderr, "terminal type")
					if said != c.notice {
						t.Errorf("%s: notice given: %v, want %v: %.300q %.300q", verb, said, c.notice, got, r.Stderr)
					}
				}
			})
		}
		t.Run("status tells", func(t *testing.T) {
			h.Detached(ws, "odd", "-e", "TERM=nobody-knows-this", harness.Debian, "sleep", "300")
			defer h.Podman("rm", "-f", "-t", "0", "odd")
			out := h.Run("lazaret", "status").OK(t)
			_, mine, _ := strings.Cut(out, ws)
			mine, _, _ = strings.Cut(mine, "\ndomain ") // another test's
			if strings.Count(mine, `note: terminal type "nobody-knows-this"`) != 1 {
				t.Errorf("got %s", out)
			}
		})
		t.Run("colour wishes", func(t *testing.T) {
			got := h.Lazaret(ws, "-t", "-e", "COLORTERM=truecolor", "-e", "NO_COLOR=1", harness.Debian, "sh", "-c", "echo $COLORTERM$NO_COLOR").OK(t)
			if got != "truecolor1\r" {
				t.Errorf("got %q", got)
			}
		})
		h.Podman("rm", "-f", "-t", "0", "box").OK(t)
	})
}
