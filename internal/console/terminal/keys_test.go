package terminal

import (
	"fmt"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/console/prompt"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// What a terminal answers to an agent's questions, and what a mouse sends, is no
// answer to a prompt, wherever a slow line breaks it in two.
func TestAnswersOfTheTerminalAreNoKeys(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	view := &policy.View{Command: "aws", Argv: []string{"aws"}, Program: "/usr/bin/aws", Dir: "/home/dev"}
	model := func() *prompt.Model {
		return prompt.New(prompt.Options{
			Ask: &wire.Ask{ID: "1", Command: "aws", Deadline: begin.Add(time.Hour)}, View: view,
			Inspect: func(string) *policy.View { return view }, Width: 80, Height: 40, Now: begin,
		})
	}
	// answers feeds the parts, a second after the prompt came, and looks ten times a
	// second whether that was an answer.
	answers := func(gap time.Duration, parts ...string) (got string) {
		m, k, now := model(), keys{}, begin.Add(time.Second)
		pass := func(d time.Duration) {
			for end := now.Add(d); now.Before(end); now = now.Add(tick) {
				k.time(now, m)
				if a, ok := m.Tick(now); ok {
					got += fmt.Sprint(" answer ", a.Verb)
				}
			}
		}
		m.Frame()
		pass(time.Second)
		for _, p := range parts {
			k.take([]byte(p), now, m)
			pass(gap)
		}
		pass(5 * time.Second)
		return got
	}
	if got := answers(0, "a"); got == "" {
		t.Fatal("the key itself does not answer")
	}
	for name, reply := range map[string]string{
		"primary attributes": "\x1b[?62;1;6c", "secondary": "\x1b[>41;354;0c", "version": "\x1bP>|tmux 3.3a\x1b\\",
		"cursor": "\x1b[12;40R", "clipboard": "\x1b]52;c;YWFh\x07", "clipboard, ST": "\x1b]52;c;a\x1b\\",
		"DECRQSS": "\x1bP1$r0;1a\x1b\\", "title": "\x1b]la\x1b\\", "colour": "\x1b]11;rgb:aaaa/aaaa/aaaa\x1b\\",
		"mouse": "\x1b[<0;10;10M", "mouse, released": "\x1b[<0;10;10m", "focus": "\x1b[I", "paste": "\x1b[200~a\x1b[201~",
		"mode": "\x1b[?2004;1$y", "kitty": "\x1b[?1u", "answerback": "PuTTY", "up": "\x1b[A", "left": "\x1b[D",
	} {
		for i := 1; i <= len(reply); i++ {
			for _, gap := range []time.Duration{0, 2 * escTime, prompt.Quiet + tick, restTime - tick} {
				if name == "answerback" && gap > 2*escTime {
					continue // text, slowly, is what a person types
				}
				if got := answers(gap, reply[:i], reply[i:]); got != "" {
					t.Errorf("%s, in two after %q, %s apart: %s", name, reply[:i], gap, got)
				}
			}
		}
	}
}
