package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/gitbranch"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/review"
)

const (
	// exitFindings is lazaret review's exit status when there is something to look
	// at.
	exitFindings = 3
	// exitUnknown is it when nothing was found, and not everything could be looked at.
	exitUnknown = 1
	// reviewTime bounds one look at a workspace at the end of lazaret run.
	reviewTime = 10 * time.Second
	// reviewNames is how many paths its line names, reviewName how many bytes of each
	// at most.
	reviewNames, reviewName = 3, 80
)

func reviewCommand() *cli.Command {
	return &cli.Command{
		Name:      "review",
		Usage:     "show what an agent has changed that tools on the host run or obey",
		ArgsUsage: "[PATH]",
		Description: "Names the files of the workspace that git, editors, shells, build tools, coding agents and CI\n" +
			"run or obey and that differ from how they were before the agent had them, with why they\n" +
			"matter. What was not accepted stays on the list over later sessions. The exit status is 0 when\n" +
			"there is nothing, 3 when there is something to look at, and 1 when that could not be told. Says\n" +
			"nothing of code, nor of what is in node_modules and other directories that package managers fill.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "profile", Aliases: []string{"p"}, Usage: "the domain of profile `NAME` instead of the default one"},
			&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
			&cli.BoolFlag{Name: "accept", Usage: "show it, and take the workspace as it is now for the new baseline", DisableDefaultText: true},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object", DisableDefaultText: true},
		},
		Action: runReview,
	}
}

// reviewView is what lazaret review prints.
type reviewView struct {
	Profile   string           `json:"profile"`
	Workspace string           `json:"workspace"`
	Reports   []*review.Report `json:"reports"` // of the workspace, and of the agent's own worktree
}

func (v *reviewView) findings() int {
	n := 0
	for _, r := range v.Reports {
		n += len(r.Findings)
	}
	return n
}

// incomplete is why something is not known, "" for nothing.
func (v *reviewView) incomplete() string {
	for _, r := range v.Reports {
		if r.Incomplete != "" {
			return r.Incomplete
		}
	}
	return ""
}

// verdict is the exit status, for what is printed already.
func (v *reviewView) verdict() error {
	switch {
	case v.findings() > 0:
		return &exitError{code: exitFindings}
	case v.incomplete() != "":
		return &exitError{code: exitUnknown}
	}
	return nil
}

func runReview(c *cli.Context) error {
	path, err := onlyPath(c)
	if err != nil {
		return err
	}
	r, err := usedDomain(c, path)
	if err != nil {
		return err
	}
	how := review.Look
	if c.Bool("accept") {
		how = review.Accept
	}
	v, err := reviewed(c.Context, r, how)
	if err != nil {
		return err
	}
	switch {
	case c.Bool("json"):
		err = printReviewJSON(c.App.Writer, v)
	case len(v.Reports) == 0:
		return nothing(c, "no session of profile %s has had %s yet", r.anchor.Profile, r.anchor.Workspace)
	default:
		err = printReview(c.App.Writer, v, c.Bool("accept"))
	}
	if err != nil || c.Bool("accept") {
		return err
	}
	return v.verdict()
}

// reviewed looks at all trees of a domain that a session has had.
func reviewed(ctx context.Context, r resolved, how func(context.Context, string, review.Options) (*review.Report, error)) (*reviewView, error) {
	v := &reviewView{Profile: r.anchor.Profile, Workspace: r.anchor.Workspace, Reports: []*review.Report{}}
	for _, branch := range []bool{false, true} {
		tree := r.anchor.Workspace
		if branch {
			tree = gitbranch.Path(r.anchor.Root)
		}
		file := review.File(r.anchor.Root, branch)
		if !review.Exists(file) {
			continue
		}
		fi, err := os.Lstat(tree)
		if err != nil {
			continue // a branch that was dropped
		}
		uid := os.Getuid()
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && uid == 0 {
			uid = int(st.Uid)
		}
		rep, err := how(ctx, file, review.For(tree, uid, gitconf.Options{Home: r.env.Home, XDGConfigHome: r.env.ConfigHome, Env: os.Environ()}))
		if errors.Is(err, review.ErrNone) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("review: %w", err)
		}
		v.Reports = append(v.Reports, rep)
	}
	return v, nil
}

