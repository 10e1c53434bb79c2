package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/gitsentry"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// guardEnv makes the test program a guard that misbehaves as its value says.
const guardEnv = "LAZARET_TEST_GUARD"

func fakeGuard(how string) int {
	words := os.NewFile(3, "words")
	say := func(text string) {
		if _, err := io.WriteString(words, text); err == nil {
			_ = words.Close()
		}
	}
	forever := func() { time.Sleep(time.Minute) }
	switch how {
	case "mute": // does not read its options either
		forever()
	case "closes":
		_ = words.Close()
		forever()
	case "dies":
		fmt.Fprintln(os.Stderr, "panic: the reason")
		return 2
	case "error":
		say(`{"error":"no fuse today"}` + "\n")
		return 1
	case "nonsense":
		say("\x1b[2Jready\n")
		forever()
	case "endless":
		for {
			if _, err := words.Write(bytes.Repeat([]byte("x"), 1<<16)); err != nil {
				return 1
			}
		}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		say("ready\n")
		forever()
	case "short-lived":
		say("ready\n")
	case "cut":
		fmt.Fprintln(os.Stderr, strings.Repeat("long ", 10000)+"\ncut")
		say("ready\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "good":
		say("ready\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	return 0
}

// logged is a log that a test can read.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func startFake(ctx context.Context, t *testing.T, how string, o gitsentry.Options) (*guard, *logged, error) {
	t.Helper()
	t.Setenv(guardEnv, how)
	self, err := os.Executable()
	must(t, err)
	out := &logged{}
	g, err := startGuard(ctx, []string{self, "guard"}, o, slog.New(slog.NewTextHandler(out, nil)))
	return g, out, err
}

func TestGuardThatDoesNotServe(t *testing.T) {
	many := gitsentry.Options{Masks: make([]string, 100_000)} // more than a pipe holds
	tests := []struct {
		how    string
		o      gitsentry.Options
		within time.Duration // the starter's patience, 0 for its own
		want   string
	}{
		{"error", gitsentry.Options{}, 0, "no fuse today"},
		{"error", many, 0, "no fuse today"},
		{"dies", gitsentry.Options{}, 0, "without a word"},
		{"closes", gitsentry.Options{}, 0, "without a word"},
		{"nonsense", gitsentry.Options{}, 0, `said "\x1b[2Jready"`},
		{"endless", gitsentry.Options{}, 0, "said"},
		{"mute", gitsentry.Options{}, 200 * time.Millisecond, "deadline"},
		{"mute", many, 200 * time.Millisecond, "deadline"},
	}
	for _, tt := range tests {
		t.Run(tt.how, func(t *testing.T) {
			ctx := t.Context()
			if tt.within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.within)
				defer cancel()
			}
			began := time.Now()
			g, log, err := startFake(ctx, t, tt.how, tt.o)
			if err == nil {
				g.stop()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 1000 {
				t.Errorf("got %.1000v, want %q", err, tt.want)
			}
			if took := time.Since(began); took > guardStart {
				t.Errorf("took %s", took)
			}
			if tt.how == "dies" {
				for end := time.Now().Add(30 * time.Second); !strings.Contains(log.String(), "the reason") && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
				if !strings.Contains(log.String(), "panic: the reason") {
					t.Errorf("its last words are not in the log: %s", log)
				}
			}
			if left := children(t); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		if _, err := startGuard(t.Context(), []string{"/nonexistent"}, gitsentry.Options{}, slog.New(slog.DiscardHandler)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// children are the processes that this one has started and not waited for.
func children(t *testing.T) []int {
	t.Helper()
	var found []int
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if f[1] == strconv.Itoa(os.Getpid()) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name))) // the pattern's
			found = append(found, pid)
		}
	}
	return found
}

func TestGuardsEnd(t *testing.T) {
	t.Run("by word", func(t *testing.T) {
		g, _, err := startFake(t.Context(), t, "good", gitsentry.Options{})
		must(t, err)
		if g.ended() {
			t.Fatal("ended already")
		}
		if sid, err := unix.Getsid(g.proc.PID); err != nil || sid != g.proc.PID {
			t.Errorf("session %d of guard %d, %v", sid, g.proc.PID, err)
		}
		began := time.Now()
		g.stop()
		if !g.ended() || time.Since(began) > guardStop {
			t.Errorf("after %s: ended %v", time.Since(began), g.ended())
		}
	})
	t.Run("by SIGKILL", func(t *testing.T) {
		g, _, err := startFake(t.Context(), t, "stubborn", gitsentry.Options{})
		must(t, err)
		began := time.Now()
		g.stop()
		if took := time.Since(began); !g.ended() || took < guardStop || took > 15*guardStop {
			t.Errorf("after %s: ended %v", took, g.ended())
		}
	})
	t.Run("with the pipe", func(t *testing.T) {
		g, _, err := startFake(t.Context(), t, "good", gitsentry.Options{})
		must(t, err)
		must(t, g.hold.Close())
		<-g.done
		g.stop()
	})
	t.Run("by itself", func(t *testing.T) {
		g, _, err := startFake(t.Context(), t, "short-lived", gitsentry.Options{})
		must(t, err)
		<-g.done
		if !g.ended() {
			t.Error("not seen")
		}
		g.stop()
	})
	t.Run("and it tells of a cut", func(t *testing.T) {
		g, log, err := startFake(t.Context(), t, "cut", gitsentry.Options{})
		must(t, err)
		for end := time.Now().Add(30 * time.Second); !g.cut.Load() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if !g.cut.Load() || !strings.Contains(log.String(), "long long") {
			t.Errorf("cut %v, log %.100s", g.cut.Load(), log)
		}
		g.stop()
	})
}

func TestServeGuardOptions(t *testing.T) {
	good := `{"workspace":"/w","mountpoint":"/m","shadow_dir":"/s","memory_dir":"/t","git":"sentry"}`
	tests := []struct {
		name, in string
		want     string // of the error; "" where it serves
	}{
		{"good", good + "\n", ""},
		{"nothing", "", "EOF"},
		{"cut", good[:30], "unexpected EOF"},
		{"an unknown field", strings.Replace(good, "{", `{"x":1,`, 1), "unknown field"},
		{"more behind", good + "{}", "data after"},
		{"a relative workspace", strings.Replace(good, `"/w"`, `"w"`, 1), "not a clean absolute path"},
		{"another kind", strings.Replace(good, "sentry", "x", 1), "not sentry"},
		{"text", "ready", "invalid character"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, hold := io.Pipe()
			go func() {
				_, _ = io.WriteString(hold, tt.in)
				if tt.want != "" {
					_ = hold.Close()
				}
			}()
			var words closer
			served := false
			err := ServeGuard(t.Context(), in, &words, slog.New(slog.DiscardHandler), func(ctx context.Context, o gitsentry.Options, ready func() error, _ *slog.Logger) error {
				served = o.Workspace == "/w"
				must(t, ready())
				_ = hold.Close() // the coordinator is gone
				<-ctx.Done()
				return nil
			})
			if tt.want == "" {
				if err != nil || !served || words.String() != "ready\n" || !words.closed {
					t.Errorf("served %v, said %q, %v", served, &words, err)
				}
				return
			}
			var e guardError
			if err == nil || served || json.Unmarshal(words.Bytes(), &e) != nil || !strings.Contains(e.Error, tt.want) || !words.closed {
				t.Errorf("served %v, said %q, %v", served, &words, err)
			}
		})
	}
	t.Run("a server that does not stop", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, _ := io.Pipe()
		var words closer
		began := time.Now()
		err := ServeGuard(ctx, io.MultiReader(strings.NewReader(good), in), &words, slog.New(slog.DiscardHandler), func(_ context.Context, _ gitsentry.Options, ready func() error, _ *slog.Logger) error {
			must(t, ready())
			cancel()
			<-t.Context().Done()
			return nil
		})
		if err == nil || time.Since(began) > 15*guardStop {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

type closer struct {
	bytes.Buffer
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func TestFuseDevice(t *testing.T) {
	dir := t.TempDir()
	if err := fuseDevice(dir + "/no"); err == nil || !strings.Contains(err.Error(), "sudo modprobe fuse") {
		t.Errorf("missing: %v", err)
	}
	must(t, os.WriteFile(dir+"/there", nil, 0o600))
	must(t, fuseDevice(dir+"/there"))
	if os.Getuid() != 0 {
		must(t, os.Chmod(dir+"/there", 0))
		if err := fuseDevice(dir + "/there"); err == nil || !strings.Contains(err.Error(), "chmod 666") {
			t.Errorf("closed: %v", err)
		}
	}
}

// needsMounts skips where neither this test nor the guard may mount.
func needsMounts(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs to mount")
	}
}

// What somebody mounted there is neither taken away nor emptied.
func TestForeignMountIsLeftAlone(t *testing.T) {
	needsMounts(t)
	dir, ws := t.TempDir(), t.TempDir()
	must(t, os.Mkdir(dir+"/guard", 0o700))
	must(t, os.WriteFile(ws+"/precious", nil, 0o600))
	must(t, unix.Mount(ws, dir+"/guard", "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir+"/guard", unix.MNT_DETACH) })
	for _, remove := range []func() error{
		func() error { return removeDomainDir(dir) },
		func() error { return removeMountpoint(dir + "/guard") },
	} {
		if err := remove(); err == nil || !strings.Contains(err.Error(), "unmount it") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := os.Stat(ws + "/precious"); err != nil {
		t.Fatal("the workspace was emptied: ", err)
	}
	must(t, unix.Unmount(dir+"/guard", 0))
	must(t, os.WriteFile(dir+"/guard/file", nil, 0o600))
	if err := removeDomainDir(dir); err == nil {
		t.Error("a mount point that is not empty was removed")
	}
	must(t, os.Remove(dir+"/guard/file"))
	must(t, removeDomainDir(dir))
	must(t, removeDomainDir(dir)) // nothing is no error
}

func (f *fixture) guardPrepare(id string, change func(*wire.PrepareRequest)) (wire.PrepareResponse, error) {
	f.t.Helper()
	req := f.prepareRequest(id)
	if change != nil {
		change(&req)
	}
	var res wire.PrepareResponse
	err := f.call(wire.PathPrepare, req, &res)
	return res, err
}

func lives(pid int) bool {
	_, err := proc.StartTime(pid)
	return err == nil
}

func TestGuardServesTheWorkspace(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	must(t, os.WriteFile(f.ws+"/"+keptFile, []byte("hello"), 0o600))
	_ = f.ensure().Close()
	pid := f.pid()
	if g := f.status().Guard; g.State != wire.GuardNone {
		t.Errorf("before: %+v", g)
	}
	box := sandbox(t)
	res, err := f.guardPrepare("c1", nil)
	must(t, errors.Join(err, f.attach("c1", box.Process.Pid)))
	if text, err := os.ReadFile(filepath.Join(res.GuardDir, keptFile)); err != nil || string(text) != "hello" {
		t.Errorf("through the guard: %q, %v", text, err)
	}
	if i := slices.IndexFunc(res.Binds, func(b wire.Bind) bool { return b.Destination == "/run/lazaret/guard" && b.ReadOnly }); i < 0 {
		t.Errorf("binds %+v", res.Binds)
	} else if _, err := os.Stat(res.Binds[i].Source); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(res.RunDir, "guard")); err != nil {
		t.Error("no mount point for it: ", err)
	}
	g := f.status().Guard
	if g.State != wire.GuardServing || !lives(g.PID) {
		t.Errorf("status %+v", g)
	}
	if sid, err := unix.Getsid(g.PID); err != nil || sid != g.PID {
		t.Errorf("session %d, %v", sid, err)
	}
	var lim unix.Rlimit
	must(t, unix.Prlimit(g.PID, unix.RLIMIT_NOFILE, nil, &lim))
	if lim.Cur != lim.Max {
		t.Errorf("open files %+v", lim)
	}
	// A second container sees the same.
	res2, err := f.guardPrepare("c2", nil)
	if err != nil || res2.GuardDir != res.GuardDir || f.status().Guard.PID != g.PID {
		t.Errorf("second: %+v, %v, guard %+v", res2, err, f.status().Guard)
	}
	// A changed profile is another promise.
	for name, change := range map[string]func(*wire.PrepareRequest){
		"git": func(r *wire.PrepareRequest) { r.Git = "off" }, "masks": func(r *wire.PrepareRequest) { r.Masks = []string{"x"} },
		"read_only": func(r *wire.PrepareRequest) { r.ReadOnly = []string{"x"} },
	} {
		if _, err := f.guardPrepare("c3", change); err == nil || !strings.Contains(err.Error(), "have changed since container c1 was made") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(containerstate.Dir(f.spec.RuntimeDir, "c3")); err == nil {
		t.Error("state of the refused container is left")
	}
	must(t, f.release("c2"))
	end(box)
	f.gone(pid)
	if lives(g.PID) {
		t.Error("the guard is left")
	}
	f.nothingLeft()
	if text, err := os.ReadFile(f.ws + "/" + keptFile); err == nil {
		if string(text) != "hello" {
			t.Errorf("the workspace's file became %q", text)
		}
	} else {
		t.Fatal("the workspace was emptied: ", err)
	}
}

// The next use finds the guard that its own profile asks for.
func TestGuardWithOtherOptionsForTheNext(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	hold := f.ensure()
	must(t, hold.Call(wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "00000000-0000-4000-8000-000000000001", Kind: "run"}, &wire.Empty{}, time.Second))
	pid := f.pid()
	_, err := f.guardPrepare("c1", nil)
	must(t, errors.Join(err, f.release("c1")))
	first := f.status().Guard.PID
	res, err := f.guardPrepare("c2", func(r *wire.PrepareRequest) { r.Git = "off" })
	must(t, err)
	if g := f.status().Guard; g.PID == first || lives(first) || g.State != wire.GuardServing {
		t.Errorf("guard %+v, first %d alive %v", g, first, lives(first))
	}
	if _, err := os.ReadDir(res.GuardDir); err != nil {
		t.Error(err)
	}
	if m := f.mounts(); len(m) != 1 {
		t.Errorf("mounts %q", m)
	}
	must(t, f.release("c2"))
	_ = hold.Close()
	f.gone(pid)
	f.nothingLeft()
}

func TestKilledGuard(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	must(t, os.WriteFile(f.ws+"/"+keptFile, nil, 0o600))
	_ = f.ensure().Close()
	pid := f.pid()
	box := sandbox(t)
	res, err := f.guardPrepare("c1", nil)
	must(t, errors.Join(err, f.attach("c1", box.Process.Pid)))
	must(t, syscall.Kill(f.status().Guard.PID, syscall.SIGKILL))
	f.eventually("its end is seen", func() bool { return f.status().Guard.State == wire.GuardDead })
	if _, err := os.Stat(filepath.Join(res.GuardDir, keptFile)); !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("behind a dead guard: %v", err)
	}
	for range 2 {
		if _, err := f.guardPrepare("c2", nil); err == nil || !strings.Contains(err.Error(), "its guard was killed") || !strings.Contains(err.Error(), "end container c1 first") {
			t.Errorf("got %v", err)
		}
	}
	end(box)
	f.gone(pid)
	f.nothingLeft()
	if _, err := os.Stat(f.ws + "/" + keptFile); err != nil {
		t.Fatal("the workspace was emptied: ", err)
	}
}

func TestKilledCoordinatorsGuard(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	must(t, os.WriteFile(f.ws+"/"+keptFile, nil, 0o600))
	_ = f.ensure().Close()
	box := sandbox(t)
	res, err := f.guardPrepare("c1", nil)
	must(t, errors.Join(err, f.attach("c1", box.Process.Pid)))
	first, guard := f.pid(), f.status().Guard.PID
	must(t, syscall.Kill(first, syscall.SIGKILL))
	f.gone(first)
	f.eventually("the guard ends with it", func() bool { return !lives(guard) })
	if _, err := os.Stat(filepath.Join(res.GuardDir, keptFile)); err == nil {
		t.Error("the workspace is served without a coordinator")
	}
	_ = f.ensure().Close()
	second := f.pid()
	if g := f.status().Guard; g.State != wire.GuardDead {
		t.Errorf("status %+v", g)
	}
	if _, err := f.guardPrepare("c2", nil); err == nil || !strings.Contains(err.Error(), "end container c1 first") {
		t.Errorf("got %v", err)
	}
	end(box)
	f.gone(second)
	f.nothingLeft()
	// And all is well again.
	_ = f.ensure().Close()
	third := f.pid()
	res, err = f.guardPrepare("c1", nil)
	must(t, err)
	if _, err := os.Stat(filepath.Join(res.GuardDir, keptFile)); err != nil {
		t.Error(err)
	}
	must(t, f.release("c1"))
	f.gone(third)
	f.nothingLeft()
}

// Coordinator, guard and sandbox were killed: a start in another domain clears up.
func TestDeadMountGoesWithAStartElsewhere(t *testing.T) {
	needsMounts(t)
	f, other := newFixture(t), newFixture(t)
	other.spec.RuntimeDir, other.spec.ControlDir = f.spec.RuntimeDir, f.spec.ControlDir
	must(t, os.WriteFile(f.ws+"/"+keptFile, nil, 0o600))
	_ = f.ensure().Close()
	box := sandbox(t)
	_, err := f.guardPrepare("c1", nil)
	must(t, errors.Join(err, f.attach("c1", box.Process.Pid)))
	pid := f.pid()
	must(t, syscall.Kill(f.status().Guard.PID, syscall.SIGKILL))
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	f.gone(pid)
	end(box)
	if len(f.mounts()) != 1 {
		t.Fatalf("mounts %q", f.mounts())
	}
	_ = other.ensure().Close()
	f.eventually("the dead mount is gone", func() bool { return len(f.mounts()) == 0 })
	f.eventually("nobody is left", func() bool { return f.pid() == 0 })
	pid = other.pid()
	_, err = other.guardPrepare("c2", nil) // sweeps again
	must(t, err)
	f.eventually("the container's state is gone", func() bool {
		_, err := os.Lstat(containerstate.Dir(f.spec.RuntimeDir, "c1"))
		return err != nil
	})
	must(t, other.release("c2"))
	other.gone(pid)
	f.eventually("nobody is left", func() bool { return f.pid() == 0 })
	f.eventually("the names are gone", func() bool { e, _ := os.ReadDir(f.spec.ControlDir); return len(e) == 0 })
	f.nothingLeft()
}

func TestSignalEndsTheGuardUnderSandboxes(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	_ = f.ensure().Close()
	box := sandbox(t)
	_, err := f.guardPrepare("c1", nil)
	must(t, errors.Join(err, f.attach("c1", box.Process.Pid)))
	pid, guard := f.pid(), f.status().Guard.PID
	must(t, syscall.Kill(pid, syscall.SIGTERM))
	f.gone(pid)
	if lives(guard) || len(f.mounts()) > 0 {
		t.Errorf("guard alive: %v, mounts %q", lives(guard), f.mounts())
	}
	end(box)
	c := f.ensure() // and what the container left goes
	pid = c.PeerPID()
	_ = c.Close()
	must(t, syscall.Kill(pid, syscall.SIGTERM))
	f.gone(pid)
	f.nothingLeft()
}

// A guard that hangs keeps nobody.
func TestStoppedGuard(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	_ = f.ensure().Close()
	_, err := f.guardPrepare("c1", nil)
	must(t, err)
	pid, guard := f.pid(), f.status().Guard.PID
	must(t, syscall.Kill(guard, syscall.SIGSTOP))
	if g := f.status().Guard; g.State != wire.GuardServing { // it cannot be told
		t.Errorf("status %+v", g)
	}
	must(t, f.release("c1"))
	f.gone(pid)
	if lives(guard) {
		t.Error("the guard is left")
	}
	f.nothingLeft()
}

func TestGuardThatCannotMount(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	must(t, os.Remove(f.ws)) // while the coordinator starts: nothing there to serve
	_ = f.ensure().Close()
	pid := f.pid()
	_, err := f.guardPrepare("c1", nil)
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != wire.CodeRefused || !strings.Contains(e.Message, f.ws) || !strings.Contains(e.Message, "no such file") {
		t.Errorf("got %v", err)
	}
	f.gone(pid)
	must(t, os.Mkdir(f.ws, 0o700))
	f.nothingLeft()
}

// Each is killed at some moment of a start; the next start finds nothing of it.
func TestKillsDuringTheStartOfAGuard(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	must(t, os.WriteFile(f.ws+"/"+keptFile, nil, 0o600))
	for i := range 12 {
		_ = f.ensure().Close()
		pid := f.pid()
		done := make(chan error)
		go func() {
			_, err := f.guardPrepare("c1", nil)
			done <- err
		}()
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		if i%2 == 0 {
			must(t, syscall.Kill(pid, syscall.SIGKILL))
		} else {
			must(t, syscall.Kill(pid, syscall.SIGTERM))
		}
		t.Log("cut, or in time:", <-done)
		f.gone(pid)
		if _, err := os.Stat(f.ws + "/" + keptFile); err != nil {
			t.Fatal("the workspace was emptied: ", err)
		}
		must(t, os.RemoveAll(containerstate.Dir(f.spec.RuntimeDir, "c1"))) // as this process lives on
	}
	_ = f.ensure().Close()
	pid := f.pid()
	res, err := f.guardPrepare("c1", nil)
	must(t, err)
	if _, err := os.Stat(filepath.Join(res.GuardDir, keptFile)); err != nil {
		t.Error(err)
	}
	must(t, f.release("c1"))
	f.gone(pid)
	f.nothingLeft()
}
