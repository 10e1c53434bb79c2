// Package broker owns the escalation requests of one domain between their arrival
// and their answer: which session may ask, which desk is asked, who answers first,
// and that nothing is told to run before it is recorded.
package broker

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/sessionkey"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

// Bounds.
const (
	maxPending    = 16      // requests of one session that are not answered
	maxAllPending = 128     // of all sessions
	maxSeen       = 1 << 15 // request ids that one session may use
	maxRemembered = 256     // commands that are allowed for one session
	maxEnded      = 1024    // sessions whose end is remembered
	maxDesks      = 64
	burst         = 256 // requests of one session at once, and in a second
	// maxRecorded bounds what one session may have recorded of its requests, in bytes.
	maxRecorded = 64 << 20
)

// Codes of Submit's errors beside those of package wire.
const (
	CodeUnknownSession = "unknown_session"
	CodeLostSession    = "lost_session"
	CodeEndedSession   = "ended_session"
	CodeForeignSession = "foreign_session"
	CodeBadSignature   = "bad_signature"
	CodeReplayed       = "replayed"
	CodeTooMany        = "too_many"
)

// Options configure a Broker.
type Options struct {
	Domain domain.Anchor
	Log    *slog.Logger
	// Record keeps an event for good before done is called, with nil, or with why it
	// could not. It does not block, and calls done later. Without done nobody waits.
	Record func(e audit.Event, done func(error))
	// Later is Record for one that may be kept together with the next.
	Later func(e audit.Event, done func(error))
	// Busy reports whether the disk is behind with the records.
	Busy func() bool
	// Alert tells that a request waits, and no person's desk is there that could
	// answer it. It does not block; nil for none.
	Alert func()
	Now   func() time.Time // nil for the machine's clock
}

// Session is a Client Session that may ask.
type Session struct {
	ID      string
	Kind    string // "run" or "exec"
	Sandbox string // container id
	Key     ed25519.PublicKey
	Owned   bool // only its terminal answers
}

// Rules hold for the requests of one sandbox.
type Rules struct {
	AutoApprove [][]string
	Timeout     time.Duration
}

type session struct {
	Session
	rules      Rules
	pending    int
	dropped    int // refused as too many since the last answer
	recorded   int // bytes of what it has asked
	seen       map[uuid.UUID]struct{}
	remembered map[string]struct{}
	tokens     float64
	filled     time.Time
}

// State of a request.
type phase int

const (
	waiting   phase = iota // for an answer
	recording              // approved; being written down
	running                // told to go
	over
)

// Request is one that was taken. Done has its answer; News, what to tell the
// client meanwhile.
type Request struct {
	Done <-chan *escalate.Response
	News <-chan string

	ses   *session
	req   *escalate.Request
	ask   wire.Ask
	done  chan *escalate.Response
	news  chan string
	timer *time.Timer
	phase phase
	desk  *desk // of recording and running
}

// Broker serves one domain. Its methods may be called at the same time.
type Broker struct {
	opts Options

	// mu guards the fields below.
	mu       sync.Mutex
	sessions map[string]*session
	adopted  map[string]bool   // sandboxes of a coordinator that was killed
	ended    map[string]string // session id to the sandbox it was of
	order    []string          // of ended, oldest first
	requests map[string]*Request
	desks    map[*desk]struct{}
	owned    map[string]int // sessions that a terminal has opened a desk for
	refused  map[refusalKey]*refusals
	closed   bool
}

// New makes a broker without sessions.
func New(o Options) *Broker {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Broker{
		opts: o, sessions: map[string]*session{}, adopted: map[string]bool{}, ended: map[string]string{}, requests: map[string]*Request{},
		desks: map[*desk]struct{}{}, owned: map[string]int{}, refused: map[refusalKey]*refusals{},
	}
}

