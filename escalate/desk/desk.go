// Package desk owns a host process's end of a desk's connection: it takes in the
// requests of one domain, lets those pass that the developer's rules cover,
// offers the others to a person, and runs what is approved.
package desk

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lazaret-dev/lazaret/escalate/hostrun"
	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// callTimeout bounds the opening of a desk, and each line that is sent.
const callTimeout = 10 * time.Second

// maxAsks bounds the requests that a desk knows of at one time. A coordinator
// bounds them per session; more than that is no coordinator of ours.
const maxAsks = 4096

// ErrClosed means that the connection has ended: with Close, or because the
// coordinator has ended.
var ErrClosed = errors.New("the coordinator has closed the desk")

// Options say which desk to open.
type Options struct {
	Socket    string // the domain's control socket
	Kind      string // wire.DeskRun, DeskConsole or DeskHeadless
	SessionID string // of kind wire.DeskRun
	// Host is asked for each request anew: what is on PATH, and which domains there
	// are, changes.
	Host   func() *policy.Host
	Runner hostrun.Runner
	// Limit is how long a command may run; 0 is an hour. The request's deadline is
	// for its answer only.
	Limit time.Duration
}

// Types of an Event, in the order in which a request has them. A person is asked
// only at Asked; a request that the rules cover begins with Started.
const (
	Asked    = "asked"    // a person must answer: Approve or Deny
	Started  = "started"  // it runs
	Finished = "finished" // it ran: Result
	Gone     = "gone"     // nobody waits any more, or another desk has answered: Why
)

// Event is what happens to a request. All texts in Ask and View are the agent's.
type Event struct {
	Type   string
	ID     string // the request's
	Ask    *wire.Ask
	View   *policy.View    // of what is asked, or runs
	Auto   bool            // Started and Finished: by rule or memory, no person was asked
	Result *hostrun.Result // Finished
	Why    string          // Gone
}

// Desk is an open desk. It must be closed.
type Desk struct {
	o    Options
	conn *wire.Conn
	ctx  context.Context // ends the commands
	stop context.CancelFunc
	read sync.WaitGroup // the reader
	runs sync.WaitGroup // the commands

	send sync.Mutex // held for one line

	mu     sync.Mutex
	asks   map[string]*request
	events []Event
	err    error         // why there are no more
	more   chan struct{} // holds one when events or err have changed
}

// request is one that is not finished.
type request struct {
	ask      *wire.Ask
	view     *policy.View // what was approved, else what was asked
	approved bool
	auto     bool
	running  context.CancelFunc // nil until it runs
}

// Open opens a desk at a coordinator.
func Open(o Options) (*Desk, error) {
	conn, err := wire.Dial(o.Socket, callTimeout)
	if err != nil {
		return nil, err
	}
	req := wire.DeskRequest{Version: wire.Version, Kind: o.Kind, SessionID: o.SessionID}
	if err := conn.Call(wire.PathDesk, req, &wire.Empty{}, callTimeout); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	d := &Desk{o: o, conn: conn, ctx: ctx, stop: stop, asks: map[string]*request{}, more: make(chan struct{}, 1)}
	d.read.Go(d.receive)
	return d, nil
}

// Close ends the desk and every command that runs at it; it returns when they
// have ended.
func (d *Desk) Close() error {
	err := d.conn.Close()
	d.stop()
	d.read.Wait()
	d.runs.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // the coordinator was first
	}
	return err
}

// Next waits for an event. After the last one it returns an error: of ctx, or
// one that is ErrClosed.
func (d *Desk) Next(ctx context.Context) (Event, error) {
	for {
		d.mu.Lock()
		if len(d.events) > 0 {
			e := d.events[0]
			d.events = d.events[1:]
			d.mu.Unlock()
			return e, nil
		}
		err := d.err
		d.mu.Unlock()
		if err != nil {
			return Event{}, err
		}
		select {
		case <-ctx.Done():
			return Event{}, ctx.Err()
		case <-d.more:
		}
	}
}

// View tells what command would do in place of the request's own.
func (d *Desk) View(ask *wire.Ask, command string) *policy.View {
	return policy.Evaluate(d.o.Host(), ask, command)
}

// Approve lets v run for the request: a person has seen exactly v. remember
// allows this command for the rest of the session. A request that is gone or has
// been answered is no error; its event tells.
func (d *Desk) Approve(id string, v *policy.View, remember bool) error {
	return d.approve(id, v, false, remember)
}

func (d *Desk) approve(id string, v *policy.View, auto, remember bool) error {
	if v.Err != nil {
		return fmt.Errorf("the command cannot run: %w", v.Err)
	}
	d.mu.Lock()
	r := d.asks[id]
	if r == nil || r.approved {
		d.mu.Unlock()
		return nil
	}
	r.view, r.auto, r.approved = v, auto, true
	d.mu.Unlock()
	return d.reply(wire.DeskReply{Type: wire.ReplyApprove, ID: id, Command: v.Command, Auto: auto, Remember: remember})
}

