package escalate

import (
	"crypto/ed25519"
	"testing"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/internal/sessionkey"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// A session that a host process has begun is asked for at its own desk only.
func TestSessions(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	ws := h.Workspace()
	bin := program(t, h, "testdesk", "./testdesk")
	h.Detached(ws, "box", harness.Busybox, "sleep", "600")
	hash, err := harness.DomainHash("default", ws)
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.NewString()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	// As sessionkey.Leave does, by the user.
	h.Run("sh", "-ceu", `umask 077; mkdir -p "$XDG_RUNTIME_DIR/lazaret/sessions"; printf %s "$2" >"$XDG_RUNTIME_DIR/lazaret/sessions/$1"`, "sh", id, sessionkey.Encode(key)+" owned").OK(t)
	console := open(t, h, bin, hash, wire.DeskConsole, "")
	own := open(t, h, bin, hash, wire.DeskRun, id)
	done := background(t, h, "podman", "exec", "-e", sessionkey.EnvID+"="+id, "box", "lazaret-escalate", "--", "first")
	ask := own.next(wire.EventAsk).Ask
	if ask.Session != id || ask.Kind != "run" || ask.Command != "first" {
		t.Errorf("asked %+v", ask)
	}
	own.run(ask, 5, "", "")

	wait(t, done).Exit(t, 5)
	console.none()
}

func TestDisabled(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Config: "[escalation]\nenabled = false\n"})
	r := h.Lazaret(h.Workspace(), harness.Busybox, "sh", "-c", "ls /run/lazaret/certs /run/lazaret/escalate.sock; env | grep ANCHOR; lazaret-escalate -- true")
	r.Exit(t, 125)
	if r.Stdout != "" {
		t.Errorf("there is %q", r.Stdout)
	}
}
