package mainpath

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// Case "identity and labels": whoever runs in the sandbox, files of the developer's
// uid stay his on the host, and others' land where podman maps them, as with any
// runtime.
func TestIdentity(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Podman("create", "--name", "tmpl", harness.Busybox, "true").OK(t)
		h.Podman("commit", "-q", "--change", "USER agent", "tmpl", "localhost/withuser").OK(t)
		h.Podman("rm", "tmpl").OK(t)
		uid := itoa(h.User.UID)
		for _, c := range []struct {
			name  string
			args  []string
			id    string
			owner string // of a new file in the workspace on the host; "" where it cannot be made
		}{
			{"root", []string{harness.Busybox}, "0", uid},
			{"keep-id", []string{"--userns=keep-id", harness.Busybox}, uid, uid},
			{"keep-id with a uid", []string{"--userns=keep-id:uid=1000,gid=1000", harness.Busybox}, "1000", uid},
			{"root in keep-id", []string{"--userns=keep-id", "--user=0", harness.Busybox}, "0", "sub"},
			{"another user", []string{"--user=1000", harness.Busybox}, "1000", ""},
			{"the image's user", []string{"localhost/withuser"}, "1000", ""},
			{"the image's user in keep-id", []string{"--userns=keep-id:uid=1000,gid=1000", "localhost/withuser"}, "1000", uid},
			{"automatic mapping", []string{"--userns=auto", harness.Busybox}, "0", ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				h.Sh(ws, "chmod 755 .").OK(t)
				if c.owner == "sub" {
					h.Sh(ws, "chmod 777 .").OK(t)
				}
				args := append(h.LazaretArgs(ws), c.args...)
				if c.name == "automatic mapping" && h.Debian() {
					h.Podman(append(args, "true")...).Fails(t, 126, "--userns=auto", "install a current runsc")
					return
				}
				got := h.Podman(append(args, "sh", "-c",
					`id -u; echo x 2>/dev/null >/workspace/made; cat /workspace/README; ls /run/lazaret >/dev/null && echo sees; /run/lazaret/escalate --timeout 1s -- true 2>/dev/null; echo $?`)...).OK(t)
				lines := strings.Split(got, "\n")
				if len(lines) != 4 || lines[0] != c.id || lines[1] != "one" || lines[2] != "sees" || lines[3] != "124" {
					t.Errorf("got %q, want uid %s, the README, /run/lazaret and an escalation client whom nobody answers", lines, c.id)
				}
				path := filepath.Join(ws, "made")
				fi, err := os.Lstat(path)
				if c.owner == "" {
					if err == nil {
						t.Errorf("a file was made by an unmapped user: %v", fi.Sys())
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				owner := itoa(int(fi.Sys().(*syscall.Stat_t).Uid))
				if c.owner == "sub" {
					if owner == "0" || owner == uid {
						t.Errorf("owner %s, want a sub-uid", owner)
					}
				} else if owner != c.owner {
					t.Errorf("owner %s, want %s", owner, c.owner)
				}
				h.Podman("unshare", "rm", path).OK(t)
			})
		}
	})
}

// Case "identity and labels": a directory whose group is nobody's inside is the
// owner's all the same.
func TestForeignGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives a directory to another group: needs root")
	}
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		if err := os.Chown(ws, h.User.UID, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(ws, 0o700); err != nil { //nolint:gosec // as a closed home is
			t.Fatal(err)
		}
		const use = "cat /workspace/README && touch /workspace/new && rm /workspace/new"
		if got := h.Lazaret(ws, harness.Busybox, "sh", "-c", use).OK(t); got != "one" {
			t.Errorf("got %q", got)
		}
		if got := h.Lazaret(ws, "--userns=keep-id", harness.Busybox, "sh", "-c", use).OK(t); got != "one" {
			t.Errorf("with keep-id: %q", got)
		}
	})
}

// Case "identity and labels": git takes the workspace for the user's own wherever
// he is the one that runs it.
func TestGitInWorkspace(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		for name, args := range map[string][]string{"root": nil, "keep-id": {"--userns=keep-id"}} {
			t.Run(name, func(t *testing.T) {
				args := append(append(h.LazaretArgs(ws), args...), "--workdir=/workspace", harness.Debian, "sh", "-ec",
					"git status --short; echo "+name+" > "+name+"; git add "+name+"; git commit -qm "+name+"; git log --format=%s -1")
				if got := h.Podman(args...).OK(t); got != name {
					t.Errorf("got %q", got)
				}
			})
		}
		if got := h.Sh(ws, "git log --format=%s; git status --short; git fsck 2>&1").OK(t); !strings.Contains(got, "keep-id\n") || !strings.HasSuffix(got, "two\none") {
			t.Errorf("on the host: %q", got)
		}
	})
}

// Case "identity and labels": podman's options of a mount stay what they are.
func TestMountOptions(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		for _, c := range []struct{ options, want string }{
			{"rw", "wrote"}, {"ro", "refused"}, {"z", "wrote"}, {"Z", "wrote"}, {"U", "wrote"}, {"O", ""},
		} {
			t.Run(c.options, func(t *testing.T) {
				r := h.Podman("run", "--rm", "--runtime=lazaret", "-v", ws+":/workspace:"+c.options, harness.Busybox,
					"sh", "-c", "cat /workspace/README; if touch /workspace/new 2>/dev/null; then echo wrote; else echo refused; fi")
				if c.want == "" { // runsc leaves such a mount out without a word
					r.Fails(t, 126, "/workspace", "overlay")
					return
				}
				got := r.OK(t)
				if got != "one\n"+c.want {
					t.Errorf("got %q, want %s", got, c.want)
				}
				_, err := os.Lstat(filepath.Join(ws, "new"))
				if onHost := c.want == "wrote"; onHost != (err == nil) {
					t.Errorf("on the host: %v", err)
				}
				h.Sh(ws, "rm -f new").OK(t)
			})
		}
	})
}
