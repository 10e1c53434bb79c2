package review_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/review"
)

// tree is a workspace and its record.
type tree struct {
	t    *testing.T
	dir  string
	file string
}

func newTree(t *testing.T, files map[string]string) *tree {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tr := &tree{t, filepath.Join(dir, "ws"), review.File(filepath.Join(dir, "root"), false)}
	tr.write("src/main.go", "package main\n")
	for name, text := range files {
		tr.write(name, text)
	}
	return tr
}

func (tr *tree) path(name string) string { return filepath.Join(tr.dir, name) }

func (tr *tree) write(name, text string) {
	tr.t.Helper()
	if err := os.MkdirAll(filepath.Dir(tr.path(name)), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(tr.path(name), []byte(text), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) sh(script string) {
	tr.t.Helper()
	cmd := exec.CommandContext(tr.t.Context(), "sh", "-ec", script)
	cmd.Dir = tr.dir
	cmd.Env = append(os.Environ(), "HOME="+tr.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := cmd.CombinedOutput(); err != nil {
		tr.t.Fatalf("%s: %v: %s", script, err, out)
	}
}

func (tr *tree) options() review.Options {
	return review.For(tr.dir, os.Getuid(), gitconf.Options{Home: tr.home()})
}

// home is the developer's, beside the workspace.
func (tr *tree) home() string { return filepath.Join(filepath.Dir(tr.dir), "home") }

func (tr *tree) begin() {
	tr.t.Helper()
	if err := review.Begin(tr.t.Context(), tr.file, tr.options()); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) end() {
	tr.t.Helper()
	if err := review.End(tr.t.Context(), tr.file, tr.options()); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) look() *review.Report {
	tr.t.Helper()
	r, err := review.Look(tr.t.Context(), tr.file, tr.options())
	if err != nil {
		tr.t.Fatal(err)
	}
	return r
}

// found are the findings as lines.
func found(r *review.Report) []string {
	out := []string{}
	for _, f := range r.Findings {
		line := f.Change + " " + f.Path + " (" + f.Kind + ")"
		if len(f.Details) > 0 {
			line += ": " + strings.Join(f.Details, ", ")
		}
		out = append(out, line)
	}
	return out
}

func (tr *tree) wants(want ...string) {
	tr.t.Helper()
	if got := found(tr.look()); !slices.Equal(got, want) {
		tr.t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// Each kind of file, as it is found when it is new.
func TestKinds(t *testing.T) {
	t.Parallel()
	for kind, names := range map[string][]string{
		review.KindGit:       {".gitattributes", "sub/.gitattributes", ".gitmodules", ".lfsconfig"},
		review.KindHooks:     {".husky/_/pre-commit", ".githooks/pre-push", ".pre-commit-config.yaml", "lefthook.yml", "pkg/.lintstagedrc.json"},
		review.KindEditor:    {".vscode/tasks.json", "pkg/.vscode/tasks.json", ".Vscode/tasks.json", ".idea/workspace.xml", "x.code-workspace", ".nvim.lua", ".exrc", "a/.dir-locals.el", ".zed/tasks.json", ".eslintrc.cjs", ".prettierrc", "tests/conftest.py", ".vſcode/tasks.json"},
		review.KindAgent:     {"CLAUDE.md", "AGENTS.md", "sub/AGENTS.md", ".claude/settings.local.json", ".mcp.json", ".codex/config.toml", ".gemini/settings.json", "opencode.json", ".cursor/rules/x.mdc", ".github/copilot-instructions.md", ".clinerules/a.md"},
		review.KindShell:     {".envrc", "deep/down/.envrc", ".env", "mise.toml", ".mise/tasks/x", ".tool-versions", "flake.nix", ".bashrc", ".rvmrc", ".python-version"},
		review.KindBuild:     {"Makefile", "GNUmakefile", "rules.mk", "justfile", "Taskfile.yml", "CMakeLists.txt", "gradlew", "gradle/wrapper/gradle-wrapper.jar", ".mvn/extensions.xml", "build.rs", ".cargo/config.toml", ".npmrc", ".yarnrc.yml", ".yarn/releases/yarn.cjs", ".pnpmfile.cjs", "setup.py", "vite.config.ts", "tools/bazel", "rust-toolchain.toml", "sub/makeﬁle", "sitecustomize.py", "app.csproj", ".pnp.cjs"},
		review.KindCI:        {".github/workflows/ci.yml", ".gitlab-ci.yml", ".circleci/config.yml", "Jenkinsfile", "CODEOWNERS", "a/action.yml"},
		review.KindContainer: {".devcontainer/devcontainer.json", "Dockerfile", "Dockerfile.dev", "compose.yaml", "docker-compose.override.yml", "Vagrantfile"},
		review.KindDebugger:  {".gdbinit", ".lldbinit"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tr := newTree(t, nil)
			tr.begin()
			want := []string{}
			for _, n := range names {
				tr.write(n, "x")
				want = append(want, "added "+n+" ("+kind+")")
			}
			slices.SortFunc(want, func(a, b string) int { return strings.Compare(a[6:], b[6:]) })
			got := found(tr.look())
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
}

// What an honest session does is no news: code, commits, installed dependencies,
// settings of packages that nothing runs, and links within the tree.
func TestQuiet(t *testing.T) {
	t.Parallel()
	tr := newTree(t, map[string]string{
		"package.json":   `{"name":"x","scripts":{"test":"jest"},"dependencies":{}}`,
		"pyproject.toml": "[project]\nname = 'x'\ndependencies = []\n[build-system]\nrequires = ['hatchling']\n",
		"Cargo.toml":     "[package]\nname = 'x'\n[dependencies]\n",
		"Makefile":       "all:\n",
		".envrc":         "use flake\n",
	})
	tr.sh(`git init -q . && git add -A && git commit -qm one && git config alias.x status && echo '#!/bin/sh' >.git/hooks/pre-commit`)
	tr.begin()
	tr.write("src/main.go", "package main\n\nfunc main() {}\n")
	tr.write("package.json", "{\n  \"scripts\": { \"test\": \"jest\" },\n  \"name\": \"x\", \"dependencies\": {\"left-pad\": \"1\"}\n}")
	tr.write("pyproject.toml", "[build-system]\nrequires = ['hatchling']\n[project]\nname = 'x'\ndependencies = ['requests']\n")
	tr.write("Cargo.toml", "[package]\nname = 'x'\n[dependencies]\nserde = '1'\n")
	tr.write("node_modules/left-pad/package.json", `{"scripts":{"postinstall":"x"}}`)
	tr.write("node_modules/left-pad/Makefile", "x")
	tr.write("node_modules/left-pad/.github/workflows/ci.yml", "x")
	tr.write(".gitignore", "node_modules\n")
	tr.write("src/deep/er/x.go", "package er\n")
	tr.sh(`mkdir -p node_modules/.bin .venv/bin && ln -s ../left-pad/cli.js node_modules/.bin/ls && ln -s /usr/bin/python3 .venv/bin/python && ln -s main.go src/link && ln -s ../../main.go src/deep/er/up`)
	tr.sh(`touch Makefile .envrc && cp Makefile m2 && mv m2 Makefile`)
	tr.sh(`git add -A && git commit -qm two && git switch -qc b && git switch -q - && git merge -q b && git gc -q && git stash list && git tag v1`)
	tr.sh(`mkdir -p bin && echo x >bin/mytool-of-mine && chmod +x bin/mytool-of-mine && echo x >bin/ls`)
	tr.wants()
	tr.end()
	tr.wants()
}

// What group A of the attacks leaves where no guard is.
func TestGit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before, attack string
		want           []string
	}{
		"configuration":      {"", `git config core.fsmonitor 'touch /tmp/x'`, []string{"changed .git/config (git)"}},
		"swapped repository": {"", `cp -a .git .g2; rm -rf .git; mv .g2 .git`, []string{"changed .git/ (git): another directory is in its place"}},
		"hook":               {"", `echo x >.git/hooks/post-checkout; chmod +x .git/hooks/post-checkout`, []string{"added .git/hooks/post-checkout (hooks)"}},
		"hook, now executed": {"echo x >.git/hooks/pre-push", `chmod +x .git/hooks/pre-push`, []string{"changed .git/hooks/pre-push (hooks): executable"}},
		"hooks as a link":    {"", `rm -r .git/hooks; ln -s ../src .git/hooks`, []string{"added .git/hooks (hooks): leads to ../src"}},
		"config.worktree":    {"", `echo x >.git/config.worktree`, []string{"added .git/config.worktree (git)"}},
		"commondir":          {"", `echo /tmp/x >.git/commondir`, []string{"added .git/commondir (git)"}},
		"alternates":         {"", `echo /tmp/x >.git/objects/info/alternates`, []string{"added .git/objects/info/alternates (git)"}},
		"attributes, excludes, grafts": {
			"", `echo x >.git/info/attributes; echo .envrc >>.git/info/exclude; echo x >.git/info/grafts`,
			[]string{"added .git/info/attributes (git)", "changed .git/info/exclude (git)", "added .git/info/grafts (git)"},
		},
		"replace ref":        {"", `git replace HEAD:src/main.go $(echo evil | git hash-object -w --stdin)`, nil},
		"packed replace ref": {"", `git replace HEAD:src/main.go $(echo evil | git hash-object -w --stdin); git pack-refs --all`, nil},
		"hidden in the index": {
			"", `git update-index --assume-unchanged src/main.go; git update-index --skip-worktree a`,
			[]string{"changed .git/index (git): assume-unchanged src/main.go added, skip-worktree a added"},
		},
		"unfinished rebase": {"", `mkdir .git/rebase-merge; echo 'exec touch /tmp/x' >.git/rebase-merge/git-rebase-todo`, []string{"added .git/rebase-merge/git-rebase-todo (git)"}},
		"bisection":         {"", `git bisect start -q`, []string{"added .git/BISECT_LOG (git)", "added .git/BISECT_START (git)"}},
		"nested":            {"", `git init -q sub; git -C sub config core.fsmonitor x`, nil},
		"bare": {
			"", `mkdir -p docs/objects docs/refs; echo 'ref: refs/heads/x' >docs/HEAD; echo '[core]' >docs/config`,
			[]string{"added docs/ (git): config"},
		},
		"bare, where case does not count": {
			"", `mkdir -p docs/Objects docs/REFS; echo 'ref: refs/heads/x' >docs/head; echo '[core]' >docs/config`,
			[]string{"added docs/ (git): config"},
		},
		"nested, deep in dependencies": {"", `git init -q node_modules/x`, nil},
		"submodule":                    {"mkdir -p .git/modules/a; cp -r .git/config .git/HEAD .git/modules/a; mkdir .git/modules/a/hooks", `echo x >>.git/modules/a/config; echo x >.git/modules/a/hooks/post-checkout`, []string{"changed .git/modules/a/config (git)", "added .git/modules/a/hooks/post-checkout (hooks)"}},
		"pointer":                      {"mkdir v; echo 'gitdir: ../.git/modules/v' >v/.git", `echo 'gitdir: ../evil' >v/.git`, []string{"changed v/.git (git)"}},
		"pointer instead":              {"", `mv .git .g; echo 'gitdir: .g' >.git`, nil},
		"other worktree":               {"git worktree add -q ../other", `echo x >.git/worktrees/other/config.worktree`, []string{"added .git/worktrees/other/config.worktree (git)"}},
		"remotes":                      {"", `mkdir .git/remotes; echo 'URL: ext::x' >.git/remotes/origin`, []string{"added .git/remotes/origin (git)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTree(t, map[string]string{"a": "a"})
			tr.sh(`git init -q . && git add -A && git commit -qm one`)
			tr.sh(tt.before)
			tr.begin()
			tr.wants()
			tr.sh(tt.attack)
			if tt.want != nil {
				tr.wants(tt.want...)
			}
			tr.end()
			if got := found(tr.look()); len(got) == 0 || tt.want != nil && !slices.Equal(got, tt.want) {
				t.Errorf("after the end: found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	tr := newTree(t, map[string]string{
		"package.json":   `{"scripts":{"test":"jest","old":"x"}}`,
		"pyproject.toml": "[build-system]\nrequires = ['hatchling']\n",
		"Cargo.toml":     "[package]\nname = 'x'\n",
		"deno.jsonc":     "{ // tasks\n}",
		"composer.json":  "{}",
		"Makefile":       "all:\n", "CLAUDE.md": "x", "go/Makefile": "x",
	})
	tr.begin()
	tr.write("package.json", `{"scripts":{"test":"jest; curl x","postinstall":"x"}}`)
	tr.write("pyproject.toml", "[build-system]\nrequires = ['hatchling', 'evil']\n[tool.hatch.build.hooks.custom]\npath = 'x.py'\n")
	tr.write("Cargo.toml", "[package]\nname = 'x'\nbuild = 'evil.rs'\n")
	tr.write("deno.jsonc", "{ // other\n}")
	tr.write("composer.json", "{")
	tr.write("Makefile", "all:\n\tcurl x\n")
	tr.sh(`rm CLAUDE.md go/Makefile; ln -s ../src/main.go go/Makefile; ln -s /etc out; ln -s ../.. src/up; ln -s nowhere/../../../x src/later; mkdir d; ln -s ../.. d/way; ln -s d/way/x twice
		echo x >ls; chmod +x ls; cp /bin/sh src/tool; chmod 4755 src/tool; mkdir bin; echo x >bin/git; chmod +x bin/git; ln -s ../src .vscode; mkfifo .envrc`)
	tr.wants(
		"added .envrc (shell): is a special file",
		"added .vscode (link): leads to ../src",
		"removed CLAUDE.md (agent)",
		"changed Cargo.toml (build): package.build added",
		"changed Makefile (build)",
		"added bin/git (program)",
		"changed composer.json (build): as a whole added",
		"added d/way (link): leads to ../..",
		"changed deno.jsonc (build): as a whole changed",
		"changed go/Makefile (build): was a file, leads to ../src/main.go",
		"added ls (program)",
		"added out (link): leads to /etc",
		"changed package.json (build): scripts.postinstall added, scripts.test changed, scripts.old removed",
		"changed pyproject.toml (build): build-system.requires changed, tool.hatch.build added",
		"added src/later (link): leads to nowhere/../../../x",
		"added src/tool (mode): executable, set-user-id",
		"added src/up (link): leads to ../..",
		"added twice (link): leads to d/way/x",
	)
}

// What was not accepted stays told over later sessions, until it is as it was; the
// developer's own work between sessions is none of it.
// What git's configuration names in the tree counts, whatever it is called: by the
// developer's own configuration, or the repository's, there at the beginning or not.
func TestPlacesOfGitConfiguration(t *testing.T) {
	t.Parallel()
	tr := newTree(t, map[string]string{"tools/ci/pre-commit": "a", "tools/team.inc": "[alias]\n", "tools/other": "x"})
	tr.sh("git init -q . && git config core.hooksPath tools/ci && git config include.path ../tools/team.inc")
	if err := os.MkdirAll(tr.home(), 0o755); err != nil {
		t.Fatal(err)
	}
	global := "[include]\n\tpath = " + tr.path("dots/absent.inc") + "\n[core]\n\tattributesFile = " + tr.path("dots/attr") + "\n"
	if err := os.WriteFile(filepath.Join(tr.home(), ".gitconfig"), []byte(global), 0o600); err != nil {
		t.Fatal(err)
	}
	tr.begin()
	tr.wants()
	tr.write("tools/ci/pre-commit", "b")
	tr.write("tools/ci/post-merge", "c")
	tr.write("tools/team.inc", "[core]\n\tfsmonitor = x\n")
	tr.write("tools/other", "y")
	tr.write("moved/absent.inc", "[core]\n\tpager = x\n")
	tr.sh("mv moved dots")
	tr.write("dots/attr", "* filter=x\n")
	want := []string{
		"added dots/absent.inc (git)", "added dots/attr (git)", "added tools/ci/post-merge (hooks)",
		"changed tools/ci/pre-commit (hooks)", "changed tools/team.inc (git)",
	}
	tr.wants(want...)
	tr.end()
	tr.wants(want...)
	if _, err := review.Accept(t.Context(), tr.file, tr.options()); err != nil {
		t.Fatal(err)
	}
	tr.wants()
}

// Entries that a split index has elsewhere are read there, though the index itself is
// as it was.
func TestSplitIndex(t *testing.T) {
	t.Parallel()
	tr := newTree(t, nil)
	tr.sh("git init -q . && git add -A && git commit -qm one && git update-index --split-index")
	shared, err := filepath.Glob(tr.path(".git/sharedindex.*"))
	if err != nil || len(shared) == 0 {
		t.Fatalf("%q, %v", shared, err)
	}
	time.Sleep(2500 * time.Millisecond) // a younger one is read again anyhow
	tr.begin()
	tr.wants()
	for _, name := range shared {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(data, []byte("src/main.go")); at > 2 {
			data[at-2] |= 0x80 // assume-unchanged
		}
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := found(tr.look()); len(got) != 1 || !strings.HasPrefix(got[0], "changed .git/index (git): ") {
		t.Errorf("found %q", got)
	}
}

// What the configuration named before the agent had it stays looked at while his
// configuration names it no more, as that is soon put right.
func TestPlaceThatIsNamedNoMore(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]string{
		"another":      "git config core.hooksPath elsewhere",
		"unreadable":   "echo '[' >>.git/config",
		"no directory": "echo nowhere >.git/commondir",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTree(t, map[string]string{"tools/ci/pre-commit": "a", "tools/team.inc": "[alias]\n"})
			tr.sh("git init -q . && git config core.hooksPath tools/ci && git config include.path ../tools/team.inc && cp .git/config ../config")
			tr.begin()
			tr.wants()
			tr.write("tools/ci/pre-commit", "b")
			tr.write("tools/ci/post-merge", "c")
			tr.write("tools/team.inc", "[core]\n\tfsmonitor = x\n")
			tr.sh(attack)
			want := []string{"added tools/ci/post-merge (hooks)", "changed tools/ci/pre-commit (hooks)", "changed tools/team.inc (git)"}
			if got := found(tr.look()); len(got) != 4 || !slices.Equal(got[1:], want) {
				t.Errorf("found %q", got)
			}
			tr.end()
			tr.sh("cp ../config .git/config; rm -f .git/commondir")
			tr.wants(want...)
			tr.begin()
			tr.end()
			tr.wants(want...)
		})
	}
}

// A place that the developer's configuration names only later is no work of the
// agent's, but for what that has changed in it.
func TestPlaceThatIsNamedLater(t *testing.T) {
	t.Parallel()
	tr := newTree(t, map[string]string{"dots/old.inc": "[alias]\n"})
	tr.begin()
	if err := os.MkdirAll(tr.home(), 0o755); err != nil {
		t.Fatal(err)
	}
	global := "[include]\n\tpath = " + tr.path("dots/old.inc") + "\n\tpath = " + tr.path("dots/new.inc") + "\n"
	if err := os.WriteFile(filepath.Join(tr.home(), ".gitconfig"), []byte(global), 0o600); err != nil {
		t.Fatal(err)
	}
	tr.wants()
	tr.write("dots/new.inc", "[core]\n\tpager = x\n")
	tr.wants("added dots/new.inc (git)")
}

// Links of the tree that stand for what counts make what they lead to count, as it
// is what tools read.
func TestWhatLinksStandFor(t *testing.T) {
	t.Parallel()
	tr := newTree(t, map[string]string{
		"settings/editor/tasks.json": "{}", "settings/tasks.mak3": "all:\n", "settings/agent.txt": "a", "cfg/mise/config.toml": "", "settings/notes": "n",
	})
	tr.sh("ln -s settings/editor .vscode; ln -s settings/tasks.mak3 Makefile; ln -s \"$PWD/settings/agent.txt\" CLAUDE.md; ln -s cfg .config; ln -s . loop; ln -s .. settings/.idea")
	tr.begin()
	tr.wants()
	for _, name := range []string{"settings/editor/tasks.json", "settings/tasks.mak3", "settings/agent.txt", "cfg/mise/config.toml", "settings/notes"} {
		tr.write(name, "changed by the agent")
	}
	tr.write("settings/editor/launch.json", "{}")
	tr.wants(
		"changed cfg/mise/config.toml (shell)", "changed settings/agent.txt (agent)", "added settings/editor/launch.json (editor)",
		"changed settings/editor/tasks.json (editor)", "changed settings/tasks.mak3 (build)",
	)
}

func TestSessions(t *testing.T) {
	t.Parallel()
	tr := newTree(t, map[string]string{"Makefile": "all:\n", ".envrc": "x\n"})
	if _, err := review.Look(t.Context(), tr.file, tr.options()); !errors.Is(err, review.ErrNone) {
		t.Fatalf("before any session: %v", err)
	}
	tr.begin()
	tr.write("Makefile", "all: evil\n")
	tr.end()
	tr.write(".envrc", "my own\n")
	tr.write("justfile", "my own\n")
	tr.wants("changed Makefile (build)")
	tr.begin()
	tr.wants("changed Makefile (build)")
	tr.write("CLAUDE.md", "obey\n")
	tr.write("justfile", "evil\n")
	all := []string{"changed Makefile (build)", "added CLAUDE.md (agent)", "changed justfile (build)"}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1]) })
	tr.wants(all...)
	tr.end()
	tr.wants(all...)
	tr.write("Makefile", "all:\n")
	tr.wants(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.Contains(s, "Makefile") })...)

	r, err := review.Accept(t.Context(), tr.file, tr.options())
	if err != nil || len(r.Findings) != 2 {
		t.Fatalf("accepted %+v, %v", r, err)
	}
	tr.wants()
	tr.begin()
	tr.wants()
	tr.write(".envrc", "evil\n")
	// A coordinator that was killed has ended nothing.
	tr.begin()
	tr.wants("changed .envrc (shell)")
	tr.end()
	tr.end()
	tr.wants("changed .envrc (shell)")
}

