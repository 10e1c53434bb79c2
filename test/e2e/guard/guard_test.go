// Package guard tests how the guard over the workspace lives and dies with its
// domain, and that no mount leads around it.
package guard

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// plant writes what git on the host would obey, below %.
const plant = `echo evil > %/.git/config 2>/dev/null && echo wrote config; mkdir -p %/.git/hooks; echo evil > %/.git/hooks/pre-commit; echo end`

func TestEveryWayLeadsThroughTheGuard(t *testing.T) {
	opts := harness.Options{Config: "[profiles.broad]\nallow_broad_workspace = true\n"}
	harness.Each(t, opts, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Sh(ws, `cp -r .git src/.git; ln -s "$PWD" ../link-to-ws`).OK(t)
		before := h.Sh(ws, "cat .git/config src/.git/config; ls .git/hooks src/.git/hooks").OK(t)
		link := filepath.Join(filepath.Dir(ws), "link-to-ws")
		for name, tt := range map[string]struct {
			args []string
			at   string
		}{
			"the workspace":       {nil, "/workspace"},
			"a directory of it":   {[]string{"-v", ws + "/src:/x"}, "/x"},
			"once more":           {[]string{"-v", ws + ":/x"}, "/x"},
			"its git directory":   {[]string{"-v", ws + "/.git:/x/.git"}, "/x"},
			"by a symbolic link":  {[]string{"-v", link + "/src:/x"}, "/x"},
			"as another user":     {[]string{"--userns=keep-id"}, "/workspace"},
			"below the workspace": {[]string{"-v", ws + "/src:/workspace/src/deeper"}, "/workspace/src/deeper"},
		} {
			t.Run(name, func(t *testing.T) {
				args := append(append([]string{}, tt.args...), harness.Busybox, "sh", "-c", strings.ReplaceAll(plant, "%", tt.at))
				if got := h.Lazaret(ws, args...).OK(t); got != "end" {
					t.Errorf("inside: %q", got)
				}
				h.DomainEnds("default", ws)
				h.Sh(ws, "rm -rf src/deeper").OK(t)
				if after := h.Sh(ws, "cat .git/config src/.git/config; ls .git/hooks src/.git/hooks").OK(t); after != before {
					t.Errorf("on the host:\n%s\nbefore:\n%s", after, before)
				}
			})
		}
		t.Run("read-only stays read-only", func(t *testing.T) {
			h.Podman("run", "--rm", "--runtime=lazaret", "-v", ws+":/workspace:ro", harness.Busybox, "touch", "/workspace/new").Exit(t, 1)
		})
		t.Run("what the guard tells", func(t *testing.T) {
			if got := h.Lazaret(ws, harness.Busybox, "sh", "-c", "cat /run/lazaret/guard/refusals; echo x > /run/lazaret/guard/refusals; echo end").Exit(t, 0); !strings.HasSuffix(got, "end") {
				t.Errorf("got %q", got)
			}
		})
		up := filepath.Dir(ws)
		t.Run("what holds it is refused", func(t *testing.T) {
			h.Lazaret(ws, "-v", up+":/x", harness.Busybox, "true").Fails(t, 126, "way around its guard", ws)
			h.Lazaret(ws, "-v", up+":/x:ro", harness.Busybox, "true").Fails(t, 126, "way around its guard")
			h.Lazaret(ws, "-v", up+":/x", "--annotation=dev.lazaret.profile=broad", harness.Busybox, "true").Fails(t, 126, "way around its guard")
			h.Lazaret(ws, "-v", up+":/x:ro", "--annotation=dev.lazaret.profile=broad", harness.Busybox, "ls", "/x").OK(t)
			h.DomainEnds("broad", ws)
		})
		h.Sh(ws, "rm -r src/.git ../link-to-ws").OK(t)
	})
}

// With a shell's usual limit of open files the agent can have more open than that,
// in a tree that is larger still.
func TestManyFilesOpen(t *testing.T) {
	h := harness.New(t, harness.Options{CommandTime: 10 * time.Minute})
	ws := h.Workspace()
	h.Sh(ws, `for d in $(seq 10); do mkdir many$d; (cd many$d; for f in $(seq 200); do echo $d $f >$f; done); done`).OK(t)
	got := h.Sh(ws, `ulimit -Sn 1024 && exec podman "$@"`, append(h.LazaretArgs(ws), "-w", "/workspace", harness.Debian, "perl", "-e", `
		for (glob "many*/*") { open my $f, "+<", $_ or die "$_: $! with ".@open." open"; push @open, [$_, $f] }
		for (@open) { my ($name, $f) = @$_; $name =~ s,many(\d+)/,$1 ,; <$f> eq "$name\n" or die "$name: $!" }
		print scalar @open`)...).OK(t)
	if got != "2000" {
		t.Errorf("%s files are open, want 2000", got)
	}
}

