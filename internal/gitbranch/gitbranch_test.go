package gitbranch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/domain"
)

// TestMain lets a test kill a Prepare: this program is started again for it.
func TestMain(m *testing.M) {
	if in := os.Getenv("GITBRANCH_PREPARE"); in != "" {
		var o Options
		if err := json.Unmarshal([]byte(in), &o); err != nil {
			panic(err)
		}
		if _, err := Prepare(context.Background(), o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// world is a home, a data root and a repository of the developer's.
type world struct {
	t    *testing.T
	dir  string
	repo string
	home string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, repo: filepath.Join(dir, "repo"), home: filepath.Join(dir, "home")}
	for _, d := range []string{w.home, filepath.Join(dir, "data", "domains")} {
		w.must(os.MkdirAll(d, 0o700))
	}
	w.write(w.home+"/.gitconfig", "[user]\n\tname = dev\n\temail = dev@example.org\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n")
	w.git(dir, "init", "-q", "--template=", w.repo)
	w.write(w.repo+"/a", "one\n")
	w.write(w.repo+"/dir/b", "two\n")
	w.commit(w.repo, "first")
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(path, text string) {
	w.t.Helper()
	w.must(os.MkdirAll(filepath.Dir(path), 0o755))
	w.must(os.WriteFile(path, []byte(text), 0o644))
}

func (w *world) read(path string) string {
	w.t.Helper()
	data, err := os.ReadFile(path)
	w.must(err)
	return string(data)
}

func (w *world) try(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(w.t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + w.home, "GIT_TERMINAL_PROMPT=0"}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (w *world) git(dir string, args ...string) string {
	w.t.Helper()
	out, err := w.try(dir, args...)
	if err != nil {
		w.t.Fatalf("git %q in %s: %v: %s", args, dir, err, out)
	}
	return out
}

func (w *world) commit(dir, message string) string {
	w.t.Helper()
	w.git(dir, "add", "-A")
	w.git(dir, "commit", "-q", "--allow-empty", "-m", message)
	return w.git(dir, "rev-parse", "HEAD")
}

func (w *world) options(ws string) Options {
	return Options{Domain: domain.New("default", ws, filepath.Join(w.dir, "data")), Home: w.home}
}

func (w *world) prepare(ws string) Worktree {
	w.t.Helper()
	wt, err := Prepare(w.t.Context(), w.options(ws))
	w.must(err)
	return wt
}

func (w *world) open(ws string) *Branch {
	w.t.Helper()
	b, err := Open(w.t.Context(), w.options(ws))
	w.must(err)
	w.t.Cleanup(b.Close)
	return b
}

// host is all of the host's repository and files that must stay as it is:
// everything but objects and what belongs to the agent's branch.
func (w *world) host() string {
	w.t.Helper()
	var b strings.Builder
	for line := range strings.Lines(w.git(w.repo, "for-each-ref")) {
		if !strings.Contains(line, "refs/heads/lazaret/") {
			b.WriteString(line)
		}
	}
	w.must(filepath.WalkDir(w.repo, func(path string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, w.repo)
		if err != nil || d.IsDir() {
			if rel == "/.git/objects" || rel == "/.git/worktrees" || strings.HasSuffix(rel, "/heads/lazaret") {
				return fs.SkipDir
			}
			return err
		}
		fi, err := d.Info()
		if err != nil || rel == "/.git/packed-refs" {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %s %s %q\n", rel, fi.Mode(), fi.ModTime(), data)
		return err
	}))
	return b.String()
}

func (w *world) noted(wt Worktree, want string) {
	w.t.Helper()
	if !slices.ContainsFunc(wt.Notes, func(n string) bool { return strings.Contains(n, want) }) {
		w.t.Errorf("notes %q lack %q", wt.Notes, want)
	}
}

func TestPrepareAndReuse(t *testing.T) {
	w := newWorld(t)
	w.write(w.repo+"/a", "changed\n")
	w.write(w.repo+"/new", "new\n")
	before := w.host()
	head := w.git(w.repo, "rev-parse", "HEAD")
	wt := w.prepare(w.repo)
	if !wt.Created || wt.Branch != "lazaret/agent-default" || wt.Commit != head || wt.CommonDir != w.repo+"/.git" || wt.Path != filepath.Join(w.options(w.repo).Domain.Root, "worktree") {
		t.Errorf("%+v", wt)
	}
	w.noted(wt, "2 files with uncommitted changes are not in the agent's branch; lazaret git include")
	if got := w.read(wt.Path + "/a"); got != "one\n" {
		t.Errorf("the host's changes were included: %q", got)
	}
	if after := w.host(); after != before {
		t.Errorf("host changed from\n%s\nto\n%s", before, after)
	}
	// What the agent does stays, and its prune or gc leaves the worktree alone.
	w.write(wt.Path+"/c", "three\n")
	tip := w.commit(wt.Path, "agent's")
	w.write(wt.Path+"/d", "four\n")
	w.git(w.repo, "worktree", "prune", "--expire=now")
	w.git(w.repo, "gc", "-q", "--prune=now")
	again := w.prepare(w.repo)
	if again.Created || again.Commit != tip || again.Name != wt.Name || w.read(wt.Path+"/d") != "four\n" {
		t.Errorf("%+v", again)
	}
	if out := w.git(w.repo, "diff", "--name-only", "HEAD..."+wt.Branch); out != "c" {
		t.Errorf("diff %q", out)
	}
	live := w.options(w.repo)
	live.Live = true
	if _, err := Prepare(t.Context(), live); err != nil {
		t.Error(err)
	}
}

func TestWorkspaces(t *testing.T) {
	for _, tt := range []struct {
		name    string
		make    func(w *world) string // the workspace
		refused string
		check   func(w *world, wt Worktree)
	}{
		{name: "detached HEAD", make: func(w *world) string {
			w.commit(w.repo, "second")
			w.git(w.repo, "checkout", "-q", "--detach", "HEAD^")
			return w.repo
		}, check: func(w *world, wt Worktree) {
			if head := w.git(w.repo, "rev-parse", "HEAD"); wt.Commit != head {
				w.t.Errorf("at %s, not %s", wt.Commit, head)
			}
		}},
		{name: "no commit", make: func(w *world) string {
			w.git(w.dir, "init", "-q", "empty")
			return w.dir + "/empty"
		}, refused: "has no commit yet to begin from: commit something"},
		{name: "bare", make: func(w *world) string {
			w.git(w.dir, "clone", "-q", "--bare", w.repo, "bare.git")
			return w.dir + "/bare.git"
		}, refused: "is a bare repository"},
		{name: "no repository", make: func(w *world) string {
			w.must(os.Mkdir(w.dir+"/plain", 0o755))
			return w.dir + "/plain"
		}, refused: "is in no git repository"},
		{name: "below a repository's top", make: func(w *world) string { return w.repo + "/dir" }, refused: "use that as the workspace"},
		{name: "a link", make: func(w *world) string {
			w.must(os.Mkdir(w.dir+"/ws", 0o755))
			w.must(os.Symlink(w.repo+"/.git", w.dir+"/ws/.git"))
			return w.dir + "/ws"
		}, refused: "symbolic link"},
		{name: "shallow", make: func(w *world) string {
			w.commit(w.repo, "second")
			w.git(w.dir, "clone", "-q", "--depth=1", "file://"+w.repo, "shallow")
			return w.dir + "/shallow"
		}, check: func(w *world, wt Worktree) {
			w.commit(wt.Path, "agent's")
			if n := w.git(wt.Path, "rev-list", "--count", "HEAD"); n != "2" {
				w.t.Errorf("%s commits", n)
			}
		}},
		{name: "sparse", make: func(w *world) string {
			w.write(w.repo+"/kept/x", "x\n")
			w.commit(w.repo, "second")
			w.git(w.repo, "sparse-checkout", "set", "kept")
			return w.repo
		}, check: func(w *world, wt Worktree) {
			w.noted(wt, "as sparse as the host's")
			if _, err := os.Stat(wt.Path + "/dir"); !errors.Is(err, fs.ErrNotExist) {
				w.t.Errorf("dir: %v", err)
			}
			if w.read(wt.Path+"/kept/x") != "x\n" || w.git(wt.Path, "status", "--porcelain") != "" {
				w.t.Error("not as the host's")
			}
		}},
		{name: "submodules", make: func(w *world) string {
			w.git(w.dir, "clone", "-q", w.repo, "sub")
			w.git(w.repo, "submodule", "--quiet", "add", "file://"+w.dir+"/sub", "sub")
			w.commit(w.repo, "with a submodule")
			return w.repo
		}, check: func(w *world, wt Worktree) {
			w.noted(wt, "submodules are empty")
			if entries, err := os.ReadDir(wt.Path + "/sub"); err != nil || len(entries) > 0 {
				w.t.Errorf("%v, %v", entries, err)
			}
		}},
		{name: "a submodule", make: func(w *world) string {
			w.git(w.dir, "clone", "-q", w.repo, "sub")
			w.git(w.repo, "submodule", "--quiet", "add", "file://"+w.dir+"/sub", "sub")
			return w.repo + "/sub"
		}, refused: "is a submodule"},
		{name: "a linked worktree", make: func(w *world) string {
			w.git(w.repo, "worktree", "add", "-q", "-b", "topic", w.dir+"/topic")
			w.commit(w.dir+"/topic", "on topic")
			return w.dir + "/topic"
		}, check: func(w *world, wt Worktree) {
			if wt.CommonDir != w.repo+"/.git" || wt.Commit != w.git(w.repo, "rev-parse", "topic") {
				w.t.Errorf("%+v", wt)
			}
		}},
		{name: "a branch called lazaret", make: func(w *world) string {
			w.git(w.repo, "branch", "lazaret")
			return w.repo
		}, refused: "git branch -m lazaret"},
		{name: "large files", make: func(w *world) string {
			w.write(w.repo+"/.gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
			w.write(w.repo+"/x.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:"+strings.Repeat("0", 64)+"\nsize 5\n")
			w.commit(w.repo, "large")
			return w.repo
		}, check: func(w *world, wt Worktree) {
			if _, err := exec.LookPath("git-lfs"); err != nil {
				w.noted(wt, "the agent's large files are pointers")
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			ws := tt.make(w)
			before := w.host()
			wt, err := Prepare(t.Context(), w.options(ws))
			if tt.refused != "" {
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("error %v, want %q", err, tt.refused)
				}
				if _, err := os.Lstat(w.options(ws).Domain.Root + "/worktree"); err == nil {
					t.Error("a worktree was left")
				}
			} else {
				w.must(err)
				if out := w.git(wt.Path, "status", "--porcelain"); out != "" {
					t.Errorf("not clean: %s", out)
				}
				if again := w.prepare(ws); again.Created || again.Commit != wt.Commit || !slices.Equal(again.Notes, wt.Notes) {
					t.Errorf("second time %+v, first %+v", again, wt)
				}
			}
			if after := w.host(); after != before {
				t.Errorf("host changed from\n%s\nto\n%s", before, after)
			}
			if err == nil {
				tt.check(w, wt)
			}
		})
	}
}

// Two workspaces of one repository.
func TestTwoWorkspaces(t *testing.T) {
	w := newWorld(t)
	w.git(w.repo, "worktree", "add", "-q", "--detach", w.dir+"/other")
	one, two := w.prepare(w.repo), w.prepare(w.dir+"/other")
	if want := one.Branch + "-" + w.options(w.dir + "/other").Domain.Hash[:6]; two.Branch != want {
		t.Errorf("branch %s, want %s", two.Branch, want)
	}
	w.noted(two, "belongs to another workspace")
	// Without a worktree the first one's name stays its own.
	w.must(os.RemoveAll(one.Path))
	w.git(w.repo, "worktree", "unlock", one.Path)
	w.git(w.repo, "worktree", "prune", "--expire=now")
	w.git(w.repo, "worktree", "add", "-q", "--detach", w.dir+"/third")
	if three := w.prepare(w.dir + "/third"); three.Branch == one.Branch {
		t.Errorf("took %s", three.Branch)
	}
}

// What the host does between two sessions.
func TestHostActs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		dirty   bool
		act     func(w *world, wt Worktree)
		refused string
		note    string
		check   func(w *world, before, after Worktree)
	}{
		{name: "worktree removed", act: func(w *world, wt Worktree) { w.must(os.RemoveAll(wt.Path)) }, note: "was removed on the host", check: same},
		{name: "worktree removed by git", act: func(w *world, wt Worktree) { w.git(w.repo, "worktree", "remove", "-f", "-f", wt.Path) }, note: "was removed on the host", check: same},
		{name: "unlocked and pruned", act: func(w *world, wt Worktree) {
			w.git(w.repo, "worktree", "unlock", wt.Path)
			w.must(os.Rename(wt.Path, wt.Path+".away"))
			w.git(w.repo, "worktree", "prune", "--expire=now")
			w.must(os.Rename(wt.Path+".away", wt.Path))
		}, note: "its files are in", check: same},
		{name: "unlocked", act: func(w *world, wt Worktree) { w.git(w.repo, "worktree", "unlock", wt.Path) }, check: func(w *world, before, after Worktree) {
			same(w, before, after)
			if out, err := w.try(w.repo, "worktree", "unlock", after.Path); err != nil {
				w.t.Errorf("was not locked: %s", out)
			}
		}},
		{name: "pointer lost", act: func(w *world, wt Worktree) { w.must(os.Remove(wt.Path + "/.git")) }, check: same},
		{name: "pointer bent", act: func(w *world, wt Worktree) { w.write(wt.Path+"/.git", "gitdir: /nowhere\n") }, check: same},
		{name: "branch deleted", act: func(w *world, wt Worktree) {
			w.commit(w.repo, "host's")
			w.git(w.repo, "update-ref", "-d", "refs/heads/"+wt.Branch)
		}, note: "begins anew from", check: func(w *world, _, after Worktree) {
			if head := w.git(w.repo, "rev-parse", "HEAD"); after.Commit != head {
				w.t.Errorf("at %s, not %s", after.Commit, head)
			}
		}},
		{name: "branch deleted, files uncommitted", dirty: true, act: func(w *world, wt Worktree) {
			w.commit(w.repo, "host's")
			w.git(w.repo, "update-ref", "-d", "refs/heads/"+wt.Branch)
		}, note: "1 uncommitted file: it is back at", check: same},
		{name: "branch and worktree removed", act: func(w *world, wt Worktree) {
			w.must(os.RemoveAll(wt.Path))
			w.git(w.repo, "update-ref", "-d", "refs/heads/"+wt.Branch)
		}, note: "was removed on the host", check: func(w *world, _, after Worktree) {
			if head := w.git(w.repo, "rev-parse", "HEAD"); after.Commit != head {
				w.t.Errorf("at %s, not %s", after.Commit, head)
			}
		}},
		{name: "branch moved", act: func(w *world, wt Worktree) {
			w.write(w.repo+"/a", "host's\n")
			w.git(w.repo, "update-ref", "refs/heads/"+wt.Branch, w.commit(w.repo, "host's"))
		}, note: "was moved on the host", check: func(w *world, _, after Worktree) {
			if got := w.read(after.Path + "/a"); got != "host's\n" {
				w.t.Errorf("a is %q", got)
			}
			if _, err := os.Stat(after.Path + "/agents"); !errors.Is(err, fs.ErrNotExist) {
				w.t.Errorf("agents: %v", err)
			}
		}},
		{name: "branch moved, files uncommitted elsewhere", dirty: true, act: func(w *world, wt Worktree) {
			w.write(w.repo+"/a", "host's\n")
			w.git(w.repo, "update-ref", "refs/heads/"+wt.Branch, w.commit(w.repo, "host's"))
		}, note: "was moved on the host", check: func(w *world, _, after Worktree) {
			if got := w.git(after.Path, "status", "--porcelain"); got != "M dir/b" {
				w.t.Errorf("status %q", got)
			}
		}},
		{name: "branch moved, uncommitted in the way", dirty: true, act: func(w *world, wt Worktree) {
			w.write(w.repo+"/dir/b", "host's\n")
			w.git(w.repo, "update-ref", "refs/heads/"+wt.Branch, w.commit(w.repo, "host's"))
		}, refused: "is in the way"},
		{name: "branch moved back", act: func(w *world, wt Worktree) {
			w.git(w.repo, "update-ref", "refs/heads/"+wt.Branch, wt.Commit)
		}, note: "was moved on the host", check: func(w *world, first, after Worktree) {
			if after.Commit != first.Commit {
				w.t.Errorf("at %s", after.Commit)
			}
		}},
		{name: "committed without a log", act: func(w *world, wt Worktree) { // as go-git does
			w.write(wt.Path+"/more", "more\n")
			w.git(wt.Path, "add", "-A")
			w.git(wt.Path, "-c", "core.logAllRefUpdates=false", "commit", "-q", "-m", "unlogged")
			log := filepath.Join(wt.CommonDir, "worktrees", wt.Name, "logs/HEAD")
			lines := strings.SplitAfter(w.read(log), "\n")
			w.write(log, strings.Join(lines[:len(lines)-2], ""))
			log = filepath.Join(wt.CommonDir, "logs/refs/heads", wt.Branch)
			lines = strings.SplitAfter(w.read(log), "\n")
			w.write(log, strings.Join(lines[:len(lines)-2], ""))
		}, check: func(w *world, _, after Worktree) { w.read(after.Path + "/more") }},
		{name: "host commits", act: func(w *world, _ Worktree) { w.commit(w.repo, "host's") }, note: "lacks 1 of the host's commits", check: same},
		{name: "agent detached", act: func(w *world, wt Worktree) { w.git(wt.Path, "checkout", "-q", "--detach") }, note: "is not on lazaret/agent-default", check: same},
		{name: "repository cloned anew", act: func(w *world, _ Worktree) {
			w.must(os.Rename(w.repo, w.dir+"/old"))
			w.git(w.dir, "clone", "-q", "old", w.repo)
		}, note: "its files are in", check: func(*world, Worktree, Worktree) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			first := w.prepare(w.repo)
			w.write(first.Path+"/agents", "agent's\n")
			before := first
			before.Commit = w.commit(first.Path, "agent's")
			if tt.name == "branch moved back" {
				before.Commit = first.Commit
			}
			if tt.dirty {
				w.write(first.Path+"/dir/b", "uncommitted\n")
			}
			tt.act(w, before)
			host := w.host()
			after, err := Prepare(t.Context(), w.options(w.repo))
			if tt.refused != "" {
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("error %v, want %q", err, tt.refused)
				}
				if tt.dirty && w.read(first.Path+"/dir/b") != "uncommitted\n" {
					t.Error("lost what was not committed")
				}
				return
			}
			w.must(err)
			if got := w.host(); got != host {
				t.Errorf("host changed from\n%s\nto\n%s", host, got)
			}
			if tt.note != "" {
				w.noted(after, tt.note)
			}
			if out := w.git(after.Path, "status", "--porcelain"); !tt.dirty && out != "" {
				t.Errorf("not clean: %s", out)
			}
			tt.check(w, before, after)
			// Told once, and then it is as if nothing had been.
			settled := w.prepare(w.repo)
			if settled.Commit != after.Commit || settled.Created {
				t.Errorf("%+v after %+v", settled, after)
			}
			if tt.note != "" && !strings.Contains(tt.note, "lacks") && !strings.Contains(tt.note, "is not on") {
				for _, n := range settled.Notes {
					if strings.Contains(n, tt.note) {
						t.Errorf("told again: %s", n)
					}
				}
			}
		})
	}
}

func same(w *world, before, after Worktree) {
	w.t.Helper()
	if after.Commit != before.Commit || after.Branch != before.Branch {
		w.t.Errorf("%+v, was %+v", after, before)
	}
	if got := w.read(after.Path + "/agents"); got != "agent's\n" {
		w.t.Errorf("agents is %q", got)
	}
}

// Nothing that the configuration or an agent's files name is run.
func TestNothingRuns(t *testing.T) {
	w := newWorld(t)
	canary := filepath.Join(w.dir, "canary")
	payload := "touch " + canary
	for _, kv := range [][2]string{
		{"filter.x.clean", payload + "; cat"},
		{"filter.x.smudge", payload + "; cat"},
		{"filter.y.process", payload},
		{"filter.z=z.smudge", payload + "; cat"},
		{"filter.x.required", "true"},
		{"diff.x.textconv", payload},
		{"diff.external", payload},
		{"merge.x.driver", payload + "; true"},
		{"core.fsmonitor", payload},
		{"core.hooksPath", w.dir + "/hooks"},
		{"core.pager", payload},
		{"core.editor", payload},
		{"sequence.editor", payload},
		{"gpg.program", w.dir + "/hooks/post-checkout"},
		{"commit.gpgSign", "true"},
		{"core.sshCommand", payload},
		{"credential.helper", "!" + payload},
		{"submodule.recurse", "true"},
		{"status.submoduleSummary", "true"},
	} {
		w.git(w.repo, "config", kv[0], kv[1])
	}
	for _, h := range []string{"post-checkout", "pre-commit", "post-commit", "post-rewrite", "pre-rebase", "post-index-change", "reference-transaction", "post-merge", "prepare-commit-msg"} {
		w.write(w.dir+"/hooks/"+h, "#!/bin/sh\n"+payload+"\n")
		w.must(os.Chmod(w.dir+"/hooks/"+h, 0o755))
	}
	w.write(w.repo+"/.git/info/attributes", "a filter=x diff=x merge=x\ndir/b filter=y\nzz filter=\"z=z\"\n")
	wt := w.prepare(w.repo)
	agent := func(args ...string) {
		t.Helper()
		safe := []string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false", "-c", "core.attributesFile=/dev/null", "-c", "filter.x.clean=", "-c", "filter.y.process=", "-c", "filter.x.required=false"}
		w.git(wt.Path, append(safe, args...)...)
	}
	// A nested repository, as it would look if no guard kept it away.
	w.git(w.dir, "init", "-q", wt.Path+"/nested")
	w.git(wt.Path+"/nested", "-c", "core.fsmonitor=false", "commit", "-q", "--allow-empty", "-m", "nested")
	w.git(wt.Path+"/nested", "config", "core.fsmonitor", payload)
	w.write(wt.Path+"/.gitattributes", "* filter=x merge=x diff=x\n")
	w.write(wt.Path+"/a", "agent\n")
	agent("add", "-A")
	agent("commit", "-q", "-m", "agent's")
	w.must(os.RemoveAll(canary))
	w.prepare(w.repo)
	b := w.open(w.repo)
	if _, err := b.State(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.Loss(t.Context()); err != nil {
		t.Error(err)
	}
	w.write(w.repo+"/a", "host\n")
	w.git(w.repo, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false", "-c", "filter.x.clean=cat", "-c", "filter.y.process=", "commit", "-q", "-a", "-m", "host's")
	b.Close()
	b = w.open(w.repo) // another HEAD
	_ = os.Remove(canary)
	if _, err := b.Rebase(t.Context()); err == nil || !strings.Contains(err.Error(), "conflicts in a") {
		t.Errorf("rebase: %v", err)
	}
	if err := b.Drop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(canary); err == nil {
		t.Error("something ran")
	}
}

func TestRebase(t *testing.T) {
	w := newWorld(t)
	wt := w.prepare(w.repo)
	b := w.open(w.repo)
	if changed, err := b.Rebase(t.Context()); changed || err != nil {
		t.Errorf("%t, %v", changed, err)
	}
	w.write(wt.Path+"/c", "agent\n")
	tip := w.commit(wt.Path, "agent's")
	w.write(w.repo+"/h", "host\n")
	head := w.commit(w.repo, "host's")
	b.Close()
	b = w.open(w.repo)
	w.write(wt.Path+"/c", "uncommitted\n")
	if _, err := b.Rebase(t.Context()); err == nil || !strings.Contains(err.Error(), "1 uncommitted file") {
		t.Errorf("dirty: %v", err)
	}
	w.git(wt.Path, "checkout", "-q", "c")
	host := w.host()
	if changed, err := b.Rebase(t.Context()); !changed || err != nil {
		t.Errorf("%t, %v", changed, err)
	}
	if w.host() != host {
		t.Error("host changed")
	}
	if got := w.git(wt.Path, "rev-parse", "HEAD^"); got != head || w.read(wt.Path+"/h") != "host\n" || w.git(w.repo, "rev-parse", wt.Branch) == tip {
		t.Errorf("parent %s, want %s", got, head)
	}
	// A killed one is taken back.
	w.write(w.repo+"/c", "host's\n")
	w.commit(w.repo, "in the way")
	tip = w.git(w.repo, "rev-parse", wt.Branch)
	if _, err := w.try(wt.Path, "rebase", "main"); err == nil {
		t.Fatal("no conflict")
	}
	b.Close()
	after := w.prepare(w.repo)
	w.noted(after, "was taken back")
	if after.Commit != tip || w.git(wt.Path, "status", "--porcelain") != "" {
		t.Errorf("%+v, was at %s", after, tip)
	}
	b = w.open(w.repo)
	if _, err := b.Rebase(t.Context()); err == nil || !strings.Contains(err.Error(), "conflicts in c: nothing was changed") {
		t.Errorf("conflict: %v", err)
	}
	if got := w.git(w.repo, "rev-parse", wt.Branch); got != tip || w.git(wt.Path, "status", "--porcelain") != "" {
		t.Errorf("at %s, was at %s", got, tip)
	}
}

func TestInclude(t *testing.T) {
	w := newWorld(t)
	w.write(w.repo+"/.gitignore", "ignored\n")
	w.write(w.repo+"/gone", "gone\n")
	w.commit(w.repo, "second")
	wt := w.prepare(w.repo)
	w.write(wt.Path+"/agents", "agent's\n")
	w.commit(wt.Path, "agent's")
	b := w.open(w.repo)
	if n, err := b.Include(t.Context()); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
	w.write(w.repo+"/a", "unstaged\n")
	w.write(w.repo+"/dir/b", "staged\n")
	w.git(w.repo, "add", "dir/b")
	w.write(w.repo+"/new/x", "new\n")
	w.write(w.repo+"/ignored", "ignored\n")
	w.must(os.Remove(w.repo + "/gone"))
	host := w.host()
	if n, err := b.Include(t.Context()); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if w.host() != host {
		t.Error("host changed")
	}
	if got, want := w.git(wt.Path, "status", "--porcelain"), "M a\n M dir/b\n D gone\n?? new/"; got != want {
		t.Errorf("status\n%s\nwant\n%s", got, want)
	}
	if w.read(wt.Path+"/a") != "unstaged\n" || w.read(wt.Path+"/dir/b") != "staged\n" || w.read(wt.Path+"/new/x") != "new\n" {
		t.Error("content")
	}
	if _, err := b.Include(t.Context()); err == nil || !strings.Contains(err.Error(), "4 uncommitted files") {
		t.Errorf("not clean: %v", err)
	}
	w.write(wt.Path+"/a", "agent's\n")
	tip := w.commit(wt.Path, "more")
	if _, err := b.Include(t.Context()); err == nil || !strings.Contains(err.Error(), "conflicts with the agent's commits in a") {
		t.Errorf("conflict: %v", err)
	}
	if got := w.git(wt.Path, "rev-parse", "HEAD"); got != tip || w.git(wt.Path, "status", "--porcelain") != "" {
		t.Errorf("at %s", got)
	}
}

func TestDrop(t *testing.T) {
	w := newWorld(t)
	if _, err := Open(t.Context(), w.options(w.repo)); !errors.Is(err, ErrNone) {
		t.Errorf("none: %v", err)
	}
	host := w.host()
	wt := w.prepare(w.repo)
	w.write(wt.Path+"/closed/x", "x\n")
	w.commit(wt.Path, "agent's")
	w.write(wt.Path+"/y", "y\n")
	b := w.open(w.repo)
	if l, err := b.Loss(t.Context()); l != (Loss{1, 1}) || err != nil || l.String() != "1 unmerged commit and 1 file with uncommitted changes" {
		t.Errorf("%+v %s, %v", l, l, err)
	}
	w.git(w.repo, "branch", "keep", wt.Branch)
	if l, err := b.Loss(t.Context()); l != (Loss{0, 1}) || err != nil {
		t.Errorf("%+v, %v", l, err)
	}
	w.git(w.repo, "update-ref", "-d", "refs/heads/keep")
	w.must(b.Drop(t.Context()))
	b.Close()
	w.must(os.RemoveAll(w.repo + "/.git/logs/refs/heads/lazaret"))
	if got := w.host(); got != host {
		t.Errorf("host changed from\n%s\nto\n%s", host, got)
	}
	if out := w.git(w.repo, "worktree", "list"); strings.Contains(out, "\n") {
		t.Errorf("left: %s", out)
	}
	if _, err := os.Lstat(wt.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if again := w.prepare(w.repo); !again.Created || again.Commit != w.git(w.repo, "rev-parse", "HEAD") {
		t.Errorf("%+v", again)
	}
}

// A Prepare that is killed at any moment is made good by the next.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	for i := range 300 {
		w.write(fmt.Sprintf("%s/many/%d", w.repo, i), strings.Repeat("x\n", i))
	}
	head := w.commit(w.repo, "many")
	in, err := json.Marshal(w.options(w.repo))
	w.must(err)
	self, err := os.Executable()
	w.must(err)
	began := time.Now()
	w.prepare(w.repo)
	whole := time.Since(began)
	host := w.host()
	rounds, killed := 20, 0
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		b := w.open(w.repo)
		w.must(b.Drop(t.Context()))
		b.Close()
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = []string{"GITBRANCH_PREPARE=" + string(in)}
		w.must(cmd.Start())
		time.Sleep(time.Duration(rand.Int64N(int64(whole * 5 / 4))))
		w.must(cmd.Process.Kill()) // its git goes on or ends as it comes
		if cmd.Wait() != nil {
			killed++
		}
		var wt Worktree
		for deadline := time.Now().Add(30 * time.Second); ; {
			if wt, err = Prepare(t.Context(), w.options(w.repo)); err == nil || time.Now().After(deadline) {
				break
			}
			time.Sleep(20 * time.Millisecond) // the orphaned git is at work
		}
		w.must(err)
		time.Sleep(20 * time.Millisecond)
		wt = w.prepare(w.repo)
		if wt.Commit != head || wt.Branch != "lazaret/agent-default" || w.git(wt.Path, "status", "--porcelain") != "" {
			t.Fatalf("%+v: %s", wt, w.git(wt.Path, "status", "--porcelain"))
		}
		if out := w.git(w.repo, "worktree", "list", "--porcelain"); strings.Count(out, "worktree ") != 2 || strings.Count(out, "locked lazaret domain") != 1 {
			t.Fatal(out)
		}
		if w.host() != host {
			t.Fatal("host changed")
		}
	}
	if killed == 0 {
		t.Error("no round killed anything")
	}
}
