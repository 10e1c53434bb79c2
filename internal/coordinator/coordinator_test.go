package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	"github.com/lazaret-dev/lazaret/internal/coordinator/broker"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/store"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

var programPath string

// The coordinator under test is the real program, started by the real client.
func TestMain(m *testing.M) {
	if os.Getenv(guardEnv) != "" {
		os.Exit(fakeGuard(os.Getenv(guardEnv)))
	}
	if s := os.Getenv(askerEnv); s != "" {
		os.Exit(askerMain(s))
	}
	if os.Getenv(creatorEnv) != "" {
		os.Exit(creatorMain())
	}
	if os.Getenv(starterEnv) != "" {
		os.Exit(starterMain())
	}
	dir, err := os.MkdirTemp("", "lazaret-coordinator-test-")
	if err != nil {
		panic(err)
	}
	programPath = filepath.Join(dir, "lazaret-coordinator")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", programPath, "github.com/lazaret-dev/lazaret/cmd/lazaret-coordinator")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the coordinator: %v\n%s", err, out))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

type fixture struct {
	t    *testing.T
	spec wire.StartSpec
	ws   string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	ws := filepath.Join(dir, "ws")
	control, err := os.MkdirTemp("", "lzc") //nolint:usetesting // a socket's name holds 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(control) })
	runtime := filepath.Join(dir, "run", "lazaret")
	for _, d := range []string{ws, runtime} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	client := filepath.Join(dir, "lazaret-escalate")
	if err := os.WriteFile(client, []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	f := &fixture{t: t, ws: ws, spec: wire.StartSpec{
		Version: wire.Version, Domain: domain.New("default", ws, filepath.Join(dir, "data")),
		ControlDir: control, RuntimeDir: runtime, LogLevel: "debug", ClientPath: client, RealUID: os.Getuid(), Home: dir,
	}}
	t.Cleanup(func() {
		// Not by its status: one that is about to end answers no more, and writes.
		f.eventually("coordinator and guard are gone", func() bool {
			users := usersOf(dir)
			for _, pid := range users {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return len(users) == 0
		})
		for range f.mounts() { // before anything is removed by name
			_ = removeMountpoint(filepath.Join(runtime, "domains", f.spec.Domain.Hash, "guard"))
		}
		if t.Failed() {
			log, _ := os.ReadFile(wire.LogPath(f.spec.Domain.Root))
			t.Logf("coordinator's log:\n%s", log)
		}
	})
	return f
}

// ensure returns a connection to a coordinator that answers. A killed one can
// still take a connection for a moment, which is then cut.
func (f *fixture) ensure() *wire.Conn {
	f.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		c, err := wire.Ensure(f.spec, programPath)
		if err != nil {
			f.t.Fatal(err)
		}
		if f.pid() == c.PeerPID() {
			f.t.Cleanup(func() { _ = c.Close() }) // not with the next garbage: it may be a session
			return c
		}
		_ = c.Close()
		if time.Now().After(end) {
			f.t.Fatal("no coordinator that answers within 30 s")
		}
	}
}

// call makes one request on a connection of its own.
func (f *fixture) call(path string, in, out any) error {
	f.t.Helper()
	c, err := wire.Dial(f.spec.Domain.SocketPath(f.spec.ControlDir), time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return c.Call(path, in, out, 15*time.Second)
}

func (f *fixture) prepare(id string, masks ...string) error {
	f.t.Helper()
	return f.call(wire.PathPrepare, f.prepareRequest(id, masks...), &wire.PrepareResponse{})
}

func (f *fixture) prepareRequest(id string, masks ...string) wire.PrepareRequest {
	dir := containerstate.Dir(f.spec.RuntimeDir, id)
	return wire.PrepareRequest{
		Version: wire.Version, Domain: f.spec.Domain, ContainerID: id,
		PIDFile: filepath.Join(dir, "pid"), StateDir: dir, Git: "sentry", Masks: masks,
	}
}

func (f *fixture) attach(id string, pid int) error {
	f.t.Helper()
	return f.call(wire.PathAttach, wire.AttachRequest{Version: wire.Version, ContainerID: id, PID: pid}, &wire.Empty{})
}

func (f *fixture) release(id string) error {
	f.t.Helper()
	return f.call(wire.PathRelease, wire.ReleaseRequest{Version: wire.Version, ContainerID: id}, &wire.Empty{})
}

func (f *fixture) status() wire.Status {
	f.t.Helper()
	var st wire.Status
	if err := f.call(wire.PathStatus, nil, &st); err != nil {
		f.t.Fatal(err)
	}
	return st
}

// pid of the coordinator that holds the domain, 0 for none.
func (f *fixture) pid() int {
	var st wire.Status
	if err := f.call(wire.PathStatus, nil, &st); err != nil {
		return 0
	}
	return st.PID
}

// usersOf lists the other processes that have a file below dir open.
func usersOf(dir string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		to, err := os.Readlink(file) // processes end meanwhile
		pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
		if err == nil && strings.HasPrefix(to, dir+"/") && pid != os.Getpid() && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (f *fixture) gone(pid int) {
	f.t.Helper()
	f.eventually("the coordinator ends", func() bool { _, err := proc.StartTime(pid); return err != nil })
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	f.t.Fatalf("not seen within 30 s: %s", what)
}

// keptFile is a test's own in the workspace.
const keptFile = "kept-file"

// nothingLeft checks everything a coordinator makes outside its Domain Root.
func (f *fixture) nothingLeft() {
	f.t.Helper()
	for _, d := range []string{f.spec.ControlDir, filepath.Join(f.spec.RuntimeDir, "domains"), filepath.Join(f.spec.RuntimeDir, "containers"), f.ws} {
		entries, err := os.ReadDir(d)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			f.t.Error(err)
		}
		for _, e := range entries {
			if e.Name() != keptFile {
				f.t.Errorf("left in %s: %s", d, e.Name())
			}
		}
	}
	if m := f.mounts(); len(m) > 0 {
		f.t.Errorf("mounts are left: %q", m)
	}
}

// mounts are those in the runtime directory.
func (f *fixture) mounts() (found []string) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	must(f.t, err)
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, f.spec.RuntimeDir) {
			found = append(found, line)
		}
	}
	return found
}

