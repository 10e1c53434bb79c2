package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/gitbranch"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitexport"
	"github.com/lazaret-dev/lazaret/internal/hostgit"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

func gitCommand() *cli.Command {
	const here = "PATH is the workspace or lies in it, by default the current directory."
	flags := func(more ...cli.Flag) []cli.Flag {
		return append([]cli.Flag{
			&cli.StringFlag{Name: "profile", Aliases: []string{"p"}, Usage: "the domain of profile `NAME` instead of the default one"},
			&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
		}, more...)
	}
	yes := func(name, usage string, aliases ...string) cli.Flag {
		return &cli.BoolFlag{Name: name, Aliases: aliases, Usage: usage, DisableDefaultText: true}
	}
	return &cli.Command{
		Name:  "git",
		Usage: "look at an agent's branch, take it over, and export its repositories",
		Description: "With git = \"branch\" the agent works in a worktree of its own, on a branch that begins at\n" +
			"your current commit. These commands are for that branch; \"export\" is for every workspace.",
		Subcommands: []*cli.Command{
			{
				Name: "status", Usage: "show the agent's branch, its worktree, and what waits for export",
				ArgsUsage: "[PATH]", Description: here,
				Flags: flags(yes("json", "print one JSON object")), Action: runGitStatus,
			},
			{
				Name: "diff", Usage: "show what the agent's branch changes: git diff HEAD...BRANCH",
				ArgsUsage: "[PATH] [-- GIT-ARGUMENTS...]", Description: here, Flags: flags(), Action: runGitDiff,
			},
			{
				Name: "log", Usage: "show the commits of the agent's branch: git log HEAD..BRANCH",
				ArgsUsage: "[PATH] [-- GIT-ARGUMENTS...]", Description: here, Flags: flags(), Action: runGitLog,
			},
			{
				Name: "merge", Usage: "merge the agent's branch into yours: git merge BRANCH",
				ArgsUsage:   "[PATH] [-- GIT-ARGUMENTS...]",
				Description: "Your git, your settings and your hooks run, in the workspace.\n" + here,
				Flags:       flags(), Action: runGitMerge,
			},
			{
				Name: "rebase", Usage: "put the agent's commits on top of your current commit",
				ArgsUsage:   "[PATH]",
				Description: "Conflicts change nothing. No container of the domain may live, and the agent's worktree\nmust be clean.\n" + here,
				Flags:       flags(), Action: runGitRebase,
			},
			{
				Name: "include", Usage: "copy your uncommitted changes into the agent's worktree",
				ArgsUsage:   "[PATH]",
				Description: "Changes and new files, but for ignored ones; they are uncommitted changes there too. No\ncontainer of the domain may live, and the agent's worktree must be clean.\n" + here,
				Flags:       flags(), Action: runGitInclude,
			},
			{
				Name: "drop", Usage: "remove the agent's branch and worktree",
				ArgsUsage:   "[PATH]",
				Description: "Asks first. Commits and changes that nobody else has are lost only with --force. No\ncontainer of the domain may live.\n" + here,
				Flags:       flags(yes("yes", "do not ask", "y"), yes("force", "lose what is not merged")), Action: runGitDrop,
			},
			{
				Name: "export", Usage: "put a repository that was born in a sandbox onto the host",
				ArgsUsage: "[PATH]",
				Description: "A repository that the agent has made is hidden from the host's programs. Export makes\n" +
					"PATH/.git of its objects, refs and logs, with a new configuration and without hooks, after\n" +
					"git fsck has looked at it. PATH is the directory. No container of the domain may live.",
				Flags:  flags(yes("list", "list what can be exported; PATH is the workspace"), yes("force", "export in spite of git fsck's errors")),
				Action: runGitExport,
			},
		},
	}
}

// gitArgs tells the path from what is for git itself, after "--".
func gitArgs(c *cli.Context) (path string, extra []string, err error) {
	args := c.Args().Slice()
	// The flag package swallows a "--" that comes first: ask the parent's words.
	raw := c.Lineage()[1].Args().Slice()
	if i := slices.Index(raw, "--"); i >= 0 {
		extra = raw[i+1:]
		args = args[:len(args)-len(extra)]
		if n := len(args); n > 0 && args[n-1] == "--" {
			args = args[:n-1]
		}
	}
	switch {
	case len(args) > 1:
		return "", nil, usageError("%s takes one path at most; arguments for git come after --", c.Command.HelpName)
	case len(args) == 1 && strings.HasPrefix(args[0], "-"):
		return "", nil, usageError("%s: put %s after --", c.Command.HelpName, args[0])
	case len(args) == 1:
		return args[0], extra, nil
	}
	return ".", extra, nil
}

