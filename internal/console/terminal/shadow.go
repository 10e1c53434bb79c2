package terminal

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

// maxKept bounds each sequence of the agent's that is kept to be sent again, and
// maxColors how many colours of the palette.
const (
	maxKept   = 4096
	maxColors = 256
)

// shadow follows what the agent's output makes of the user's terminal: the
// screen by an emulator, and beside it the modes that a prompt changes, so that
// all can be brought back.
type shadow struct {
	emu    *vt.Emulator // nil when it has failed
	width  int
	height int
	parser *ansi.Parser

	modes   map[int]bool // DEC private modes that a prompt changes and the agent has set or reset
	insert  bool         // IRM
	alt     bool         // the alternate screen shows
	margins string       // the sequence that has set them, "" for none
	top     int          // the upper one, for origin mode
	sides   string       // likewise left and right
	pen     uv.Style
	link    string            // OSC 8 in force
	sets    [4]string         // designation of G0 to G3
	shift   byte              // SO or SI
	palette map[string]string // changes of it and of the default colours, by number
	saved   [2]*cursor        // DECSC of main and alternate screen
	wrap    bool              // the last token printed up to the right edge
}

type cursor struct {
	x, y int
	pen  uv.Style
}

func newShadow(width, height int) *shadow {
	s := &shadow{width: width, height: height, parser: ansi.NewParser()}
	s.parser.SetParamsSize(32)
	s.parser.SetDataSize(maxKept)
	s.emu = vt.NewEmulator(width, height)
	s.emu.SetScrollbackSize(1)
	s.reset()
	return s
}

func (s *shadow) reset() {
	s.modes, s.palette = map[int]bool{}, map[string]string{}
	s.insert, s.alt, s.wrap = false, false, false
	s.margins, s.sides, s.top, s.link, s.shift = "", "", 0, "", 0
	s.pen, s.sets, s.saved = uv.Style{}, [4]string{}, [2]*cursor{}
}

// drain passes on what the emulator answers, until the shadow is closed.
func (s *shadow) drain(to func([]byte)) {
	if s.emu == nil {
		return
	}
	buf := make([]byte, 1024)
	for {
		n, err := s.emu.Read(buf)
		if n > 0 {
			to(bytes.Clone(buf[:n]))
		}
		if err != nil {
			return
		}
	}
}

func (s *shadow) close() {
	if s.emu != nil {
		_ = s.emu.Close() // of a pipe in memory
	}
}

func (s *shadow) resize(width, height int) {
	s.width, s.height = width, height
	s.margins, s.top, s.sides = "", 0, ""
	s.guard(func() { s.emu.Resize(width, height) })
}

// guard calls f unless the emulator has failed: it reads what an agent wrote.
func (s *shadow) guard(f func()) {
	if s.emu == nil {
		return
	}
	defer func() {
		if recover() != nil {
			s.emu = nil
		}
	}()
	f()
}

// token takes one token in.
func (s *shadow) token(b []byte, k kind) {
	s.before(b, k)
	if k == printed {
		s.print(b)
		return
	}
	s.wrap = false
	s.write(b)
}

func (s *shadow) write(b []byte) {
	s.guard(func() { _, _ = s.emu.Write(b) }) // fails only when closed
}

// print takes text in, and finds out whether the cursor is past the right edge:
// only a character that was printed in the last column leaves it there.
func (s *shadow) print(b []byte) {
	s.wrap = false
	last := len(b) - 1
	if b[last] >= utf8.RuneSelf {
		s.write(b)
		return
	}
	if last > 0 {
		s.write(b[:last])
	}
	before, _ := s.position()
	s.write(b[last:])
	after, _ := s.position()
	on, known := s.modes[7]
	s.wrap = before == s.width-1 && after == before && (on || !known)
}

func (s *shadow) position() (x, y int) {
	s.guard(func() {
		p := s.emu.CursorPosition()
		x, y = p.X, p.Y
	})
	return x, y
}

