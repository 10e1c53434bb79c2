// Package gitexport owns the way of a git repository that was born in a sandbox
// out of its shadow and onto the host: objects, refs, logs and an index that was
// checked, with a configuration written anew. Nothing that makes a program run,
// or leads elsewhere, comes along: no hooks, no other configuration, alternates,
// attributes, symbolic links, submodules or linked worktrees.
package gitexport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/shadowkey"
	"github.com/lazaret-dev/lazaret/internal/hostgit"
)

// ErrNone is in the chain of an error about a directory without a repository
// that waits.
var ErrNone = errors.New("no repository of a sandbox waits")

// Options say where to look. Preconditions: no sandbox of the domain lives; all
// paths are absolute and canonical.
type Options struct {
	ShadowDir string // <Domain Root>/git/shadow
	Tree      string // the workspace, or the agent's worktree
	Git       *hostgit.Git
}

// Candidate is a directory on the host whose git repository is in the shadow.
type Candidate struct {
	Path string `json:"path"`
	Bare bool   `json:"bare"`
}

// bareNames are those of which the shadow has at least one of a bare repository's.
func bareNames() []string { return []string{"HEAD", "objects", "refs"} }

// List finds what can be exported. Directories that cannot be read are passed over.
func List(ctx context.Context, o Options) ([]Candidate, error) {
	keys := map[string]bool{}
	entries, err := os.ReadDir(o.ShadowDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for repositories in the shadow: %w", err)
	}
	for _, e := range entries {
		if shadowkey.Valid(e.Name()) {
			keys[e.Name()] = true
		}
	}
	var found []Candidate
	err = filepath.WalkDir(o.Tree, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(keys) == 0 {
			return fs.SkipAll
		}
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // what we may not read has nothing of ours
		}
		key, kerr := keyOf(path)
		if kerr != nil || !keys[key] {
			if d.Name() == ".git" {
				return fs.SkipDir
			}
			return nil //nolint:nilerr // as above
		}
		if c, ok := candidate(filepath.Join(o.ShadowDir, key), path); ok {
			found = append(found, c)
		}
		if d.Name() == ".git" {
			return fs.SkipDir // its own shadows are no repositories
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for repositories in %s: %w", o.Tree, err)
	}
	return found, nil
}

func keyOf(dir string) (string, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // only looked at
	return shadowkey.OfDir(fd)
}

// candidate tells what a shadow means for its directory.
func candidate(shadow, path string) (Candidate, bool) {
	if fi, err := os.Lstat(filepath.Join(shadow, "_.git")); err == nil && fi.IsDir() {
		if _, err := os.Lstat(filepath.Join(path, ".git")); errors.Is(err, fs.ErrNotExist) {
			return Candidate{Path: path}, true
		}
		return Candidate{}, false
	}
	inShadow := 0
	for _, n := range bareNames() {
		if _, err := os.Lstat(filepath.Join(shadow, "_"+n)); err == nil {
			inShadow++
		} else if _, err := os.Lstat(filepath.Join(path, n)); err != nil {
			return Candidate{}, false
		}
	}
	return Candidate{Path: path, Bare: true}, inShadow > 0
}

// Result is what came of an export.
type Result struct {
	GitDir string   // on the host
	Notes  []string // what was left behind
	Fsck   string   // what git fsck had to say, "" for nothing
}

