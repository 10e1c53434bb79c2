package coordinator

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/proc"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// facts are what a record tells beside its fields.
type facts map[string]any

// record writes down what has happened. It does not wait for the disk.
func (c *Coordinator) record(e audit.Event, what facts) {
	e.Payload = audit.Payload(what)
	c.store.Append(e, nil)
}

// prepareRecorded prepares a container in a domain whose records can be kept.
func (c *Coordinator) prepareRecorded(ctx context.Context, req *wire.PrepareRequest, peer *proc.Process) (*wire.PrepareResponse, error) {
	res, err := c.prepare(ctx, req, peer)
	if err == nil {
		if err = c.store.Ready(); err != nil { // has opened meanwhile
			c.mu.Lock()
			if ct := c.containers[req.ContainerID]; ct != nil && ct.proc == peer {
				c.forget(ct)
				c.removeState(ct.id)
			}
			c.mu.Unlock()
			return nil, refused("audit: %w", err)
		}
	}
	what, verdict := facts{"pid": peer.PID, "git": req.Git, "run": req.Run}, "ready"
	if req.Network != nil {
		what["network"] = req.Network.Mode
	}
	if req.State != nil {
		what["state_paths"] = req.State.Paths
	}
	if err != nil {
		verdict, what["error"] = "refused", err.Error()
	}
	id := req.ContainerID
	if !containerstate.ValidID(id) {
		id = ""
	}
	c.record(audit.Event{Kind: audit.ContainerPrepared, Verdict: verdict, Container: id}, what)
	return res, err
}

// auditRoutes are those of the control protocol.
func (c *Coordinator) auditRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+wire.PathAudit, func(w http.ResponseWriter, r *http.Request) {
		page, err := c.auditPage(r)
		c.answer(w, page, err)
	})
}

func (c *Coordinator) auditPage(r *http.Request) (p audit.Page, err error) {
	q := r.URL.Query()
	chain, after := q.Get("chain"), uint64(0)
	if s := q.Get("after"); s != "" {
		after, err = strconv.ParseUint(s, 10, 64)
	}
	if err != nil || !slices.Contains(audit.Chains(), chain) {
		return p, &wire.Error{Code: wire.CodeBadRequest, Message: fmt.Sprintf("chain must be one of %q, after a sequence number", audit.Chains())}
	}
	return c.store.Page(chain, after)
}
