package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/stateanchor"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/tree"
)

func pruneCommand() *cli.Command {
	return &cli.Command{
		Name:  "prune",
		Usage: "remove the domains whose workspace is gone",
		Description: "Lists them with what they keep and its size, and asks. A workspace on a disk that is only not\n" +
			"mounted looks gone too. Domains in use are left alone. What profiles share (persist) stays.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
			&cli.BoolFlag{Name: "dry-run", Usage: "list them and remove nothing", DisableDefaultText: true},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask", DisableDefaultText: true},
		},
		Action: runPrune,
	}
}

// removing begins the name of a Domain Root that is being removed.
const removing = ".removing-"

// leftover is a Domain Root that nobody will come back to.
type leftover struct {
	resolved
	why  string
	size tree.Stats
}

func runPrune(c *cli.Context) error {
	r, err := usersSettings(c)
	if err != nil {
		return err
	}
	found, unfinished, err := leftovers(r)
	if err != nil {
		return err
	}
	if len(found)+len(unfinished) == 0 {
		_, err := fmt.Fprintln(c.App.Writer, "nothing to remove: every domain's workspace is there")
		return err
	}
	if outsideUserNamespace(r) {
		return inUserNamespace(c)
	}
	if !c.Bool("dry-run") {
		for _, path := range unfinished { // was decided before
			if err := tree.Remove(c.Context, path); err != nil {
				return err
			}
		}
	}
	found, err = listLeftovers(c, found)
	if err != nil || len(found) == 0 || c.Bool("dry-run") {
		return err
	}
	if !c.Bool("yes") {
		if err := confirm(c.App.Reader, c.App.Writer, fmt.Sprintf("Remove what %d of them keep?", len(found))); err != nil {
			return err
		}
	}
	var errs []error
	p := &printer{w: c.App.Writer}
	for _, l := range found {
		if err := l.remove(c.Context); err != nil {
			errs = append(errs, fmt.Errorf("domain %s: %w", l.anchor.Hash, err))
			continue
		}
		p.printf("removed %s\n", l.anchor.Hash)
	}
	return errors.Join(append(errs, p.err)...)
}

// leftovers finds the domains without a workspace, and the removals that were
// interrupted.
func leftovers(r resolved) (found []leftover, unfinished []string, err error) {
	dir := filepath.Join(r.cfg.General.DataRoot, "domains")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look for domains: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if hash, is := strings.CutPrefix(e.Name(), removing); is && domain.ValidHash(hash) {
			unfinished = append(unfinished, path)
			continue
		}
		if !domain.ValidHash(e.Name()) || !e.IsDir() {
			continue
		}
		a, err := domain.ReadRecord(path)
		if err != nil || a.Hash != e.Name() {
			continue // half made, or not ours to judge: lazaret doctor tells
		}
		l := leftover{resolved: r}
		l.anchor = a
		if l.why = gone(a); l.why != "" {
			found = append(found, l)
		}
	}
	return found, unfinished, nil
}

// gone tells why nobody will come back to a domain; "" where somebody may.
func gone(a domain.Anchor) string {
	if a.Ephemeral {
		return "its container is gone"
	}
	fi, err := os.Stat(a.Workspace)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "workspace " + a.Workspace + " is gone"
	case err == nil && !fi.IsDir():
		return "workspace " + a.Workspace + " is no directory any more"
	}
	return ""
}

// listLeftovers prints what there is, and returns what can be removed.
func listLeftovers(c *cli.Context, all []leftover) (free []leftover, err error) {
	p := &printer{w: c.App.Writer}
	var total int64
	for _, l := range all {
		release, err := lockDomain(l.resolved)
		if errors.Is(err, errInUse) {
			p.printf("%s  left alone: %s\n", l.anchor.Hash, config.Printable(err.Error()))
			continue
		}
		if err != nil {
			return nil, err
		}
		l.size, err = tree.Measure(c.Context, l.anchor.Root)
		if err = errors.Join(err, release()); err != nil {
			return nil, err
		}
		p.printf("%s  profile %s, %s in %d files: %s\n", l.anchor.Hash, l.anchor.Profile, bytesText(l.size.Bytes), l.size.Files, config.Printable(l.why))
		total += l.size.Bytes
		free = append(free, l)
	}
	if len(free) > 0 {
		p.printf("together %s\n", bytesText(total))
	}
	return free, p.err
}

// remove removes a domain that nobody uses and whose workspace has not come back.
func (l leftover) remove(ctx context.Context) (err error) {
	release, err := lockDomain(l.resolved)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	root := l.anchor.Root
	if a, err := domain.ReadRecord(root); err != nil || gone(a) == "" {
		return errors.Join(err, errors.New("its workspace is there again: left alone"))
	}
	if err := stateanchor.Clean(root); err != nil { // a killed coordinator's
		return err
	}
	// Out of the way in one step: half of a Domain Root would be nobody's.
	away := filepath.Join(filepath.Dir(root), removing+l.anchor.Hash)
	if err := tree.Remove(ctx, away); err != nil {
		return err
	}
	if err := os.Rename(root, away); err != nil {
		return err
	}
	return tree.Remove(ctx, away)
}
