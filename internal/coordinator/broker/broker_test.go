package broker

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/sessionkey"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

type place struct {
	*testing.T
	b *Broker

	mu     sync.Mutex // guards what follows
	events []audit.Event
	fails  string // kind that cannot be recorded
	busy   bool
	told   chan struct{} // closed when the last done has returned; nil before the first
}

// record is the store's place.
func (p *place) record(e audit.Event, done func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if e.Kind == p.fails {
		err = errors.New("disk full")
	} else {
		p.events = append(p.events, e)
	}
	if done == nil {
		return
	}
	before, now := p.told, make(chan struct{})
	p.told = now
	go func() { // in the order of the events, as the store's worker
		if before != nil {
			<-before
		}
		done(err)
		close(now)
	}()
}

func newPlace(t *testing.T) *place {
	p := &place{T: t}
	p.b = New(Options{
		Domain: domain.Anchor{Profile: "dev", Hash: "0123456789ab"}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Record: p.record, Later: p.record,
		Busy: func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.busy },
	})
	t.Cleanup(p.b.Close)
	return p
}

type client struct {
	id  string
	key ed25519.PrivateKey
}

func (p *place) session(sandbox string, owned bool, timeout time.Duration) client {
	p.Helper()
	key, err := sessionkey.New()
	if err != nil {
		p.Fatal(err)
	}
	c := client{uuid.NewString(), key}
	if err := p.b.Begin(Session{ID: c.id, Kind: "exec", Sandbox: sandbox, Key: sessionkey.Public(key), Owned: owned}, Rules{Timeout: timeout}); err != nil {
		p.Fatal(err)
	}
	return c
}

func (c client) request(command string) *escalate.Request {
	r := &escalate.Request{RequestID: uuid.NewString(), SessionID: c.id, Profile: "dev", Command: command, CWD: "/workspace"}
	r.Sign(c.key)
	return r
}

func (p *place) submit(sandbox string, r *escalate.Request) *Request {
	p.Helper()
	q, err := p.b.Submit(sandbox, r)
	if err != nil {
		p.Fatal(err)
	}
	return q
}

// testDesk is one that speaks the protocol over a pipe.
type testDesk struct {
	*testing.T
	conn net.Conn
	in   *bufio.Reader
	done chan error
}

func (p *place) desk(kind, session string) *testDesk {
	p.Helper()
	near, far := net.Pipe()
	d := &testDesk{T: p.T, conn: near, in: bufio.NewReader(near), done: make(chan error, 1)}
	go func() {
		d.done <- p.b.Serve(context.Background(), far, &wire.DeskRequest{Kind: kind, SessionID: session}, 1)
	}()
	p.Cleanup(func() { _ = near.Close() })
	for range 1000 { // until it is counted
		for _, s := range p.b.Desks() {
			if s.Kind == kind && s.Session == session {
				return d
			}
		}
		time.Sleep(time.Millisecond)
	}
	p.Fatal("the desk does not open")
	return nil
}

func (d *testDesk) next(kind string) wire.DeskEvent {
	d.Helper()
	_ = d.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	line, err := d.in.ReadBytes('\n')
	var e wire.DeskEvent
	if err == nil {
		err = json.Unmarshal(line, &e)
	}
	if err != nil || e.Type != kind {
		d.Fatalf("got %q, %v, want %q", line, err, kind)
	}
	return e
}

// quiet fails the test if anything comes.
func (d *testDesk) quiet() {
	d.Helper()
	_ = d.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if line, err := d.in.ReadBytes('\n'); err == nil {
		d.Errorf("unexpected event %s", line)
	}
}

func (d *testDesk) reply(r wire.DeskReply) {
	d.Helper()
	data, err := json.Marshal(r)
	if err == nil {
		_, err = d.conn.Write(append(data, '\n'))
	}
	if err != nil {
		d.Fatal(err)
	}
}

func (p *place) answer(r *Request) *escalate.Response {
	p.Helper()
	select {
	case res := <-r.Done:
		return res
	case <-time.After(20 * time.Second):
		p.Fatal("no answer")
	}
	return nil
}