func refuse(code, format string, args ...any) error {
	return &wire.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Begin lets a session ask. One that is known already is refused.
func (b *Broker) Begin(s Session, r Rules) error {
	if !sessionkey.ValidID(s.ID) || len(s.Key) != ed25519.PublicKeySize {
		return refuse(wire.CodeBadRequest, "session %.64q: its id is not a UUID in lower case, or its public key not one of Ed25519", s.ID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, old := b.ended[s.ID]; old || b.sessions[s.ID] != nil {
		return refuse(wire.CodeRefused, "session %s exists already, or has ended", s.ID)
	}
	s.Key = bytes.Clone(s.Key)
	s.Owned = s.Owned || b.owned[s.ID] > 0
	b.sessions[s.ID] = &session{
		Session: s, rules: r, seen: map[uuid.UUID]struct{}{}, remembered: map[string]struct{}{},
		tokens: burst, filled: b.opts.Now(),
	}
	return nil
}

// Adopt tells that a sandbox had another coordinator, whose sessions are not known
// here.
func (b *Broker) Adopt(sandbox string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adopted[sandbox] = true
}

// End ends a session, and what waits in it. An unknown one is no error.
func (b *Broker) End(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[id]; s != nil {
		b.endSession(s)
	}
}

// EndSandbox ends all sessions of a container.
func (b *Broker) EndSandbox(sandbox string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.adopted, sandbox)
	b.endRefusals(sandbox)
	for _, s := range b.sessions {
		if s.Sandbox == sandbox {
			b.endSession(s)
		}
	}
}

func (b *Broker) endSession(s *session) {
	for _, r := range b.requests {
		if r.ses == s {
			b.finish(r, b.failed(r, "the session has ended"), "the session has ended")
		}
	}
	delete(b.sessions, s.ID)
	b.ended[s.ID] = s.Sandbox
	b.order = append(b.order, s.ID)
	if len(b.order) > maxEnded {
		delete(b.ended, b.order[0])
		b.order = slices.Clone(b.order[1:])
	}
}

// Close ends everything.
func (b *Broker) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, s := range b.sessions {
		b.endSession(s)
	}
	b.endRefusals("")
	for d := range b.desks {
		d.drop()
	}
}

// Waiting counts the requests that nobody has answered.
func (b *Broker) Waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if r.phase == waiting {
			n++
		}
	}
	return n
}

// Submit takes a request that came over the socket of sandbox. It checks what the
// request says of itself: the session, its signature, that it is new.
func (b *Broker) Submit(sandbox string, req *escalate.Request) (*Request, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.opts.Now()
	s, err := b.check(sandbox, req)
	if err == nil {
		err = b.admit(s, recordedSize(req.Command, req.Justification, req.CWD), now)
	}
	if err != nil {
		var e *wire.Error
		if errors.As(err, &e) {
			b.countRefusal(sandbox, e.Code, e.Message)
		}
		return nil, err
	}
	cwd := req.CWD
	if cwd == "" {
		cwd = spec.WorkspacePath
	}
	r := &Request{
		ses: s, req: req, done: make(chan *escalate.Response, 1), news: make(chan string, 8),
		ask: wire.Ask{
			ID: req.RequestID, Domain: b.opts.Domain, Sandbox: sandbox, Session: s.ID, Kind: s.Kind,
			Command: req.Command, CWD: cwd, Justification: req.Justification,
			Received: now, Deadline: now.Add(s.rules.Timeout), AutoApprove: s.rules.AutoApprove,
		},
	}
	r.Done, r.News = r.done, r.news
	b.requests[req.RequestID] = r
	s.pending++
	b.opts.Later(b.event(r, audit.EscalationAsked, "", asked{
		r.ask.ID, b.opts.Domain.Profile, s.Kind, r.ask.Command, r.ask.CWD, r.ask.Justification, r.ask.Deadline.UTC(),
	}), func(err error) { b.unrecorded(r, err) })
	r.timer = time.AfterFunc(s.rules.Timeout, func() { b.expire(r) })
	for d := range b.desks {
		if d.serves(s) {
			b.show(d, r)
		}
	}
	if !b.attended(r) {
		r.tell(nobody(s))
		if b.opts.Alert != nil {
			b.opts.Alert()
		}
	}
	return r, nil
}

// Unattended is the oldest request that waits for a console which is not there,
// and how many there are.
func (b *Broker) Unattended() (oldest wire.Ask, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if r.phase != waiting || r.ses.Owned || b.attended(r) {
			continue
		}
		if n++; n == 1 || r.ask.Received.Before(oldest.Received) {
			oldest = r.ask
		}
	}
	return oldest, n
}

func nobody(s *session) string {
	if s.Owned {
		return escalate.NewsAway
	}
	return escalate.NewsNobody
}

// tell never waits: a client that reads nothing hears nothing.
func (r *Request) tell(news string) {
	select {
	case r.news <- news:
	default:
	}
}

// memory is the name of an exact command in a directory.
func memory(command, cwd string) string { return command + "\x00" + cwd }

