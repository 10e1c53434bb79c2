package generator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Host is the user's side of the files: what he and his git do meanwhile.
type Host struct {
	dir string // the workspace
	n   int    // so that each change is a new one
}

// gitTime is more than any host command of these needs: one that takes longer hangs.
const gitTime = 5 * time.Minute

// ErrHung is a host command that the sandbox made hang.
var ErrHung = errors.New("a git command of the host hangs")

// NewHost acts in a workspace that Setup made.
func NewHost(dir string) *Host { return &Host{dir: dir} }

// Away is where "away" moves .git to.
func Away(workspace string) string { return workspace + ".away" }

// Setup makes a workspace for programs in an empty directory: a repository with
// hooks and attributes, one nested in it, a submodule and a linked worktree.
func Setup(ctx context.Context, dir string) error {
	const script = `
		git init -q -b main
		git config user.name Dev && git config user.email dev@example.test && git config gc.auto 0
		echo f >f && echo g >g && git add f g && git commit -qm one
		printf '#!/bin/sh\nexit 0\n' >.git/hooks/pre-commit && chmod 755 .git/hooks/pre-commit
		rm -f .git/hooks/*.sample
		echo '*.bin -diff' >.git/info/attributes
		git worktree add -q "$PWD.d/w" -b w 2>/dev/null
		git init -q n && git -C n config user.name N && git -C n -c user.email=n@example.test commit -q --allow-empty -m n
		rm -f n/.git/hooks/*.sample
		mkdir -p .git/modules m && git init -q tmp && mv tmp/.git .git/modules/m && rmdir tmp
		rm -f .git/modules/m/hooks/*.sample
		git --git-dir=.git/modules/m config core.worktree ../../../m
		echo 'gitdir: ../.git/modules/m' >m/.git
		mkdir -p d/e x .git/objects/ab
		cp -a . "$PWD.template"
	`
	cmd := exec.CommandContext(ctx, "sh", "-ceu", script)
	cmd.Dir, cmd.Env = dir, gitEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a workspace in %s: %w: %s", dir, err, out)
	}
	return nil
}

// gitEnv keeps the tests' git from the machine's configuration.
func gitEnv() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=1",
	}
}

// Do does one thing as the user would, and returns the guarded files that it wrote,
// with what they must hold now. Only ErrHung is an error: a repository that the
// sandbox broke fails its user, but does not hurt him.
func (h *Host) Do(kind string) (wrote map[string]string, err error) {
	h.n++
	switch kind {
	case "config":
		return h.put(".git/config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[gc]\n\tauto = 0\n[user]\n\tname = Dev\n\temail = dev@example.test\n[x]\n\ty = %d\n"), nil
	case "attributes":
		return h.put(".git/info/attributes", "*.bin%d -diff\n"), nil
	case "hook":
		return h.put(".git/hooks/pre-commit", "#!/bin/sh\nexit 0 # %d\n"), nil
	case "module-config":
		return h.put(".git/modules/m/config", "[core]\n\tworktree = ../../../m\n[x]\n\ty = %d\n"), nil
	case "nested-config":
		return h.put("n/.git/config", "[core]\n\tbare = false\n[x]\n\ty = %d\n"), nil
	case "edit":
		h.put("f", "edited %d\n")
	case "touch-head":
		h.put(".git/HEAD", "ref: refs/heads/main\n")
	case "away":
		_ = os.Rename(filepath.Join(h.dir, ".git"), Away(h.dir)) // gone already: nothing to move
	case "back":
		_ = os.Rename(Away(h.dir), filepath.Join(h.dir, ".git")) // here already
	case "commit":
		return nil, h.git("commit", "-q", "--allow-empty", "-a", "-m", "host")
	case "gc":
		return nil, h.git("gc", "-q", "--prune=now")
	case "status":
		return nil, h.git("status", "--porcelain")
	case "repair":
		return nil, h.repair()
	default:
		return nil, fmt.Errorf("the host does not know how to %q", kind)
	}
	return nil, nil
}

