package escalate

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// program builds a program of the tests' once, where the test user reaches it.
func program(t *testing.T, h *harness.Harness, name, pkg string) string {
	t.Helper()
	out := filepath.Join(h.Dir, name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", out, pkg)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", pkg, err, text)
	}
	return out
}

// desk is one of the test's.
type desk struct {
	t      *testing.T
	in     io.WriteCloser
	events chan wire.DeskEvent
	cancel context.CancelFunc
}

// open opens a desk of a kind at the domain of a workspace; session is that of kind
// "run".
func open(t *testing.T, h *harness.Harness, bin, hash, kind, session string) *desk {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := h.Command(ctx, bin, harness.ControlSocket(hash), kind, session)
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
	d := &desk{t: t, in: in, events: make(chan wire.DeskEvent, 1000)}
	d.cancel = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait() // was killed
	})
	t.Cleanup(d.cancel)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, wire.MaxLine)
	go func() {
		defer close(d.events)
		for lines.Scan() {
			var e wire.DeskEvent
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				d.events <- e
			}
		}
	}()
	d.next("open")
	return d
}

// next waits for an event of a type; another one fails the test.
func (d *desk) next(kind string) wire.DeskEvent {
	d.t.Helper()
	select {
	case e, ok := <-d.events:
		if !ok || e.Type != kind {
			d.t.Fatalf("desk: event %+v, want %q", e, kind)
		}
		return e
	case <-time.After(time.Minute):
		d.t.Fatalf("desk: no event within a minute, want %q", kind)
	}
	return wire.DeskEvent{}
}

// none fails the test if an event is there.
func (d *desk) none() {
	d.t.Helper()
	select {
	case e := <-d.events:
		d.t.Errorf("desk: unexpected event %+v", e)
	default:
	}
}

func (d *desk) reply(r wire.DeskReply) {
	d.t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(d.in, "%s\n", data); err != nil {
		d.t.Fatal(err)
	}
}

// run approves a request that was asked and plays the command's end.
func (d *desk) run(ask *wire.Ask, code int, stdout, stderr string) {
	d.t.Helper()
	d.reply(wire.DeskReply{Type: wire.ReplyApprove, ID: ask.ID})
	if e := d.next(wire.EventGo); e.ID != ask.ID {
		d.t.Errorf("go for %s, want %s", e.ID, ask.ID)
	}
	d.reply(wire.DeskReply{Type: wire.ReplyResult, ID: ask.ID, ExitCode: code, Stdout: []byte(stdout), Stderr: []byte(stderr)})
}
