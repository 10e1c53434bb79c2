package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/domain"
)

// These tests run the real lazaret-runtime, in a user namespace as a rootless
// engine does it, with a runsc that only records how it was started.

// TestMain is also that runsc: the test program under that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "runsc" {
		os.Exit(fakeRunsc())
	}
	// What the test program was given itself is not to reach what it starts.
	for fd := 3; fd < 256; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			unix.CloseOnExec(fd)
		}
	}
	code := m.Run()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	os.Exit(code)
}

// record is what the low-level runtime saw at its start.
type record struct {
	Args []string
	Env  []string
	Cwd  string
	PID  int
	FDs  map[int]string // descriptor to what it is
	In   string         // standard input, where it is a pipe
}

const fakeFlags = "\t-root string\n    \tx\n  -overlay2 value\n  -ignore-cgroups\n  -host-uds value\n  -network value\n  -systrap-disable-fast-path\n"

func fakeRunsc() int {
	// First of all, before Go opens anything: what did we inherit?
	fds := map[int]string{}
	for fd := range 256 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			continue
		}
		link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			return 99
		}
		if !strings.HasPrefix(link, "/sys/fs/cgroup/") { // Go's own, for GOMAXPROCS
			fds[fd] = link
		}
	}
	args := os.Args[1:]
	switch {
	case slices.Equal(args, []string{"--version"}):
		fmt.Println("runsc version fake\nspec: 1.2.1")
		return 0
	case slices.Equal(args, []string{"flags"}):
		fmt.Print(fakeFlags)
		return 0
	case slices.Equal(args, []string{"help"}):
		fmt.Println("Subcommands:\n\tcreate  x\n\tupdate  x\n\tsymbolize  x")
		return 0
	}
	if os.Args[0] != "runsc" {
		return 0 // the coordinator removes what a failed create left
	}
	exe, err := os.Executable()
	if err != nil {
		return 99
	}
	r := record{Args: os.Args, Env: os.Environ(), PID: os.Getpid(), FDs: fds}
	if r.Cwd, err = os.Getwd(); err != nil {
		return 99
	}
	if strings.HasPrefix(fds[0], "pipe:") {
		in, err := io.ReadAll(os.Stdin)
		if err != nil {
			return 99
		}
		r.In = string(in)
	}
	data, err := json.Marshal(r)
	if err != nil || os.WriteFile(filepath.Join(filepath.Dir(exe), "record"), data, 0o600) != nil {
		return 99
	}
	fmt.Print("out of runsc\n")
	fmt.Fprint(os.Stderr, "err of runsc\n")
	if code, err := os.ReadFile(filepath.Join(filepath.Dir(exe), "code")); err == nil {
		n, _ := strconv.Atoi(string(code)) // the test's own
		return n
	}
	return 0
}

// programs are ours, built once.
var programs struct {
	once sync.Once
	dir  string
	err  error
}

func build(t *testing.T) string {
	t.Helper()
	programs.once.Do(func() {
		if programs.dir, programs.err = os.MkdirTemp("", "lzs-"); programs.err != nil { //nolint:usetesting // all tests'
			return
		}
		if programs.err = os.Chmod(programs.dir, 0o755); programs.err != nil { //nolint:gosec // another uid runs what is in it
			return
		}
		args := []string{"build", "-o", programs.dir}
		for _, name := range []string{"runtime", "coordinator", "hook", "escalate"} {
			args = append(args, "github.com/lazaret-dev/lazaret/cmd/lazaret-"+name)
		}
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			programs.err = fmt.Errorf("build: %w: %s", err, out)
			return
		}
		self, err := os.ReadFile("/proc/self/exe")
		if err == nil {
			err = os.WriteFile(filepath.Join(programs.dir, "fake"), self, 0o755) //nolint:gosec // a program
		}
		programs.err = err
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return programs.dir
}

// place is one test's world.
type place struct {
	t       *testing.T
	uid     int
	dir     string
	bin     string // lazaret-runtime and the helpers
	low     string // the runsc of this test
	home    string
	xdg     string // XDG_RUNTIME_DIR
	runtime string // Lazaret's directory in it
	data    string // data_root
	control string // control_dir
	ws      string
	bundle  string
	log     string
	end     func() // ends the sandbox that state made
}

// stranger is whom we become when the tests run as root.
const stranger = 65534

func newPlace(t *testing.T) *place {
	t.Helper()
	built := build(t)
	dir, err := os.MkdirTemp("", "lzt-") //nolint:usetesting // another uid must reach it, and sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	p := &place{
		t: t, uid: os.Getuid(), dir: dir, bin: dir + "/bin", low: dir + "/low/runsc", home: dir + "/home", xdg: dir + "/xdg",
		runtime: dir + "/xdg/lazaret", data: dir + "/data", control: dir + "/ctl", ws: dir + "/ws", bundle: dir + "/bundle", log: dir + "/log.json",
	}
	if p.uid == 0 {
		p.uid = stranger
	}
	for _, d := range []string{p.bin, filepath.Dir(p.low), p.home, p.xdg, p.data, p.control, p.ws, p.bundle + "/rootfs/bin", dir + "/home/.config/lazaret"} {
		p.must(os.MkdirAll(d, 0o755)) //nolint:gosec // another uid's
	}
	p.must(os.Chmod(p.xdg, 0o700)) //nolint:gosec // a directory
	for _, name := range []string{"lazaret-runtime", "lazaret-coordinator", "lazaret-hook", "lazaret-escalate"} {
		p.must(os.Link(filepath.Join(built, name), filepath.Join(p.bin, name)))
	}
	p.must(os.Link(filepath.Join(built, "fake"), p.low))
	p.write(p.bundle+"/rootfs/bin/sh", "#!")
	p.must(os.Chmod(p.bundle+"/rootfs/bin/sh", 0o755)) //nolint:gosec // a program
	p.config("")
	p.spec(nil)
	t.Cleanup(func() {
		p.idle()
		_ = os.RemoveAll(dir)
	})
	p.own(dir)
	return p
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// own gives a tree to the user that the runtime runs as.
func (p *place) own(dir string) {
	p.t.Helper()
	if os.Getuid() == p.uid {
		return
	}
	p.must(filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, p.uid, p.uid)
	}))
}

// foreign gives a file or directory to somebody whom the runtime's user namespace
// does not know, so that being root there does not help.
func (p *place) foreign(path string, mode os.FileMode) {
	p.t.Helper()
	if os.Getuid() != 0 {
		p.t.Skip("needs root to make another user's files")
	}
	p.must(os.Lchown(path, 0, 0))
	p.must(os.Chmod(path, mode))
}

func (p *place) mine(path string, mode os.FileMode) {
	p.t.Helper()
	p.must(os.Chmod(path, mode))
	p.own(path)
}

func (p *place) write(path, text string) {
	p.t.Helper()
	p.must(os.WriteFile(path, []byte(text), 0o644)) //nolint:gosec // another uid's
	p.own(path)
}

// config is the user's; there is no sidecar here to filter the network.
func (p *place) config(more string) {
	p.t.Helper()
	p.write(p.home+"/.config/lazaret/config.toml", fmt.Sprintf("[general]\ndata_root = %q\ncontrol_dir = %q\n[runtime]\nsandbox = %q\n%s\n[profiles.default.network]\nmode = \"open\"\n", p.data, p.control, p.low, more))
}

