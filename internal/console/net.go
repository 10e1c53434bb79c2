package console

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/lazaret-dev/lazaret/internal/console/prompt"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/netrule"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// Net is what a domain's filtered network has refused.
type Net struct {
	Of      domain.Anchor
	Learn   bool // it would have been refused, but passed
	Refused []Refused
}

// Refused is a destination that an entry in a list would allow.
type Refused struct {
	Entry string // as netrule writes it
	Count int
	Last  time.Time
}

// netOf is what of a network's refusals an entry could change, in the order in
// which they came, each once: the narrowest entry for each.
func netOf(st *wire.Status) Net {
	n := Net{Of: st.Domain}
	if st.Network == nil {
		return n
	}
	n.Learn = st.Network.Mode == "learn"
	settled := slices.Concat(st.Network.Allow, st.Network.Deny)
	for _, c := range st.Network.Session {
		settled = append(settled, c.Entry)
	}
	var rules []netrule.Rule
	for _, s := range settled {
		if r, err := netrule.Parse(s); err == nil {
			rules = append(rules, r)
		}
	}
	for _, b := range slices.Backward(st.Network.Blocked) { // the newest is first
		for _, e := range entries(&b) {
			r, err := netrule.Parse(e)
			if err != nil || r.Prefix.IsValid() && !r.Prefix.Addr().Is4() || slices.ContainsFunc(rules, func(by netrule.Rule) bool { return by.Covers(r) }) {
				continue // no entry for it, or one that is there
			}
			last, _ := time.Parse(time.RFC3339, b.Last) // then it was never
			i := slices.IndexFunc(n.Refused, func(f Refused) bool { return f.Entry == r.String() })
			if i < 0 {
				n.Refused = append(n.Refused, Refused{r.String(), b.Count, last})
				continue
			}
			n.Refused[i].Count += b.Count
			n.Refused[i].Last = last
		}
	}
	return n
}

// entries are those that would have let a destination pass.
func entries(b *wire.NetworkBlocked) []string {
	switch {
	case b.Port == 0 && b.Addr == "": // a question; what it is for is not known yet
		if b.Would {
			return nil // the connection tells
		}
		return []string{b.Name + ":443"}
	case b.Port == 0:
		return nil // of a protocol that has none
	case b.Name == "":
		return []string{fmt.Sprintf("%s:%d", b.Addr, b.Port)}
	}
	var out []string
	for _, name := range strings.Fields(b.Name) {
		out = append(out, fmt.Sprintf("%s:%d", name, b.Port))
	}
	return out
}

// netHead is how much of a row is before its entry; of two rows it is less.
const netHead = 34

// netKey names a row of the list of refused destinations.
type netKey struct{ socket, entry string }

// netView is that list, when it is open. Rows stay in the order in which they
// came, and the selection on what it was on: what comes in between a look and a
// key must not change what the key is for.
type netView struct {
	order    []netKey
	selected netKey
	open     bool
}

// takeNet brings the list up to date; nil for a domain that has gone.
func (m *model) takeNet(socket string, n *Net) {
	if n == nil {
		delete(m.nets, socket)
	} else {
		m.nets[socket] = n
		for _, r := range n.Refused {
			if k := (netKey{socket, r.Entry}); !slices.Contains(m.net.order, k) {
				m.net.order = append(m.net.order, k)
			}
		}
	}
	m.net.order = slices.DeleteFunc(m.net.order, func(k netKey) bool { return m.refused(k) == nil })
}

func (m *model) refused(k netKey) *Refused {
	n := m.nets[k.socket]
	if n == nil {
		return nil
	}
	i := slices.IndexFunc(n.Refused, func(r Refused) bool { return r.Entry == k.entry })
	if i < 0 {
		return nil
	}
	return &n.Refused[i]
}

