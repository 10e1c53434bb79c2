package prompt

import (
	"fmt"
	"strings"
)

// Style is how a span looks. All are legible on light and dark ground, and
// without colour.
type Style int

// The styles.
const (
	Plain Style = iota
	Strong
	Faint
	Title
	Mark // an escape, a warning
	Cursor
)

// Span is text of one style.
type Span struct {
	Text  string
	Style Style
}

// Line is one row of a frame.
type Line []Span

// Text is the line without its styles.
func (l Line) Text() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.Text)
	}
	return b.String()
}

// Render returns the line with SGR sequences, at whose end the terminal is back at
// its defaults.
func (l Line) Render(color bool) string {
	var b strings.Builder
	for _, s := range l {
		sgr := map[Style]string{Strong: "1", Title: "1;7", Mark: "1", Cursor: "7"}[s.Style]
		if color {
			switch s.Style {
			case Mark:
				sgr = "1;31"
			case Faint:
				sgr = "2"
			}
		}
		if sgr == "" {
			b.WriteString(s.Text)
			continue
		}
		fmt.Fprintf(&b, "\x1b[%sm%s\x1b[m", sgr, s.Text)
	}
	return b.String()
}

// Frame is the screen: as many lines as it has rows, none wider than it.
func (m *Model) Frame() []Line {
	m.layout()
	foot := m.footer()
	page := m.page()
	out := make([]Line, 0, m.o.Height)
	out = append(out, m.title())
	for i := range page {
		if m.top+i < len(m.body) {
			out = append(out, m.body[m.top+i])
		} else {
			out = append(out, nil)
		}
	}
	out = append(out, foot...)
	if len(out) > m.o.Height {
		out = out[:m.o.Height]
	}
	return out
}

func (m *Model) width() int { return max(8, m.o.Width-1) }

// cut takes what does not fit off a line of our own text.
func (m *Model) cut(s string) string {
	if r := []rune(s); len(r) > m.width() {
		return string(r[:m.width()])
	}
	return s
}

func (m *Model) title() Line {
	s := " Lazaret: may this run on the host?"
	if n := m.ask.Waiting; n > 1 {
		s += fmt.Sprintf("  1 of %d", n)
	}
	if m.o.Width < 60 {
		s = " Lazaret: run this on the host?"
		if n := m.ask.Waiting; n > 1 {
			s += fmt.Sprintf(" 1/%d", n)
		}
	}
	s = m.cut(s)
	return Line{{s + strings.Repeat(" ", max(0, m.width()-len(s))), Title}}
}

// lines lays the whole request out.
func (m *Model) lines() []Line {
	a, c := &m.ask, m.view
	var out []Line
	field := func(label string, ps []piece) { out = append(out, wrap(label, Faint, ps, m.width())...) }
	note := func(label, s string) {
		ps := prose(s)
		for i := range ps {
			ps[i].escaped = true
		}
		out = append(out, wrap(label, Mark, ps, m.width())...)
	}
	field("request   ", prose(a.ID))
	field("profile   ", prose(a.Domain.Profile))
	field("sandbox   ", prose(a.Sandbox))
	kind := ""
	if a.Kind != "" {
		kind = " (" + a.Kind + ")"
	}
	field("session   ", prose(a.Session+kind))
	field("asked in  ", prose(orNone(a.CWD)))
	field("runs in   ", prose(orNone(c.Dir)))
	field("reason    ", prose(orNone(a.Justification)))
	if a.Dropped > 0 {
		note("note      ", fmt.Sprintf("%d more requests of this session were refused: too many at a time", a.Dropped))
	}
	for _, n := range c.Warnings {
		note("note      ", n)
	}
	if m.edited {
		note("edited    ", "by you; the agent had asked for what stands at the end")
	}
	switch {
	case c.Err != nil:
		note("cannot run", " "+c.Err.Error())
		out = append(out, Line{{"command:", Strong}})
		out = append(out, wrap("  ", Plain, quoted(c.Command), m.width())...)
	case c.Shell:
		field("shell     ", prose(c.Program))
		if s := odd(c.Command); s != "" {
			note("note      ", "has "+s)
		}
		out = append(out, Line{{m.cut(fmt.Sprintf("command line, %d bytes:", len(c.Command))), Strong}})
		out = append(out, wrap("  ", Plain, quoted(c.Command), m.width())...)
	default:
		field("program   ", prose(c.Program))
		out = append(out, Line{{m.cut(fmt.Sprintf("%s, %d bytes:", arguments(len(c.Argv)), len(c.Command))), Strong}})
		digits := len(fmt.Sprint(len(c.Argv)))
		for i, w := range c.Argv {
			out = append(out, wrap(fmt.Sprintf("  %*d  ", digits, i+1), Faint, quoted(w), m.width())...)
			if s := odd(w); s != "" {
				note(strings.Repeat(" ", digits+4)+"^ ", "has "+s)
			}
		}
	}
	end := "end of the command"
	if n := len(c.Argv); n > 0 && c.Err == nil && !c.Shell {
		end = "end of " + arguments(n)
	}
	out = append(out, Line{{m.cut(end), Faint}})
	if m.edited {
		out = append(out, Line{{m.cut("asked for by the agent:"), Strong}})
		out = append(out, wrap("  ", Faint, quoted(a.Command), m.width())...)
	}
	return out
}

