package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/attacks/git/generator"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// sandboxes share the programs; each has a workspace of its own.
const sandboxes = 4

// env is a number from the environment, so that a run can be repeated or widened.
func env(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestGenerator plays ten thousand random programs in sandboxes, with a host that
// acts in between. LAZARET_ATTACK_PROGRAMS and LAZARET_ATTACK_SEED say how many and
// from which on.
func TestGenerator(t *testing.T) {
	t.Parallel()
	count, first := env(t, "LAZARET_ATTACK_PROGRAMS", 10_000), env(t, "LAZARET_ATTACK_SEED", 1)
	for i := range sandboxes {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			each := count / sandboxes
			drive(t, Lazaret(harness.Options{}), generator.Options{First: uint64(first + i*each), Count: each, Repair: 100})
		})
	}
	// What the sandbox is cut off from it attacks no more: few programs each.
	t.Run("moved", func(t *testing.T) {
		t.Parallel()
		for i := range 3 {
			drive(t, Lazaret(harness.Options{}), generator.Options{First: uint64(1_000_000 + 1000*i), Count: 30, Moves: true})
		}
	})
}

// Naive mounts fall to the generator at once.
func TestGeneratorFindsNaiveMounts(t *testing.T) {
	t.Parallel()
	err := driven(t, Naive(harness.SandboxCurrent), generator.Options{First: 1, Count: 100})
	var v *generator.Violation
	if !errors.As(err, &v) {
		t.Errorf("a hundred programs did no harm: %v", err)
	}
}

func drive(t *testing.T, target Target, o generator.Options) {
	t.Helper()
	if err := driven(t, target, o); err != nil {
		t.Error(err)
	}
}

// driven drives the generator against a target.
func driven(t *testing.T, target Target, o generator.Options) error {
	t.Helper()
	h := harness.New(t, target.Options)
	agent := filepath.Join(h.Dir, "attack/agent")
	h.WriteFile(agent, string(agentProgram(t)))
	if err := os.Chmod(agent, 0o755); err != nil {
		t.Fatal(err)
	}
	ws := generator.Place(h.Dir, "ws")
	h.Sh(h.Dir, `mkdir -p "$1" && exec "$2" setup "$1"`, ws, agent).OK(t)
	if !target.Naive {
		h.Track(ws)
	}
	args := append(target.Args(h, ws), "-i", "--rm", "--network=none", "--cap-add=all", "-v", filepath.Dir(agent)+":/attack:ro",
		harness.Busybox, "/attack/agent", "view", "/workspace")
	view, endView := remote(t, h, "podman", args...)
	host, endHost := remote(t, h, agent, "host", ws)
	defer endHost()
	defer endView()

	t.Logf("programs %d to %d", o.First, o.First+uint64(o.Count)-1)
	o.View, o.Workspace, o.HostDo = view, ws, host.Host
	begin := time.Now()
	err := generator.Drive(t.Context(), o)
	t.Logf("%s", time.Since(begin).Round(time.Millisecond))
	return err
}

// driveTime is for all programs of one sandbox, on a busy machine.
const driveTime = 3 * time.Hour

// remote starts a program of the user's that Serve runs in. end closes its input,
// waits for it and fails the test for what it wrote of errors.
func remote(t *testing.T, h *harness.Harness, name string, args ...string) (r *generator.Remote, end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), driveTime)
	cmd := h.Command(ctx, name, args...)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return generator.NewRemote(in, out), func() {
		_ = in.Close() // its end is what Wait tells
		stop := time.AfterFunc(5*time.Minute, cancel)
		defer cancel()
		if err := cmd.Wait(); err != nil || !stop.Stop() {
			t.Errorf("%s: %v: %s", name, err, errOut.String())
		}
	}
}
