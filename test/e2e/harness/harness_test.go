package harness

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// Without Lazaret: what fails here is the machine's fault, not Lazaret's.
func TestPlainPodmanWorks(t *testing.T) {
	t.Parallel()
	for _, s := range Sandboxes() {
		t.Run(s.Name, func(t *testing.T) {
			// Debian's runsc takes no network namespace on newer kernels.
			h := New(t, Options{Bare: true})
			ws := h.Workspace()
			got := h.Podman("run", "--rm", "--runtime="+s.Path, "--runtime-flag=ignore-cgroups",
				"--network=none", "--runtime-flag=network=none",
				"-v", ws+":/workspace", Busybox, "sh", "-c", "cat /workspace/README; echo new >/workspace/new").OK(t)
			if got != "one" {
				t.Errorf("stdout %q, want %q", got, "one")
			}
			if data, err := os.ReadFile(filepath.Join(ws, "new")); err != nil || string(data) != "new\n" {
				t.Errorf("file from the sandbox: %q, %v", data, err)
			}
		})
	}
}

func TestRootfulPodmanWorksApart(t *testing.T) {
	t.Parallel()
	h := New(t, Options{Bare: true, Rootful: true})
	got := h.Podman("run", "--rm", "--runtime="+SandboxCurrent, "--runtime-flag=ignore-cgroups", "--network=none", Busybox, "id", "-u").OK(t)
	if got != "0" {
		t.Errorf("uid %q, want 0", got)
	}
	// The machine's own podman sees nothing of it, and the other way round.
	h.Podman("create", "--name", "only-here", Busybox, "true").OK(t)
	if out, err := asRoot(t.Context(), "podman", "ps", "-a", "--format", "{{.Names}}").Output(); err != nil || strings.Contains(string(out), "only-here") {
		t.Errorf("the machine's podman: %q, %v", out, err)
	}
	h.Run("touch", "/etc/containers/planted", "/run/planted").OK(t)
	for _, path := range []string{"/etc/containers/planted", "/run/planted"} {
		if exists(path) {
			t.Errorf("%s shows on the machine", path)
		}
	}
}

func TestDebianImageHasItsTools(t *testing.T) {
	t.Parallel()
	h := New(t, Options{Bare: true})
	h.Podman("run", "--rm", "--runtime=runc", "--network=none", Debian, "sh", "-c",
		"git --version && tmux -V && vim.tiny --version && TERM=xterm tput colors && ps && python3 -c 'print(1)' && apt-get --version").OK(t)
}

func TestPlacesAreApart(t *testing.T) {
	t.Parallel()
	a, b := New(t, Options{Bare: true}), New(t, Options{Bare: true})
	a.Podman("create", "--name", "x", Busybox, "true").OK(t)
	if got := b.Podman("ps", "-aq").OK(t); got != "" {
		t.Errorf("a container of one place shows in another: %s", got)
	}
	b.Podman("create", "--name", "x", Busybox, "true").OK(t)
}

func TestEveryKindOfLeftoverIsSeen(t *testing.T) {
	t.Parallel()
	h := New(t, Options{Bare: true, KeepMess: true})
	ws := h.Workspace()
	if got := h.Leftovers(); len(got) > 0 {
		t.Fatalf("before anything was done: %q", got)
	}
	hash, err := DomainHash("default", ws)
	if err != nil {
		t.Fatal(err)
	}

	// A daemon in podman's namespaces that tells nothing of its place.
	ctx, cancel := context.WithCancel(t.Context())
	daemon := h.Command(ctx, "podman", "unshare", "setsid", "env", "-i", "/bin/sleep", "61.25")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	// A process outside of them that has the place in its arguments.
	outside := h.Command(ctx, "/bin/sh", "-c", "sleep 60; true", h.Dir+"/x")
	if err := outside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_, _ = daemon.Wait(), outside.Wait() // killed
	})
	mp := filepath.Join(h.Dir, "mnt")
	h.Podman("unshare", "sh", "-c", "mkdir "+mp+" && mount -t tmpfs none "+mp).OK(t)
	h.WriteFile(filepath.Join(h.Runtime, "lazaret/containers/abc/state.json"), "{}")
	h.Sh(ws, "mkdir .vscode && : >.idea").OK(t)
	listener, err := net.Listen("unix", ControlSocket(hash))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	lockPath := strings.TrimSuffix(ControlSocket(hash), ".sock") + ".lock"
	lock, err := os.OpenFile(lockPath, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	defer func() { _ = os.Remove(lockPath) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	want := []string{
		"/bin/sleep 61.25", "sleep 60; true", "mount " + mp, "file " + h.Runtime + "/lazaret/containers/abc/state.json",
		"stub " + ws + "/.vscode", "stub " + ws + "/.idea", "socket " + ControlSocket(hash), "held lock " + lockPath,
	}
	var got []string
	h.Eventually("both processes run", 20*time.Second, func() bool {
		got = h.Leftovers()
		return slices.ContainsFunc(got, func(l string) bool { return strings.HasSuffix(l, ": /bin/sleep 61.25") })
	})
	for _, w := range want {
		if !slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, w) }) {
			t.Errorf("not reported: %s\nreported:\n\t%s", w, strings.Join(got, "\n\t"))
		}
	}
}

func TestAPlaceIsRemovedWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("end-to-end tests need podman and runsc")
	}
	t.Parallel()
	var dir, run string
	t.Run("used", func(t *testing.T) {
		h := New(t, Options{Bare: true})
		dir, run = h.Dir, h.Runtime
		h.Podman("run", "-d", "--runtime=runc", "--network=none", Busybox, "sleep", "60").OK(t)
	})
	if dir == "" || run == "" {
		t.Fatal("no place was made")
	}
	for _, d := range []string{dir, run} {
		if exists(d) {
			t.Errorf("%s is still there", d)
		}
	}
	if got := findProcesses(func(_ int, cmdline string) bool {
		return strings.Contains(cmdline, dir+"/") || strings.Contains(cmdline, run+"/")
	}); len(got) > 0 {
		t.Errorf("still running: %v", got)
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	h := New(t, Options{Bare: true})
	term := h.Terminal("/bin/sh", "-c", `trap 'stty size; exit 7' WINCH; read x; echo "got:$x"; while :; do sleep 0.05; done`)
	term.Send("hello\r")
	term.Expect("got:hello", 20*time.Second)
	term.Resize(40, 120)
	term.Expect("40 120", 20*time.Second)
	if code := term.Wait(); code != 7 {
		t.Errorf("exit %d, want 7", code)
	}
}
