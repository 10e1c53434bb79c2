package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	escdesk "github.com/lazaret-dev/lazaret/escalate/desk"
	"github.com/lazaret-dev/lazaret/internal/console/terminal"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

func TestRunWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line    string
		profile string
		argv    []string
		fault   bool
	}{
		{line: "run"},
		{line: "run claude", profile: "claude"},
		{line: "run -- ls -l", argv: []string{"ls", "-l"}},
		{line: "run claude -- ls", profile: "claude", argv: []string{"ls"}},
		{line: "run --fresh claude -- ls --fresh", profile: "claude", argv: []string{"ls", "--fresh"}},
		{line: "run claude -- -- ls", profile: "claude", argv: []string{"--", "ls"}},
		{line: "run -- -- ls", argv: []string{"--", "ls"}},
		{line: "run claude ls", fault: true},
		{line: "run a b -- ls", fault: true},
	} {
		t.Run(c.line, func(t *testing.T) {
			t.Parallel()
			args := keepDashes(append([]string{"lazaret"}, strings.Fields(c.line)...))[2:]
			// As the library does it: flags up to the first other word, or "--".
			for len(args) > 0 && strings.HasPrefix(args[0], "-") {
				word := args[0]
				args = args[1:]
				if word == "--" {
					break
				}
			}
			profile, argv, err := runWords(args)
			if profile != c.profile || !slices.Equal(argv, c.argv) || (err != nil) != c.fault {
				t.Errorf("%q %q %v", profile, argv, err)
			}
		})
	}
	if got := keepDashes([]string{"lazaret", "git", "--", "x"}); len(got) != 4 {
		t.Errorf("another command's words became %q", got)
	}
}

// Requests come to the terminal one after the other, and one that is gone is not
// shown.
func TestRunDeskOffersInOrder(t *testing.T) {
	t.Parallel()
	d := &runDesk{prompts: make(chan *terminal.Prompt), more: make(chan struct{}, 1)}
	d.done.Go(func() { d.offer(t.Context()) })
	for _, id := range []string{"one", "two", "three"} {
		d.add(escdesk.Event{ID: id, Ask: &wire.Ask{ID: id, Dropped: 4}})
	}
	d.remove("two")
	for _, want := range []string{"one", "three"} {
		select {
		case p := <-d.prompts:
			if p.Ask.ID != want {
				t.Errorf("offered %s, want %s", p.Ask.ID, want)
			}
			if n, dropped := p.Counts(); n != 2 || dropped != 4 {
				t.Errorf("counts %d and %d", n, dropped)
			}
			select {
			case <-p.Gone:
				t.Errorf("%s is gone", want)
			default:
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s was not offered", want)
		}
	}
}

func TestPodmanWorkspace(t *testing.T) {
	t.Parallel()
	for ws, want := range map[string][]string{
		"/w":      {"--annotation=dev.lazaret.workspace=/w", "--volume=/w:/workspace"},
		"/a b\\%": {"--annotation=dev.lazaret.workspace=/a b\\%", "--volume=/a b\\%:/workspace"},
		"/a,b":    {"--volume=/a,b:/workspace"},
		`/a"b`:    {`--volume=/a"b:/workspace`},
		"/a:b":    {"--annotation=dev.lazaret.workspace=/a:b"},
		"/a:b,c":  nil,
	} {
		got, err := podmanWorkspace(ws)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %q, %v", ws, got, err)
		}
	}
}