// spec writes the bundle's config.json.
func (p *place) spec(change func(*specs.Spec)) {
	p.t.Helper()
	s := &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{Args: []string{"sh", "-c", "true"}, Cwd: "/", Env: []string{"PATH=/bin", "TERM=xterm"}},
		Mounts:  []specs.Mount{{Destination: "/workspace", Type: "bind", Source: p.ws, Options: []string{"rbind", "rw"}}},
		Linux:   &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace}}},
	}
	if change != nil {
		change(s)
	}
	data, err := json.Marshal(s)
	p.must(err)
	p.write(p.bundle+"/config.json", string(data))
}

func (p *place) env() []string {
	return []string{"HOME=" + p.home, "XDG_RUNTIME_DIR=" + p.xdg, "PATH=/usr/bin:/bin", "MARK=one\ntwo", "EMPTY="}
}

// outcome is how one call of the runtime ended.
type outcome struct {
	code     int
	out, err string
	pid      int
	rec      *record // nil when runsc was not reached
}

// command is lazaret-runtime as root of a user namespace in which only this uid
// exists, and of a mount namespace, in which the guard can mount.
func (p *place) command(args ...string) *exec.Cmd {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	p.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "lazaret-runtime"), args...)
	cmd.Dir, cmd.Env = p.bundle, p.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: p.uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: p.gid(), Size: 1}},
	}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true}
	}
	return cmd
}

func (p *place) gid() int {
	if os.Getuid() == 0 {
		return p.uid
	}
	return os.Getgid()
}

func (p *place) finish(cmd *exec.Cmd) outcome {
	p.t.Helper()
	rec := filepath.Join(filepath.Dir(p.low), "record")
	p.must(os.RemoveAll(rec))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	o := outcome{code: cmd.ProcessState.ExitCode(), out: stdout.String(), err: stderr.String(), pid: cmd.Process.Pid}
	if data, err := os.ReadFile(rec); err == nil {
		o.rec = &record{}
		p.must(json.Unmarshal(data, o.rec))
	}
	return o
}

func (p *place) run(args ...string) outcome {
	p.t.Helper()
	return p.finish(p.command(args...))
}

// idle waits until no coordinator is left.
func (p *place) idle() {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		running := p.running()
		if len(running) == 0 {
			return
		}
		if time.Now().After(end) {
			p.t.Errorf("still running: %v", running)
			for pid := range running {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
	}
}

// running finds our programs of this place.
func (p *place) running() map[int]string {
	all := map[int]string{}
	entries, err := os.ReadDir("/proc")
	p.must(err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && strings.HasPrefix(exe, p.dir+"/") {
			all[pid] = exe
		}
	}
	return all
}

// left lists what a call left outside of the Domain Root.
func (p *place) left() []string {
	p.t.Helper()
	p.idle()
	var left []string
	for _, d := range []string{p.control, p.runtime + "/containers", p.runtime + "/domains", p.ws} {
		entries, err := os.ReadDir(d)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.t.Fatal(err)
		}
		for _, e := range entries {
			left = append(left, filepath.Join(d, e.Name()))
		}
	}
	return left
}

