// Package rootful runs the core of podman's commands through lazaret-runtime as
// root, in namespaces of the test's own.
package rootful

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

func TestRootful(t *testing.T) {
	harness.Each(t, harness.Options{Rootful: true, Filtered: true}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		run := func(args ...string) harness.Result {
			// podman's bridge needs iptables, which a machine may lack.
			return h.Lazaret(ws, append([]string{"--network=none"}, args...)...)
		}
		t.Run("run", func(t *testing.T) {
			if got := run(harness.Busybox, "sh", "-c", "cat /workspace/README; id -u").OK(t); got != "one\n0" {
				t.Errorf("got %q", got)
			}
			run(harness.Busybox, "sh", "-c", "exit 37").Exit(t, 37)
			run(harness.Busybox, "/no/such").Fails(t, 127, "/no/such")
			run(harness.Busybox, "/etc").Fails(t, 126, "/etc")
		})
		t.Run("a life", func(t *testing.T) {
			h.Detached(ws, "box", "--network=none", harness.Busybox, "sh", "-c", `trap "exit 7" TERM; echo started; while :; do sleep 0.1; done`)
			if d := h.Domain("default", ws); d.PID == 0 || len(d.Containers) != 1 || !strings.HasPrefix(d.Anchor.Root, "/var/lib/lazaret/") {
				t.Errorf("domain %+v", d)
			}
			h.Podman("exec", "box", "sh", "-c", "exit 5").Exit(t, 5)
			h.Podman("exec", "box", "/no/such").Exit(t, 127)
			term := h.Terminal("podman", "exec", "-it", "box", "sh")
			term.Send("stty size\r")
			term.Expect("24 80", 15*time.Second)
			term.Send("exit 3\r")
			if code := term.Wait(); code != 3 {
				t.Errorf("exec -it: exit %d, want 3", code)
			}
			if r := h.Podman("logs", "box"); r.Stdout != "started\n" || r.Stderr != "" {
				t.Errorf("logs: %q, %q", r.Stdout, r.Stderr)
			}
			h.Podman("restart", "-t", "5", "box").OK(t)
			h.Podman("stop", "-t", "5", "box").OK(t)
			if got := h.Inspect("box", ".State.ExitCode"); got != "7" {
				t.Errorf("exit code %s, want 7", got)
			}
			h.DomainEnds("default", ws)
			h.Podman("start", "box").OK(t)
			h.Podman("kill", "box").OK(t)
			if got := h.Podman("wait", "box").OK(t); got != "137" {
				t.Errorf("exit code %s, want 137", got)
			}
			h.Podman("rm", "-f", "box").OK(t)
		})
		t.Run("files", func(t *testing.T) {
			h.Podman("create", "--name=box", "--runtime=lazaret", "--network=none", harness.Busybox, "sh", "-c", "echo x > /root/out").OK(t)
			h.Podman("start", "-a", "box").OK(t)
			h.Podman("cp", "box:/root/out", filepath.Join(ws, "out")).OK(t)
			if got := h.Sh(ws, "cat out; rm out").OK(t); got != "x" {
				t.Errorf("cp: %q", got)
			}
			if got := h.Podman("diff", "box").OK(t); !strings.Contains(got, "A /root/out") {
				t.Errorf("diff: %q", got)
			}
			h.Podman("rm", "box").OK(t)
		})
		t.Run("masks", func(t *testing.T) {
			got := run(harness.Busybox, "sh", "-c", "mkdir /workspace/.vscode; echo x > /workspace/.vscode/f; ls -A /workspace/.vscode; touch /workspace/made").OK(t)
			if got != "f" {
				t.Errorf("inside: %q", got)
			}
			h.DomainEnds("default", ws)
			if got := h.Sh(ws, "ls -A; rm made").OK(t); got != ".git\nREADME\nmade\nsrc" {
				t.Errorf("on the host: %q", got)
			}
		})
		t.Run("users", func(t *testing.T) {
			got := run("--user=1000", harness.Busybox, "sh", "-c", "id -u; touch /workspace/x 2>/dev/null || echo refused").OK(t)
			if got != "1000\nrefused" {
				t.Errorf("got %q", got)
			}
		})
		t.Run("networks", func(t *testing.T) {
			h.Lazaret(ws, "--network=host", harness.Busybox, "true").Fails(t, 126, "host network refused")
			// The profile lists nothing: the forwarder says no to every name, at once.
			r := h.Lazaret(ws, harness.Busybox, "sh", "-c", "grep nameserver /etc/resolv.conf; nslookup evil.test")
			if r.Code == 0 || !strings.Contains(r.Stdout, "198.18.") || !strings.Contains(r.Stdout, "NXDOMAIN") {
				t.Errorf("%s: exit %d, %q, %q", r.Args, r.Code, r.Stdout, r.Stderr)
			}
		})
		t.Run("limits", func(t *testing.T) {
			h.Detached(ws, "box", "--memory=256m", "--network=none", harness.Busybox, "sleep", "300")
			got := h.Run("find", "/sys/fs/cgroup", "-path", "*"+h.Inspect("box", ".Id")+"*", "(", "-name", "memory.limit_in_bytes", "-o", "-name", "memory.max", ")", "-exec", "cat", "{}", ";").OK(t)
			if !strings.HasPrefix(got, "268435456") {
				t.Errorf("limits of the container's cgroups: %q, want 268435456", got)
			}
			h.Podman("rm", "-f", "-t", "0", "box").OK(t)
		})
		t.Run("another owner's workspace", func(t *testing.T) {
			// Stubs and files keep to their owners: root's domain must not take what is another's.
			if os.Geteuid() != 0 {
				t.Skip("gives files away")
			}
			theirs := filepath.Join(h.Dir, "theirs")
			if err := os.Mkdir(theirs, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(theirs, 4711, 4711); err != nil {
				t.Fatal(err)
			}
			h.Track(theirs)
			h.Lazaret(theirs, "--network=none", harness.Busybox, "sh", "-c", "echo x > /workspace/.idea/f; touch /workspace/made").OK(t)
			h.DomainEnds("default", theirs)
			entries, err := os.ReadDir(theirs)
			if err != nil || len(entries) != 1 {
				t.Errorf("on the host: %v, %v", entries, err)
			}
			if fi, err := os.Stat(theirs); err != nil || fi.Sys().(*syscall.Stat_t).Uid != 4711 {
				t.Errorf("owner of the workspace: %v, %v", fi, err)
			}
		})
	})
}

// A developer's rootless domain and root's of the same workspace are two.
func TestRootIsAnotherDeveloper(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Rootful: true})
	ws := h.Workspace()
	h.Detached(ws, "box", "--network=none", harness.Busybox, "sleep", "300")
	// The config and data of whoever called sudo are not root's.
	got := h.Run("env", "XDG_RUNTIME_DIR=/nowhere", "_CONTAINERS_ROOTLESS_UID=1000", "podman", "exec", "box", "sh", "-c", "echo $LAZARET_DOMAIN").OK(t)
	if want, err := harness.DomainHash("default", ws); err != nil || got != want {
		t.Errorf("domain %q, want %s, %v", got, want, err)
	}
	h.Podman("rm", "-f", "-t", "0", "box").OK(t)
}
