package gitindex_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitindex"
)

// repo is a repository that real git works on.
type repo struct {
	t       *testing.T
	dir     string
	hashLen int
}

// newRepo makes a repository with some files, directories and links committed.
func newRepo(t *testing.T, hashLen int) *repo {
	t.Helper()
	r := &repo{t: t, dir: t.TempDir(), hashLen: hashLen}
	r.git("init", "-q", "-b", "main", "--object-format="+map[int]string{20: "sha1", 32: "sha256"}[hashLen])
	for _, name := range []string{"a", "a-b", "a.c", "b/c/d", "b/c/e", "b/f", "b-/x", "b.x", "dir/sub/one", "dir/sub/two", "dir/three", "é/ü", "z z/\x01", ".gitignore", ".gitmodules"} {
		r.write(name, name+"\n")
	}
	for i := range 60 {
		r.write(fmt.Sprintf("many/%d/file-%d", i%3, i), fmt.Sprint(i))
	}
	r.write("long/"+strings.Repeat(strings.Repeat("l", 200)+"/", 19)+"x", "long") // more than 0xfff bytes need another place
	if err := os.Symlink("a", filepath.Join(r.dir, "sym")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(r.dir, "b/f"), 0o755); err != nil { //nolint:gosec // to be executable
		t.Fatal(err)
	}
	r.git("add", "-A")
	r.git("commit", "-qm", "first")
	return r
}

func (r *repo) copy(t *testing.T) *repo {
	t.Helper()
	c := &repo{t: t, dir: filepath.Join(t.TempDir(), "r"), hashLen: r.hashLen}
	if err := os.CopyFS(c.dir, os.DirFS(r.dir)); err != nil {
		t.Fatal(err)
	}
	c.git("reset", "-q", "--hard")
	return c
}

func (r *repo) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repo) try(args ...string) ([]byte, error) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args, err, stderr.Bytes())
	}
	return out, err
}

func (r *repo) git(args ...string) []byte {
	r.t.Helper()
	out, err := r.try(args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *repo) index() []byte {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, ".git/index"))
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

