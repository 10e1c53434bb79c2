package cli

import (
	"testing"
	"time"
)

// A podman that takes longer to start a sandbox than we wait for one leaves time to
// look at it; one whose sandboxes end at once is not asked for ever.
func TestWait(t *testing.T) {
	now := time.Unix(1000, 0)
	w := newWait(now)
	now = now.Add(10 * enterTime)
	w.worked(now)
	if w.over(now) {
		t.Error("podman's own time was counted")
	}
	if now = now.Add(enterTime); !w.over(now) {
		t.Error("waits for ever")
	}
	begun := now
	for w.worked(now); !w.over(now); w.worked(now) {
		if now = now.Add(time.Second); now.Sub(begun) > 10*enterTime {
			t.Fatal("starts sandboxes for ever")
		}
	}
}
