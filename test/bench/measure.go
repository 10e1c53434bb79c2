package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// How podman is told of a runtime. Rootless runsc cannot make cgroups; Lazaret
// gives it --overlay2=none, so that engines see what is written to the root.
var (
	plain     = []string{"--runtime=" + harness.SandboxCurrent, "--runtime-flag=ignore-cgroups"}
	plainNone = append(slices.Clone(plain), "--runtime-flag=overlay2=none")
	lazaret   = []string{"--runtime=lazaret"}
)

// series is what one thing took, turn by turn, in milliseconds.
type series struct {
	name  string
	turns []float64
}

// spread is a median with its quartiles.
type spread struct {
	median, low, high float64
	format            string
}

func (s spread) String() string {
	return fmt.Sprintf(s.format+" ["+s.format+"–"+s.format+"]", s.median, s.low, s.high)
}

func newSpread(values []float64, format string) spread {
	v := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 { return v[int(q*float64(len(v)-1)+0.5)] }
	return spread{median: at(0.5), low: at(0.25), high: at(0.75), format: format}
}

func (s series) ms() spread { return newSpread(s.turns, "%.1f") }

// ratio and difference compare turn by turn: what was measured one after the
// other met the same machine.
func (s series) ratio(base series) spread {
	r := make([]float64, len(s.turns))
	for i := range r {
		r[i] = s.turns[i] / base.turns[i]
	}
	return newSpread(r, "%.3f")
}

func (s series) difference(base series) spread {
	d := make([]float64, len(s.turns))
	for i := range d {
		d[i] = s.turns[i] - base.turns[i]
	}
	return newSpread(d, "%+.1f")
}

func (b *bench) podmanRun(runtimeArgs []string, workspace string, args ...string) []string {
	// --runtime-flag is a flag of podman itself, before its command.
	global := slices.Concat(runtimeArgs, []string{"run", "--network=none", "-v", workspace + ":/workspace"})
	return append(global, args...)
}

// alternate takes the things in turns, after one turn that does not count. Their
// order changes, so that none always follows the same other.
func (b *bench) alternate(names []string, things []func() time.Duration) []series {
	all := make([]series, len(names))
	for i, name := range names {
		all[i] = series{name: name, turns: make([]float64, b.turns)}
		things[i]()
	}
	for turn := range b.turns {
		for k := range things {
			i := (k + turn) % len(things)
			all[i].turns[turn] = float64(things[i]()) / float64(time.Millisecond)
		}
	}
	return all
}

// starts measures podman run of true to its end.
func (b *bench) starts() []series {
	start := func(args []string, workspace string) func() time.Duration {
		return func() time.Duration {
			r := b.Podman(b.podmanRun(args, workspace, "--rm", harness.Busybox, "true")...)
			r.OK(b.t)
			return r.Took
		}
	}
	hash, err := harness.DomainHash("default", b.free)
	if err != nil {
		b.t.Fatal(err)
	}
	first := start(lazaret, b.free)
	return b.alternate(
		[]string{"plain runsc", "plain runsc --overlay2=none", "lazaret, first in the domain", "lazaret, coordinator up"},
		[]func() time.Duration{
			start(plain, b.free),
			start(plainNone, b.free),
			func() time.Duration {
				took := first()
				b.Eventually("the coordinator has ended", 10*time.Second, func() bool {
					_, err := os.Lstat(harness.ControlSocket(hash))
					return err != nil
				})
				return took
			},
			start(lazaret, b.used),
		})
}

// execs measures podman exec of true in a container that is up.
func (b *bench) execs() []series {
	run := func(args []string, name string) func() time.Duration {
		return func() time.Duration {
			r := b.Podman(append(slices.Clone(args), "exec", name, "true")...)
			r.OK(b.t)
			return r.Took
		}
	}
	return b.alternate(
		[]string{"plain runsc --overlay2=none", "lazaret"},
		[]func() time.Duration{run(plainNone, keepPlain), run(lazaret, keepLazaret)})
}

// verb is one call of the runtime: its time by the clock, and the time that it
// kept processors busy, which other load lengthens less.
type verb struct {
	name                 string
	plain, lazaret       series
	plainCPU, lazaretCPU series
}

