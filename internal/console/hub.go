// Package console owns lazaret console: the desks of all live domains in one
// place, before a person on a full screen, or without one for what the rules
// cover.
package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lazaret-dev/lazaret/escalate/desk"
	"github.com/lazaret-dev/lazaret/escalate/hostrun"
	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

const (
	// scanTime is how often domains that have come are looked for.
	scanTime = 500 * time.Millisecond
	// retryTime is how long a coordinator is left alone that has refused a desk.
	retryTime = 5 * time.Second
	// statusTime is how often a domain is asked for its status, and statusWait how
	// long it may take to answer.
	statusTime = 2 * time.Second
	statusWait = 3 * time.Second
	// allowWait bounds a change of a live network.
	allowWait = 15 * time.Second
)

// Options say where a Hub looks and what runs commands.
type Options struct {
	ControlDir string
	Kind       string // wire.DeskConsole or wire.DeskHeadless
	Host       func() *policy.Host
	Runner     hostrun.Runner
}

// Key names a request among all domains: ids are the sandboxes' to choose.
type Key struct{ Socket, ID string }

// Update is something that has changed.
type Update struct {
	Event   *desk.Event // nil where only what follows has changed
	Key     Key         // the event's
	Socket  string      // a domain that has come or gone, or whose desk is refused
	Open    bool        // its desk is open
	Problem string      // why it is not, though somebody is there; for people
	Guard   *Guard      // nil where it has not changed
	Net     *Net        // likewise
}

// Guard is what has become of a domain's guard.
type Guard struct {
	Dead bool // it ended under living sandboxes
	Cut  bool // it has no .git any more
	Of   domain.Anchor
}

// Warning says in a few words of ours what is wrong with the guard, or "".
func (g *Guard) Warning() string {
	switch {
	case g.Dead:
		return "guard dead, end its sandboxes"
	case g.Cut:
		return "cut off from git"
	}
	return ""
}

// Hub keeps a desk open at each live domain.
type Hub struct {
	o       Options
	updates chan Update

	mu    sync.Mutex
	desks map[string]*desk.Desk // by socket; nil while one opens or ends
}

// NewHub makes a hub; Run makes it work.
func NewHub(o Options) *Hub {
	return &Hub{o: o, updates: make(chan Update), desks: map[string]*desk.Desk{}}
}

// Updates is closed when Run has returned.
func (h *Hub) Updates() <-chan Update { return h.updates }