// logged is the one JSON object of the log.
func (p *place) logged() map[string]string {
	p.t.Helper()
	data, err := os.ReadFile(p.log)
	p.must(err)
	dec := json.NewDecoder(bytes.NewReader(data))
	var v map[string]string
	if err := dec.Decode(&v); err != nil {
		p.t.Fatalf("log %q: %v", data, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		p.t.Errorf("log holds more than one object: %q", data)
	}
	return v
}

// The command lines of engines, with what runsc must be given.
func TestPassThroughIsOneExecve(t *testing.T) {
	p := newPlace(t)
	const root, log = "/run/x", "/dev/null"
	podman := []string{"--root", root, "--log-format=json", "--log", log}
	shim2 := []string{"--root", root, "--log", log, "--log-format", "json", "--systemd-cgroup"}
	common := []string{"--root=" + root}
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"podman state", slices.Concat(podman, []string{"state", "c1"}), slices.Concat(common, []string{"--log-format=json", "--log=" + log, "state", "c1"})},
		{"podman start", []string{"start", "c1"}, []string{"start", "c1"}},
		{"podman kill", []string{"kill", "c1", "15"}, []string{"kill", "c1", "15"}},
		{"podman kill of all", []string{"kill", "--all", "c1", "9"}, []string{"kill", "--all", "c1", "9"}},
		{"podman delete", []string{"delete", "--force", "c1"}, []string{"delete", "--force", "c1"}},
		{"the clear-up after the refused flag", []string{"--TESTONLY-unsafe-nonroot=true", "delete", "--force", "c1"}, []string{"delete", "--force", "c1"}},
		{"podman pause", []string{"pause", "c1"}, []string{"pause", "c1"}},
		{"podman resume", []string{"resume", "c1"}, []string{"resume", "c1"}},
		{"podman update", []string{"update", "--resources", "/r", "c1"}, []string{"update", "--resources=/r", "c1"}},
		{"podman checkpoint", []string{"checkpoint", "--image-path", "/i", "--work-path", "/w", "--leave-running", "--tcp-established", "--file-locks", "c1"}, []string{"checkpoint", "--image-path=/i", "--work-path=/w", "--leave-running", "c1"}},
		{"containerd kill", slices.Concat(shim2, []string{"kill", "--all", "c1", "9"}), slices.Concat(common, []string{"--log=" + log, "--log-format=json", "kill", "--all", "c1", "9"})},
		{"containerd ps", []string{"ps", "--format", "json", "c1"}, []string{"ps", "--format=json", "c1"}},
		{"containerd events", []string{"events", "--interval=5s", "c1"}, []string{"events", "--interval=5", "c1"}},
		{"containerd stats", []string{"events", "--stats", "c1"}, []string{"events", "--stats", "c1"}},
		{"containerd list", []string{"--rootless=true", "list", "--format=json"}, []string{"list", "--format=json"}},
		{"buildah kill", []string{"kill", "buildah-buildah1", "KILL"}, []string{"kill", "buildah-buildah1", "KILL"}},
		{"runc's short flags", []string{"delete", "-f", "c1"}, []string{"delete", "--force", "c1"}},
		{"a quiet list", []string{"list", "-q"}, []string{"list", "--quiet"}},
		{"an id that is a verb", []string{"state", "create"}, []string{"state", "create"}},
		{"ids with other characters", []string{"state", "a+b.c_d-e"}, []string{"state", "a+b.c_d-e"}},
		{"an exec into what is not ours", []string{"exec", "-t", "-e", "A=b c", "-d", "c1", "sh", "-c", "a\nb", ""}, []string{"exec", "--env=A=b c", "--detach", "c1", "sh", "-c", "a\nb", ""}},
		{"a verb of runsc's own", []string{"symbolize", "-x"}, []string{"symbolize", "-x"}},
		{"spec", []string{"spec", "--bundle", "/b"}, []string{"spec", "--bundle=/b"}},
		{"help of a verb", []string{"--help", "state"}, []string{"--help", "state"}},
		{"a missing id is runsc's to tell", []string{"state"}, []string{"state"}},
		{"a bad id is runsc's to tell", []string{"state", "../x"}, []string{"state", "../x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p.t = t
			o := p.run(tt.args...)
			if o.rec == nil {
				t.Fatalf("runsc was not started: exit %d, %s", o.code, o.err)
			}
			if want := append([]string{"runsc"}, tt.want...); !slices.Equal(o.rec.Args, want) {
				t.Errorf("argv %q\nwant %q", o.rec.Args, want)
			}
			if !slices.Equal(o.rec.Env, p.env()) {
				t.Errorf("environment %q, want %q", o.rec.Env, p.env())
			}
			// The user namespace's pid is the one outside: there is no pid namespace.
			if o.rec.PID != o.pid || o.rec.Cwd != p.bundle {
				t.Errorf("pid %d in %s, want %d in %s", o.rec.PID, o.rec.Cwd, o.pid, p.bundle)
			}
			if o.code != 0 || o.out != "out of runsc\n" || o.err != "err of runsc\n" {
				t.Errorf("exit %d, stdout %q, stderr %q", o.code, o.out, o.err)
			}
		})
	}
	p.t = t
	if entries, err := os.ReadDir(p.data); err != nil || len(entries) > 0 {
		t.Errorf("a pass-through made %v, %v", entries, err)
	}
	if left := p.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestPassThroughKeepsDescriptorsInputAndExitCode(t *testing.T) {
	p := newPlace(t)
	p.write(filepath.Join(filepath.Dir(p.low), "code"), "137")
	for _, verb := range [][]string{{"update", "--resources=-", "c1"}, {"state", "c1"}, {"create", "--bundle", p.bundle, "c1"}, {"run", "--bundle", p.bundle, "c2"}} {
		t.Run(verb[0], func(t *testing.T) {
			p.t = t
			p.idle() // each command has a mount namespace of its own, unlike an engine's
			r, w, err := os.Pipe()
			p.must(err)
			defer func() { _ = r.Close() }()
			cmd := p.command(verb...)
			cmd.Stdin = strings.NewReader(`{"memory":{}}`)
			cmd.ExtraFiles = []*os.File{w, nil, w} // 3 and 5, as an engine's pipes
			o := p.finish(cmd)
			_ = w.Close()
			if o.rec == nil || o.code != 137 || o.out != "out of runsc\n" || !strings.HasSuffix(o.err, "err of runsc\n") {
				t.Fatalf("exit %d, stdout %q, stderr %q", o.code, o.out, o.err)
			}
			if o.rec.In != `{"memory":{}}` {
				t.Errorf("standard input %q", o.rec.In)
			}
			link := o.rec.FDs[3]
			if len(o.rec.FDs) != 5 || !strings.HasPrefix(link, "pipe:") || o.rec.FDs[5] != link {
				t.Errorf("descriptors %v", o.rec.FDs)
			}
			if o.rec.PID != o.pid || !slices.Equal(o.rec.Env, p.env()) {
				t.Errorf("pid %d, want %d; environment %q", o.rec.PID, o.pid, o.rec.Env)
			}
		})
	}
	p.t = t
	if left := p.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// What an engine's clean-up gives its runtime, and less.
func TestNearEmptyEnvironment(t *testing.T) {
	p := newPlace(t)
	p.config("") // HOME is not told: the configuration cannot be found, runsc is searched
	if _, err := exec.LookPath("/usr/local/bin/runsc"); err != nil {
		t.Skip("needs a runsc in a fixed directory")
	}
	for name, env := range map[string][]string{
		"nothing":                 {},
		"the runtime directory":   {"XDG_RUNTIME_DIR=" + p.xdg},
		"another user's home":     {"XDG_RUNTIME_DIR=" + p.xdg, "HOME=/root"},
		"a relative home":         {"XDG_RUNTIME_DIR=" + p.xdg, "HOME=here"},
		"a home that is a file":   {"XDG_RUNTIME_DIR=" + p.xdg, "HOME=/etc/passwd"},
		"a runtime dir not there": {"XDG_RUNTIME_DIR=" + p.dir + "/no", "HOME=" + p.home},
	} {
		t.Run(name, func(t *testing.T) {
			p.t = t
			cmd := p.command("--root", p.dir+"/root", "state", "no-such")
			cmd.Env = env
			o := p.finish(cmd)
			// The real runsc's own word, whichever its release.
			if o.code == 0 || !strings.Contains(o.err, "loading") {
				if o.rec == nil {
					t.Errorf("exit %d, %q", o.code, o.err)
				}
			}
		})
	}
	// Where there is no runtime directory at all, one is made in /tmp.
	_ = os.RemoveAll("/tmp/lazaret-runtime-" + strconv.Itoa(p.uid))
}

// Whoever takes the runtime directory's name cannot keep a container from its end.
func TestSquattedRuntimeDirectory(t *testing.T) {
	p := newPlace(t)
	squat := "/tmp/lazaret-runtime-" + strconv.Itoa(p.uid)
	if _, err := os.Lstat("/run/user/" + strconv.Itoa(p.uid)); err == nil {
		t.Skip("this user has a runtime directory that cannot be taken away")
	}
	if err := os.Symlink("/etc", squat); err != nil {
		t.Skip(err)
	}
	defer func() { p.must(os.Remove(squat)) }()
	for verb, reached := range map[string]bool{"delete": true, "kill": true, "state": true, "start": false, "exec": false} {
		cmd := p.command(verb, "c1", "9")
		cmd.Env = []string{"HOME=" + p.home}
		o := p.finish(cmd)
		if (o.rec != nil) != reached {
			t.Errorf("%s: exit %d, %s", verb, o.code, o.err)
		}
		if !reached && (o.code != 1 || !strings.Contains(o.err, squat)) {
			t.Errorf("%s: exit %d, %s", verb, o.code, o.err)
		}
	}
	o := p.finish(func() *exec.Cmd {
		cmd := p.command("create", "--bundle", p.bundle, "c1")
		cmd.Env = []string{"HOME=" + p.home}
		return cmd
	}())
	if o.code != 1 || o.rec != nil || !strings.Contains(o.err, "set XDG_RUNTIME_DIR") {
		t.Errorf("create: exit %d, %s", o.code, o.err)
	}
}

// state writes what create would have kept of a container.
func (p *place) state(id string, change func(*containerstate.State)) string {
	p.t.Helper()
	st := containerstate.State{
		Version: containerstate.Version, ID: id, Domain: domain.New("default", p.ws, p.data), ControlDir: p.control,
		Runsc: p.low, RunscFlags: []string{"--ignore-cgroups"}, RunDir: p.runtime + "/domains/x", Bundle: p.bundle,
	}
	if change != nil {
		change(&st)
	}
	dir := containerstate.Dir(p.runtime, id)
	p.must(containerstate.WriteState(dir, st))
	// A process stands for its sandbox.
	box := exec.CommandContext(p.t.Context(), "sleep", "60")
	p.must(box.Start())
	p.t.Cleanup(func() { _ = box.Process.Kill(); _ = box.Wait() })
	start, err := proc.StartTime(box.Process.Pid)
	p.must(err)
	p.must(containerstate.WriteLease(dir, containerstate.Lease{
		Version: containerstate.Version, Domain: st.Domain.Hash, Attached: true, PID: box.Process.Pid, StartTime: start, PIDFile: p.dir + "/pid-" + id,
	}))
	p.own(p.runtime)
	p.end = func() { _ = box.Process.Kill(); _ = box.Wait() }
	return dir
}

func TestLaterCallsGetTheContainersOwnSettings(t *testing.T) {
	p := newPlace(t)
	p.state("c1", nil)
	p.config("nonsense = 1") // broken since
	for verb, want := range map[string]string{
		"start c1": "--ignore-cgroups start c1", "delete --force c1": "--ignore-cgroups delete --force c1",
		"--ignore-cgroups=false kill c1 9": "--ignore-cgroups=false kill c1 9", // the caller's own word counts
	} {
		o := p.run(strings.Fields(verb)...)
		if o.rec == nil || strings.Join(o.rec.Args[1:], " ") != want {
			t.Errorf("%s: %+v, %s", verb, o.rec, o.err)
		}
	}
	if o := p.run("update", "--memory=1m", "c1"); o.code != 1 || o.rec != nil || !strings.Contains(o.err, "without a cgroup") {
		t.Errorf("update: exit %d, %s", o.code, o.err)
	}
}

func TestDamagedState(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "cut": `{"version":1,`, "another version": `{"version":99}`, "not an object": `[]`, "binary": "\x00\xff",
		"a relative runsc": `{"version":1,"runsc":"runsc","domain":{"hash":"0123456789ab"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			dir := p.state("c1", nil)
			p.write(dir+"/state.json", text)
			for verb, reached := range map[string]bool{"state": true, "kill": true, "delete": true, "start": false, "update": false, "exec": false} {
				o := p.run(verb, "c1")
				if (o.rec != nil) != reached || !reached && (o.code != 1 || strings.Count(o.err, "\n") != 1) {
					t.Errorf("%s: exit %d, reached %v: %s", verb, o.code, o.rec != nil, o.err)
				}
			}
		})
	}
}

func TestExecIsASession(t *testing.T) {
	p := newPlace(t)
	p.state("c1", nil)
	process := p.dir + "/process.json"
	p.write(process, `{"args":["sh"],"cwd":"/","env":["A=b","LAZARET_SESSION_ID=forged","TERM=xterm"],"user":{"uid":0,"gid":0},"zz":1.50}`)
	o := p.run("exec", "--process", process, "--pid-file", p.dir+"/pid", "--detach", "c1")
	if o.rec == nil {
		t.Fatalf("exit %d, %s", o.code, o.err)
	}
	want := []string{"runsc", "--ignore-cgroups", "exec", "--process=" + process, "--pid-file=" + p.dir + "/pid", "--detach", "c1"}
	if !slices.Equal(o.rec.Args, want) || o.rec.PID != o.pid || !slices.Equal(o.rec.Env, p.env()) {
		t.Errorf("argv %q pid %d env %q", o.rec.Args, o.rec.PID, o.rec.Env)
	}
	extra := 0
	for fd, link := range o.rec.FDs {
		switch {
		case fd <= 2:
		case fd >= sessionFD && strings.HasPrefix(link, "socket:"):
			extra++
		default:
			t.Errorf("descriptor %d is %s", fd, link)
		}
	}
	if extra != 1 {
		t.Errorf("descriptors %v, want one session", o.rec.FDs)
	}
	data, err := os.ReadFile(process)
	p.must(err)
	var proc struct{ Env []string }
	p.must(json.Unmarshal(data, &proc))
	sessions := slices.DeleteFunc(slices.Clone(proc.Env), func(e string) bool { return !strings.HasPrefix(e, "LAZARET_SESSION_ID=") })
	if len(sessions) != 1 || strings.Contains(sessions[0], "forged") || !bytes.Contains(data, []byte(`"zz":1.50`)) {
		t.Errorf("process file %s", data)
	}

	o = p.run("exec", "-e", "X=y", "c1", "sh", "-c", "exit")
	if o.rec == nil || !slices.Contains(o.rec.Args, "--env=X=y") || !slices.ContainsFunc(o.rec.Args, func(a string) bool { return strings.HasPrefix(a, "--env=LAZARET_SESSION_ID=") }) {
		t.Errorf("%+v: %s", o.rec, o.err)
	}
	// A process file that is not there is no session either.
	if o := p.run("exec", "--process", p.dir+"/no", "c1"); o.code != 1 || o.rec != nil || strings.Count(o.err, "\n") != 1 {
		t.Errorf("exit %d, %s", o.code, o.err)
	}
	p.must(unix.Mkfifo(p.dir+"/fifo", 0o666))
	p.own(p.dir + "/fifo")
	if o := p.run("exec", "--process", p.dir+"/fifo", "c1"); o.code != 1 || o.rec != nil || !strings.Contains(o.err, "not a plain file") {
		t.Errorf("exit %d, %s", o.code, o.err)
	}
	p.end()
	if left := p.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// runsc is to say that the container has ended; nobody is started to hear it.
func TestExecAfterTheSandboxsEnd(t *testing.T) {
	p := newPlace(t)
	p.state("c1", nil)
	p.end()
	o := p.run("exec", "c1", "sh")
	if o.rec == nil || !slices.Equal(o.rec.Args, []string{"runsc", "--ignore-cgroups", "exec", "c1", "sh"}) || len(o.rec.FDs) != 3 {
		t.Errorf("%+v: %s", o.rec, o.err)
	}
	if left, err := os.ReadDir(p.data); err != nil || len(left) > 0 {
		t.Errorf("a coordinator was started: %v, %v", left, err)
	}
}

// runsc starts itself once more to detach, without any word that has "detach" in it.
func TestWordsThatRunscWouldDrop(t *testing.T) {
	p := newPlace(t)
	for _, tt := range []struct {
		args    string
		refused bool
	}{
		{"exec --detach c1 tmux detach", true},
		{"exec -d my-detached-one sh", true},
		{"exec -d -e MODE=detached c1 sh", true},
		{"--root /run/detach exec -d c1 sh", true},
		{"exec --process /tmp/detach.json -d c1", true},
		{"exec --detach=false c1 tmux detach", false},
		{"exec c1 tmux detach", false},
		{"exec -d c1 sh", false},
	} {
		o := p.run(strings.Fields(tt.args)...)
		if (o.rec == nil) != tt.refused || tt.refused && (o.code != 1 || !strings.Contains(o.err, "--process file")) {
			t.Errorf("%s: exit %d, %s", tt.args, o.code, o.err)
		}
	}
}

func TestCreateBecomesRunsc(t *testing.T) {
	p := newPlace(t)
	o := p.run("--log", p.log, "--log-format", "json", "create", "--bundle", p.bundle, "--pid-file", p.dir+"/pid", "--no-new-keyring", "c1")
	if o.rec == nil {
		t.Fatalf("exit %d, %s", o.code, o.err)
	}
	want := []string{"runsc", "--log=" + p.log, "--log-format=json", "--ignore-cgroups", "--overlay2=none", "--host-uds=open", "create", "--bundle=" + p.bundle, "--pid-file=" + p.dir + "/pid", "c1"}
	if !slices.Equal(o.rec.Args, want) {
		t.Errorf("argv %q\nwant %q", o.rec.Args, want)
	}
	if len(o.rec.FDs) != 3 {
		t.Errorf("descriptors %v: Lazaret's own must not reach runsc", o.rec.FDs)
	}
	if o.code != 0 || o.err != "err of runsc\n" {
		t.Errorf("exit %d, stderr %q", o.code, o.err)
	}
	if _, err := os.Stat(p.log); err == nil {
		t.Error("a log without an error")
	}
	if left := p.left(); len(left) > 0 {
		t.Errorf("left after a create that made no sandbox: %q", left)
	}
}

// An engine that restarts a container may hand the rewritten bundle in again.
func TestCreateOfTheSameBundleAgain(t *testing.T) {
	p := newPlace(t)
	p.write(p.ws+"/lazaret.toml", "") // shown read-only
	session := regexp.MustCompile(`"LAZARET_SESSION_(ID|ANCHOR)=[^"]+"`)
	var first []byte
	for range 3 {
		if o := p.run("create", "--bundle", p.bundle, "c1"); o.rec == nil {
			t.Fatalf("exit %d, %s", o.code, o.err)
		}
		p.idle() // what was shown of the domain is gone
		now, err := os.ReadFile(p.bundle + "/config.json")
		p.must(err)
		now = session.ReplaceAll(now, nil) // each start has its own
		if first == nil {
			first = now
		}
		if !bytes.Equal(first, now) {
			t.Errorf("config.json became %s\nfrom %s", now, first)
		}
	}
	p.must(os.Remove(p.ws + "/lazaret.toml"))
	if o := p.run("create", "--bundle", p.bundle, "c1"); o.rec == nil {
		t.Errorf("without what was shown: exit %d, %s", o.code, o.err)
	}
}

