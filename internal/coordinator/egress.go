package coordinator

import (
	"sync"
	"time"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

const (
	// egressWindow is how long equal decisions are counted as one.
	egressWindow = 10 * time.Second
	// egressApart bounds how many are counted apart; a new one ends the window.
	egressApart = 1024
	// egressBurst and egressRate, a second, bound the records of what was refused:
	// what a sandbox asks for in vain must not push out what it did.
	egressBurst, egressRate = 1000, 10
)

// egress makes records of the network's decisions. Close records what is left.
type egress struct {
	record func(audit.Event)
	now    func() time.Time

	// mu guards the fields below.
	mu      sync.Mutex
	repeats map[plan.Event]*repeat
	timer   *time.Timer // runs while there are repeats
	tokens  float64
	filled  time.Time
	lost    int
	closed  bool
}

// repeat are the decisions that came after an equal one, which is recorded.
type repeat struct {
	count    int
	up, down int64
	last     string
}

// egressPayload is a decision as it is recorded.
type egressPayload struct {
	plan.Event
	Repeats int `json:"repeats,omitempty"` // of an earlier record: it is not counted in
}

func newEgress(record func(audit.Event), now func() time.Time) *egress {
	return &egress{record: record, now: now, repeats: map[plan.Event]*repeat{}, tokens: egressBurst, filled: now()}
}

// event takes a decision.
func (g *egress) event(e plan.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	kind := e // what is the same of equal ones
	kind.Time, kind.Up, kind.Down = "", 0, 0
	if r := g.repeats[kind]; r != nil {
		r.count, r.up, r.down, r.last = r.count+1, r.up+e.Up, r.down+e.Down, e.Time
		return
	}
	if len(g.repeats) >= egressApart {
		g.flush()
	}
	g.repeats[kind] = &repeat{}
	if g.timer == nil {
		g.timer = time.AfterFunc(egressWindow, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.flush()
		})
	}
	g.put(e, 0)
}

// put needs g.mu.
func (g *egress) put(e plan.Event, repeats int) {
	if e.Verdict != plan.Allowed {
		now := g.now()
		g.tokens = min(egressBurst, g.tokens+now.Sub(g.filled).Seconds()*egressRate)
		g.filled = now
		if g.tokens < 1 {
			g.lost += max(1, repeats)
			return
		}
		g.tokens--
	}
	at, err := time.Parse(time.RFC3339Nano, e.Time)
	if err != nil {
		at = g.now()
	}
	g.record(audit.Event{Time: at, Kind: audit.EgressDecision, Verdict: e.Verdict, Container: e.Sandbox, Payload: audit.Payload(egressPayload{e, repeats})})
}

// lose counts decisions that are known only by their number.
func (g *egress) lose(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost += n
	if g.timer == nil && !g.closed {
		g.flush()
	}
}

// flush ends the window. It needs g.mu.
func (g *egress) flush() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	for e, r := range g.repeats {
		if r.count > 0 {
			e.Time, e.Up, e.Down = r.last, r.up, r.down
			g.put(e, r.count)
		}
	}
	clear(g.repeats)
	if g.lost > 0 {
		g.record(audit.Event{Time: g.now(), Kind: audit.EgressLost, Payload: audit.Payload(map[string]int{"count": g.lost})})
		g.lost = 0
	}
}

// Close implements io.Closer.
func (g *egress) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flush()
	g.closed = true
	return nil
}
