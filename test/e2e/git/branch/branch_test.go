// Package branch tests the other two settings of a profile's git, and how
// repositories that were born in a sandbox come to the host: what the agent can do in
// there, and what the developer then does with `lazaret git`.
package branch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// own is everything of the developer's that the agent must leave alone.
const own = `git symbolic-ref HEAD; git rev-parse HEAD main other; git status --porcelain; git ls-files -s; cat README; sha256sum .git/config .git/HEAD; ls -A .git/hooks; git stash list`

// attacks are tried where git in the sandbox says that its directories are.
const attacks = `
	cd /workspace
	git=$(git rev-parse --absolute-git-dir) common=$(cd "$(git rev-parse --git-common-dir)" && pwd)
	id=$(git rev-parse HEAD)
	{
		git checkout main; git update-ref refs/heads/main "$id"; git branch -f other "$id"; git tag -f stolen; git stash
		git update-ref refs/heads/lazaret/agent-other "$id"; git symbolic-ref refs/heads/x refs/heads/main
		for f in "$common/config" "$common/HEAD" "$common/index" "$common/packed-refs" "$common/refs/heads/main" "$common/refs/heads/other" "$common/info/attributes" "$common/hooks/pre-commit" "$git/commondir" "$git/gitdir" "$git/config.worktree" .git; do
			echo evil >"$f"; echo evil >/tmp/e; mv -f /tmp/e "$f"; cp -f "$common/description" "$f"
		done
		rm -f .git "$common/HEAD" "$common/refs/heads/main"; mv "$common/refs" "$common/r2"; mv .git .g2; mkdir .git
		printf '%s refs/heads/main\n' "$id" >"$common/packed-refs.lock"; mv -f "$common/packed-refs.lock" "$common/packed-refs"
		rm -f "$common/packed-refs.lock" # to hold it is in its power
	} >/dev/null 2>&1
	git rev-parse --abbrev-ref HEAD
`

func TestBranch(t *testing.T) {
	harness.Each(t, harness.Options{Config: "[profiles.default]\ngit = \"branch\"\n"}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		h.Sh(ws, `git branch other HEAD~1; git config core.logAllRefUpdates true; echo uncommitted >>README; echo new >untracked`).OK(t)
		before := h.Sh(ws, own).OK(t)
		in := func(script string) string {
			t.Helper()
			args := append(h.LazaretArgs(ws), "-w", "/workspace", "-e", "HOME=/tmp", harness.Debian, "sh", "-ec", script)
			return h.Podman(args...).OK(t)
		}
		lazaret := func(args ...string) harness.Result {
			return h.Sh(ws, `lazaret=$1; shift; exec "$lazaret" git "$@"`, append([]string{filepath.Join(h.Prefix, "bin/lazaret")}, args...)...)
		}
		same := func(t *testing.T) {
			t.Helper()
			if after := h.Sh(ws, own).OK(t); after != before {
				t.Errorf("the developer had\n%s\nand has\n%s", before, after)
			}
		}
		t.Run("begins at the host's commit", func(t *testing.T) {
			got := in(`git rev-parse --abbrev-ref HEAD; cat README; ls -A; git status --porcelain`)
			if got != "lazaret/agent-default\none\n.git\nREADME\nsrc" {
				t.Errorf("got %q", got)
			}
			same(t)
		})
		t.Run("commits show, and are kept", func(t *testing.T) {
			in(`echo agent >agent; git add agent; git commit -qm agent; git gc -q`)
			if got := h.Sh(ws, `git log --format=%s main..lazaret/agent-default`).OK(t); got != "agent" {
				t.Errorf("on the host: %q", got)
			}
			if got := in(`cat agent; git log -1 --format=%s`); got != "agent\nagent" {
				t.Errorf("in the next session: %q", got)
			}
			same(t)
		})
		t.Run("sessions share it", func(t *testing.T) {
			h.Podman("run", "-d", "--name=first", "--runtime=lazaret", "-v", ws+":/workspace", harness.Debian, "sleep", "1000").OK(t)
			in(`echo second >second; git add second; git commit -qm second`)
			got := h.Podman("exec", "-w", "/workspace", "first", "sh", "-ec", "cat second; git log -1 --format=%s").OK(t)
			if got != "second\nsecond" {
				t.Errorf("the first session sees %q", got)
			}
			if r := lazaret("rebase"); r.Code == 0 {
				t.Errorf("rebased below a session: %s", r.Stdout)
			}
			h.Podman("rm", "-f", "-t", "0", "first").OK(t)
			same(t)
		})
		t.Run("nothing else can be written", func(t *testing.T) {
			if got := in("set +e" + attacks); got != "lazaret/agent-default" {
				t.Errorf("the sandbox is on %q", got)
			}
			same(t)
			if got := h.Sh(ws, `git for-each-ref --format='%(refname)' refs/heads refs/stash; git fsck --strict`).OK(t); got != "refs/heads/lazaret/agent-default\nrefs/heads/main\nrefs/heads/other" {
				t.Errorf("refs are\n%s", got)
			}
		})
		h.DomainEnds("default", ws)
		t.Run("the developer takes it over", func(t *testing.T) {
			if got := lazaret("status").OK(t); !strings.Contains(got, "lazaret/agent-default") {
				t.Errorf("status: %s", got)
			}
			if got := lazaret("log", "--", "--format=%s").OK(t); got != "second\nagent" {
				t.Errorf("log: %q", got)
			}
			if got := lazaret("diff", "--", "--name-only").OK(t); got != "agent\nsecond" {
				t.Errorf("diff: %q", got)
			}
			h.Sh(ws, `git stash -q; echo mine >mine; git add mine; git commit -qm mine`).OK(t)
			lazaret("rebase").OK(t)
			lazaret("merge", "--", "--ff-only").OK(t)
			if got := h.Sh(ws, `git log --format=%s; git stash pop -q; cat agent second mine untracked; tail -1 README`).OK(t); got != "second\nagent\nmine\ntwo\none\nagent\nsecond\nmine\nnew\nuncommitted" {
				t.Errorf("got %q", got)
			}
			lazaret("drop", "--yes").OK(t)
			if got := h.Sh(ws, `git branch --list 'lazaret/*'; git worktree list | wc -l`).OK(t); strings.TrimSpace(got) != "1" {
				t.Errorf("left: %q", got)
			}
		})
		t.Run("refused, with the reason", func(t *testing.T) {
			for name, tt := range map[string]struct{ script, word string }{
				"without a commit":  {`rm -rf .git && git init -q -b main`, "commit"},
				"a branch lazaret":  {`git branch lazaret`, "lazaret"},
				"not a repository":  {`rm -rf .git`, "repository"},
				"an unfinished one": {`rm .git/HEAD`, "repository"},
			} {
				bad := h.Workspace()
				h.Sh(bad, tt.script).OK(t)
				if r := h.Lazaret(bad, harness.Busybox, "true"); r.Code != 126 || !strings.Contains(r.Stderr, tt.word) {
					t.Errorf("%s: exit %d, %s", name, r.Code, r.Stderr)
				}
			}
		})
	})
}