// recorded are the kinds, with their verdicts, in order.
func (p *place) recorded() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if err := e.Check(); err != nil {
			p.Errorf("%+v: %v", e, err)
		}
		all = append(all, strings.TrimSuffix(strings.TrimPrefix(e.Kind, "escalation.")+" "+e.Verdict, " "))
	}
	return all
}

func code(err error) string {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestApproved(t *testing.T) {
	p := newPlace(t)
	c := p.session("box", false, time.Minute)
	r := p.submit("box", c.request("id -u"))
	first, second := p.desk(wire.DeskConsole, ""), p.desk(wire.DeskHeadless, "")
	ask := first.next(wire.EventAsk).Ask
	if ask.Command != "id -u" || ask.Waiting != 1 || ask.Session != c.id {
		t.Errorf("asked %+v", ask)
	}
	second.next(wire.EventAsk)
	first.reply(wire.DeskReply{Type: wire.ReplyApprove, ID: ask.ID, Remember: true})
	if e := second.next(wire.EventGone); e.ID != ask.ID {
		t.Errorf("gone %+v", e)
	}
	first.next(wire.EventGo)
	if got := fmt.Sprint(p.recorded()); got != "[asked shown shown decided approved]" {
		t.Errorf("recorded before go: %v", got)
	}
	// Another desk cannot answer for it, nor end it.
	second.reply(wire.DeskReply{Type: wire.ReplyResult, ID: ask.ID, ExitCode: 9})
	second.reply(wire.DeskReply{Type: wire.ReplyApprove, ID: ask.ID})
	second.next(wire.EventGone)
	first.reply(wire.DeskReply{Type: wire.ReplyResult, ID: ask.ID, ExitCode: 4, Stdout: []byte("1000\n")})
	if res := p.answer(r); !res.Approved || res.ExitCode != 4 || res.Stdout != "1000\n" {
		t.Errorf("answer %+v", res)
	}
	p.submit("box", c.request("id -u"))
	if ask := first.next(wire.EventAsk).Ask; !ask.Remembered {
		t.Error("the same command in the same directory is not remembered")
	}
	p.submit("box", c.request("id -g"))
	if ask := first.next(wire.EventAsk).Ask; ask.Remembered {
		t.Error("another command is taken for a remembered one")
	}
}

func TestDeniedAndLate(t *testing.T) {
	p := newPlace(t)
	d := p.desk(wire.DeskConsole, "")
	c := p.session("box", false, time.Minute)
	r := p.submit("box", c.request("x"))
	d.reply(wire.DeskReply{Type: wire.ReplyDeny, ID: d.next(wire.EventAsk).Ask.ID, Reason: "no"})
	if res := p.answer(r); res.Approved || res.ExitCode != 126 || res.Reason != "no" {
		t.Errorf("answer %+v", res)
	}
	short := p.session("box", false, 50*time.Millisecond)
	r = p.submit("box", short.request("x"))
	ask := d.next(wire.EventAsk).Ask
	if res := p.answer(r); res.ExitCode != 124 {
		t.Errorf("answer %+v", res)
	}
	d.next(wire.EventGone)
	d.reply(wire.DeskReply{Type: wire.ReplyApprove, ID: ask.ID}) // too late
	d.next(wire.EventGone)
}

// A request of a session that a terminal owns goes there only, whether the terminal
// has come, is there, or has gone.
func TestTerminalsSession(t *testing.T) {
	p := newPlace(t)
	console := p.desk(wire.DeskConsole, "")
	c := p.session("box", true, time.Minute)
	other := p.desk(wire.DeskRun, uuid.NewString())
	r := p.submit("box", c.request("x"))
	if n := <-r.News; n != escalate.NewsAway {
		t.Errorf("news %q", n)
	}
	console.quiet()
	other.quiet()
	own := p.desk(wire.DeskRun, c.id)
	ask := own.next(wire.EventAsk).Ask
	console.reply(wire.DeskReply{Type: wire.ReplyApprove, ID: ask.ID})
	console.next(wire.EventGone)
	_ = own.conn.Close()
	if err := <-own.done; err != nil {
		p.Logf("the terminal's desk ended: %v", err)
	}
	console.quiet()
	if p.b.Waiting() != 1 {
		t.Error("the request does not wait")
	}
}

func TestRefused(t *testing.T) {
	p := newPlace(t)
	c := p.session("box", false, time.Minute)
	ended := p.session("box", false, time.Minute)
	p.b.End(ended.id)
	good := c.request("good")
	p.submit("box", good)
	altered := c.request("ls")
	altered.Command = "rm"
	foreign := ended
	foreign.id = c.id
	p.b.Adopt("taken over")
	later := p.session("taken over", false, time.Minute)
	p.b.End(later.id)
	p.b.Adopt("taken over, and gone")
	p.b.EndSandbox("taken over, and gone")
	otherProfile := &escalate.Request{RequestID: uuid.NewString(), SessionID: c.id, Profile: "other", Command: "x"}
	otherProfile.Sign(c.key)
	tests := []struct {
		name, sandbox string
		req           *escalate.Request
		code          string
	}{
		{"replayed", "box", good, CodeReplayed},
		{"altered", "box", altered, CodeBadSignature},
		{"another session's key", "box", foreign.request("x"), CodeBadSignature},
		{"ended", "box", ended.request("x"), CodeEndedSession},
		{"ended, over another sandbox's socket", "other", ended.request("x"), CodeUnknownSession},
		{"unknown", "box", client{uuid.NewString(), c.key}.request("x"), CodeUnknownSession},
		{"from before a coordinator was killed", "taken over", client{uuid.NewString(), c.key}.request("x"), CodeLostSession},
		{"ended after that", "taken over", later.request("x"), CodeEndedSession},
		{"another sandbox's, after that", "taken over", c.request("x"), CodeForeignSession},
		{"unknown, the sandbox is gone", "taken over, and gone", client{uuid.NewString(), c.key}.request("x"), CodeUnknownSession},
		{"of another sandbox", "other", c.request("x"), CodeForeignSession},
		{"another profile", "box", otherProfile, wire.CodeBadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := p.b.Submit(tt.sandbox, tt.req); code(err) != tt.code {
				t.Errorf("got %v, want %s", err, tt.code)
			}
		})
	}
}

