package coordinator

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A lazaret run may take its time between the start of its sandbox and its hold, and the
// sandbox of one that never comes does not stay.
func TestSandboxWaitsForItsStarter(t *testing.T) {
	for name, c := range map[string]struct {
		holdAt, unholdAt time.Duration // 0: never
		stops            time.Duration
	}{
		"the starter never comes":     {stops: starterGrace},
		"a slow one comes and stays":  {holdAt: 40 * time.Second},
		"a quick one is gone at once": {holdAt: time.Second, unholdAt: 2 * time.Second, stops: holdGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ct := &container{
					id: "box", run: true, attached: true, prepared: time.Now(),
					gone: make(chan struct{}), sessionEnded: make(chan struct{}, 1), stateDir: t.TempDir(),
				}
				co := &Coordinator{
					containers: map[string]*container{"box": ct}, sessions: map[string]*session{}, log: slog.New(slog.DiscardHandler),
				}
				began := time.Now()
				go co.holdOrStop(t.Context(), ct)
				stopping := func(at time.Duration) bool {
					time.Sleep(at - time.Since(began))
					synctest.Wait()
					co.mu.Lock()
					defer co.mu.Unlock()
					return ct.stopping
				}
				set := func(at time.Duration, held bool) {
					time.Sleep(at - time.Since(began))
					co.mu.Lock()
					defer co.mu.Unlock()
					if ct.holds = map[string]bool{}; held {
						ct.holds["s"] = true
					}
				}
				if c.holdAt > 0 {
					set(c.holdAt, true)
				}
				if c.unholdAt > 0 {
					set(c.unholdAt, false)
				}
				if c.stops > 0 {
					if stopping(c.stops - time.Second) {
						t.Errorf("stopped %s after the start", time.Since(began))
					}
					if !stopping(c.stops + time.Second) {
						t.Errorf("not stopped %s after the start", time.Since(began))
					}
				} else if stopping(2 * starterGrace) {
					t.Error("stopped while it is held")
				}
				close(ct.gone)
			})
		})
	}
}
