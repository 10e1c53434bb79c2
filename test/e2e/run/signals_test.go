package run

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// pid waits for the "pid=" that a script has printed.
func (p *pane) pid() int {
	p.t.Helper()
	number := regexp.MustCompile(`pid=(\d+)`)
	p.h.Eventually("the process tells its pid", patience, func() bool { return number.MatchString(p.screen()) })
	n, err := strconv.Atoi(number.FindStringSubmatch(p.screen())[1])
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// A signal to lazaret run, or its terminal's end, ends its session and no other,
// and leaves the terminal as it was; a stop gives it to the shell, and fg back.
func TestSignals(t *testing.T) {
	h := harness.New(t, escalation(harness.Busybox))
	ws := h.Workspace()
	name := h.Sh(ws, `cd "$1" && lazaret run --detach -- sleep 7100`, ws).OK(t)
	alive := func(mark int) bool {
		return strings.Contains(h.Podman("exec", name, "ps").OK(t), fmt.Sprint("sleep ", mark))
	}
	begin := func(t *testing.T, mark int) (*pane, int) {
		t.Helper()
		p := open(t, h, fmt.Sprint("s", mark), ws, fmt.Sprintf(`(sh -c 'echo pid=$$; exec lazaret run -- sh -c "trap true HUP; echo ready; sleep %d; sleep 600"')`, mark))
		pid := p.pid()
		p.sees("ready")
		h.Eventually("the agent runs", patience, func() bool { return alive(mark) })
		return p, pid
	}
	ended := func(t *testing.T, mark int) {
		t.Helper()
		h.Eventually("the session's processes have ended", patience, func() bool { return !alive(mark) })
		if !alive(7100) {
			t.Error("another session's process has ended")
		}
	}
	for mark, sig := range map[int]syscall.Signal{7101: syscall.SIGHUP, 7102: syscall.SIGINT, 7103: syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			p, pid := begin(t, mark)
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			p.sees(fmt.Sprint("code=", 128+int(sig)))
			ended(t, mark)
			p.types("-l", "echoes again")
			p.sees("echoes again")
		})
	}
	t.Run("the terminal is closed", func(t *testing.T) {
		p, _ := begin(t, 7104)
		tmux(h, "kill-session", "-t", p.name).OK(t)
		ended(t, 7104)
	})
	t.Run("stopped and continued", func(t *testing.T) {
		p := open(t, h, "stop", ws, "PS1='host> ' bash --norc -i")
		p.sees("host>")
		p.types("-l", `sh -c 'echo pid=$$; exec lazaret run -- sh -c "echo rea""dy; exec sh"'`)
		p.types("Enter")
		pid := p.pid()
		p.sees("ready")
		if err := syscall.Kill(pid, syscall.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		p.sees("Stopped")
		p.types("-l", "echo host $((40+2))")
		p.types("Enter")
		p.sees("host 42")
		p.types("fg", "Enter")
		h.Eventually("the agent has the terminal again", patience, func() bool {
			p.types("-l", "echo agent $((50+5)); test -e /run/lazaret && echo in the sand''box")
			p.types("Enter")
			return strings.Contains(p.screen(), "agent 55\nin the sandbox")
		})
		p.types("C-d")
		p.sees("host>")
	})
	h.Podman("stop", "-t", "6", name).OK(t)
	h.DomainEnds("default", ws)
}

// Of several that come first at the same time, one starts the sandbox and all are
// in it.
func TestFirstComers(t *testing.T) {
	h := harness.New(t, escalation(harness.Busybox))
	ws := h.Workspace()
	var panes []*pane
	for i := range 3 {
		panes = append(panes, open(t, h, fmt.Sprint("first", i), ws, `(lazaret run -- sh -c 'echo ready; hostname; read x; exit 3')`))
	}
	for _, p := range panes {
		p.sees("ready")
	}
	if out := h.Podman("ps", "--format={{.Names}}").OK(t); strings.Count(out, "lazaret-coord-") != 1 || strings.Contains(out, "\n") {
		t.Errorf("containers: %q", out)
	}
	host := h.Inspect(h.Podman("ps", "--format={{.Names}}").OK(t), ".Id")[:12]
	for _, p := range panes {
		p.sees(host)
		p.types("Enter")
		p.sees("code=3")
	}
	h.DomainEnds("default", ws)
}
