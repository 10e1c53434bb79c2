// Package chaos ends processes of the main path at random moments and looks at
// what the next start finds: it must work, and nothing may be left after it.
package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

const (
	// defaultRounds is what the project promises; CHAOS_ROUNDS changes it.
	defaultRounds = 100
	// hunt bounds the search for a victim in one round.
	hunt = 8 * time.Second
	// clientTime bounds a podman whose helpers were killed under it: it may wait
	// for a monitor that will never answer.
	clientTime = 15 * time.Second
	// settle is for what goes away by itself, but later.
	settle = time.Minute
	// maxBadRounds ends a run that shows nothing new any more.
	maxBadRounds = 5
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// TestKilledAtRandomMoments is reproducible as far as the machine's timing is:
// CHAOS_SEED repeats the choices of a run, CHAOS_ROUND one round of it.
func TestKilledAtRandomMoments(t *testing.T) {
	rounds := number(t, "CHAOS_ROUNDS", defaultRounds)
	seed := number(t, "CHAOS_SEED", int(time.Now().UnixNano()&0xffffff))
	first := 0
	if only := number(t, "CHAOS_ROUND", -1); only >= 0 {
		first, rounds = only, only+1
	}
	t.Logf("CHAOS_SEED=%d", seed)
	c := newChaos(t)
	killed := map[string]int{}
	bad := 0
	for i := first; i < rounds; i++ {
		r := c.newRound(i, rand.New(rand.NewPCG(uint64(seed), uint64(i))))
		problems := r.run()
		if r.victim.pid != 0 {
			killed[r.kind.name]++
		}
		if len(problems) == 0 {
			continue
		}
		t.Errorf("CHAOS_SEED=%d CHAOS_ROUND=%d: %s\n\t%s", seed, i, r.story(), strings.Join(problems, "\n\t"))
		if bad++; bad == maxBadRounds {
			t.Fatalf("%d bad rounds: the rest is left out", bad)
		}
		c.wipe()
	}
	t.Logf("killed: %v", killed)
	if rounds-first < 50 {
		return
	}
	for _, k := range kinds {
		if killed[k.name] == 0 {
			t.Errorf("no %s was killed in %d rounds: this test no longer finds them", k.name, rounds-first)
		}
	}
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q is not a number", name, v)
	}
	return n
}

// chaos is the place of all rounds.
type chaos struct {
	*harness.Harness
	t       *testing.T
	control string    // [general] control_dir: whatever is in it is of this test
	ws      [2]string // two domains
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	h := harness.New(t, harness.Options{KeepMess: true})
	c := &chaos{Harness: h, t: t, control: filepath.Join(h.Dir, "c")}
	h.WriteFile(filepath.Join(c.control, "x"), "") // as the user's own directory
	if err := os.Remove(filepath.Join(c.control, "x")); err != nil {
		t.Fatal(err)
	}
	h.Config(fmt.Sprintf("[general]\ncontrol_dir = %q\n[runtime]\nsandbox = %q\n", c.control, harness.SandboxCurrent))
	c.ws = [2]string{h.Workspace(), h.Workspace()}
	return c
}

// round is five containers, one of whose processes is killed.
type round struct {
	*chaos
	index  int
	random *rand.Rand
	kind   kind
	skip   int           // victims to let live first
	delay  time.Duration // between a victim's appearance and its end
	victim process
	took   time.Duration
	before map[int]bool // pids of before the round
}

func (c *chaos) newRound(i int, r *rand.Rand) *round {
	k := kinds[r.IntN(len(kinds))]
	return &round{
		chaos: c, index: i, random: r, kind: k, skip: r.IntN(k.most),
		delay: time.Duration(r.Int64N(int64(k.within))), before: pids(),
	}
}

func (r *round) story() string {
	if r.victim.pid == 0 {
		return fmt.Sprintf("no %s was found to kill", r.kind.name)
	}
	return fmt.Sprintf("killed %s %d (%d passed, %s later): %s", r.kind.name, r.victim.pid, r.skip, r.delay, r.victim.cmdline)
}

// run returns what is wrong, one problem an entry.
func (r *round) run() []string {
	begin := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var clients sync.WaitGroup
	for _, script := range r.clients() {
		clients.Go(func() {
			// How they end is not asked: one of them met a murderer.
			harness.Do(r.script(ctx, script))
		})
	}
	ended := make(chan struct{})
	go func() { clients.Wait(); close(ended) }()

	r.kill()
	hit := time.Now()
	select {
	case <-ended:
	case <-time.After(time.Duration(r.random.Int64N(int64(400 * time.Millisecond)))):
	}
	var problems []string
	r.remove(ended, cancel)
	if out := r.Podman("rm", "-fa", "-t", "0"); out.Code != 0 {
		problems = append(problems, "podman rm -fa: "+out.Stderr)
	}
	removed := time.Now()
	problems = append(problems, r.startAll()...)
	started := time.Now()
	left := r.leftovers()
	for deadline := time.Now().Add(settle); len(left) > 0 && time.Now().Before(deadline); left = r.leftovers() {
		time.Sleep(50 * time.Millisecond)
	}
	r.took = time.Since(begin)
	r.t.Logf("round %d: %s; %dms: kill %d, rm %d, starts %d, settle %d", r.index, r.story(), r.took.Milliseconds(),
		hit.Sub(begin).Milliseconds(), removed.Sub(hit).Milliseconds(), started.Sub(removed).Milliseconds(), time.Since(started).Milliseconds())
	return append(problems, left...)
}

