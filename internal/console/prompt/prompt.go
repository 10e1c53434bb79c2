// Package prompt owns how one escalation request is put before a person: what is
// shown, in which form, and which keys answer it. Everything of the agent's is
// made inert before it is laid out.
//
// A Model has no clock, no terminal and no goroutine: whoever uses it gives it
// keys, the time and a size, and draws its frame.
package prompt

import (
	"fmt"
	"strings"
	"time"

	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// Options are what a Model starts with.
type Options struct {
	Ask  *wire.Ask
	View *policy.View // of the request's own command
	// Inspect applies the policy to what a person makes of the command.
	Inspect func(command string) *policy.View
	Width   int // of the screen, in columns
	Height  int // in rows
	Now     time.Time
}

// Verb is an answer's kind.
type Verb int

// The verbs.
const (
	Approve Verb = iota + 1
	Deny
	Abort // ends the session, its sandbox and sidecar
)

// Answer is what a person decided.
type Answer struct {
	Verb     Verb
	View     *policy.View // of Approve: what was shown, and is to run
	Remember bool         // of Approve: this exact command, for the session
	Reason   string       // of Deny, "" for none
}

// Quiet is how long no key may come before one that answers, and Settle how long
// none may come after it: a person types faster than that, and a paste comes at
// once.
const (
	Quiet  = 600 * time.Millisecond
	Settle = 250 * time.Millisecond
)

// maxReason bounds a denial's reason, in characters.
const maxReason = 500

type mode int

const (
	reading mode = iota
	editing
	reasoning
)

// Model is one request before a person.
type Model struct {
	o       Options
	ask     wire.Ask
	view    *policy.View
	edited  bool
	mode    mode
	line    editor
	top     int  // first line of the body that is shown
	seen    int  // lines of the body that have been shown, without a gap from the first
	dirty   bool // lines must be laid out anew
	body    []Line
	last    time.Time // of the last input, or of showing
	pending *Answer   // a key that will answer at settled, if no other comes
	settled time.Time
	early   bool // a key came too early
	now     time.Time
}

// New returns the model of a request that is shown from o.Now on.
func New(o Options) *Model {
	m := &Model{o: o, ask: *o.Ask, view: o.View, last: o.Now, now: o.Now, dirty: true}
	m.layout()
	return m
}

// ID is the request's.
func (m *Model) ID() string { return m.ask.ID }

// SetWaiting takes newer counts of the session's requests, as in wire.Ask.
func (m *Model) SetWaiting(waiting, dropped int) {
	if dropped != m.ask.Dropped {
		m.dirty = true
	}
	m.ask.Waiting, m.ask.Dropped = waiting, dropped
}

// Resize sets the screen's size, in columns and rows.
func (m *Model) Resize(width, height int) {
	if width == m.o.Width && height == m.o.Height {
		return
	}
	m.o.Width, m.o.Height = width, height
	m.dirty = true
	m.layout()
}

// Key takes a key that was pressed at now. name is its name as bubbletea and
// ultraviolet give it ("a", "A", "enter", "pgdown", "ctrl+u"), typed the text that
// it stands for, "" for none. Answers come from Tick.
func (m *Model) Key(name, typed string, now time.Time) {
	m.now = now
	quiet := now.Sub(m.last) >= Quiet
	m.last = now
	if m.pending != nil { // somebody types
		m.pending, m.early = nil, true
		return
	}
	if m.mode != reading {
		m.edit(name, typed)
		return
	}
	switch name {
	case "up", "k":
		m.scroll(-1)
	case "down", "j", "enter":
		m.scroll(1)
	case "pgup", "b":
		m.scroll(-m.page())
	case "pgdown", "space", " ":
		m.scroll(m.page())
	case "home", "g":
		m.scroll(-len(m.body))
	case "end", "G":
		m.scroll(len(m.body))
	default:
		m.answer(strings.ToLower(name), quiet)
	}
}

// answer takes a key that decides. Each has a pause before it and one after.
func (m *Model) answer(name string, quiet bool) {
	var a Answer
	switch name {
	case "a":
		a = Answer{Verb: Approve, View: m.view}
	case "s":
		a = Answer{Verb: Approve, View: m.view, Remember: true}
	case "d":
		a = Answer{Verb: Deny}
	case "q":
		a = Answer{Verb: Abort}
	case "e", "r":
	default:
		m.early = m.early || !quiet
		return
	}
	if m.early = !quiet; m.early || a.Verb == Approve && !m.Approvable() || a.Remember && m.edited {
		return
	}
	switch name {
	case "e":
		m.mode, m.line = editing, newEditor(m.view.Command, wireCommand)
		m.dirty = true
		m.layout()
	case "r":
		m.mode, m.line = reasoning, newEditor("", maxReason)
	default:
		m.pending, m.settled = &a, m.now.Add(Settle)
	}
}

// wireCommand bounds an edited command, in characters.
const wireCommand = 16 << 10

// edit takes a key in one of the line editors.
func (m *Model) edit(name, typed string) {
	switch name {
	case "esc", "ctrl+c":
		m.mode = reading
	case "enter":
		if m.mode == reasoning {
			a := Answer{Verb: Deny, Reason: strings.TrimSpace(m.line.String())}
			m.pending, m.settled = &a, m.now.Add(Settle)
			return
		}
		m.take(m.line.String())
	default:
		m.line.key(name, typed)
	}
	m.dirty = true
	m.layout()
}

// take makes an edited command the one that is asked about, from the beginning.
func (m *Model) take(command string) {
	m.mode = reading
	if strings.TrimSpace(command) == "" {
		return
	}
	m.view = m.o.Inspect(command)
	m.edited = command != m.ask.Command
	m.top, m.seen, m.body = 0, 0, nil
}

// Paste takes text that was pasted. It never answers; a line editor takes it in.
func (m *Model) Paste(s string, now time.Time) {
	m.now, m.last = now, now
	if m.pending != nil {
		m.pending, m.early = nil, true
	}
	if m.mode == reading {
		m.early = true
		return
	}
	m.line.insert(s)
	m.dirty = true
	m.layout()
}

// Tick tells the time, a few times in a second and after each key, and returns
// the answer once there is one.
func (m *Model) Tick(now time.Time) (Answer, bool) {
	m.now = now
	if m.early && now.Sub(m.last) >= Quiet {
		m.early = false
	}
	if m.pending == nil || now.Before(m.settled) {
		return Answer{}, false
	}
	a := *m.pending
	m.pending = nil
	return a, true
}

// Approvable reports whether what is shown can be approved: it can be run, and
// all of it was on the screen.
func (m *Model) Approvable() bool {
	return m.view.Err == nil && m.seen >= len(m.body) && m.mode == reading
}

func (m *Model) scroll(by int) {
	m.layout()
	m.top = max(0, min(m.top+by, len(m.body)-m.page()))
	m.look()
}

// look notes what is on the screen. What was jumped over was not seen.
func (m *Model) look() {
	if m.top <= m.seen {
		m.seen = max(m.seen, min(m.top+m.page(), len(m.body)))
	}
}

func (m *Model) layout() {
	if !m.dirty {
		return
	}
	m.dirty = false
	all := m.seen > 0 && m.seen >= len(m.body)
	m.body = m.lines()
	if all { // the same text in other lines
		m.seen = len(m.body)
	} else {
		m.top, m.seen = 0, 0
	}
	m.top = max(0, min(m.top, len(m.body)-m.page()))
	m.look()
}

// left is the time until the client gives up.
func (m *Model) left() string {
	if m.ask.Deadline.IsZero() {
		return ""
	}
	d := max(0, m.ask.Deadline.Sub(m.now)).Round(time.Second)
	return fmt.Sprintf("%d:%02d left", int(d.Minutes()), int(d.Seconds())%60)
}

// Reading reports whether keys go to the request, not to one of its editors.
func (m *Model) Reading() bool { return m.mode == reading }