// verbs measures the runtime's command line itself, in podman's namespaces and
// with the little environment that an engine gives it.
func (b *bench) verbs() []verb {
	pause, err := os.ReadFile(filepath.Join(b.Runtime, "libpod/tmp/pause.pid"))
	if err != nil {
		b.t.Fatal(err)
	}
	enter := []string{"--target", strings.TrimSpace(string(pause)), "--user", "--mount", "--"}
	call := func(busy *[]float64, code int, program string, args ...string) func() time.Duration {
		return func() time.Duration {
			cmd := exec.CommandContext(b.t.Context(), "nsenter", slices.Concat(enter, []string{program}, args)...)
			cmd.Env = []string{"XDG_RUNTIME_DIR=" + b.Runtime, "PATH=/usr/bin:/bin"}
			r := harness.Do(cmd)
			r.Exit(b.t, code)
			*busy = append(*busy, float64(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())/float64(time.Millisecond))
			return r.Took
		}
	}
	shim := filepath.Join(b.Prefix, "bin/lazaret-runtime")
	var out []verb
	for _, v := range []struct {
		name            string
		plainCode, code int
		plainArgs, args []string
	}{
		{"--version", 0, 0, []string{"--version"}, []string{"--version"}},
		{"features", 0, 0, []string{"features"}, []string{"features"}},
		{"list", 0, 0, []string{"list", "--quiet"}, []string{"list", "--quiet"}},
		{"state", 0, 0, []string{"state", b.held[keepPlain]}, []string{"state", b.held[keepLazaret]}},
		{"kill, SIGCONT", 0, 0, []string{"kill", b.held[keepPlain], "CONT"}, []string{"kill", b.held[keepLazaret], "CONT"}},
		{"kill, unknown container", 128, 128, []string{"kill", "unknown", "TERM"}, []string{"kill", "unknown", "TERM"}},
		{"delete, unknown container", 128, 128, []string{"delete", "unknown"}, []string{"delete", "unknown"}},
		{"delete --force, unknown container", 0, 0, []string{"delete", "--force", "unknown"}, []string{"delete", "--force", "unknown"}},
	} {
		var plainCPU, lazaretCPU []float64
		s := b.alternate([]string{"plain", "lazaret"}, []func() time.Duration{
			call(&plainCPU, v.plainCode, harness.SandboxCurrent, v.plainArgs...), call(&lazaretCPU, v.code, shim, v.args...),
		})
		// The first turn did not count.
		out = append(out, verb{v.name, s[0], s[1], series{turns: plainCPU[1:]}, series{turns: lazaretCPU[1:]}})
	}
	return out
}

type memory struct {
	name              string
	resident, private int // bytes
}

// memory looks at the coordinator with one container, then with ten.
func (b *bench) memory() []memory {
	measure := func(name string) memory {
		time.Sleep(3 * time.Second) // idle
		pid := b.Domain("default", b.used).PID
		m := memory{name: name}
		m.resident, m.private = b.residentMemory(strconv.Itoa(pid))
		return m
	}
	all := []memory{measure("1 container")}
	for i := range 9 {
		b.Podman(b.podmanRun(lazaret, b.used, "-d", fmt.Sprintf("--name=more%d", i), harness.Busybox, "sleep", "100000")...).OK(b.t)
	}
	return append(all, measure("10 containers"))
}

// residentMemory is a process's resident memory and the part that is its own, in
// bytes.
func (b *bench) residentMemory(pid string) (resident, private int) {
	data, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, err := strconv.Atoi(f[1])
		switch {
		case err != nil:
		case f[0] == "VmRSS:":
			resident = kb << 10
		case f[0] == "RssAnon:":
			private = kb << 10
		}
	}
	return resident, private
}

// machine names what the numbers depend on.
func (b *bench) machine() string {
	first := func(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }
	return fmt.Sprintf("%d CPUs; %s; %s; %s", runtime.NumCPU(),
		b.Podman("--version").OK(b.t),
		first(b.Run(harness.SandboxCurrent, "--version").OK(b.t)),
		first(b.Run("lazaret", "--version").OK(b.t)))
}