// An agent that changes a directory for a link, again and again, does not lead
// another container's mount of it anywhere.
func TestSwappedSource(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		secret := filepath.Join(filepath.Dir(ws), "secret")
		h.Sh(ws, `mkdir -p d ../secret && echo mine >d/file && echo key >../secret/file`).OK(t)
		h.Detached(ws, "swapper", harness.Busybox, "sh", "-c",
			"cd /workspace; ln -s "+secret+" l; while :; do mv d e; mv l d; sleep 0.03; mv d l; mv e d; sleep 0.03; done")
		shown, refused := 0, 0
		for range 12 {
			r := h.Lazaret(ws, "-v", ws+"/d:/x", harness.Busybox, "cat", "/x/file")
			switch {
			case strings.Contains(r.Stdout, "key"):
				t.Fatalf("a file outside the workspace was shown: %+v", r)
			case r.Code == 0 && strings.TrimSpace(r.Stdout) == "mine":
				shown++
			default:
				refused++
			}
		}
		t.Logf("%d shown, %d refused", shown, refused)
		h.Podman("rm", "-f", "-t", "0", "swapper").OK(t)
		h.Sh(ws, `rm -rf d e l && ln -s ../secret d`).OK(t)
		h.Lazaret(ws, "-v", ws+"/d:/x", harness.Busybox, "cat", "/x/file").Fails(t, 126, "an agent could have made that link", "d")
		h.DomainEnds("default", ws)
	})
}

// With the guard gone nothing shows in its place, for nobody, until the last of
// its sandboxes has ended.
func TestKilled(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		cutOff := func(t *testing.T) {
			t.Helper()
			r := h.Podman("exec", "box", "sh", "-c", "cat /workspace/README; ls /workspace; echo x > /workspace/new")
			if r.Stdout != "" || r.Code == 0 {
				t.Errorf("behind a dead guard: exit %d, %q", r.Code, r.Stdout)
			}
			if _, err := os.Lstat(filepath.Join(ws, "new")); err == nil {
				t.Error("written past a dead guard")
			}
		}
		again := func(t *testing.T) {
			t.Helper()
			h.Podman("rm", "-f", "-t", "0", "box").OK(t)
			h.Eventually("the domain ends", 15*time.Second, func() bool { return h.Domain("default", ws).PID == 0 })
			if got := h.Lazaret(ws, harness.Busybox, "cat", "/workspace/README").OK(t); got != "one" {
				t.Errorf("got %q", got)
			}
			h.DomainEnds("default", ws)
		}
		t.Run("the guard", func(t *testing.T) {
			h.Detached(ws, "box", harness.Busybox, "sleep", "300")
			g := h.Domain("default", ws).Guard
			if g.State != "serving" {
				t.Fatalf("guard %+v", g)
			}
			if err := syscall.Kill(g.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			h.Eventually("its death is told", 10*time.Second, func() bool { return h.Domain("default", ws).Guard.State == "dead" })
			cutOff(t)
			h.Lazaret(ws, harness.Busybox, "true").Fails(t, 126, "its guard was killed", "first")
			again(t)
		})
		t.Run("the coordinator", func(t *testing.T) {
			h.Detached(ws, "box", harness.Busybox, "sleep", "300")
			d := h.Domain("default", ws)
			if err := syscall.Kill(d.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			h.Eventually("the guard ends too", 10*time.Second, func() bool { return syscall.Kill(d.Guard.PID, 0) != nil })
			cutOff(t) // the exec brings a coordinator
			h.Lazaret(ws, harness.Busybox, "true").Fails(t, 126, "its guard was killed", "first")
			again(t)
		})
		t.Run("all at once", func(t *testing.T) {
			h.Detached(ws, "box", harness.Busybox, "sleep", "300")
			d := h.Domain("default", ws)
			for _, pid := range []int{d.PID, d.Guard.PID} {
				// The guard may be faster: it ends with the coordinator.
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					t.Fatal(err)
				}
			}
			h.Podman("rm", "-f", "-t", "0", "box").OK(t)
			other := h.Workspace() // a start in another domain clears up
			h.Lazaret(other, harness.Busybox, "true").OK(t)
			if got := h.Lazaret(ws, harness.Busybox, "cat", "/workspace/README").OK(t); got != "one" {
				t.Errorf("got %q", got)
			}
			h.DomainEnds("default", ws)
			h.DomainEnds("default", other)
		})
		t.Run("the profile has changed", func(t *testing.T) {
			h.Detached(ws, "box", harness.Busybox, "sleep", "300")
			h.Config("[runtime]\nsandbox = \"" + h.Sandbox + "\"\n[profiles.default]\nmasks = [\"secret\"]\n")
			h.Lazaret(ws, harness.Busybox, "true").Fails(t, 126, "have changed since container", "end it first")
			again(t)
		})
	})
}

func TestRootful(t *testing.T) {
	harness.Each(t, harness.Options{Rootful: true}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		got := h.Lazaret(ws, "--network=none", harness.Busybox, "sh", "-c", strings.ReplaceAll(plant, "%", "/workspace")).OK(t)
		if got != "end" {
			t.Errorf("inside: %q", got)
		}
		h.DomainEnds("default", ws)
		if got := h.Sh(ws, "cat .git/config .git/hooks/* 2>/dev/null").OK(t); strings.Contains(got, "evil") {
			t.Errorf("on the host: %q", got)
		}
	})
}

// Who commits in a sandbox is who commits beside it, also where only the developer's
// own settings name him.
func TestCommitsAreTheDevelopers(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Sh(ws, `git config --unset-all user.name; git config --unset-all user.email
git config --global user.name 'D. "Dev" Developer' && git config --global user.email dev@example.test`).OK(t)
		h.Lazaret(ws, harness.Debian, "sh", "-c", "cd /workspace && echo x >new && git add new && git commit -qm inside").OK(t)
		if got := h.Sh(ws, "git log -1 '--format=%an, %ae: %s'").OK(t); got != `D. "Dev" Developer, dev@example.test: inside` {
			t.Errorf("the host has %q", got)
		}
		h.Sh(ws, "git fsck --strict && git status --short").OK(t)
	})
}
