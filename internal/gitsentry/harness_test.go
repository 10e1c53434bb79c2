package gitsentry

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	insideEnv = "GITSENTRY_TEST_INSIDE" // the tests run in namespaces of their own
	serveEnv  = "GITSENTRY_TEST_SERVE"  // this process is a guard
)

// TestMain plays two parts beside the tests: it moves them into a mount namespace,
// as whatever user, and serves a guard, which must not be the process that uses it.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(serveEnv) != "":
		os.Exit(serve())
	case os.Getenv(insideEnv) == "":
		os.Exit(inside())
	}
	os.Exit(m.Run())
}

func inside() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:forbidigo // it is this program
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	} else {
		attr.Unshareflags = syscall.CLONE_NEWNS // makes all mounts private
		attr.Cloneflags = 0
	}
	cmd.SysProcAttr = attr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run the tests in a mount namespace:", err)
		return 1
	}
	return 0
}

func serve() int {
	var o Options
	if err := json.Unmarshal([]byte(os.Getenv(serveEnv)), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := Serve(ctx, o, func() error { _, err := fmt.Println("ready"); return err }, log) //nolint:forbidigo // to the test
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// world is a guarded workspace: host is the directory, in what the sandbox sees.
type world struct {
	t        *testing.T
	host, in string
	o        Options
	guard    *exec.Cmd
	log      *syncBuffer // what the guard wrote
}

// syncBuffer is read while another process writes to it.
type syncBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newWorld makes a repository with two commits and guards it.
func newWorld(t *testing.T, change func(o *Options)) *world {
	t.Helper()
	w := bareWorld(t)
	w.git(w.host, "init", "-q", "-b", "main", ".")
	w.git(w.host, "config", "user.email", "host@example.com")
	w.git(w.host, "config", "user.name", "host")
	w.write(filepath.Join(w.host, "a"), "one\n")
	w.write(filepath.Join(w.host, "sub/deep/f"), "f\n")
	w.git(w.host, "add", "-A")
	w.git(w.host, "commit", "-qm", "one")
	w.write(filepath.Join(w.host, "a"), "two\n")
	w.git(w.host, "commit", "-qam", "two")
	w.start(change)
	return w
}

func bareWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, host: filepath.Join(dir, "ws")}
	w.o = Options{
		Workspace: w.host, Mountpoint: filepath.Join(dir, "mnt"), ShadowDir: filepath.Join(dir, "shadow"),
		MemoryDir: filepath.Join(dir, "memory"), Git: "sentry", Masks: []string{".vscode", ".idea"}, ReadOnly: []string{"lazaret.toml"},
	}
	for _, d := range []string{w.host, w.o.Mountpoint} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.in = filepath.Join(w.o.Mountpoint, WorkspaceName)
	return w
}

func (w *world) start(change func(o *Options)) {
	w.t.Helper()
	if change != nil {
		change(&w.o)
	}
	spec, err := json.Marshal(w.o)
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(w.t.Context()), "/proc/self/exe")
	cmd.Env = append(os.Environ(), serveEnv+"="+string(spec))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.log = &syncBuffer{}
	log := w.log
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.guard = cmd
	w.t.Cleanup(func() {
		w.stop()
		if w.t.Failed() {
			w.t.Log("guard:\n" + log.String())
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		w.t.Fatalf("guard did not start: %q, %v", line, err)
	}
}

func (w *world) stop() {
	if w.guard == nil {
		return
	}
	_ = w.guard.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- w.guard.Wait() }()
	select {
	case err := <-done:
		if err != nil && !strings.Contains(err.Error(), "killed") {
			w.t.Errorf("guard ended: %v", err)
		}
	case <-time.After(time.Minute):
		_ = w.guard.Process.Kill()
		w.t.Error("guard did not end within a minute of SIGTERM")
	}
	w.guard = nil
	_ = unix.Unmount(w.o.Mountpoint, unix.MNT_DETACH) // the killed one's
}

func (w *world) git(dir string, args ...string) string {
	w.t.Helper()
	out, err := w.tryGit(dir, args...)
	if err != nil {
		w.t.Fatalf("git %s in %s: %v\n%s", strings.Join(args, " "), dir, err, out)
	}
	return out
}

func (w *world) tryGit(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(w.t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@example.com", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@example.com", "GIT_EDITOR=true"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *world) write(name, data string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil { //nolint:forbidigo // a test's file
		w.t.Fatal(err)
	}
}

func (w *world) read(name string) string {
	w.t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

// absent fails if the host has name.
func (w *world) absent(name string) {
	w.t.Helper()
	if _, err := os.Lstat(filepath.Join(w.host, name)); err == nil {
		w.t.Errorf("the host has %s", name)
	}
}

func wantErrno(t *testing.T, what string, err error, want ...error) {
	t.Helper()
	for _, e := range want {
		if errors.Is(err, e) {
			return
		}
	}
	t.Errorf("%s: %v, want %v", what, err, want)
}
