package cli

import (
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/domain"
)

func TestSessionsOf(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	records := func(events ...audit.Event) iter.Seq2[placed, error] {
		return func(yield func(placed, error) bool) {
			for i, e := range events {
				e.Time = began.Add(time.Duration(i) * time.Minute)
				if !yield(placed{audit.Main, audit.Entry{Record: audit.Record{Seq: uint64(i) + 1, Event: e}}}, nil) {
					return
				}
			}
		}
	}
	what := []byte(`{"kind":"run","terminal":true,"pid":7}`)
	all, err := sessionsOf(domain.Anchor{Hash: "0123456789ab", Profile: "claude", Workspace: "/w"}, records(
		audit.Event{Kind: audit.CoordinatorStart, Payload: []byte("{}")},
		audit.Event{Kind: audit.SessionStarted, Session: "11111111-a", Container: "c0ffee", Payload: what},
		audit.Event{Kind: audit.SessionStarted, Session: "22222222-a", Payload: what},
		audit.Event{Kind: audit.SessionEnded, Session: "11111111-a", Payload: []byte("{}")},
		audit.Event{Kind: audit.SessionEnded, Session: "33333333-a", Payload: []byte("{}")},
	))
	if err != nil || len(all) != 2 || all[0].State != sessionEnded || all[1].State != sessionLost {
		t.Fatalf("%+v, %v", all, err)
	}
	all = append(all, sessionView{ID: "44444444-a", Kind: "exec", Profile: "p", Workspace: "/\x1b[2K", State: sessionLives, Began: began})
	var out strings.Builder
	if err := printSessions(&out, all, began.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"SESSION", "2m0s", "lost", "1h0m0s, lives"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d lacks %q: %q", i, want, lines[i])
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("acts upon the terminal: %q", &out)
	}
}
