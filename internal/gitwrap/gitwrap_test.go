package gitwrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestExplain(t *testing.T) {
	const lines = "7 EROFS create \".git/config.lock\"\n8 EROFS create \".git/config.lock\"\n9 EPERM symlink \".git/x y\"\n"
	tests := []struct {
		name, data string
		after      uint64
		succeeded  bool
		want       []string // words of the one line; none for no line
	}{
		{"config", lines, 6, false, []string{"lazaret: .git/config cannot be changed", `lazaret-escalate -j "why" -- git remote add x 'a b'`}},
		{"config, and git went on", lines, 6, true, []string{"all but change .git/config"}},
		{"only what came after counts", lines, 8, false, []string{"refused symlink of .git/x y (EPERM)"}},
		{"another way was found", lines, 8, true, nil},
		{"nothing new", lines, 9, false, nil},
		{"a name that acts upon the terminal", `1 EROFS create "\x1b[2J/.git/config"`, 0, false, []string{"lazaret: \uFFFD[2J/.git/config"}},
		{"no file", "", 0, false, nil},
		{"broken lines", "x\n1 2\n\n3 EPERM\n4 EROFS create .git/config\n", 0, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := explain([]string{"git", "remote", "add", "x", "a b"}, tt.succeeded, []byte(tt.data), tt.after)
			if lines := strings.Count(got, "\n"); len(tt.want) == 0 && got != "" || len(tt.want) > 0 && (lines != 1 || !strings.HasSuffix(got, "\n")) {
				t.Fatalf("%q", got)
			}
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q lacks %q", got, w)
				}
			}
		})
	}
}

func TestAsk(t *testing.T) {
	tests := []struct {
		name string
		argv []string
		want string
	}{
		{"plain", []string{"/run/lazaret/bin/git", "push", "-u", "origin"}, "git push -u origin"},
		{"quoted", []string{"git", "config", "a.b", "it's $HOME"}, `git config a.b 'it'\''s $HOME'`},
		{"empty word", []string{"git", ""}, "git ''"},
		{"too long", []string{"git", strings.Repeat("x", 400)}, "git …"},
		{"control characters", []string{"git", "a\x1bb"}, "git …"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ask(tt.argv); !strings.HasSuffix(got, "-- "+tt.want) {
				t.Errorf("%q, want %q at its end", got, tt.want)
			}
		})
	}
}

// world is a machine with a fake git, and a guard's file where it is written to.
type world struct {
	t             *testing.T
	dir, refusals string
	program       string
}

// programDir holds the program, built as make does, and the guard's file that it
// reads; see TestMain.
var programDir string

func TestMain(m *testing.M) {
	code, err := build(m)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func build(m *testing.M) (code int, err error) {
	if programDir, err = os.MkdirTemp("", "gitwrap"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(programDir)) }()
	if err := os.Chmod(programDir, 0o755); err != nil {
		return 1, err
	}
	ldflags := "-E _lazaret_entry -X github.com/lazaret-dev/lazaret/internal/early.refusalsFile=" + programDir + "/refusals"
	cmd := exec.CommandContext(context.Background(), "go", "build", "-ldflags", ldflags, "-o", programDir+"/bin/git", "../../cmd/lazaret-escalate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("go build: %w: %s", err, out)
	}
	return m.Run(), nil
}

// newWorld has a fake git, which runs its last argument as a shell script, and no
// guard.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), refusals: filepath.Join(programDir, "refusals"), program: filepath.Join(programDir, "bin/git")}
	w.write("real/git", "#!/bin/sh\nfor last; do :; done\neval \"$last\"\n")
	w.guard("-")
	return w
}

