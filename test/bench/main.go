// Command bench prints what Lazaret costs on this machine, as ratios to plain
// podman with the same runsc, measured alternately in one run: other load and
// the machine's drift then meet both alike.
//
//	make bench                        everything
//	BENCH=start make bench            start-up and memory: about two minutes
//	BENCH=git make bench              work in a workspace of 20,000 files
//	BENCH=state make bench            packages in kept directories, and their mounts
//	BENCH=escalate make bench         an automatic approval, and many: a minute
//	BENCH=network make bench          a filtered network, as root
//	BENCH=many make bench             20 domains and 100 sessions at once, as root
//	BENCH=git BENCH_WORK='log|rg' …   those of them whose names match
//	BENCH_N=100 make bench            more turns, smaller spread
//
// An aim that is missed is told, not failed.
package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"text/tabwriter"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

const defaultTurns = 25

// The aims, as ratios to plain runsc, milliseconds and bytes.
const (
	aimFirst       = 1.25
	aimWarm        = 1.05
	aimExec        = 1.05
	aimPassThrough = 3.0
	aimResident    = 20 << 20
)

func main() {
	turns, gitTurns, stateTurns, escalateTurns, netTurns := defaultTurns, defaultGitTurns, defaultStateTurns, defaultEscalateTurns, defaultNetworkTurns
	if v := os.Getenv("BENCH_N"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 3 {
			fmt.Fprintf(os.Stderr, "BENCH_N=%q is not a number of turns (3 or more)\n", v)
			os.Exit(2)
		}
		turns, gitTurns, stateTurns, escalateTurns, netTurns = n, n, n, n, n
	}
	only, err := regexp.Compile(os.Getenv("BENCH_WORK"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "BENCH_WORK: %v\n", err)
		os.Exit(2)
	}
	var tests []testing.InternalTest
	section := func(name string, run func(t *testing.T)) {
		if v := os.Getenv("BENCH"); v == "" || v == name {
			tests = append(tests, testing.InternalTest{Name: name, F: run})
		}
	}
	section("start", func(t *testing.T) { runStart(t, turns) })
	section("git", func(t *testing.T) { runGit(t, gitTurns, only) })
	section("state", func(t *testing.T) { runState(t, stateTurns) })
	section("escalate", func(t *testing.T) { runEscalate(t, escalateTurns) })
	section("network", func(t *testing.T) { runNetwork(t, netTurns) })
	section("many", runMany)
	if len(tests) == 0 {
		fmt.Fprintf(os.Stderr, "BENCH=%q is not a section (start, git, state, escalate, network, many)\n", os.Getenv("BENCH"))
		os.Exit(2)
	}
	// The harness makes places for tests, so the benchmark is one to it.
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, tests, nil, nil)
}

// table prints aligned rows.
func table(t *testing.T) (row func(format string, args ...any), flush func()) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row = func(format string, args ...any) {
		if _, err := fmt.Fprintf(out, format+"\n", args...); err != nil {
			t.Fatal(err)
		}
	}
	flush = func() {
		if err := out.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return row, flush
}

func runGit(t *testing.T, turns int, only *regexp.Regexp) {
	b := &bench{Harness: harness.New(t, harness.Options{}), t: t, turns: turns}
	g := newGitBench(b)
	row, flush := table(t)
	row("%s\ngit, 20k files; %d turns; milliseconds: median [quartiles]; ratios: median of the turns' own [quartiles]\n", b.machine(), turns)
	row("in a workspace\tplain runsc, ms\tlazaret, ms\tto plain\taim")
	// A row is shown as soon as it is there: the next may take minutes.
	each := func(p pair) {
		row("  %-42s\t%s\t%s\t%s\t%s", p.name, p.plain.ms(), p.guarded.ms(), p.guarded.ratio(p.plain), atMost(p.guarded.ratio(p.plain).median, p.aim))
		flush()
	}
	if only.MatchString("status") {
		each(g.cold())
	}
	g.warm(only, each)
	if resident, private, ok := g.guardMemory(); ok {
		row("\nguard's memory\t%.1f MB resident\t%.1f MB its own", float64(resident)/(1<<20), float64(private)/(1<<20))
	} else {
		row("\nno guard runs")
	}
	if g.goRoot == "" {
		row("no Go in /usr/local/go or /usr/lib/go: go build was not measured")
	}
	flush()
}

func runStart(t *testing.T, turns int) {
	b := newBench(t, turns)
	row, flush := table(t)
	row("%s\n%d turns; milliseconds: median [quartiles]; ratios: median of the turns' own [quartiles]\n", b.machine(), turns)

	starts := b.starts()
	row("start to exit of true\tms\tto plain\tto plain --overlay2=none\taim")
	plain, plainNone := starts[0], starts[1]
	for i, s := range starts {
		row("  %s\t%s\t%s\t%s\t%s", s.name, s.ms(), s.ratio(plain), s.ratio(plainNone), atMost(s.ratio(plain).median, []float64{0, 0, aimFirst, aimWarm}[i]))
	}
	row("\t\t\t\t")
	execs := b.execs()
	row("exec of true\tms\tto plain --overlay2=none\t\taim")
	for i, s := range execs {
		row("  %s\t%s\t%s\t\t%s", s.name, s.ms(), s.ratio(execs[0]), atMost(s.ratio(execs[0]).median, []float64{0, aimExec}[i]))
	}
	flush()

	row("\nverb\trunsc, ms\tlazaret-runtime, ms\tmore, ms\tmore, CPU ms\taim")
	for _, v := range b.verbs() {
		row("  %s\t%s\t%s\t%s\t%s\t%s", v.name, v.plain.ms(), v.lazaret.ms(), v.lazaret.difference(v.plain), v.lazaretCPU.difference(v.plainCPU), atMost(v.lazaret.difference(v.plain).median, aimPassThrough))
	}
	flush()

	row("\ncoordinator's memory, idle\tresident, MB\tits own, MB\taim")
	for _, m := range b.memory() {
		row("  %s\t%.1f\t%.1f\t%s", m.name, float64(m.resident)/(1<<20), float64(m.private)/(1<<20), atMost(float64(m.resident), aimResident))
	}
	flush()
}

// atMost tells whether an aim is met; 0 is none.
func atMost(got, aim float64) string {
	switch {
	case aim == 0:
		return ""
	case aim >= 1<<20:
		return met(got <= aim) + fmt.Sprintf(" (at most %.0f)", aim/(1<<20))
	default:
		return met(got <= aim) + fmt.Sprintf(" (at most %g)", aim)
	}
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "MISSED"
}

// bench is the place of all measurements.
type bench struct {
	*harness.Harness
	t     *testing.T
	turns int
	used  string // workspace whose coordinator is always up
	free  string // workspace that nobody uses between two turns
	held  map[string]string
}

// keepLazaret and keepPlain are containers that stay up.
const (
	keepLazaret = "keep-lazaret"
	keepPlain   = "keep-plain"
)

func newBench(t *testing.T, turns int) *bench {
	b := &bench{Harness: harness.New(t, harness.Options{}), t: t, turns: turns, held: map[string]string{}}
	b.used, b.free = b.Workspace(), b.Workspace()
	for name, args := range map[string][]string{keepLazaret: lazaret, keepPlain: plainNone} {
		b.held[name] = b.Podman(b.podmanRun(args, b.used, "-d", "--name="+name, harness.Busybox, "sleep", "100000")...).OK(t)
	}
	return b
}