// Every kind of repository gives the agent a branch that can be worked on, and stays
// as it is; with git = "sentry" the agent works in the repository itself.
func TestEachKind(t *testing.T) {
	h := harness.New(t, harness.Options{CommandTime: 10 * time.Minute, Config: "[profiles.default]\ngit = \"branch\"\n[profiles.itself]\ngit = \"sentry\"\n"})
	for _, tt := range []struct {
		name, script string
		inside, want string // a script before the agent's commit, and what it says
	}{
		{
			"detached HEAD", `git checkout -q --detach; git commit -q --allow-empty -m aside`,
			`git log -1 --format=%s`, "aside",
		},
		{
			"shallow", `git commit -q --allow-empty -m third; git clone -q --depth=1 "file://$PWD" ../s; rm -rf .git; mv ../s/.git .; rm -r ../s; git config user.name d; git config user.email d@example.test`,
			`git log --format=%s; git rev-parse --is-shallow-repository`, "third\ntrue",
		},
		{
			"sparse", `mkdir out; echo x >out/x; git add out; git commit -q -m out; git sparse-checkout set src`,
			`ls; git sparse-checkout list`, "README\nsrc\nsrc",
		},
		{
			"large files", `echo '*.bin filter=lfs diff=lfs merge=lfs -text' >.gitattributes; printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 5\n' 0 >x.bin; git add .; git commit -q -m large`,
			`head -1 x.bin`, "version https://git-lfs.github.com/spec/v1",
		},
		{
			"submodules", `git clone -q . ../sub; git -c protocol.file.allow=always submodule --quiet add "file://$PWD/../sub" sub; git commit -q -m sub`,
			`ls -A sub; git submodule status | cut -c1`, "-",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ws := h.Workspace()
			h.Sh(ws, tt.script).OK(t)
			const seen = `cat .git/HEAD .git/config; git for-each-ref refs/heads/main; git ls-files -s; git status --porcelain; find . -path ./.git -prune -o -print | sort`
			before := h.Sh(ws, seen).OK(t)
			args := append(h.LazaretArgs(ws), "-w", "/workspace", "-e", "HOME=/tmp", harness.Debian, "sh", "-ec",
				tt.inside+`; git status --porcelain; echo agent >src/agent; git add src; git commit -q -m agent; git fsck --strict 2>&1; git rev-parse --abbrev-ref HEAD`)
			if got := h.Podman(args...).OK(t); got != tt.want+"\nlazaret/agent-default" {
				t.Errorf("inside: %q", got)
			}
			h.DomainEnds("default", ws)
			if got := h.Sh(ws, `git log --format=%s HEAD..lazaret/agent-default; git diff --name-only HEAD lazaret/agent-default`).OK(t); got != "agent\nsrc/agent" {
				t.Errorf("on the host: %q", got)
			}
			if after := h.Sh(ws, seen).OK(t); after != before {
				t.Errorf("the developer had\n%s\nand has\n%s", before, after)
			}

			args = append(h.LazaretArgs(ws), "--annotation=dev.lazaret.profile=itself", "-w", "/workspace", "-e", "HOME=/tmp", harness.Debian, "sh", "-ec", `
				git config --global user.name agent; git config --global user.email agent@example.test
				if [ -e sub/.git ]; then (cd sub; echo agent >agent; git add agent; git commit -q -m agent; git fsck --strict 2>&1); fi
				echo agent >src/agent; git add .; git commit -q -m agent; git fsck --strict 2>&1; git status --porcelain`)
			if got := h.Podman(args...).OK(t); got != "" {
				t.Errorf("inside the repository itself: %q", got)
			}
			h.DomainEnds("itself", ws)
			if got := h.Sh(ws, `git log -1 --format=%s; git submodule --quiet foreach 'git log -1 --format=%s; git status --porcelain'; git status --porcelain; git fsck --strict 2>&1`).OK(t); strings.Trim(got, "agent\n") != "" || !strings.HasPrefix(got, "agent") {
				t.Errorf("on the host: %q", got)
			}
		})
	}
}