// check needs b.mu.
func (b *Broker) check(sandbox string, req *escalate.Request) (*session, error) {
	if b.closed {
		return nil, refuse(wire.CodeClosing, "the coordinator is closing")
	}
	s := b.sessions[req.SessionID]
	if s == nil {
		// Of another sandbox's sessions nothing is told.
		if of, ok := b.ended[req.SessionID]; ok && of == sandbox {
			return nil, refuse(CodeEndedSession, "session %s has ended", req.SessionID)
		}
		if b.adopted[sandbox] {
			return nil, refuse(CodeLostSession, "session %s is not known to the new coordinator, as the one before it was killed: start a new exec", req.SessionID)
		}
		return nil, refuse(CodeUnknownSession, "session %s is not known", req.SessionID)
	}
	if s.Sandbox != sandbox {
		return nil, refuse(CodeForeignSession, "session %s is not one of this sandbox", req.SessionID)
	}
	if !req.Verify(s.Key) {
		return nil, refuse(CodeBadSignature, "the signature is not that of session %s over this request", s.ID)
	}
	if req.Profile != b.opts.Domain.Profile {
		return nil, refuse(wire.CodeBadRequest, "profile is not this sandbox's")
	}
	id, err := uuid.Parse(req.RequestID)
	if err != nil {
		return nil, refuse(wire.CodeBadRequest, "request_id %.64q is not a UUID", req.RequestID)
	}
	if _, old := s.seen[id]; old || b.requests[req.RequestID] != nil {
		return nil, refuse(CodeReplayed, "request %s has been made before", req.RequestID)
	}
	if len(s.seen) >= maxSeen {
		return nil, refuse(CodeTooMany, "session %s has made %d requests: start a new one", s.ID, maxSeen)
	}
	s.seen[id] = struct{}{}
	return s, nil
}

// admit bounds how many requests there are, and what is recorded of them: size is
// in bytes. It needs b.mu.
func (b *Broker) admit(s *session, size int, now time.Time) error {
	s.tokens = min(burst, s.tokens+now.Sub(s.filled).Seconds()*burst)
	s.filled = now
	switch {
	case s.tokens < 1:
		s.dropped++
		return refuse(CodeTooMany, "session %s asks too often", s.ID)
	case s.pending >= maxPending:
		s.dropped++
		return refuse(CodeTooMany, "%d requests of session %s wait for an answer already", s.pending, s.ID)
	case len(b.requests) >= maxAllPending:
		s.dropped++
		return refuse(CodeTooMany, "%d requests of this domain wait for an answer already", len(b.requests))
	case b.opts.Busy():
		s.dropped++
		return refuse(CodeTooMany, "the disk does not keep up with what is to be recorded")
	case s.recorded+size > maxRecorded:
		return refuse(CodeTooMany, "what session %s has asked for fills %d MiB of records: start a new one", s.ID, maxRecorded>>20)
	}
	s.tokens--
	s.recorded += size
	return nil
}

// Cancel tells that the client of r is gone.
func (b *Broker) Cancel(r *Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.phase != over {
		b.finish(r, b.failed(r, "the client went away"), "the client went away")
	}
}

func (b *Broker) expire(r *Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.phase != waiting {
		return
	}
	why := fmt.Sprintf("nobody answered within %s", r.ses.rules.Timeout)
	b.note(b.event(r, audit.EscalationDecided, verdictTimeout, decided{Request: r.ask.ID, Reason: why}))
	b.finish(r, &escalate.Response{RequestID: r.ask.ID, ExitCode: escalate.ExitTimeout, Reason: why}, why)
}

func (b *Broker) failed(r *Request, why string) *escalate.Response {
	if r.phase == running {
		b.note(b.event(r, audit.EscalationRun, verdictFailed, ran{
			Request: r.ask.ID, Desk: r.desk.kind, DeskPID: r.desk.pid, ExitCode: escalate.ExitFailed, Reason: why, Stdout: digestOf(nil), Stderr: digestOf(nil),
		}))
	} else {
		b.note(b.event(r, audit.EscalationDecided, verdictFailed, decided{Request: r.ask.ID, Reason: why}))
	}
	return &escalate.Response{RequestID: r.ask.ID, Approved: r.phase == running, ExitCode: escalate.ExitFailed, Reason: why}
}

