package gitexport

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/hostgit"
)

// world is a workspace, and a shadow as the guard keeps it.
type world struct {
	t        *testing.T
	ws, home string
	o        Options
	canary   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ws: dir + "/ws", home: dir + "/home", canary: dir + "/canary"}
	w.o = Options{ShadowDir: dir + "/root/git/shadow", Tree: w.ws}
	for _, d := range []string{w.ws, w.home, w.o.ShadowDir} {
		w.must(os.MkdirAll(d, 0o755))
	}
	w.write(w.home+"/.gitconfig", "[user]\n\tname = agent\n\temail = agent@example.org\n[init]\n\tdefaultBranch = main\n")
	w.o.Git, err = hostgit.New(w.home, "")
	w.must(err)
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
	w.must(os.WriteFile(path, []byte(text), 0o755))
}

func (w *world) git(dir string, args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + w.home}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// born is a repository with two commits, a branch, a tag, and something staged.
func (w *world) born(name string, initArgs ...string) string {
	w.t.Helper()
	dir := filepath.Join(w.ws, name)
	w.must(os.MkdirAll(dir, 0o755))
	w.git(dir, append([]string{"init", "-q"}, initArgs...)...)
	w.write(dir+"/a", "one\n")
	w.git(dir, "add", "a")
	w.git(dir, "commit", "-q", "-m", "first")
	w.git(dir, "gc", "-q")
	w.write(dir+"/a", "two\n")
	w.git(dir, "commit", "-q", "-a", "-m", "second")
	w.git(dir, "branch", "feature/x")
	w.git(dir, "tag", "-a", "-m", "release", "v1")
	w.git(dir, "remote", "add", "origin", "https://example.org/x.git")
	w.git(dir, "config", "branch.main.remote", "origin")
	w.git(dir, "config", "branch.main.merge", "refs/heads/main")
	w.write(dir+"/staged", "staged\n")
	w.git(dir, "add", "staged")
	return dir
}

// shadow moves name of dir to where the guard would have it.
func (w *world) shadow(dir, name string) string {
	w.t.Helper()
	key, err := keyOf(dir)
	w.must(err)
	to := filepath.Join(w.o.ShadowDir, key)
	w.must(os.MkdirAll(to, 0o700))
	w.must(os.Rename(filepath.Join(dir, name), filepath.Join(to, "_"+name)))
	top := filepath.Join(to, "_"+name)
	var paths []string
	w.must(filepath.WalkDir(top, func(p string, _ fs.DirEntry, err error) error {
		paths = append(paths, p)
		return err
	}))
	slices.Reverse(paths) // the deepest first
	for _, p := range paths[:len(paths)-1] {
		w.must(os.Rename(p, filepath.Join(filepath.Dir(p), "_"+filepath.Base(p))))
	}
	return top
}

func (w *world) refs(dir string) string {
	return w.git(dir, "for-each-ref") + "\n" + w.git(dir, "rev-parse", "HEAD") + "\n" + w.git(dir, "reflog")
}

func TestExport(t *testing.T) {
	for name, args := range map[string][]string{"sha1": nil, "sha256": {"--object-format=sha256"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			dir := w.born("sub/repo", args...)
			refs, status := w.refs(dir), w.git(dir, "status", "--porcelain")
			kept := w.shadow(dir, ".git")
			if got, err := List(t.Context(), w.o); err != nil || !slices.Equal(got, []Candidate{{Path: dir}}) {
				t.Errorf("list %v, %v", got, err)
			}
			res, err := Export(t.Context(), w.o, dir, false)
			w.must(err)
			if res.GitDir != dir+"/.git" || res.Fsck != "" || !slices.Equal(res.Notes, []string{"not exported: hooks"}) {
				t.Errorf("%+v", res)
			}
			if got := w.refs(dir); got != refs {
				t.Errorf("refs\n%s\nwant\n%s", got, refs)
			}
			if got := w.git(dir, "status", "--porcelain"); got != status {
				t.Errorf("status %q, want %q", got, status)
			}
			if got := w.git(dir, "config", "--local", "--list"); !strings.Contains(got, "remote.origin.url=https://example.org/x.git") || !strings.Contains(got, "branch.main.merge=refs/heads/main") {
				t.Errorf("config %s", got)
			}
			w.git(dir, "fsck", "--strict")
			if _, err := os.Lstat(filepath.Dir(kept)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("shadow: %v", err)
			}
			if left, _ := filepath.Glob(dir + "/.lazaret-*"); left != nil {
				t.Error(left)
			}
			if _, err := Export(t.Context(), w.o, dir, false); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "already") {
				t.Errorf("again: %v", err)
			}
		})
	}
}

