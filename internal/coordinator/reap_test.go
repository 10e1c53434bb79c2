package coordinator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// creatorEnv makes this test program a process that creates a container: it
// sends the prepare request of each line of its input, answers with a line, and
// ends with its input.
const creatorEnv = "LAZARET_TEST_CREATOR"

func creatorMain() int {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var req wire.PrepareRequest
		err := json.Unmarshal(lines.Bytes(), &req)
		if err == nil {
			var c *wire.Conn
			if c, err = wire.Dial(os.Getenv(creatorEnv), time.Second); err == nil {
				err = errors.Join(c.Call(wire.PathPrepare, req, &wire.PrepareResponse{}, 5*time.Second), c.Close())
			}
		}
		_, _ = fmt.Fprintln(os.Stdout, err) // who does not read it sees the end
	}
	return 0
}

type creator struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (f *fixture) creator() *creator {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), creatorEnv+"="+f.spec.Domain.SocketPath(f.spec.ControlDir))
	in, err := cmd.StdinPipe()
	must(f.t, err)
	out, err := cmd.StdoutPipe()
	must(f.t, err)
	must(f.t, cmd.Start())
	f.t.Cleanup(func() { end(cmd) })
	return &creator{t: f.t, cmd: cmd, in: in, out: bufio.NewReader(out)}
}

func (c *creator) prepare(req wire.PrepareRequest) string {
	c.t.Helper()
	data, err := json.Marshal(req)
	must(c.t, err)
	_, err = fmt.Fprintf(c.in, "%s\n", data)
	must(c.t, err)
	line, err := c.out.ReadString('\n')
	must(c.t, err)
	return strings.TrimSpace(line)
}

// shell is a copy of the shell, which stands for runsc: a process of it can be
// given any name and arguments.
func shell(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/bin/sh")
	must(t, err)
	path := filepath.Join(t.TempDir(), "runsc")
	must(t, os.WriteFile(path, data, 0o755)) //nolint:gosec // a program
	return path
}

// named starts a process of program whose first and last arguments are given.
func named(t *testing.T, program, first string, last ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Args = append([]string{first, "-c", "read x; :"}, last...)
	_, err := cmd.StdinPipe() // stays open: it reads until it is ended
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	return cmd
}

func alive(cmd *exec.Cmd) bool {
	_, err := proc.StartTime(cmd.Process.Pid)
	return err == nil
}

func (f *fixture) writeState(id, runsc, root string) {
	f.t.Helper()
	bundle := filepath.Join(filepath.Dir(f.ws), "bundle-"+id)
	must(f.t, os.MkdirAll(bundle, 0o700))
	must(f.t, os.WriteFile(filepath.Join(bundle, "config.json"), []byte("{}"), 0o600))
	must(f.t, containerstate.WriteState(containerstate.Dir(f.spec.RuntimeDir, id), containerstate.State{
		Version: containerstate.Version, ID: id, Domain: f.spec.Domain, Runsc: runsc, RunscRoot: root, Bundle: bundle,
	}))
}