// Deny refuses a request, with a reason for the agent or "".
func (d *Desk) Deny(id, reason string) error {
	d.mu.Lock()
	r := d.asks[id]
	if r == nil || r.approved {
		d.mu.Unlock()
		return nil
	}
	delete(d.asks, id)
	d.mu.Unlock()
	return d.reply(wire.DeskReply{Type: wire.ReplyDeny, ID: id, Reason: reason})
}

func (d *Desk) reply(r wire.DeskReply) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("answer the request: %w", err)
	}
	d.send.Lock()
	defer d.send.Unlock()
	return d.conn.Write(append(line, '\n'), callTimeout)
}

func (d *Desk) emit(e Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
	d.wake()
}

// wake is called with mu held.
func (d *Desk) wake() {
	select {
	case d.more <- struct{}{}:
	default:
	}
}

// receive takes lines in until the connection ends.
func (d *Desk) receive() {
	err := d.lines()
	d.stop()           // nobody would hear the results
	_ = d.conn.Close() // a coordinator that is not understood must not wait for this desk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = ErrClosed
	if err != nil && !errors.Is(err, io.EOF) {
		d.err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	d.wake()
}

func (d *Desk) lines() error {
	sc := bufio.NewScanner(d.conn)
	sc.Buffer(nil, wire.MaxLine)
	for sc.Scan() {
		var e wire.DeskEvent
		if err := json.NewDecoder(bytes.NewReader(sc.Bytes())).Decode(&e); err != nil {
			return fmt.Errorf("the coordinator's line is not understood: %w", err)
		}
		if err := d.handle(&e); err != nil {
			return err
		}
	}
	return sc.Err()
}

func (d *Desk) handle(e *wire.DeskEvent) error {
	switch e.Type {
	case wire.EventAsk:
		if e.Ask == nil || e.Ask.ID == "" {
			return errors.New("the coordinator asks without a request")
		}
		return d.asked(e.Ask)
	case wire.EventGo:
		return d.start(e.ID)
	case wire.EventGone:
		d.gone(e.ID, e.Why)
	}
	return nil // a newer coordinator's
}

func (d *Desk) asked(ask *wire.Ask) error {
	v := d.View(ask, ask.Command)
	d.mu.Lock()
	if d.asks[ask.ID] != nil || len(d.asks) >= maxAsks {
		d.mu.Unlock()
		return fmt.Errorf("the coordinator sends request %.64q twice, or more than %d", ask.ID, maxAsks)
	}
	d.asks[ask.ID] = &request{ask: ask, view: v}
	d.mu.Unlock()
	if v.Err == nil && (v.Automatic || ask.Remembered) {
		return d.approve(ask.ID, v, true, false)
	}
	d.emit(Event{Type: Asked, ID: ask.ID, Ask: ask, View: v})
	return nil
}

// start runs what has been approved.
func (d *Desk) start(id string) error {
	d.mu.Lock()
	r := d.asks[id]
	if r == nil || !r.approved || r.running != nil {
		d.mu.Unlock()
		return fmt.Errorf("the coordinator starts request %.64q, which nobody here has approved", id)
	}
	ctx, cancel := context.WithTimeout(d.ctx, cmp.Or(d.o.Limit, time.Hour))
	r.running = cancel
	d.mu.Unlock()
	d.emit(Event{Type: Started, ID: id, Ask: r.ask, View: r.view, Auto: r.auto})
	d.runs.Go(func() {
		defer cancel()
		res := d.o.Runner.Run(ctx, r.ask, r.view)
		d.mu.Lock()
		_, waits := d.asks[id]
		delete(d.asks, id)
		d.mu.Unlock()
		if !waits {
			return // gone: told already
		}
		reply := wire.DeskReply{Type: wire.ReplyResult, ID: id, ExitCode: res.ExitCode, Stdout: res.Stdout, Stderr: res.Stderr}
		if res.Err != nil {
			reply.Failed, reply.Reason = true, res.Err.Error()
		}
		if err := d.reply(reply); err != nil {
			res.Err = errors.Join(res.Err, err)
		}
		d.emit(Event{Type: Finished, ID: id, Ask: r.ask, View: r.view, Auto: r.auto, Result: &res})
	})
	return nil
}

func (d *Desk) gone(id, why string) {
	d.mu.Lock()
	r := d.asks[id]
	delete(d.asks, id)
	if r != nil && r.running != nil {
		r.running()
	}
	d.mu.Unlock()
	if r != nil {
		d.emit(Event{Type: Gone, ID: id, Ask: r.ask, View: r.view, Auto: r.auto, Why: why})
	}
}
