package oci

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// The states of runtime-spec's life-cycle, and what may be done in each.
func TestSignalsAndStates(t *testing.T) {
	each(t, harness.Options{}, func(t *testing.T, w *world) {
		id, log := w.id("c"), filepath.Join(w.Dir, "log.json")
		debian := w.Sandbox == harness.SandboxDebian
		rt := func(args ...string) harness.Result {
			return w.rt(append([]string{"--network=none", "--log", log, "--log-format=json"}, args...)...)
		}

		t.Log("a signal before start")
		b := w.bundle("sleep 100", nil)
		w.create(b, id, "--network=none").OK(t)
		if st := w.state(id); st.Status != specs.StateCreated || st.Pid <= 1 || st.Bundle != b {
			t.Errorf("state %+v", st)
		}
		switch r := rt("kill", id, "TERM"); {
		case debian:
			// As that runsc does it; a delete by force ends such a container.
			r.Exit(t, 128)
			rt("delete", "--force", id).OK(t)
		default:
			r.OK(t)
			w.wait(id, specs.StateStopped)
			w.deletes(func() harness.Result { return rt("delete", id) })
		}
		w.nothingRuns()

		t.Log("deletes of what runs")
		w.create(b, id, "--network=none").OK(t)
		rt("start", id).OK(t)
		if r := rt("delete", id); r.Code == 0 {
			t.Error("a running container was deleted without force")
		}
		if st := w.state(id); st.Status != specs.StateRunning {
			t.Errorf("state %+v", st)
		}
		if r := rt("create", "--bundle", b, id); r.Code != 1 || !strings.Contains(r.Stderr, "already exists") {
			t.Errorf("a second create: exit %d, %s", r.Code, r.Stderr)
		}
		if st := w.state(id); st.Status != specs.StateRunning {
			t.Errorf("state after a second create %+v", st)
		}
		rt("delete", "--force", id).OK(t)
		rt("delete", "--force", id).OK(t)
		if r := rt("delete", id); r.Code == 0 {
			t.Error("delete of what is gone")
		}
		w.nothingRuns()

		t.Log("the id is free again; kill twice")
		w.create(b, id, "--network=none").OK(t)
		rt("start", id).OK(t)
		rt("kill", id, "KILL").OK(t)
		w.wait(id, specs.StateStopped)
		if r := rt("kill", id, "KILL"); r.Code == 0 {
			t.Error("kill of what has stopped") // runtime-spec: MUST generate an error
		}
		if r := rt("start", id); r.Code == 0 {
			t.Error("start of what has stopped")
		}
		if r := rt("create", "--bundle", b, id); r.Code != 1 || !strings.Contains(r.Stderr, "already exists") {
			t.Errorf("create beside what has stopped: exit %d, %s", r.Code, r.Stderr)
		}
		if st := w.state(id); st.Status != specs.StateStopped {
			t.Errorf("state after a second create %+v", st)
		}
		w.deletes(func() harness.Result { return rt("delete", id) })
		w.nothingRuns()
	})
}

// nothingRuns waits for the end of the coordinators and sandboxes.
func (w *world) nothingRuns() {
	w.t.Helper()
	var left []string
	for end := time.Now().Add(settle); ; time.Sleep(100 * time.Millisecond) {
		left = slices.DeleteFunc(w.Leftovers(), func(l string) bool { return strings.Contains(l, "null-netns") })
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("after %s still there:\n\t%s", settle, strings.Join(left, "\n\t"))
		}
	}
}

// A signal that a person or an engine sends to the runtime's own process does what
// it does to runsc.
func TestSignalsToTheRuntimeItself(t *testing.T) {
	each(t, harness.Options{}, func(t *testing.T, w *world) {
		const container = `trap 'echo got usr1' USR1; trap 'echo got term; exit 5' TERM; echo ready; while :; do sleep 0.05; done`
		bundles := [2]string{w.bundle(container, nil), w.bundle(container, nil)}
		script := `
			out=$1; shift
			"$@" >"$out" 2>&1 &
			pid=$!
			i=0
			until grep -q ready "$out"; do sleep 0.1; i=$((i+1)); [ $i -lt 150 ] || exit 99; done
			[ "$(readlink /proc/$pid/exe)" = "$SANDBOX" ] || exit 98
			kill -$SIG $pid; sleep 0.5; kill -TERM $pid 2>/dev/null
			wait $pid
		`
		bare := []string{w.Sandbox, "--root", w.root + "b"}
		if !w.rootful {
			bare = append(bare, "--ignore-cgroups")
		}
		for _, sig := range []string{"USR1", "CONT", "HUP", "INT", "TERM"} {
			var codes [2]int
			var outs [2]string
			for i, argv := range [][]string{{w.program("lazaret-runtime"), "--root", w.root}, bare} {
				out := filepath.Join(w.Dir, "out-"+sig+strconv.Itoa(i))
				id := w.id(string(rune('c' + i)))
				// The process that an engine started is runsc's own now: one execve.
				call := []string{"env", "SANDBOX=" + w.Sandbox, "SIG=" + sig, "sh", "-c", script, "sh", out}
				codes[i] = w.engine(append(append(call, argv...), "--network=none", "run", "--bundle", bundles[i], id)...).Code
				outs[i] = w.Run("cat", out).OK(t)
				w.engine(append(argv, "delete", "--force", id)...)
			}
			if codes[0] != codes[1] || outs[0] != outs[1] || codes[0] >= 98 && codes[0] < 100 {
				t.Errorf("SIG%s: exit %d, output %q; bare %d, %q", sig, codes[0], outs[0], codes[1], outs[1])
			}
		}
		w.nothingRuns()
	})
}