func TestKilledCreateLeavesNoOrphans(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	pid := f.pid()
	c := f.creator()
	if got := c.prepare(f.prepareRequest("c1", ".vscode")); got != "<nil>" {
		t.Fatal(got)
	}
	runsc, root := shell(t), t.TempDir()
	f.writeState("c1", runsc, root)
	lock := filepath.Join(root, "c1_sandbox:c1.lock")
	must(t, os.WriteFile(lock, nil, 0o600))
	bundle := filepath.Join(filepath.Dir(f.ws), "bundle-c1")
	orphans := []*exec.Cmd{
		named(t, runsc, "runsc-sandbox", "boot", "--bundle="+bundle, "c1"), named(t, runsc, "runsc-gofer", "gofer", "--bundle", bundle+"/", "c1"),
		named(t, runsc, "runsc-gofer", "--bundle", "bundle-c1", "c1"), // as it was given
	}
	others := map[string]*exec.Cmd{
		"another container's":            named(t, runsc, "runsc-sandbox", "c11"),
		"another engine's, of that id":   named(t, runsc, "runsc-sandbox", "boot", "--bundle=/elsewhere/bundle-c1", "c1"),
		"of another program":             named(t, "/bin/sh", "runsc-sandbox", "c1"),
		"runsc's, but not the sandbox's": named(t, runsc, "runsc", "c1"),
	}
	// The hook had told of the sandbox already: the create had not ended for that.
	must(t, f.attach("c1", orphans[0].Process.Pid))
	end(c.cmd)
	f.gone(pid)
	for _, o := range orphans {
		if alive(o) {
			t.Errorf("%s still runs", o.Args[0])
		}
	}
	for name, o := range others {
		if !alive(o) {
			t.Errorf("a process was ended that is %s", name)
		}
	}
	if _, err := os.Lstat(lock); err == nil {
		t.Error("runsc's lock is left")
	}
	f.nothingLeft()
}

func TestContainerThatItsEngineDropped(t *testing.T) {
	tests := []struct {
		name, status string
		ended        bool
	}{
		{"created and never started is ended", "created", true},
		{"running is left to end by itself", "running", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			_ = f.ensure().Close()
			box := sandbox(t)
			must(t, errors.Join(f.prepare("c1"), f.attach("c1", box.Process.Pid)))
			asked := filepath.Join(t.TempDir(), "asked")
			runsc := filepath.Join(t.TempDir(), "runsc")
			script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in\n*delete*--force*c1) kill -9 %d ;;\n*state*c1) echo '{\"status\":%q}'; echo x >>%s ;;\nesac\n", box.Process.Pid, tt.status, asked)
			must(t, os.WriteFile(runsc, []byte(script), 0o755)) //nolint:gosec // a program
			f.writeState("c1", runsc, t.TempDir())
			time.Sleep(socketCheck + 500*time.Millisecond)
			if _, err := os.Stat(asked); err == nil {
				t.Fatal("asked about a container whose bundle is there")
			}
			must(t, os.RemoveAll(filepath.Join(filepath.Dir(f.ws), "bundle-c1")))
			f.eventually("the runtime is asked", func() bool { _, err := os.Stat(asked); return err == nil })
			if tt.ended {
				f.eventually("the sandbox is ended", func() bool { return !alive(box) })
				return
			}
			time.Sleep(2 * socketCheck)
			if !alive(box) {
				t.Error("a running sandbox was ended")
			}
			if data, err := os.ReadFile(asked); err != nil || string(data) != "x\n" {
				t.Errorf("asked again and again: %q, %v", data, err)
			}
		})
	}
}

// A sandbox that ended is the engine's to delete, for which it may take its
// time; what the delete needs to know stays that long.
func TestStateOfAStoppedContainerStaysUntilItsDelete(t *testing.T) {
	f := newFixture(t)
	hold := f.ensure()
	must(t, hold.Call(wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "00000000-0000-4000-8000-000000000001", Kind: "run"}, &wire.Empty{}, time.Second))
	dir, root := containerstate.Dir(f.spec.RuntimeDir, "c1"), t.TempDir()
	box := sandbox(t)
	must(t, errors.Join(f.prepare("c1"), f.attach("c1", box.Process.Pid)))
	f.writeState("c1", "/bin/true", root)
	must(t, os.WriteFile(filepath.Join(root, "c1_sandbox:c1.state"), nil, 0o600))
	end(box)
	f.eventually("the container is counted out", func() bool { return len(f.status().Containers) == 0 })
	must(t, f.prepare("c2")) // sweeps
	time.Sleep(200 * time.Millisecond)
	if _, err := containerstate.ReadState(dir); err != nil {
		t.Error("the state is gone before the delete: ", err)
	}
	must(t, f.release("../c1")) // an id that would lead elsewhere is none
	must(t, f.release("c1"))
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the state is left after the delete")
	}
}

