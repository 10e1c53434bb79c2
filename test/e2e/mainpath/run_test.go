package mainpath

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// until is a container that ends with code 7 at SIGTERM.
const until = `trap "exit 7" TERM; echo started; while :; do sleep 0.1; done`

// Case "runtime name, JSON log, exit codes 126 and 127": a missing command and
// one that cannot run are told apart at run and exec, in one line, as with runc;
// a container is managed later without naming the runtime again.
func TestExitCodes(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Detached(ws, "box", harness.Busybox, "sh", "-c", until)
		for _, c := range []struct {
			name    string
			argv    []string
			code    int
			message string // podman's own words for it
		}{
			{"own code", []string{"sh", "-c", "exit 37"}, 37, ""},
			{"missing path", []string{"/no/such"}, 127, "not found"},
			{"missing name", []string{"nosuch"}, 127, "not found"},
			{"directory", []string{"/etc"}, 126, "permission denied"},
			{"not executable", []string{"/etc/passwd"}, 126, "permission denied"},
		} {
			t.Run(c.name, func(t *testing.T) {
				for verb, r := range map[string]harness.Result{
					"run":  h.Lazaret(ws, append([]string{harness.Busybox}, c.argv...)...),
					"exec": h.Podman(append([]string{"exec", "box"}, c.argv...)...),
				} {
					if c.message == "" {
						r.Exit(t, c.code)
						if r.Stderr != "" {
							t.Errorf("%s: stderr %q, want none", verb, r.Stderr)
						}
						continue
					}
					r.Fails(t, c.code, "Error: ")
					if !strings.Contains(strings.ToLower(r.Stderr), c.message) {
						t.Errorf("%s: stderr lacks %q: %s", verb, c.message, r.Stderr)
					}
				}
			})
		}
		if got := h.Podman("ps", "-a", "--format", "{{.Names}}").OK(t); got != "box" {
			t.Errorf("containers left by --rm: %q, want only box", got)
		}
		h.Podman("rm", "-f", "-t", "0", "box").OK(t)
	})
}

// Standard streams are the command's own and apart from each other.
func TestStreams(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		r := h.Lazaret(ws, harness.Busybox, "sh", "-c", "cat /workspace/README; echo two >&2")
		r.OK(t)
		if r.Stdout != "one\n" || r.Stderr != "two\n" {
			t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
		}
		got := h.Sh(ws, `printf 'in\nput\n' | podman run -i --rm --runtime=lazaret "$1" sort`, harness.Busybox).OK(t)
		if got != "in\nput" {
			t.Errorf("through stdin: %q", got)
		}
	})
}

func TestDetachedContainer(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Detached(ws, "box", harness.Busybox, "sh", "-c", `echo out; echo err >&2; `+until)
		h.Eventually("the container has started", 10*time.Second, func() bool {
			return strings.Contains(h.Podman("logs", "box").Stdout, "started")
		})

		// The log holds what the container wrote, and nothing of Lazaret's.
		if r := h.Podman("logs", "box"); r.Stdout != "out\nstarted\n" || r.Stderr != "err\n" {
			t.Errorf("log: stdout %q, stderr %q", r.Stdout, r.Stderr)
		}
		if got := h.Inspect("box", ".OCIRuntime"); got != "lazaret" {
			t.Errorf("runtime %q, want lazaret", got)
		}
		if got := h.Inspect("box", ".State.Status"); got != "running" {
			t.Errorf("status %q, want running", got)
		}
		if got := h.Podman("ps", "--format", "{{.Names}} {{.Status}}").OK(t); !strings.HasPrefix(got, "box Up ") {
			t.Errorf("ps: %q", got)
		}

		hash, err := harness.DomainHash("default", ws)
		if err != nil {
			t.Fatal(err)
		}
		id := h.Inspect("box", ".Id")
		got := h.Podman("exec", "box", "sh", "-c", `echo "$LAZARET_PROFILE $LAZARET_DOMAIN $LAZARET_SANDBOX"; test -n "$LAZARET_SESSION_ID"; cat /proc/1/cmdline | head -c 2`).OK(t)
		if want := "default " + hash + " " + id + "\nsh"; got != want {
			t.Errorf("exec: %q, want %q", got, want)
		}
		if got := h.Podman("exec", "--user", "1000", "--workdir", "/workspace", "-e", "A=b", "box", "sh", "-c", "id -u; pwd; echo $A").OK(t); got != "1000\n/workspace\nb" {
			t.Errorf("exec with user, directory and variable: %q", got)
		}
		got = h.Sh(ws, `printf hello | podman exec -i box tr a-z A-Z`).OK(t)
		if got != "HELLO" {
			t.Errorf("exec -i: %q", got)
		}

		// A session lasts as long as its exec, also a detached one.
		h.Podman("exec", "-d", "box", "sh", "-c", "touch /tmp/began; until test -e /tmp/go; do sleep 0.1; done; touch /tmp/done").OK(t)
		h.Eventually("the detached exec runs", 20*time.Second, func() bool { return h.Podman("exec", "box", "test", "-e", "/tmp/began").Code == 0 })
		if d := h.Domain("default", ws); len(d.Sessions) != 1 || d.Sessions[0].Kind != "exec" || d.Sessions[0].Terminal {
			t.Errorf("sessions during exec -d: %+v", d.Sessions)
		}
		h.Podman("exec", "box", "touch", "/tmp/go").OK(t)
		h.Eventually("the detached exec has ended", 20*time.Second, func() bool { return len(h.Domain("default", ws).Sessions) == 0 })
		h.Podman("exec", "box", "test", "-e", "/tmp/done").OK(t)

		h.Podman("stop", "-t", "5", "box").OK(t)
		if got := h.Inspect("box", ".State.ExitCode"); got != "7" {
			t.Errorf("exit code %s, want the trap's 7", got)
		}
		h.DomainEnds("default", ws)
		h.Podman("exec", "box", "true").Fails(t, 255, "container state improper")
		h.Podman("rm", "box").OK(t)
	})
}

