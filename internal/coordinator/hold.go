package coordinator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/escalate/pause"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

const (
	// holdGrace is how long a sandbox that lazaret run has started is left alone for
	// its first sessions.
	holdGrace = 15 * time.Second
	// starterGrace is how long it waits for the lazaret run that has started it, which is
	// seen only once it holds it: podman takes its time on a machine with much to do.
	starterGrace = 90 * time.Second
	// stopGrace is how long its first process has to end the others.
	stopGrace = 6 * time.Second
)

// serveHold answers and then keeps the connection, whose end is the hold's.
func (c *Coordinator) serveHold(w http.ResponseWriter, r *http.Request) {
	var req wire.HoldRequest
	err := decode(r, &req, &req.Version)
	if err == nil {
		if _, uerr := uuid.Parse(req.SessionID); uerr != nil {
			err = &wire.Error{Code: wire.CodeBadRequest, Message: "session_id must be a UUID"}
		}
	}
	var ct *container
	if err == nil {
		ct, err = c.hold(&req)
	}
	if err != nil {
		c.answer(w, nil, err)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err == nil {
		if err = answerHijacked(conn, rw, nil); err == nil {
			// A container's end closes it too.
			ended := make(chan struct{})
			go func() {
				select {
				case <-ct.gone:
					_ = conn.Close()
				case <-ended:
				}
			}()
			_, _ = io.Copy(io.Discard, rw) // nothing is expected
			close(ended)
		}
		_ = conn.Close()
	}
	c.unhold(context.WithoutCancel(r.Context()), ct, req.SessionID)
}

func (c *Coordinator) hold(req *wire.HoldRequest) (*container, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ct := c.containers[req.ContainerID]
	switch {
	case ct == nil || !ct.attached:
		return nil, &wire.Error{Code: wire.CodeUnknown, Message: fmt.Sprintf("container %.64q does not live here", req.ContainerID)}
	case c.closing || ct.stopping:
		return nil, &wire.Error{Code: wire.CodeClosing, Message: "the sandbox is being stopped"}
	case ct.holds[req.SessionID]:
		return nil, &wire.Error{Code: wire.CodeRefused, Message: "the session is held already"}
	}
	if ct.holds == nil {
		ct.holds = map[string]bool{}
	}
	ct.holds[req.SessionID] = true
	return ct, nil
}

// unhold ends a session whose lazaret run is gone.
func (c *Coordinator) unhold(ctx context.Context, ct *container, session string) {
	c.mu.Lock()
	delete(ct.holds, session)
	_, lives := c.sessions[session]
	c.mu.Unlock()
	if c.stopUnused(ctx, ct, session) || !lives {
		return
	}
	st, err := containerstate.ReadState(ct.stateDir)
	if err == nil {
		_, err = runsc(ctx, st, "exec", st.ID, spec.RunPath+"/escalate", pause.EndWord, session)
	}
	if err != nil {
		c.log.Warn("end what is left of a session", "session", session, "error", err)
	}
}

// stopUnused stops a sandbox of lazaret run's that nobody uses any more, and
// reports whether it did. The session but does not count as a use.
func (c *Coordinator) stopUnused(ctx context.Context, ct *container, but string) bool {
	c.mu.Lock()
	used := len(ct.holds) > 0
	for _, s := range c.sessions {
		used = used || s.ContainerID == ct.id && s.ID != but
	}
	if !ct.run || !ct.attached || used || ct.stopping || c.containers[ct.id] != ct {
		c.mu.Unlock()
		return false
	}
	ct.stopping = true
	sandbox := ct.proc
	c.mu.Unlock()
	c.log.Info("stop the sandbox: nobody uses it any more", "container", ct.id)
	st, err := containerstate.ReadState(ct.stateDir)
	if err == nil {
		_, err = runsc(ctx, st, "kill", st.ID, "TERM")
	}
	if err != nil {
		c.log.Warn("stop the sandbox", "container", ct.id, "error", err)
	}
	go func() {
		select {
		case <-ct.gone:
		case <-time.After(stopGrace):
			_ = sandbox.Signal(unix.SIGKILL) // it, if its first process did not end
		}
	}()
	return true
}

// holdOrStop stops a sandbox of lazaret run's whose starter was killed, and one
// whose last session has ended.
func (c *Coordinator) holdOrStop(ctx context.Context, ct *container) {
	first, last := time.NewTimer(holdGrace), time.NewTimer(starterGrace)
	defer first.Stop()
	defer last.Stop()
	for {
		select {
		case <-ct.gone:
			return
		case <-first.C:
			c.mu.Lock()
			held := ct.holds != nil
			c.mu.Unlock()
			if !held {
				continue // its starter is on the way, or has been killed
			}
		case <-last.C:
		case <-ct.sessionEnded:
			c.mu.Lock()
			early := time.Since(ct.prepared) < holdGrace
			c.mu.Unlock()
			if early {
				continue // somebody else may be coming
			}
		}
		c.stopUnused(ctx, ct, "")
	}
}
