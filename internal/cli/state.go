package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/stateanchor"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/snapshot"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/tree"
	"github.com/lazaret-dev/lazaret/internal/store"
)

func stateCommand() *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		return append([]cli.Flag{
			&cli.StringFlag{Name: "workspace", Aliases: []string{"w"}, Usage: "the domain of the workspace that `PATH` is or lies in instead of the current directory's", TakesFile: true},
			&cli.StringFlag{Name: "profile", Aliases: []string{"p"}, Usage: "the domain of profile `NAME` instead of the default one"},
			&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
		}, more...)
	}
	yes := func(name, usage string, aliases ...string) cli.Flag {
		return &cli.BoolFlag{Name: name, Aliases: aliases, Usage: usage, DisableDefaultText: true}
	}
	const alone = "No container of the domain may live."
	return &cli.Command{
		Name:  "state",
		Usage: "look at what an agent has installed and changed, keep it, and take it back",
		Description: "Changes that sandboxes make in their system directories (state_paths) are kept in the domain.\n" +
			"These commands work on them as a whole.",
		Subcommands: []*cli.Command{
			{
				Name: "diff", Usage: "show what was installed and changed against the image",
				Description: "Packages of apt, apk, pip and npm first, then the files that belong to none of them. A new\n" +
					"directory is one line.",
				Flags: flags(
					yes("all", "show every file, also those of packages and in new directories"),
					&cli.StringFlag{Name: "image", Usage: "compare with `IMAGE` of podman's instead of the one the changes were made over"},
					yes("json", "print one JSON object"),
				),
				Action: runStateDiff,
			},
			{
				Name: "reset", Usage: "throw the changes away: the next start is the image's",
				Description: "Asks first. Snapshots stay. " + alone,
				Flags:       flags(yes("yes", "do not ask", "y")), Action: runStateReset,
			},
			{
				Name: "snapshot", Usage: "keep a copy of the changes", ArgsUsage: "[NAME]",
				Description: "Without NAME it is called by date and time. The copy shares its data with the changes where\n" +
					"the file system can do that, and takes the same room again elsewhere. " + alone,
				Flags: flags(), Action: runStateSnapshot,
			},
			{
				Name: "restore", Usage: "put a snapshot in the place of the changes", ArgsUsage: "NAME",
				Description: "Asks first, as the changes since then are lost. The snapshot stays. " + alone,
				Flags:       flags(yes("yes", "do not ask", "y")), Action: runStateRestore,
			},
			{
				Name: "list", Usage: "list the snapshots, with their sizes",
				Flags: flags(yes("json", "print one JSON object")), Action: runStateList,
			},
			{
				Name: "rm", Usage: "remove a snapshot", ArgsUsage: "NAME",
				Description: alone,
				Flags:       flags(), Action: runStateRemove,
			},
			{
				Name: "rebase", Usage: "start anew from the image as it is now, and install again what the agent had installed",
				Description: "For an image of another release. Installs the packages of apt, apk, pip and npm that the agent\n" +
					"had added, in a sandbox. The old changes are set aside as a snapshot until that has succeeded,\n" +
					"and come back if it fails. Shows what it will do and asks first. " + alone,
				Flags: flags(
					&cli.StringFlag{Name: "image", Usage: "start from `IMAGE` instead of the one that the changes were made over, as it is now"},
					&cli.StringSliceFlag{Name: "skip", Usage: "do not install `PACKAGE` again; may be given several times"},
					yes("keep", "keep the snapshot of the old changes"),
					yes("yes", "do not ask", "y"),
				),
				Action: runStateRebase,
			},
			{
				Name: "set-aside", Usage: "rebase's first step", ArgsUsage: "NAME", Hidden: true,
				Flags: flags(), Action: runStateSetAside,
			},
			{
				Name: "take-back", Usage: "rebase's way back", ArgsUsage: "NAME", Hidden: true,
				Flags: flags(), Action: runStateTakeBack,
			},
		},
	}
}

// stateDomain finds the domain of the workspace that --workspace is or lies in.
func stateDomain(c *cli.Context) (resolved, error) {
	path := c.String("workspace")
	if path == "" {
		path = "."
	}
	return usedDomain(c, path)
}

// nothing tells on stderr why a list is empty; what reads the list itself sees none.
func nothing(c *cli.Context, format string, args ...any) error {
	_, err := fmt.Fprintln(c.App.ErrWriter, config.Printable(fmt.Sprintf(format, args...)))
	return err
}

// errNothingKept is what commands say of a domain without changes.
func errNothingKept(r resolved) error {
	return fmt.Errorf("nothing is kept of profile %s in %s: the agent has changed nothing yet", r.anchor.Profile, r.anchor.Workspace)
}