// screen is 1 for the alternate screen.
func (s *shadow) screen() int {
	if s.alt {
		return 1
	}
	return 0
}

// before looks at tokens that are to be known before the emulator acts on them.
func (s *shadow) before(b []byte, k kind) {
	switch {
	case k == control && (b[0] == 0x0e || b[0] == 0x0f):
		s.shift = b[0]
	case k == escape && len(b) == 2:
		switch b[1] {
		case '7':
			s.save()
		case '8':
			s.recall()
		case 'c':
			s.reset()
		case '=':
			s.modes[66] = true
		case '>':
			s.modes[66] = false
		}
	case k == escape && len(b) == 3 && b[1] >= '(' && b[1] <= '+':
		s.sets[b[1]-'('] = string(b)
	case k == csi && len(b) <= maxKept:
		s.csi(b)
	case k == str && b[1] == ']' && len(b) <= maxKept:
		s.osc(b)
	}
}

func (s *shadow) save() {
	x, y := s.position()
	s.saved[s.screen()] = &cursor{x, y, s.pen}
}

func (s *shadow) recall() {
	if c := s.saved[s.screen()]; c != nil {
		s.pen = c.pen
	} else {
		s.pen = uv.Style{}
	}
}

// osc keeps links and colours.
func (s *shadow) osc(b []byte) {
	body := strings.TrimSuffix(strings.TrimSuffix(string(b[2:]), "\x1b\\"), "\a")
	num, rest, _ := strings.Cut(body, ";")
	if strings.Contains(rest, "?") && num != "8" {
		return // a query
	}
	switch num {
	case "8":
		s.link = ""
		if _, url, _ := strings.Cut(rest, ";"); url != "" {
			s.link = string(b)
		}
	case "4":
		f := strings.Split(rest, ";")
		for i := 0; i+1 < len(f); i += 2 {
			if n, err := strconv.Atoi(f[i]); err == nil && n >= 0 && n < maxColors {
				s.palette["4;"+strconv.Itoa(n)] = f[i+1]
			}
		}
	case "10", "11", "12", "17", "19":
		s.palette[num] = rest
	case "104":
		for k := range s.palette {
			if n, ok := strings.CutPrefix(k, "4;"); ok && (rest == "" || slices.Contains(strings.Split(rest, ";"), n)) {
				delete(s.palette, k)
			}
		}
	case "110", "111", "112", "117", "119":
		delete(s.palette, num[1:])
	}
}

// changed lists the DEC private modes that a prompt changes, with what it needs.
func changed() map[int]bool {
	m := map[int]bool{1: false, 2004: true, 2026: false}
	for _, off := range []int{5, 6, 7, 25, 66, 69, 9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2031, 2048} {
		m[off] = false
	}
	return m
}

// byDefault is what a terminal begins with.
func byDefault(mode int) bool { return mode == 7 || mode == 25 }

// csi follows modes, margins, colours and the saved cursor.
func (s *shadow) csi(b []byte) {
	ansi.DecodeSequence(b, ansi.NormalState, s.parser)
	cmd, params := ansi.Cmd(s.parser.Command()), s.parser.Params()
	if cmd.Intermediate() == '!' && cmd.Final() == 'p' { // DECSTR
		s.insert, s.margins, s.top, s.sides, s.pen, s.shift = false, "", 0, "", uv.Style{}, 0
		s.sets = [4]string{}
		for _, m := range []int{1, 6, 7, 25, 66, 69} {
			delete(s.modes, m)
		}
		return
	}
	if cmd.Intermediate() != 0 {
		return
	}
	switch on := cmd.Final() == 'h'; {
	case cmd.Prefix() == '?' && (on || cmd.Final() == 'l'):
		params.ForEach(-1, func(_, p int, _ bool) { s.private(p, on) })
	case cmd.Prefix() != 0:
	case on || cmd.Final() == 'l':
		params.ForEach(-1, func(_, p int, _ bool) {
			if p == 4 {
				s.insert = on
			}
		})
	case cmd.Final() == 'm':
		uv.ReadStyle(params, &s.pen)
	case cmd.Final() == 'r':
		top, _, _ := params.Param(0, 1)
		bottom, _, _ := params.Param(1, s.height)
		s.margins, s.top = "", 0
		if top > 1 || bottom < s.height {
			s.margins, s.top = string(b), max(0, top-1)
		}
	case cmd.Final() == 's' && s.modes[69]:
		s.sides = string(b)
	case cmd.Final() == 's':
		s.save()
	case cmd.Final() == 'u':
		s.recall()
	}
}

