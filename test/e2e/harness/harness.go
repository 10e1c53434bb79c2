// Package harness owns what Lazaret's end-to-end tests share: a place of its own
// for every test on the real machine (home, runtime directory, podman storage,
// configuration), commands run there as an ordinary user, and the check that
// nothing of ours is left afterwards.
//
// A test's home, XDG_RUNTIME_DIR and podman storage are its own, so tests can run
// in parallel and never meet the developer's containers; the images come from a
// store that test/scripts/setup.sh filled and that all tests read.
package harness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Options says how a test's place differs from the usual one.
type Options struct {
	Sandbox  string   // path of runsc for [runtime] sandbox; "" is SandboxCurrent
	Runtime  []string // further lines of [runtime]
	Config   string   // further tables of the user's config.toml
	Rootful  bool     // podman run by root, in mount and network namespaces of the test's own
	Bare     bool     // podman without Lazaret: nothing is built, installed or registered
	KeepMess bool     // the test checks for leftovers itself; none is a failure at its end
	// Filtered leaves each profile the network that Config gives it: filtered where
	// that says nothing. Else such profiles get mode = "open", which is quicker.
	Filtered bool
	// Enter comes before every command of the user's and is run as root, such as
	// nsenter with its arguments: what it starts is in other namespaces.
	Enter []string
	// CommandTime is how long one command of Run's may take; 0 is two minutes.
	CommandTime time.Duration
}

// Harness is one test's place. It is removed when the test ends.
type Harness struct {
	t       *testing.T
	Machine *Machine
	User    User
	Prefix  string // installation under test; "" when Bare
	Dir     string // everything below is in here, but Runtime
	Home    string
	Runtime string // XDG_RUNTIME_DIR; when Rootful /run, as the test's processes see it
	Sandbox string // runsc of the configuration

	root        *exec.Cmd // keeps a rootful test's namespaces; nil otherwise
	rootPID     int
	enter       []string
	workspaces  []string
	profiles    []string
	commandTime time.Duration
	filtered    bool
	mounts      map[string]bool // mount points in podman's namespace before the test did anything
}

const (
	commandTime = 5 * time.Minute
	settleTime  = time.Minute // for teardown, which is asynchronous
	// slack is what deadlines are multiplied with: they are for what hangs, and the
	// machine may have much else to do.
	slack = 4
)

// New makes a place for t, with Lazaret registered in it as a user would do it.
// It skips with -short, and fails the test on a machine that is not set up.
// At the end of the test it removes the containers, fails the test for anything
// that is left, and removes the place.
func New(t *testing.T, opts Options) *Harness {
	t.Helper()
	if testing.Short() {
		t.Skip("end-to-end tests need podman and runsc")
	}
	m, err := machine()
	if err != nil {
		t.Fatal(err)
	}
	h := &Harness{t: t, Machine: m, User: m.User, Sandbox: opts.Sandbox, profiles: []string{"default"}, enter: opts.Enter, commandTime: opts.CommandTime, filtered: opts.Filtered}
	if h.commandTime == 0 {
		h.commandTime = commandTime
	}
	if h.Sandbox == "" {
		h.Sandbox = SandboxCurrent
	}
	if !opts.Bare {
		h.Prefix = Prefix(t)
	}
	h.Dir, err = os.MkdirTemp("/var/tmp", "lazaret-e2e.") //nolint:usetesting // the test user must reach it, and its path be short
	if err != nil {
		t.Fatal(err)
	}
	h.Home = filepath.Join(h.Dir, "home")
	t.Cleanup(func() { h.close(opts.KeepMess) })
	if opts.Rootful {
		h.becomeRoot()
	} else {
		if h.Runtime, err = shortDir(runUser(m.User)); err != nil {
			t.Fatal(err)
		}
		h.own(h.Runtime)
		h.own(h.Dir)
	}
	if h.Sandbox == SandboxRunc {
		h.Sandbox = filepath.Join(h.Dir, "runsc")
		h.WriteFile(h.Sandbox, runcAsRunsc)
		if err := os.Chmod(h.Sandbox, 0o755); err != nil { //nolint:gosec // others run it
			t.Fatal(err)
		}
	}
	h.WriteFile(h.storageConf(), fmt.Sprintf(
		"[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n[storage.options]\nadditionalimagestores = [%q]\n",
		h.storage(), filepath.Join(h.Runtime, "containers"), h.User.store()))
	h.mounts = map[string]bool{}
	for _, mp := range h.mountPoints() {
		h.mounts[mp] = true
	}
	if !opts.Bare {
		h.Config(fmt.Sprintf("[runtime]\nsandbox = %q\n%s\n%s", h.Sandbox, strings.Join(opts.Runtime, "\n"), opts.Config))
		if opts.Rootful {
			h.Run("lazaret", "init", "--scope", "system").OK(t)
		} else {
			h.Run("lazaret", "init").OK(t)
		}
	}
	return h
}