// guard sets what the guard's file holds; "-" is for no guard.
func (w *world) guard(text string) {
	w.t.Helper()
	var err error
	if text == "-" {
		err = os.RemoveAll(w.refusals)
	} else {
		err = os.WriteFile(w.refusals, []byte(text), 0o644)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// write makes a program in the world.
func (w *world) write(name, text string) {
	w.t.Helper()
	p := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.t.Context(), w.program, args...)
	cmd.Env = []string{"PATH=" + filepath.Dir(w.program) + ":" + w.dir + "/real:/usr/bin:/bin", "R=" + w.refusals}
	cmd.Dir = w.dir
	return cmd
}

func (w *world) run(args ...string) (out, errOut string, code int) {
	w.t.Helper()
	var o, e strings.Builder
	cmd := w.command(args...)
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return o.String(), e.String(), -int(ws.Signal())
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

func TestProgram(t *testing.T) {
	w := newWorld(t)
	tests := []struct {
		name     string
		args     []string
		guard    string // what the guard's file holds; "-" for no guard
		out, err string // wanted; a prefix of stderr
		code     int
	}{
		{"without a guard", []string{"commit", "echo out; echo err >&2; exit 3"}, "-", "out\n", "err\n", 3},
		{"nothing refused", []string{"commit", "echo out; exit 4"}, "1 EROFS create \".git/config.lock\"\n", "out\n", "", 4},
		{"words come as they were", []string{"commit", "-m", "a b", "", `printf '<%s>' "$@"`}, "", "<commit><-m><a b><><printf '<%s>' \"$@\">", "", 0},
		{"refused", []string{"config", "a.b", `echo '1 EROFS create ".git/config.lock"' >>"$R"; echo "error: git's own" >&2; exit 255`}, "", "", "error: git's own\nlazaret: .git/config cannot be changed", 255},
		{"refused after others", []string{"config", `echo '65 EROFS create ".git/config.lock"' >>"$R"; exit 4`}, strings.Repeat("9 EPERM link \".git/a\"\n", 300) + "64 EPERM link \".git/1\"\n", "", "lazaret: .git/config", 4},
		{"refused, and git went on", []string{"fetch", `echo '1 EROFS create ".git/config.lock"' >>"$R"`}, "", "", "lazaret: git has done all but", 0},
		{"a read is not looked after", []string{"status", `echo '1 EROFS create ".git/config.lock"' >>"$R"`}, "", "", "", 0},
		{"died of a signal", []string{"commit", "kill -TERM $$"}, "", "", "", -int(unix.SIGTERM)},
		{"died of a signal, refused", []string{"commit", `echo '1 EROFS create ".git/config.lock"' >>"$R"; kill -QUIT $$`}, "", "", "lazaret: .git/config", -int(unix.SIGQUIT)},
		{"signals arrive in the child", []string{"commit", `trap 'echo got; exit 9' USR1; (kill -USR1 $PPID) & i=0; while [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done`}, "", "got\n", "", 9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.guard(tt.guard)
			out, errOut, code := w.run(tt.args...)
			if out != tt.out || code != tt.code {
				t.Errorf("status %d, want %d; stdout %q, want %q", code, tt.code, out, tt.out)
			}
			if !strings.HasPrefix(errOut, tt.err) || tt.err == "" && errOut != "" || strings.Count(errOut, "lazaret:") > 1 {
				t.Errorf("stderr %q, want %q", errOut, tt.err)
			}
		})
	}
}

func TestNoGit(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"PATH=" + filepath.Dir(w.program), "PATH=", "X="} {
		cmd := w.command("status")
		cmd.Env = []string{path}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitNotFound || !strings.Contains(string(out), "no git on PATH") {
			t.Errorf("%s: %v: %s", path, err, out)
		}
	}
	w.write("bad/git", "\x7fELF")
	w.guard("")
	cmd := w.command("commit")
	cmd.Env = []string{"PATH=" + w.dir + "/bad"}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "cannot be started") {
		t.Errorf("a git that cannot be started: %v: %s", err, out)
	}
}