// A person is called when no desk of a person's is there that could answer.
func TestAlert(t *testing.T) {
	p := newPlace(t)
	alerts := 0
	p.b.opts.Alert = func() { alerts++ }
	open, owned := p.session("box", false, time.Minute), p.session("box", true, time.Minute)
	unattended := func(alerted, n int, oldest string) {
		t.Helper()
		if ask, got := p.b.Unattended(); alerts != alerted || got != n || ask.Command != oldest {
			t.Errorf("%d alerts, %d unattended, oldest %q; want %d, %d, %q", alerts, got, ask.Command, alerted, n, oldest)
		}
	}
	q := p.submit("box", open.request("first"))
	p.submit("box", open.request("second"))
	unattended(2, 2, "first")
	p.desk(wire.DeskHeadless, "")
	p.submit("box", open.request("third"))
	unattended(3, 3, "first")
	p.submit("box", owned.request("its terminal's"))
	unattended(4, 3, "first")
	p.b.Cancel(q)
	unattended(4, 2, "second")
	p.desk(wire.DeskConsole, "")
	p.submit("box", open.request("fourth"))
	unattended(4, 0, "")
}

func TestBounds(t *testing.T) {
	p := newPlace(t)
	c := p.session("box", false, time.Minute)
	for range maxPending {
		p.submit("box", c.request("x"))
	}
	for range 10000 {
		if _, err := p.b.Submit("box", c.request("x")); code(err) != CodeTooMany {
			t.Fatalf("got %v", err)
		}
	}
	d := p.desk(wire.DeskConsole, "")
	ask := d.next(wire.EventAsk).Ask
	if ask.Waiting != maxPending || ask.Dropped != 10000 {
		t.Errorf("waiting %d, dropped %d", ask.Waiting, ask.Dropped)
	}
}

