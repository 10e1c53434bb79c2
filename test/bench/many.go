package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

const (
	manyDomains  = 20
	manySessions = 100
	// aimDomain is of a domain's own processes together, in bytes.
	aimDomain = 30 << 20
)

// runMany starts many domains at once, each with a repository, kept directories and
// a filtered network, and has many sessions in them at once reach a server and ask
// for a command. One that gets no answer fails it. It needs root for its world.
func runMany(t *testing.T) {
	w := newWorld(t, map[string]string{"ok.test": server})
	b := &bench{Harness: harness.New(t, harness.Options{
		Enter:       w.Enter(),
		CommandTime: 10 * time.Minute,
		Config: "[general]\ncontrol_dir = \"~\"\n[escalation]\nauto_approve = [[\"true\"]]\n" +
			"[profiles.default.network]\nallow = [\"ok.test\"]\n",
	}), t: t}
	console := b.Command(t.Context(), "lazaret", "console", "--headless")
	if err := console.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = console.Cancel(); _ = console.Wait() })

	row, flush := table(t)
	row("%s\n%d domains with git, kept directories and a filtered network, started at once; %d sessions at once; seconds\n", b.machine(), manyDomains, manySessions)
	row("what\tmedian [quartiles]\tall\taim")
	workspaces := make([]string, manyDomains)
	for i := range workspaces {
		workspaces[i] = b.Workspace()
		b.Run("git", "init", "-q", workspaces[i]).OK(t)
	}
	name := func(i int) string { return fmt.Sprintf("box%d", i%manyDomains) }
	starts, all := together(manyDomains, func(i int) harness.Result {
		return b.Podman(b.manyRun(workspaces[i], "-d", "--name="+name(i), harness.Busybox, "sleep", "100000")...)
	})
	starts.ok(t)
	row("  start of one, of all\t%s\t%.1f", starts.spread(), all.Seconds())
	flush()

	// Each session does what an agent's does: a name, a server, a command of the host's.
	sessions, all := together(manySessions, func(i int) harness.Result {
		return b.Podman("exec", "-w", "/workspace", name(i), "sh", "-c",
			"wget -q -O - http://ok.test/small && exec lazaret-escalate -j 'are you there?' -- true")
	})
	sessions.ok(t)
	for _, r := range sessions {
		if r.Stdout != "small\n" {
			t.Errorf("a session's answer is %q", r.Stdout)
		}
	}
	row("  session: request through the sidecar, approval\t%s\t%.1f", sessions.spread(), all.Seconds())
	quiet := b.Podman("exec", name(0), "true")
	quiet.OK(t)
	row("  exec of true beside them, idle\t%.2f\t", quiet.Took.Seconds())
	flush()

	time.Sleep(5 * time.Second) // idle
	row("\na domain's own processes\tmedian share, MB\t\taim")
	parts := map[string][]float64{}
	for _, ws := range workspaces {
		d, n := b.Domain("default", ws), b.networkStatus(ws)
		sum := 0.0
		for part, pid := range map[string]int{"coordinator": d.PID, "guard": d.Guard.PID, "sidecar": n.Sidecar, "uplink": n.UplinkP} {
			share := b.share(pid)
			parts[part] = append(parts[part], share)
			sum += share
		}
		parts["together"] = append(parts["together"], sum)
	}
	for _, part := range []string{"coordinator", "guard", "sidecar", "uplink", "together"} {
		s, aim := newSpread(parts[part], "%.1f"), 0.0
		if part == "together" {
			aim = aimDomain
		}
		row("  %s\t%s\t\t%s", part, s, atMost(s.median*(1<<20), aim))
	}
	flush()
}

// manyRun is podman run with lazaret, in its own network.
func (b *bench) manyRun(workspace string, args ...string) []string {
	return append(slices.Concat(lazaret, []string{"run", "-v", workspace + ":/workspace"}), args...)
}

// share is a process's proportional share of memory (proc(5), smaps_rollup), in MB:
// what many processes have in common is counted once.
func (b *bench) share(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "\nPss:")
	var kb float64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		b.t.Fatalf("smaps_rollup of process %d: %v\n%s", pid, err, data)
	}
	return kb / 1024
}

// results are those of things that went on together.
type results []harness.Result

// together does n things at once and returns their results, and how long all took.
func together(n int, do func(i int) harness.Result) (results, time.Duration) {
	all := make(results, n)
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = do(i) })
	}
	wg.Wait()
	return all, time.Since(begin)
}

func (rs results) ok(t *testing.T) {
	t.Helper()
	for _, r := range rs {
		r.OK(t)
	}
}

func (rs results) spread() spread {
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = r.Took.Seconds()
	}
	return newSpread(values, "%.1f")
}
