package escalate

import (
	"strings"
	"syscall"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// A coordinator that is killed while containers live has a successor at which
// they ask on.
func TestCoordinatorKilled(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Config: "[escalation]\ntimeout = \"2m\"\n"})
	ws := h.Workspace()
	bin := program(t, h, "testdesk", "./testdesk")
	h.Detached(ws, "box", harness.Busybox, "sleep", "600")
	hash, err := harness.DomainHash("default", ws)
	if err != nil {
		t.Fatal(err)
	}
	old := open(t, h, bin, hash, wire.DeskConsole, "")
	before := background(t, h, "podman", "exec", "-w", "/", "box", "sh", "-c", "lazaret-escalate -- early; echo $?; until test -e /tmp/go; do sleep 0.1; done; lazaret-escalate -- late; echo $?")
	if ask := old.next(wire.EventAsk).Ask; ask.Command != "early" {
		t.Errorf("asked %+v", ask)
	}
	killed := h.Domain("default", ws).PID
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e, ok := <-old.events; ok {
		t.Errorf("old desk: %+v", e)
	}
	h.Podman("exec", "-w", "/", "box", "touch", "/tmp/go").OK(t) // the exec brings a coordinator
	if r := wait(t, before); strings.TrimSpace(r.Stdout) != "125\n125" || !strings.Contains(r.Stderr, "(lost_session)") || !strings.Contains(r.Stderr, "start a new exec") {
		t.Errorf("the session that lived before: stdout %q, stderr %q", r.Stdout, r.Stderr)
	}
	d := open(t, h, bin, hash, wire.DeskConsole, "")
	for _, dir := range []string{"/", "/workspace"} {
		done := background(t, h, "podman", "exec", "-w", dir, "box", "lazaret-escalate", "-j", "need it", "--", "aws", "sts")
		select {
		case r := <-done:
			t.Errorf("in %s: %+v", dir, r)
			continue
		case e := <-d.events:
			if e.Ask == nil || e.Ask.CWD != dir || e.Ask.Kind != "exec" || e.Ask.Command != "aws sts" {
				t.Fatalf("in %s: asked %+v", dir, e.Ask)
			}
			d.run(e.Ask, 7, "out\n", "")
		}
		if r := wait(t, done); r.Exit(t, 7) != "out" {
			t.Errorf("in %s: stdout %q", dir, r.Stdout)
		}
	}
	h.Podman("rm", "-f", "-t", "0", "box").OK(t)
}