// keptDomain is stateDomain for work on what is kept, in podman's user namespace
// where the engine is rootless: done tells that the command was done again there.
func keptDomain(c *cli.Context) (r resolved, done bool, err error) {
	if r, err = stateDomain(c); err != nil {
		return r, false, err
	}
	if _, err := os.Lstat(r.anchor.Root); errors.Is(err, fs.ErrNotExist) {
		return r, false, errNothingKept(r)
	}
	if outsideUserNamespace(r) {
		return r, true, inUserNamespace(c)
	}
	return r, false, nil
}

// withState runs work on the changes of a domain that nobody uses, as the root of
// podman's user namespace where the engine is rootless: files there belong to its
// subordinate ids.
func withState(c *cli.Context, work func(r resolved) error) (err error) {
	r, done, err := keptDomain(c)
	if done || err != nil {
		return err
	}
	return lockedState(c.Context, r, func() error {
		return recordedState(r, c.Command.Name, c.Args().Slice(), func() error { return work(r) })
	})
}

// recordedState runs work only where the domain's audit can tell of it. The domain
// must be locked.
func recordedState(r resolved, operation string, args []string, work func() error) (err error) {
	s := store.Open(store.Options{Root: r.anchor.Root, Log: slog.New(slog.DiscardHandler)})
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Ready(); err != nil {
		return err
	}
	err = work()
	what := map[string]any{"operation": operation, "arguments": args}
	verdict := "done"
	if err != nil {
		verdict, what["error"] = "failed", err.Error()
	}
	recorded := make(chan error, 1)
	s.Append(audit.Event{Kind: audit.StateChanged, Verdict: verdict, Payload: audit.Payload(what)}, func(err error) { recorded <- err })
	if rerr := <-recorded; rerr != nil {
		err = errors.Join(err, fmt.Errorf("record %s of the state: %w", operation, rerr))
	}
	return err
}

// lockedState runs work while nobody uses the domain and nothing of it is mounted.
func lockedState(ctx context.Context, r resolved, work func() error) (err error) {
	release, err := lockDomain(r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := stateanchor.Clean(r.anchor.Root); err != nil { // a killed coordinator's
		return err
	}
	if err := snapshot.Recover(ctx, r.anchor.Root); err != nil {
		return err
	}
	return work()
}

// onlyName is the one argument of a command.
func onlyName(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", usageError("%s takes one name: lazaret state list shows them", c.Command.HelpName)
	}
	if err := snapshot.CheckName(c.Args().First()); err != nil {
		return "", usageError("%w", err)
	}
	return c.Args().First(), nil
}

func runStateReset(c *cli.Context) error {
	return withState(c, func(r resolved) error {
		has, err := snapshot.Exists(r.anchor.Root)
		if err != nil {
			return err
		}
		if !has {
			return errNothingKept(r)
		}
		if err := confirmLoss(c, r, "Throw them away?"); err != nil {
			return err
		}
		if err := snapshot.Reset(c.Context, r.anchor.Root); err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.App.Writer, "the changes are gone: the next start is the image's")
		return err
	})
}

// confirmLoss asks before the changes are lost, with their size.
func confirmLoss(c *cli.Context, r resolved, question string) error {
	if c.Bool("yes") {
		return nil
	}
	size, err := snapshot.Size(c.Context, r.anchor.Root)
	if err != nil {
		return err
	}
	return confirm(c.App.Reader, c.App.Writer, config.Printable(fmt.Sprintf("The changes of profile %s in %s are %s in %d files. %s",
		r.anchor.Profile, r.anchor.Workspace, bytesText(size.Bytes), size.Files, question)))
}

func runStateSnapshot(c *cli.Context) error {
	name := time.Now().Format("2006-01-02-150405")
	if c.NArg() > 0 {
		var err error
		if name, err = onlyName(c); err != nil {
			return err
		}
	}
	return withState(c, func(r resolved) error {
		p := newProgress(c.App.ErrWriter, "copying")
		i, err := snapshot.Make(c.Context, r.anchor.Root, name, p.show)
		p.end()
		if errors.Is(err, snapshot.ErrNone) {
			return errNothingKept(r)
		}
		if err != nil {
			return err
		}
		how := "a copy, as this file system cannot share data"
		if i.Shared {
			how = "its data is shared with the changes until one of both is written to"
		}
		_, err = fmt.Fprintf(c.App.Writer, "snapshot %s: %s in %d files; %s\n", i.Name, bytesText(i.Bytes), i.Files, how)
		return err
	})
}