// runcAsRunsc is runc for Lazaret, which takes gVisor only: for tests of what it
// does by itself, in a fraction of the time.
const runcAsRunsc = `#!/bin/sh
case $1 in
--version) echo 'runsc version runc'; exit ;;
flags) printf '  -%s\n' directfs host-uds ignore-cgroups overlay2 systrap-disable-fast-path; exit ;;
help) exit ;;
esac
n=$#
for arg; do
	case $arg in
	--host-uds=* | --ignore-cgroups* | --overlay2=* | --network=*) ;;
	*) set -- "$@" "$arg" ;;
	esac
done
shift "$n"
exec /usr/sbin/runc "$@"
`

// storage is where podman keeps this test's containers.
func (h *Harness) storage() string { return filepath.Join(h.Home, ".local/share/containers/storage") }

// overlayHome is what a podman that is ended in between leaves mounted on itself.
func (h *Harness) overlayHome() string { return filepath.Join(h.storage(), "overlay") }

func (h *Harness) storageConf() string {
	return filepath.Join(h.Home, ".config/containers/storage.conf")
}

// shortDir makes a directory with a very short name: runsc and podman keep unix
// sockets below it, whose paths hold 107 bytes at most (unix(7)).
func shortDir(parent string) (string, error) {
	for i := range 36 * 36 * 36 {
		n := (i + os.Getpid()*7) % (36 * 36 * 36)
		dir := filepath.Join(parent, "t"+strconv.FormatInt(int64(n), 36))
		err := os.Mkdir(dir, 0o700)
		if err == nil || !errors.Is(err, os.ErrExist) {
			return dir, err
		}
	}
	return "", fmt.Errorf("no free name in %s: remove what earlier runs left", parent)
}

// own gives a file or directory to the test user.
func (h *Harness) own(path string) {
	h.t.Helper()
	if h.User.UID == os.Geteuid() {
		return
	}
	if os.Geteuid() != 0 {
		if out, err := asRoot(h.t.Context(), "chown", "-h", "0:0", path).CombinedOutput(); err != nil {
			h.t.Fatalf("chown: %v: %s", err, out)
		}
		return
	}
	if err := os.Lchown(path, h.User.UID, h.User.GID); err != nil {
		h.t.Fatal(err)
	}
}

// Config replaces the user's config.toml; see Options.Filtered for its networks.
// The profiles that it defines are those whose domains the leftover check knows.
func (h *Harness) Config(text string) {
	h.t.Helper()
	h.profiles = []string{"default"}
	for line := range strings.Lines(text) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "[profiles.")
		if name, end := strings.CutSuffix(name, "]"); ok && end && !strings.Contains(name, ".") {
			h.profiles = append(h.profiles, strings.Trim(name, `"`))
		}
	}
	for _, name := range h.profiles {
		if table := fmt.Sprintf("[profiles.%s.network]\n", name); !h.filtered && !strings.Contains(text, table) {
			text += "\n" + table + "mode = \"open\"\n"
		}
	}
	h.WriteFile(filepath.Join(h.Home, ".config/lazaret/config.toml"), text)
}

// WriteFile writes a file of the test user's, mode 0644, with its directories.
func (h *Harness) WriteFile(path, text string) {
	h.t.Helper()
	if h.User.UID == 0 && os.Geteuid() != 0 {
		cmd := asRoot(h.t.Context(), "sh", "-ceu", `mkdir -p "$(dirname "$1")" && cat >"$1"`, "sh", path)
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			h.t.Fatalf("write %s: %v: %s", path, err, out)
		}
		return
	}
	var made []string
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil {
			break
		}
		made = append(made, dir)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	for _, p := range append(made, path) {
		h.own(p)
	}
}