// breakage is one way in which a create fails before runsc is reached.
type breakage struct {
	name   string
	make   func(p *place)
	say    string // part of the message
	args   func(p *place) []string
	mend   func(p *place) // for the retry; nil rewrites configuration and config.json
	failed func(p *place) // more to look at
}

func TestCreateThatFails(t *testing.T) {
	json0 := func(p *place, text string) { p.write(p.bundle+"/config.json", text) }
	replace := func(p *place, f func(path string) error) {
		path := p.bundle + "/config.json"
		p.must(os.Remove(path))
		p.must(f(path))
	}
	tests := []breakage{
		{name: "no bundle", args: func(p *place) []string { return []string{"create", "--bundle", p.dir + "/no", "c1"} }, make: func(*place) {}, say: "no such file"},
		{name: "no config.json", make: func(p *place) { p.must(os.Remove(p.bundle + "/config.json")) }, say: "has no config.json"},
		{name: "an empty config.json", make: func(p *place) { json0(p, "") }, say: "config.json: not valid JSON"},
		{name: "a cut config.json", make: func(p *place) { json0(p, `{"ociVersion":"1.0`) }, say: "config.json: not valid JSON at byte"},
		{name: "config.json is another thing", make: func(p *place) { json0(p, "<html>") }, say: "config.json: not valid JSON"},
		{name: "two objects", make: func(p *place) { json0(p, `{}{}`) }, say: "config.json: not valid JSON"},
		{name: "a member twice", make: func(p *place) { json0(p, `{"process":{"args":["sh"]},"process":{"args":["id"]}}`) }, say: "twice"},
		{name: "letter case", make: func(p *place) { json0(p, `{"Process":{"args":["sh"]}}`) }, say: "fold case"},
		{name: "wrong types", make: func(p *place) { json0(p, `{"process":{"args":"sh"}}`) }, say: "config.json: process.args"},
		{name: "a number", make: func(p *place) { json0(p, `17`) }, say: "is not a JSON object"},
		{name: "not UTF-8", make: func(p *place) { json0(p, "{\"a\":\"\xff\"}") }, say: "not UTF-8"},
		{
			name: "a directory", make: func(p *place) { replace(p, func(f string) error { return os.Mkdir(f, 0o755) }) }, say: "not a regular file",
			mend: func(p *place) { p.must(os.Remove(p.bundle + "/config.json")); p.spec(nil) },
		},
		{
			name: "a FIFO", make: func(p *place) { replace(p, func(f string) error { return unix.Mkfifo(f, 0o666) }) }, say: "not a regular file",
			mend: func(p *place) { p.must(os.Remove(p.bundle + "/config.json")); p.spec(nil) },
		},
		{
			name: "a symbolic link", make: func(p *place) { replace(p, func(f string) error { return os.Symlink("/etc/passwd", f) }) }, say: "is a symbolic link",
			mend: func(p *place) { p.must(os.Remove(p.bundle + "/config.json")); p.spec(nil) },
		},
		{name: "20 MB", make: func(p *place) { json0(p, `{"a":"`+strings.Repeat("x", 20<<20)+`"}`) }, say: "larger than"},
		{name: "deeply nested", make: func(p *place) { json0(p, strings.Repeat(`[`, 1<<20)) }, say: "not valid JSON"},
		{name: "no process", make: func(p *place) {
			json0(p, `{"ociVersion":"1.0.2","root":{"path":"rootfs"},"linux":{"namespaces":[{"type":"network"}]}}`)
		}, say: "no process"},
		{name: "a missing command", make: func(p *place) { p.spec(func(s *specs.Spec) { s.Process.Args = []string{"/no/such"} }) }, say: `exec: "/no/such": stat /no/such: no such file or directory`},
		{name: "a command that is a directory", make: func(p *place) { p.spec(func(s *specs.Spec) { s.Process.Args = []string{"/bin"} }) }, say: "permission denied"},
		{name: "an unknown profile", make: func(p *place) {
			p.spec(func(s *specs.Spec) { s.Process.Env = append(s.Process.Env, "LAZARET_PROFILE=nope") })
		}, say: "default"},
		{name: "a profile with terminal codes", make: func(p *place) {
			p.spec(func(s *specs.Spec) {
				s.Annotations = map[string]string{"dev.lazaret.profile": "a\x1b[2J\u202eb\nc\u009b"}
			})
		}, say: "profile"},
		{name: "a misspelt key", make: func(p *place) { p.config("[profiles.default]\nmaskss = []\n") }, say: "masks"},
		{name: "a flag that this runsc does not have", make: func(p *place) { p.config("args = [\"--no-such-flag=1\"]\n") }, say: `has no flag "--no-such-flag=1"`},
		{name: "broken TOML", make: func(p *place) { p.config("[[[") }, say: "config.toml:"},
		{
			name: "an unreadable configuration", make: func(p *place) { p.foreign(p.home+"/.config/lazaret/config.toml", 0o600) }, say: "permission denied",
			mend: func(p *place) { p.mine(p.home+"/.config/lazaret/config.toml", 0o644) },
		},
		{name: "the configuration is a directory", make: func(p *place) {
			p.must(os.Remove(p.home + "/.config/lazaret/config.toml"))
			p.must(os.Mkdir(p.home+"/.config/lazaret/config.toml", 0o755)) //nolint:gosec // another uid's
		}, say: "config.toml", mend: func(p *place) { p.must(os.Remove(p.home + "/.config/lazaret/config.toml")); p.config("") }},
		{name: "--config is not there", args: func(p *place) []string { return []string{"--config", p.dir + "/no.toml", "create", "c1"} }, make: func(*place) {}, say: "no.toml"},
		{name: "runsc is missing", make: func(p *place) { p.must(os.Rename(p.low, p.low+"x")) }, say: "not found", mend: func(p *place) { p.must(os.Rename(p.low+"x", p.low)) }},
		{name: "runsc is not executable", make: func(p *place) { p.fakeLow("#!/bin/sh\n", 0o644) }, say: "not executable", mend: (*place).realLow},
		{name: "runsc is world-writable", make: func(p *place) { p.fakeLow("#!/bin/sh\n", 0o777) }, say: "could be changed by other users", mend: (*place).realLow},
		{name: "runsc is another program", make: func(p *place) { p.fakeLow("#!/bin/sh\necho runc version 1.1\n", 0o755) }, say: "does not answer as runsc does", mend: (*place).realLow},
		{name: "runsc is no program", make: func(p *place) { p.fakeLow("text", 0o755) }, say: "does not answer as runsc does", mend: (*place).realLow},
		{name: "runsc prints without end", make: func(p *place) { p.fakeLow("#!/bin/sh\nexec yes\n", 0o755) }, say: "does not answer as runsc does", mend: (*place).realLow},
		{name: "runsc is lazaret-runtime", make: func(p *place) {
			p.must(os.Remove(p.low))
			p.must(os.Symlink(p.bin+"/lazaret-runtime", p.low))
		}, say: "itself", mend: (*place).realLow},
		{
			name: "no hook program", make: func(p *place) { p.must(os.Rename(p.bin+"/lazaret-hook", p.bin+"/x")) }, say: "lazaret-hook is not installed",
			mend: func(p *place) { p.must(os.Rename(p.bin+"/x", p.bin+"/lazaret-hook")) },
		},
		{
			name: "no coordinator program", make: func(p *place) { p.must(os.Rename(p.bin+"/lazaret-coordinator", p.bin+"/x")) }, say: "lazaret-coordinator is not installed",
			mend: func(p *place) { p.must(os.Rename(p.bin+"/x", p.bin+"/lazaret-coordinator")) },
		},
		{
			name: "no escalation client", make: func(p *place) { p.must(os.Rename(p.bin+"/lazaret-escalate", p.bin+"/x")) }, say: "lazaret-escalate is not installed",
			mend: func(p *place) { p.must(os.Rename(p.bin+"/x", p.bin+"/lazaret-escalate")) },
		},
		{name: "a coordinator that fails at once", make: func(p *place) {
			p.must(os.Rename(p.bin+"/lazaret-coordinator", p.bin+"/x"))
			p.write(p.bin+"/lazaret-coordinator", "#!/bin/sh\necho the reason >&2; exit 3\n")
			p.must(os.Chmod(p.bin+"/lazaret-coordinator", 0o755)) //nolint:gosec // a program
		}, say: "the reason", mend: func(p *place) { p.must(os.Rename(p.bin+"/x", p.bin+"/lazaret-coordinator")) }},
		{
			name: "data_root is not writable", make: func(p *place) { p.foreign(p.data, 0o755) }, say: "permission denied",
			mend: func(p *place) { p.mine(p.data, 0o700) },
		},
		{
			name: "data_root is a file", make: func(p *place) { p.must(os.Remove(p.data)); p.write(p.data, "") }, say: "not a directory",
			mend: func(p *place) { p.must(os.Remove(p.data)); p.must(os.Mkdir(p.data, 0o700)); p.own(p.data) },
		},
		{name: "runsc has a container of that id", make: func(p *place) {
			p.must(os.Mkdir(p.xdg+"/runsc", 0o700))
			p.write(p.xdg+"/runsc/c1_sandbox:c1.state", "{}")
			p.own(p.xdg)
		}, say: "container with given ID already exists: c1", mend: func(p *place) { p.must(os.RemoveAll(p.xdg + "/runsc")) }},
		{name: "runsc has one of that id, in another sandbox, below --root", args: func(p *place) []string {
			return []string{"--root", "rootfs/[r]", "create", "c1"}
		}, make: func(p *place) {
			p.must(os.Mkdir(p.bundle+"/rootfs/[r]", 0o755)) //nolint:gosec // another uid's
			p.write(p.bundle+"/rootfs/[r]/c1_sandbox:pod.state", "{}")
		}, say: "container with given ID already exists: c1"},
		{name: "the runtime directory is not writable", make: func(p *place) {
			p.must(os.Mkdir(p.runtime, 0o700))
			p.foreign(p.runtime, 0o755)
		}, say: "permission denied", mend: func(p *place) { p.mine(p.runtime, 0o700) }},
		{
			name: "control_dir is not writable", make: func(p *place) { p.foreign(p.control, 0o755) }, say: "open lock",
			mend: func(p *place) { p.mine(p.control, 0o700) },
		},
		{name: "somebody else has the control socket", make: func(p *place) {
			socket := domain.New("default", p.ws, p.data).SocketPath(p.control)
			l, err := net.Listen("unix", socket)
			p.must(err)
			p.t.Cleanup(func() { _ = l.Close() })
			p.foreign(socket, 0o600)
		}, say: "somebody took the name", failed: func(p *place) {
			p.must(os.Remove(domain.New("default", p.ws, p.data).SocketPath(p.control)))
		}},
		{name: "somebody else has the lock", make: func(p *place) {
			lock := domain.New("default", p.ws, p.data).LockPath(p.control)
			p.write(lock, "")
			p.foreign(lock, 0o644)
		}, say: "another user may have taken the name", failed: func(p *place) {
			p.must(os.Remove(domain.New("default", p.ws, p.data).LockPath(p.control)))
		}},
		{name: "no root file system", make: func(p *place) { p.spec(func(s *specs.Spec) { s.Root.Path = "no" }) }, say: "root file system of the bundle: stat "},
		{name: "no root at all", make: func(p *place) { p.spec(func(s *specs.Spec) { s.Root = nil }) }, say: "no root.path"},
		{name: "the root file system is a file", make: func(p *place) { p.spec(func(s *specs.Spec) { s.Root.Path = "config.json" }) }, say: "is not a directory"},
		{name: "the root file system is below a file", make: func(p *place) { p.spec(func(s *specs.Spec) { s.Root.Path = "config.json/x" }) }, say: "not a directory"},
		{name: "a mount that runsc leaves out", make: func(p *place) {
			p.spec(func(s *specs.Spec) {
				s.Mounts = append(s.Mounts, specs.Mount{Destination: "/x", Type: "overlay", Source: p.ws, Options: []string{"lowerdir=" + p.ws}})
			})
		}, say: "no mounts of type overlay"},
		{name: "a user namespace without the developer, with an old runsc", make: func(p *place) {
			p.spec(func(s *specs.Spec) {
				s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
				s.Linux.UIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: 1, Size: 1024}}
			})
		}, say: "use --userns=keep-id"},
		{name: "a mount without its source", make: func(p *place) { p.spec(func(s *specs.Spec) { s.Mounts = append(s.Mounts, bind("no", "/x")) }) }, say: "source of the mount at /x: stat "},
		{name: "the workspace is not there", make: func(p *place) {
			p.spec(func(s *specs.Spec) { s.Mounts[0].Source = p.dir + "/gone" })
		}, say: "no such file"},
		{name: "the workspace cannot be entered", make: func(p *place) {
			p.must(os.MkdirAll(p.dir+"/closed/ws", 0o700))
			p.spec(func(s *specs.Spec) { s.Mounts[0].Source = p.dir + "/closed/ws" })
			p.foreign(p.dir+"/closed", 0o700)
		}, say: "permission denied"},
		{name: "the workspace is the root", make: func(p *place) { p.spec(func(s *specs.Spec) { s.Mounts[0].Source = "/" }) }, say: "too broad"},
		{name: "the workspace is the home", make: func(p *place) { p.spec(func(s *specs.Spec) { s.Mounts[0].Source = p.home }) }, say: "too broad"},
		{name: "an id that leads elsewhere", args: func(*place) []string { return []string{"create", "../../x"} }, make: func(*place) {}, say: "is not a container id"},
		{name: "no id", args: func(*place) []string { return []string{"create"} }, make: func(*place) {}, say: "is not a container id"},
		{name: "an endless id", args: func(*place) []string { return []string{"create", strings.Repeat("x", 100000)} }, make: func(*place) {}, say: "is not a container id"},
		{name: "descriptors to hand over", args: func(*place) []string { return []string{"create", "--preserve-fds", "1", "c1"} }, make: func(*place) {}, say: "not supported by lazaret: create --preserve-fds"},
		{name: "a flag without its value", args: func(*place) []string { return []string{"create", "--bundle"} }, make: func(*place) {}, say: "flag needs a value"},
		{name: "the flag that takes the walls down", args: func(*place) []string { return []string{"--TESTONLY-unsafe-nonroot=true", "create", "c1"} }, make: func(*place) {}, say: "TESTONLY-unsafe-nonroot"},
		{name: "a mount over Lazaret's own directory", make: func(p *place) {
			p.spec(func(s *specs.Spec) { s.Mounts = append(s.Mounts, bind(p.ws, "/run/lazaret/certs")) })
		}, say: "belongs to Lazaret"},
		{
			name: "a read-only path that is a link", make: func(p *place) { p.must(os.Symlink("/etc", p.ws+"/lazaret.toml")) }, say: "lazaret.toml",
			failed: func(p *place) { p.must(os.Remove(p.ws + "/lazaret.toml")) },
		},
		{name: "a directory that holds the workspace", make: func(p *place) {
			p.spec(func(s *specs.Spec) { s.Mounts = append(s.Mounts, bind(p.dir, "/x")) })
		}, say: "way around its guard"},
		{name: "another branch", make: func(p *place) { p.config("[profiles.default]\ngit = \"branch\"\n") }, say: `git = "branch"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			tt.make(p)
			before := p.regular(p.bundle + "/config.json")
			args := []string{"create", "--bundle", p.bundle, "c1"}
			if tt.args != nil {
				args = tt.args(p)
			}
			began := time.Now()
			o := p.run(append([]string{"--log", p.log, "--log-format=json"}, args...)...)
			if took := time.Since(began); took > time.Minute {
				t.Errorf("took %s", took)
			}
			if o.rec != nil {
				t.Fatalf("runsc was started: %q", o.rec.Args)
			}
			if o.code != 1 || o.out != "" {
				t.Errorf("exit %d, stdout %q", o.code, o.out)
			}
			if strings.Count(o.err, "\n") != 1 || !strings.HasPrefix(o.err, "lazaret: ") || !strings.Contains(o.err, tt.say) || strings.Contains(o.err, "goroutine") || len(o.err) > 3*maxLine {
				t.Errorf("stderr %.2000q, want one line with %q", o.err, tt.say)
			}
			if strings.ContainsFunc(strings.TrimSuffix(o.err, "\n"), func(r rune) bool { return r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e }) {
				t.Errorf("stderr acts on a terminal: %q", o.err)
			}
			if l := p.logged(); l["level"] != "error" || "lazaret: "+l["msg"]+"\n" != o.err || l["time"] == "" {
				t.Errorf("log %q", l)
			}
			if after := p.regular(p.bundle + "/config.json"); !bytes.Equal(before, after) {
				t.Errorf("config.json became %s", after)
			}
			if tt.failed != nil {
				tt.failed(p)
			}
			if left := p.left(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			// delete of what was never made reaches runsc, whatever is broken.
			if tt.mend != nil {
				tt.mend(p)
			} else {
				p.config("")
				p.spec(nil)
			}
			for range 2 {
				if o := p.run("delete", "--force", "c1"); o.rec == nil || o.code != 0 {
					t.Errorf("delete: exit %d, %s", o.code, o.err)
				}
			}
			if o := p.run("create", "--bundle", p.bundle, "c1"); o.rec == nil || o.code != 0 {
				t.Errorf("retry: exit %d, %s", o.code, o.err)
			}
		})
	}
}

// regular is a plain file's content, and nil of anything else.
func (p *place) regular(path string) []byte {
	p.t.Helper()
	if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() {
		return nil
	}
	data, err := os.ReadFile(path)
	p.must(err)
	return data
}

// fakeLow puts another program in runsc's place.
func (p *place) fakeLow(text string, mode os.FileMode) {
	p.t.Helper()
	p.must(os.Remove(p.low))
	p.write(p.low, text)
	p.must(os.Chmod(p.low, mode))
}

func (p *place) realLow() {
	p.t.Helper()
	p.must(os.Remove(p.low))
	p.must(os.Link(filepath.Join(programs.dir, "fake"), p.low))
}

// A broken configuration must not keep anybody from looking at a container or
// ending it.
func TestBrokenConfigurationAndLaterVerbs(t *testing.T) {
	p := newPlace(t)
	if _, err := os.Stat("/usr/local/bin/runsc"); err != nil {
		t.Skip("needs a runsc in a fixed directory")
	}
	p.config("[[[")
	for _, verb := range []string{"state", "kill", "delete"} {
		if o := p.run("--root", p.dir+"/r", verb, "c1"); strings.Contains(o.err, "config.toml") || strings.Contains(o.err, "lazaret:") {
			t.Errorf("%s: exit %d, %s", verb, o.code, o.err)
		}
	}
}

func TestRunscThatIsLazaretItself(t *testing.T) {
	p := newPlace(t)
	p.must(os.Remove(p.low))
	p.must(os.Symlink(p.bin+"/lazaret-runtime", p.low))
	for _, args := range [][]string{{"state", "c1"}, {"list"}, {"--version"}, {"delete", "c1"}, {"create", "c1"}} {
		cmd := p.command(args...)
		o := p.finish(cmd)
		if !strings.Contains(o.err+o.out, "itself") {
			t.Errorf("%q: exit %d, %s%s", args, o.code, o.out, o.err)
		}
	}
}

// An image's variables are the user's, as far as such a bundle tells.
func TestProfileThatMayBeTheImages(t *testing.T) {
	for _, tt := range []struct {
		name, bundle, value, annotation string
		refused                         bool
	}{
		{"docker", "io.containerd.runtime.v2.task/moby/0123", "loose", "", true},
		{"containerd", "io.containerd.runtime.v2.task/k8s.io/0123", "loose", "", true},
		{"buildah", "tmp/buildah2719", "loose", "", true},
		{"docker with the default", "io.containerd.runtime.v2.task/moby/0123", "default", "", false},
		{"docker with an annotation", "io.containerd.runtime.v2.task/moby/0123", "loose", "default", false},
		{"docker with nothing", "io.containerd.runtime.v2.task/moby/0123", "", "", false},
		{"a bundle of one's own", "here/bundle", "loose", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			p.config("[profiles.loose.network]\nmode = \"open\"\n")
			p.spec(func(s *specs.Spec) {
				if tt.value != "" {
					s.Process.Env = append(s.Process.Env, "LAZARET_PROFILE="+tt.value)
				}
				if tt.annotation != "" {
					s.Annotations = map[string]string{profileAnnotation: tt.annotation}
				}
			})
			bundle := filepath.Join(p.dir, tt.bundle)
			p.must(os.MkdirAll(filepath.Dir(bundle), 0o755)) //nolint:gosec // another uid's
			p.must(os.Rename(p.bundle, bundle))
			p.bundle = bundle
			p.own(p.dir)
			o := p.run("create", "--bundle", bundle, "c1")
			if tt.refused {
				if o.rec != nil || o.code != 1 || !strings.Contains(o.err, "dev.lazaret.profile") {
					t.Errorf("exit %d, %s", o.code, o.err)
				}
				return
			}
			if o.rec == nil {
				t.Fatalf("exit %d, %s", o.code, o.err)
			}
			want := tt.value
			if tt.annotation != "" {
				want = tt.annotation
			}
			if want == "" {
				want = "default"
			}
			data, err := os.ReadFile(bundle + "/config.json")
			p.must(err)
			if !bytes.Contains(data, []byte(`"LAZARET_PROFILE=`+want+`"`)) {
				t.Errorf("config.json %s", data)
			}
		})
	}
}

func TestVerbsOfOurOwn(t *testing.T) {
	p := newPlace(t)
	o := p.run("--version")
	lines := strings.Split(o.out, "\n")
	if o.code != 0 || !strings.HasPrefix(lines[0], "lazaret-runtime version ") || !strings.HasPrefix(lines[1], "commit: ") || !strings.HasPrefix(lines[2], "spec: 1.") || !strings.Contains(o.out, "runsc: "+p.low+" fake\n") {
		t.Errorf("version: exit %d, %q", o.code, o.out)
	}
	// docker takes any line with "version" in it for one.
	if strings.Count(o.out, "version") != 1 {
		t.Errorf("version: %q", o.out)
	}
	if again := p.run("-v"); again.out != o.out {
		t.Errorf("-v: %q", again.out)
	}
	for _, tt := range []struct {
		args []string
		say  string
	}{
		{nil, "no command given"},
		{[]string{"--root", "/x"}, "no command given"},
		{[]string{"frobnicate", "c1"}, `unknown command "frobnicate"`},
		{[]string{"CREATE", "c1"}, `unknown command "CREATE"`},
		{[]string{"", "c1"}, "command"},
		{[]string{"a\x1b[31mb"}, "unknown command"},
	} {
		o := p.run(append([]string{"--log", p.log, "--log-format", "json"}, tt.args...)...)
		if o.code != 1 || o.rec != nil || o.out != "" || strings.Count(o.err, "\n") != 1 || !strings.Contains(o.err, tt.say) || strings.Contains(o.err, "\x1b") {
			t.Errorf("%q: exit %d, %q", tt.args, o.code, o.err)
		}
		p.logged()
		p.must(os.Remove(p.log))
	}
	if o := p.run("--help"); o.code != 0 || !strings.Contains(o.out, "Usage:") || o.rec != nil {
		t.Errorf("help: exit %d, %q", o.code, o.out)
	}
}

func TestFeatures(t *testing.T) {
	p := newPlace(t)
	o := p.run("features")
	if o.code != 0 || o.rec != nil {
		t.Fatalf("exit %d, %s", o.code, o.err)
	}
	// The fields of runtime-spec's schema/features-schema.json that we give.
	var f struct {
		OCIVersionMin string   `json:"ociVersionMin"`
		OCIVersionMax string   `json:"ociVersionMax"`
		Hooks         []string `json:"hooks"`
		MountOptions  []string `json:"mountOptions"`
		Linux         *struct {
			Namespaces []string        `json:"namespaces"`
			Cgroup     map[string]bool `json:"cgroup"`
			Seccomp    struct {
				Enabled bool `json:"enabled"`
			} `json:"seccomp"`
			Apparmor        map[string]bool            `json:"apparmor"`
			Selinux         map[string]bool            `json:"selinux"`
			IntelRdt        map[string]bool            `json:"intelRdt"`
			MountExtensions map[string]map[string]bool `json:"mountExtensions"`
		} `json:"linux"`
		Annotations map[string]string `json:"annotations"`
		Unsafe      []string          `json:"potentiallyUnsafeConfigAnnotations"`
	}
	dec := json.NewDecoder(strings.NewReader(o.out))
	dec.DisallowUnknownFields()
	p.must(dec.Decode(&f))
	if f.OCIVersionMin == "" || f.OCIVersionMax == "" || f.Linux == nil {
		t.Fatalf("%s", o.out)
	}
	if slices.Contains(f.Hooks, "startContainer") {
		t.Error("claims the hook startContainer, which runsc does not run")
	}
	for _, kind := range []map[string]bool{f.Linux.Apparmor, f.Linux.Selinux, f.Linux.IntelRdt, f.Linux.MountExtensions["idmap"], f.Linux.Cgroup} {
		for name, on := range kind { // a rootless engine: no cgroup either
			if on {
				t.Errorf("claims %s in %s", name, o.out)
			}
		}
	}
	if f.Linux.Seccomp.Enabled {
		t.Error("claims seccomp, which the sandbox's own kernel does not load from config.json")
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain":             "plain",
		"ümlaut 漢字 ✓":       "ümlaut 漢字 ✓",
		"a\nb\r\nc\td":      "a b  c d",
		"\x1b[2J\x07\x00":   `\x1b[2J\x07\x00`,
		"\x7f":              `\x7f`,
		"c1 \u009b31m":      `c1 \u{9b}31m`,
		"bidi \u202e\u2066": `bidi \u{202e}\u{2066}`,
		"zero\u200bwidth":   `zero\u{200b}width`,
		"tag \U000e0100":    `tag \u{e0100}`,
		"filler \u3164":     `filler \u{3164}`,
		"bad \xff\xfe":      `bad \xff\xfe`,
		"line\u2028sep":     `line\u{2028}sep`,
		"nbsp\u00a0":        `nbsp\u{a0}`,
		"":                  "",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	long := oneLine(strings.Repeat("x", 1<<20) + " the reason")
	if len(long) > 2*maxLine || !strings.HasSuffix(long, " the reason") {
		t.Errorf("a long line has %d bytes and ends %q", len(long), long[len(long)-20:])
	}
}

func FuzzOneLine(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff\n")
	f.Fuzz(func(t *testing.T, s string) {
		got := oneLine(s)
		for _, r := range got {
			if r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
				t.Fatalf("%q kept %U", s, r)
			}
		}
	})
}
