package mainpath

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// Containers of one workspace share a coordinator, whatever the workspace is
// called by; other workspaces and profiles have another.
func TestDomains(t *testing.T) {
	opts := harness.Options{Config: "[profiles.other]\n"}
	harness.Each(t, opts, func(t *testing.T, h *harness.Harness) {
		a, b := h.Workspace(), h.Workspace()
		h.Sh(h.Dir, `ln -s ws0 link; mkdir -p deep`).OK(t)
		h.Detached(a, "first", harness.Busybox, "sleep", "300")
		pid := h.Domain("default", a).PID
		for i, spelling := range []string{h.Dir + "/link", h.Dir + "/ws0/", h.Dir + "/deep/../ws0"} {
			h.Detached(spelling, "alias"+string(rune('a'+i)), harness.Busybox, "sleep", "300")
		}
		h.Detached(b, "elsewhere", harness.Busybox, "sleep", "300")
		h.Detached(a, "profile", "--annotation=dev.lazaret.profile=other", harness.Busybox, "sleep", "300")

		d := h.Domain("default", a)
		if d.PID != pid || len(d.Containers) != 4 {
			t.Errorf("domain of the workspace: coordinator %d (was %d), %d containers, want 4", d.PID, pid, len(d.Containers))
		}
		others := map[string]harness.Domain{"workspace": h.Domain("default", b), "profile": h.Domain("other", a)}
		for what, o := range others {
			if o.PID == 0 || o.PID == pid || len(o.Containers) != 1 {
				t.Errorf("domain of another %s: coordinator %d, %d containers", what, o.PID, len(o.Containers))
			}
		}
		if n := len(h.Domains()); n != 3 {
			t.Errorf("%d domains, want 3", n)
		}

		// The domain lives as long as one of its containers.
		h.Podman("rm", "-f", "-t", "0", "first", "aliasa", "aliasb").OK(t)
		if d := h.Domain("default", a); d.PID != pid || len(d.Containers) != 1 {
			t.Errorf("with one container left: coordinator %d (was %d), %d containers", d.PID, pid, len(d.Containers))
		}
		h.Podman("rm", "-f", "-t", "0", "aliasc").OK(t)
		h.DomainEnds("default", a)
		if h.Domain("default", b).PID != others["workspace"].PID || h.Domain("other", a).PID != others["profile"].PID {
			t.Error("another domain's coordinator ended too")
		}
		h.Podman("rm", "-f", "-t", "0", "elsewhere", "profile").OK(t)
		h.DomainEnds("default", b)
		h.DomainEnds("other", a)

		// The Domain Root stays for the next time, and is the developer's alone.
		for _, d := range []harness.Domain{d, others["workspace"]} {
			if fi, err := os.Stat(d.Anchor.Root); err != nil || fi.Mode().Perm() != 0o700 {
				t.Errorf("Domain Root %s: %v, %v", d.Anchor.Root, fi, err)
			}
		}
	})
}

// Without a workspace a domain is one container's, and nothing of it stays.
// (Case "running it at all": plain use as any other runtime's.)
func TestEphemeralDomain(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		h.Detached("", "one", harness.Busybox, "sh", "-c", until)
		h.Detached("", "two", harness.Busybox, "sh", "-c", until)
		domains := h.Domains()
		if len(domains) != 2 || domains[0].PID == domains[1].PID {
			t.Fatalf("domains of two containers without a workspace: %+v", domains)
		}
		if got := h.Podman("exec", "one", "sh", "-c", "test ! -e /workspace && echo $LAZARET_DOMAIN").OK(t); got != domains[0].Anchor.Hash && got != domains[1].Anchor.Hash {
			t.Errorf("domain %q", got)
		}
		// An image's VOLUME /workspace: podman makes a volume for the container.
		if got := h.Podman("run", "--rm", "--runtime=lazaret", "-v", "/workspace", harness.Busybox, "sh", "-c", "echo x >/workspace/f && cat /workspace/f").OK(t); got != "x" {
			t.Errorf("an anonymous volume: %q", got)
		}
		h.Podman("restart", "-t", "5", "one").OK(t)
		h.Podman("exec", "one", "true").OK(t)
		h.Podman("rm", "-f", "-t", "0", "one", "two").OK(t)
		h.Eventually("both Domain Roots are gone", 5e9, func() bool {
			entries, err := os.ReadDir(filepath.Join(h.DataRoot(), "domains"))
			return (err == nil || os.IsNotExist(err)) && len(entries) == 0
		})
	})
}

