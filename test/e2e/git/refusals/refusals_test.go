// Package refusals holds the end-to-end tests of what git says where the guard
// over the workspace refuses what it wants to write.
package refusals

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// Case "everyday git under the guard": what is refused ends with one explanation,
// a status other than 0 and no half-done state; what only brings a setting along
// works without it.
func TestRefusedCommands(t *testing.T) {
	// One of these commands is dozens of git's.
	harness.Each(t, harness.Options{CommandTime: 10 * time.Minute}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Sh(ws, `
			git init -q --bare ../far.git
			git remote add origin "$PWD/../far.git"
			git push -q origin main:main main:one main:two main:three
			git fetch -q origin
			git branch mine
			git branch -q --track tracked origin/one
		`).OK(t)
		before := h.Sh(ws, "cat .git/config; git for-each-ref; git symbolic-ref HEAD; git status --porcelain").OK(t)
		h.Detached(ws, "box", harness.Debian, "sleep", "600")
		defer h.Podman("rm", "-f", "-t", "0", "box")
		in := func(script string) harness.Result {
			return h.Podman("exec", "-w", "/workspace", "box", "sh", "-c", script)
		}
		in("git config --global --add safe.directory '*'").OK(t)
		t.Run("a status finds the host's index true", func(t *testing.T) {
			index := h.Sh(ws, "sleep 1; git status; sha256sum .git/index").OK(t)
			in("git status; cd src; git diff --quiet HEAD").OK(t)
			h.Podman("run", "--rm", "--runtime=lazaret", "-v", ws+":/workspace", "-w", "/workspace", harness.Debian, "git", "-c", "safe.directory=*", "status").OK(t)
			if after := h.Sh(ws, "git status; sha256sum .git/index").OK(t); after != index {
				t.Errorf("the index was\n%s\nand is\n%s", index, after)
			}
			if got := in("env GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=mine git config user.name; git config core.checkStat").OK(t); got != "mine\nminimal" {
				t.Errorf("got %q", got)
			}
			// Only there: in other repositories numbers tell a change within a second.
			if got := in("git init -q /tmp/other; git -C /tmp/other config core.checkStat || echo none").OK(t); got != "none" {
				t.Errorf("in another repository: got %q", got)
			}
		})
		t.Run("configuration of one's own by variables is kept", func(t *testing.T) {
			own := []string{"-e", "GIT_CONFIG_COUNT=2", "-e", "GIT_CONFIG_KEY_0=user.name", "-e", "GIT_CONFIG_VALUE_0=a", "-e", "GIT_CONFIG_KEY_1=user.email", "-e", "GIT_CONFIG_VALUE_1=b"}
			script := "git config user.name; git config user.email; git config core.checkStat || echo none"
			ran := h.Podman(slices.Concat(h.LazaretArgs(ws), own, []string{harness.Debian, "sh", "-c", script})...).OK(t)
			executed := h.Podman(slices.Concat([]string{"exec"}, own, []string{"box", "sh", "-c", script})...).OK(t)
			if ran != "a\nb\nnone" || executed != ran {
				t.Errorf("run %q, exec %q", ran, executed)
			}
		})
		t.Run("refused", func(t *testing.T) {
			for _, command := range []string{
				"config a.b c", "config --unset remote.origin.url", "remote add x https://x.example/y", "remote rm origin",
				"remote rename origin other", "remote set-url origin /x", "branch -m mine yours", "branch -c mine yours",
				"branch -u origin/one mine", "branch --track other origin/one", "checkout --track origin/one",
				"checkout -b other --track origin/one", "switch -t origin/one", "push -u origin main:four",
				"fetch --set-upstream origin one", "sparse-checkout set src", "submodule add /x sub", "worktree add --track -b w /tmp/w origin/one",
			} {
				r := in("git " + command)
				if r.Code == 0 || strings.Count(r.Stderr, "lazaret:") != 1 || !strings.Contains(r.Stderr, `lazaret-escalate -j "why" -- git `+command) {
					t.Errorf("git %s: exit %d\n%s", command, r.Code, r.Stderr)
				}
			}
			after := h.Sh(ws, "cat .git/config; git for-each-ref; git symbolic-ref HEAD; git status --porcelain").OK(t)
			if after != before {
				t.Errorf("the host's repository was\n%s\nand is\n%s", before, after)
			}
		})
		t.Run("works without the setting", func(t *testing.T) {
			for i, command := range []string{
				"checkout one", "switch two", "checkout -b new%d origin/three", "branch new%d origin/three", "switch -c new%d origin/one", "checkout main",
			} {
				if strings.Contains(command, "%d") {
					command = fmt.Sprintf(command, i)
				}
				r := in("git " + command)
				if r.Code != 0 || strings.Contains(r.Stderr, "lazaret:") || strings.Contains(r.Stderr, "error:") {
					t.Errorf("git %s: exit %d\n%s", command, r.Code, r.Stderr)
				}
			}
			if got := h.Sh(ws, "git branch --list one two 'new*' | wc -l").OK(t); strings.TrimSpace(got) != "5" {
				t.Errorf("%s branches, want 5", got)
			}
			if r := in("git branch -D one"); r.Code != 0 || r.Stderr != "" {
				t.Errorf("branch -D of one without settings: exit %d\n%s", r.Code, r.Stderr)
			}
			r := in("git branch -D tracked")
			if r.Code != 0 || strings.Count(r.Stderr, "lazaret:") != 1 || !strings.Contains(r.Stderr, "all but change") {
				t.Errorf("branch -D: exit %d\n%s", r.Code, r.Stderr)
			}
		})
		t.Run("elsewhere nothing is refused", func(t *testing.T) {
			r := in(`set -e
				for d in /tmp/r /workspace/own; do
					git init -q -b main $d && cd $d
					git config user.name a && git config user.email a@b && git commit -q --allow-empty -m 1
					git branch x && git branch -m x y && git remote add z /workspace && git fetch -q z
					git checkout -q -b t --track z/two && git config branch.t.remote
				done`)
			if r.Code != 0 || strings.Contains(r.Stderr, "lazaret:") || r.Stdout != "z\nz\n" {
				t.Errorf("exit %d: %s\n%s", r.Code, r.Stdout, r.Stderr)
			}
		})
		t.Run("everyday commands say nothing of ours", func(t *testing.T) {
			r := in(`set -e
				git config --global user.name a; git config --global user.email a@b
				git status; git log --oneline; git diff; git switch -q -c work; echo x >f; git add f; git commit -q -m f
				echo y >>f; git stash -q; git stash pop -q; git checkout -q f; git tag v; git rebase -q main; git reset -q --hard HEAD
				git gc -q; git switch -q main; git merge -q work; git blame f; git worktree add -q /tmp/wt; git branch -v; git reflog >/dev/null`)
			if r.Code != 0 || strings.Contains(r.Stderr, "lazaret:") {
				t.Errorf("exit %d\n%s", r.Code, r.Stderr)
			}
		})
		t.Run("a login shell has the image's git", func(t *testing.T) {
			if got := in("command -v git; bash -lc 'command -v git'; git --version").OK(t); !strings.HasPrefix(got, "/run/lazaret/bin/git\n") {
				t.Errorf("got %q", got)
			}
		})
	})
}

// An image without git has none of ours either.
func TestNoGit(t *testing.T) {
	h := harness.New(t, harness.Options{})
	got := h.Lazaret(h.Workspace(), harness.Busybox, "sh", "-c", "command -v git || echo none; echo $PATH").OK(t)
	if !strings.HasPrefix(got, "none\n") || strings.Contains(got, "/run/lazaret/bin") {
		t.Errorf("got %q", got)
	}
}