func arguments(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// wrap breaks pieces into lines of at most width cells, each line after the first
// indented below the label. Escapes are never broken.
func wrap(label string, style Style, ps []piece, width int) []Line {
	indent := len(label)
	if indent > width/2 {
		indent = 2
	}
	room := max(4, width-indent)
	var out []Line
	var line Line
	used := 0
	flush := func() {
		lead := Span{label, style}
		if len(out) > 0 {
			lead = Span{strings.Repeat(" ", indent), Plain}
		}
		out = append(out, append(Line{lead}, line...))
		line, used = nil, 0
	}
	if len(label) > indent {
		out = append(out, Line{{label, style}})
	}
	for _, p := range ps {
		if used+p.cells > room {
			flush()
		}
		st := Plain
		if p.escaped {
			st = Mark
		}
		if n := len(line); n > 0 && line[n-1].Style == st {
			line[n-1].Text += p.text
		} else {
			line = append(line, Span{p.text, st})
		}
		used += p.cells
		if p.text == `\n` {
			flush()
		}
	}
	if used > 0 || len(out) == 0 {
		flush()
	}
	return out
}

// footer is what stays at the bottom.
func (m *Model) footer() []Line {
	rule := Line{{strings.Repeat("-", m.width()), Faint}}
	switch m.mode {
	case editing:
		return append([]Line{rule, {{m.cut("edit the command; enter looks at it, esc leaves it"), Strong}}}, m.editLines()...)
	case reasoning:
		return append([]Line{rule, {{m.cut("reason for the agent; enter denies, esc goes back"), Strong}}}, m.editLines()...)
	case reading:
	}
	return append([]Line{rule, {{m.cut(m.state()), Strong}}}, m.keyLines()...)
}

func (m *Model) keyLines() []Line {
	var out []Line
	line := ""
	for _, k := range []string{
		"[A]pprove", "[D]eny", "[R] deny with a reason", "[E]dit",
		"[S] allow this exact command for this session", "[Q] abort: end session and sandbox",
	} {
		if k = m.cut(k); line != "" && len(line)+2+len(k) > m.width() {
			out = append(out, Line{{line, Plain}})
			line = ""
		}
		if line != "" {
			line += "  "
		}
		line += k
	}
	return append(out, Line{{line, Plain}})
}

// page is the number of body lines on the screen.
func (m *Model) page() int {
	foot := 2 + len(m.keyLines())
	if m.mode != reading {
		foot = 2 + len(m.editLines())
	}
	return max(1, m.o.Height-1-foot)
}

// state tells in one line what can be done now.
func (m *Model) state() string {
	var parts []string
	switch {
	case m.pending != nil:
		parts = append(parts, "...")
	case m.early:
		parts = append(parts, "key ignored: pause, then press one")
	case m.view.Err != nil:
		parts = append(parts, "cannot be approved")
	case m.seen < len(m.body):
		parts = append(parts, fmt.Sprintf("read on to approve: space (%d of %d)", m.seen, len(m.body)))
	case len(m.body) > m.page():
		parts = append(parts, fmt.Sprintf("lines %d-%d of %d", m.top+1, min(len(m.body), m.top+m.page()), len(m.body)))
	}
	if s := m.left(); s != "" {
		parts = append(parts, s)
	}
	return strings.Join(parts, "  ")
}

// editLines show the editor's text around its cursor, at most four rows.
func (m *Model) editLines() []Line {
	const most = 4
	var ps []piece
	at := 0
	for i, r := range m.line.text {
		if i == m.line.cursor {
			at = len(ps)
		}
		ps = append(ps, word(string(r))...)
	}
	if m.line.cursor == len(m.line.text) {
		at = len(ps)
	}
	ps = append(ps, piece{text: " ", cells: 1})
	var out []Line
	var line Line
	used, cursorRow := 0, 0
	for i, p := range ps {
		if used+p.cells > m.width()-2 {
			out, line, used = append(out, line), nil, 0
		}
		st := Plain
		switch {
		case i == at:
			st, cursorRow = Cursor, len(out)
		case p.escaped:
			st = Mark
		}
		line = append(line, Span{p.text, st})
		used += p.cells
	}
	out = append(out, line)
	from := max(0, min(cursorRow-most/2, len(out)-most))
	out = out[from:min(len(out), from+most)]
	for i := range out {
		lead := "> "
		if i > 0 {
			lead = "  "
		}
		out[i] = append(Line{{lead, Faint}}, out[i]...)
	}
	return out
}
