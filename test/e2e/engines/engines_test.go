// Package engines runs lazaret-runtime under docker and containerd as root, in
// namespaces of the test's own. make engines installs both.
package engines

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// engine is a daemon of the test's own with lazaret registered.
type engine struct {
	*harness.Harness
	t    *testing.T
	argv []string // of its client
}

// newEngine writes conf, in which %[1]s is a directory and %[2]s a socket, has
// lazaret init add to it, and starts the daemon, until the test's end.
func newEngine(t *testing.T, name, daemon, conf string, client ...string) *engine {
	t.Helper()
	if os.Getenv("LAZARET_TEST_ENGINES") == "" {
		t.Skip("needs docker and containerd: make engines")
	}
	h := harness.New(t, harness.Options{Rootful: true, Filtered: true, KeepMess: true})
	e := &engine{Harness: h, t: t, argv: client}
	dir, socket, file := filepath.Join(h.Dir, name), "/run/"+name+"-test.sock", filepath.Join(h.Dir, name+".conf")
	h.WriteFile(file, fmt.Sprintf(conf, dir, socket))
	out := h.Run("lazaret", "init", "--engine", name, "--engine-config", file).OK(t)
	if !strings.Contains(out, "registered ") || !strings.Contains(out, "systemctl") {
		t.Errorf("init: %s", out)
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // beyond the test's own
	cmd := h.Command(ctx, daemon, "--config", file)
	if name == "docker" {
		cmd = h.Command(ctx, daemon, "--config-file", file)
	}
	log, err := os.Create(filepath.Join(h.Dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if data, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s: %s", daemon, data[max(0, len(data)-4000):])
		}
		h.Run("sh", "-c", `kill $(cat "$1" 2>/dev/null) 2>/dev/null; sleep 1`, "sh", "/run/docker.pid")
		cancel()
		_ = cmd.Wait() // told to end
		_ = log.Close()
	})
	h.Eventually(daemon+" answers", time.Minute, func() bool { return e.do("version").Code == 0 })
	return e
}

// do runs the engine's client.
func (e *engine) do(args ...string) harness.Result {
	e.t.Helper()
	return e.Run(e.argv[0], append(e.argv[1:], args...)...)
}

// unhooked fails the test if a sandbox has put a hook into the host's repository.
func (e *engine) unhooked(ws string) {
	e.t.Helper()
	if _, err := os.Lstat(filepath.Join(ws, ".git/hooks/post-commit")); !os.IsNotExist(err) {
		e.t.Errorf("a hook is on the host: %v", err)
	}
}

// nothingLeft waits until nothing of Lazaret's or runsc's is there.
func (e *engine) nothingLeft() {
	e.t.Helper()
	var left []string
	defer func() {
		if len(left) > 0 {
			e.t.Logf("left:\n\t%s", strings.Join(left, "\n\t"))
		}
	}()
	e.Eventually("nothing of Lazaret's is left", 20*time.Second, func() bool {
		left = slices.DeleteFunc(e.Leftovers(), func(l string) bool { // the engine's own have the test's directory in them
			return !slices.ContainsFunc([]string{"/lazaret/", "lazaret-", "lazaret_coord", "runsc-"}, func(s string) bool {
				return strings.Contains(strings.ReplaceAll(l, e.Dir, ""), s)
			})
		})
		return len(left) == 0
	})
}