// Run follows domains that come and go until ctx ends, and ends then what runs.
// An error tells that control_dir cannot be read.
func (h *Hub) Run(ctx context.Context) error {
	defer close(h.updates)
	var followers sync.WaitGroup
	defer followers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(scanTime)
	defer tick.Stop()
	for {
		sockets, err := wire.Sockets(h.o.ControlDir)
		if err != nil {
			return err
		}
		for _, s := range sockets {
			if h.take(s) { // each on its own: one may not answer
				followers.Go(func() { h.follow(ctx, s) })
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// take reports whether nobody follows the socket yet; the caller does then.
func (h *Hub) take(socket string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, taken := h.desks[socket]
	if !taken {
		h.desks[socket] = nil
	}
	return !taken
}

func (h *Hub) set(socket string, d *desk.Desk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.desks[socket] = d
}

// follow opens a desk and passes its events on until it ends.
func (h *Hub) follow(ctx context.Context, socket string) {
	defer func() {
		h.mu.Lock()
		delete(h.desks, socket)
		h.mu.Unlock()
	}()
	d, err := h.open(ctx, socket)
	if errors.Is(err, wire.ErrNoCoordinator) || wire.Cut(err) {
		return // killed, starting, or ending
	}
	if err != nil {
		h.send(ctx, Update{Socket: socket, Problem: err.Error()})
		select {
		case <-ctx.Done():
		case <-time.After(retryTime):
		}
		return
	}
	h.set(socket, d)
	h.send(ctx, Update{Socket: socket, Open: true})
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { h.watchStatus(watching, socket) })
	for {
		e, err := d.Next(ctx)
		if err != nil {
			break
		}
		h.send(ctx, Update{Event: &e, Key: Key{socket, e.ID}, Socket: socket, Open: true})
	}
	stop()
	watch.Wait()
	h.set(socket, nil)
	_ = d.Close() // what ran has ended; there is no more to say
	h.send(ctx, Update{Socket: socket})
}

// watchStatus tells what becomes of the domain's guard and what its network
// refuses, until ctx ends.
func (h *Hub) watchStatus(ctx context.Context, socket string) {
	var last Guard
	var refused []Refused
	tick := time.NewTicker(statusTime)
	defer tick.Stop()
	for {
		status := make(chan *wire.Status, 1)
		go func() { status <- askStatus(socket) }()
		select {
		case <-ctx.Done():
			return
		case st := <-status:
			if st == nil {
				break // its desk's end tells
			}
			g := Guard{Of: st.Domain, Dead: st.Guard.State == wire.GuardDead, Cut: st.Guard.Cut}
			if g.Warning() != last.Warning() {
				h.send(ctx, Update{Socket: socket, Open: true, Guard: &g})
			}
			last = g
			if n := netOf(st); !slices.Equal(n.Refused, refused) {
				h.send(ctx, Update{Socket: socket, Open: true, Net: &n})
				refused = n.Refused
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// askStatus is nil where nobody answers.
func askStatus(socket string) *wire.Status {
	conn, err := wire.Dial(socket, statusWait)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }() // only read
	var st wire.Status
	if err := conn.Call(wire.PathStatus, nil, &st, statusWait); err != nil {
		return nil
	}
	return &st
}

// open does not wait past ctx for a coordinator that does not answer.
func (h *Hub) open(ctx context.Context, socket string) (*desk.Desk, error) {
	type opened struct {
		d   *desk.Desk
		err error
	}
	ch := make(chan opened, 1)
	go func() {
		d, err := desk.Open(desk.Options{Socket: socket, Kind: h.o.Kind, Host: h.o.Host, Runner: h.o.Runner})
		ch <- opened{d, err}
	}()
	select {
	case o := <-ch:
		return o.d, o.err
	case <-ctx.Done():
		go func() {
			if o := <-ch; o.err == nil {
				_ = o.d.Close() // too late
			}
		}()
		return nil, ctx.Err()
	}
}

func (h *Hub) send(ctx context.Context, u Update) {
	select {
	case h.updates <- u:
	case <-ctx.Done():
	}
}

func (h *Hub) desk(socket string) *desk.Desk {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.desks[socket]
}

// errLeft tells of a domain that is there no more.
var errLeft = errors.New("its domain is not in use any more")

// Approve lets v, which a person has seen, run for a request.
func (h *Hub) Approve(k Key, v *policy.View, remember bool) error {
	d := h.desk(k.Socket)
	if d == nil {
		return fmt.Errorf("approve the request: %w", errLeft)
	}
	return d.Approve(k.ID, v, remember)
}

// Deny refuses a request, with a reason for the agent or "".
func (h *Hub) Deny(k Key, reason string) error {
	d := h.desk(k.Socket)
	if d == nil {
		return fmt.Errorf("deny the request: %w", errLeft)
	}
	return d.Deny(k.ID, reason)
}

// Allow lets a domain's sandboxes reach something until it is no longer in use.
func (h *Hub) Allow(socket, entry string) error {
	conn, err := wire.Dial(socket, statusWait)
	if err != nil {
		return fmt.Errorf("allow %s: %w", entry, errLeft)
	}
	defer func() { _ = conn.Close() }() // answered
	req := wire.NetworkRequest{Version: wire.Version, Add: []wire.NetworkChange{{Entry: entry}}}
	return conn.Call(wire.PathNetwork, req, &wire.NetworkResponse{}, allowWait)
}

// View tells what command would do in place of the request's.
func (h *Hub) View(ask *wire.Ask, command string) *policy.View {
	return policy.Evaluate(h.o.Host(), ask, command)
}
