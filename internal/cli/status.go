package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/review"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// statusTimeout bounds the wait for one coordinator.
const statusTimeout = 3 * time.Second

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show the domains in use, their containers and sessions",
		Description: "Asks every live coordinator of yours. A name that nobody answers at is listed as stale;\n" +
			"the next start in its domain removes it. A coordinator that is there but does not answer\n" +
			"makes the exit status 1. Of domains that are not in use it names those in which an agent's\n" +
			"changes wait for a look (lazaret review).",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "show it anew every second, until interrupted", DisableDefaultText: true},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object", DisableDefaultText: true},
		},
		Action: runStatus,
	}
}

// statusView is what lazaret status prints. A socket at which no coordinator
// answers has an entry in Problems.
type statusView struct {
	Domains  []domainStatus `json:"domains"`
	Problems []problem      `json:"problems"`
	// Reviews are the domains that are not in use in which something waits for a
	// look.
	Reviews []reviewStatus `json:"reviews"`
}

// domainStatus is a live domain.
type domainStatus struct {
	wire.Status
	DiskBytes int64 `json:"disk_bytes"` // of its Domain Root, as far as it can be read
}

// reviewStatus is a domain whose workspace an agent has changed.
type reviewStatus struct {
	Profile   string `json:"profile"`
	Workspace string `json:"workspace"`
	Pending   int    `json:"pending"`
	// Open tells that nobody has noted what its last session has changed.
	Open bool `json:"open,omitempty"`

	hash string // of the domain
}

// problem tells of a socket. A stale one is a killed coordinator's, and mended by
// the next start; any other is a coordinator's that should answer.
type problem struct {
	Socket string `json:"socket"`
	Stale  bool   `json:"stale"`
	Error  string `json:"error"`
}

func runStatus(c *cli.Context) error {
	if c.NArg() > 0 {
		return usageError("status takes no arguments")
	}
	r, err := usersSettings(c)
	if err != nil {
		return err
	}
	if c.Bool("watch") {
		return watchStatus(c, r.cfg)
	}
	v, err := wholeStatus(c.Context, r.cfg, &lookedAt{})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printInertJSON(c.App.Writer, v)
	} else {
		err = printStatus(c.App.Writer, v, time.Now())
	}
	if n := v.silent(); err == nil && n > 0 {
		err = fmt.Errorf("%d of %d coordinators could not be asked", n, n+len(v.Domains))
	}
	return err
}

// silent counts the coordinators that are there but could not be asked.
func (v statusView) silent() int {
	n := 0
	for _, p := range v.Problems {
		if !p.Stale {
			n++
		}
	}
	return n
}

// liveDomains asks every coordinator whose socket in controlDir is our own.
func liveDomains(controlDir string) (statusView, error) {
	v := statusView{Domains: []domainStatus{}, Problems: []problem{}, Reviews: []reviewStatus{}}
	sockets, err := wire.Sockets(controlDir)
	if err != nil {
		return v, err
	}
	for _, s := range sockets {
		st, err := askStatus(s)
		stale := errors.Is(err, wire.ErrNoCoordinator) || wire.Cut(err)
		if stale {
			if _, serr := os.Lstat(s); errors.Is(serr, fs.ErrNotExist) {
				continue // it ended just now
			}
			err = errors.New("nobody answers: its coordinator was killed; the next start in the domain removes the name")
		}
		if err != nil {
			v.Problems = append(v.Problems, problem{Socket: s, Stale: stale, Error: err.Error()})
			continue
		}
		v.Domains = append(v.Domains, domainStatus{Status: st})
	}
	return v, nil
}

// lookedAt keeps what takes the disk to find between the looks of a watch.
type lookedAt struct {
	disk    map[string]*aged[int64] // by Domain Root
	reviews aged[[]reviewStatus]
}

// aged is found anew once it is ten seconds old, and fifty times as old as the
// finding took: it costs little of a CPU however much there is.
type aged[T any] struct {
	value T
	found time.Time
	took  time.Duration
}

const oldAge = 10 * time.Second

func (a *aged[T]) get(now func() time.Time, find func() (T, error)) (T, error) {
	began := now()
	if !a.found.IsZero() && began.Sub(a.found) < max(oldAge, 50*a.took) {
		return a.value, nil
	}
	v, err := find()
	if err == nil {
		a.value, a.found = v, now()
		a.took = a.found.Sub(began)
	}
	return v, err
}

// wholeStatus is liveDomains with what is read from the disk, or was lately.
func wholeStatus(ctx context.Context, cfg *config.Config, known *lookedAt) (statusView, error) {
	v, err := liveDomains(cfg.General.ControlDir)
	if err != nil {
		return v, err
	}
	live := map[string]bool{}
	disk := map[string]*aged[int64]{}
	for i := range v.Domains {
		d := &v.Domains[i]
		live[d.Domain.Hash] = true
		root := d.Domain.Root
		if disk[root] = known.disk[root]; disk[root] == nil {
			disk[root] = &aged[int64]{}
		}
		if d.DiskBytes, err = disk[root].get(time.Now, func() (int64, error) { return diskUse(ctx, root), nil }); err != nil {
			return v, err
		}
	}
	known.disk = disk
	reviews, err := known.reviews.get(time.Now, func() ([]reviewStatus, error) { return waitingReviews(cfg.General.DataRoot, live) })
	for _, r := range reviews {
		if !live[r.hash] {
			v.Reviews = append(v.Reviews, r)
		}
	}
	return v, err
}

