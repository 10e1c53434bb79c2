// Package console drives lazaret console by keys, in tmux, against real podman and
// runsc: what an agent asks for, what a person sees, and what runs on the host.
package console

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const patience = time.Minute

// quiet is longer than the prompt's own pause before a key counts.
const quiet = 1200 * time.Millisecond

// A console sees all of the user's domains: those of other tests are kept apart.
const config = "[general]\ncontrol_dir = \"~\"\n[escalation]\ntimeout = \"3m\"\nauto_approve = [[\"uname\"], [\"sleep\"], [\"pwd\"]]\n"

// screen is lazaret console in a tmux of 80 by 24.
type screen struct {
	t    *testing.T
	h    *harness.Harness
	sock string
}

func console(t *testing.T, h *harness.Harness) *screen {
	t.Helper()
	s := &screen{t, h, filepath.Join(h.Home, "tmux.sock")}
	t.Cleanup(func() { h.Run("tmux", "-S", s.sock, "kill-server") })
	s.start()
	return s
}

func (s *screen) start() {
	s.t.Helper()
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "lazaret", "console")
	s.shows("Lazaret console")
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	return s.h.Run("tmux", append([]string{"-S", s.sock}, args...)...).OK(s.t)
}

func (s *screen) text() string { return s.tmux("capture-pane", "-p") }

func (s *screen) shows(parts ...string) {
	s.t.Helper()
	var last string
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		last = s.text()
		missing := ""
		for _, p := range parts {
			if !strings.Contains(last, p) {
				missing = p
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("no %q on the screen:\n%s", missing, last)
		}
	}
}

func (s *screen) keys(keys ...string) { s.tmux(append([]string{"send-keys"}, keys...)...) }

// answer opens the request that waits and presses a key after a pause.
func (s *screen) answer(keys ...string) {
	s.t.Helper()
	s.keys("Enter")
	s.shows("[A]pprove")
	for _, k := range keys {
		time.Sleep(quiet) // a person's pause: the prompt asks for it
		s.keys(k)
	}
}

// ask asks from the box, in the background.
func ask(t *testing.T, h *harness.Harness, args ...string) <-chan harness.Result {
	t.Helper()
	done := make(chan harness.Result, 1)
	args = append([]string{"exec", "-w", "/workspace/src", "box", "lazaret-escalate"}, args...)
	go func() { done <- harness.Do(h.Command(t.Context(), "podman", args...)) }()
	return done
}

func wait(t *testing.T, done <-chan harness.Result) harness.Result {
	t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(patience):
		t.Fatal("the client does not end")
		return harness.Result{}
	}
}

