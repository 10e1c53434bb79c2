package coordinator

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/repo"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// findGit adds to a guard's options what git on the host says of the workspace:
// where a .git file leads, and whose configuration it obeys. It returns the mount
// of the git directory that a .git file leads to.
func (c *Coordinator) findGit(o *gitsentry.Options) ([]wire.Bind, error) {
	uid, err := c.developer(o.Workspace)
	if err != nil {
		return nil, err
	}
	r, err := repo.Discover(o.Workspace, uid)
	if err != nil {
		return nil, err
	}
	o.Config = &gitconf.Options{
		Workspace: o.Workspace, Home: c.spec.Home, XDGConfigHome: c.spec.ConfigHome,
		System: []string{"/etc/gitconfig", "/usr/local/etc/gitconfig"}, Env: c.spec.GitEnv,
	}
	// A part of a repository obeys that one.
	top, whole := o.Workspace, r
	if r.Kind == repo.None && r.Ancestor != "" {
		top = r.Ancestor
		if whole, err = repo.Discover(top, uid); err != nil {
			return nil, fmt.Errorf("repository that the workspace is a part of: %w", err)
		}
	}
	if whole.Kind != repo.None && whole.Kind != repo.Bare {
		o.Config.WorkTree = top
	}
	for _, dir := range []string{whole.CommonDir, whole.GitDir} {
		if dir != "" && !slices.Contains(o.Config.GitDirs, dir) {
			o.Config.GitDirs = append(o.Config.GitDirs, dir)
		}
	}
	switch r.Kind {
	case repo.Worktree, repo.Submodule, repo.Separate:
	default:
		return nil, nil
	}
	o.GitDir, o.WorktreeName = r.CommonDir, r.WorktreeName
	if r.WorkTreeSeenAt != "" && r.WorkTreeSeenAt != repo.Mount {
		o.ConfigSuffix = "\n[core]\n\tworktree = " + repo.Mount + "\n"
	}
	return []wire.Bind{{Source: filepath.Join(o.Mountpoint, gitsentry.GitDirName), Destination: r.CommonSeenAt}}, nil
}

// developer is the workspace's owner as this process sees user ids: the one that
// we are in a rootless engine's user namespace, for a rootful engine whoever it
// belongs to.
func (c *Coordinator) developer(workspace string) (int, error) {
	if c.spec.RealUID != 0 {
		return os.Geteuid(), nil
	}
	var st unix.Stat_t
	if err := unix.Stat(workspace, &st); err != nil {
		return 0, fmt.Errorf("workspace %s: %w", workspace, err)
	}
	return int(st.Uid), nil
}
