package coordinator

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/coordinator/network"
	"github.com/lazaret-dev/lazaret/internal/layout"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// domainNetwork is a live network with what records its decisions.
type domainNetwork struct {
	*network.Network
	decisions *egress
}

func (c *Coordinator) networkDir() string { return filepath.Join(filepath.Dir(c.runDir), "network") }

// networked gives ct the filtered network that req asks for. It needs c.guarding,
// not c.mu.
func (c *Coordinator) networked(ctx context.Context, ct *container, req *wire.PrepareRequest) (*wire.NetworkPlan, error) {
	c.mu.Lock()
	var others []string
	for id, o := range c.containers {
		if id != ct.id && o.networked {
			others = append(others, id)
		}
	}
	old := c.net
	c.mu.Unlock()
	slices.Sort(others)
	if old != nil && !old.Matches(*req.Network) {
		if len(others) > 0 {
			return nil, refused("the network of profile %q has changed since container %.12s was made: end it first, or change the live one by lazaret net", c.spec.Domain.Profile, others[0])
		}
		if err := c.dropNetwork(ctx); err != nil {
			return nil, refused("network: %w", err)
		}
		old = nil
	}
	if old == nil {
		n, err := c.newNetwork(ctx, *req.Network)
		if err != nil {
			return nil, refused(`network: %w; lazaret doctor tells what this machine lacks, and network.mode = "none" or "open" in the profile does without`, err)
		}
		c.mu.Lock()
		c.net, old = n, n
		c.mu.Unlock()
	}
	var p wire.NetworkPlan
	var err error
	if req.Network.Late {
		p, err = old.Reserve(ct.id)
	} else {
		p, err = old.Join(ctx, ct.id, *req.Network)
	}
	if err != nil {
		return nil, refused("network: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ct.networked = true
	if c.containers[ct.id] != ct { // gone meanwhile
		old.Leave(ct.id)
	}
	return &p, nil
}

func (c *Coordinator) newNetwork(ctx context.Context, req wire.Network) (*domainNetwork, error) {
	router, err := layout.Helper("lazaret-netrouter")
	if err != nil {
		return nil, err
	}
	g := newEgress(c.store.AppendEgress, time.Now)
	n, err := network.Start(ctx, network.Options{
		Dir: c.networkDir(), Hash: c.spec.Domain.Hash, Router: router, Request: req, Log: c.log,
		Event: g.event, Lost: g.lose, Changed: func(up bool, why string) {
			verdict := "down"
			if up {
				verdict = "up"
			}
			c.record(audit.Event{Kind: audit.GuardChanged, Verdict: verdict}, facts{"guard": "network", "reason": why})
		},
	})
	if err != nil {
		return nil, err
	}
	return &domainNetwork{n, g}, nil
}

// dropNetwork ends the network. It needs c.guarding, not c.mu.
func (c *Coordinator) dropNetwork(ctx context.Context) error {
	c.mu.Lock()
	n := c.net
	c.net = nil
	c.mu.Unlock()
	if n == nil {
		return nil
	}
	err := n.Close(ctx)
	_ = n.decisions.Close() // never fails
	return err
}

// connect replaces the network that an engine has brought since the container was
// created.
func (c *Coordinator) connect(ctx context.Context, req *wire.ConnectRequest) error {
	c.mu.Lock()
	ct, n := c.containers[req.ContainerID], c.net
	var pid int
	if ct != nil && ct.attached {
		pid = ct.proc.PID
	}
	c.mu.Unlock()
	if pid == 0 || n == nil {
		return &wire.Error{Code: wire.CodeUnknown, Message: "container " + req.ContainerID + " has no filtered network here: remove it and create it again"}
	}
	if err := n.Connect(ctx, req.ContainerID, pid); err != nil {
		return refused("network: %w", err)
	}
	return nil
}

func (c *Coordinator) networkStatus() *wire.NetworkStatus {
	if c.net == nil {
		return nil
	}
	return c.net.Status()
}

// networkRoutes are those of the control protocol.
func (c *Coordinator) networkRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+wire.PathConnect, func(w http.ResponseWriter, r *http.Request) {
		var req wire.ConnectRequest
		err := decode(r, &req, &req.Version)
		if err == nil {
			err = c.connect(r.Context(), &req)
		}
		c.answer(w, wire.Empty{}, err)
	})
	mux.HandleFunc("POST "+wire.PathNetwork, func(w http.ResponseWriter, r *http.Request) {
		var req wire.NetworkRequest
		var res wire.NetworkResponse
		err := decode(r, &req, &req.Version)
		if err == nil {
			res.Cut, err = c.changeNetwork(r.Context(), &req, peerPID(r))
		}
		c.answer(w, res, err)
	})
}

func (c *Coordinator) changeNetwork(ctx context.Context, req *wire.NetworkRequest, pid int) (int, error) {
	c.mu.Lock()
	n := c.net
	c.mu.Unlock()
	if n == nil {
		return 0, &wire.Error{Code: wire.CodeUnknown, Message: "no container with a filtered network runs in domain " + c.spec.Domain.Hash}
	}
	cut, err := n.Change(ctx, req.Add, req.Remove)
	if err != nil {
		return 0, &wire.Error{Code: wire.CodeBadRequest, Message: err.Error()}
	}
	for word, entries := range map[string][]wire.NetworkChange{"add": req.Add, "remove": req.Remove} {
		for _, ch := range entries {
			verdict := "allow"
			if ch.Deny {
				verdict = "deny"
			}
			if word == "remove" {
				verdict = "withdraw-" + verdict
			}
			c.record(audit.Event{Kind: audit.NetworkChanged, Verdict: verdict}, facts{"entry": ch.Entry, "cut": cut, "pid": pid})
		}
	}
	c.log.Info("network changed", "added", req.Add, "removed", req.Remove, "cut", cut)
	return cut, nil
}

// checkNetwork refuses a request that the network cannot be made by.
func checkNetwork(req *wire.PrepareRequest) error {
	if req.Network == nil {
		return nil
	}
	if n := req.Network; !filepath.IsAbs(n.Sidecar) || n.Engine != "" && !filepath.IsAbs(n.Engine) {
		return &wire.Error{Code: wire.CodeBadRequest, Message: "network: the sidecar's program, or the engine's namespace, is not an absolute path"}
	}
	return nil
}
