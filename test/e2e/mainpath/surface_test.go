package mainpath

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// refused fails the test unless podman or Lazaret refused in one line that names
// what was asked for.
func refused(t *testing.T, r harness.Result, words ...string) {
	t.Helper()
	if r.Code == 0 {
		t.Errorf("%s: exit 0, want a failure", r.Args)
		return
	}
	r.Fails(t, r.Code, words...)
}

// Case "the rest of the surface": every command of podman's works, or says in one
// line that it does not.
func TestSurface(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Detached(ws, "box", "--health-cmd=test -e /tmp/well", "--health-interval=disable", harness.Busybox,
			"sh", "-c", `sleep 300 & `+until)
		started(h, "box")
		id := h.Inspect("box", ".Id")

		t.Run("info", func(t *testing.T) {
			got := h.Podman("--runtime=lazaret", "info", "--format", "{{.Host.OCIRuntime.Name}} {{.Host.OCIRuntime.Path}} {{.Host.OCIRuntime.Version}}").OK(t)
			if !strings.HasPrefix(got, "lazaret "+h.Prefix+"/bin/lazaret-runtime lazaret-runtime version ") {
				t.Errorf("got %q", got)
			}
		})
		t.Run("top", func(t *testing.T) {
			// podman looks for the processes on the host, where gVisor's are one.
			if got := h.Podman("top", "box").OK(t); !strings.HasPrefix(got, "USER ") {
				t.Errorf("got %q", got)
			}
			if got := h.Podman("exec", "box", "ps").OK(t); !strings.Contains(got, "sleep 300") {
				t.Errorf("ps in the container: %q", got)
			}
		})
		t.Run("events", func(t *testing.T) {
			got := h.Podman("events", "--stream=false", "--filter=container=box", "--format={{.Status}}").OK(t)
			if !strings.Contains(got, "create") || !strings.Contains(got, "start") {
				t.Errorf("got %q", got)
			}
		})
		t.Run("ps --sync", func(t *testing.T) {
			if got := h.Podman("ps", "--sync", "--format={{.Names}} {{.Status}}").OK(t); !strings.HasPrefix(got, "box Up ") {
				t.Errorf("got %q", got)
			}
		})
		t.Run("ps --size", func(t *testing.T) { h.Podman("ps", "--size").OK(t) })
		t.Run("healthcheck", func(t *testing.T) {
			h.Podman("healthcheck", "run", "box").Exit(t, 1)
			h.Podman("exec", "box", "touch", "/tmp/well").OK(t)
			h.Podman("healthcheck", "run", "box").OK(t)
		})
		t.Run("export", func(t *testing.T) {
			out := filepath.Join(h.Home, "box.tar")
			h.Podman("export", "-o", out, "box").OK(t)
			if got := h.Run("tar", "-tf", out, "bin/busybox").OK(t); got != "bin/busybox" {
				t.Errorf("got %q", got)
			}
		})
		t.Run("rename", func(t *testing.T) {
			h.Podman("rename", "box", "other").OK(t)
			h.Podman("exec", "other", "true").OK(t)
			h.Podman("rename", "other", "box").OK(t)
		})
		t.Run("stats", func(t *testing.T) {
			if r := h.Podman("stats", "--no-stream", "box"); r.Code != 0 {
				refused(t, r, "tats")
			}
		})
		t.Run("update", func(t *testing.T) {
			// podman adds what it has called.
			r := h.Podman("update", "--memory=128m", "box")
			if line, rest, _ := strings.Cut(r.Stderr, "\n"); r.Code != 0 && (!strings.Contains(line, "update is not supported by lazaret") || strings.Count(rest, "\n") > 1) {
				t.Errorf("exit %d, stderr %q", r.Code, r.Stderr)
			}
		})
		t.Run("pause", func(t *testing.T) {
			r := h.Podman("pause", "box")
			if r.Code != 0 {
				refused(t, r, "pause")
				return
			}
			h.Podman("unpause", "box").OK(t)
			h.Podman("exec", "box", "true").OK(t)
		})
		t.Run("checkpoint", func(t *testing.T) {
			refused(t, h.Podman("container", "checkpoint", "box"), "heckpoint")
		})
		t.Run("descriptors", func(t *testing.T) {
			refused(t, h.Sh(ws, `podman run --rm --runtime=lazaret --preserve-fds=1 "$1" true 3</dev/null`, harness.Busybox), "preserve-fds")
		})
		t.Run("logs -f and wait", func(t *testing.T) {
			follow := make(chan harness.Result)
			waited := make(chan harness.Result)
			go func() { follow <- harness.Do(h.Command(t.Context(), "podman", "logs", "-f", "box")) }()
			go func() { waited <- harness.Do(h.Command(t.Context(), "podman", "wait", "box")) }()
			time.Sleep(500 * time.Millisecond) // both are there, or see the end all the same
			h.Podman("stop", "-t", "5", "box").OK(t)
			if got := (<-follow).OK(t); got != "started" {
				t.Errorf("followed log: %q", got)
			}
			if got := (<-waited).OK(t); got != "7" {
				t.Errorf("waited for exit code %q, want 7", got)
			}
		})
		t.Run("the runtime's own", func(t *testing.T) {
			h.Podman("start", "box").OK(t)
			started(h, "box")
			call := func(args ...string) harness.Result {
				return h.Podman(append([]string{"unshare", filepath.Join(h.Prefix, "bin/lazaret-runtime")}, args...)...)
			}
			var features struct {
				Min   string   `json:"ociVersionMin"`
				Hooks []string `json:"hooks"`
			}
			if err := json.Unmarshal([]byte(call("features").OK(t)), &features); err != nil || features.Min == "" || len(features.Hooks) == 0 {
				t.Errorf("features: %v, %+v", err, features)
			}
			var state struct{ ID, Status string }
			if err := json.Unmarshal([]byte(call("state", id).OK(t)), &state); err != nil || state.ID != id || state.Status != "running" {
				t.Errorf("state: %v, %+v", err, state)
			}
			if got := call("list").OK(t); !strings.Contains(got, id) {
				t.Errorf("list: %q", got)
			}
			var pids []int
			if err := json.Unmarshal([]byte(call("ps", "--format", "json", id).OK(t)), &pids); err != nil || len(pids) < 2 {
				t.Errorf("ps: %v, %v", err, pids)
			}
			if got := call("events", "--stats", id).OK(t); !json.Valid([]byte(got)) {
				t.Errorf("events: %q", got)
			}
			refused(t, call("no-such-verb"), "no-such-verb")
			h.Podman("rm", "-f", "-t", "0", "box").OK(t)
		})
	})
}

