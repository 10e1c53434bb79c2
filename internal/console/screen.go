package console

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/lazaret-dev/lazaret/internal/console/prompt"
)

// narrow screens show a request in two rows.
const narrow = 60

// outputLines bounds what the details show of each output.
const outputLines = 200

// View implements tea.Model.
func (m *model) View() tea.View {
	var b strings.Builder
	for i, l := range m.frame() {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(l.Render(m.color))
	}
	v := tea.NewView(b.String())
	v.AltScreen = true
	v.WindowTitle = "lazaret console"
	return v
}

// frame is the screen: at most as many lines as it has rows.
func (m *model) frame() []prompt.Line {
	switch {
	case m.width == 0:
		return nil
	case m.prompt != nil:
		return m.prompt.Frame()
	case m.details != nil:
		return m.details.frame(m.cols(), m.height)
	case m.net.open:
		return m.netFrame()
	}
	rows := m.listRows()
	list := m.shown()
	out := append([]prompt.Line{m.title()}, m.warning()...)
	head := len(out)
	if len(list) == 0 {
		for _, s := range m.nothing() {
			out = append(out, prompt.Line{{Text: fit(" "+s, m.cols()), Style: prompt.Faint}})
		}
	}
	each := m.rowHeight()
	at := m.position(list)
	from := max(0, min(at-rows/each/2, len(list)-rows/each))
	for i := from; i < len(list) && (i-from+1)*each <= rows; i++ {
		out = append(out, m.row(list[i], i == at && len(list) > 0)...)
	}
	for len(out) < head+rows {
		out = append(out, nil)
	}
	out = append(out[:min(len(out), head+rows)], m.footer()...)
	return out[:min(len(out), m.height)]
}

func (m *model) cols() int { return max(8, m.width-1) }

func (m *model) rowHeight() int {
	if m.width < narrow {
		return 2
	}
	return 1
}

func (m *model) listRows() int {
	head := 1
	if !m.net.open {
		head += len(m.warning())
	}
	return max(1, m.height-head-len(m.footer()))
}

// warning is a line on a guard that something is wrong with, or none.
func (m *model) warning() []prompt.Line {
	if len(m.guards) == 0 {
		return nil
	}
	g := m.guards[slices.Min(slices.Collect(maps.Keys(m.guards)))]
	more := ""
	if n := len(m.guards) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	s := fmt.Sprintf(" %s%s: %s, %s", g.Warning(), more, prompt.Inert(filepath.Base(g.Of.Workspace)), prompt.Inert(g.Of.Profile))
	return []prompt.Line{{{Text: fit(s, m.cols()), Style: prompt.Mark}}}
}

func (m *model) title() prompt.Line {
	n := 0
	for _, r := range m.requests {
		if r.state == waiting {
			n++
		}
	}
	s := fmt.Sprintf(" Lazaret console: %d waiting, %s", n, domains(len(m.open)))
	if k := len(m.net.order); k > 0 {
		s += fmt.Sprintf(", %d refused", k)
	}
	return prompt.Line{{Text: pad(fit(s, m.cols()), m.cols()), Style: prompt.Title}}
}

func domains(n int) string {
	if n == 1 {
		return "1 domain"
	}
	return fmt.Sprintf("%d domains", n)
}

func (m *model) nothing() []string {
	switch {
	case m.filter != "":
		return []string{"no request has this"}
	case len(m.open) == 0:
		return []string{"no domain is in use"}
	}
	return []string{"nothing has been asked for"}
}

// row is one request: its state, its clock, its profile and its command, as far
// as there is room.
func (m *model) row(r *request, selected bool) []prompt.Line {
	clock := age(m.now().Sub(r.since))
	if r.state == waiting {
		clock = age(r.ask.Deadline.Sub(m.now()))
	}
	style := prompt.Plain
	switch r.state {
	case waiting:
		style = prompt.Strong
	case ended:
		style = prompt.Faint
	case answering, running:
	}
	mark := "  "
	if selected {
		mark, style = "> ", prompt.Cursor
	}
	head := fmt.Sprintf("%s%s %6s  %s  ", mark, pad(fit(r.status(), 12), 12), clock, pad(fit(prompt.Inert(r.ask.Domain.Profile), 10), 10))
	command := prompt.Inert(r.ask.Command)
	if m.rowHeight() == 1 {
		return []prompt.Line{{{Text: pad(fit(head+command, m.cols()), m.cols()), Style: style}}}
	}
	return []prompt.Line{
		{{Text: pad(fit(head, m.cols()), m.cols()), Style: style}},
		{{Text: fit("    "+command, m.cols()), Style: prompt.Plain}},
	}
}

func (m *model) footer() []prompt.Line {
	line := func(s string, st prompt.Style) prompt.Line {
		return prompt.Line{{Text: fit(s, m.cols()), Style: st}}
	}
	out := []prompt.Line{line(strings.Repeat("-", m.cols()), prompt.Faint)}
	if m.note != "" {
		out = append(out, line(m.note, prompt.Mark))
	}
	for _, s := range slices.Sorted(mapValues(m.problems)) {
		out = append(out, line(s, prompt.Mark))
		break // one is enough to look into
	}
	if m.net.open {
		out = append(out, m.netWhole()...)
	}
	switch {
	case m.net.open && m.width < narrow:
		return append(out, line("a session  p profile  jk move  esc back", prompt.Plain))
	case m.net.open:
		return append(out, line("a: allow for this session   p: add to the profile   up, down: move   esc: back", prompt.Plain))
	case m.filtering:
		return append(out, line("filter: "+prompt.Inert(m.filter)+"_  enter keeps it, esc clears", prompt.Strong))
	case m.filter != "":
		out = append(out, line("only: "+prompt.Inert(m.filter)+"  (esc: all)", prompt.Strong))
	}
	if m.width < narrow {
		return append(out, line("enter open  / filter  n net  q quit", prompt.Plain))
	}
	return append(out, line("enter: open   /: filter   n: refused by the network   up, down: move   q: quit", prompt.Plain))
}

