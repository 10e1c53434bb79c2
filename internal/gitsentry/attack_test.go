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
// GITSENTRY_TEST_SEED which is the first.
func TestGeneratedAttacks(t *testing.T) {
	count, first := number(t, "GITSENTRY_TEST_PROGRAMS", 1500), number(t, "GITSENTRY_TEST_SEED", 1)
	if testing.Short() && os.Getenv("GITSENTRY_TEST_PROGRAMS") == "" {
		count = 300
	}
	w := bareWorld(t)
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
	t.Cleanup(func() {
		m.Close()
		_ = machine.Close()
		<-ended
		_ = peer.Close()
	})
	t.Logf("programs %d to %d", first, first+count-1)
	err = generator.Drive(t.Context(), generator.Options{
		View: generator.NewLocal(m), Workspace: w.host, HostDo: generator.NewHost(w.host).Do, First: first, Count: int(count), Repair: 100,
	})
	if err != nil {
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
