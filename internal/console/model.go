package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/lazaret-dev/lazaret/escalate/desk"
	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/console/prompt"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// maxRecent bounds the finished requests that are kept for looking at.
const maxRecent = 200

// How often a prompt is told the time, and the list's clocks are drawn anew.
const (
	promptTime = 100 * time.Millisecond
	listTime   = 500 * time.Millisecond
)

// desks is what the model has done: a Hub.
type desks interface {
	Approve(Key, *policy.View, bool) error
	Deny(Key, string) error
	View(*wire.Ask, string) *policy.View
	Allow(socket, entry string) error
}

// state of a request, in the order of the list.
type state int

const (
	waiting state = iota
	answering
	running
	ended
)

// request is one line of the list.
type request struct {
	key    Key
	ask    *wire.Ask
	view   *policy.View
	state  state
	auto   bool
	since  time.Time // of the state
	result string    // how it ended, in words of ours
	out    *desk.Event
}

// model is the whole screen. It does no I/O but for looking at what a person has
// made of a command: commands that it returns do.
type model struct {
	desks desks
	stop  func(sandbox string) error                           // ends a sandbox; nil where that is not possible
	save  func(profile, entry string) (path string, err error) // adds to a profile
	now   func() time.Time
	color bool

	width, height int
	requests      []*request
	selected      Key
	filter        string
	filtering     bool
	open          map[string]bool   // domains, by socket
	problems      map[string]string // of domains, by socket
	guards        map[string]*Guard // those that something is wrong with, by socket
	nets          map[string]*Net   // by socket
	net           netView
	note          string        // the last thing that went wrong
	prompt        *prompt.Model // of the selected request
	details       *pager
}

// Messages.
type (
	tickMsg   struct{}
	updateMsg Update
	doneMsg   struct { // of a command
		what string
		key  Key
		err  error
		done string // to tell where it has worked
	}
)