// Export puts the repository of the directory path, canonical, where a git on
// the host finds it, and removes the shadow's copy. With force also one in which
// git fsck finds errors. It is all or nothing; fs.ErrPermission is in the chain
// of an error about files of other users of the user namespace.
func Export(ctx context.Context, o Options, path string, force bool) (res Result, err error) {
	if path != o.Tree && !strings.HasPrefix(path, o.Tree+"/") {
		return res, fmt.Errorf("%s is not in %s", path, o.Tree)
	}
	key, err := keyOf(path)
	if err != nil {
		return res, err
	}
	shadow := filepath.Join(o.ShadowDir, key)
	c, ok := candidate(shadow, path)
	if !ok {
		if _, err := os.Lstat(filepath.Join(path, ".git")); err == nil {
			return res, fmt.Errorf("%w for %s: it has a .git already", ErrNone, path)
		}
		if fi, err := os.Lstat(filepath.Join(shadow, "_.git")); err == nil && !fi.IsDir() {
			return res, fmt.Errorf("%w for %s: it is a submodule or a linked worktree, whose repository is elsewhere: export that one, or clone it in the sandbox", ErrNone, path)
		}
		return res, fmt.Errorf("%w for %s: lazaret git export --list shows those that do", ErrNone, path)
	}
	// What is not a git directory's would be lost with the bare one's exchange.
	beside, final := path, filepath.Join(path, ".git")
	layers := []layer{{dir: filepath.Join(shadow, "_.git"), marked: true}}
	if c.Bare {
		if path == o.Tree {
			return res, fmt.Errorf("the workspace %s itself became a bare repository: clone it in the sandbox and export the clone", path)
		}
		if err := onlyGit(path); err != nil {
			return res, err
		}
		beside, final = filepath.Dir(path), path
		layers = []layer{{dir: shadow, marked: true}, {dir: path}}
	}
	src, err := openSource(layers)
	if err != nil {
		return res, err
	}
	defer src.close()
	tmp, err := os.MkdirTemp(beside, ".lazaret-export-")
	if err != nil {
		return res, fmt.Errorf("export: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // as git init makes it
		return res, fmt.Errorf("export: %w", err)
	}
	cp := &copier{src: src, dst: tmp, bare: c.Bare}
	if err := cp.all(); err != nil {
		return res, fmt.Errorf("export %s: %w", path, err)
	}
	res.GitDir, res.Notes = final, cp.notes
	if res.Fsck, err = check(ctx, o.Git, tmp, cp); err != nil {
		if !force {
			return res, fmt.Errorf("export %s: %w: nothing was exported; --force exports it nevertheless", path, err)
		}
		res.Notes = append(res.Notes, err.Error())
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if c.Bare {
		flags = unix.RENAME_EXCHANGE
	}
	if err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, final, flags); err != nil {
		return res, fmt.Errorf("export: put %s in its place: %w", final, err)
	}
	return res, removeShadow(shadow, c.Bare)
}

// removeShadow removes what was exported; what else a shadow holds stays.
func removeShadow(shadow string, bare bool) error {
	names := []string{".git"}
	if bare {
		names = append(bareNames(), "commondir")
	}
	for _, n := range names {
		if err := os.RemoveAll(filepath.Join(shadow, "_"+n)); err != nil {
			return fmt.Errorf("remove the shadow's copy: %w", err)
		}
	}
	_ = os.Remove(shadow) // others may be in it
	return nil
}

// onlyGit refuses a directory that holds more than a bare repository does.
func onlyGit(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	known := append(bareNames(), "config", "description", "hooks", "info", "branches", "logs", "packed-refs", "shallow",
		"FETCH_HEAD", "ORIG_HEAD", "COMMIT_EDITMSG", "gc.log", "gc.pid", "lfs")
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			return fmt.Errorf("export: the bare repository %s holds %q, which is not git's and would be lost: move it away first", path, e.Name())
		}
	}
	return nil
}

// check lets git look at the copy, and makes the index that could not be copied.
func check(ctx context.Context, git *hostgit.Git, dir string, cp *copier) (said string, err error) {
	repo, err := git.Open(ctx, dir, dir, "")
	if err != nil {
		return "", err
	}
	out, err := repo.Run(ctx, hostgit.Call{Args: []string{"fsck", "--full", "--no-dangling", "--no-progress"}, Env: []string{"LC_ALL=C"}})
	said = strings.TrimSpace(string(out))
	if err != nil {
		return said, fmt.Errorf("git fsck finds errors (%w)", err)
	}
	if cp.bare || cp.index {
		return said, nil
	}
	if _, err := repo.Output(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		return said, nil //nolint:nilerr // no commit yet, no index either
	}
	if _, err := repo.Output(ctx, "read-tree", "HEAD"); err != nil {
		return said, fmt.Errorf("make its index: %w", err)
	}
	return said, nil
}