func (s *shadow) private(mode int, on bool) {
	switch mode {
	case 47, 1047, 1049:
		if on == s.alt {
			return
		}
		if on && mode == 1049 {
			s.save()
		}
		s.alt = on
		if !on && mode == 1049 {
			s.recall()
		}
		s.saved[1] = nil
	default:
		if _, known := changed()[mode]; known {
			s.modes[mode] = on
		}
		if mode == 69 && !on {
			s.sides = ""
		}
	}
}

// enter is what brings the user's terminal from the agent's state to an empty
// screen for a prompt, whatever the agent has left behind.
func (s *shadow) enter() string {
	var b strings.Builder
	b.WriteString("\x18\x1b\\\x1b[?2026l") // an open string would swallow the prompt
	if !s.alt {
		b.WriteString("\x1b[?1049h")
	}
	b.WriteString("\x1b[m")
	s.undo(&b)
	want := changed()
	for _, m := range slices.Sorted(maps.Keys(want)) {
		b.WriteString(set(m, want[m]))
	}
	b.WriteString("\x1b[r\x1b[2J\x1b[H")
	return b.String()
}

func set(mode int, on bool) string {
	switch {
	case mode == 66 && on:
		return "\x1b="
	case mode == 66:
		return "\x1b>"
	case on:
		return fmt.Sprintf("\x1b[?%dh", mode)
	}
	return fmt.Sprintf("\x1b[?%dl", mode)
}

// Beginnings of leave: the agent is on the main or on the alternate screen.
const (
	mainBack = "\x18\x1b\\\x1b[m\x1b[?1049l"
	altBack  = "\x18\x1b\\\x1b[m\x1b[?7l\x1b[2J"
)

// plain is what leaves the terminal as a shell expects it, at the agent's end or
// when it is suspended.
func (s *shadow) plain() string {
	var b strings.Builder
	b.WriteString("\x18\x1b\\\x1b[?2026l")
	if s.alt {
		b.WriteString("\x1b[?1049l")
	}
	s.undo(&b)
	want := changed()
	for _, m := range slices.Sorted(maps.Keys(want)) {
		if on, known := s.modes[m]; known && on != byDefault(m) {
			b.WriteString(set(m, byDefault(m)))
		}
	}
	if s.margins != "" {
		b.WriteString("\x1b7\x1b[r\x1b8")
	}
	b.WriteString("\x1b[m")
	return b.String()
}

// undo takes back what the agent has made of colours, character sets, links and
// insert mode, as far as it has.
func (s *shadow) undo(b *strings.Builder) {
	b.WriteString("\x1b(B\x0f\x1b[4l\x1b]8;;\x1b\\")
	for _, c := range slices.Sorted(maps.Keys(s.palette)) {
		if n, ok := strings.CutPrefix(c, "4;"); ok {
			b.WriteString("\x1b]104;" + n + "\x1b\\")
		} else {
			b.WriteString("\x1b]1" + c + "\x1b\\")
		}
	}
}

