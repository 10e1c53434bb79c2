package coordinator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/gitsentry"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/repo"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

// findGit adds to a guard's options what git on the host says of the workspace:
// where a .git file leads, and whose configuration it obeys. It returns the mount
// of the git directory that a .git file leads to.
func (c *Coordinator) findGit(o *gitsentry.Options) ([]wire.Bind, error) {
	uid, err := c.developer(o.Workspace)
	if err != nil {
		return nil, err
	}
	r, conf, err := repo.Configured(o.Workspace, uid, c.developersGit())
	if err != nil {
		return nil, err
	}
	o.Config = &conf
	switch r.Kind {
	case repo.Worktree, repo.Submodule, repo.Separate:
	default:
		return nil, c.tellGit(repo.Mount)
	}
	o.GitDir, o.WorktreeName = r.CommonDir, r.WorktreeName
	if r.WorkTreeSeenAt != "" && r.WorkTreeSeenAt != repo.Mount {
		o.ConfigSuffix = "\n[core]\n\tworktree = " + repo.Mount + "\n"
	}
	return []wire.Bind{{Source: filepath.Join(o.Mountpoint, gitsentry.GitDirName), Destination: r.CommonSeenAt}}, c.tellGit(repo.Mount, r.CommonSeenAt)
}

// tellGit writes the configuration that a sandbox's git includes. gVisor numbers files
// anew in each sandbox, so that an index that the host wrote would be read and written
// again; with core.checkStat=minimal numbers do not count. Nor do they then for
// packed-refs, by which git would miss a change within a second: so only for
// repositories that the guard shows, which sees to that. dirs are where they are seen.
func (c *Coordinator) tellGit(dirs ...string) error {
	const part = "gitconfig.guarded"
	var b strings.Builder
	for _, d := range dirs {
		if d == "" || strings.ContainsAny(d, "\n\x00") {
			continue
		}
		pattern := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(d) // as in glob(7)
		fmt.Fprintf(&b, "[includeIf \"gitdir:%s/\"]\n\tpath = %s\n", strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(pattern), part)
	}
	for name, text := range map[string]string{part: "[core]\n\tcheckStat = minimal\n", filepath.Base(spec.GitConfig): b.String()} {
		if err := atomicfile.Write(filepath.Join(c.runDir, name), []byte(text), 0o644, false); err != nil { // on memory
			return fmt.Errorf("tell the sandbox's git of its repositories: %w", err)
		}
	}
	return nil
}

// developersGit is the developer as git on the host sees him.
func (c *Coordinator) developersGit() gitconf.Options {
	return gitconf.Options{Home: c.spec.Home, XDGConfigHome: c.spec.ConfigHome, Env: c.spec.GitEnv}
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
