package gitsentry

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/lazaret-dev/lazaret/test/attacks/git/generator"
)

// TestGeneratedAttacks plays random programs of an attacker in the guard's view,
// with a host that acts in between. GITSENTRY_TEST_PROGRAMS says how many,
// GITSENTRY_TEST_SEED which is the first; with GITSENTRY_TEST_EVERY the
// guarded files are looked at after each op.
func TestGeneratedAttacks(t *testing.T) {
	count, first := number(t, "GITSENTRY_TEST_PROGRAMS", 1000), number(t, "GITSENTRY_TEST_SEED", 1)
	if testing.Short() && os.Getenv("GITSENTRY_TEST_PROGRAMS") == "" {
		count = 150
	}
	attack(t, generator.Options{First: first, Count: int(count), Repair: 100, Every: os.Getenv("GITSENTRY_TEST_EVERY") != ""})
}

// TestGeneratedAttacksMoved lets the host move .git away and back, after which a
// guard of its own is needed.
func TestGeneratedAttacksMoved(t *testing.T) {
	worlds := uint64(5)
	if testing.Short() {
		worlds = 1
	}
	for i := range worlds {
		attack(t, generator.Options{First: 1_000_000 + 100*i, Count: 30, Moves: true})
	}
}

// attack drives the generator against a guard of its own.
func attack(t *testing.T, o generator.Options) {
	t.Helper()
	w := bareWorld(t)
	defer w.stop()
	if err := generator.Setup(t.Context(), w.host); err != nil {
		t.Fatal(err)
	}
	w.start(nil)
	machine, peer, err := generator.Socketpair()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = generator.Peer(peer) // ends with the socket
	}()
	m := generator.NewMachine(w.in, machine)
	defer func() {
		m.Close()
		_ = machine.Close()
		<-ended
		_ = peer.Close()
	}()
	t.Logf("programs %d to %d", o.First, o.First+uint64(o.Count)-1)
	o.View, o.Workspace, o.HostDo = generator.NewLocal(m), w.host, generator.NewHost(w.host).Do
	if err := generator.Drive(t.Context(), o); err != nil {
		t.Error(err)
	}
	// What was guarded has not made the repository unusable.
	if _, err := generator.NewHost(w.host).Do("repair"); err != nil {
		t.Error(err)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "-C", w.host, "status").CombinedOutput(); err != nil {
		t.Errorf("git status on the host: %v: %s", err, out)
	}
}

func number(t *testing.T, env string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	return n
}
