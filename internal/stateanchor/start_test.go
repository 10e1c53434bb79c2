package stateanchor

import (
	"testing"
	"time"
)

// What four overlays add to the start of a domain that was used before.
func TestStartIsShort(t *testing.T) {
	if !inside(t) {
		return
	}
	o := Options{Root: t.TempDir(), Paths: []string{"/usr", "/etc", "/var/lib", "/opt"}, Driver: DriverOverlay, Image: image(t, base(), base())}
	var best, worst time.Duration
	for i := range 21 {
		begin := time.Now()
		a, err := Open(t.Context(), o)
		took := time.Since(begin)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			best = time.Hour // the first one chooses the driver
			t.Logf("first: %s", took)
			continue
		}
		best, worst = min(best, took), max(worst, took)
	}
	t.Logf("fastest %s, slowest %s", best, worst)
	if best > 15*time.Millisecond {
		t.Errorf("%s at best", best)
	}
}