// gitDomain finds the domain of the workspace that path lies in: the nearest one
// with something of an agent's, else that of path itself.
func gitDomain(c *cli.Context, path string) (resolved, error) {
	a, err := askedFor(c, path)
	if err != nil {
		return resolved{}, err
	}
	// In the agent's worktree it is the workspace that this belongs to.
	if rel, err := filepath.Rel(filepath.Join(realPath(a.cfg.General.DataRoot), "domains"), a.dir); err == nil && filepath.IsLocal(rel) {
		hash, rest, _ := strings.Cut(rel, "/")
		if own, err := recordedDomain(a.cfg.General.DataRoot, hash); err == nil && (rest == "worktree" || strings.HasPrefix(rest, "worktree/")) {
			if err := c.Set("profile", own.Profile); err != nil {
				return resolved{}, err
			}
			return resolveDomain(c, own.Workspace)
		}
	}
	return a.nearest(c, "git")
}

// asked is where a command was called for, and by what its domain is found.
type asked struct {
	dir     string // canonical
	profile string
	cfg     *config.Config
}

func askedFor(c *cli.Context, path string) (a asked, err error) {
	if a.dir, err = domain.Canonical(path); err != nil {
		return a, err
	}
	r, err := usersSettings(c)
	if err != nil {
		return a, err
	}
	a.cfg = r.cfg
	if a.profile = c.String("profile"); a.profile == "" {
		a.profile = a.cfg.General.DefaultProfile
	}
	return a, nil
}

// nearest is the domain of the nearest directory from a.dir up whose Domain Root
// has name, else that of a.dir.
func (a asked) nearest(c *cli.Context, name string) (resolved, error) {
	for up := a.dir; ; up = filepath.Dir(up) {
		if _, err := os.Lstat(filepath.Join(domain.New(a.profile, up, a.cfg.General.DataRoot).Root, name)); err == nil {
			return resolveDomain(c, up)
		}
		if up == "/" {
			a.hint(c)
			return resolveDomain(c, a.dir)
		}
	}
}

