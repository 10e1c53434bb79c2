package broker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/sessionkey"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

const (
	// deskQueue is how many events wait for a desk that does not read; one more
	// ends it.
	deskQueue = 4 * maxAllPending
	deskWrite = 10 * time.Second
)

// Conn is a desk's connection.
type Conn interface {
	io.ReadWriteCloser
	SetWriteDeadline(time.Time) error
}

// desk is one connection. Its fields are guarded by the broker's mu, but conn.
type desk struct {
	kind, session string
	pid           int
	conn          Conn
	shown         map[string]bool // requests that it has
	out           chan wire.DeskEvent
	gone          bool
}

// serves reports whether a desk may answer for s.
func (d *desk) serves(s *session) bool {
	if d.kind == wire.DeskRun {
		return d.session == s.ID
	}
	return !s.Owned
}

// CheckDesk refuses what is no desk.
func CheckDesk(req *wire.DeskRequest) error {
	ok := req.Kind == wire.DeskConsole || req.Kind == wire.DeskHeadless
	if req.Kind == wire.DeskRun {
		ok = sessionkey.ValidID(req.SessionID)
	} else if req.SessionID != "" {
		ok = false
	}
	if !ok {
		return refuse(wire.CodeBadRequest, "kind must be run with a session_id, or console or headless without one")
	}
	return nil
}

func (b *Broker) open(conn Conn, req *wire.DeskRequest, pid int) (*desk, error) {
	if err := CheckDesk(req); err != nil {
		return nil, err
	}
	d := &desk{
		kind: req.Kind, session: req.SessionID, pid: pid, conn: conn,
		shown: map[string]bool{}, out: make(chan wire.DeskEvent, deskQueue),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.desks) >= maxDesks {
		return nil, refuse(wire.CodeClosing, "the coordinator is closing, or has %d desks already", maxDesks)
	}
	b.desks[d] = struct{}{}
	go d.write()
	if d.kind == wire.DeskRun {
		b.owned[d.session]++
		if s := b.sessions[d.session]; s != nil {
			s.Owned = true // and stays so: nobody else is asked once a terminal was there
		}
	}
	var all []*Request
	for _, r := range b.requests {
		if r.phase == waiting && d.serves(r.ses) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(x, y *Request) int { return x.ask.Received.Compare(y.ask.Received) })
	for _, r := range all {
		b.show(d, r)
	}
	return d, nil
}

// show puts a request before a desk. It needs b.mu.
func (b *Broker) show(d *desk, r *Request) {
	ask := r.ask
	ask.Waiting, ask.Dropped = r.ses.pending, r.ses.dropped
	_, ask.Remembered = r.ses.remembered[memory(ask.Command, ask.CWD)]
	d.shown[ask.ID] = true
	b.note(b.event(r, audit.EscalationShown, "", shown{ask.ID, d.kind, d.pid}))
	d.send(wire.DeskEvent{Type: wire.EventAsk, Ask: &ask})
	if d.kind != wire.DeskHeadless {
		r.tell(escalate.NewsAsked)
	}
}

func (b *Broker) leave(d *desk) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.desks, d)
	if d.kind == wire.DeskRun {
		if b.owned[d.session]--; b.owned[d.session] == 0 {
			delete(b.owned, d.session)
		}
	}
	for _, r := range b.requests {
		switch {
		case r.desk == d && r.phase == running:
			b.finish(r, b.failed(r, "the desk that ran the command went away: it may have run in part"), "")
		case r.desk == d && r.phase == recording:
			b.finish(r, b.failed(r, "the desk that approved went away; nothing was run"), "")
		case r.phase == waiting && d.shown[r.ask.ID] && !b.attended(r):
			r.tell(nobody(r.ses))
		}
	}
	d.drop()
	close(d.out)
	d.out = nil
}

// attended reports whether a person's desk is there for r. It needs b.mu.
func (b *Broker) attended(r *Request) bool {
	for d := range b.desks {
		if d.kind != wire.DeskHeadless && d.serves(r.ses) {
			return true
		}
	}
	return false
}

// reply acts upon a line of a desk.
func (b *Broker) reply(d *desk, reply *wire.DeskReply) error {
	if len(reply.Command) > escalate.MaxCommand || len(reply.Reason) > escalate.MaxJustification {
		return fmt.Errorf("reply to %.64q has too long a command or reason", reply.ID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.requests[reply.ID]
	if r != nil && !d.shown[reply.ID] {
		r = nil // another desk's
	}
	switch reply.Type {
	case wire.ReplyApprove:
		if r == nil || r.phase != waiting {
			d.send(wire.DeskEvent{Type: wire.EventGone, ID: reply.ID, Why: "nobody waits for the answer any more"})
			return nil
		}
		b.approve(d, r, reply)
	case wire.ReplyDeny:
		if r != nil && r.phase == waiting {
			b.deny(d, r, reply)
		}
	case wire.ReplyResult:
		if r != nil && r.phase == running && r.desk == d {
			b.result(d, r, reply)
		}
	default:
		return fmt.Errorf("reply of unknown type %.64q", reply.Type)
	}
	return nil
}

// send queues an event. It needs the broker's mu.
func (d *desk) send(e wire.DeskEvent) {
	if d.gone || d.out == nil {
		return
	}
	select {
	case d.out <- e:
	default:
		d.drop() // it does not read
	}
}

// drop ends the connection; the reader sees that.
func (d *desk) drop() { _ = d.conn.Close() }

func (d *desk) write() {
	for e := range d.out {
		data, err := json.Marshal(e)
		if err == nil {
			_ = d.conn.SetWriteDeadline(time.Now().Add(deskWrite)) // unix sockets take deadlines
			_, err = d.conn.Write(append(data, '\n'))
		}
		if err != nil {
			d.drop()
		}
	}
}

// read calls f with each line until the connection ends or f fails.
func (d *desk) read(f func(*wire.DeskReply) error) error {
	in := bufio.NewReaderSize(d.conn, 16<<10)
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read from a desk: %w", err)
		}
		var reply wire.DeskReply
		if err := wire.Decode(line, &reply); err != nil {
			return fmt.Errorf("line of a desk: %w", err)
		}
		if err := f(&reply); err != nil {
			return err
		}
	}
}

// readLine reads a line of MaxLine bytes at most, without its end.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > wire.MaxLine:
			return nil, fmt.Errorf("line is longer than %d bytes", wire.MaxLine)
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// Desks lists the desks that are open.
func (b *Broker) Desks() []wire.DeskStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []wire.DeskStatus{}
	for d := range b.desks {
		all = append(all, wire.DeskStatus{Kind: d.kind, Session: d.session})
	}
	slices.SortFunc(all, func(x, y wire.DeskStatus) int {
		return strings.Compare(x.Kind+" "+x.Session, y.Kind+" "+y.Session)
	})
	return all
}
