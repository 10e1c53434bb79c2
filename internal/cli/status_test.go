package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

func TestPrintStatus(t *testing.T) {
	now := time.Now()
	v := statusView{
		Domains: []domainStatus{{Status: wire.Status{
			Domain: domain.Anchor{Hash: "0123456789ab", Profile: "default", Workspace: "/w"}, PID: 7, Started: now.Add(-time.Minute),
			Containers: []wire.ContainerStatus{{ID: "c0ffee", State: "attached", PID: 8, Since: now.Add(-time.Second), Notes: []string{"a\x1bb"}}},
			Sessions: []wire.SessionStatus{
				{ID: "11111111-aaaa", Kind: "exec", ContainerID: "c0ffee", PID: 9, Since: now.Add(-2 * time.Second), Terminal: true},
				{ID: "22222222-aaaa", Kind: "run", PID: 10, Since: now.Add(-3 * time.Second)},
			},
			Waiting: 2, Desks: []wire.DeskStatus{{Kind: wire.DeskConsole}, {Kind: wire.DeskRun, Session: "22222222-aaaa"}},
			Network: &wire.NetworkStatus{State: "up", Mode: "filtered", Uplink: "pasta", Sidecar: 11, UplinkP: 12},
		}, DiskBytes: 2_500_000}, {Status: wire.Status{
			Domain: domain.Anchor{Hash: "ba9876543210", Profile: "default", Workspace: "/v"}, Started: now,
		}}},
		Reviews:  []reviewStatus{{Profile: "claude", Workspace: "/r", Pending: 3}},
		Problems: []problem{{Socket: "/s1", Stale: true, Error: "gone"}, {Socket: "/s2", Error: "silent"}},
	}
	var out strings.Builder
	if err := printStatus(&out, v, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"domain 0123456789ab  profile default  /w\n", "coordinator  pid 7, up 1m0s", "container    c0ffee  attached for 1s, pid 8\n",
		"  session      11111111  exec in c0ffee for 2s, terminal, pid 9\n", "  session      22222222  run for 3s, pid 10\n",
		"  requests     2 waiting for an answer\n  desks        console, run of 22222222\n",
		"  network      up, filtered, sidecar pid 11, uplink pasta, pid 12\n", "  disk         2.5 MB\n",
		"review  profile claude  /r: 3 changed paths wait for a look (lazaret review)\n", "stale /s1: gone\n", "no answer at /s2: silent\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, &out)
		}
	}
	if _, quiet, _ := strings.Cut(out.String(), "ba9876543210"); strings.Contains(quiet, "waiting") || strings.Contains(quiet, "desks") {
		t.Errorf("a domain without requests or desks:\n%s", quiet)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("a note acts upon the terminal:\n%q", out.String())
	}
	if v.silent() != 1 {
		t.Errorf("%d silent, want 1", v.silent())
	}
}

// What takes the disk to find is found anew when it is old, and seldom when it took
// long.
func TestAgedIsFoundSeldom(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for took, want := range map[time.Duration]int{time.Millisecond: 10, time.Second: 2} {
		var a aged[int]
		n := 0
		for range 100 { // seconds
			v, err := a.get(func() time.Time { return now }, func() (int, error) {
				n++
				now = now.Add(took)
				return n, nil
			})
			if err != nil || v != n {
				t.Fatal(v, err)
			}
			now = now.Add(time.Second)
		}
		if n != want {
			t.Errorf("one that takes %s is found %d times in 100 s, want %d", took, n, want)
		}
	}
}
