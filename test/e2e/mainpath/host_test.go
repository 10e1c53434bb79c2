package mainpath

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// Case "semantics across the gofer": what host and sandbox see of each other's
// changes in the workspace, and what of the host cannot be reached through it.
func TestWorkspaceIsShared(t *testing.T) {
	// Another profile for another image.
	opts := harness.Options{Config: "[profiles.other]\n"}
	harness.Each(t, opts, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Detached(ws, "box", harness.Busybox, "sleep", "300")
		inside := func(script string) string {
			return h.Podman("exec", "--workdir=/workspace", "box", "sh", "-c", script).OK(t)
		}
		t.Run("edits of the host", func(t *testing.T) {
			h.Sh(ws, "echo edited > README; echo new > fresh; mkdir d && echo x > d/x").OK(t)
			if got := inside("cat README fresh d/x"); got != "edited\nnew\nx" {
				t.Errorf("inside: %q", got)
			}
			// As editors and git do it: a new file renamed over the old one.
			h.Sh(ws, "echo again > tmp && mv tmp README && rm -r fresh d").OK(t)
			if got := inside("cat README; ls"); got != "again\nREADME\nsrc" {
				t.Errorf("inside: %q", got)
			}
		})
		t.Run("edits of the sandbox", func(t *testing.T) {
			inside("echo in > a && mv a b && ln b c && ln -s b l && mkdir -p x/y && echo x >> src/two && chmod 755 b")
			if got := h.Sh(ws, "cat b; stat -c %h:%a b; readlink l; cat src/two; find x; rm -r b c l x").OK(t); got != "in\n2:755\nb\ntwo\nx\nx\nx/y" {
				t.Errorf("on the host: %q", got)
			}
		})
		t.Run("a FIFO", func(t *testing.T) {
			if got := inside("mkfifo f && (echo through > f &) && cat f; rm f"); got != "through" {
				t.Errorf("got %q", got)
			}
		})
		t.Run("a socket of the sandbox", func(t *testing.T) {
			// It stays in the sandbox: the host could not be told who listens.
			got := inside("(nc -lU s 2>/dev/null || true) & sleep 0.3; ls s 2>/dev/null; kill %1 2>/dev/null; rm -f s; true")
			if got != "" && got != "s" {
				t.Errorf("got %q", got)
			}
			h.Sh(ws, "rm -f s").OK(t)
		})
		t.Run("a socket of the host", func(t *testing.T) {
			// No host socket opens but the Escalation Socket, once there is one.
			path := filepath.Join(ws, "host.sock")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			if err := os.Chmod(path, 0o777); err != nil { //nolint:gosec // so that nothing else stops it
				t.Fatal(err)
			}
			accepted := make(chan bool, 1)
			go func() {
				c, err := l.Accept()
				accepted <- err == nil
				if err == nil {
					_ = c.Close()
				}
			}()
			r := h.Podman("run", "--rm", "--runtime=lazaret", "--annotation=dev.lazaret.profile=other", "-v", ws+":/workspace", harness.Debian, "python3", "-c",
				"import socket; s = socket.socket(socket.AF_UNIX); s.connect('/workspace/host.sock')")
			if r.Code != 1 || !strings.Contains(r.Stderr, "Error") {
				t.Errorf("exit %d, stderr %q, want a refused connection", r.Code, r.Stderr)
			}
			select {
			case <-accepted:
				t.Error("the sandbox reached a socket of the host")
			case <-time.After(100 * time.Millisecond):
			}
		})
		t.Run("no way out by a link", func(t *testing.T) {
			h.WriteFile(filepath.Join(h.Home, "key"), "secret\n")
			got := inside(`ln -s "` + h.Home + `/key" out; cat out 2>/dev/null; ls -d "` + h.Home + `" /tmp/lazaret_coord_* 2>/dev/null; rm out; echo end`)
			if got != "end" {
				t.Errorf("inside: %q", got)
			}
		})
		t.Run("a mount after the start", func(t *testing.T) {
			// It does not show: runsc has no mount propagation into the sandbox.
			h.Podman("unshare", "sh", "-c", `mkdir "$1/late" && mount -t tmpfs none "$1/late" && touch "$1/late/hidden"; umount "$1/late"`, "sh", ws).OK(t)
			inside("ls late >/dev/null")
			h.Sh(ws, "rmdir late").OK(t)
		})
		h.Podman("rm", "-f", "-t", "0", "box").OK(t)
	})
}