func TestConsole(t *testing.T) {
	harness.Each(t, harness.Options{Config: config}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		s := console(t, h)
		s.shows("no domain is in use")
		h.Detached(ws, "box", harness.Debian, "sleep", "600")
		s.shows("1 domain")

		t.Run("approved", func(t *testing.T) {
			done := ask(t, h, "-j", "who am I there", "--", "id", "-un")
			s.shows("waits", "id -un", "1 waiting")
			s.keys("Enter")
			s.shows("who am I there", `"id"`, `"-un"`, "runs in   "+ws+"/src", "program   /usr/bin/id", "[A]pprove")
			time.Sleep(quiet)
			s.keys("a")
			if out := wait(t, done).OK(t); out != h.User.Name {
				t.Errorf("id -un gave %q on the host", out)
			}
			s.shows("exit 0", "0 waiting")
		})
		t.Run("automatic", func(t *testing.T) {
			if out := wait(t, ask(t, h, "--", "pwd", "-P")).OK(t); out != ws+"/src" {
				t.Errorf("ran in %q", out)
			}
			s.shows("auto exit 0")
		})
		t.Run("denied with a reason, shown inert", func(t *testing.T) {
			done := ask(t, h, "-j", "x\x1b[2Jy\u202e", "--", "uname", "\x1b[2K\rls", "\x1b]52;c;eA==\a")
			s.shows("waits", `\e[2K\rls`)
			s.keys("Enter")
			s.shows(`x\e[2Jy\u202e`, `\e]52;c;eA==`)
			time.Sleep(quiet)
			s.keys("r")
			s.shows("reason for the agent")
			s.keys("no", "Space", "thanks")
			time.Sleep(quiet)
			s.keys("Enter")
			r := wait(t, done)
			if r.Exit(t, 126); !strings.Contains(r.Stderr, "no thanks") {
				t.Errorf("stderr %q", r.Stderr)
			}
			s.shows("denied")
		})
		t.Run("edited", func(t *testing.T) {
			done := ask(t, h, "--", "id", "-u")
			s.shows("id -u", "1 waiting")
			s.answer("e")
			s.keys("C-u")
			s.keys("echo edit; echo ed", "Enter")
			s.shows("edited", "shell")
			time.Sleep(quiet)
			s.keys("a")
			if out := wait(t, done).OK(t); out != "edit\ned" {
				t.Errorf("got %q", out)
			}
		})
		t.Run("for the session", func(t *testing.T) {
			// One exec is one session.
			done := make(chan harness.Result, 1)
			go func() {
				done <- harness.Do(h.Command(t.Context(), "podman", "exec", "box", "sh", "-c", "lazaret-escalate -- id -gn && lazaret-escalate -- id -gn"))
			}()
			s.shows("id -gn", "1 waiting")
			s.answer("s")
			wait(t, done).OK(t)
			s.shows("auto exit 0    ") // the second
		})
		t.Run("forty columns", func(t *testing.T) {
			done := ask(t, h, "--", "id", "-G")
			s.shows("1 waiting")
			s.tmux("resize-window", "-x", "40", "-y", "24")
			s.shows("enter open  / filter", "id -G")
			s.answer("d")
			wait(t, done).Exit(t, 126)
			s.tmux("resize-window", "-x", "80", "-y", "24")
			s.shows("enter: open")
		})
		t.Run("keys in advance answer nothing", func(t *testing.T) {
			done := ask(t, h, "--timeout", "8s", "--", "id", "-Z")
			s.shows("id -Z", "1 waiting")
			s.keys("Enter", "a", "a", "d", "a")
			wait(t, done).Exit(t, 124)
			s.shows("gone")
		})
		t.Run("the client goes away", func(t *testing.T) {
			h.Podman("exec", "-w", "/workspace", "box", "timeout", "5", "lazaret-escalate", "--", "sleep", "7654321").Exit(t, 124)
			s.shows("gone")
			h.Eventually("the command has ended", patience, func() bool { return !running("7654321") })
		})
		t.Run("the console goes away", func(t *testing.T) {
			done := ask(t, h, "--", "sleep", "7654322")
			s.shows("auto runs")
			h.Eventually("the command runs", patience, func() bool { return running("7654322") })
			s.tmux("kill-server")
			h.Eventually("the command has ended", patience, func() bool { return !running("7654322") })
			if r := wait(t, done); r.Code == 0 {
				t.Errorf("the client is told that it ran: %+v", r)
			}
			s.start()
			s.shows("1 domain")
		})
		t.Run("abort", func(t *testing.T) {
			done := ask(t, h, "--", "id", "-nG")
			s.shows("id -nG", "1 waiting")
			s.answer("Q")
			if r := wait(t, done); r.Code == 0 {
				t.Errorf("the client ends with 0: %+v", r)
			}
			h.Eventually("the sandbox has ended", patience, func() bool {
				return strings.TrimSpace(h.Podman("container", "inspect", "--format", "{{.State.Running}}", "box").Stdout) != "true"
			})
			h.DomainEnds("default", ws)
			s.shows("0 domains")
			s.keys("q")
			h.Eventually("the console ends", patience, func() bool { return h.Run("tmux", "-S", s.sock, "has-session").Code != 0 })
		})
	})
}

// running looks for a host process with this argument.
func running(arg string) bool {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if words := strings.Split(string(data), "\x00"); err == nil && len(words) > 1 && words[0] == "sleep" && words[1] == arg {
			return true
		}
	}
	return false
}

func TestHeadless(t *testing.T) {
	harness.Each(t, harness.Options{Config: config}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan harness.Result, 1)
		tools := filepath.Join(h.Home, "tools")
		h.Run("mkdir", tools).OK(t)
		desk := h.Command(ctx, "lazaret", "console", "--headless")
		for i, e := range desk.Env {
			if path, ok := strings.CutPrefix(e, "PATH="); ok {
				desk.Env[i] = "PATH=" + tools + ":" + path
			}
		}
		go func() { ended <- harness.Do(desk) }()
		h.Detached(ws, "box", "-v", tools+":/tools", harness.Debian, "sleep", "600")
		// The first on the desk's PATH, and the agent's to write.
		h.Podman("exec", "box", "sh", "-c", "printf '#!/bin/sh\necho agent' >/tools/uname && chmod +x /tools/uname").OK(t)
		if out := wait(t, ask(t, h, "--", "uname", "-s")).OK(t); out != "Linux" {
			t.Errorf("got %q", out)
		}
		for _, command := range []string{"id", "uname; id", "uname *", "./uname", "/workspace/uname", tools + "/uname"} {
			r := wait(t, ask(t, h, "--timeout", "2s", command))
			if r.Code != 124 {
				t.Errorf("%s: exit %d, %s", command, r.Code, r.Stderr)
			}
		}
		h.Podman("rm", "-f", "-t", "0", "box").OK(t)
		cancel()
		r := <-ended
		if !strings.Contains(r.Stderr, "runs by rule") || !strings.Contains(r.Stderr, "waits for a person") {
			t.Errorf("log: %s", r.Stderr)
		}
	})
}
