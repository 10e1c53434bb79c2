package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/audit"
)

// logged collects what a store logs.
func logged(t *testing.T) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

func openTest(t *testing.T, root string) *Store {
	t.Helper()
	log, _ := logged(t)
	s := Open(Options{Root: root, Log: log})
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	return s
}

func event(kind string, n int) audit.Event {
	return audit.Event{Kind: kind, Verdict: "approved", Session: "s1", Container: "c1", Payload: audit.Payload(map[string]any{"n": n, "text": "a < b & c"})}
}

// fill appends n events to each chain, and waits until they are there.
func fill(t *testing.T, s *Store, n int) {
	t.Helper()
	for i := range n {
		s.AppendEgress(event(audit.EgressDecision, i))
		done := make(chan error, 1)
		s.Append(event(audit.EscalationAsked, i), func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecordsComeBackInOrder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := openTest(t, root)
	fill(t, s, 5)
	for name, pager := range map[string]audit.Pager{"live": s.Page, "closed": func(chain string, after uint64) (audit.Page, error) { return ReadPage(root, chain, after) }} {
		if name == "closed" {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for _, chain := range audit.Chains() {
			var got []string
			if err := pager.Each(chain, 1, func(_ map[string]audit.Head, entries []audit.Entry) error {
				for _, e := range entries {
					got = append(got, fmt.Sprint(e.Seq, e.Damage, " ", strings.Contains(string(e.Payload), fmt.Sprintf(`"n":%d,`, e.Seq-1))))
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if want := "[2 true 3 true 4 true 5 true]"; fmt.Sprint(got) != want {
				t.Errorf("%s %s: got %v, want %v", name, chain, got, want)
			}
		}
		if v, err := audit.Verify(pager); err != nil || v.Counts[audit.Main] != 5 || v.Heads[audit.Egress].Seq != 5 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{File, HeadFile} {
		if fi, err := os.Stat(filepath.Join(root, name)); err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
}
