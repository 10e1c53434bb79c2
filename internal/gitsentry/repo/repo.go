// Package repo owns the question which git repository a workspace belongs to,
// and whether that repository agrees.
package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/hostpath"
)

// Mount is where the sandbox sees the workspace.
const Mount = "/workspace"

// Kind is how a workspace is tied to its repository.
type Kind int

// The kinds. None is a workspace without .git, Bare one that is itself a git
// directory.
const (
	None Kind = iota
	Dir
	Worktree
	Submodule
	Separate
	Bare
)

func (k Kind) String() string {
	switch k {
	case None:
		return "no repository"
	case Dir:
		return "repository"
	case Worktree:
		return "linked worktree"
	case Submodule:
		return "submodule"
	case Separate:
		return "repository with a separate git directory"
	case Bare:
		return "bare repository"
	}
	return fmt.Sprintf("repo.Kind(%d)", int(k))
}

// Repo is a workspace's repository. Paths on the host are absolute and
// canonical. All but Kind and Ancestor is "" for None.
type Repo struct {
	Kind Kind
	// GitDir is the git directory that .git is or leads to; CommonDir is the one
	// with config, objects and refs, another for a linked worktree alone.
	GitDir, CommonDir string
	// WorktreeName is a linked worktree's name below CommonDir/worktrees.
	WorktreeName string
	// PointerText is the path in a .git file, as it stands there.
	PointerText string
	// SeenAt and CommonSeenAt are where git in the sandbox looks for GitDir and
	// CommonDir: where .git leads by its words, from Mount.
	SeenAt, CommonSeenAt string
	// WorkTreeSeenAt is where git in the sandbox looks for the worktree when the
	// git directory's core.worktree says: seldom Mount. For Submodule and Separate.
	WorkTreeSeenAt string
	// Ancestor is, for None, the nearest directory above that is a repository: git
	// on the host takes the workspace for a part of it.
	Ancestor string
}

// Discover finds the repository of a workspace, which is canonical and belongs
// to uid, as this process sees user ids.
//
// A .git file is a claim, which a sandbox could have written. It is believed
// only when the git directory belongs to uid, no step of the way to it lies in
// the workspace, and the git directory names this workspace in its turn: a
// linked worktree's by its gitdir file, others by core.worktree. A .git that is
// a symbolic link is refused wherever it leads: git keeps nothing that would
// name the link, so nobody agrees to it. Whatever is refused is one line, with
// what to do.
func Discover(workspace string, uid int) (Repo, error) {
	root, err := os.Lstat(workspace)
	if err != nil {
		return Repo{}, fmt.Errorf("workspace: %w", err)
	}
	d := discovery{workspace: workspace, dotGit: filepath.Join(workspace, ".git"), root: root, uid: uid}
	info, err := os.Lstat(d.dotGit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if isGitDir(workspace) {
			return Repo{Kind: Bare, GitDir: workspace, CommonDir: workspace, SeenAt: Mount, CommonSeenAt: Mount}, nil
		}
		return Repo{Ancestor: ancestor(workspace)}, nil
	case err != nil:
		return Repo{}, fmt.Errorf("workspace: %w", err)
	case info.IsDir():
		if _, err := os.Lstat(filepath.Join(d.dotGit, "commondir")); !errors.Is(err, fs.ErrNotExist) {
			return Repo{}, fmt.Errorf("%s has a file commondir, by which it borrows from another repository: use git worktree add, or remove the file", d.dotGit)
		}
		seen := path.Join(Mount, ".git")
		return Repo{Kind: Dir, GitDir: d.dotGit, CommonDir: d.dotGit, SeenAt: seen, CommonSeenAt: seen}, nil
	case info.Mode()&fs.ModeSymlink != 0:
		return Repo{}, fmt.Errorf("%s is a symbolic link, and nothing proves that its target agrees: replace it by a file with the line \"gitdir: TARGET\", and run git config core.worktree %s", d.dotGit, workspace)
	case !info.Mode().IsRegular():
		return Repo{}, fmt.Errorf("%s is neither a directory nor a file: remove it", d.dotGit)
	case !d.owns(info):
		return Repo{}, fmt.Errorf("%s belongs to another user: chown it, if you trust what it says", d.dotGit)
	}
	return d.pointer()
}

type discovery struct {
	workspace, dotGit string
	root              fs.FileInfo // of the workspace
	uid               int
}