func TestPreparingContainerIsAdopted(t *testing.T) {
	f := newFixture(t)
	_ = f.ensure().Close()
	first := f.pid()
	c := f.creator()
	if got := c.prepare(f.prepareRequest("c1")); got != "<nil>" {
		t.Fatal(got)
	}
	must(t, syscall.Kill(first, syscall.SIGKILL))
	f.gone(first)
	_ = f.ensure().Close()
	if st := f.status(); len(st.Containers) != 1 || st.Containers[0].State != "preparing" {
		t.Fatalf("status %+v", st)
	}
	// Its answer was cut, so it asks again.
	if got := c.prepare(f.prepareRequest("c1")); got != "<nil>" {
		t.Fatal(got)
	}
	// Nobody else may.
	if err := f.prepare("c1"); err == nil {
		t.Error("another process prepared a container of the same id")
	}
	pid := f.pid()
	end(c.cmd)
	f.gone(pid)
	f.nothingLeft()
}

func TestKilledCoordinatorsOfOtherDomains(t *testing.T) {
	f := newFixture(t)
	data := filepath.Dir(filepath.Dir(f.spec.Domain.Root))
	other := func(a domain.Anchor) *fixture {
		o := *f
		o.spec.Domain = a
		return &o
	}
	session := func(f *fixture) *wire.Conn {
		c := f.ensure()
		must(t, c.Call(wire.PathSessions, wire.SessionRequest{Version: wire.Version, SessionID: "00000000-0000-4000-8000-000000000001", Kind: "run"}, &wire.Empty{}, time.Second))
		return c
	}
	killed := other(domain.Ephemeral("default", "abc", data))
	living := other(domain.Ephemeral("default", "def", data))
	used := other(domain.New("other", f.ws, data))
	_ = killed.ensure().Close()
	stays := session(living)
	_ = used.ensure().Close()
	box := sandbox(t)
	must(t, errors.Join(used.prepare("c1"), used.attach("c1", box.Process.Pid)))
	for _, o := range []*fixture{killed, used} {
		pid := o.pid()
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		o.gone(pid)
	}
	// A start that was killed before it made anything else.
	lonely := domain.Ephemeral("default", "ghi", data)
	must(t, os.WriteFile(lonely.LockPath(f.spec.ControlDir), nil, 0o600))

	pidLiving := living.pid()
	own := session(f)
	f.eventually("the ephemeral domain is gone", func() bool {
		for _, path := range []string{
			killed.spec.Domain.Root, killed.spec.Domain.LockPath(f.spec.ControlDir), killed.spec.Domain.SocketPath(f.spec.ControlDir),
			domainDir(f.spec.RuntimeDir, killed.spec.Domain.Hash), lonely.LockPath(f.spec.ControlDir),
		} {
			if _, err := os.Lstat(path); err == nil {
				return false
			}
		}
		return true
	})
	f.eventually("the running container has a coordinator again", func() bool {
		return used.pid() != 0 && len(used.status().Containers) == 1
	})
	if got := living.pid(); got != pidLiving {
		t.Errorf("the coordinator of a domain in use is %d, was %d", got, pidLiving)
	}
	pids := []int{f.pid(), used.pid(), living.pid()}
	end(box)
	_ = own.Close()
	_ = stays.Close()
	for _, pid := range pids {
		f.gone(pid)
	}
	f.nothingLeft()
}

