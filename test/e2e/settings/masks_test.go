package settings

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// Case "IDE and auto-run folders", and "protected path absent at launch": what
// .vscode and .idea hold is hidden; what is put there, by whichever way, stays in
// memory; nothing comes to the host by that name.
func TestMasks(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Sh(ws, `mkdir .vscode && echo secret > .vscode/settings.json`).OK(t)
		const attack = `
			cd /workspace
			ls -A .vscode .idea 2>/dev/null | grep -v '^$\|:'
			for d in .vscode .idea; do
				mkdir -p $d && echo '{"tasks":[]}' > $d/tasks.json && cat $d/tasks.json >/dev/null || echo cannot use $d
				mv $d moved-$d 2>/dev/null
				rm -rf $d/. 2>/dev/null
				rmdir $d 2>/dev/null
				mkdir evil-$d && echo x > evil-$d/tasks.json && mv -T evil-$d $d 2>/dev/null
				ln -s src link-$d && mv -T link-$d $d 2>/dev/null
				rm -rf evil-$d moved-$d link-$d
			done
			echo end`
		check := func(t *testing.T, got string) {
			t.Helper()
			if got != "end" {
				t.Errorf("inside: %q", got)
			}
			h.DomainEnds("default", ws)
			if got := h.Sh(ws, "ls -A; ls -A .vscode; cat .vscode/settings.json").OK(t); got != ".git\n.vscode\nREADME\nsrc\nsettings.json\nsecret" {
				t.Errorf("on the host: %q", got)
			}
		}
		t.Run("one container", func(t *testing.T) {
			check(t, h.Lazaret(ws, harness.Busybox, "sh", "-c", attack).OK(t))
		})
		t.Run("another user", func(t *testing.T) {
			got := h.Lazaret(ws, "--userns=keep-id", harness.Busybox, "sh", "-c", "ls -A /workspace/.vscode /workspace/.idea | grep -v '^$\\|:'; echo end").OK(t)
			check(t, got)
		})
		t.Run("two containers, the second of which stays", func(t *testing.T) {
			h.Detached(ws, "one", harness.Busybox, "sleep", "300")
			h.Detached(ws, "two", harness.Busybox, "sleep", "300")
			h.Podman("rm", "-f", "-t", "0", "one").OK(t)
			got := h.Podman("exec", "two", "sh", "-c", attack).OK(t)
			h.Podman("rm", "-f", "-t", "0", "two").OK(t)
			check(t, got)
		})
		t.Run("the host makes one meanwhile", func(t *testing.T) {
			h.Detached(ws, "box", harness.Busybox, "sleep", "300")
			h.Sh(ws, "mkdir -p .idea && echo mine > .idea/workspace.xml").OK(t)
			if got := h.Podman("exec", "box", "ls", "-A", "/workspace/.idea").OK(t); got != "" {
				t.Errorf("inside: %q", got)
			}
			h.Podman("rm", "-f", "-t", "0", "box").OK(t)
			h.DomainEnds("default", ws)
			if got := h.Sh(ws, "cat .idea/workspace.xml; rm -r .idea").OK(t); got != "mine" {
				t.Errorf("the host's file: %q", got)
			}
		})
		t.Run("the coordinator is killed", func(t *testing.T) {
			h.Detached(ws, "box", harness.Busybox, "sleep", "300")
			if err := syscall.Kill(h.Domain("default", ws).PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			h.Podman("rm", "-f", "-t", "0", "box").OK(t)
			check(t, h.Lazaret(ws, harness.Busybox, "sh", "-c", attack).OK(t))
		})
	})
}

// A mask covers its name, whatever the host has there.
func TestMasksOfAnyKind(t *testing.T) {
	opts := harness.Options{Config: "[profiles.more]\nmasks = [\"deep/er/still\", \"/opt/hidden\"]\n"}
	harness.Each(t, opts, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		for name, make := range map[string]string{
			"a link to a directory": `ln -s src .vscode`,
			"a link out":            `ln -s /etc .vscode`,
			"a dangling link":       `ln -s nowhere .vscode`,
			"a file":                `echo x > .vscode`,
		} {
			t.Run(name, func(t *testing.T) {
				h.Sh(ws, make).OK(t)
				before := h.Sh(ws, "ls -l; ls -l .vscode; ls src").OK(t)
				got := h.Lazaret(ws, harness.Busybox, "sh", "-c",
					"cd /workspace; ls -A .vscode/ 2>/dev/null; cat .vscode 2>/dev/null; echo x 2>/dev/null > .vscode; mkdir -p .vscode 2>/dev/null; echo x 2>/dev/null > .vscode/f; echo end").OK(t)
				if got != "end" {
					t.Errorf("inside: %q", got)
				}
				h.DomainEnds("default", ws)
				if after := h.Sh(ws, "ls -l; ls -l .vscode; ls src").OK(t); after != before {
					t.Errorf("on the host:\n%s\nbefore:\n%s", after, before)
				}
				h.Sh(ws, "rm .vscode").OK(t)
			})
		}
		t.Run("deep and absent", func(t *testing.T) {
			got := h.Lazaret(ws, "--annotation=dev.lazaret.profile=more", harness.Busybox, "sh", "-c",
				"mkdir -p /workspace/deep/er/still && echo x > /workspace/deep/er/still/f; echo x > /opt/hidden/f; ls /workspace/deep/er/still /opt/hidden").OK(t)
			if strings.Count(got, "\nf") != 2 {
				t.Errorf("inside: %q", got)
			}
			h.DomainEnds("more", ws)
			if _, err := os.Lstat(filepath.Join(ws, "deep/er/still")); err == nil {
				t.Error("what is masked came to the host")
			}
			h.Sh(ws, "rm -rf deep").OK(t)
		})
		t.Run("a link on the way", func(t *testing.T) {
			h.Sh(ws, "mkdir real && ln -s real deep").OK(t)
			h.Lazaret(ws, "--annotation=dev.lazaret.profile=more", harness.Busybox, "true").Fails(t, 126, "deep")
			if got := h.Sh(ws, "ls -A real; rm -r real deep").OK(t); got != "" {
				t.Errorf("made through the link: %q", got)
			}
		})
	})
}

// The profile's other paths, and git = "off".
func TestReadOnlyPaths(t *testing.T) {
	opts := harness.Options{Config: "[profiles.careful]\ngit = \"off\"\nread_only = [\"src\", \"README\"]\n"}
	harness.Each(t, opts, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		before := h.Sh(ws, "find . -type f | sort | xargs sha256sum").OK(t)
		got := h.Lazaret(ws, "--annotation=dev.lazaret.profile=careful", harness.Busybox, "sh", "-c", `
			cd /workspace
			for f in README src/two src/new .git/config .git/hooks/pre-commit .git/new; do echo x 2>/dev/null > $f && echo wrote $f; done
			for f in README src .git; do mv $f o 2>/dev/null && echo moved $f; rm -rf $f 2>/dev/null && echo removed $f; done
			mkdir n && mv -T n .git 2>/dev/null && echo replaced .git
			rmdir n
			cat README src/two; head -c 4 .git/HEAD`).OK(t)
		if got != "one\ntwo\nref:" {
			t.Errorf("inside: %q", got)
		}
		if after := h.Sh(ws, "find . -type f | sort | xargs sha256sum").OK(t); after != before {
			t.Errorf("on the host before:\n%s\nafter:\n%s", before, after)
		}
	})
}