// diskTime bounds the measuring of one Domain Root.
const diskTime = time.Second

// diskUse is what a directory takes of the disk, as far as it can be read in time.
func diskUse(ctx context.Context, dir string) (bytes int64) {
	ctx, cancel := context.WithTimeout(ctx, diskTime)
	defer cancel()
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if fi, err := e.Info(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				bytes += st.Blocks * 512
			}
		}
		return nil
	}) // what cannot be read is left out
	return bytes
}

// waitingReviews looks through the domains that are not live.
func waitingReviews(dataRoot string, live map[string]bool) ([]reviewStatus, error) {
	out := []reviewStatus{}
	anchors, err := knownDomains(dataRoot)
	if err != nil {
		return out, err
	}
	for _, a := range anchors {
		if live[a.Hash] {
			continue
		}
		n, open := 0, false
		for _, branch := range []bool{false, true} {
			if more, unended, err := review.Pending(review.File(a.Root, branch)); err == nil { // lazaret review tells of a damaged one
				n, open = n+more, open || unended
			}
		}
		if (n > 0 || open) && gone(a) == "" {
			out = append(out, reviewStatus{Profile: a.Profile, Workspace: a.Workspace, Pending: n, Open: open, hash: a.Hash})
		}
	}
	return out, nil
}

func askStatus(socket string) (st wire.Status, err error) {
	conn, err := wire.Dial(socket, statusTimeout)
	if err != nil {
		return st, err
	}
	err = conn.Call(wire.PathStatus, nil, &st, statusTimeout)
	return st, errors.Join(err, conn.Close())
}

func printStatus(w io.Writer, v statusView, now time.Time) error {
	p := &printer{w: w}
	if len(v.Domains)+len(v.Problems) == 0 {
		p.printf("no domain is in use\n")
	}
	for _, d := range v.Domains {
		ws := d.Domain.Workspace
		if d.Domain.Ephemeral {
			ws = "(no workspace)"
		}
		p.printf("domain %s  profile %s  %s\n", d.Domain.Hash, d.Domain.Profile, config.Printable(ws))
		p.printf("  coordinator  pid %d, up %s, %.1f MB\n", d.PID, now.Sub(d.Started).Round(time.Second), float64(d.MemoryBytes)/1e6)
		if d.Guard.State != wire.GuardNone {
			cut := ""
			if d.Guard.Cut {
				cut = ", cut off from git: .git was removed or replaced on the host"
			}
			p.printf("  guard        %s%s%s\n", d.Guard.State, pidText(d.Guard.PID), cut)
			for _, n := range d.Guard.Notes {
				p.printf("    note: %s\n", config.Printable(n))
			}
		}
		if n := d.Network; n != nil {
			p.printf("  network      %s, %s, sidecar%s, uplink %s%s\n", n.State, n.Mode, strings.TrimPrefix(pidText(n.Sidecar), ","), config.Printable(n.Uplink), pidText(n.UplinkP))
		}
		if s := d.State; s != nil {
			dead := ""
			if !s.Alive {
				dead = " (dead: each access fails)"
			}
			p.printf("  kept         %s by %s%s over %s\n", config.Printable(strings.Join(s.Paths, " ")), s.Driver, dead, config.Printable(s.Image))
		}
		for _, ct := range d.Containers {
			p.printf("  container    %.12s  %s for %s%s\n", ct.ID, ct.State, now.Sub(ct.Since).Round(time.Second), pidText(ct.PID))
			for _, n := range ct.Notes {
				p.printf("    note: %s\n", config.Printable(n))
			}
		}
		for _, s := range d.Sessions {
			terminal := ""
			if s.Terminal {
				terminal = ", terminal"
			}
			where := ""
			if s.ContainerID != "" { // one that is to be created yet has none
				where = fmt.Sprintf(" in %.12s", s.ContainerID)
			}
			p.printf("  session      %.8s  %s%s for %s%s%s\n", s.ID, s.Kind, where, now.Sub(s.Since).Round(time.Second), terminal, pidText(s.PID))
		}
		if d.Waiting > 0 {
			p.printf("  requests     %d waiting for an answer\n", d.Waiting)
		}
		if len(d.Desks) > 0 {
			p.printf("  desks        %s\n", desksText(d.Desks))
		}
		if d.DiskBytes > 0 {
			p.printf("  disk         %.1f MB\n", float64(d.DiskBytes)/1e6)
		}
	}
	for _, b := range v.Problems {
		what := "no answer at"
		if b.Stale {
			what = "stale"
		}
		p.printf("%s %s: %s\n", what, config.Printable(b.Socket), config.Printable(b.Error))
	}
	for _, r := range v.Reviews {
		if r.Open {
			p.printf("review  profile %s  %s: what its last session has changed was not noted at its end (lazaret review)\n", r.Profile, config.Printable(r.Workspace))
			continue
		}
		p.printf("review  profile %s  %s: %d changed paths wait for a look (lazaret review)\n", r.Profile, config.Printable(r.Workspace), r.Pending)
	}
	return p.err
}

// desksText lists who answers requests, such as "console, run of 0123abcd".
func desksText(desks []wire.DeskStatus) string {
	words := make([]string, 0, len(desks))
	for _, d := range desks {
		w := d.Kind
		if d.Session != "" {
			w = fmt.Sprintf("%s of %.8s", d.Kind, d.Session)
		}
		words = append(words, w)
	}
	return config.Printable(strings.Join(words, ", "))
}

func pidText(pid int) string {
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf(", pid %d", pid)
}