func runStateRestore(c *cli.Context) error {
	name, err := onlyName(c)
	if err != nil {
		return err
	}
	return withState(c, func(r resolved) error {
		if _, err := snapshot.Get(r.anchor.Root, name); err != nil {
			return err
		}
		has, err := snapshot.Exists(r.anchor.Root)
		if err != nil {
			return err
		}
		if has {
			if err := confirmLoss(c, r, "Replace them by snapshot "+name+"?"); err != nil {
				return err
			}
		}
		p := newProgress(c.App.ErrWriter, "copying")
		err = snapshot.Restore(c.Context, r.anchor.Root, name, p.show)
		p.end()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.App.Writer, "restored snapshot %s\n", name)
		return err
	})
}

// stateListView is what lazaret state list prints.
type stateListView struct {
	Profile   string          `json:"profile"`
	Workspace string          `json:"workspace"`
	Snapshots []snapshot.Info `json:"snapshots"`
}

func runStateList(c *cli.Context) error {
	r, err := stateDomain(c)
	if err != nil {
		return err
	}
	all, err := snapshot.List(r.anchor.Root)
	if err != nil {
		return err
	}
	v := stateListView{r.anchor.Profile, r.anchor.Workspace, append([]snapshot.Info{}, all...)}
	if c.Bool("json") {
		return printJSON(c.App.Writer, v)
	}
	if len(all) == 0 {
		return nothing(c, "no snapshots of profile %s in %s", v.Profile, v.Workspace)
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	p := &printer{w: w}
	p.printf("NAME\tMADE\tSIZE\tFILES\n")
	for _, i := range all {
		shared := ""
		if i.Shared {
			shared = ", shared"
		}
		p.printf("%s\t%s\t%s%s\t%d\n", i.Name, i.Made.Local().Format("2006-01-02 15:04:05"), bytesText(i.Bytes), shared, i.Files)
	}
	return errors.Join(p.err, w.Flush())
}

func runStateRemove(c *cli.Context) error {
	name, err := onlyName(c)
	if err != nil {
		return err
	}
	return withState(c, func(r resolved) error {
		if err := snapshot.Remove(c.Context, r.anchor.Root, name); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.App.Writer, "removed snapshot %s\n", name)
		return err
	})
}

func runStateSetAside(c *cli.Context) error {
	name, err := onlyName(c)
	if err != nil {
		return err
	}
	return withState(c, func(r resolved) error {
		_, err := snapshot.SetAside(c.Context, r.anchor.Root, name)
		return err
	})
}

func runStateTakeBack(c *cli.Context) error {
	name, err := onlyName(c)
	if err != nil {
		return err
	}
	return withState(c, func(r resolved) error {
		return snapshot.TakeBack(c.Context, r.anchor.Root, name)
	})
}

// bytesText is a size for people.
func bytesText(n int64) string {
	switch f := float64(n); {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000_000:
		return fmt.Sprintf("%.1f kB", f/1e3)
	case n < 1000_000_000:
		return fmt.Sprintf("%.1f MB", f/1e6)
	default:
		return fmt.Sprintf("%.1f GB", f/1e9)
	}
}

// progress is one line on a terminal that tells how far long work is; elsewhere
// nothing.
type progress struct {
	w     io.Writer // nil where nobody looks
	what  string
	last  time.Time
	shown bool
}

func newProgress(w io.Writer, what string) *progress {
	p := &progress{what: what, last: time.Now()}
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		p.w = w
	}
	return p
}

func (p *progress) show(s tree.Stats) {
	const often = 100 * time.Millisecond
	if p.w == nil || time.Since(p.last) < often {
		return
	}
	p.last, p.shown = time.Now(), true
	_, _ = fmt.Fprintf(p.w, "\r%s: %d files, %s \x1b[K", p.what, s.Files, bytesText(s.Bytes)) // of no consequence
}

// end clears the line.
func (p *progress) end() {
	if p.shown {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K") // of no consequence
	}
}

// stateRoots are the directories with changes in a Domain Root: itself, and those
// that are kept apart, of another release or another user namespace.
func stateRoots(root string) ([]string, error) {
	found := []string{}
	more, err := filepath.Glob(filepath.Join(globEscape(root), "apart-*"))
	if err != nil {
		return nil, fmt.Errorf("look for changes in %s: %w", root, err)
	}
	for _, dir := range append([]string{root}, more...) {
		if _, err := os.Lstat(filepath.Join(dir, stateanchor.RecordFile)); err == nil {
			found = append(found, dir)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return found, nil
}

func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
