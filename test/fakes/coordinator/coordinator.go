// Package coordinator owns a stand-in for a Session Coordinator that serves
// desks: it speaks the wire protocol, passes asks on, and answers approvals as
// the real one does.
package coordinator

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// Coordinator serves one domain.
type Coordinator struct {
	Domain domain.Anchor
	Socket string
	// Hold keeps approvals unanswered: Send answers them.
	Hold bool

	t       *testing.T
	srv     *http.Server
	mu      sync.Mutex
	desks   map[net.Conn]wire.DeskRequest
	waiting []wire.Ask
	guard   wire.Guard
	replies chan wire.DeskReply
}

// Start serves a domain's control socket in dir until the test ends.
func Start(t *testing.T, dir string, anchor domain.Anchor) *Coordinator {
	t.Helper()
	c := &Coordinator{
		Domain: anchor, Socket: anchor.SocketPath(dir), t: t,
		desks: map[net.Conn]wire.DeskRequest{}, replies: make(chan wire.DeskReply, 100),
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+wire.PathDesk, c.serveDesk)
	mux.HandleFunc("GET "+wire.PathStatus, func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = json.NewEncoder(w).Encode(wire.Status{Version: wire.Version, Domain: c.Domain, Guard: c.guard})
	})
	c.srv = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = c.srv.Serve(l) }()
	t.Cleanup(c.Stop)
	return c
}

// SetGuard has its status tell of a guard.
func (c *Coordinator) SetGuard(g wire.Guard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guard = g
}

// Anchor is one of a domain whose workspace is a directory below dir.
func Anchor(dir, profile, workspace string) domain.Anchor {
	return domain.New(profile, workspace, filepath.Join(dir, "data"))
}

// Stop ends it as a coordinator that goes away.
func (c *Coordinator) Stop() {
	_ = c.srv.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.desks {
		_ = conn.Close()
		delete(c.desks, conn)
	}
}

func (c *Coordinator) serveDesk(w http.ResponseWriter, r *http.Request) {
	var req wire.DeskRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Version != wire.Version {
		http.Error(w, `{"code":"bad_request","message":"bad desk"}`, http.StatusBadRequest)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	c.mu.Lock()
	// In one write with the first line, as a real one could.
	out := "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	for i := range c.waiting {
		line, _ := json.Marshal(wire.DeskEvent{Type: wire.EventAsk, Ask: &c.waiting[i]})
		out += string(line) + "\n"
	}
	_, err = conn.Write([]byte(out))
	c.desks[conn] = req
	c.mu.Unlock()
	for sc := bufio.NewScanner(rw); err == nil && sc.Scan(); {
		var reply wire.DeskReply
		if err := json.Unmarshal(sc.Bytes(), &reply); err != nil {
			c.t.Errorf("a desk's line is not understood: %v", err)
			return
		}
		c.forget(reply.ID)
		c.replies <- reply
		if reply.Type == wire.ReplyApprove && !c.Hold {
			c.Send(wire.DeskEvent{Type: wire.EventGo, ID: reply.ID})
		}
	}
	c.mu.Lock()
	delete(c.desks, conn)
	c.mu.Unlock()
}

func (c *Coordinator) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, a := range c.waiting {
		if a.ID == id {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return
		}
	}
}

// Ask puts a request to all desks, also those that open later. What it leaves
// empty is filled in.
func (c *Coordinator) Ask(ask *wire.Ask) {
	a := *ask
	a.Domain = c.Domain
	if a.Sandbox == "" {
		a.Sandbox = fmt.Sprintf("%064x", 0xabc)
	}
	if a.Session == "" {
		a.Session = "5e551011-0000-4000-8000-000000000001"
	}
	if a.Kind == "" {
		a.Kind = "exec"
	}
	if a.Received.IsZero() {
		a.Received = time.Now()
	}
	if a.Deadline.IsZero() {
		a.Deadline = time.Now().Add(5 * time.Minute)
	}
	if a.Waiting == 0 {
		a.Waiting = 1
	}
	// A desk that opens meanwhile must hear of it once.
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, a)
	c.send(wire.DeskEvent{Type: wire.EventAsk, Ask: &a})
}

// Send sends a line to all desks.
func (c *Coordinator) Send(e wire.DeskEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send(e)
}

func (c *Coordinator) send(e wire.DeskEvent) {
	line, err := json.Marshal(e)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.sendRaw(string(line) + "\n")
}

// SendRaw sends bytes to all desks.
func (c *Coordinator) SendRaw(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendRaw(s)
}

func (c *Coordinator) sendRaw(s string) {
	for conn := range c.desks {
		_, _ = conn.Write([]byte(s)) // one that has gone
	}
}

// Desks are the open ones.
func (c *Coordinator) Desks() []wire.DeskRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []wire.DeskRequest
	for _, r := range c.desks {
		out = append(out, r)
	}
	return out
}

// Reply waits for a desk's next line.
func (c *Coordinator) Reply() wire.DeskReply {
	c.t.Helper()
	select {
	case r := <-c.replies:
		return r
	case <-time.After(time.Minute):
		c.t.Fatal("no reply from a desk within a minute")
		return wire.DeskReply{}
	}
}

// Silent fails the test when a desk has sent a line.
func (c *Coordinator) Silent() {
	c.t.Helper()
	select {
	case r := <-c.replies:
		c.t.Errorf("a desk sent %+v", r)
	default:
	}
}