// attach shows what comes after it and hands stdin on.
func TestAttach(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Detached(ws, "box", "-i", harness.Busybox, "sh", "-c", `read x; echo "got $x"; exit 9`)
		r := h.Sh(ws, "echo hello | podman attach box")
		if got := strings.TrimSpace(r.OK(t)); got != "got hello" { // podman 4.3 ends with 0, with runc too
			t.Errorf("attach: %q", got)
		}
		if got := h.Podman("wait", "box").OK(t); got != "9" {
			t.Errorf("exit code %s, want 9", got)
		}
		h.Podman("rm", "box").OK(t)
	})
}

// Case "two overlays fighting": writes to the root reach the engine's layer with
// every runsc, so that diff, commit, cp and restart see them.
func TestRootfsIsTheEngines(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.WriteFile(filepath.Join(ws, "in"), "from the host\n")

		// Into a container that never ran, and out of one that has ended.
		h.Podman("create", "--runtime=lazaret", "--name=box", "-v", ws+":/workspace", harness.Busybox,
			"sh", "-c", "cat /root/in; echo from inside > /root/out; touch /home/x").OK(t)
		h.Podman("cp", filepath.Join(ws, "in"), "box:/root/in").OK(t)
		if got := h.Podman("start", "-a", "box").OK(t); got != "from the host" {
			t.Errorf("file copied into the created container: %q", got)
		}
		h.Podman("cp", "box:/root/out", filepath.Join(ws, "out")).OK(t)
		if data, err := os.ReadFile(filepath.Join(ws, "out")); err != nil || string(data) != "from inside\n" {
			t.Errorf("file copied out of the ended container: %q, %v", data, err)
		}
		diff := strings.Split(h.Podman("diff", "box").OK(t), "\n")
		for _, want := range []string{"A /root/in", "A /root/out", "A /home/x"} {
			found := false
			for _, d := range diff {
				found = found || d == want
			}
			if !found {
				t.Errorf("podman diff lacks %q: %.300q", want, diff)
			}
		}
		h.Podman("commit", "-q", "box", "localhost/committed").OK(t)
		if got := h.Lazaret("", "localhost/committed", "cat", "/root/out").OK(t); got != "from inside" {
			t.Errorf("in the committed image: %q", got)
		}
		h.Podman("rm", "box").OK(t)

		// What was written survives a restart.
		h.Detached(ws, "again", harness.Busybox, "sh", "-c", "echo run >> /root/runs; wc -l < /root/runs; "+until)
		h.Eventually("first run", 10*time.Second, func() bool { return strings.Contains(h.Podman("logs", "again").Stdout, "started") })
		h.Podman("restart", "-t", "5", "again").OK(t)
		h.Eventually("second run", 10*time.Second, func() bool { return strings.Contains(h.Podman("logs", "again").Stdout, "2\nstarted") })
		// podman joins a running container's mount namespace for cp; the sandbox's
		// has nothing of the container in it.
		for _, args := range [][]string{{"cp", filepath.Join(ws, "in"), "again:/root/in"}, {"cp", "again:/root/runs", filepath.Join(ws, "runs")}} {
			if r := h.Podman(args...); r.Code == 0 || strings.Count(r.Stderr, "\n") != 1 {
				t.Errorf("%s: exit %d, want a failure of one line: %s", r.Args, r.Code, r.Stderr)
			}
		}
		if _, err := os.Lstat(filepath.Join(ws, "runs")); err == nil {
			t.Error("cp out of the running container left a file")
		}
		h.Podman("stop", "-t", "5", "again").OK(t)
		h.Podman("cp", "again:/root/runs", filepath.Join(ws, "runs")).OK(t)
		if data, err := os.ReadFile(filepath.Join(ws, "runs")); err != nil || string(data) != "run\nrun\n" {
			t.Errorf("after two runs: %q, %v", data, err)
		}
		h.Podman("rm", "again").OK(t)
	})
}