// pointer follows a .git file.
func (d discovery) pointer() (Repo, error) {
	data, err := readSmall(d.dotGit)
	if err != nil {
		return Repo{}, fmt.Errorf("%s: %w", d.dotGit, err)
	}
	text, err := parsePointer(data)
	if err != nil {
		return Repo{}, fmt.Errorf("%s: %w: restore it with git worktree repair or git submodule update, or remove it", d.dotGit, err)
	}
	r := Repo{PointerText: text, SeenAt: seen(Mount, text)}
	if r.GitDir, err = d.gitDir(d.workspace, text); err != nil {
		return Repo{}, fmt.Errorf("%s: %w", d.dotGit, err)
	}
	if _, err := os.Lstat(filepath.Join(r.GitDir, "commondir")); err == nil {
		err = d.worktree(&r)
		if err != nil {
			return Repo{}, fmt.Errorf("%s: %w", d.dotGit, err)
		}
	} else if err := d.whole(&r); err != nil {
		return Repo{}, fmt.Errorf("%s: %w", d.dotGit, err)
	}
	if reserved(r.CommonSeenAt) {
		return Repo{}, fmt.Errorf("%s: seen from the sandbox it leads to %s, which is taken there: use an absolute path, or another directory for the workspace", d.dotGit, r.CommonSeenAt)
	}
	return r, nil
}

// worktree fills in a repository whose git directory is a linked worktree's.
func (d discovery) worktree(r *Repo) error {
	const repair = "run git worktree repair in the main worktree"
	text, err := readLine(filepath.Join(r.GitDir, "commondir"))
	if err != nil {
		return err
	}
	if r.CommonDir, err = d.gitDir(r.GitDir, text); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(r.CommonDir, "commondir")); err == nil {
		return fmt.Errorf("%s borrows from a git directory that borrows itself: %s", r.GitDir, repair)
	}
	r.Kind, r.WorktreeName = Worktree, filepath.Base(r.GitDir)
	if !same(filepath.Join(r.CommonDir, "worktrees", r.WorktreeName), r.GitDir) {
		return fmt.Errorf("%s is not a worktree of %s, to which it leads: %s", r.GitDir, r.CommonDir, repair)
	}
	back, err := readLine(filepath.Join(r.GitDir, "gitdir"))
	if err != nil {
		return err
	}
	// The directory, not the file: a hard link of another worktree's .git is no .git of its.
	if at := absolute(r.GitDir, back); filepath.Base(at) != ".git" || !same(filepath.Dir(at), d.workspace) {
		return fmt.Errorf("%s belongs to the worktree %s, not to this one: run git worktree repair here if this is that worktree, moved", r.GitDir, filepath.Dir(at))
	}
	r.CommonSeenAt = seen(r.SeenAt, text)
	if r.SeenAt != path.Join(r.CommonSeenAt, "worktrees", r.WorktreeName) {
		return fmt.Errorf("seen from the sandbox %s is not in %s: %s", r.SeenAt, r.CommonSeenAt, repair)
	}
	return nil
}

// whole fills in a repository whose git directory has all in itself.
func (d discovery) whole(r *Repo) error {
	r.Kind, r.CommonDir, r.CommonSeenAt = Separate, r.GitDir, r.SeenAt
	for dir := filepath.Dir(r.GitDir); dir != "/"; dir = filepath.Dir(dir) {
		if filepath.Base(dir) == "modules" && isGitDir(filepath.Dir(dir)) {
			r.Kind = Submodule
		}
	}
	text, err := workTree(r.GitDir)
	if err != nil {
		return err
	}
	fix := fmt.Sprintf("run git --git-dir=%s config core.worktree %s, if it is this workspace's", r.GitDir, d.workspace)
	if text == "" {
		return fmt.Errorf("%s does not say whose git directory it is: %s", r.GitDir, fix)
	}
	if at := absolute(r.GitDir, text); !same(at, d.workspace) {
		return fmt.Errorf("%s says that it belongs to %s: %s", r.GitDir, at, fix)
	}
	r.WorkTreeSeenAt = seen(r.SeenAt, text)
	return nil
}