// What a workspace may be. (Case "running it at all": home and root are refused.)
func TestWorkspaces(t *testing.T) {
	harness.Each(t, harness.Options{Config: "[profiles.broad]\nallow_broad_workspace = true\n"}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		t.Run("read-only", func(t *testing.T) {
			got := h.Podman("run", "--rm", "--runtime=lazaret", "-v", ws+":/workspace:ro", harness.Busybox,
				"sh", "-c", "cat /workspace/README; for f in new README .vscode/x .git/config; do echo x 2>/dev/null >/workspace/$f && echo wrote $f; done; true").OK(t)
			if got != "one" {
				t.Errorf("got %q", got)
			}
		})
		t.Run("a volume", func(t *testing.T) {
			// podman keeps a named volume in a directory, which is the workspace then.
			h.Podman("run", "--rm", "--runtime=lazaret", "-v", "vol:/workspace", harness.Busybox, "sh", "-c", "echo kept > /workspace/f").OK(t)
			got := h.Podman("run", "--rm", "--runtime=lazaret", "-v", "vol:/workspace", harness.Busybox, "sh", "-c", "ls -A /workspace; cat /workspace/f").OK(t)
			if !strings.HasSuffix(got, "kept") {
				t.Errorf("got %q", got)
			}
			h.Track(h.Podman("volume", "inspect", "--format", "{{.Mountpoint}}", "vol").OK(t))
		})
		t.Run("named by an annotation", func(t *testing.T) {
			got := h.Podman("run", "--rm", "--runtime=lazaret", "--annotation=dev.lazaret.workspace="+ws, harness.Busybox, "cat", "/workspace/README").OK(t)
			if got != "one" {
				t.Errorf("got %q", got)
			}
			h.Podman("run", "--rm", "--runtime=lazaret", "--annotation=dev.lazaret.workspace="+h.Home, "-v", ws+":/workspace", harness.Busybox, "true").
				Fails(t, 126, "dev.lazaret.workspace", "make them the same")
		})
		for name, path := range map[string]string{"home": h.Home, "above home": h.Dir, "root": "/"} {
			t.Run(name, func(t *testing.T) {
				r := h.Lazaret(path, harness.Busybox, "echo", "ran")
				r.Fails(t, 126, "too broad", "allow_broad_workspace")
				if r.Stdout != "" {
					t.Errorf("it ran: %q", r.Stdout)
				}
			})
		}
		t.Run("home, where the profile says so", func(t *testing.T) {
			got := h.Lazaret(h.Home, "--annotation=dev.lazaret.profile=broad", harness.Busybox,
				"sh", "-c", "ls /workspace/.local/share/lazaret; echo x 2>/dev/null > /workspace/.config/lazaret/config.toml; ls -A /workspace").OK(t)
			if !strings.Contains(got, ".config") || strings.Contains(got, "domains") {
				t.Errorf("got %q", got)
			}
			if data, err := os.ReadFile(filepath.Join(h.Home, ".config/lazaret/config.toml")); err != nil || len(data) < 3 {
				t.Errorf("the user's configuration is now %q, %v", data, err)
			}
		})
		t.Run("Lazaret's own data", func(t *testing.T) {
			h.Lazaret(filepath.Join(h.DataRoot(), "domains"), harness.Busybox, "true").Fails(t, 126, "data_root")
		})
	})
}
