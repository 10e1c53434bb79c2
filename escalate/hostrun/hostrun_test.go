package hostrun

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// TestMain is a supervisor too, and a desk that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "supervise":
			if err := Supervise(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "desk": // workspace, command
			ask := &wire.Ask{Domain: domain.Anchor{Workspace: os.Args[2]}, CWD: "/workspace"}
			h := func() *policy.Host { return &policy.Host{Path: os.Getenv("PATH")} }
			l := &Local{Host: h, Environ: os.Environ(), Supervisor: []string{"/proc/self/exe", "supervise"}}
			l.Run(context.Background(), ask, policy.Evaluate(h(), ask, os.Args[3]))
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

type fixture struct {
	*Local
	ask  *wire.Ask
	bin  string // on PATH
	work string
}

func setup(t *testing.T) *fixture {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{bin: filepath.Join(base, "bin"), work: filepath.Join(base, "work")}
	for _, d := range []string{f.bin, filepath.Join(f.work, "sub")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.ask = &wire.Ask{ID: "x", Domain: domain.Anchor{Workspace: f.work, Profile: "dev"}, CWD: "/workspace"}
	f.Local = &Local{
		Host:       func() *policy.Host { return &policy.Host{Path: f.bin + ":/usr/bin:/bin"} },
		Environ:    os.Environ(),
		Supervisor: []string{"/proc/self/exe", "supervise"},
	}
	return f
}

func (f *fixture) view(command string) *policy.View {
	return policy.Evaluate(f.Host(), f.ask, command)
}

func (f *fixture) run(t *testing.T, command string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return f.Run(ctx, f.ask, f.view(command))
}

func (f *fixture) script(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(f.bin, name)
	if err := os.WriteFile(p, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRun(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.script(t, "args", `for a; do printf '[%s]' "$a"; done; echo err >&2; exit 7`)
	f.script(t, "die", `kill -TERM $$`)
	f.script(t, "input", `read x; echo "got $? $x"`)
	f.script(t, "tty", `if (: </dev/tty) 2>/dev/null; then echo terminal; else echo none; fi`)
	f.script(t, "where", `pwd -P; echo "$PWD"`)
	for _, tt := range []struct {
		name, command, cwd string
		code               int
		out, err           string
	}{
		{"words as they are", `args a 'b  c' * ~ '' "d'e"`, "", 7, "[a][b  c][*][~][][d'e]", "err\n"},
		{"the shell's", `args 'a;b' $((1+2)) | tr a-z A-Z`, "", 0, "[A;B][3]", "err\n"},
		{"a signal", "die", "", 128 + 15, "", ""},
		{"no input", "input", "", 0, "got 1 \n", ""},
		{"no terminal", "tty", "", 0, "none\n", ""},
		{"the workspace", "where", "/workspace", 0, f.work + "\n" + f.work + "\n", ""},
		{"below it", "where", "/workspace/sub", 0, f.work + "/sub\n" + f.work + "/sub\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ask := *f.ask
			ask.CWD = tt.cwd
			g := *f
			g.ask = &ask
			r := g.run(t, tt.command)
			if r.Err != nil || r.ExitCode != tt.code || string(r.Stdout) != tt.out || string(r.Stderr) != tt.err {
				t.Errorf("got %d %q %q %v", r.ExitCode, r.Stdout, r.Stderr, r.Err)
			}
		})
	}
}

func TestNothingRunsThatWasNotShown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		command string
		change  func(t *testing.T, f *fixture, v *policy.View)
	}{
		{"another program of the name", "prog", func(t *testing.T, f *fixture, _ *policy.View) {
			must(t, os.Rename(f.script(t, "other", "echo planted"), filepath.Join(f.bin, "prog")))
		}},
		{"the same file with other text", "prog", func(t *testing.T, f *fixture, _ *policy.View) {
			f.script(t, "prog", "echo planted")
		}},
		{"a link that leads elsewhere now", "link", func(t *testing.T, f *fixture, _ *policy.View) {
			must(t, os.Remove(filepath.Join(f.bin, "link")))
			must(t, os.Symlink(f.script(t, "other", "echo planted"), filepath.Join(f.bin, "link")))
		}},
		{"program gone", "prog", func(t *testing.T, f *fixture, _ *policy.View) {
			must(t, os.Remove(filepath.Join(f.bin, "prog")))
		}},
		{"another directory", "prog", func(t *testing.T, f *fixture, _ *policy.View) {
			must(t, os.Rename(filepath.Join(f.work, "sub"), filepath.Join(f.work, "old")))
			must(t, os.Mkdir(filepath.Join(f.work, "sub"), 0o755))
		}},
		{"a link in the directory's place", "prog", func(t *testing.T, f *fixture, _ *policy.View) {
			must(t, os.Rename(filepath.Join(f.work, "sub"), filepath.Join(f.work, "old")))
			must(t, os.Symlink("/etc", filepath.Join(f.work, "sub")))
		}},
		{"a link within the workspace", "prog", func(t *testing.T, f *fixture, _ *policy.View) {
			must(t, os.Rename(filepath.Join(f.work, "sub"), filepath.Join(f.work, "old")))
			must(t, os.Symlink("old", filepath.Join(f.work, "sub")))
			must(t, os.Mkdir(filepath.Join(f.work, "new"), 0o755))
			must(t, os.Remove(filepath.Join(f.work, "sub")))
			must(t, os.Symlink("new", filepath.Join(f.work, "sub")))
		}},
		{"directory gone", "prog", func(t *testing.T, f *fixture, _ *policy.View) {
			must(t, os.Remove(filepath.Join(f.work, "sub")))
		}},
		{"another command", "prog", func(_ *testing.T, _ *fixture, v *policy.View) {
			v.Command = "prog planted"
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.ask.CWD = "/workspace/sub"
			mark := filepath.Join(f.bin, "ran")
			f.script(t, "prog", "touch "+mark)
			must(t, os.Symlink(filepath.Join(f.bin, "prog"), filepath.Join(f.bin, "link")))
			v := f.view(tt.command)
			if v.Err != nil {
				t.Fatal(v.Err)
			}
			tt.change(t, f, v)
			r := f.Run(t.Context(), f.ask, v)
			if r.Err == nil || len(r.Stdout) > 0 {
				t.Errorf("it ran: %d %q", r.ExitCode, r.Stdout)
			}
			if _, err := os.Stat(mark); err == nil {
				t.Error("the program ran")
			}
		})
	}
	// The test would pass if nothing ever ran.
	f := setup(t)
	f.ask.CWD = "/workspace/sub"
	f.script(t, "prog", "echo ran")
	if r := f.run(t, "prog"); r.Err != nil || string(r.Stdout) != "ran\n" {
		t.Errorf("unchanged: %q %v", r.Stdout, r.Err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r := f.run(t, "head -c 20000000 /dev/zero | tee /dev/stderr")
	for name, out := range map[string][]byte{"stdout": r.Stdout, "stderr": r.Stderr} {
		if len(out) > escalate.MaxOutput || len(out) < escalate.MaxOutput-100 {
			t.Errorf("%s has %d bytes", name, len(out))
		}
		text, mark, found := bytes.Cut(out, []byte("\n[lazaret: cut here, "))
		if missing, _, _ := strings.Cut(string(mark), " "); !found || missing != strconv.Itoa(20000000-len(text)) {
			t.Errorf("%s has the mark %q after %d bytes", name, mark, len(text))
		}
	}
	if r.Err != nil || r.ExitCode != 0 {
		t.Errorf("the command was blocked or broken: %d %v", r.ExitCode, r.Err)
	}
	exact := f.run(t, "head -c "+strconv.Itoa(escalate.MaxOutput)+" /dev/zero")
	if exact.Err != nil || len(exact.Stdout) != escalate.MaxOutput || bytes.Contains(exact.Stdout, []byte("lazaret")) {
		t.Errorf("just as much as is allowed: %d bytes, %v", len(exact.Stdout), exact.Err)
	}
}

// hostile starts, besides itself, a descendant in the group, one in a session of
// its own, one whose parent has ended, and none of them heeds SIGTERM. Each holds
// an open file of the lock's.
const hostile = `
trap '' TERM HUP INT
exec 9>"$1"
sleep 1000 &
setsid sh -c 'trap "" TERM; sleep 1000' &
(setsid sh -c 'trap "" TERM; sleep 1000' &)
echo ready >"$1.ready"
sleep 1000
`

// holders counts the processes that have path open.
func holders(t *testing.T, path string) (pids []int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/[0-9]*/fd/9")
	must(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == path {
			pid, err := strconv.Atoi(strings.Split(fd, "/")[2])
			must(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestEverythingEndsWithTheRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		ctx  func(t *testing.T) (context.Context, func())
	}{
		{"gone", func(t *testing.T) (context.Context, func()) {
			ctx, cancel := context.WithCancel(t.Context())
			return ctx, cancel
		}},
		{"time is up", func(t *testing.T) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(t.Context())
			return ctx, func() { cancel(context.DeadlineExceeded) }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.script(t, "hostile", hostile)
			lock := filepath.Join(f.bin, "lock")
			ctx, cancel := tt.ctx(t)
			done := make(chan Result, 1)
			go func() { done <- f.Run(ctx, f.ask, f.view("hostile "+lock)) }()
			eventually(t, "the command is ready", func() bool { return len(holders(t, lock)) >= 5 })
			cancel()
			select {
			case r := <-done:
				if r.Err == nil {
					t.Error("ended without a reason")
				}
			case <-time.After(time.Minute):
				t.Fatal("Run does not return")
			}
			if left := holders(t, lock); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestEverythingEndsWithTheDesk(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.script(t, "hostile", hostile)
	lock := filepath.Join(f.bin, "lock")
	desk := exec.CommandContext(t.Context(), "/proc/self/exe", "desk", f.work, filepath.Join(f.bin, "hostile")+" "+lock)
	must(t, desk.Start())
	eventually(t, "the command is ready", func() bool { return len(holders(t, lock)) >= 5 })
	must(t, desk.Process.Kill())
	_ = desk.Wait()
	eventually(t, "nothing is left", func() bool { return len(holders(t, lock)) == 0 })
}

func TestTheCommandEndsWithItsSupervisor(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.script(t, "long", `exec 9>"$1"; exec sleep 1000`)
	lock := filepath.Join(f.bin, "lock")
	done := make(chan Result, 1)
	go func() { done <- f.Run(t.Context(), f.ask, f.view("long "+lock)) }()
	var pids []int
	eventually(t, "the command runs", func() bool { pids = holders(t, lock); return len(pids) == 1 })
	p, err := proc.ReadStat(pids[0])
	must(t, err)
	must(t, unix.Kill(p.Parent, unix.SIGKILL))
	if r := <-done; r.Err == nil {
		t.Errorf("no error: %d", r.ExitCode)
	}
	eventually(t, "nothing is left", func() bool { return len(holders(t, lock)) == 0 })
}

func TestBackgroundJobsEndWithTheCommand(t *testing.T) {
	t.Parallel()
	f := setup(t)
	lock := filepath.Join(f.bin, "lock")
	f.script(t, "jobs", `exec 9>"$1"; sleep 1000 & sleep 1000 & echo done; exit 3`)
	r := f.run(t, "jobs "+lock)
	if r.Err != nil || r.ExitCode != 3 || string(r.Stdout) != "done\n" {
		t.Errorf("got %d %q %v", r.ExitCode, r.Stdout, r.Err)
	}
	if left := holders(t, lock); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRunAfterTheEnd(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mark := filepath.Join(f.bin, "ran")
	if r := f.Run(ctx, f.ask, f.view("touch "+mark)); r.Err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("it ran")
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	f := setup(t)
	must(t, os.Symlink(f.work, filepath.Join(f.bin, "inward")))
	h := &policy.Host{Path: strings.Join([]string{
		"", ".", "relative", f.work, f.work + "/bin", filepath.Join(f.bin, "inward", "bin"), f.bin, "/usr/bin",
	}, ":")}
	keep := []string{
		"HOME=/home/u", "USER=u", "LANG=C.UTF-8", "SSH_AUTH_SOCK=/tmp/ssh/agent.1", "AWS_PROFILE=dev", "AWS_SECRET_ACCESS_KEY=x=y",
		"KUBECONFIG=/home/u/.kube/config", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus", "XDG_RUNTIME_DIR=/run/user/1000",
		"GH_TOKEN=t", "HTTPS_PROXY=http://p:1", "DISPLAY=:0", "WAYLAND_DISPLAY=wayland-0", "TZ=UTC", "EMPTY=",
	}
	drop := []string{
		"LD_PRELOAD=/x.so", "LD_LIBRARY_PATH=/x", "LD_AUDIT=/x", "GIT_DIR=/x", "GIT_SSH_COMMAND=x", "GIT_CONFIG_COUNT=1", "BASH_ENV=/x",
		"ENV=/x", "IFS=x", "PROMPT_COMMAND=x", "PS4=$(x)", "PYTHONPATH=/x", "PYTHONSTARTUP=/x", "NODE_OPTIONS=--require=/x", "PERL5OPT=-Mx",
		"PERL5LIB=/x", "RUBYOPT=-rx", "LESSOPEN=|x", "LESS=x", "PAGER=x", "AWS_PAGER=x", "EDITOR=x", "VISUAL=x", "KUBE_EDITOR=x", "BROWSER=x",
		"SSH_ASKPASS=x", "GIT_ASKPASS=x", "SUDO_ASKPASS=x", "GCONV_PATH=/x", "GLIBC_TUNABLES=x", "JAVA_TOOL_OPTIONS=-javaagent:x",
		"CLASSPATH=/x", "GOFLAGS=-toolexec=x", "MAKEFLAGS=x", "TAR_OPTIONS=x", "CDPATH=/x", "SHELLOPTS=xtrace", "BASHOPTS=x", "GLOBIGNORE=x",
		"ZDOTDIR=/x", "BASH_FUNC_ls%%=() { x; }", "not a name=x", "=x", "OPENSSL_CONF=/x", "GTK_MODULES=x", "QT_PLUGIN_PATH=/x",
		"MAKEFILES=/x", "npm_config_script_shell=x", "TERMINFO=/x", "PWD=/x", "OLDPWD=/x", "LAZARET_SESSION_ID=x", "RSYNC_RSH=x",
		"FINE=" + f.work, "FINE=" + f.work + "/x", "FINE=/usr/share:" + f.work + "/x", "FINE=--flag=" + f.work + "/x",
		"FINE=" + filepath.Join(f.bin, "inward", "x"), "XDG_DATA_DIRS=/usr/share:" + f.work,
	}
	got := Environment(slices.Concat(keep, drop), h, f.ask, "/dir")
	want := append(slices.Clone(keep), "PATH="+f.bin+":/usr/bin", "PWD=/dir")
	if !slices.Equal(got, want) {
		for _, kv := range got {
			if !slices.Contains(want, kv) {
				t.Errorf("passed on: %s", kv)
			}
		}
		for _, kv := range want {
			if !slices.Contains(got, kv) {
				t.Errorf("missing: %s", kv)
			}
		}
	}
}

// The request has no say in the environment, whatever its command begins with.
func TestRunInThatEnvironment(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Environ = []string{"LD_PRELOAD=/x.so", "BASH_ENV=/x", "AWS_PROFILE=dev", "HOME=/home/u"}
	for _, command := range []string{"env", "env; true"} {
		r := f.run(t, command)
		got := strings.Split(strings.TrimSpace(string(r.Stdout)), "\n")
		got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "_=") || strings.HasPrefix(s, "OLDPWD=") })
		slices.Sort(got)
		want := []string{"AWS_PROFILE=dev", "HOME=/home/u", "PATH=" + f.bin + ":/usr/bin:/bin", "PWD=" + f.work}
		if r.Err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v", command, got, r.Err)
		}
	}
	if v := f.view("LD_PRELOAD=/x.so ls"); v.Err == nil || v.Automatic {
		t.Errorf("an assignment is a program: %+v", v)
	}
}

func BenchmarkRun(b *testing.B) {
	f := &fixture{work: b.TempDir()}
	f.ask = &wire.Ask{Domain: domain.Anchor{Workspace: f.work}, CWD: "/workspace"}
	l := &Local{
		Host:       func() *policy.Host { return &policy.Host{Path: os.Getenv("PATH")} },
		Environ:    os.Environ(),
		Supervisor: []string{"/proc/self/exe", "supervise"},
	}
	b.Run("policy", func(b *testing.B) {
		for b.Loop() {
			policy.Evaluate(l.Host(), f.ask, "true")
		}
	})
	b.Run("run", func(b *testing.B) {
		v := policy.Evaluate(l.Host(), f.ask, "true")
		for b.Loop() {
			if r := l.Run(b.Context(), f.ask, v); r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	})
}