// What a session asks for does not fill the disk, whatever JSON makes of it.
func TestRecordedIsBounded(t *testing.T) {
	p := newPlace(t)
	now := time.Now()
	p.b.opts.Now = func() time.Time { now = now.Add(time.Second); return now }
	c := p.session("box", false, time.Hour)
	command := strings.Repeat("<", escalate.MaxCommand)
	total := 0
	for {
		r, err := p.b.Submit("box", c.request(command))
		if err != nil {
			if code(err) != CodeTooMany || !strings.Contains(err.Error(), "fills") {
				t.Fatal(err)
			}
			break
		}
		p.b.Cancel(r)
		p.mu.Lock()
		for _, e := range p.events {
			total += len(e.Payload)
		}
		p.events = nil
		p.mu.Unlock()
		if total > 2*maxRecorded {
			break
		}
	}
	if total < maxRecorded/2 || total > maxRecorded+maxRecorded/8 {
		t.Errorf("%d bytes are recorded, %d are allowed", total, maxRecorded)
	}
}

func TestNotRecorded(t *testing.T) {
	for _, kind := range []string{audit.EscalationAsked, audit.EscalationDecided} {
		p := newPlace(t)
		p.fails = kind
		d := p.desk(wire.DeskConsole, "")
		c := p.session("box", false, time.Minute)
		r := p.submit("box", c.request("x"))
		d.reply(wire.DeskReply{Type: wire.ReplyApprove, ID: d.next(wire.EventAsk).Ask.ID})
		d.next(wire.EventGone)
		if res := p.answer(r); res.Approved || res.ExitCode != 125 || !strings.Contains(res.Reason, "disk full") {
			t.Errorf("%s: answer %+v", kind, res)
		}
	}
}

func TestNothingIsAskedWhileTheDiskIsBehind(t *testing.T) {
	p := newPlace(t)
	p.busy = true
	c := p.session("box", false, time.Minute)
	if _, err := p.b.Submit("box", c.request("x")); code(err) != CodeTooMany {
		t.Errorf("got %v", err)
	}
}

// What costs a sandbox nothing is counted, not recorded one by one.
func TestRefusalsAreCounted(t *testing.T) {
	p := newPlace(t)
	c := p.session("box", false, time.Minute)
	for range 100 {
		bad := c.request("x")
		bad.Command = "y"
		if _, err := p.b.Submit("box", bad); code(err) != CodeBadSignature {
			t.Fatalf("got %v", err)
		}
	}
	p.b.EndSandbox("box")
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for _, e := range p.events {
		var n struct{ Count int }
		if err := json.Unmarshal(e.Payload, &n); err != nil || e.Kind != audit.EscalationRefused || e.Verdict != CodeBadSignature || e.Container != "box" {
			t.Errorf("%+v, %v", e, err)
		}
		total += n.Count
	}
	if total != 100 || len(p.events) > 20 {
		t.Errorf("%d refusals in %d records", total, len(p.events))
	}
}

func TestDeskGoes(t *testing.T) {
	p := newPlace(t)
	d := p.desk(wire.DeskConsole, "")
	c := p.session("box", false, time.Minute)
	r := p.submit("box", c.request("x"))
	d.reply(wire.DeskReply{Type: wire.ReplyApprove, ID: d.next(wire.EventAsk).Ask.ID})
	d.next(wire.EventGo)
	_ = d.conn.Close()
	if res := p.answer(r); !res.Approved || res.ExitCode != 125 {
		t.Errorf("answer %+v", res)
	}
}

func TestBadLinesEndADesk(t *testing.T) {
	p := newPlace(t)
	for _, line := range []string{"x", `{"type":"deny","id":"a","id":"b"}`, `{"Type":"deny"}`, `{"type":"other"}`, `{"type":"deny","id":"a","reason":"` + strings.Repeat("x", escalate.MaxJustification+1) + `"}`} {
		d := p.desk(wire.DeskConsole, "")
		_, _ = d.conn.Write([]byte(line + "\n"))
		select {
		case err := <-d.done:
			if err == nil {
				t.Errorf("%.40s: no error", line)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%.40s: the desk goes on", line)
		}
	}
}
