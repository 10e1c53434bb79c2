package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// What a terminal shows of a command: one line that fits, and the end of all when it
// has failed. Nothing that the command says steers the terminal.
func TestFollower(t *testing.T) {
	var b strings.Builder
	f := &follower{w: &b, width: func() int { return 20 }, begun: time.Now(), ended: make(chan struct{})}
	write := func(text string) {
		t.Helper()
		if n, err := f.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	shown := func(took time.Duration) string {
		b.Reset()
		f.draw(took)
		return b.String()
	}
	if got := shown(0); got != "\r     0s  "+ansi.EraseLineRight {
		t.Errorf("at the beginning: %q", got)
	}
	for i := range 100 {
		write(fmt.Sprintf("line %d\n", i))
	}
	write("10 %\r20 %\rha")
	if got := shown(83 * time.Second); got != "\r  1m23s  20 %"+ansi.EraseLineRight {
		t.Errorf("in between: %q", got)
	}
	write("lf a \x1b]0;title\a line that is longer than the terminal\n\n")
	got := shown(time.Hour)
	if text, fits := strings.CutSuffix(strings.TrimPrefix(got, "\r"), ansi.EraseLineRight); !fits || ansi.StringWidth(text) > 19 || strings.ContainsAny(text, "\x1b\a") || !strings.Contains(text, "half a") {
		t.Errorf("a long line: %q", got)
	}
	write(strings.Repeat("x", 5000))
	write("the fault")
	f.drawn.Go(f.clock)
	b.Reset()
	f.end(true)
	lines := strings.Split(b.String(), "\n")
	last := len(lines) - 2 // a newline is the end
	if len(lines) != followedLines+1 || lines[last] != "the fault" || len(lines[last-1]) != followedLine || !strings.Contains(lines[last-2], "than the terminal") {
		t.Errorf("of a failure %d lines are shown:\n%s", len(lines), b.String())
	}
	if text := strings.TrimLeft(b.String(), "\r"); strings.Contains(strings.Join(lines[1:], ""), "\x1b") {
		t.Errorf("it steers the terminal: %q", text)
	}
}

// What is no terminal gets everything.
func TestFollowNoTerminal(t *testing.T) {
	var b strings.Builder
	out, end := follow(&b)
	if _, err := out.Write([]byte("one\ntwo")); err != nil {
		t.Fatal(err)
	}
	end(true)
	if b.String() != "one\ntwo" {
		t.Errorf("got %q", b.String())
	}
}