func printReviewJSON(w io.Writer, v *reviewView) error {
	plain := func(s *string) {
		if !utf8.ValidString(*s) {
			*s = config.Printable(*s) // JSON has no other bytes
		}
	}
	for _, r := range v.Reports {
		for i := range r.Findings {
			f := &r.Findings[i]
			plain(&f.Path)
			for j := range f.Details {
				plain(&f.Details[j])
			}
		}
	}
	return printInertJSON(w, v)
}

func printReview(w io.Writer, v *reviewView, accepted bool) error {
	p := &printer{w: w}
	for _, r := range v.Reports {
		if len(r.Findings) > 0 {
			p.printf("%s, changed since %s:\n", config.Printable(r.Tree), r.Since.Local().Format("2006-01-02 15:04"))
		}
		told := map[string]bool{}
		for _, f := range r.Findings {
			group := f.Kind + ": " + f.Why
			if told[group] {
				continue
			}
			told[group] = true
			p.printf("\n%s\n", group)
			for _, g := range r.Findings {
				if g.Kind != f.Kind || g.Why != f.Why {
					continue
				}
				p.printf("  %-8s %s\n", g.Change, config.Printable(g.Path))
				for _, d := range g.Details {
					p.printf("             %s\n", clipped(d))
				}
			}
		}
		if r.Incomplete != "" {
			p.printf("\nnot everything is known: %s\n", config.Printable(r.Incomplete))
		}
		if n := len(r.Unread); n > 0 {
			p.printf("\ndirectories that you cannot read were left out: %d\n", n)
		}
	}
	switch {
	case v.findings() == 0 || p.err != nil:
	case accepted:
		p.printf("\naccepted: lazaret review tells from now on what differs from this\n")
	default:
		p.printf("\nwhen you have looked: lazaret review --accept\n")
	}
	return p.err
}

// summary tells at the end of lazaret run that there is something to look at.
func (a *agentRun) summary() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.c.Context), reviewTime)
	defer cancel()
	v, err := reviewed(ctx, a.r, review.Look)
	if err != nil {
		_, _ = fmt.Fprintf(a.c.App.ErrWriter, "lazaret: %s\n", config.Printable(err.Error())) // nowhere left to tell
		return
	}
	if line := summaryLine(v, a.r.cfg.General.DefaultProfile); line != "" {
		_, _ = fmt.Fprintf(a.c.App.ErrWriter, "lazaret: %s\n", line) // nowhere left to tell
	}
}

// summaryLine is "" where there is nothing.
func summaryLine(v *reviewView, usual string) string {
	flag := ""
	if v.Profile != usual {
		flag = " -p " + v.Profile
	}
	n := v.findings()
	if n == 0 {
		if why := v.incomplete(); why != "" {
			return fmt.Sprintf("what tools on this host run or obey may have changed, and not everything is known: %s (lazaret review%s)", shortened(why), flag)
		}
		return ""
	}
	var names []string
	for _, r := range v.Reports {
		for _, f := range r.Findings {
			if len(names) < reviewNames {
				names = append(names, shortened(f.Path))
			}
		}
	}
	more := ""
	if n > len(names) {
		more = fmt.Sprintf(" and %d more", n-len(names))
	}
	return fmt.Sprintf("look at what tools on this host run or obey before you use them here: %s%s (lazaret review%s)", strings.Join(names, ", "), more, flag)
}

// maxDetail bounds the bytes of one detail on a terminal.
const maxDetail = 300

// clipped is a detail, which ends with what has become of it.
func clipped(s string) string {
	more := ""
	if len(s) > maxDetail {
		s, more = s[:maxDetail/2], "…"+config.Printable(s[len(s)-maxDetail/2:])
	}
	return config.Printable(s) + more
}

// shortened is text of an agent's for a line that it must not fill.
func shortened(s string) string {
	s = config.Printable(s)
	if len(s) <= reviewName {
		return s
	}
	return "…" + strings.ToValidUTF8(s[len(s)-reviewName:], "") // the end tells what it is
}