// finish answers r, and tells every desk that has it that it is over, but for the
// one whose own answer that was. It needs b.mu.
func (b *Broker) finish(r *Request, res *escalate.Response, why string) {
	if r.phase == over {
		return
	}
	r.phase = over
	r.timer.Stop()
	delete(b.requests, r.ask.ID)
	r.ses.pending--
	r.done <- res
	for d := range b.desks {
		if d.shown[r.ask.ID] {
			delete(d.shown, r.ask.ID)
			if why != "" {
				d.send(wire.DeskEvent{Type: wire.EventGone, ID: r.ask.ID, Why: why})
			}
		}
	}
}

// unrecorded ends a request of which it could not be recorded that it was made.
func (b *Broker) unrecorded(r *Request, err error) {
	if err == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.phase != over {
		why := fmt.Sprintf("the request could not be recorded, so nothing was run: %v", err)
		b.finish(r, &escalate.Response{RequestID: r.ask.ID, ExitCode: escalate.ExitFailed, Reason: why}, why)
	}
}

// approve is a desk's answer. It needs b.mu.
func (b *Broker) approve(d *desk, r *Request, reply *wire.DeskReply) {
	command := reply.Command
	if command == "" {
		command = r.ask.Command
	}
	r.phase, r.desk = recording, d
	r.ses.dropped = 0
	r.timer.Stop()
	e := decided{Request: r.ask.ID, Desk: d.kind, DeskPID: d.pid, Auto: reply.Auto, Remember: reply.Remember}
	if command != r.ask.Command {
		e.Command = command
	}
	for other := range b.desks {
		if other != d && other.shown[r.ask.ID] {
			delete(other.shown, r.ask.ID)
			other.send(wire.DeskEvent{Type: wire.EventGone, ID: r.ask.ID, Why: "it has been answered elsewhere"})
		}
	}
	b.opts.Record(b.event(r, audit.EscalationDecided, verdictApproved, e), func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case r.phase != recording: // cancelled meanwhile: the desk has heard
		case err != nil:
			why := fmt.Sprintf("the approval could not be recorded, so nothing was run: %v", err)
			b.finish(r, &escalate.Response{RequestID: r.ask.ID, ExitCode: escalate.ExitFailed, Reason: why}, why)
		default:
			r.phase = running
			if reply.Remember && command == r.ask.Command && len(r.ses.remembered) < maxRemembered {
				r.ses.remembered[memory(r.ask.Command, r.ask.CWD)] = struct{}{}
			}
			r.tell(escalate.NewsRunning)
			d.send(wire.DeskEvent{Type: wire.EventGo, ID: r.ask.ID})
		}
	})
}

// deny needs b.mu.
func (b *Broker) deny(d *desk, r *Request, reply *wire.DeskReply) {
	r.ses.dropped = 0
	b.note(b.event(r, audit.EscalationDecided, verdictDenied, decided{Request: r.ask.ID, Desk: d.kind, DeskPID: d.pid, Reason: reply.Reason, Auto: reply.Auto}))
	delete(d.shown, r.ask.ID)
	b.finish(r, &escalate.Response{RequestID: r.ask.ID, ExitCode: escalate.ExitDenied, Reason: reply.Reason}, "it was denied elsewhere")
}

// result needs b.mu.
func (b *Broker) result(d *desk, r *Request, reply *wire.DeskReply) {
	verdict := verdictExited
	if reply.Failed {
		verdict = verdictFailed
	}
	b.note(b.event(r, audit.EscalationRun, verdict, ran{
		r.ask.ID, d.kind, d.pid, reply.ExitCode, reply.Reason, digestOf(reply.Stdout), digestOf(reply.Stderr),
	}))
	delete(d.shown, r.ask.ID)
	res := &escalate.Response{RequestID: r.ask.ID, Approved: true, ExitCode: reply.ExitCode, Reason: reply.Reason}
	res.SetOutput(reply.Stdout, reply.Stderr)
	if reply.Failed {
		res.ExitCode = escalate.ExitFailed
	}
	b.finish(r, res, "")
}

// Serve serves a desk over conn until it goes or ctx ends. It closes conn.
func (b *Broker) Serve(ctx context.Context, conn Conn, req *wire.DeskRequest, pid int) error {
	d, err := b.open(conn, req, pid)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	stop := context.AfterFunc(ctx, d.drop)
	defer stop()
	err = d.read(func(reply *wire.DeskReply) error { return b.reply(d, reply) })
	b.leave(d)
	return err
}