// hint tells whose domains there are where the default profile, which nobody named,
// has none.
func (a asked) hint(c *cli.Context) {
	if c.String("profile") != "" {
		return
	}
	all, err := knownDomains(a.cfg.General.DataRoot)
	if err != nil {
		return // the command itself will say so
	}
	var names []string
	for _, d := range all {
		if rel, err := filepath.Rel(d.Workspace, a.dir); d.Workspace == "" || err != nil || !filepath.IsLocal(rel) {
			continue // elsewhere
		}
		if d.Profile == a.profile {
			return
		}
		names = append(names, d.Profile)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > 0 {
		_, _ = fmt.Fprintf(c.App.ErrWriter, "lazaret: note: this is profile %s; the sandbox here was that of %s: -p %s\n",
			a.profile, strings.Join(names, ", "), names[0]) // a note only
	}
}

// usedDomain is the domain of the nearest directory from path up that was ever a
// workspace, else that of path itself.
func usedDomain(c *cli.Context, path string) (resolved, error) {
	a, err := askedFor(c, path)
	if err != nil {
		return resolved{}, err
	}
	return a.nearest(c, "domain.json")
}

func realPath(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return p
}

func branchOptions(r resolved) gitbranch.Options {
	return gitbranch.Options{Domain: r.anchor, Home: r.env.Home, ConfigHome: r.env.ConfigHome}
}

// onlyPath is gitArgs for commands that pass nothing on.
func onlyPath(c *cli.Context) (string, error) {
	if c.NArg() > 1 {
		return "", usageError("%s takes one path at most", c.Command.HelpName)
	}
	if c.NArg() == 1 {
		return c.Args().First(), nil
	}
	return ".", nil
}

// gitStatusView is what lazaret git status prints. Branch is nil when there is none.
type gitStatusView struct {
	Profile    string                `json:"profile"`
	Workspace  string                `json:"workspace"`
	Git        string                `json:"git"` // the profile's key
	Branch     *gitbranch.State      `json:"branch"`
	Containers int                   `json:"containers"`
	Sessions   int                   `json:"sessions"`
	Waiting    []gitexport.Candidate `json:"waiting"` // for export
}

func runGitStatus(c *cli.Context) error {
	path, err := onlyPath(c)
	if err != nil {
		return err
	}
	r, err := gitDomain(c, path)
	if err != nil {
		return err
	}
	v := gitStatusView{Profile: r.anchor.Profile, Workspace: r.anchor.Workspace, Git: r.profile.Git, Waiting: []gitexport.Candidate{}}
	switch st, err := askStatus(r.anchor.SocketPath(r.cfg.General.ControlDir)); {
	case err == nil:
		v.Containers, v.Sessions = len(st.Containers), len(st.Sessions)
	case !errors.Is(err, wire.ErrNoCoordinator) && !wire.Cut(err):
		return err
	}
	switch b, err := gitbranch.Open(c.Context, branchOptions(r)); {
	case err == nil:
		st, err := b.State(c.Context)
		b.Close()
		if err != nil {
			return err
		}
		v.Branch = &st
	case !errors.Is(err, gitbranch.ErrNone):
		return err
	}
	waiting, err := waitingRepos(c.Context, r)
	if err != nil {
		return err
	}
	v.Waiting = append(v.Waiting, waiting...)
	if c.Bool("json") {
		return printJSON(c.App.Writer, v)
	}
	return printGitStatus(c, v)
}

func printGitStatus(c *cli.Context, v gitStatusView) error {
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	p := &printer{w: w}
	row := func(name, format string, args ...any) { p.printf("%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("workspace", "%s", config.Printable(v.Workspace))
	row("profile", "%s (git = %q)", v.Profile, v.Git)
	if s := v.Branch; s == nil {
		row("branch", "none: git = \"branch\" in the profile makes one at the next start")
	} else {
		row("branch", "%s, %d ahead of %s and %d behind", config.Printable(s.Branch), s.Ahead, config.Printable(s.Host), s.Behind)
		row("worktree", "%s", config.Printable(s.Worktree))
		row("uncommitted", "%d in the agent's worktree, %d in yours that the agent does not have", s.Changes, s.HostFiles)
		if s.Elsewhere != "" {
			row("note", "the agent's worktree is at %s, not on its branch", config.Printable(s.Elsewhere))
		}
		if s.Problem != "" {
			row("note", "%s", s.Problem)
		}
	}
	row("in use", "%d containers, %d sessions", v.Containers, v.Sessions)
	for _, wt := range v.Waiting {
		row("to export", "%s", config.Printable(wt.Path))
	}
	return errors.Join(p.err, w.Flush())
}

// waitingRepos are the repositories in the domain's shadow.
func waitingRepos(ctx context.Context, r resolved) (all []gitexport.Candidate, err error) {
	for _, tree := range []string{r.anchor.Workspace, gitbranch.Path(r.anchor.Root)} {
		if _, err := os.Lstat(tree); err != nil {
			continue
		}
		found, err := gitexport.List(ctx, gitexport.Options{ShadowDir: shadowDir(r), Tree: realPath(tree)})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func shadowDir(r resolved) string { return filepath.Join(r.anchor.Root, "git", "shadow") }

func runGitDiff(c *cli.Context) error {
	return withGit(c, func(b *gitbranch.Branch) []string { return []string{"diff", "HEAD..." + b.Ref()} })
}

func runGitLog(c *cli.Context) error {
	return withGit(c, func(b *gitbranch.Branch) []string { return []string{"log", "HEAD.." + b.Ref()} })
}

func runGitMerge(c *cli.Context) error {
	return withGit(c, func(b *gitbranch.Branch) []string { return []string{"merge", b.Ref()} })
}

// withGit runs the developer's own git in the workspace, as he would.
func withGit(c *cli.Context, args func(*gitbranch.Branch) []string) error {
	path, extra, err := gitArgs(c)
	if err != nil {
		return err
	}
	r, err := gitDomain(c, path)
	if err != nil {
		return err
	}
	b, err := gitbranch.Open(c.Context, branchOptions(r))
	if err != nil {
		return err
	}
	st, err := b.State(c.Context)
	b.Close()
	if err != nil {
		return err
	}
	if st.Commit == "" {
		return fmt.Errorf("the branch %s was deleted: the next start makes it again", b.Name())
	}
	if st.Changes > 0 {
		_, _ = fmt.Fprintf(c.App.ErrWriter, "lazaret: note: uncommitted changes in the agent's worktree are not in its branch: %d\n", st.Changes) // a note only
	}
	return passOn(c, b.Git(), append(args(b), extra...), r.anchor.Workspace, hostgit.DeveloperEnv(os.Environ()))
}

// alone runs work on the branch of a domain that nobody uses.
func alone(c *cli.Context, work func(*gitbranch.Branch) error) (err error) {
	path, err := onlyPath(c)
	if err != nil {
		return err
	}
	r, err := gitDomain(c, path)
	if err != nil {
		return err
	}
	if outsideUserNamespace(r) && foreign(gitbranch.Path(r.anchor.Root)) {
		return inUserNamespace(c)
	}
	// What there is not is said before that it is in use.
	b, err := gitbranch.Open(c.Context, branchOptions(r))
	if err != nil {
		return err
	}
	b.Close()
	release, err := lockDomain(r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if b, err = gitbranch.Open(c.Context, branchOptions(r)); err != nil {
		return err
	}
	defer b.Close()
	return work(b)
}

func runGitRebase(c *cli.Context) error {
	return alone(c, func(b *gitbranch.Branch) error {
		changed, err := b.Rebase(c.Context)
		if err != nil {
			return err
		}
		text := "%s is on top of your current commit already\n"
		if changed {
			text = "%s is on top of your current commit now\n"
		}
		_, err = fmt.Fprintf(c.App.Writer, text, b.Name())
		return err
	})
}

func runGitInclude(c *cli.Context) error {
	return alone(c, func(b *gitbranch.Branch) error {
		n, err := b.Include(c.Context)
		if err != nil {
			return err
		}
		if n == 0 {
			_, err = fmt.Fprintln(c.App.Writer, "there is nothing to copy")
		} else {
			_, err = fmt.Fprintf(c.App.Writer, "copied: the agent's worktree has uncommitted changes now: %d\n", n)
		}
		return err
	})
}

func runGitDrop(c *cli.Context) error {
	return alone(c, func(b *gitbranch.Branch) error {
		loss, err := b.Loss(c.Context)
		if err != nil {
			return err
		}
		if loss != (gitbranch.Loss{}) && !c.Bool("force") {
			return fmt.Errorf("drop: %s has %s, which nobody else has: lazaret git merge takes commits over, --force loses them", b.Name(), loss)
		}
		if !c.Bool("yes") {
			question := fmt.Sprintf("Remove the branch %s and the worktree %s?", b.Name(), b.Path())
			if loss != (gitbranch.Loss{}) {
				question = fmt.Sprintf("Remove the branch %s and the worktree %s, with %s?", b.Name(), b.Path(), loss)
			}
			if err := confirm(c.App.Reader, c.App.Writer, config.Printable(question)); err != nil {
				return err
			}
		}
		if err := b.Drop(c.Context); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.App.Writer, "removed %s and its worktree\n", b.Name())
		return err
	})
}

func runGitExport(c *cli.Context) (err error) {
	path, err := onlyPath(c)
	if err != nil {
		return err
	}
	if !c.Bool("list") && c.NArg() == 0 {
		return usageError("lazaret git export: name the directory of the repository; --list shows what there is")
	}
	r, err := gitDomain(c, path)
	if err != nil {
		return err
	}
	if c.Bool("list") {
		found, err := waitingRepos(c.Context, r)
		p := &printer{w: c.App.Writer}
		for _, f := range found {
			p.printf("%s\n", config.Printable(f.Path))
		}
		if err == nil && len(found) == 0 {
			return nothing(c, "no repository of a sandbox's waits for export in %s", r.anchor.Workspace)
		}
		return errors.Join(err, p.err)
	}
	dir, err := domain.Canonical(path)
	if err != nil {
		return err
	}
	o := gitexport.Options{ShadowDir: shadowDir(r), Tree: r.anchor.Workspace}
	if wt := realPath(gitbranch.Path(r.anchor.Root)); dir == wt || strings.HasPrefix(dir, wt+"/") {
		o.Tree = wt
	}
	if o.Git, err = hostgit.New(r.env.Home, r.env.ConfigHome); err != nil {
		return err
	}
	release, err := lockDomain(r)
	if err != nil {
		return err
	}
	res, err := gitexport.Export(c.Context, o, dir, c.Bool("force"))
	if err = errors.Join(err, release()); err != nil {
		if errors.Is(err, fs.ErrPermission) && outsideUserNamespace(r) {
			return inUserNamespace(c)
		}
		return err
	}
	for _, n := range res.Notes {
		_, _ = fmt.Fprintf(c.App.ErrWriter, "lazaret: note: %s\n", config.Printable(n)) // a note only
	}
	p := &printer{w: c.App.Writer}
	p.printf("exported %s\n", config.Printable(res.GitDir))
	if res.Fsck == "" {
		p.printf("git fsck finds nothing\n")
	} else {
		for line := range strings.SplitSeq(res.Fsck, "\n") {
			p.printf("git fsck: %s\n", config.Printable(line))
		}
	}
	return p.err
}