// leave is what brings the terminal from enter back to the agent's state of now.
func (s *shadow) leave() string {
	var b strings.Builder
	if s.alt {
		b.WriteString(altBack)
	} else {
		b.WriteString(mainBack)
	}
	for _, c := range slices.Sorted(maps.Keys(s.palette)) {
		b.WriteString("\x1b]" + c + ";" + s.palette[c] + "\x1b\\")
	}
	if s.alt {
		s.paint(&b)
	}
	b.WriteString(s.margins)
	want := changed()
	for _, m := range slices.Sorted(maps.Keys(want)) {
		on, known := s.modes[m]
		if !known {
			on = byDefault(m)
		}
		if on != want[m] && m != 2026 && m != 25 {
			b.WriteString(set(m, on))
		}
	}
	b.WriteString(s.sides)
	if s.insert {
		b.WriteString("\x1b[4h")
	}
	if on, known := s.modes[25]; on || !known {
		b.WriteString("\x1b[?25h")
	}
	if c := s.saved[s.screen()]; c != nil {
		b.WriteString(s.to(c.x, c.y) + sgr(c.pen) + "\x1b7")
	}
	if s.alt || s.saved[0] != nil {
		s.cursorBack(&b)
	} else {
		b.WriteString("\x1b8") // as 1049 has saved it, which is exact
	}
	b.WriteString(strings.Join(s.sets[:], ""))
	if s.shift != 0 {
		b.WriteByte(s.shift)
	}
	b.WriteString(s.link)
	if s.modes[2026] {
		b.WriteString("\x1b[?2026h")
	}
	return b.String()
}

// to moves the cursor, counted from the margin where the agent has it so.
func (s *shadow) to(x, y int) string {
	if s.modes[6] {
		y = max(0, y-s.top)
	}
	return fmt.Sprintf("\x1b[%d;%dH", y+1, x+1)
}

func sgr(pen uv.Style) string {
	if pen.IsZero() {
		return "\x1b[m"
	}
	return "\x1b[m" + pen.String()
}

// cursorBack puts the cursor where the agent has it, in its colours. At the right
// edge a character is printed once more: it leaves the cursor between two lines.
func (s *shadow) cursorBack(b *strings.Builder) {
	x, y := s.position()
	if s.wrap {
		s.guard(func() {
			if c := s.emu.CellAt(x, y); c != nil && c.Width == 1 {
				b.WriteString(s.to(x, y) + sgr(c.Style) + c.Content + sgr(s.pen))
				return
			}
			b.WriteString(s.to(x, y) + sgr(s.pen))
		})
		return
	}
	b.WriteString(s.to(x, y) + sgr(s.pen))
}

// paint draws the emulator's screen.
func (s *shadow) paint(b *strings.Builder) {
	var pen uv.Style
	var link uv.Link
	s.guard(func() {
		for y := range s.height {
			at := -1 // the column that the cursor is in
			for x := 0; x < s.width; {
				c := s.emu.CellAt(x, y)
				if c == nil || c.Width == 0 || blank(c) {
					x++
					continue
				}
				if at != x {
					fmt.Fprintf(b, "\x1b[%d;%dH", y+1, x+1)
				}
				if !c.Style.Equal(&pen) {
					b.WriteString(sgr(c.Style))
					pen = c.Style
				}
				if !c.Link.Equal(&link) {
					b.WriteString("\x1b]8;" + c.Link.Params + ";" + c.Link.URL + "\x1b\\")
					link = c.Link
				}
				b.WriteString(c.Content)
				x += c.Width
				at = x
			}
		}
	})
	b.WriteString("\x1b[m")
	if !link.IsZero() {
		b.WriteString("\x1b]8;;\x1b\\")
	}
}

func blank(c *uv.Cell) bool {
	return c.Content == " " && c.Style.IsZero() && c.Link.IsZero() || c.Content == ""
}

// answered reports whether the emulator answers this token itself.
func answered(b []byte, k kind) bool {
	if k != csi || len(b) < 3 {
		return false
	}
	switch string(b[2:]) {
	case "5n", "6n", "?6n", "c", "0c", ">c", ">0c":
		return true
	}
	return false
}
