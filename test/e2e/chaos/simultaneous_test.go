package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// starts is how many containers of one domain are started at once.
const starts = 50

// All of them live at the same time: each waits for the last to come.
func TestSimultaneousStartsInOneDomain(t *testing.T) {
	c := newChaos(t)
	ws := c.ws[0]
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	results := make([]harness.Result, starts)
	var clients sync.WaitGroup
	for i := range starts {
		clients.Go(func() {
			args := append(c.LazaretArgs(ws), "--network=none", harness.Busybox, "sh", "-c",
				fmt.Sprintf("while [ ! -e /workspace/go ]; do sleep 0.2; done; echo %d", i))
			results[i] = harness.Do(c.Command(ctx, "podman", args...))
		})
	}
	ended := make(chan struct{})
	go func() { clients.Wait(); close(ended) }()

	// Every coordinator that ever was, and not only the last: two that follow each
	// other would be one too many.
	coordinators := map[int]bool{}
	most := 0
	for deadline := time.Now().Add(4 * time.Minute); most < starts && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, p := range c.find(nil) {
			if p.coordinator() {
				coordinators[p.pid] = true
			}
		}
		select {
		case <-ended:
			deadline = time.Now() // the results tell why
		default:
		}
		attached := 0
		for _, ct := range c.Domain("default", ws).Containers {
			if ct.State == "attached" {
				attached++
			}
		}
		most = max(most, attached)
	}
	c.WriteFile(filepath.Join(ws, "go"), "")
	<-ended
	for i, r := range results {
		if r.Code != 0 || r.Stdout != fmt.Sprintf("%d\n", i) {
			t.Errorf("start %d: exit %d, stdout %q, stderr %q", i, r.Code, r.Stdout, r.Stderr)
		}
	}
	if most != starts {
		t.Errorf("%d containers were attached at once, want %d", most, starts)
	}
	if len(coordinators) != 1 {
		t.Errorf("coordinators %v, want one", coordinators)
	}
	if err := os.Remove(filepath.Join(ws, "go")); err != nil {
		t.Error(err)
	}
	c.AssertNothingLeft()
	for _, path := range list(c.control) {
		t.Errorf("left behind: control file %s", path)
	}
}