func (m *model) tick() tea.Cmd {
	d := listTime
	if m.prompt != nil {
		d = promptTime
	}
	return tea.Tick(d, func(time.Time) tea.Msg { return tickMsg{} })
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.tick() }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		if m.prompt != nil {
			m.prompt.Resize(m.width, m.height)
		}
		if m.details != nil {
			m.showDetails()
		}
	case tickMsg:
		answer := m.answer()
		return m, tea.Batch(m.tick(), answer)
	case updateMsg:
		return m, m.take((*Update)(&msg))
	case doneMsg:
		if msg.err != nil {
			m.note = msg.what + ": " + prompt.Inert(msg.err.Error())
			if r := m.find(msg.key); r != nil && r.state == answering {
				m.end(r, "failed")
			}
		} else if msg.done != "" {
			m.note = prompt.Inert(msg.done)
		}
	case tea.PasteMsg:
		if m.prompt != nil {
			m.prompt.Paste(msg.Content, m.now())
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

func (m *model) press(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	switch {
	case m.prompt != nil:
		if m.prompt.Reading() && (name == "esc" || name == "ctrl+c") {
			m.prompt = nil // it waits on
			return nil
		}
		m.prompt.Key(name, k.Text, m.now())
		return m.answer()
	case name == "ctrl+c":
		return tea.Quit
	case m.details != nil:
		if name == "esc" || name == "q" || name == "enter" {
			m.details = nil
			return nil
		}
		m.details.key(name)
		return nil
	case m.net.open:
		return m.pressNet(name)
	case m.filtering:
		m.typeFilter(name, k.Text)
		return nil
	}
	m.note = ""
	list := m.shown()
	at := m.position(list)
	page := max(1, m.listRows()/m.rowHeight())
	switch name {
	case "q":
		return tea.Quit
	case "/":
		m.filtering = true
	case "n":
		m.net.open, m.net.selected = true, netKey{}
		if len(m.net.order) > 0 {
			m.net.selected = m.net.order[0]
		}
	case "esc":
		m.filter = ""
	case "up", "k":
		m.pick(list, at-1)
	case "down", "j":
		m.pick(list, at+1)
	case "pgup":
		m.pick(list, at-page)
	case "pgdown", "space":
		m.pick(list, at+page)
	case "home", "g":
		m.pick(list, 0)
	case "end", "G":
		m.pick(list, len(list)-1)
	case "enter":
		if len(list) > 0 {
			m.pick(list, at)
			m.openRequest(list[at])
		}
	}
	return nil
}

func (m *model) typeFilter(name, text string) {
	switch name {
	case "enter":
		m.filtering = false
	case "esc":
		m.filtering, m.filter = false, ""
	case "backspace", "ctrl+h":
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	case "ctrl+u":
		m.filter = ""
	default:
		if len(m.filter) < 200 {
			m.filter += text
		}
	}
}

// openRequest shows the request: one that waits, for an answer.
func (m *model) openRequest(r *request) {
	if r.state != waiting {
		m.showDetails()
		return
	}
	m.prompt = prompt.New(prompt.Options{
		Ask: r.ask, View: r.view, Width: m.width, Height: m.height, Now: m.now(),
		Inspect: func(command string) *policy.View { return m.desks.View(r.ask, command) },
	})
	m.count()
}

// count tells an open prompt how many requests of its session wait now.
func (m *model) count() {
	shown := m.find(m.selected)
	if m.prompt == nil || shown == nil {
		return
	}
	n, dropped := 0, 0
	for _, r := range m.requests { // in the order in which they came
		if r.key.Socket == shown.key.Socket && r.ask.Session == shown.ask.Session && r.state == waiting {
			n, dropped = n+1, r.ask.Dropped
		}
	}
	m.prompt.SetWaiting(n, dropped)
}

// answer passes the prompt's answer on, if there is one.
func (m *model) answer() tea.Cmd {
	if m.prompt == nil {
		return nil
	}
	a, ok := m.prompt.Tick(m.now())
	if !ok {
		return nil
	}
	m.prompt = nil
	r := m.find(m.selected)
	if r == nil || r.state != waiting {
		return nil
	}
	r.state, r.since = answering, m.now()
	key, d := r.key, m.desks
	switch a.Verb {
	case prompt.Approve:
		r.view = a.View
		return func() tea.Msg {
			return doneMsg{what: "not approved", key: key, err: d.Approve(key, a.View, a.Remember)}
		}
	case prompt.Abort:
		m.end(r, "aborted")
		sandbox, stop := r.ask.Sandbox, m.stop
		return func() tea.Msg {
			if err := d.Deny(key, "the session has been ended"); err != nil {
				return doneMsg{what: "not denied", key: key, err: err}
			}
			return doneMsg{what: "sandbox not ended", key: key, err: stop(sandbox)}
		}
	case prompt.Deny:
	}
	m.end(r, "denied")
	return func() tea.Msg { return doneMsg{what: "not denied", key: key, err: d.Deny(key, a.Reason)} }
}

// take brings the list up to date.
func (m *model) take(u *Update) tea.Cmd {
	delete(m.problems, u.Socket)
	if u.Problem != "" {
		m.problems[u.Socket] = prompt.Inert(u.Problem)
	}
	if u.Open {
		m.open[u.Socket] = true
	} else {
		delete(m.open, u.Socket)
		delete(m.guards, u.Socket)
		m.takeNet(u.Socket, nil)
		for _, r := range m.requests {
			if r.key.Socket == u.Socket && r.state != ended {
				m.end(r, "domain ended")
			}
		}
	}
	if u.Guard != nil {
		delete(m.guards, u.Socket)
		if u.Guard.Warning() != "" {
			m.guards[u.Socket] = u.Guard
		}
	}
	if u.Net != nil {
		m.takeNet(u.Socket, u.Net)
	}
	if u.Event == nil {
		return nil
	}
	defer m.count() // when the event has been taken in
	e := u.Event
	r := m.find(u.Key)
	if r == nil {
		r = &request{key: u.Key, since: m.now()}
		m.requests = append(m.requests, r)
	}
	r.ask, r.view, r.auto = e.Ask, e.View, e.Auto
	switch e.Type {
	case desk.Asked:
		if m.find(m.selected) == nil || m.find(m.selected).state != waiting && m.prompt == nil && m.details == nil {
			m.selected = u.Key
		}
		return tea.Raw("\a")
	case desk.Started:
		r.state, r.since = running, m.now()
	case desk.Finished:
		r.out = e
		if e.Result.Err != nil {
			m.end(r, "failed")
		} else {
			m.end(r, fmt.Sprintf("exit %d", e.Result.ExitCode))
		}
	case desk.Gone:
		r.out = e
		m.end(r, "gone")
	}
	return nil
}

func (m *model) end(r *request, how string) {
	r.state, r.result, r.since = ended, how, m.now()
	if r.key == m.selected && m.prompt != nil {
		m.prompt = nil
		m.note = "the request that was shown: " + how
	}
	if r.key == m.selected && m.details != nil {
		m.showDetails()
	}
	var over []*request
	for _, r := range m.requests {
		if r.state == ended {
			over = append(over, r)
		}
	}
	if len(over) > maxRecent {
		oldest := slices.MinFunc(over, func(a, b *request) int { return a.since.Compare(b.since) })
		m.requests = slices.DeleteFunc(m.requests, func(r *request) bool { return r == oldest })
	}
}

func (m *model) find(k Key) *request {
	for _, r := range m.requests {
		if r.key == k {
			return r
		}
	}
	return nil
}

// shown is the list: what waits first, by its deadline; the rest, newest first.
func (m *model) shown() []*request {
	var out []*request
	for _, r := range m.requests {
		if m.filter == "" || strings.Contains(strings.ToLower(r.text()), strings.ToLower(m.filter)) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b *request) int {
		switch {
		case a.state != b.state:
			return cmp.Compare(a.state, b.state)
		case a.state == waiting:
			return a.ask.Deadline.Compare(b.ask.Deadline)
		}
		return b.since.Compare(a.since)
	})
	return out
}

// text is what a filter looks at.
func (r *request) text() string {
	return strings.Join([]string{
		r.status(), r.ask.Domain.Profile, r.ask.Domain.Workspace, r.ask.Command, r.ask.Justification, r.ask.Session, r.ask.Sandbox, r.ask.ID,
	}, "\n")
}

func (r *request) status() string {
	auto := ""
	if r.auto {
		auto = "auto "
	}
	switch r.state {
	case waiting:
		return "waits"
	case answering:
		return "..."
	case running:
		return auto + "runs"
	case ended:
	}
	return auto + r.result
}

func (m *model) position(list []*request) int {
	for i, r := range list {
		if r.key == m.selected {
			return i
		}
	}
	return 0
}

func (m *model) pick(list []*request, at int) {
	if len(list) > 0 {
		m.selected = list[max(0, min(at, len(list)-1))].key
	}
}