// put replaces a file as git and editors do, by a lock or a new file that is
// renamed over it.
func (h *Host) put(rel, format string) map[string]string {
	text := format
	if strings.Contains(format, "%d") {
		text = fmt.Sprintf(format, h.n)
	}
	path := filepath.Join(h.dir, rel)
	mode := fs.FileMode(0o644)
	if strings.Contains(rel, "/hooks/") {
		mode = 0o755
	}
	// A lock of somebody's makes git give up; so do we.
	f, err := os.OpenFile(path+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(path+".lock", path)
	}
	if err != nil {
		_ = os.Remove(path + ".lock") // as git does when it fails
		return nil
	}
	return map[string]string{rel: text}
}

func (h *Host) git(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), gitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = h.dir
	// Above the workspace there is no repository of ours.
	cmd.Env = append(gitEnv(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(h.dir))
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // what git says of a broken repository is no danger
	if ctx.Err() != nil {
		return fmt.Errorf("%w: git %s: %s", ErrHung, strings.Join(args, " "), out.String())
	}
	return nil
}

// repair brings the workspace back to where programs find something to attack: it
// restores what git may lose, and removes what programs left in the worktree.
func (h *Host) repair() error {
	if _, err := os.Lstat(Away(h.dir)); err == nil {
		_ = os.Rename(Away(h.dir), filepath.Join(h.dir, ".git")) // if one is there the snapshot tells
	}
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case ".git", "n", "m":
		default:
			err = errors.Join(err, os.RemoveAll(filepath.Join(h.dir, e.Name())))
		}
	}
	for _, dir := range []string{"d/e", "x", ".git/objects/ab"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(h.dir, dir), 0o755))
	}
	for _, f := range []string{"f", "g"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(h.dir, f), []byte(f+"\n"), 0o644))
	}
	template := h.dir + ".template"
	for _, name := range []string{"n", "m"} { // those that programs moved away are removed by now
		if !exists(filepath.Join(h.dir, name, ".git")) {
			err = errors.Join(err, restore(filepath.Join(template, name), filepath.Join(h.dir, name)))
		}
	}
	for _, dir := range []string{".git", ".git/modules/m", "n/.git"} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(h.dir, dir, "packed-refs")))
	}
	// What no git directory allows was the guard's to refuse, and told by then.
	for _, name := range []string{"HEAD", "index", "refs", "objects", "logs"} {
		err = errors.Join(err, restore(filepath.Join(template, ".git", name), filepath.Join(h.dir, ".git", name)))
	}
	for _, name := range []string{"HEAD", "refs", "objects"} {
		err = errors.Join(err,
			restore(filepath.Join(template, ".git/modules/m", name), filepath.Join(h.dir, ".git/modules/m", name)),
			restoreHead(filepath.Join(h.dir, "n/.git")))
	}
	return err
}

func restoreHead(gitDir string) error {
	for _, dir := range []string{"refs/heads", "objects"} {
		if err := os.MkdirAll(filepath.Join(gitDir, dir), 0o755); err != nil {
			return err
		}
	}
	return replace(filepath.Join(gitDir, "HEAD"), []byte("ref: refs/heads/main\n"))
}

// restore copies what is in from and not the same in to.
func restore(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if d.IsDir() {
			if fi, err := os.Lstat(target); err == nil && !fi.IsDir() {
				if err := os.Remove(target); err != nil {
					return err
				}
			}
			return os.MkdirAll(target, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if fi, err := os.Lstat(target); err == nil && fi.Mode().IsRegular() && fi.Size() == int64(len(data)) && strings.Contains(path, "/objects/") {
			return nil
		}
		return replace(target, data)
	})
}

func replace(path string, data []byte) error {
	if fi, err := os.Lstat(path); err == nil && fi.IsDir() {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	tmp := filepath.Join(filepath.Dir(path), "tmp_host")
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