// A repository that was born in the sandbox is not on the host until it is exported,
// and then without what it would have git run.
func TestExport(t *testing.T) {
	h := harness.New(t, harness.Options{})
	ws := h.Workspace()
	args := append(h.LazaretArgs(ws), "-w", "/workspace", "-e", "HOME=/tmp", harness.Debian, "sh", "-ec", `
			git init -q -b main born && cd born && git config user.name a && git config user.email a@example.test
			git config core.fsmonitor 'touch /workspace/born/canary #' && printf '#!/bin/sh\ntouch canary\n' >.git/hooks/post-checkout && chmod 755 .git/hooks/post-checkout
			echo x >x && git add x && git commit -qm born; rm -f canary`)
	h.Podman(args...).OK(t)
	h.DomainEnds("default", ws)
	at := `cd born; git rev-parse --show-toplevel; git status --porcelain . >/dev/null; ls -A`
	if got := h.Sh(ws, at).OK(t); got != ws+"\nx" {
		t.Errorf("before: %q", got)
	}
	lazaret := filepath.Join(h.Prefix, "bin/lazaret")
	if got := h.Sh(ws, `"$1" git export --list`, lazaret).OK(t); !strings.Contains(got, "born") {
		t.Errorf("waits: %q", got)
	}
	h.Sh(ws, `"$1" git export born`, lazaret).OK(t)
	got := h.Sh(ws, at+`; git log --format=%s; git status --porcelain; git checkout -q -b y; git config core.fsmonitor || true; ls .git/hooks 2>/dev/null || true; test ! -e canary`).OK(t)
	if got != ws+"/born\n.git\nx\nborn" {
		t.Errorf("after: %q", got)
	}
}

// With git off nothing of a git directory can be written.
func TestOff(t *testing.T) {
	h := harness.New(t, harness.Options{Config: "[profiles.default]\ngit = \"off\"\n"})
	ws := h.Workspace()
	before := h.Sh(ws, `find .git -type f | sort | xargs sha256sum`).OK(t)
	got := h.Lazaret(ws, harness.Busybox, "sh", "-c", `
		cd /workspace; for f in HEAD index refs/heads/main refs/heads/x objects/x config hooks/pre-commit logs/HEAD new; do
			echo evil 2>/dev/null >.git/$f && echo wrote $f; done
		mv .git .g2 2>/dev/null && echo moved; echo y >y; cat .git/HEAD`).OK(t)
	if got != "ref: refs/heads/main" {
		t.Errorf("inside: %q", got)
	}
	h.DomainEnds("default", ws)
	if after := h.Sh(ws, `rm y; find .git -type f | sort | xargs sha256sum`).OK(t); after != before {
		t.Errorf("the git directory was\n%s\nand is\n%s", before, after)
	}
}