func TestExportBare(t *testing.T) {
	w := newWorld(t)
	w.git(w.ws, "clone", "-q", "--bare", w.born("from"), "x.git")
	dir := w.ws + "/x.git"
	refs := w.git(dir, "for-each-ref")
	// What the host can see of it is the agent's to write.
	w.git(dir, "config", "core.fsmonitor", "touch "+w.canary)
	w.write(dir+"/hooks/post-update", "#!/bin/sh\ntouch "+w.canary+"\n")
	w.shadow(dir, "HEAD")
	if got, err := List(t.Context(), w.o); err != nil || !slices.Contains(got, Candidate{Path: dir, Bare: true}) {
		t.Errorf("list %v, %v", got, err)
	}
	w.write(dir+"/notes.txt", "mine\n")
	if _, err := Export(t.Context(), w.o, dir, false); err == nil || !strings.Contains(err.Error(), `"notes.txt"`) {
		t.Errorf("other files: %v", err)
	}
	w.must(os.Remove(dir + "/notes.txt"))
	res, err := Export(t.Context(), w.o, dir, false)
	w.must(err)
	if res.GitDir != dir || w.git(dir, "for-each-ref") != refs {
		t.Errorf("%+v", res)
	}
	if _, err := os.Lstat(dir + "/hooks"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("hooks: %v", err)
	}
	if got := w.git(dir, "config", "--local", "--list"); strings.Contains(got, "fsmonitor") {
		t.Error(got)
	}
	w.git(w.ws, "clone", "-q", dir, "clone")
	if left, err := os.ReadDir(w.o.ShadowDir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if left, _ := filepath.Glob(w.ws + "/.lazaret-*"); left != nil {
		t.Error(left)
	}
}

// Whatever the agent has put into its repository, nothing of it runs or leads away.
func TestHostile(t *testing.T) {
	w := newWorld(t)
	dir := w.born("repo")
	payload := "touch " + w.canary
	for _, kv := range [][2]string{
		{"core.fsmonitor", payload},
		{"core.hooksPath", "../hooks"},
		{"core.worktree", "/etc"},
		{"core.sshCommand", payload},
		{"core.attributesFile", "/tmp/x"},
		{"include.path", "/tmp/evil"},
		{"filter.x.clean", payload},
		{"alias.status", "!" + payload},
		{"remote.evil.url", "ext::sh -c '" + payload + "'"},
		{"remote.local.url", "/workspace/other"},
		{"remote.file.url", "file:///etc"},
		{"remote.dash.url", "ssh://-oProxyCommand=" + payload + "/x"},
		{"remote.origin.uploadpack", payload},
		{"remote.origin.vcs", "evil"},
		{"remote.origin.proxy", "x"},
		{"credential.helper", "!" + payload},
		{"extensions.worktreeConfig", "true"},
	} {
		w.git(dir, "config", kv[0], kv[1])
	}
	git := dir + "/.git"
	w.write(git+"/hooks/post-checkout", "#!/bin/sh\n"+payload+"\n")
	w.write(git+"/config.worktree", "[core]\n\tfsmonitor = "+payload+"\n")
	w.write(git+"/info/attributes", "* filter=x\n")
	w.write(git+"/objects/info/alternates", "/work\n")
	w.write(git+"/refs/heads/damaged", "ref: ../../../etc/passwd\n")
	w.write(git+"/refs/replace/0123456789012345678901234567890123456789", strings.Repeat("1", 40)+"\n")
	w.write(git+"/logs/refs/heads/odd", "not a log\n")
	w.write(git+"/modules/x/config", "[core]\n\tfsmonitor = "+payload+"\n")
	w.write(git+"/index", "DIRC not an index")
	kept := w.shadow(dir, ".git")
	res, err := Export(t.Context(), w.o, dir, false)
	w.must(err)
	if got, want := w.git(dir, "config", "--local", "--list"), "core.repositoryformatversion=0\ncore.filemode=true\ncore.bare=false\ncore.logallrefupdates=true\nremote.origin.url=https://example.org/x.git\nremote.origin.fetch=+refs/heads/*:refs/remotes/origin/*\nbranch.main.remote=origin\nbranch.main.merge=refs/heads/main"; got != want {
		t.Errorf("config\n%s\nwant\n%s", got, want)
	}
	var top []string
	w.must(filepath.WalkDir(git, func(p string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(p, git+"/")
		if !strings.HasPrefix(rel, "objects/") && !d.IsDir() {
			top = append(top, rel)
		}
		if d.Type()&fs.ModeSymlink != 0 {
			t.Errorf("%s is a link", rel)
		}
		return err
	}))
	if want := []string{"HEAD", "config", "index", "logs/HEAD", "logs/refs/heads/feature/x", "logs/refs/heads/main", "packed-refs", "refs/heads/feature/x", "refs/heads/main", "refs/tags/v1"}; !slices.Equal(top, want) {
		t.Errorf("files %q, want %q", top, want)
	}
	for _, want := range []string{"hooks", "submodules' repositories", "alternates", `"core.fsmonitor"`, `remote "evil"`, `remote "dash"`, `"refs/heads/damaged"`, "the index"} {
		if !slices.ContainsFunc(res.Notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("notes %q lack %s", res.Notes, want)
		}
	}
	w.git(dir, "status")
	w.git(dir, "checkout", "-q", "-f", "feature/x")
	if _, err := os.Lstat(w.canary); err == nil {
		t.Error("something ran")
	}
	if _, err := os.Lstat(kept); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// What cannot be exported leaves everything as it was.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		make  func(w *world, kept string)
		say   string
		force bool // helps
	}{
		{"HEAD is a link", func(w *world, kept string) {
			w.must(os.Remove(kept + "/_HEAD"))
			w.must(os.Symlink("/etc/passwd", kept+"/_HEAD"))
		}, "HEAD", false},
		{"HEAD is a device", func(w *world, kept string) {
			w.must(os.Remove(kept + "/_HEAD"))
			w.must(os.Mkdir(kept+"/_HEAD", 0o755))
		}, "not a plain file", false},
		{"HEAD leads out", func(w *world, kept string) { w.write(kept+"/_HEAD", "ref: refs/heads/../../config\n") }, "is not one that git writes", false},
		{"objects are a link", func(w *world, kept string) {
			w.must(os.Rename(kept+"/_objects", kept+"/objects"))
			w.must(os.Symlink("objects", kept+"/_objects"))
		}, "objects", false},
		{"an object is missing", func(w *world, kept string) {
			loose, err := filepath.Glob(kept + "/_objects/_[0-9a-f][0-9a-f]/_*")
			w.must(err)
			for _, l := range loose {
				w.must(os.Remove(l))
			}
		}, "git fsck finds errors", true},
		{"an object is damaged", func(w *world, kept string) {
			loose, err := filepath.Glob(kept + "/_objects/_[0-9a-f][0-9a-f]/_*")
			w.must(err)
			w.must(os.Chmod(loose[0], 0o644))
			w.write(loose[0], "x")
		}, "git fsck finds errors", true},
		{"config is no configuration", func(w *world, kept string) { w.write(kept+"/_config", "[core\n") }, "its config", false},
		{"refs in a table", func(w *world, kept string) {
			w.write(kept+"/_config", "[extensions]\n\trefstorage = reftable\n")
		}, "--ref-format=files", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			dir := w.born("repo")
			kept := w.shadow(dir, ".git")
			tt.make(w, kept)
			for _, force := range []bool{false, true} {
				_, err := Export(t.Context(), w.o, dir, force)
				if force && tt.force {
					w.must(err)
					continue
				}
				if err == nil || !strings.Contains(err.Error(), tt.say) {
					t.Errorf("error %v, want %q", err, tt.say)
				}
				entries, err := os.ReadDir(dir)
				w.must(err)
				if len(entries) != 2 { // a, staged
					t.Errorf("left: %v", entries)
				}
				if _, err := os.Lstat(kept + "/_config"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestNothingToExport(t *testing.T) {
	w := newWorld(t)
	w.write(w.ws+"/d/x", "x\n")
	if got, err := List(t.Context(), w.o); err != nil || got != nil {
		t.Errorf("list %v, %v", got, err)
	}
	if _, err := Export(t.Context(), w.o, w.ws+"/d", false); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if _, err := Export(t.Context(), w.o, w.home, false); err == nil || !strings.Contains(err.Error(), "is not in") {
		t.Error(err)
	}
	// A real git directory's own shadow (hooks, sequencer) is no repository.
	real := w.born("real")
	w.write(real+"/.git/rebase-merge/todo", "x\n")
	w.shadow(real+"/.git", "rebase-merge")
	// Neither is a submodule of the sandbox's.
	sub := w.born("sub")
	w.must(os.RemoveAll(sub + "/.git"))
	w.write(sub+"/.git", "gitdir: ../modules/sub\n")
	w.shadow(sub, ".git")
	if got, err := List(t.Context(), w.o); err != nil || got != nil {
		t.Errorf("list %v, %v", got, err)
	}
	if _, err := Export(t.Context(), w.o, sub, false); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "submodule") {
		t.Error(err)
	}
}

func TestGoodURL(t *testing.T) {
	for s, want := range map[string]bool{
		"https://example.org/x.git": true, "ssh://git@example.org:22/~me/x": true, "git@example.org:me/x.git": true, "git://example.org/x": true,
		"": false, "/x": false, "../x": false, "x": false, "file:///x": false, "ext::sh": false, "fd::3": false, "https::x": false,
		"ssh://-oX/x": false, "-oX:x": false, "x@-oX:y": false, "ssh://x@-o/y": false, "-x@host:y": false, "host:-x": false, "./a:b": false, "https://x/`id`": false, "https://x/\n[core]": false,
		"https://x/\"": false, "ftp://x/y": false, "https:///x": false,
	} {
		if goodURL(s) != want {
			t.Errorf("%q: %t", s, !want)
		}
	}
}

// What is let through stands in the configuration as it was, and alone.
func FuzzConfigValues(f *testing.F) {
	f.Add("https://example.org/x", "+refs/heads/*:refs/remotes/o/*", "refs/heads/x", "origin")
	f.Add("host:path", "refs/heads/#1;", "refs/heads/#1;", "a.b")
	f.Fuzz(func(t *testing.T, url, spec, ref, word string) {
		for s, good := range map[string]bool{url: goodURL(url), spec: goodRefspec(spec), ref: validRef(ref), word: goodWord(word)} {
			if !good {
				continue
			}
			want := gitconf.Var{Section: "branch", Subsection: s, Key: "merge", Value: s, HasValue: true}
			got, err := gitconf.Parse([]byte(setting(want)))
			if err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("%q is read as %+v, %v", s, got, err)
			}
		}
	})
}
