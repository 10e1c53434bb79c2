package coordinator

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

// Equal decisions become two records, and what is refused is bounded in rate
// without anything allowed being lost.
func TestEgressIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	var got []audit.Event
	g := newEgress(func(e audit.Event) { got = append(got, e) }, func() time.Time { return now })
	count := func(verdict string) (records, repeats, lost int, up int64) {
		for _, e := range got {
			if err := e.Check(); err != nil {
				t.Fatal(err)
			}
			var p struct {
				Repeats, Count int
				Up             int64 `json:"bytes_up"`
			}
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				t.Fatal(err)
			}
			lost += p.Count
			if e.Verdict == verdict {
				records, repeats, up = records+1, repeats+p.Repeats, up+p.Up
			}
		}
		return records, repeats, lost, up
	}
	event := func(i int, verdict string) {
		g.event(plan.Event{
			Time: now.Format(time.RFC3339Nano), Sandbox: "c1", Kind: "tls", Verdict: verdict,
			Name: fmt.Sprintf("h%d.example", i), Addr: netip.MustParseAddr("192.0.2.1"), Port: 443, Proto: "tcp", Up: 7,
		})
	}
	for range 100 {
		event(1, plan.Allowed)
	}
	for i := range 5000 {
		event(i, plan.Blocked)
		if i%100 == 0 {
			event(i+10, plan.Allowed)
		}
	}
	g.lose(11)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	records, repeats, lost, up := count(plan.Allowed)
	if records+repeats < 150 || records > 60 || up != 150*7 {
		t.Errorf("allowed: %d records, %d repeats, %d bytes", records, repeats, up)
	}
	records, _, _, _ = count(plan.Blocked)
	if records != egressBurst || lost != 5000-egressBurst+11 {
		t.Errorf("blocked: %d records, %d lost", records, lost)
	}
}