func TestDocker(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "docker", "dockerd", `{
  "data-root": "%[1]s",
  "exec-root": "%[1]s/exec",
  "hosts": ["unix://%[2]s"],
  "log-level": "warn"
}`, "docker", "-H", "unix:///run/docker-test.sock")
	ws := e.Workspace()
	e.Run("sh", "-c", `podman save "$1" | docker -H unix:///run/docker-test.sock load`, "sh", harness.Busybox).OK(t)
	run := func(args ...string) harness.Result {
		return e.do(append([]string{"run", "--rm", "--runtime=lazaret", "-v", ws + ":/workspace", "-w", "/workspace"}, args...)...)
	}

	if got := run(harness.Busybox, "sh", "-c", "cat README; id -u; cat /etc/resolv.conf; echo kept >/usr/kept").OK(t); !strings.HasPrefix(got, "one\n0\n") || !strings.Contains(got, "nameserver 198.18.0.1") {
		t.Errorf("got %q", got)
	}
	second := run(harness.Busybox, "sh", "-c", "cat /usr/kept; echo x >.git/hooks/post-commit; :")
	if got := second.OK(t); got != "kept" || strings.Contains(second.Stderr, "image is now") {
		t.Errorf("got %q, %q", got, second.Stderr)
	}
	e.unhooked(ws)
	run(harness.Busybox, "sh", "-c", "exit 37").Exit(t, 37)
	run(harness.Busybox, "/no/such").Exit(t, 127)
	// An image could have brought it.
	if r := run("-e", "LAZARET_PROFILE=other", harness.Busybox, "true"); r.Code != 125 || !strings.Contains(r.Stderr, "dev.lazaret.profile") {
		t.Errorf("a profile that an image can name: %+v", r)
	}
	e.nothingLeft()

	e.do("run", "-d", "--name=box", "--runtime=lazaret", "-v", ws+":/workspace", harness.Busybox,
		"sh", "-c", `trap "echo bye; exit 7" TERM; echo started; while :; do sleep 0.1; done`).OK(t)
	if got := e.do("exec", "box", "sh", "-c", "echo in $LAZARET_SANDBOX; exit 5"); got.Code != 5 || !strings.HasPrefix(got.Stdout, "in ") {
		t.Errorf("exec: %+v", got)
	}
	term := e.Terminal("docker", "-H", "unix:///run/docker-test.sock", "exec", "-it", "box", "sh")
	term.Send("stty size\r")
	term.Expect("24 80", time.Minute)
	term.Send("exit 3\r")
	if code := term.Wait(); code != 3 {
		t.Errorf("exec -it: exit %d, want 3", code)
	}
	e.Eventually("it has started", 20*time.Second, func() bool { return e.do("logs", "box").Stdout == "started\n" })
	e.do("restart", "-t", "20", "box").OK(t)
	e.do("stop", "-t", "20", "box").OK(t)
	if got := e.do("inspect", "-f", "{{.State.ExitCode}}", "box").OK(t); got != "7" {
		t.Errorf("exit code %s, want 7", got)
	}
	if got := e.do("logs", "box").OK(t); got != "started\nbye\nstarted\nbye" {
		t.Errorf("logs: %q", got)
	}
	e.nothingLeft()
	e.do("rm", "box").OK(t)

	// As compose does for a service with restart: on-failure.
	e.do("run", "-d", "--name=svc", "--restart=on-failure:2", "--runtime=lazaret", "-v", ws+":/workspace", harness.Busybox, "sh", "-c", "exit 9").OK(t)
	e.Eventually("it was restarted twice", time.Minute, func() bool {
		return e.do("inspect", "-f", "{{.RestartCount}} {{.State.Status}} {{.State.ExitCode}}", "svc").Stdout == "2 exited 9\n"
	})
	e.do("rm", "svc").OK(t)
	e.nothingLeft()
}

func TestContainerd(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "containerd", "containerd", `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
address = "%[2]s"
`, "ctr", "-a", "/run/containerd-test.sock")
	ws := e.Workspace()
	e.Run("sh", "-c", `podman save --format oci-archive "$1" >"$2" && ctr -a /run/containerd-test.sock image import "$2"`, "sh", harness.Busybox, filepath.Join(e.Dir, "image.tar")).OK(t)
	name := strings.TrimSpace(e.do("image", "ls", "-q").OK(t))
	run := func(detach bool, id string, args ...string) harness.Result {
		argv := []string{"run", "--runc-binary", filepath.Join(e.Prefix, "bin/lazaret-runtime"), "--mount", "type=bind,src=" + ws + ",dst=/workspace,options=rbind:rw"}
		if detach {
			argv = append(argv, "-d")
		} else {
			argv = append(argv, "--rm")
		}
		return e.do(append(append(argv, name, id), args...)...)
	}
	if got := run(false, "one", "sh", "-c", "cat /workspace/README; id -u; echo kept >/usr/kept").OK(t); got != "one\n0" {
		t.Errorf("got %q", got)
	}
	if got := run(false, "two", "sh", "-c", "cat /usr/kept; echo x >/workspace/.git/hooks/post-commit; :").OK(t); got != "kept" {
		t.Errorf("got %q", got)
	}
	e.unhooked(ws)
	run(false, "three", "sh", "-c", "exit 37").Exit(t, 37)
	e.nothingLeft()
	run(true, "box", "sleep", "600").OK(t)
	if got := e.do("task", "exec", "--exec-id=x", "box", "sh", "-c", "echo in; exit 5"); got.Code != 5 || got.Stdout != "in\n" {
		t.Errorf("exec: %+v", got)
	}
	e.do("task", "kill", "-s", "SIGKILL", "box").OK(t)
	e.Eventually("the task is over", 20*time.Second, func() bool {
		return e.do("task", "rm", "box").Code == 0 || !strings.Contains(e.do("task", "ls").Stdout, "box")
	})
	e.do("container", "rm", "box").OK(t)
	e.nothingLeft()
}