// Pods are refused in one line. (Case "running it at all": unsupported modes are
// named.)
func TestPods(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		infra := h.Podman("pod", "create", "--name=pod", "--infra-command=sleep 300", "--infra-image="+harness.Busybox).OK(t)
		if infra == "" {
			t.Fatal("no pod")
		}
		refused(t, h.Lazaret("", "--pod=pod", harness.Busybox, "true"), "pods are not supported by lazaret")
		h.Podman("pod", "rm", "-f", "-t", "0", "pod").OK(t)

		h.WriteFile(filepath.Join(h.Home, "pod.yaml"), strings.Join([]string{
			"apiVersion: v1", "kind: Pod", "metadata: {name: play}", "spec:", "  containers:",
			"  - {name: c, image: \"" + harness.Busybox + "\", command: [sleep, \"300\"], imagePullPolicy: Never}", "",
		}, "\n"))
		r := h.Podman("--runtime=lazaret", "play", "kube", filepath.Join(h.Home, "pod.yaml"))
		if r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, "pods are not supported by lazaret") &&
			!strings.Contains(r.Stderr, "pause") { // podman makes its infra image first, which needs the network
			t.Errorf("play kube: exit %d, stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
		}
		h.Podman("pod", "rm", "-fa", "-t", "0").OK(t)
	})
}

// Case "running it at all": buildah calls the runtime for RUN. It works in the
// sandbox, or is refused in one line.
func TestBuild(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		dir := filepath.Join(h.Home, "build")
		h.WriteFile(filepath.Join(dir, "Containerfile"), "FROM "+harness.Busybox+"\nRUN uname -v > /kernel && id -u >> /kernel\nRUN cat /kernel && exit 0\n")
		r := h.Podman("build", "--runtime="+filepath.Join(h.Prefix, "bin/lazaret-runtime"), "-q", "-t", "localhost/built", dir)
		if h.Debian() {
			if r.Code == 0 || !strings.Contains(r.Stderr, "builds are not supported by lazaret with "+h.Sandbox) {
				t.Errorf("exit %d, stderr %q", r.Code, r.Stderr)
			}
			return
		}
		r.OK(t)
		host := h.Run("uname", "-v").OK(t)
		got := h.Lazaret("", "localhost/built", "cat", "/kernel").OK(t)
		if lines := strings.Split(got, "\n"); len(lines) != 2 || lines[0] == host || lines[1] != "0" {
			t.Errorf("RUN saw %q (the host's kernel is %q)", lines, host)
		}
	})
}

// Plain use without registration: podman takes a path as well.
func TestRuntimeByPath(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		if err := os.Remove(filepath.Join(h.Home, ".config/containers/containers.conf.d/50-lazaret.conf")); err != nil {
			t.Fatal(err)
		}
		run := []string{"run", "--rm", "--runtime=" + filepath.Join(h.Prefix, "bin/lazaret-runtime"), "-v", ws + ":/workspace", harness.Busybox}
		if got := h.Podman(append(run, "cat", "/workspace/README")...).OK(t); got != "one" {
			t.Errorf("got %q", got)
		}
		// podman asks an unregistered runtime for no JSON and knows fewer reasons,
		// but shows the words.
		r := h.Podman(append(run, "/no/such")...)
		if r.Code != 126 && r.Code != 127 || !strings.Contains(r.Stderr, "/no/such") {
			t.Errorf("missing command: exit %d, stderr %q", r.Code, r.Stderr)
		}
		if m := regexp.MustCompile(`(?m)^(goroutine|panic)`).FindString(r.Stderr); m != "" {
			t.Errorf("stack trace: %s", r.Stderr)
		}
	})
}