// workTree is core.worktree as git takes it, which follows no include for it.
func workTree(gitDir string) (string, error) {
	var text string
	own := false
	for _, name := range []string{"config", "config.worktree"} {
		file := filepath.Join(gitDir, name)
		data, err := readFile(file, gitconf.MaxFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var vars []gitconf.Var
		if err == nil {
			vars, err = gitconf.Parse(data)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w: make it readable to git", file, err)
		}
		for _, v := range vars {
			switch v.Name() {
			case "core.worktree":
				text = v.Value
			case "extensions.worktreeconfig":
				own = truth(v)
			}
		}
		if !own {
			break
		}
	}
	return text, nil
}

func truth(v gitconf.Var) bool {
	switch strings.ToLower(v.Value) {
	case "", "false", "no", "off", "0":
		return !v.HasValue
	}
	return true
}

// gitDir follows text from the directory from, to a git directory of uid's.
func (d discovery) gitDir(from, text string) (string, error) {
	dir, err := d.walk(absolute(from, text))
	if err != nil {
		return "", err
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return "", err
	case !isGitDir(dir):
		return "", fmt.Errorf("leads to %s, which is no git directory: restore that, or remove the file", dir)
	case !d.owns(info):
		return "", fmt.Errorf("leads to %s, which belongs to another user: use a clone of your own", dir)
	}
	return dir, nil
}

// walk follows a path on the host, name by name, and refuses every step into
// the workspace: what is there, links above all, a sandbox could have made.
func (d discovery) walk(name string) (string, error) {
	end, err := hostpath.Follow(name, func(s *hostpath.Step) error {
		if s.Info == nil {
			return fmt.Errorf("leads to %s: %w: restore that, or remove the file", name, errors.Unwrap(s.Err))
		}
		// The workspace itself is passed on the way of a relative path: only what is in it counts.
		if os.SameFile(s.Info, d.root) {
			s.Path = d.workspace
		}
		if strings.HasPrefix(s.Path, strings.TrimSuffix(d.workspace, "/")+"/") {
			return fmt.Errorf("leads to %s through the workspace, where a sandbox could have made it: name the git directory itself, outside of the workspace", name)
		}
		return nil
	})
	if errors.Is(err, hostpath.ErrPath) {
		return "", fmt.Errorf("leads to %s: the way to %s cannot be followed, %w: restore it, or remove the file", name, end, err)
	}
	return end, err
}

func (d discovery) owns(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(stat.Uid) == int64(d.uid)
}

// isGitDir goes by the shape, as git does.
func isGitDir(dir string) bool {
	is := func(name string, want func(fs.FileInfo) bool) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && want(info)
	}
	if _, err := os.Lstat(filepath.Join(dir, "HEAD")); err != nil { // may be a link to a branch unborn
		return false
	}
	return is("commondir", func(info fs.FileInfo) bool { return info.Mode().IsRegular() }) ||
		is("objects", fs.FileInfo.IsDir) && is("refs", fs.FileInfo.IsDir)
}

func ancestor(dir string) string {
	for dir != "/" {
		dir = filepath.Dir(dir)
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil || isGitDir(dir) {
			return dir
		}
	}
	return ""
}

// reserved tells whether the sandbox has something of its own at a path.
func reserved(at string) bool {
	switch at {
	case "/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/var":
		return true
	}
	for _, dir := range []string{
		Mount, "/run/lazaret", "/proc", "/sys", "/dev", "/etc", "/boot", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
		"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec",
	} {
		if at == dir || strings.HasPrefix(at, dir+"/") {
			return true
		}
	}
	return false
}

// seen is where text leads by its words alone.
func seen(from, text string) string {
	if path.IsAbs(text) {
		return path.Clean(text)
	}
	return path.Join(from, text)
}

// absolute keeps .. for the kernel's way to read it.
func absolute(from, text string) string {
	if filepath.IsAbs(text) {
		return text
	}
	return from + "/" + text
}

func same(a, b string) bool {
	ai, aerr := os.Stat(a)
	bi, berr := os.Stat(b)
	return aerr == nil && berr == nil && os.SameFile(ai, bi)
}

// Obeyed is what git in dir obeys: the working tree, "" for none, and the git
// directories. Preconditions: dir, absolute, has a .git or is a git directory.
// Nothing is checked: it is for finding what must be guarded in any case.
func Obeyed(dir string) (tree string, gitDirs []string) {
	git := filepath.Join(dir, ".git")
	info, err := os.Lstat(git)
	switch {
	case err != nil:
		git = dir
		if text, err := workTree(git); err == nil && text != "" {
			tree = filepath.Clean(absolute(git, text))
		}
	case info.Mode().IsRegular():
		tree = dir
		data, err := readSmall(git)
		if err != nil {
			return tree, nil
		}
		text, err := parsePointer(data)
		if err != nil {
			return tree, nil
		}
		git = filepath.Clean(absolute(dir, text))
	default:
		tree = dir
	}
	gitDirs = []string{git}
	if text, err := readLine(filepath.Join(git, "commondir")); err == nil {
		gitDirs = append(gitDirs, filepath.Clean(absolute(git, text)))
	}
	return tree, gitDirs
}

// Configured finds the repository of a workspace, and whose configuration git obeys
// there: dev with all but Home, XDGConfigHome and Env filled in. Of a part of a
// repository that is the whole's.
func Configured(workspace string, uid int, dev gitconf.Options) (Repo, gitconf.Options, error) {
	r, err := Discover(workspace, uid)
	if err != nil {
		return r, dev, err
	}
	dev.Workspace, dev.System = workspace, []string{"/etc/gitconfig", "/usr/local/etc/gitconfig"}
	top, whole := workspace, r
	if r.Kind == None && r.Ancestor != "" {
		top = r.Ancestor
		if whole, err = Discover(top, uid); err != nil {
			return r, dev, fmt.Errorf("repository that the workspace is a part of: %w", err)
		}
	}
	if whole.Kind != None && whole.Kind != Bare {
		dev.WorkTree = top
	}
	for _, dir := range []string{whole.CommonDir, whole.GitDir} {
		if dir != "" && !slices.Contains(dev.GitDirs, dir) {
			dev.GitDirs = append(dev.GitDirs, dir)
		}
	}
	return r, dev, nil
}
