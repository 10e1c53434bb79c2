package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
)

// watchPause is between two looks of lazaret status --watch.
const watchPause = time.Second

// watchStatus shows the status on the terminal's other screen until interrupted.
func watchStatus(c *cli.Context, cfg *config.Config) error {
	out := terminalOf(c.App.Writer)
	switch {
	case c.Bool("json"):
		return usageError("status --watch is for a terminal: leave --json out")
	case out == nil:
		return usageError("status --watch needs a terminal: leave it out, or call lazaret status again and again")
	}
	known := &lookedAt{}
	_, err := io.WriteString(out, ansi.SetModeAltScreenSaveCursor+ansi.HideCursor)
	for tick := time.NewTicker(watchPause); err == nil; {
		var text string
		if text, err = statusText(c, cfg, known); err != nil {
			break
		}
		width, height, serr := term.GetSize(out.Fd())
		if serr != nil {
			width, height = 80, 24
		}
		if _, err = io.WriteString(out, frame(text, width, height)); err != nil {
			break
		}
		select {
		case <-c.Context.Done():
			tick.Stop()
			_, err = io.WriteString(out, ansi.ShowCursor+ansi.ResetModeAltScreenSaveCursor)
			return err
		case <-tick.C:
		}
	}
	_, _ = io.WriteString(out, ansi.ShowCursor+ansi.ResetModeAltScreenSaveCursor) // the first error is the one to tell
	return err
}

func statusText(c *cli.Context, cfg *config.Config, known *lookedAt) (string, error) {
	v, err := wholeStatus(c.Context, cfg, known)
	if err != nil {
		return "", err
	}
	now := time.Now()
	var b strings.Builder
	fmt.Fprintf(&b, "lazaret status  %s  (Ctrl-C ends)\n\n", now.Format("15:04:05"))
	err = printStatus(&b, v, now)
	return b.String(), err
}

// frame is what draws text over the whole of a screen: lines that are too long or
// too many are cut.
func frame(text string, width, height int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > height {
		lines = append(lines[:max(height-1, 0):max(height-1, 0)], fmt.Sprintf("… %d lines more", len(lines)-height+1))
	}
	var b strings.Builder
	b.WriteString(ansi.CursorHomePosition)
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(ansi.Truncate(l, width, "…") + ansi.EraseLineRight)
	}
	b.WriteString(ansi.EraseScreenBelow)
	return b.String()
}
