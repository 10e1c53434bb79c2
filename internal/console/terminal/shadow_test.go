package terminal

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/charmbracelet/x/vt"
)

// screenOf plays output on a terminal and describes what is seen then.
func screenOf(t *testing.T, width, height int, output ...string) *vt.Emulator {
	t.Helper()
	e := vt.NewEmulator(width, height)
	go func() { _, _ = io.Copy(io.Discard, e) }()
	t.Cleanup(func() { _ = e.Close() })
	for _, o := range output {
		if _, err := e.WriteString(o); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func describe(e *vt.Emulator) string {
	return fmt.Sprintf("%s\ncursor %v, hidden %v, alternate screen %v, colours %v %v",
		e.Render(), e.CursorPosition(), e.CursorHidden(), e.IsAltScreen(), e.ForegroundColor(), e.BackgroundColor())
}

// follow is a shadow that has seen output.
func follow(t *testing.T, width, height int, output string) *shadow {
	t.Helper()
	s := newShadow(width, height)
	go s.drain(func([]byte) {})
	t.Cleanup(s.close)
	for b := []byte(output); len(b) > 0; {
		n, k := next(b)
		if n == 0 {
			break
		}
		s.token(b[:n], k)
		b = b[n:]
	}
	return s
}

const lines = "one\r\ntwo \x1b[31mred\x1b[m\r\n"

func TestThePromptLeavesNoTrace(t *testing.T) {
	t.Parallel()
	// What the agent prints afterwards tells modes, colours and the cursor.
	const after = "x\x1b[2Cy\r\nqqq\x0eqq\x0f\x1b[Hhome\x1b[20;1Hlow\n\n\n\n\nend" +
		"\r" + "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234"
	for name, before := range map[string]string{
		"nothing":             "",
		"text":                lines,
		"colours":             lines + "\x1b[1;38;5;200;48;2;1;2;3m",
		"saved cursor":        lines + "\x1b[5;10H\x1b[32m\x1b7\x1b[2;3H\x1b[35m",
		"saved, sco":          lines + "\x1b[5;10H\x1b[s\x1b[2;3H",
		"margins":             lines + "\x1b[3;10r\x1b[9;1Hin",
		"hidden cursor":       lines + "\x1b[?25l",
		"no wrap":             lines + "\x1b[?7l",
		"line drawing":        lines + "\x1b(0qqq",
		"shifted":             lines + "\x1b)0\x0eqqq",
		"palette":             lines + "\x1b]11;#102030\a\x1b]10;#ffffff\x1b\\",
		"alternate":           lines + "\x1b[?1049h\x1b[H\x1b[44mfull\x1b[K\x1b[3;4Hscreen\x1b[m 報告 é",
		"alternate, edge":     "\x1b[?1049h\x1b[2;1H" + strings.Repeat("x", 80),
		"alternate, margins":  "\x1b[?1049h\x1b[5;9r\x1b[?6h\x1b[2;2Hin",
		"alternate, saved":    "\x1b[?1049h\x1b[5;9H\x1b7\x1b[2;2Hin",
		"alternate and back":  lines + "\x1b[?1049hgone\x1b[?1049lback",
		"alternate, 47":       lines + "\x1b[?47hthere",
		"link":                lines + "\x1b]8;;http://x\x1b\\linked",
		"reset":               lines + "\x1b[3;10r\x1bc" + lines,
		"tabs and erasing":    "a\tb\tc\r\n\x1b[1K\x1b[2;5Hx\x1b[1;3H\x1b[2P",
		"a full line":         lines + strings.Repeat("w", 79),
		"a full line and one": lines + strings.Repeat("w", 81),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := follow(t, 80, 24, before)
			enter, leave := s.enter(), s.leave()
			after := after
			if strings.Contains(before, "\x1b7") || strings.Contains(before, "\x1b[s") {
				after = "\x1b8z" + after
			}
			const shown = "\x1b[1;1HPROMPT\x1b[K\x1b[24;1Hbottom"
			for what, out := range map[string][]string{
				"at once": {before, enter, shown, leave},
				"later":   {before, enter, shown, leave, after},
			} {
				want := []string{before}
				if what == "later" {
					want = append(want, after)
				}
				a, b := describe(screenOf(t, 80, 24, want...)), describe(screenOf(t, 80, 24, out...))
				if a != b {
					t.Errorf("%s: without a prompt\n%s\nwith one\n%s\nleave is %q", what, a, b, leave)
				}
			}
		})
	}
}