// Env is the environment of the user's commands: a login's, and nothing of the
// test process's own.
func (h *Harness) Env() []string {
	path := "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
	if h.Prefix != "" {
		path = filepath.Join(h.Prefix, "bin") + ":" + path
	}
	env := []string{
		"HOME=" + h.Home, "USER=" + h.User.Name, "LOGNAME=" + h.User.Name, "SHELL=/bin/sh",
		"PATH=" + path, "LANG=C.UTF-8", "TERM=xterm",
	}
	if h.root != nil {
		return append(env, "CONTAINERS_STORAGE_CONF="+h.storageConf())
	}
	env = append(env, "XDG_RUNTIME_DIR="+h.Runtime)
	if bus := filepath.Join(runUser(h.User), "bus"); exists(bus) {
		env = append(env, "DBUS_SESSION_BUS_ADDRESS=unix:path="+bus)
	}
	return env
}

// Command is a command of the user's in his home, in a session of its own that
// ends with ctx. Its environment may be added to.
func (h *Harness) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if h.Prefix != "" {
		if p := filepath.Join(h.Prefix, "bin", name); exists(p) {
			name = p
		}
	}
	if h.root != nil {
		return h.rootCommand(ctx, name, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	if len(h.enter) > 0 {
		who := []string{"setpriv", "--reuid=" + strconv.Itoa(h.User.UID), "--regid=" + strconv.Itoa(h.User.GID), "--clear-groups", "--inh-caps=-all", "--"}
		all := slices.Concat(h.enter[1:], who, []string{name}, args)
		cmd = asRoot(ctx, h.enter[0], all...)
	}
	cmd.Dir = h.Home
	cmd.Env = h.Env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if len(h.enter) == 0 {
		cmd.SysProcAttr.Credential = h.User.credential()
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A detached grandchild that kept our pipe must not keep the test.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Result is how a command ended.
type Result struct {
	Args           string
	Stdout, Stderr string
	Code           int           // exit code; -1 when a signal or the time limit ended it
	Took           time.Duration // wall time
	err            error         // other than an exit code
}

// OK fails the test unless the command exited with 0, and returns its stdout
// without the last newline.
func (r Result) OK(t testing.TB) string {
	t.Helper()
	return r.Exit(t, 0)
}

// Exit fails the test unless the command exited with this code, and returns its
// stdout without the last newline.
func (r Result) Exit(t testing.TB, code int) string {
	t.Helper()
	if r.err != nil || r.Code != code {
		t.Fatalf("%s\nexit %d, want %d (%v)\nstdout: %s\nstderr: %s", r.Args, r.Code, code, r.err, r.Stdout, r.Stderr)
	}
	return strings.TrimSuffix(r.Stdout, "\n")
}

// Do runs a command of Command's to its end.
func Do(cmd *exec.Cmd) Result {
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	begin := time.Now()
	err := cmd.Run()
	r := Result{
		Args: strings.Join(cmd.Args, " "), Stdout: out.String(), Stderr: errOut.String(),
		Code: cmd.ProcessState.ExitCode(), Took: time.Since(begin),
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.err = err
	}
	return r
}

// Run runs a command of the user's, for Options.CommandTime at most.
func (h *Harness) Run(name string, args ...string) Result {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), h.commandTime)
	defer cancel()
	return Do(h.Command(ctx, name, args...))
}

// Sh runs a shell script of the user's in a directory; it ends at the first
// command that fails.
func (h *Harness) Sh(dir, script string, args ...string) Result {
	h.t.Helper()
	return h.Run("/bin/sh", append([]string{"-ceu", "cd \"$0\"\n" + script, dir}, args...)...)
}

// Podman runs podman as the user, from his home.
func (h *Harness) Podman(args ...string) Result {
	h.t.Helper()
	return h.Run("podman", args...)
}

// Lazaret is podman run --rm --runtime=lazaret in a workspace ("" for none).
func (h *Harness) Lazaret(workspace string, args ...string) Result {
	h.t.Helper()
	return h.Podman(append(h.LazaretArgs(workspace), args...)...)
}

// LazaretArgs are the arguments that Lazaret puts before a test's own.
func (h *Harness) LazaretArgs(workspace string) []string {
	args := []string{"run", "--rm", "--runtime=lazaret"}
	if workspace != "" {
		args = append(args, "-v", workspace+":/workspace")
	}
	return args
}

// Workspace makes a git repository of the user's with two commits.
func (h *Harness) Workspace() string {
	h.t.Helper()
	ws := filepath.Join(h.Dir, fmt.Sprintf("ws%d", len(h.workspaces)))
	if err := os.Mkdir(ws, 0o755); err != nil {
		h.t.Fatal(err)
	}
	h.own(ws)
	h.Sh(ws, `
		git init -q -b main
		git config user.name Dev
		git config user.email dev@example.test
		echo one >README && git add README && git commit -qm one
		mkdir src && echo two >src/two && git add src && git commit -qm two
	`).OK(h.t)
	h.workspaces = append(h.workspaces, ws)
	return ws
}

// Track tells the leftover check of a workspace that the test made itself.
func (h *Harness) Track(workspace string) { h.workspaces = append(h.workspaces, workspace) }

// DomainHash is the contract's: the first 12 hex digits of the SHA-256 of
// "<profile>:<canonical workspace path>".
func DomainHash(profile, workspace string) (string, error) {
	path, err := filepath.EvalSymlinks(workspace)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(profile + ":" + path))
	return hex.EncodeToString(sum[:])[:12], nil
}