// clients are the five scripts that run at once; $1 is a name for containers.
func (r *round) clients() []string {
	run := func(ws, args string) string {
		mount := ""
		if ws != "" {
			mount = "-v " + ws + ":/workspace "
		}
		return "podman run --runtime=lazaret " + mount + args
	}
	short := fmt.Sprintf("--rm --network=none %s sleep 0.%d", harness.Busybox, r.random.IntN(5))
	return []string{
		run(r.ws[0], short),
		run(r.ws[0], fmt.Sprintf("-d --network=none --name x%d %s sleep 300; podman exec x%d true; podman exec x%d sleep 1", r.index, harness.Busybox, r.index, r.index)),
		run(r.ws[0], fmt.Sprintf("--rm --network=none %s sh -c 'cat /workspace/README; sleep 30'", harness.Busybox)),
		run(r.ws[1], fmt.Sprintf("%s true", harness.Busybox)),
		run("", short),
	}
}

func (r *round) script(ctx context.Context, script string) *exec.Cmd {
	return r.Command(ctx, "/bin/sh", "-c", script)
}

// kill ends one process of the round's kind.
func (r *round) kill() {
	deadline := time.Now().Add(hunt)
	passed := map[int]bool{}
	for time.Now().Before(deadline) {
		for _, p := range r.find(r.before) {
			if !r.kind.is(p) || passed[p.pid] {
				continue
			}
			if len(passed) < r.skip {
				passed[p.pid] = true
				continue
			}
			time.Sleep(r.delay)
			if p.kill() {
				r.victim = p
				return
			}
			passed[p.pid] = true
		}
		time.Sleep(time.Millisecond)
	}
	// Few of that kind: the first that is there, at last.
	for _, p := range r.find(r.before) {
		if r.kind.is(p) && p.kill() {
			r.victim = p
			return
		}
	}
}

// remove ends the containers until the clients have ended too: one that waited
// for a lock may make its container only now.
func (r *round) remove(ended <-chan struct{}, cancel func()) {
	patience := time.After(clientTime)
	for {
		r.Podman("rm", "-fa", "-t", "0") // what it cannot remove yet, a later turn does
		select {
		case <-ended:
			return
		case <-patience:
			cancel() // podman waits for ever for a monitor that was killed
			<-ended
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// startAll makes a clean start in every domain of the round, and one without.
func (r *round) startAll() []string {
	var mu sync.Mutex
	var problems []string
	var starts sync.WaitGroup
	for _, ws := range []string{r.ws[0], r.ws[1], ""} {
		starts.Go(func() {
			out := r.Lazaret(ws, "--network=none", harness.Busybox, "echo", "clean")
			if out.Code == 0 && out.Stdout == "clean\n" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			problems = append(problems, fmt.Sprintf("clean start in %q: exit %d, stdout %q, stderr %q", ws, out.Code, out.Stdout, out.Stderr))
		})
	}
	starts.Wait()
	return problems
}

// leftovers is the harness' list without podman's own, and what only this test
// can name: every control file and Domain Root that is not one of the two
// workspaces' is a leftover.
func (r *round) leftovers() []string {
	left := slices.DeleteFunc(r.Leftovers(), r.podmans)
	for _, path := range list(r.control) {
		left = append(left, "control file "+path)
	}
	known := map[string]bool{}
	for _, ws := range r.ws {
		hash, err := harness.DomainHash("default", ws)
		if err != nil {
			return append(left, err.Error())
		}
		known[hash] = true
	}
	for _, path := range list(filepath.Join(r.Home, ".local/share/lazaret/domains")) {
		if !known[filepath.Base(path)] {
			left = append(left, "Domain Root "+path)
		}
	}
	return left
}

// podmans tells podman's own leftovers of its being killed: the storage of a
// container that it had not written down yet, its network and its user-mode
// network process.
func (r *round) podmans(what string) bool {
	kind, rest, _ := strings.Cut(what, " ")
	storage, netns := filepath.Join(r.Home, ".local/share/containers")+"/", filepath.Join(r.Runtime, "netns")+"/"
	switch kind {
	case "mount", "file":
		return strings.HasPrefix(rest, storage) || strings.HasPrefix(rest, netns)
	case "process":
		_, cmdline, _ := strings.Cut(rest, ": ")
		return strings.HasPrefix(filepath.Base(cmdline), "slirp4netns ")
	}
	return false
}

// wipe removes what a bad round left, so that it is not counted against the
// next ones.
func (c *chaos) wipe() {
	for _, p := range c.find(nil) {
		if !p.podmanPause() {
			p.kill()
		}
	}
	for _, dir := range []string{c.control, filepath.Join(c.Runtime, "lazaret/containers"), filepath.Join(c.Runtime, "lazaret/domains")} {
		for _, path := range list(dir) {
			if err := os.RemoveAll(path); err != nil {
				c.t.Log(err)
			}
		}
	}
	for _, path := range list(filepath.Join(c.Runtime, "runsc")) {
		if filepath.Base(path) != "null-netns" {
			if err := os.RemoveAll(path); err != nil {
				c.t.Log(err)
			}
		}
	}
}

func list(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // not made yet
	}
	var paths []string
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return paths
}