func TestSkipsItself(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(filepath.Join(w.dir, "link"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(w.program, filepath.Join(w.dir, "link/git")); err != nil {
		t.Fatal(err)
	}
	cmd := w.command("status", "echo real")
	cmd.Env = append(cmd.Env, "PATH="+w.dir+"/link:"+filepath.Dir(w.program)+":"+w.dir+"/real")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "real\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestOtherName: the entry leaves the other program alone.
func TestOtherName(t *testing.T) {
	w := newWorld(t)
	cmd := w.command("--version")
	cmd.Args[0] = "lazaret-escalate"
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "lazaret-escalate ") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestKilled: git does not outlive the program that stands for it.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	w.guard("")
	cmd := w.command("commit", "echo $$; exec sleep 60")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 32)
	n, err := pipe.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil || pid == cmd.Process.Pid {
		t.Fatalf("pid %d of %d: %v", pid, cmd.Process.Pid, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // was killed
	for range 1500 {
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("git (pid %d) still runs", pid)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// TestStops: a shell sees its job stop and go on.
func TestStops(t *testing.T) {
	w := newWorld(t)
	w.guard("")
	cmd := w.command("commit", "kill -STOP $$; exit 7")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &ws, syscall.WUNTRACED, nil); err != nil || !ws.Stopped() {
		t.Fatalf("status %x: %v", ws, err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(cmd.Process.Pid, &ws, 0, nil); err != nil || ws.ExitStatus() != 7 {
		t.Errorf("status %x: %v", ws, err)
	}
}

// TestConfigGuarded plays commands in a repository whose config git cannot lock.
func TestConfigGuarded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts")
	}
	w := newWorld(t)
	w.guard("")
	const script = `set -e
cd "$0" && mkdir -p w/.git w/sub/deep free/.git linked
echo gitdir: ../w/.git >linked/.git
mount --bind w/.git w/.git && mount -o remount,bind,ro w/.git
try() { dir=$1; shift; printf '%s: ' "$dir: $*"; (cd "$dir" && "$p/git" "$@" 'echo "$@"' 2>&1) || echo "=> $?"; }
p=$1
try w push -u origin
try w/sub/deep branch -m a
try linked branch -m a
try . -C w/sub branch -m a
try / --git-dir "$0/w/.git" branch -m a
try . -C w --git-dir=.git branch -m a
GIT_DIR=w/.git try . branch -m a
try w checkout far
try w/sub/deep commit -m x
try free push -u origin
try free checkout far
try / branch -m a
try . -C w -C sub branch -m a
try w --git-dir ../free/.git branch -m a
ls free/.git
`
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", script, w.dir, filepath.Dir(w.program))
	cmd.Env = w.command().Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	echo := ` echo "$@"`
	want := []string{
		"w: push -u origin: lazaret: not run", "leave out -u, or ask for it: lazaret-escalate",
		"w/sub/deep: branch -m a: lazaret: not run", "linked: branch -m a: lazaret: not run",
		".: -C w/sub branch -m a: lazaret: not run", "/: --git-dir " + w.dir + "/w/.git branch -m a: lazaret: not run",
		".: -C w --git-dir=.git branch -m a: lazaret: not run", ".: branch -m a: lazaret: not run",
		"w: checkout far: -c branch.autoSetupMerge=false checkout far" + echo, "w/sub/deep: commit -m x: commit -m x" + echo,
		"free: push -u origin: push -u origin" + echo, "free: checkout far: checkout far" + echo, "/: branch -m a: branch -m a" + echo,
		".: -C w -C sub branch -m a: -C w -C sub branch -m a" + echo, "w: --git-dir ../free/.git branch -m a: --git-dir ../free/.git branch -m a" + echo,
	}
	for _, line := range want {
		if !strings.Contains("\n"+string(out), line) {
			t.Errorf("lacks %q", line)
		}
	}
	if n := strings.Count(string(out), "=> 1\n"); n != 7 || !strings.HasSuffix(string(out), echo+"\n") || t.Failed() {
		t.Errorf("%d refused, want 7; no lock left:\n%s", n, out)
	}
}