func (r *repo) shared() []byte {
	r.t.Helper()
	base, err := gitindex.Base(r.index(), r.hashLen)
	if err != nil || base == nil {
		r.t.Fatalf("no split index: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(r.dir, fmt.Sprintf(".git/sharedindex.%x", base)))
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

// list reads data as git ls-files --stage --sparse -z would print it.
func list(data []byte, hashLen int) (string, error) {
	var out strings.Builder
	err := gitindex.Parse(data, hashLen, func(e gitindex.Entry) error {
		fmt.Fprintf(&out, "%06o %x %d\t%s\x00", e.Mode, e.OID, e.Stage, e.Path)
		return nil
	})
	return out.String(), err
}

func extensions(data []byte) string {
	var names []string
	for _, name := range []string{"TREE", "REUC", "link", "UNTR", "FSMN", "EOIE", "IEOT", "sdir"} {
		if bytes.Contains(data, []byte(name)) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// situations are indexes as git writes them. Each says which version and which
// extensions git is to have written, so that none is missed unnoticed.
var situations = []struct {
	name    string
	version byte
	exts    string
	make    func(r *repo)
}{
	{"version 2", 2, "TREE", func(*repo) {}},
	{"empty", 2, "TREE", func(r *repo) { r.git("rm", "-rqf", "--cached", "."); r.git("read-tree", "--empty") }},
	{"version 3 by intent to add", 3, "TREE", func(r *repo) { r.write("new", ""); r.git("add", "-N", "new") }},
	{"skip-worktree and assume-unchanged", 3, "TREE", func(r *repo) {
		r.git("update-index", "--skip-worktree", "a")
		r.git("update-index", "--assume-unchanged", "a-b")
	}},
	{"version 4", 4, "TREE", func(r *repo) { r.git("update-index", "--index-version=4") }},
	{"version 4, threads", 4, "TREE EOIE IEOT", func(r *repo) {
		r.git("config", "index.threads", "3")
		r.git("config", "index.recordOffsetTable", "true")
		r.git("config", "index.recordEndOfIndexEntries", "true")
		r.many(300)
		r.git("update-index", "--index-version=4")
		r.git("reset", "-q")
	}},
	{"threads", 2, "TREE EOIE IEOT", func(r *repo) {
		r.git("config", "index.threads", "4")
		r.git("config", "index.recordEndOfIndexEntries", "true")
		r.many(300)
		r.git("reset", "-q")
	}},
	{"no checksum", 2, "TREE", func(r *repo) {
		r.git("config", "index.skipHash", "true")
		r.write("new", "")
		r.git("add", "new")
	}},
	{"conflict", 2, "TREE", func(r *repo) { r.conflict() }},
	{"conflict resolved", 2, "TREE REUC", func(r *repo) { r.conflict(); r.git("add", "a") }},
	{"conflict in a directory's place", 2, "TREE", func(r *repo) {
		r.git("checkout", "-qb", "other")
		r.git("rm", "-qr", "b")
		r.write("b", "now a file\n")
		r.git("add", "b")
		r.git("commit", "-qm", "other")
		r.git("checkout", "-q", "main")
		r.write("b/f", "changed\n")
		r.git("commit", "-qam", "main")
		if _, err := r.try("merge", "-q", "other"); err == nil {
			r.t.Fatal("no conflict")
		}
	}},
	{"untracked cache", 2, "TREE UNTR", func(r *repo) {
		r.git("update-index", "--force-untracked-cache")
		r.write("b/untracked", "")
		r.write("new/sub/untracked", "")
		r.write(".gitignore", "x\n")
		r.git("status")
		r.write("b/c/another", "")
		r.git("status")
	}},
	{"untracked cache, unused", 2, "TREE UNTR", func(r *repo) { r.git("update-index", "--force-untracked-cache") }},
	{"fsmonitor", 2, "TREE FSMN", func(r *repo) {
		hook := filepath.Join(r.dir, ".git/watch")
		if err := os.WriteFile(hook, []byte("#!/bin/sh\nprintf 'token\\0'\n"), 0o700); err != nil { //nolint:gosec // a program
			r.t.Fatal(err)
		}
		r.git("config", "core.fsmonitor", hook)
		r.git("update-index", "--fsmonitor")
		r.git("status")
		r.write("a", "again\n")
		r.git("status")
	}},
	{"sparse", 3, "TREE sdir", func(r *repo) {
		r.git("sparse-checkout", "set", "--cone", "--sparse-index", "dir")
	}},
	{"sparse, version 4", 4, "TREE sdir", func(r *repo) {
		r.git("sparse-checkout", "set", "--cone", "--sparse-index", "b/c")
		r.git("update-index", "--index-version=4")
	}},
	{"split", 2, "TREE link", func(r *repo) { r.git("update-index", "--split-index") }},
	{"split, version 4", 4, "TREE link", func(r *repo) {
		r.git("update-index", "--index-version=4")
		r.git("update-index", "--split-index")
		r.change()
	}},
	{"split, then all kinds of changes", 2, "TREE link", func(r *repo) {
		r.git("config", "splitIndex.maxPercentChange", "100")
		r.git("update-index", "--split-index")
		r.change()
	}},
	{"split and merged again", 2, "TREE", func(r *repo) {
		r.git("update-index", "--split-index")
		r.change()
		r.git("update-index", "--no-split-index")
		r.git("commit", "-qm", "all")
	}},
	{"submodule", 2, "TREE", func(r *repo) {
		r.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 2*r.hashLen)+",mod/ule")
	}},
}

func (r *repo) conflict() {
	r.git("checkout", "-qb", "other")
	r.write("a", "other\n")
	r.git("commit", "-qam", "other")
	r.git("checkout", "-q", "main")
	r.write("a", "main\n")
	r.git("commit", "-qam", "main")
	if _, err := r.try("merge", "-q", "other"); err == nil {
		r.t.Fatal("no conflict")
	}
}

func (r *repo) change() {
	r.write("a", "changed\n")
	r.write("dir/new", "new\n")
	if err := os.Remove(filepath.Join(r.dir, "sym")); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Symlink("b", filepath.Join(r.dir, "sym")); err != nil {
		r.t.Fatal(err)
	}
	r.git("rm", "-q", "many/1/file-1", "b.x")
	r.git("add", "-A")
}

// many adds n entries that need no files.
func (r *repo) many(n int) {
	r.t.Helper()
	var in bytes.Buffer
	blob := strings.TrimSpace(string(r.git("rev-parse", "HEAD:a")))
	for i := range n {
		fmt.Fprintf(&in, "100644 %s\tmass/%d/of/%d/files\n", blob, i%100, i)
	}
	cmd := exec.CommandContext(r.t.Context(), "git", "update-index", "--index-info")
	cmd.Dir, cmd.Stdin = r.dir, &in
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	r.git("commit", "-qm", "many")
}

func TestWhatGitWrites(t *testing.T) {
	t.Parallel()
	for _, hashLen := range []int{20, 32} {
		template := newRepo(t, hashLen)
		for _, s := range situations {
			t.Run(fmt.Sprintf("%s, %d", s.name, hashLen), func(t *testing.T) {
				t.Parallel()
				r := template.copy(t)
				s.make(r)
				data := r.index()
				if data[7] != s.version || extensions(data) != s.exts {
					t.Fatalf("git wrote version %d with %q, not %d with %q: the test is wrong", data[7], extensions(data), s.version, s.exts)
				}
				if err := gitindex.Validate(data, hashLen); err != nil {
					t.Fatalf("Validate: %v", err)
				}
				if s.exts == "TREE link" {
					shared := r.shared()
					if err := gitindex.Validate(shared, hashLen); err != nil {
						t.Fatalf("Validate of the shared index: %v", err)
					}
					if err := gitindex.ValidateSplit(data, shared, hashLen); err != nil {
						t.Fatalf("ValidateSplit: %v", err)
					}
					return
				}
				got, err := list(data, hashLen)
				if err != nil {
					t.Fatal(err)
				}
				if want := string(r.git("ls-files", "--stage", "--sparse", "-z")); got != want {
					t.Errorf("Parse read\n%.400q\ngit reads\n%.400q", got, want)
				}
				if err := gitindex.Validate(data, 52-hashLen); !errors.Is(err, gitindex.ErrMalformed) {
					t.Errorf("Validate with the wrong hash: %v", err)
				}
			})
		}
	}
}
