package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/domain"
)

func sessionsCommand() *cli.Command {
	return &cli.Command{
		Name:        "sessions",
		Usage:       "list the sessions of all domains, those that live and the last that have ended",
		Description: "A session is one lazaret run, or one exec in a sandbox. One is lost when its coordinator was\nkilled: nobody saw its end.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "live", Usage: "only those that live", DisableDefaultText: true},
			&cli.IntFlag{Name: "last", Usage: "at most the last `N` that have ended; 0 for all", Value: 20},
			&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object", DisableDefaultText: true},
		},
		Action: runSessions,
	}
}

// sessionView is one session as lazaret sessions prints it.
type sessionView struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Domain    string     `json:"domain"`
	Profile   string     `json:"profile"`
	Workspace string     `json:"workspace"`
	Container string     `json:"container,omitempty"`
	Terminal  bool       `json:"terminal"`
	PID       int        `json:"pid,omitempty"`
	State     string     `json:"state"` // one of those below
	Began     time.Time  `json:"began"`
	Ended     *time.Time `json:"ended"` // null unless it has ended
}

// States of a session.
const (
	sessionLives = "lives"
	sessionEnded = "ended"
	sessionLost  = "lost" // nobody saw its end
)

func runSessions(c *cli.Context) error {
	r, err := usersSettings(c)
	if err != nil {
		return err
	}
	v, err := liveDomains(r.cfg.General.ControlDir)
	if err != nil {
		return err
	}
	all := liveSessions(v)
	var failed error
	if !c.Bool("live") {
		past, err := pastSessions(r, all)
		failed = err
		if n := c.Int("last"); n > 0 {
			past = past[max(0, len(past)-n):]
		}
		all = append(past, all...)
	}
	slices.SortStableFunc(all, func(a, b sessionView) int { return a.Began.Compare(b.Began) })
	switch {
	case c.Bool("json"):
		err = printInertJSON(c.App.Writer, map[string]any{"sessions": all})
	case len(all) == 0 && c.Bool("live"):
		err = nothing(c, "no session lives")
	case len(all) == 0:
		err = nothing(c, "there has been no session")
	default:
		err = printSessions(c.App.Writer, all, time.Now())
	}
	if n := v.silent(); err == nil && n > 0 {
		err = fmt.Errorf("%d of %d coordinators could not be asked: lazaret status", n, n+len(v.Domains))
	}
	return errors.Join(err, failed)
}

// pastSessions are those that the records of all domains tell of, but for those that
// live, oldest first. Domains that cannot be read are in the error.
func pastSessions(r resolved, live []sessionView) ([]sessionView, error) {
	anchors, err := knownDomains(r.cfg.General.DataRoot)
	if err != nil {
		return nil, err
	}
	var all []sessionView
	var errs []error
	for _, r.anchor = range anchors {
		past, err := sessionsOf(r.anchor, entriesOf(auditPager(r), audit.Main))
		if err != nil {
			errs = append(errs, fmt.Errorf("sessions of domain %s: %w", r.anchor.Hash, err))
		}
		all = append(all, past...)
	}
	all = slices.DeleteFunc(all, func(s sessionView) bool {
		return slices.ContainsFunc(live, func(l sessionView) bool { return l.ID == s.ID && l.Domain == s.Domain })
	})
	slices.SortStableFunc(all, func(a, b sessionView) int { return a.Began.Compare(b.Began) })
	return all, errors.Join(errs...)
}

// sessionsOf makes sessions of the records of a domain.
func sessionsOf(a domain.Anchor, entries iter.Seq2[placed, error]) ([]sessionView, error) {
	var all []sessionView
	at := map[string]int{}
	for e, err := range entries {
		if err != nil {
			return all, err
		}
		switch {
		case e.Damage != "": // lazaret audit verify tells
		case e.Kind == audit.SessionStarted:
			var what struct {
				Kind     string `json:"kind"`
				Terminal bool   `json:"terminal"`
				PID      int    `json:"pid"`
			}
			if err := json.Unmarshal(e.Payload, &what); err != nil {
				return all, fmt.Errorf("record %d: %w", e.Seq, err)
			}
			at[e.Session] = len(all)
			all = append(all, sessionView{
				ID: e.Session, Kind: what.Kind, Domain: a.Hash, Profile: a.Profile, Workspace: a.Workspace, Container: e.Container,
				Terminal: what.Terminal, PID: what.PID, State: sessionLost, Began: e.Time,
			})
		case e.Kind == audit.SessionEnded:
			if i, there := at[e.Session]; there {
				all[i].State, all[i].Ended = sessionEnded, &e.Time
			}
		}
	}
	return all, nil
}

func liveSessions(v statusView) []sessionView {
	all := []sessionView{}
	for _, d := range v.Domains {
		for _, s := range d.Sessions {
			all = append(all, sessionView{
				ID: s.ID, Kind: s.Kind, Domain: d.Domain.Hash, Profile: d.Domain.Profile, Workspace: d.Domain.Workspace,
				Container: s.ContainerID, Terminal: s.Terminal, PID: s.PID, State: sessionLives, Began: s.Since,
			})
		}
	}
	return all
}

func printSessions(w io.Writer, all []sessionView, now time.Time) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := &printer{w: tab}
	p.printf("SESSION\tKIND\tPROFILE\tBEGAN\tLASTED\tCONTAINER\tWORKSPACE\n")
	for _, s := range all {
		lasted := s.State
		switch {
		case s.Ended != nil:
			lasted = s.Ended.Sub(s.Began).Round(time.Second).String()
		case s.State == sessionLives:
			lasted = now.Sub(s.Began).Round(time.Second).String() + ", lives"
		}
		p.printf("%.8s\t%s\t%s\t%s\t%s\t%.12s\t%s\n", s.ID, config.Printable(s.Kind), s.Profile, s.Began.Local().Format("2006-01-02 15:04:05"), lasted, config.Printable(s.Container), config.Printable(s.Workspace))
	}
	return errors.Join(p.err, tab.Flush())
}