// A claim is whole or not there, whoever was killed in between.
func TestClaimState(t *testing.T) {
	runtimeDir := t.TempDir()
	dir := containerstate.Dir(runtimeDir, "c1")
	start, err := proc.StartTime(os.Getpid())
	must(t, err)
	living := containerstate.Lease{Version: containerstate.Version, Domain: "aaaaaaaaaaaa", PID: os.Getpid(), StartTime: start}
	dead := living
	dead.StartTime++

	// Killed before the lease was whole.
	fresh := filepath.Join(filepath.Dir(dir), unfinished)
	must(t, os.MkdirAll(fresh, 0o700))
	must(t, os.WriteFile(filepath.Join(fresh, ".lease.json.tmp-1"), nil, 0o600))
	must(t, removeUnfinished(runtimeDir))
	if left := names(filepath.Dir(dir)); len(left) != 0 {
		t.Fatalf("left: %q", left)
	}
	must(t, os.MkdirAll(fresh, 0o700))
	must(t, os.WriteFile(filepath.Join(fresh, "state.json"), nil, 0o600))

	must(t, claimState(dir, dead))
	must(t, os.WriteFile(filepath.Join(dir, "state.json"), nil, 0o600))
	must(t, claimState(dir, living)) // the dead one's is taken over, with nothing of it
	if got := names(dir); !slices.Equal(got, []string{"lease.json"}) {
		t.Errorf("after a claim: %q", got)
	}
	other := living
	other.Domain = "bbbbbbbbbbbb"
	if err := claimState(dir, other); err == nil {
		t.Error("the id of a living container was claimed")
	}
	// What is left of a removal that was killed is nobody's.
	must(t, os.Remove(filepath.Join(dir, "lease.json")))
	must(t, os.WriteFile(filepath.Join(dir, "state.json"), nil, 0o600))
	must(t, claimState(dir, other))

	c := &Coordinator{spec: wire.StartSpec{RuntimeDir: runtimeDir, Domain: domain.Anchor{Hash: living.Domain}}, log: slog.New(slog.DiscardHandler)}
	c.removeState("c1")
	if _, err := containerstate.ReadLease(dir); err != nil {
		t.Errorf("another domain's container: %v", err)
	}
	c.spec.Domain.Hash = other.Domain
	c.removeState("c1")
	if left := names(filepath.Dir(dir)); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// starterEnv makes this test program a start that is killed before it asks for
// anything; its value is the coordinator's program, its input the settings.
const starterEnv = "LAZARET_TEST_STARTER"

func starterMain() int {
	var spec wire.StartSpec
	err := json.NewDecoder(os.Stdin).Decode(&spec)
	if err == nil {
		_, err = wire.Ensure(spec, os.Getenv(starterEnv))
	}
	_, _ = fmt.Fprintln(os.Stdout, err) // who does not read it sees the end
	time.Sleep(time.Minute)
	return 0
}

func TestCoordinatorOfAStartThatWasKilled(t *testing.T) {
	t.Run("once it answers", func(t *testing.T) {
		f := newFixture(t)
		input, err := json.Marshal(f.spec)
		must(t, err)
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), starterEnv+"="+programPath)
		cmd.Stdin = bytes.NewReader(input)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		defer end(cmd)
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "<nil>\n" {
			t.Fatalf("start: %q, %v", line, err)
		}
		pid := f.pid()
		time.Sleep(100 * time.Millisecond)
		if got := f.pid(); got != pid || pid == 0 {
			t.Fatalf("coordinator %d, then %d: it must wait for a start that lives", pid, got)
		}
		end(cmd)
		f.gone(pid) // long before its patience with a living one ends
		f.nothingLeft()
	})
	t.Run("before it was up", func(t *testing.T) {
		f := newFixture(t)
		dead := sandbox(t)
		end(dead)
		f.spec.Starter = dead.Process.Pid
		input, err := json.Marshal(f.spec)
		must(t, err)
		must(t, os.MkdirAll(f.spec.Domain.Root, 0o700))
		begin := time.Now()
		cmd := exec.CommandContext(t.Context(), programPath, f.spec.Domain.Hash)
		cmd.Stdin = bytes.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if took := time.Since(begin); took > startGrace/2 {
			t.Errorf("waited %s for nobody", took)
		}
		f.nothingLeft()
	})
}