// ControlSocket is where the coordinator of a domain listens by default.
func ControlSocket(hash string) string { return "/tmp/lazaret_coord_" + hash + ".sock" }

// Eventually polls ok until it holds, and fails the test after the time given, which
// is one for a machine that has nothing else to do.
func (h *Harness) Eventually(what string, within time.Duration, ok func() bool) {
	h.t.Helper()
	deadline := time.Now().Add(slack * within)
	for !ok() {
		if time.Now().After(deadline) {
			h.t.Fatalf("after %s still not: %s", slack*within, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// close ends the test's place.
func (h *Harness) close(keepMess bool) {
	h.t.Helper()
	if h.t.Failed() {
		h.report()
	}
	if h.Runtime == "" || h.root != nil && h.rootPID == 0 {
		_ = os.RemoveAll(h.Dir) // nothing was made in it; New has failed the test
		return
	}
	if r := h.Podman("rm", "-fa", "-t", "0"); r.Code != 0 {
		h.t.Errorf("podman rm -fa: exit %d: %s", r.Code, r.Stderr)
	}
	if !keepMess && !h.t.Failed() {
		h.AssertNothingLeft()
	}
	h.end(h.processes())
	// Files of the image's users belong to sub-uids of the user's.
	remove := []string{"sh", "-c", `umount -l "$1" 2>/dev/null; rm -rf "$2"`, "sh", h.overlayHome(), h.storage()}
	if h.root != nil {
		remove[5] = h.Dir
	} else {
		remove = append([]string{"podman", "unshare"}, remove...)
	}
	if r := h.Run(remove[0], remove[1:]...); r.Code != 0 {
		h.t.Logf("remove podman's storage: %s", r.Stderr)
	}
	h.end(h.pauseProcesses())
	if h.root != nil {
		h.leaveRoot()
	}
	for _, dir := range []string{h.Dir, h.Runtime} {
		if dir == "/run" {
			continue // was the namespace's own
		}
		if err := removeAll(dir); err != nil {
			h.t.Errorf("remove the test's place: %v", err)
		}
	}
}

// removeAll removes a tree whose directories may be read-only.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	walkErr := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	return errors.Join(walkErr, os.RemoveAll(dir))
}

// report shows in a failed test's log what the coordinators wrote.
func (h *Harness) report() {
	logs, err := filepath.Glob(filepath.Join(h.Home, ".local/share/lazaret/domains/*/*.log"))
	if err != nil {
		return
	}
	for _, path := range logs {
		if data, err := os.ReadFile(path); err == nil {
			h.t.Logf("%s:\n%s", path, data)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