func (m *model) pressNet(name string) tea.Cmd {
	at := slices.Index(m.net.order, m.net.selected)
	page := max(1, m.listRows()/m.rowHeight())
	move := func(to int) {
		if len(m.net.order) > 0 {
			m.net.selected = m.net.order[max(0, min(to, len(m.net.order)-1))]
		}
	}
	m.note = ""
	switch name {
	case "esc", "q", "n":
		m.net.open = false
	case "up", "k":
		move(at - 1)
	case "down", "j":
		move(at + 1)
	case "pgup":
		move(at - page)
	case "pgdown", "space":
		move(at + page)
	case "home", "g":
		move(0)
	case "end", "G":
		move(len(m.net.order) - 1)
	case "a", "p":
		if at < 0 {
			m.note = "select a destination first"
			return nil
		}
		return m.allow(m.net.selected, name == "p")
	}
	return nil
}

// allow lets the sandboxes of a domain reach something until it is no longer in
// use, and from then on where keep is.
func (m *model) allow(k netKey, keep bool) tea.Cmd {
	profile, d, save := m.nets[k.socket].Of.Profile, m.desks, m.save
	return func() tea.Msg {
		if !keep {
			return doneMsg{what: "not allowed", err: d.Allow(k.socket, k.entry), done: "allowed until the end: " + k.entry}
		}
		path, err := save(profile, k.entry)
		if err != nil {
			return doneMsg{what: "not added", err: err}
		}
		return doneMsg{
			what: "added to the profile, but not allowed now", err: d.Allow(k.socket, k.entry),
			done: fmt.Sprintf("added to profile %s: %s, in %s", profile, k.entry, path),
		}
	}
}

// netFrame is the list of refused destinations on the screen.
func (m *model) netFrame() []prompt.Line {
	title := fmt.Sprintf(" Lazaret console: %s", refusals(len(m.net.order)))
	out := []prompt.Line{{{Text: pad(fit(title, m.cols()), m.cols()), Style: prompt.Title}}}
	rows, each := m.listRows(), m.rowHeight()
	if len(m.net.order) == 0 {
		out = append(out, prompt.Line{{Text: fit(" nothing that an entry would allow has been refused", m.cols()), Style: prompt.Faint}})
	}
	at := slices.Index(m.net.order, m.net.selected)
	from := max(0, min(max(0, at)-rows/each/2, len(m.net.order)-rows/each))
	for i := from; i < len(m.net.order) && (i-from+1)*each <= rows; i++ {
		out = append(out, m.netRow(m.net.order[i], i == at)...)
	}
	for len(out) < 1+rows {
		out = append(out, nil)
	}
	return append(out, m.footer()...)[:min(m.height, 1+rows+len(m.footer()))]
}

func refusals(n int) string {
	if n == 1 {
		return "1 destination refused"
	}
	return fmt.Sprintf("%d destinations refused", n)
}

func (m *model) netRow(k netKey, selected bool) []prompt.Line {
	n, r := m.nets[k.socket], m.refused(k)
	mark, style := "  ", prompt.Plain
	if selected {
		mark, style = "> ", prompt.Cursor
	}
	times := fmt.Sprintf("%dx", r.Count)
	if n.Learn {
		times += " (passed)"
	}
	head := mark + fmt.Sprintf("%-11s %6s  %s  ", times, age(m.now().Sub(r.Last)), pad(fit(prompt.Inert(n.Of.Profile), 10), 10))
	if m.rowHeight() == 1 {
		where := ""
		if n.Of.Workspace != "" {
			where = "  (" + prompt.Inert(filepath.Base(n.Of.Workspace)) + ")"
		}
		return []prompt.Line{{{Text: pad(fit(head+r.Entry+where, m.cols()), m.cols()), Style: style}}}
	}
	return []prompt.Line{
		{{Text: pad(fit(head, m.cols()), m.cols()), Style: style}},
		{{Text: fit("    "+r.Entry, m.cols()), Style: prompt.Plain}},
	}
}

// netWhole is the selected entry where its row shows only a part: nobody is to
// allow what he has not seen.
func (m *model) netWhole() []prompt.Line {
	r := m.refused(m.net.selected)
	if r == nil || prompt.Cells(r.Entry) <= m.cols()-netHead {
		return nil
	}
	return wrapped("for ", r.Entry, m.cols())
}
