package coordinator

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/gitsentry"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/repo"
	"github.com/lazaret-dev/lazaret/internal/hostgit"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

// findGit adds to a guard's options what git on the host says of the workspace:
// where a .git file leads, and whose configuration it obeys. It returns the mount
// of the git directory that a .git file leads to.
func (c *Coordinator) findGit(ctx context.Context, o *gitsentry.Options) ([]wire.Bind, error) {
	uid, err := c.developer(o.Workspace)
	if err != nil {
		return nil, err
	}
	r, conf, err := repo.Configured(o.Workspace, uid, c.developersGit())
	if err != nil {
		return nil, err
	}
	o.Config = &conf
	seen, binds := []string{repo.Mount}, []wire.Bind(nil)
	switch r.Kind {
	case repo.Worktree, repo.Submodule, repo.Separate:
		o.GitDir, o.WorktreeName = r.CommonDir, r.WorktreeName
		if r.WorkTreeSeenAt != "" && r.WorkTreeSeenAt != repo.Mount {
			o.ConfigSuffix = "\n[core]\n\tworktree = " + repo.Mount + "\n"
		}
		seen = append(seen, r.CommonSeenAt)
		binds = []wire.Bind{{Source: filepath.Join(o.Mountpoint, gitsentry.GitDirName), Destination: r.CommonSeenAt}}
	default:
	}
	return binds, c.tellGit(c.author(ctx, o.Workspace), seen...)
}

// tellGit writes the configuration that a sandbox's git includes. gVisor numbers files
// anew in each sandbox, so that an index that the host wrote would be read and written
// again; with core.checkStat=minimal numbers do not count. Nor do they then for
// packed-refs, by which git would miss a change within a second: so only for
// repositories that the guard shows, which sees to that. dirs are where they are seen.
//
// In these repositories it also says whose the commits are: what the host's git would
// write there, as the developer's own settings are not in the sandbox.
func (c *Coordinator) tellGit(author map[string]string, dirs ...string) error {
	const part, who = "gitconfig.guarded", "gitconfig.author"
	var b, user strings.Builder
	for _, d := range dirs {
		if d == "" || strings.ContainsAny(d, "\n\x00") {
			continue
		}
		pattern := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(d) // as in glob(7)
		pattern = inConfig(pattern)
		fmt.Fprintf(&b, "[includeIf \"gitdir:%s/\"]\n\tpath = %s\n", pattern, part)
		// Not the repositories below, which may be of tests with names of their own.
		for _, gitDir := range []string{pattern + "/.git", pattern + "/.git/worktrees/*", pattern, pattern + "/worktrees/*"} {
			fmt.Fprintf(&b, "[includeIf \"gitdir:%s\"]\n\tpath = %s\n", gitDir, who)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(author)) {
		fmt.Fprintf(&user, "[user]\n\t%s = \"%s\"\n", key, strings.ReplaceAll(inConfig(author[key]), "\n", `\n`))
	}
	for name, text := range map[string]string{part: "[core]\n\tcheckStat = minimal\n", who: user.String(), filepath.Base(spec.GitConfig): b.String()} {
		if err := atomicfile.Write(filepath.Join(c.runDir, name), []byte(text), 0o644, false); err != nil { // on memory
			return fmt.Errorf("tell the sandbox's git of its repositories: %w", err)
		}
	}
	return nil
}

// inConfig is a text between quotes of git's configuration.
func inConfig(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) }

// author is whose commits those in the workspace are, by the keys of git's section
// user; nobody's where the host's git does not tell.
func (c *Coordinator) author(ctx context.Context, workspace string) map[string]string {
	git, err := hostgit.New(c.spec.Home, c.spec.ConfigHome)
	if err != nil {
		return nil // there is no git on the host
	}
	if c.spec.RealUID == 0 {
		git = git.AnyOwner()
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	name, email, err := git.Identity(ctx, workspace)
	if err != nil {
		c.log.Warn("the sandbox's git is not told whose its commits are", "error", err)
		return nil
	}
	out := map[string]string{}
	for key, value := range map[string]string{"name": name, "email": email} {
		if value != "" && !strings.ContainsRune(value, 0) {
			out[key] = value
		}
	}
	return out
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