func mapValues(of map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, v := range of {
			if !yield(v) {
				return
			}
		}
	}
}

// age is a time as m:ss, or h:mm:ss.
func age(d time.Duration) string {
	s := int(max(0, d).Round(time.Second).Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// fit cuts inert text to n columns, with a mark where it is cut.
func fit(s string, n int) string {
	if prompt.Cells(s) <= n {
		return s
	}
	used := 0
	for i, r := range s {
		c := prompt.Cells(string(r))
		if used+c > n-1 {
			return s[:i] + ">"
		}
		used += c
	}
	return s
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-prompt.Cells(s))) }

// pager shows lines that are longer than the screen.
type pager struct {
	title string
	lines []prompt.Line
	top   int
	rows  int
}

func (p *pager) key(name string) {
	switch name {
	case "up", "k":
		p.top--
	case "down", "j":
		p.top++
	case "pgup", "b":
		p.top -= p.rows
	case "pgdown", "space":
		p.top += p.rows
	case "home", "g":
		p.top = 0
	case "end", "G":
		p.top = len(p.lines)
	}
	p.top = max(0, min(p.top, len(p.lines)-p.rows))
}

func (p *pager) frame(cols, height int) []prompt.Line {
	out := []prompt.Line{{{Text: pad(fit(p.title, cols), cols), Style: prompt.Title}}}
	for i := range p.rows {
		if p.top+i < len(p.lines) {
			out = append(out, p.lines[p.top+i])
		} else {
			out = append(out, nil)
		}
	}
	keys := "esc: back"
	if len(p.lines) > p.rows {
		keys = fmt.Sprintf("esc: back   space, b: turn the page   %d-%d of %d", p.top+1, min(len(p.lines), p.top+p.rows), len(p.lines))
	}
	out = append(out,
		prompt.Line{{Text: strings.Repeat("-", cols), Style: prompt.Faint}},
		prompt.Line{{Text: fit(keys, cols), Style: prompt.Plain}})
	return out[:min(len(out), height)]
}

// showDetails lays out the selected request, which cannot be answered here.
func (m *model) showDetails() {
	r := m.find(m.selected)
	if r == nil {
		m.details = nil
		return
	}
	cols := m.cols()
	var out []prompt.Line
	field := func(label, text string) { out = append(out, wrapped(label, text, cols)...) }
	field("state     ", r.status())
	field("request   ", prompt.Inert(r.ask.ID))
	field("profile   ", prompt.Inert(r.ask.Domain.Profile))
	field("workspace ", prompt.Inert(r.ask.Domain.Workspace))
	field("sandbox   ", prompt.Inert(r.ask.Sandbox))
	field("session   ", prompt.Inert(r.ask.Session))
	field("asked in  ", prompt.Inert(r.ask.CWD))
	field("asked at  ", r.ask.Received.Format(time.DateTime))
	field("reason    ", prompt.Inert(r.ask.Justification))
	field("command   ", prompt.Quote(r.ask.Command))
	if r.view.Command != r.ask.Command {
		field("edited to ", prompt.Quote(r.view.Command))
	}
	field("program   ", prompt.Inert(r.view.Program))
	field("runs in   ", prompt.Inert(r.view.Dir))
	if r.out != nil && r.out.Why != "" {
		field("why       ", prompt.Inert(r.out.Why))
	}
	if r.out != nil && r.out.Result != nil {
		if err := r.out.Result.Err; err != nil {
			field("error     ", prompt.Inert(err.Error()))
		}
		out = append(out, output("stdout", r.out.Result.Stdout, cols)...)
		out = append(out, output("stderr", r.out.Result.Stderr, cols)...)
	}
	top := 0
	if m.details != nil {
		top = m.details.top
	}
	m.details = &pager{title: " Lazaret console: request", lines: out, rows: max(1, m.height-3), top: top}
	m.details.key("")
}

// output shows what a command has written, inert, its beginning.
func output(name string, data []byte, cols int) []prompt.Line {
	if len(data) == 0 {
		return nil
	}
	out := []prompt.Line{{{Text: fmt.Sprintf("%s, %d bytes:", name, len(data)), Style: prompt.Strong}}}
	n := 0
	for line := range strings.Lines(string(data)) {
		if n++; n > outputLines {
			return append(out, prompt.Line{{Text: "  (more lines)", Style: prompt.Faint}})
		}
		if line = strings.TrimSuffix(line, "\n"); len(line) > 4096 {
			line = line[:4096] + " (more)"
		}
		out = append(out, wrapped("  ", prompt.Inert(line), cols)...)
	}
	return out
}

// wrapped breaks inert text into lines below a label.
func wrapped(label, text string, cols int) []prompt.Line {
	room := max(4, cols-len(label))
	var out []prompt.Line
	for first := true; first || text != ""; first = false {
		end, used := 0, 0
		for end < len(text) {
			r, size := utf8.DecodeRuneInString(text[end:])
			c := prompt.Cells(string(r))
			if used+c > room {
				break
			}
			used, end = used+c, end+size
		}
		lead := label
		if !first {
			lead = strings.Repeat(" ", len(label))
		}
		out = append(out, prompt.Line{{Text: lead, Style: prompt.Faint}, {Text: text[:end]}})
		text = text[end:]
	}
	return out
}
