// Package sides owns what the git tests compare: the same sandbox with plain runsc (or runc)
// on a plain bind and with Lazaret, each with its own copy of one repository, and
// what either left of it on the host.
package sides

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// Side is one way to run a sandbox over a workspace of its own.
type Side struct {
	Name      string
	Workspace string
	h         *harness.Harness
	args      []string
}

// Both makes the two sides, in directories whose names begin with name. script
// makes the repository, as the user, in an empty directory; it runs once, and the
// other side gets a copy.
func Both(t *testing.T, h *harness.Harness, name, script string) (plain, lazaret Side) {
	t.Helper()
	plain = Side{Name: "plain", Workspace: filepath.Join(h.Dir, name+"-plain"), h: h, args: []string{"--runtime=" + h.Sandbox}}
	switch {
	case h.Runc():
		plain.args = []string{"--runtime=runc"}
	case h.Debian():
		plain.args = append(plain.args, "--runtime-flag=ignore-cgroups", "--runtime-flag=network=none") // it would open podman's namespace
	default:
		plain.args = append(plain.args, "--runtime-flag=ignore-cgroups", "--runtime-flag=overlay2=none") // as Lazaret does
	}
	lazaret = Side{Name: "lazaret", Workspace: filepath.Join(h.Dir, name+"-guarded"), h: h, args: []string{"--runtime=lazaret"}}
	h.Run("mkdir", plain.Workspace).OK(t)
	h.Sh(plain.Workspace, script).OK(t)
	h.Run("cp", "-a", plain.Workspace, lazaret.Workspace).OK(t)
	h.Track(lazaret.Workspace)
	return plain, lazaret
}

// Run is podman run --rm of a command in the workspace; args begin with podman's
// own, then the image.
func (s Side) Run(args ...string) harness.Result {
	run := slices.Concat(s.args, []string{"run", "--rm", "--network=none", "-v", s.Workspace + ":/workspace", "-w", "/workspace"}, args)
	return s.h.Podman(run...)
}

// Start keeps a container of this side up; Exec runs commands in it.
func (s Side) Start(t *testing.T, name string, args ...string) {
	t.Helper()
	run := slices.Concat(s.args, []string{"run", "-d", "--name=" + name, "--network=none", "-v", s.Workspace + ":/workspace", "-w", "/workspace"}, args)
	s.h.Podman(append(run, "sleep", "100000")...).OK(t)
}

// execTime is for a whole script inside, on a busy machine.
const execTime = 75 * time.Minute

// Exec is podman exec in a container that Start made.
func (s Side) Exec(name string, args ...string) harness.Result {
	ctx, cancel := context.WithTimeout(context.Background(), execTime)
	defer cancel()
	return harness.Do(s.h.Command(ctx, "podman", slices.Concat(s.args, []string{"exec", name}, args)...))
}

// state asks the host's git, and looks at the files themselves. Reflogs hold
// whose name and when, objects are named by their content.
var state = []struct{ name, script string }{
	{"HEAD", `cat .git/HEAD`},
	{"references", `git for-each-ref --format='%(refname) %(objectname) %(symref)'`},
	{"reflogs", `cd .git/logs && find . -type f | sort | while read -r f; do echo "== $f"; sed -E "s/> [0-9]+ /> TIME /" "$f"; done`},
	{"index", `git ls-files --stage -t`},
	{"status", `git status --porcelain=v2 --branch --ignored`},
	{"config", `cat .git/config; cat .git/config.worktree 2>/dev/null || true`},
	{"hooks", `cd .git/hooks && ls -la --time-style=+ | tail -n +2`},
	{"objects", `git cat-file --batch-all-objects --batch-check | sort`},
	{"git's own check", `git fsck --strict --full 2>&1 | sort`},
}

// inside are names in a git directory whose content stays in the sandbox when it is
// guarded.
var inside = []string{"rr-cache", "worktrees", "rebase-merge", "rebase-apply", "sequencer", "MERGE_RR"}

// State is what the host sees of this side's repository, by topic.
func (s Side) State(t *testing.T) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, q := range state {
		got[q.name] = s.h.Sh(s.Workspace, q.script).OK(t)
	}
	var files, names []string
	err := filepath.WalkDir(s.Workspace, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(s.Workspace, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if rel == ".git/objects" || rel == ".git/logs" || rel == ".git/refs" {
			return fs.SkipDir // asked above; empty directories of theirs come and go
		}
		if dir, name := filepath.Split(rel); dir == ".git/" && slices.Contains(inside, name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasPrefix(rel, ".git/sharedindex.") {
			return nil // named after its content, which has times in it
		}
		if strings.HasPrefix(rel, ".git/") {
			names = append(names, fmt.Sprintf("%s %s", info.Mode(), rel))
			return nil
		}
		line := fmt.Sprintf("%s %s", info.Mode(), rel)
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", data)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + to
		}
		files = append(files, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got["working tree"] = strings.Join(files, "\n")
	got["names in .git"] = strings.Join(names, "\n")
	return got
}

// Locks lists the lock files in this side's git directory.
func (s Side) Locks(t *testing.T) []string {
	t.Helper()
	return strings.Fields(s.h.Run("find", filepath.Join(s.Workspace, ".git"), "-name", "*.lock").OK(t))
}

// Compare fails the test for every topic in which two states differ.
func Compare(t *testing.T, what string, want, got map[string]string) {
	t.Helper()
	for topic := range want {
		if d := cmp.Diff(strings.Split(want[topic], "\n"), strings.Split(got[topic], "\n")); d != "" {
			t.Errorf("%s: the host's %s (-want +got):\n%s", what, topic, d)
		}
	}
}