// An agent that leaves a sequence open, its colours alike or the screen frozen
// does not hide the prompt.
func TestThePromptShows(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"open title": "\x1b]0;", "open string": "\x1bPq", "half a sequence": "\x1b[3", "half a character": "\xe2\x82",
		"concealed": "\x1b[8m", "black on black": "\x1b[30;40m", "no wrap": "\x1b[?7l", "margins": "\x1b[5;6r\x1b[?6h",
		"line drawing": "\x1b(0\x1b)0\x0e", "alternate": "\x1b[?1049h\x1b[31m", "link": "\x1b]8;;http://evil\x1b\\",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := follow(t, 80, 24, before)
			got := screenOf(t, 80, 24, before, s.enter(), "\x1b[1;1Hrequest\x1b[24;1Hend").Render()
			want := screenOf(t, 80, 24, "\x1b[1;1Hrequest\x1b[24;1Hend").Render()
			if got != want {
				t.Errorf("shows %q, want %q", got, want)
			}
		})
	}
	t.Run("colours of the default", func(t *testing.T) {
		t.Parallel()
		const before = "\x1b]10;#000000\a\x1b]11;#000000\a\x1b]4;1;#000000;2;#000000\a"
		s := follow(t, 80, 24, before)
		e := screenOf(t, 80, 24, before, s.enter())
		plain := screenOf(t, 80, 24)
		if e.ForegroundColor() != plain.ForegroundColor() || e.BackgroundColor() != plain.BackgroundColor() {
			t.Errorf("the agent's colours hold: %v on %v", e.ForegroundColor(), e.BackgroundColor())
		}
		for _, want := range []string{"\x1b]104;1\x1b\\", "\x1b]104;2\x1b\\"} {
			if !strings.Contains(s.enter(), want) {
				t.Errorf("no %q in %q", want, s.enter())
			}
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		n    int
		kind kind
	}{
		{"abc\x1b", 3, printed},
		{"a\xe2\x82\xac!", 5, printed},
		{"a\xe2\x82", 1, printed},
		{"\xe2\x82", 0, printed},
		{"\xff\xffa", 3, printed},
		{"\n", 1, control},
		{"\x1b", 0, escape},
		{"\x1b7x", 2, escape},
		{"\x1b(0x", 3, escape},
		{"\x1b(", 0, escape},
		{"\x1b\x1b[", 1, escape},
		{"\x1b[", 0, csi},
		{"\x1b[?1049h", 8, csi},
		{"\x1b[3\x18m", 4, csi},
		{"\x1b[3\x1b[m", 3, csi},
		{"\x1b]0;t\a.", 6, str},
		{"\x1b]0;t\x1b\\.", 7, str},
		{"\x1b]0;t", 0, str},
		{"\x1b]0;t\x1b", 0, str},
		{"\x1bPq\a.\x1b\\", 7, str},
		{"\x1bPq\x1b[m", 3, str},
	} {
		if n, k := next([]byte(c.in)); n != c.n || k != c.kind {
			t.Errorf("%q: %d %v, want %d %v", c.in, n, k, c.n, c.kind)
		}
	}
}

func FuzzShadow(f *testing.F) {
	f.Add("abc\x1b[31m\x1b[?1049h\x1b]11;red\a\x1b7\x1b[3;9r", 80, 24)
	f.Fuzz(func(t *testing.T, output string, width, height int) {
		width, height = 1+max(0, width%300), 1+max(0, height%100)
		s := follow(t, width, height, output)
		s.resize(width%80+1, height%40+1)
		if b := s.enter() + s.leave() + s.plain(); len(b) > 4<<20 {
			t.Errorf("%d bytes to restore a screen", len(b))
		}
	})
}
