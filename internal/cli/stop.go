package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/console"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// stopWait bounds the wait for the end of a domain whose containers have ended.
const stopWait = 20 * time.Second

func stopCommand() *cli.Command {
	return &cli.Command{
		Name:      "stop",
		Usage:     "end the sessions of a domain, its sandboxes and its network",
		ArgsUsage: "[PATH|HASH]",
		Description: "Ends every container of the domain as podman stop does, and waits until its coordinator has\n" +
			"removed the rest. Without an argument it is the domain of the nearest directory from the\n" +
			"current one up that was ever a workspace.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "profile", Aliases: []string{"p"}, Usage: "the domain of profile `NAME` instead of the default one"},
			&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "every domain of yours that is in use", DisableDefaultText: true},
		},
		Action: runStop,
	}
}

// namedDomain finds the domain that the argument names: a hash, a path, or none for
// the present directory.
func namedDomain(c *cli.Context) (resolved, error) {
	if c.NArg() > 1 {
		return resolved{}, usageError("%s takes one path or hash at most", c.Command.HelpName)
	}
	arg := c.Args().First()
	if !domain.ValidHash(arg) {
		if arg == "" {
			arg = "."
		}
		return usedDomain(c, arg)
	}
	r, err := usersSettings(c)
	if err != nil {
		return r, err
	}
	r.anchor, err = recordedDomain(r.cfg.General.DataRoot, arg)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no domain %s: lazaret status lists those in use", arg)
	}
	return r, err
}

func runStop(c *cli.Context) error {
	var all []domain.Anchor
	var r resolved
	var err error
	if c.Bool("all") {
		if c.NArg() > 0 {
			return usageError("stop --all takes no argument")
		}
		if r, err = usersSettings(c); err != nil {
			return err
		}
		if all, err = usedDomains(r); err != nil {
			return err
		}
	} else {
		if r, err = namedDomain(c); err != nil {
			return err
		}
		all = []domain.Anchor{r.anchor}
	}
	stopped := 0
	var errs []error
	for _, a := range all {
		ids, err := stopDomain(c, r, a)
		if err != nil {
			errs = append(errs, fmt.Errorf("domain %s: %w", a.Hash, err))
			continue
		}
		if ids > 0 {
			stopped++
			_, err = fmt.Fprintf(c.App.Writer, "stopped domain %s (profile %s) of %s\n", a.Hash, a.Profile, config.Printable(workspaceText(a)))
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil || stopped > 0 {
		return err
	}
	if c.Bool("all") {
		return nothing(c, "no domain is in use")
	}
	return nothing(c, "domain %s (profile %s) of %s is not in use", r.anchor.Hash, r.anchor.Profile, workspaceText(r.anchor))
}

func workspaceText(a domain.Anchor) string {
	if a.Workspace == "" {
		return "(no workspace)"
	}
	return a.Workspace
}

// usedDomains are those of live coordinators, and of sandboxes that have lost
// theirs.
func usedDomains(r resolved) ([]domain.Anchor, error) {
	v, err := liveDomains(r.cfg.General.ControlDir)
	if err != nil {
		return nil, err
	}
	var all []domain.Anchor
	seen := map[string]bool{}
	for _, d := range v.Domains {
		seen[d.Domain.Hash] = true
		all = append(all, d.Domain)
	}
	leases, err := livingContainers(r, "")
	if err != nil {
		return nil, err
	}
	for _, hash := range leases {
		if seen[hash] {
			continue
		}
		seen[hash] = true
		if a, err := recordedDomain(r.cfg.General.DataRoot, hash); err == nil {
			all = append(all, a)
		}
	}
	return all, nil
}

// livingContainers maps the containers whose process lives to their domain's hash,
// of one domain, or of all for "".
func livingContainers(r resolved, hash string) (map[string]string, error) {
	ids, err := containerstate.List(r.env.RuntimeDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for containers: %w", err)
	}
	out := map[string]string{}
	for _, id := range ids {
		lease, err := containerstate.ReadLease(containerstate.Dir(r.env.RuntimeDir, id))
		if err == nil && (hash == "" || lease.Domain == hash) && lease.Alive() {
			out[id] = lease.Domain
		}
	}
	return out, nil
}

// stopDomain ends what uses a domain, and waits until it is no longer in use. It
// returns how many containers and sessions that were.
func stopDomain(c *cli.Context, r resolved, a domain.Anchor) (used int, err error) {
	socket := a.SocketPath(r.cfg.General.ControlDir)
	containers, err := livingContainers(r, a.Hash)
	if err != nil {
		return 0, err
	}
	st, err := askStatus(socket)
	live := err == nil
	switch {
	case live:
		used = len(st.Sessions)
		for _, ct := range st.Containers {
			containers[ct.ID] = a.Hash
		}
	case !errors.Is(err, wire.ErrNoCoordinator) && !wire.Cut(err):
		return 0, err
	}
	var errs []error
	for id := range containers {
		errs = append(errs, console.StopSandbox(c.Context, id))
	}
	used += len(containers)
	if err := errors.Join(errs...); err != nil || !live {
		return used, err
	}
	for deadline := time.Now().Add(stopWait); ; time.Sleep(50 * time.Millisecond) {
		st, err := askStatus(socket)
		if err != nil {
			return used, nil // it has ended
		}
		if c.Context.Err() != nil || time.Now().After(deadline) {
			return used, fmt.Errorf("its containers were told to end, but %d containers and %d sessions still live: lazaret status", len(st.Containers), len(st.Sessions))
		}
	}
}