// On a full disk the older baseline serves on, and nothing of the agent's is missed.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	root := t.TempDir()
	if err := unix.Mount("lazaret-test", root, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	fill := func() {
		t.Helper()
		f, err := os.Create(filepath.Join(root, "filler"))
		if err != nil {
			t.Fatal(err)
		}
		for block := make([]byte, 4096); err == nil; {
			_, err = f.Write(block)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	tr := newTree(t, map[string]string{"Makefile": "all:\n", ".envrc": "x\n"})
	tr.file = review.File(root, false)
	fill()
	if err := review.Begin(t.Context(), tr.file, tr.options()); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("a first baseline: %v", err)
	}
	free := func() {
		t.Helper()
		if err := os.Remove(filepath.Join(root, "filler")); err != nil {
			t.Fatal(err)
		}
	}
	free()
	tr.begin()
	tr.end()
	tr.wants()
	tr.write(".envrc", "my own\n")
	fill()
	for range 2 { // the second after a SIGKILL
		tr.begin()
		tr.write("Makefile", "all: evil\n")
		tr.wants("changed .envrc (shell)", "changed Makefile (build)")
	}
	if err := review.End(t.Context(), tr.file, tr.options()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the end: %v", err)
	}
	tr.wants("changed .envrc (shell)", "changed Makefile (build)")
	free()
	tr.begin()
	tr.write(".envrc", "x\n")
	tr.end()
	tr.wants("changed Makefile (build)")
	if _, err := review.Accept(t.Context(), tr.file, tr.options()); err != nil {
		t.Fatal(err)
	}
	tr.wants()
	if all, err := os.ReadDir(filepath.Dir(tr.file)); err != nil || len(all) != 1 {
		t.Errorf("left %v, %v", all, err)
	}
}

// A change that keeps size and times is one all the same.
func TestSameSizeAndTime(t *testing.T) {
	t.Parallel()
	tr := newTree(t, map[string]string{"Makefile": "aaaa"})
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(tr.path("Makefile"), old, old); err != nil {
		t.Fatal(err)
	}
	tr.begin()
	tr.write("Makefile", "bbbb")
	if err := os.Chtimes(tr.path("Makefile"), old, old); err != nil {
		t.Fatal(err)
	}
	tr.wants("changed Makefile (build)")
}

func TestNamesOfAllBytes(t *testing.T) {
	t.Parallel()
	tr := newTree(t, nil)
	for _, n := range []string{"\xff\xfe/Makefile", "\xff\xfd/Makefile", "a\nb/.envrc", "\u202e/.envrc", "\\xff/.envrc"} {
		tr.write(n, "x")
	}
	tr.begin()
	tr.wants()
	tr.end()
	tr.begin()
	tr.wants()
	tr.write("\xff\xfd/Makefile", "y")
	tr.wants("changed \xff\xfd/Makefile (build)")
}

func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	tr := newTree(t, map[string]string{"Makefile": "x"})
	tr.begin()
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"base":{"x":{"rule":7}}}`} {
		if err := os.WriteFile(tr.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := review.Look(t.Context(), tr.file, tr.options()); err == nil || errors.Is(err, review.ErrNone) {
			t.Errorf("record %q: %v", text, err)
		}
	}
	tr.begin()
	if r := tr.look(); r.Incomplete == "" || len(r.Findings) > 0 {
		t.Errorf("after a damaged record: %+v", r)
	}
}

// No time to look is told, and nothing that was not seen counts as removed.
func TestNoTime(t *testing.T) {
	t.Parallel()
	tr := newTree(t, map[string]string{"Makefile": "x"})
	tr.begin()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := review.Look(ctx, tr.file, tr.options())
	if err != nil || r.Incomplete == "" || len(r.Findings) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := review.End(ctx, tr.file, tr.options()); err == nil {
		t.Error("the end of a session was noted without a look")
	}
	tr.write("Makefile", "y")
	tr.wants("changed Makefile (build)")
	// Nor does a next session's beginning without time take it for how it was before.
	if err := review.Begin(late{t.Context()}, tr.file, tr.options()); err != nil {
		t.Fatal(err)
	}
	tr.wants("changed Makefile (build)")
	tr.end()
	tr.wants("changed Makefile (build)")
}

// late is a context whose time is over once somebody looks.
type late struct{ context.Context }

func (late) Err() error { return context.DeadlineExceeded }

// What lies deeper in a git directory than git makes anything is not passed over.
func TestTooDeep(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"replace ref": "refs/replace", "submodule": "modules"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTree(t, nil)
			tr.sh("git init -q .")
			tr.begin()
			tr.write(".git/"+dir+strings.Repeat("/d", 40)+"/HEAD", "x")
			if r := tr.look(); r.Incomplete == "" {
				t.Errorf("%+v", r)
			}
			if err := review.End(t.Context(), tr.file, tr.options()); err == nil {
				t.Error("the end was noted")
			}
		})
	}
}

// A tree that changes under the look, by links and directories that come and go,
// leads it nowhere else.
func TestMovingTree(t *testing.T) {
	t.Parallel()
	tr := newTree(t, nil)
	outside := filepath.Join(filepath.Dir(tr.dir), "outside")
	if err := os.MkdirAll(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"Makefile", ".envrc"} {
		if err := os.WriteFile(filepath.Join(outside, n), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr.write("d/Makefile", "x")
	tr.begin()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(tr.path("d"), tr.path("e"))
			_ = os.Symlink(outside, tr.path("d"))
			_ = os.Remove(tr.path("d"))
			_ = os.Rename(tr.path("e"), tr.path("d"))
		}
	}()
	for range 50 {
		for _, f := range tr.look().Findings {
			if f.Path == "d/.envrc" || f.Path == "d/Makefile" && f.Change == review.Changed {
				t.Fatalf("looked outside: %+v", f)
			}
		}
	}
	close(stop)
	<-done
}

func TestLinkedWorktree(t *testing.T) {
	t.Parallel()
	main := newTree(t, nil)
	main.sh(`git init -q . && git add -A && git commit -qm one && git worktree add -q ../wt`)
	tr := &tree{t, filepath.Join(filepath.Dir(main.dir), "wt"), main.file}
	tr.begin()
	main.sh(`git update-index --assume-unchanged src/main.go; git bisect start -q`) // another working tree's
	tr.wants()
	main.sh(`git config core.fsmonitor x`)
	tr.sh(`git update-index --skip-worktree src/main.go`)
	tr.wants(
		"changed "+main.dir+"/.git/config (git)",
		"changed "+main.dir+"/.git/worktrees/wt/index (git): skip-worktree src/main.go added",
	)
}

// BenchmarkBegin is what the start of a domain pays, beside the sandbox's.
func BenchmarkBegin(b *testing.B) {
	dir := b.TempDir()
	for d := range 1000 {
		at := filepath.Join(dir, fmt.Sprintf("pkg%d/sub", d))
		if err := os.MkdirAll(at, 0o755); err != nil {
			b.Fatal(err)
		}
		for f := range 20 {
			name := fmt.Sprintf("file%d.go", f)
			if f == 0 && d%20 == 0 {
				name = "Makefile"
			}
			if err := os.WriteFile(filepath.Join(at, name), []byte("x"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	for name, take := range map[string]func() error{
		"look at the beginning": func() error { _, err := review.Take(b.Context(), review.Options{Tree: dir}); return err },
		"look at the end":       func() error { _, err := review.Take(b.Context(), review.Options{Tree: dir, SetID: true}); return err },
		"with its record": func() error {
			return review.Begin(b.Context(), review.File(filepath.Join(dir, "../root"), false), review.Options{Tree: dir})
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := take(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
