package store

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/audit"
)

// helperRoot in the environment makes this program a writer that is to be killed.
const helperRoot = "LAZARET_TEST_STORE_ROOT"

// helperStep is the step of a migration at which it kills itself.
const helperStep = "LAZARET_TEST_STORE_STEP"

func TestMain(m *testing.M) {
	if root := os.Getenv(helperRoot); root != "" {
		helper(root)
	}
	os.Exit(m.Run())
}

// helper records as fast as it can, and prints the number of each event once it is
// acknowledged.
func helper(root string) {
	o := Options{Root: root, Log: slog.New(slog.DiscardHandler), keep: 300, drop: 60}
	if at, err := strconv.Atoi(os.Getenv(helperStep)); err == nil {
		o.step = func() {
			if at--; at < 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	s := Open(o)
	if err := s.Ready(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if o.step != nil {
		os.Exit(0)
	}
	_, _ = fmt.Fprintln(os.Stdout, "ready")
	var mu sync.Mutex
	wait := make(chan struct{}, 64)
	for n := 0; ; n++ {
		wait <- struct{}{}
		s.AppendEgress(event(audit.EgressDecision, n))
		do := s.Append
		if n%3 == 0 {
			do = s.Later
		}
		id := fmt.Sprintf("%d.%d", os.Getpid(), n)
		e := event(audit.EscalationAsked, n)
		e.Session = id
		do(e, func(err error) {
			if err == nil {
				mu.Lock()
				_, _ = fmt.Fprintln(os.Stdout, id)
				mu.Unlock()
			}
			<-wait
		})
	}
}

// A writer that is killed at any moment loses nothing that it has acknowledged, and
// leaves whole chains.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	rounds := 50
	if s := os.Getenv("LAZARET_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	if testing.Short() {
		rounds = min(rounds, 15)
	}
	root := t.TempDir()
	acknowledged, total := map[string]bool{}, 0
	for round := range rounds {
		if round%25 == 24 { // else each round would take longer than the one before
			root, acknowledged = t.TempDir(), map[string]bool{}
		}
		before := len(acknowledged)
		writeAndKill(t, root, acknowledged)
		total += len(acknowledged) - before
		v, err := audit.Verify(reader(root))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		found := map[string]bool{}
		if err := reader(root).Each(audit.Main, 0, func(_ map[string]audit.Head, entries []audit.Entry) error {
			for _, e := range entries {
				found[e.Session] = true
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for id := range acknowledged {
			if !found[id] {
				t.Fatalf("round %d: event %s was acknowledged and is not there, of %d", round, id, len(found))
			}
		}
		if v.Counts[audit.Egress] > 300+60+batchLen {
			t.Fatalf("round %d: %d egress records are kept", round, v.Counts[audit.Egress])
		}
	}
	if total == 0 {
		t.Error("nothing was acknowledged at all")
	}
	t.Logf("%d kills, %d acknowledged events", rounds, total)
}

func writeAndKill(t *testing.T, root string, acknowledged map[string]bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperRoot+"="+root)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	ready := lines.Scan() && lines.Text() == "ready"
	ms, err := rand.Int(rand.Reader, big.NewInt(80_000))
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Duration(ms.Int64())*time.Microsecond, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	for lines.Scan() {
		acknowledged[lines.Text()] = true
	}
	_ = cmd.Wait() // killed
	if !ready {
		t.Fatalf("the writer does not start: %s", &errs)
	}
}

// heads of a store, and what its records tell.
func contents(t *testing.T, root string) string {
	t.Helper()
	v, err := audit.Verify(reader(root))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintln(v.Heads[audit.Main], v.Heads[audit.Egress])
	for _, chain := range audit.Chains() {
		if err := reader(root).Each(chain, 0, func(_ map[string]audit.Head, entries []audit.Entry) error {
			for _, e := range entries {
				data, err := json.Marshal(e.Event)
				if err != nil {
					return err
				}
				text += fmt.Sprintf("%s %d %s\n", chain, e.Seq, data)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return text
}

func copyFixture(t *testing.T, name string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	return root
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("LAZARET_UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("got\n%s\nwant\n%s\n%v", got, want, err)
	}
}

// Each schema's fixture comes to the same records, wherever its migration is
// interrupted by SIGKILL, and nothing of an older one is left.
func TestMigrations(t *testing.T) {
	t.Parallel()
	for v := range schema + 1 {
		name := fmt.Sprintf("schema%d", v)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := 0; ; at++ {
				root := copyFixture(t, name)
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), self)
				cmd.Env = append(os.Environ(), helperRoot+"="+root, fmt.Sprintf("%s=%d", helperStep, at))
				out, err := cmd.CombinedOutput()
				if err != nil && cmd.ProcessState.ExitCode() != -1 {
					t.Fatalf("step %d: %v: %s", at, err, out)
				}
				if _, err := audit.Verify(reader(root)); err != nil {
					t.Errorf("step %d, as it was left: %v", at, err)
				}
				s := openTest(t, root)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				golden(t, name+".golden", contents(t, root))
				left, err := os.ReadDir(root)
				if err != nil || len(left) != 2 {
					t.Errorf("step %d: left %v, %v", at, left, err)
				}
				if cmd.ProcessState.Success() {
					if v == 0 && at < 15 {
						t.Errorf("only %d steps", at)
					}
					return
				}
			}
		})
	}
}