// Case "coordinator life-cycle": a name in /tmp that another user has taken is not
// followed, and the start says so.
func TestSquattedNames(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("takes the names as another user: needs root")
	}
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		hash, err := harness.DomainHash("default", ws)
		if err != nil {
			t.Fatal(err)
		}
		socket := harness.ControlSocket(hash)
		lock := strings.TrimSuffix(socket, ".sock") + ".lock"
		victim := filepath.Join(h.Home, "victim")
		h.WriteFile(victim, "mine\n")
		const squatter = 4711
		for _, c := range []struct {
			name, path string
			make       func(path string) error
		}{
			{"a file for the lock", lock, func(p string) error { return os.WriteFile(p, nil, 0o666) }}, //nolint:gosec // the attacker's
			{"a link for the lock", lock, func(p string) error { return os.Symlink(victim, p) }},
			{"a FIFO for the lock", lock, func(p string) error { return syscall.Mkfifo(p, 0o666) }},
			{"a file for the socket", socket, func(p string) error { return os.WriteFile(p, nil, 0o666) }}, //nolint:gosec // the attacker's
			{"a link for the socket", socket, func(p string) error { return os.Symlink(victim, p) }},
			{"a directory for the socket", socket, func(p string) error { return os.Mkdir(p, 0o777) }}, //nolint:gosec // the attacker's
		} {
			t.Run(c.name, func(t *testing.T) {
				if err := c.make(c.path); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = os.RemoveAll(c.path) }()
				if err := os.Lchown(c.path, squatter, squatter); err != nil {
					t.Fatal(err)
				}
				r := h.Lazaret(ws, harness.Busybox, "echo", "ran")
				r.Fails(t, 126, c.path)
				if r.Stdout != "" || r.Took > 15*time.Second {
					t.Errorf("stdout %q after %s", r.Stdout, r.Took)
				}
				if got := h.Run("cat", victim).OK(t); got != "mine" {
					t.Errorf("the user's file is now %q", got)
				}
			})
		}
		t.Run("somebody listens", func(t *testing.T) {
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			if err := os.Lchown(socket, squatter, squatter); err != nil {
				t.Fatal(err)
			}
			h.Lazaret(ws, harness.Busybox, "echo", "ran").Fails(t, 126, socket)
		})
		_ = os.Remove(socket) // the listener's end has
		h.Lazaret(ws, harness.Busybox, "true").OK(t)
	})
}

// Case "running it at all": images that were loaded, not pulled.
func TestLoadedImages(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Podman("create", "--name=tmpl", harness.Busybox, "true").OK(t)
		h.Podman("commit", "-q", "tmpl", "localhost/own").OK(t)
		h.Podman("rm", "tmpl").OK(t)
		for _, format := range []string{"docker-archive", "oci-archive"} {
			t.Run(format, func(t *testing.T) {
				h.Podman("save", "-q", "--format="+format, "-o", filepath.Join(h.Home, "i.tar"), "localhost/own").OK(t)
				h.Podman("rmi", "localhost/own").OK(t)
				h.Podman("load", "-q", "-i", filepath.Join(h.Home, "i.tar")).OK(t)
				if got := h.Lazaret(ws, "localhost/own", "cat", "/workspace/README").OK(t); got != "one" {
					t.Errorf("got %q", got)
				}
				h.Sh(h.Home, "rm i.tar").OK(t)
			})
		}
	})
}
