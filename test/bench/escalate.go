package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

const (
	defaultEscalateTurns = 200
	// aimAnswer is of handshake and policy together, in milliseconds; aimRate in
	// requests a second.
	aimAnswer = 5.0
	aimRate   = 200.0
	loadTime  = 20 * time.Second
	// loadSessions ask loadWorkers requests at a time each: a session may ask 256
	// times in a second.
	loadSessions, loadWorkers = 2, 4
	// clockTicks are in a second of a process's CPU time (proc(5) stat, USER_HZ).
	clockTicks = 100
)

// turn is package asker's.
type turn struct{ Whole, Start, Handshake, Policy, Run float64 }

// runEscalate measures an automatic approval of true, and how many requests one
// coordinator answers.
func runEscalate(t *testing.T, turns int) {
	b := &bench{Harness: harness.New(t, harness.Options{Config: "[general]\ncontrol_dir = \"~\"\n[escalation]\nauto_approve = [[\"true\"]]\n"}), t: t, turns: turns}
	ws := b.Workspace()
	hash, err := harness.DomainHash("default", ws)
	if err != nil {
		t.Fatal(err)
	}
	asker := filepath.Join(ws, "asker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", asker, "./test/bench/asker")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the asker: %v: %s", err, text)
	}
	b.Detached(ws, "box", harness.Busybox, "sleep", "100000")
	row, flush := table(t)
	row("%s\nautomatic approval of true, from exec in the sandbox to exit; %d turns; milliseconds\n", b.machine(), turns)

	console := b.Command(t.Context(), "lazaret", "console", "--headless")
	if err := console.Start(); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) harness.Result {
		return harness.Do(b.Command(t.Context(), "podman", append([]string{"exec", "-w", "/workspace", "box", "/workspace/asker"}, args...)...))
	}
	ask("turns", "5").OK(t) // the console has found the domain
	var all []turn
	for line := range strings.Lines(ask("turns", strconv.Itoa(turns)).OK(t)) {
		var one turn
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	_ = console.Cancel()
	_ = console.Wait() // was ended
	row("part\tmedian\tp99\taim")
	for _, p := range []struct {
		name string
		of   func(turn) float64
		aim  float64
	}{
		{"whole", func(o turn) float64 { return o.Whole }, 0},
		{"client start", func(o turn) float64 { return o.Start }, 0},
		{"handshake", func(o turn) float64 { return o.Handshake }, 0},
		{"policy and record", func(o turn) float64 { return o.Policy }, 0},
		{"run", func(o turn) float64 { return o.Run }, 0},
		{"handshake, policy and record", func(o turn) float64 { return o.Handshake + o.Policy }, aimAnswer},
	} {
		var values []float64
		for _, o := range all {
			values = append(values, p.of(o))
		}
		slices.Sort(values)
		at := func(q float64) float64 { return values[int(q*float64(len(values)-1)+0.5)] }
		row("  %s\t%.1f\t%.1f\t%s", p.name, at(0.5), at(0.99), atMost(at(0.5), p.aim))
	}
	flush()
	b.sustained(row, ask, filepath.Join(b.Home, filepath.Base(harness.ControlSocket(hash))), asker)
	flush()
}

// sustained asks as fast as the sandbox can, of a desk that runs nothing: what
// is measured is the coordinator.
func (b *bench) sustained(row func(string, ...any), ask func(...string) harness.Result, socket, asker string) {
	desk := b.Command(b.t.Context(), asker, "desk", socket)
	out, err := desk.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := desk.Start(); err != nil {
		b.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.t.Fatalf("the desk does not open: %q, %v", line, err)
	}
	pid := strconv.Itoa(b.Domain("default", filepath.Dir(asker)).PID)
	before := b.busy(pid)
	results := make(chan harness.Result, loadSessions)
	for range loadSessions {
		go func() { results <- ask("load", loadTime.String(), strconv.Itoa(loadWorkers)) }()
	}
	var rate float64
	answered := 0
	failed := map[string]int{}
	for range loadSessions {
		var l struct {
			Seconds  float64
			Answered int
			Failed   map[string]int
		}
		if err := json.Unmarshal([]byte((<-results).OK(b.t)), &l); err != nil {
			b.t.Fatal(err)
		}
		rate += float64(l.Answered) / l.Seconds
		answered += l.Answered
		for why, n := range l.Failed {
			failed[why] += n
		}
	}
	used := b.busy(pid) - before
	resident, private := b.residentMemory(pid)
	_ = desk.Cancel()
	_ = desk.Wait() // was ended
	each := used.Seconds() * 1000 / float64(max(1, answered))
	row("\none coordinator, from %d sessions, %d at a time\t\t\taim", loadSessions, loadSessions*loadWorkers)
	row("  requests in a second, clients on the same CPUs\t%.0f\t\t%s", rate, met(rate >= aimRate)+fmt.Sprintf(" (at least %.0f)", aimRate))
	row("  coordinator's CPU for each, ms\t%.2f", each)
	row("  so one CPU serves, in a second\t%.0f", 1000/each)
	row("  coordinator's memory, MB\t%.1f resident, %.1f its own", float64(resident)/(1<<20), float64(private)/(1<<20))
	row("  not answered\t%v", failed)
}

// busy is the CPU time that a process has used.
func (b *bench) busy(pid string) time.Duration {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		b.t.Fatal(err)
	}
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	ticks := 0
	for _, field := range f[11:13] { // utime, stime
		n, err := strconv.Atoi(field)
		if err != nil {
			b.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks
}