// sandbox is a process that stands for a sandbox.
func sandbox(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	return cmd
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestLifeOfOneContainer(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	pid := f.pid()
	if err := f.prepare("c1", ".vscode", "deep/.idea"); err != nil {
		t.Fatal(err)
	}
	box := sandbox(t)
	if err := f.attach("c1", box.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if st := f.status(); len(st.Containers) != 1 || st.Containers[0].State != "attached" || st.Containers[0].PID != box.Process.Pid || st.MemoryBytes == 0 {
		t.Errorf("status %+v", st)
	}
	if err := f.release("c1"); err != nil {
		t.Fatal(err)
	}
	f.gone(pid)
	f.nothingLeft()
	if err := f.release("c1"); !errors.Is(err, wire.ErrNoCoordinator) {
		t.Errorf("release after the end: %v", err)
	}
}

func TestSandboxThatDiesWithoutPoststop(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	pid := f.pid()
	box := sandbox(t)
	if err := errors.Join(f.prepare("c1", ".idea"), f.attach("c1", box.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	end(box)
	f.gone(pid)
	f.nothingLeft()
}

func TestCreateThatFails(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	pid := f.pid()
	// The preparing process is another one, and ends without a sandbox.
	other := exec.CommandContext(t.Context(), "curl", "-sS", "--fail", "--unix-socket", f.spec.Domain.SocketPath(f.spec.ControlDir), "-d",
		fmt.Sprintf(`{"version":1,"domain":{"profile":"default","workspace":%q,"hash":%q,"root":%q},"container_id":"c1","pid_file":%q,"state_dir":%q,"git":"sentry"}`,
			f.ws, f.spec.Domain.Hash, f.spec.Domain.Root, f.prepareRequest("c1").PIDFile, f.prepareRequest("c1").StateDir),
		"http://lazaret/v1/prepare")
	if out, err := other.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.gone(pid)
	f.nothingLeft()
}

func TestSandboxKnownOnlyByItsPIDFile(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	box := sandbox(t)
	req := f.prepareRequest("c1")
	req.PIDFile = filepath.Join(f.spec.RuntimeDir, "pid")
	// The shell's curl is the process that prepares: what it "creates" must be
	// in the pid file by the time it ends.
	script := fmt.Sprintf(`echo %d > %s; curl -sS --fail --unix-socket %s -d '{"version":1,"domain":{"profile":"default","workspace":"%s","hash":"%s","root":"%s"},"container_id":"c1","pid_file":"%s","state_dir":"%s","git":"off"}' http://lazaret/v1/prepare`,
		box.Process.Pid, req.PIDFile,
		f.spec.Domain.SocketPath(f.spec.ControlDir), f.ws, f.spec.Domain.Hash, f.spec.Domain.Root, req.PIDFile, req.StateDir)
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.eventually("the sandbox is attached by its pid file", func() bool {
		st := f.status()
		return len(st.Containers) == 1 && st.Containers[0].State == "attached" && st.Containers[0].PID == box.Process.Pid
	})
	pid := f.pid()
	end(box)
	f.gone(pid)
	f.nothingLeft()
}

func TestPIDFileThatIsAFIFOKeepsNobody(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	pid := f.pid()
	req := f.prepareRequest("c1")
	req.PIDFile = filepath.Join(f.spec.RuntimeDir, "pid")
	must(t, unix.Mkfifo(req.PIDFile, 0o600))
	body := fmt.Sprintf(`{"version":1,"domain":{"profile":"default","workspace":%q,"hash":%q,"root":%q},"container_id":"c1","pid_file":%q,"state_dir":%q,"git":"off"}`,
		f.ws, f.spec.Domain.Hash, f.spec.Domain.Root, req.PIDFile, req.StateDir)
	create := exec.CommandContext(t.Context(), "curl", "-sS", "--fail", "--unix-socket", f.spec.Domain.SocketPath(f.spec.ControlDir), "-d", body, "http://lazaret/v1/prepare")
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.gone(pid)
	f.nothingLeft()
}

// Later calls know a container by its id alone.
func TestIDThatLivesInAnotherDomain(t *testing.T) {
	f, other := newFixture(t), newFixture(t)
	other.spec.RuntimeDir = f.spec.RuntimeDir
	for _, x := range []*fixture{f, other} {
		_ = x.ensure().Close()
	}
	box := sandbox(t)
	must(t, errors.Join(f.prepare("c1"), f.attach("c1", box.Process.Pid)))
	before, err := containerstate.ReadLease(containerstate.Dir(f.spec.RuntimeDir, "c1"))
	must(t, err)
	if err := other.prepare("c1"); err == nil || !strings.Contains(err.Error(), "another domain (pid "+strconv.Itoa(box.Process.Pid)) {
		t.Errorf("got %v", err)
	}
	if now, err := containerstate.ReadLease(containerstate.Dir(f.spec.RuntimeDir, "c1")); err != nil || now != before {
		t.Errorf("the lease of the first became %+v, %v", now, err)
	}
	must(t, f.release("c1"))
	_ = other.ensure().Close()   // the one that refused had nothing else to do
	must(t, other.prepare("c1")) // free now
	pid := other.pid()
	must(t, other.release("c1"))
	other.gone(pid)
	f.nothingLeft()
}

func TestRootsOfKilledStartsGo(t *testing.T) {
	f := newFixture(t)
	roots := filepath.Dir(f.spec.Domain.Root)
	for name, gone := range map[string]bool{"000000000001": true, "000000000002": true, "000000000003": false, "not-a-domain": false} {
		dir := filepath.Join(roots, name)
		must(t, os.MkdirAll(dir, 0o700))
		switch name {
		case "000000000002":
			must(t, os.WriteFile(filepath.Join(dir, ".domain.json.tmp-1"), nil, 0o600))
			must(t, os.WriteFile(filepath.Join(dir, "coordinator.log"), nil, 0o600))
		case "000000000003":
			must(t, os.WriteFile(filepath.Join(dir, "state.db"), nil, 0o600))
		}
		t.Cleanup(func() {
			if _, err := os.Lstat(dir); os.IsNotExist(err) != gone {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	c := f.ensure()
	f.eventually("the empty root is gone", func() bool {
		_, err1 := os.Lstat(filepath.Join(roots, "000000000001"))
		_, err2 := os.Lstat(filepath.Join(roots, "000000000002"))
		return os.IsNotExist(err1) && os.IsNotExist(err2)
	})
	pid := c.PeerPID()
	_ = c.Close()
	must(t, syscall.Kill(pid, syscall.SIGTERM))
	f.gone(pid)
	f.nothingLeft()
}

func TestRefusedFirstPrepareEndsTheCoordinator(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	pid := f.pid()
	if err := f.prepare("c1", "../out"); err == nil {
		t.Fatal("accepted")
	}
	begin := time.Now()
	f.gone(pid)
	if time.Since(begin) > startGrace/2 {
		t.Error("waited for its grace")
	}
	f.nothingLeft()
}

func TestIDOfADeadContainerOfAnotherDomainIsFree(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	dead := sandbox(t)
	start, err := proc.StartTime(dead.Process.Pid)
	must(t, err)
	end(dead)
	dir := containerstate.Dir(f.spec.RuntimeDir, "c1")
	must(t, os.MkdirAll(dir, 0o700))
	must(t, containerstate.WriteLease(dir, containerstate.Lease{Version: containerstate.Version, Attached: true, PID: dead.Process.Pid, StartTime: start}))
	must(t, os.WriteFile(filepath.Join(dir, "state.json"), []byte("the old one's"), 0o600))
	must(t, f.prepare("c1"))
	if _, err := os.Stat(filepath.Join(dir, "state.json")); err == nil {
		t.Error("the dead container's state is left")
	}
	pid := f.pid()
	must(t, f.release("c1"))
	f.gone(pid)
	f.nothingLeft()
}

// A restart can come before the coordinator has seen the end.
func TestSameIDRightAfterTheSandboxsEnd(t *testing.T) {
	f := newFixture(t)
	keep := f.ensure()
	must(t, keep.Call(wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "00000000-0000-4000-8000-000000000000", Kind: "run"}, &wire.Empty{}, time.Second))
	for range 20 {
		box := sandbox(t)
		must(t, f.prepare("c1"))
		must(t, f.attach("c1", box.Process.Pid))
		end(box)
	}
	_ = keep.Close()
}

func TestSessionsCount(t *testing.T) {
	f := newFixture(t)
	s1, s2 := f.ensure(), f.ensure()
	pid := s1.PeerPID()
	for i, c := range []*wire.Conn{s1, s2} {
		req := wire.SessionRequest{Version: wire.Version, SessionID: fmt.Sprintf("00000000-0000-4000-8000-00000000000%d", i), Kind: "exec"}
		if err := c.Call(wire.PathSessions, req, &wire.Empty{}, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if st := f.status(); len(st.Sessions) != 2 || st.Sessions[0].PID != os.Getpid() {
		t.Errorf("status %+v", st)
	}
	_ = s1.Close()
	f.eventually("one session is left", func() bool { return len(f.status().Sessions) == 1 })
	_ = s2.Close()
	f.gone(pid)
	f.nothingLeft()
}

func TestSessionSurvivesExecveAndEndsWithItsProcess(t *testing.T) {
	f := newFixture(t)
	c := f.ensure()
	pid := c.PeerPID()
	if err := c.Call(wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "00000000-0000-4000-8000-000000000001", Kind: "exec"}, &wire.Empty{}, time.Second); err != nil {
		t.Fatal(err)
	}
	fd, err := c.Inherit(64)
	if err != nil || fd < 64 {
		t.Fatal(fd, err)
	}
	child := exec.CommandContext(t.Context(), "sleep", "60") // inherits it, as runsc would
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer end(child)
	_ = unix.Close(fd)
	time.Sleep(50 * time.Millisecond)
	if got := f.pid(); got != pid {
		t.Fatalf("coordinator %d, want %d", got, pid)
	}
	end(child)
	f.gone(pid)
}

func TestFiftyStartsOneCoordinator(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	pids := make([]int, 50)
	errs := make([]error, 50)
	conns := make([]*wire.Conn, 50)
	for i := range 50 {
		wg.Go(func() {
			conns[i], errs[i] = wire.Ensure(f.spec, programPath)
			if errs[i] == nil {
				pids[i] = conns[i].PeerPID()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, p := range pids {
		if p != pids[0] {
			t.Fatalf("coordinators %v", pids)
		}
	}
	for _, c := range conns {
		_ = c.Close()
	}
	if err := syscall.Kill(pids[0], syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	f.gone(pids[0])
	f.nothingLeft()
}

// Starts that race with the end of the domain's last use all succeed.
func TestStartsDuringTheEnd(t *testing.T) {
	f := newFixture(t)
	for i := range 30 {
		c := f.ensure()
		id := fmt.Sprintf("00000000-0000-4000-8000-0000000000%02d", i)
		err := c.Call(wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: id, Kind: "run"}, &wire.Empty{}, time.Second)
		var e *wire.Error
		if err != nil && !wire.Cut(err) && (!errors.As(err, &e) || e.Code != wire.CodeClosing) {
			t.Fatal(err)
		}
		_ = c.Close() // the last: the coordinator begins to close as the next starts
	}
	f.eventually("all are gone", func() bool { return f.pid() == 0 })
	f.eventually("the names are gone", func() bool { e, _ := os.ReadDir(f.spec.ControlDir); return len(e) == 0 })
}

func TestSignalsTearDown(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			f := newFixture(t)
			c := f.ensure()
			pid := c.PeerPID()
			if err := c.Call(wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "00000000-0000-4000-8000-000000000001", Kind: "run"}, &wire.Empty{}, time.Second); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			f.gone(pid)
			f.nothingLeft()
		})
	}
}

func TestKilledCoordinatorIsReplacedAndItsContainersAdopted(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	box := sandbox(t)
	if err := errors.Join(f.prepare("alive"), f.attach("alive", box.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	dead := sandbox(t)
	if err := errors.Join(f.prepare("dead"), f.attach("dead", dead.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"alive", "dead"} {
		if err := containerstate.WriteState(containerstate.Dir(f.spec.RuntimeDir, id), containerstate.State{Version: containerstate.Version, ID: id, Domain: f.spec.Domain, Runsc: "/usr/bin/runsc"}); err != nil {
			t.Fatal(err)
		}
	}
	first := f.pid()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.gone(first)
	end(dead)
	if _, err := os.Lstat(f.spec.Domain.SocketPath(f.spec.ControlDir)); err != nil {
		t.Fatal("a killed coordinator leaves its socket: ", err)
	}
	_ = f.ensure().Close()
	st := f.status()
	if st.PID == first || len(st.Containers) != 1 || st.Containers[0].ID != "alive" {
		t.Errorf("status %+v", st)
	}
	f.eventually("the dead container's state goes", func() bool {
		_, err := os.Stat(containerstate.Dir(f.spec.RuntimeDir, "dead"))
		return err != nil
	})
	end(box)
	f.gone(st.PID)
	f.nothingLeft()
}

func TestRemovedSocketComesBack(t *testing.T) {
	f := newFixture(t)
	c := f.ensure()
	pid := c.PeerPID()
	if err := c.Call(wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "00000000-0000-4000-8000-000000000001", Kind: "run"}, &wire.Empty{}, time.Second); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{f.spec.Domain.SocketPath(f.spec.ControlDir), f.spec.Domain.LockPath(f.spec.ControlDir)} {
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
	// A start at this moment must find the living one, not make a second.
	c2 := f.ensure()
	if c2.PeerPID() != pid {
		t.Errorf("a second coordinator %d beside %d", c2.PeerPID(), pid)
	}
	_ = c2.Close()
	_ = c.Close()
	f.gone(pid)
	f.nothingLeft()
}

func TestTakenNamesAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make another user's files")
	}
	const stranger = 65534
	tests := []struct {
		name string
		make func(t *testing.T, lock, socket string)
		want string
	}{
		{"lock is a symbolic link", func(t *testing.T, lock, _ string) { must(t, os.Symlink("/etc/passwd", lock)) }, "open lock"},
		{"lock is a directory", func(t *testing.T, lock, _ string) { must(t, os.Mkdir(lock, 0o700)) }, "open lock"},
		{"lock is a FIFO", func(t *testing.T, lock, _ string) { must(t, unix.Mkfifo(lock, 0o600)) }, "somebody took the name"},
		{"lock is another user's", func(t *testing.T, lock, _ string) {
			must(t, os.WriteFile(lock, nil, 0o666)) //nolint:gosec // the fault under test
			must(t, os.Chown(lock, stranger, stranger))
		}, "somebody took the name"},
		{"lock is a hard link", func(t *testing.T, lock, _ string) {
			must(t, os.WriteFile(lock+"x", nil, 0o600))
			must(t, os.Link(lock+"x", lock))
		}, "somebody took the name"},
		{"socket is a plain file", func(t *testing.T, _, socket string) { must(t, os.WriteFile(socket, nil, 0o600)) }, "not a socket of yours"},
		{"socket is a symbolic link", func(t *testing.T, _, socket string) { must(t, os.Symlink("/nonexistent", socket)) }, "not a socket of yours"},
		{"socket is a directory", func(t *testing.T, _, socket string) { must(t, os.Mkdir(socket, 0o700)) }, "not a socket of yours"},
		{"socket is another user's and dead", func(t *testing.T, _, socket string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
			must(t, err)
			l.SetUnlinkOnClose(false)
			must(t, l.Close())
			must(t, os.Chown(socket, stranger, stranger))
		}, "not a socket of yours"},
		{"socket is another user's and alive", func(t *testing.T, _, socket string) {
			must(t, os.Chmod(filepath.Dir(socket), 0o777)) //nolint:gosec // as /tmp
			for d := filepath.Dir(socket); d != "/tmp" && d != "/"; d = filepath.Dir(d) {
				must(t, os.Chmod(d, 0o777)) //nolint:gosec // the stranger must get there
			}
			ready := make(chan error)
			go func() {
				// Credentials are a thread's own for the kernel, and those of
				// listen(2) are what a peer sees. The thread ends with us.
				runtime.LockOSThread()
				if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, stranger, stranger, stranger); e != 0 {
					ready <- e
					return
				}
				fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
				if err == nil {
					err = unix.Bind(fd, &unix.SockaddrUnix{Name: socket})
				}
				if err == nil {
					err = unix.Listen(fd, 5)
				}
				ready <- err
			}()
			must(t, <-ready)
			must(t, os.Chmod(socket, 0o777)) //nolint:gosec // the fault under test
		}, "served by uid 65534"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			lock, socket := f.spec.Domain.LockPath(f.spec.ControlDir), f.spec.Domain.SocketPath(f.spec.ControlDir)
			tt.make(t, lock, socket)
			c, err := wire.Ensure(f.spec, programPath)
			if err == nil {
				_ = c.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "control_dir") {
				t.Errorf("got: %v", err)
			}
			if data, _ := os.ReadFile("/etc/passwd"); len(data) == 0 {
				t.Fatal("the link was followed")
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestControlDirTooLong(t *testing.T) {
	f := newFixture(t)
	f.spec.ControlDir = "/tmp/" + strings.Repeat("x", 90)
	if _, err := wire.Ensure(f.spec, programPath); err == nil || !strings.Contains(err.Error(), "shorter control_dir") {
		t.Errorf("got %v", err)
	}
}

func TestStoppedCoordinatorIsNamed(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	pid := f.pid()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL); f.gone(pid) }()
	f.eventually("all its threads are stopped", func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		must(t, err)
		for _, task := range tasks {
			if data, err := os.ReadFile(task); err != nil || !strings.Contains(string(data), ") T ") {
				return false
			}
		}
		return true
	})
	c, err := wire.Dial(f.spec.Domain.SocketPath(f.spec.ControlDir), time.Second)
	must(t, err)
	defer func() { _ = c.Close() }()
	err = c.Call(wire.PathStatus, nil, &wire.Status{}, 200*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(pid)) {
		t.Errorf("got %v", err)
	}
}

func TestHeldLockIsNamed(t *testing.T) {
	f := newFixture(t)
	path := f.spec.Domain.LockPath(f.spec.ControlDir)
	l, err := wire.TryLock(path)
	must(t, err)
	_, err = wire.WaitLock(path, time.Now().Add(50*time.Millisecond))
	if !errors.Is(err, wire.ErrLocked) || !strings.Contains(err.Error(), "pid "+strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v", err)
	}
	must(t, l.Remove())
}

func TestRunDirectory(t *testing.T) {
	f := newFixture(t)
	var seen []os.FileInfo
	for range 2 { // the second is a successor of a killed one
		c := f.ensure()
		run := filepath.Join(f.spec.RuntimeDir, "domains", f.spec.Domain.Hash, "run")
		client, err := os.Stat(filepath.Join(run, "escalate"))
		must(t, err)
		git, err := os.Stat(filepath.Join(run, "bin/git"))
		must(t, err)
		dir, err := os.Stat(filepath.Join(run, "bin"))
		must(t, err)
		if !os.SameFile(client, git) || git.Mode().Perm() != 0o755 || dir.Mode().Perm() != 0o755 {
			t.Errorf("git has mode %v, its directory %v; the client itself: %v", git.Mode(), dir.Mode(), os.SameFile(client, git))
		}
		seen = append(seen, git)
		must(t, syscall.Kill(c.PeerPID(), syscall.SIGKILL))
		_ = c.Close()
	}
	if os.SameFile(seen[0], seen[1]) {
		t.Error("a successor has kept the old program")
	}
}

func TestCoordinatorThatCannotStart(t *testing.T) {
	f := newFixture(t)
	f.spec.ClientPath = "/nonexistent/lazaret-escalate"
	begin := time.Now()
	_, err := wire.Ensure(f.spec, programPath)
	if err == nil || !strings.Contains(err.Error(), "ended while starting") || !strings.Contains(err.Error(), "reinstall Lazaret") {
		t.Errorf("want the coordinator's own words, got: %v", err)
	}
	if time.Since(begin) > wire.StartTimeout/2 {
		t.Error("waited for a dead coordinator")
	}
	f.nothingLeft()

	f.spec.Domain.Ephemeral = true
	if _, err := wire.Ensure(f.spec, programPath); err == nil {
		t.Error("started")
	}
	f.nothingLeft()
	if _, err := os.Lstat(f.spec.Domain.Root); err == nil {
		t.Error("the ephemeral domain's root is left")
	}
}

func TestEphemeralDomainLeavesNothing(t *testing.T) {
	f := newFixture(t)
	f.spec.Domain = domain.Ephemeral("default", "abc", filepath.Join(filepath.Dir(f.ws), "data"))
	c := f.ensure()
	pid := c.PeerPID()
	must(t, c.Call(wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "00000000-0000-4000-8000-000000000001", Kind: "run"}, &wire.Empty{}, time.Second))
	_ = c.Close()
	f.gone(pid)
	if _, err := os.Lstat(f.spec.Domain.Root); err == nil {
		t.Error("the Domain Root of an ephemeral domain is left")
	}
	f.nothingLeft()
}

func TestRefusedRequests(t *testing.T) {
	f := newFixture(t)
	hold := f.ensure()
	must(t, hold.Call(wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "00000000-0000-4000-8000-000000000001", Kind: "run"}, &wire.Empty{}, time.Second))
	pid := hold.PeerPID()
	outside := filepath.Dir(f.ws)
	unguarded, unknown := f.prepareRequest("c1"), f.prepareRequest("c1")
	unguarded.Git, unknown.Git = "", "some"
	other := f.prepareRequest("c1")
	other.Domain = domain.New("other", f.ws, "/data")
	elsewhere := f.prepareRequest("c1")
	elsewhere.StateDir = outside
	tests := []struct {
		name, path string
		in         any
		code       string
	}{
		{"attach of a stranger", wire.PathAttach, wire.AttachRequest{Version: wire.Version, ContainerID: "nobody", PID: os.Getpid()}, wire.CodeUnknown},
		{"attach of a dead process", wire.PathAttach, wire.AttachRequest{Version: wire.Version, ContainerID: "nobody", PID: 1 << 22}, wire.CodeRefused},
		{"attach of init", wire.PathAttach, wire.AttachRequest{Version: wire.Version, ContainerID: "nobody", PID: 1}, wire.CodeBadRequest},
		{"another version", wire.PathRelease, wire.ReleaseRequest{Version: 99, ContainerID: "x"}, wire.CodeBadVersion},
		{"an unknown field", wire.PathRelease, map[string]any{"version": 1, "container_id": "x", "extra": 1}, wire.CodeBadRequest},
		{"a name twice", wire.PathRelease, json.RawMessage(`{"version":1,"container_id":"x","container_id":"y"}`), wire.CodeBadRequest},
		{"a name in another case", wire.PathRelease, json.RawMessage(`{"version":1,"container_id":"x","Container_id":"y"}`), wire.CodeBadRequest},
		{"another domain", wire.PathPrepare, other, wire.CodeDomainMismatch},
		{"a state directory elsewhere", wire.PathPrepare, elsewhere, wire.CodeBadRequest},
		{"an id with a slash", wire.PathPrepare, f.prepareRequest("../x"), wire.CodeBadRequest},
		{"a mask out of the workspace", wire.PathPrepare, f.prepareRequest("c1", "../evil"), wire.CodeBadRequest},
		{"the workspace itself as a mask", wire.PathPrepare, f.prepareRequest("c1", "."), wire.CodeBadRequest},
		{"a workspace without a guard", wire.PathPrepare, unguarded, wire.CodeBadRequest},
		{"another kind of guard", wire.PathPrepare, unknown, wire.CodeBadRequest},
		{"a session that exists", wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "00000000-0000-4000-8000-000000000001", Kind: "run"}, wire.CodeRefused},
		{"a session without a UUID", wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "x", Kind: "run"}, wire.CodeBadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := f.call(tt.path, tt.in, &wire.Empty{})
			var e *wire.Error
			if !errors.As(err, &e) || e.Code != tt.code {
				t.Errorf("got %v, want code %s", err, tt.code)
			}
		})
	}
	_ = hold.Close()
	f.gone(pid)
	f.nothingLeft()
}

// FuzzRequest: no body, whatever it holds, crashes the server or is answered
// with anything but JSON.
func FuzzRequest(f *testing.F) {
	paths := []string{wire.PathPrepare, wire.PathAttach, wire.PathRelease, wire.PathSessions, wire.PathStatus, wire.PathDesk, wire.PathAudit}
	for i := range paths {
		f.Add(i, []byte(`{"version":1,"container_id":"c","pid":2}`))
	}
	f.Add(0, []byte(`{"version":1,"domain":{"profile":"p"},"container_id":"c","git":"sentry","masks":["../x"]}`))
	f.Add(1, []byte(`{"version":1,"container_id":"c","pid":-1}{}`))
	dir := f.TempDir()
	spec := wire.StartSpec{Version: wire.Version, Domain: domain.New("default", dir, dir), ControlDir: dir, RuntimeDir: dir}
	log := slog.New(slog.DiscardHandler)
	records := store.Open(store.Options{Root: dir, Log: log})
	f.Cleanup(func() { _ = records.Close() })
	f.Fuzz(func(t *testing.T, i int, body []byte) {
		c := &Coordinator{spec: spec, log: log, store: records, idle: make(chan struct{}, 1), containers: map[string]*container{}, sessions: map[string]*session{}}
		c.broker = broker.New(broker.Options{Domain: spec.Domain, Log: log, Record: records.Append, Later: records.Later, Busy: records.Behind})
		defer c.broker.Close()
		w := httptest.NewRecorder()
		method := http.MethodPost
		if i < 0 {
			i = -(i + 1)
		}
		path := paths[i%len(paths)]
		if path == wire.PathStatus || path == wire.PathAudit {
			method = http.MethodGet
		}
		c.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(string(body))))
		if !strings.HasPrefix(w.Body.String(), "{") {
			t.Fatalf("answer %q", w.Body.String())
		}
		if len(c.containers)+len(c.sessions) > 0 {
			t.Fatalf("counted without a peer: %q", body)
		}
	})
}
