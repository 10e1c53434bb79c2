package prompt

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// piece is one character as it is shown: text that no terminal acts upon, and the
// most cells that any terminal gives it.
type piece struct {
	text    string
	cells   int
	escaped bool
}

// most spaces that are shown as such; longer runs are counted.
const mostSpaces = 4

// Inert returns prose of the agent's (a justification, a path, a name) as text
// that a terminal shows and does nothing else with. Control, bidi and invisible
// characters, right-to-left letters and bytes that are not UTF-8 come as escapes,
// a backslash as two, so that nothing can look like an escape.
func Inert(s string) string { return text(prose(s)) }

// Quote returns one argument in double quotes as Inert text. Letters that could
// be taken for others come as escapes too, so that two arguments that look alike
// are alike.
func Quote(arg string) string { return text(quoted(arg)) }

// Cells is the most columns that a terminal needs for text of Inert or Quote.
func Cells(s string) int {
	n := 0
	for _, r := range s {
		n += cells(r)
	}
	return n
}

// cells counts two for whatever is not ASCII: terminals differ in what they take
// for wide, and a line that is broken early loses nothing.
func cells(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	return 2
}

func text(ps []piece) string {
	var b strings.Builder
	for _, p := range ps {
		b.WriteString(p.text)
	}
	return b.String()
}

func prose(s string) []piece { return pieces(s, shownInProse) }

func quoted(arg string) []piece {
	quote := piece{text: `"`, cells: 1}
	return append(append([]piece{quote}, word(arg)...), quote)
}

// word is an argument's inside.
func word(s string) []piece {
	latin, others := scripts(s)
	alone := others == 0 || others == 1 && !latin
	ps := pieces(s, func(r rune) bool { return shownInWord(r, alone) })
	for i := range ps {
		if ps[i].text == `"` {
			ps[i] = piece{text: `\"`, cells: 2, escaped: true}
		}
	}
	return ps
}

func pieces(s string, shown func(rune) bool) []piece {
	ps := make([]piece, 0, len(s))
	for i := 0; i < len(s); {
		if n := len(s[i:]) - len(strings.TrimLeft(s[i:], " ")); n > mostSpaces {
			ps = append(ps, escape(fmt.Sprintf(`\s{%d}`, n)))
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			ps = append(ps, escape(fmt.Sprintf(`\x%02x`, s[i])))
			size = 1
		case r == '\\':
			ps = append(ps, escape(`\\`))
		case r >= ' ' && r < 0x7f || r >= 0xa0 && shown(r):
			ps = append(ps, piece{text: string(r), cells: cells(r)})
		default:
			ps = append(ps, escape(escapeOf(r)))
		}
		i += size
	}
	return ps
}

func escape(s string) piece { return piece{text: s, cells: len(s), escaped: true} }

func escapeOf(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r == 0x1b:
		return `\e`
	case r < 0x100:
		return fmt.Sprintf(`\x{%02x}`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// shownInProse leaves text of the world's languages legible, as far as it is
// written from left to right and every character takes room of its own.
func shownInProse(r rune) bool {
	switch {
	case !unicode.IsGraphic(r), unicode.Is(unicode.Zs, r), hidden(r), rightToLeft(r):
		return false
	case unicode.Is(unicode.M, r):
		return !unicode.Is(unicode.Inherited, r) // that of a script, as Devanagari's
	}
	return true
}

// hidden characters are graphic by their class and show nothing.
func hidden(r rune) bool {
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
		r == 0x2800 || // a Braille cell without dots
		r == 0x00ad || r == 0x1d159
}

func rightToLeft(r rune) bool {
	// The blocks, not the scripts: characters of no script are in them too.
	return r >= 0x0590 && r <= 0x08ff || r >= 0xfb1d && r <= 0xfdff || r >= 0xfe70 && r <= 0xfeff ||
		r >= 0x10800 && r <= 0x10fff || r >= 0x1e800 && r <= 0x1efff
}

// shownInWord lets letters and digits of one script pass. alone says that the
// word's letters are of one script only, apart from those of East Asia.
func shownInWord(r rune, alone bool) bool {
	switch {
	case !shownInProse(r), !unicode.In(r, unicode.L, unicode.M, unicode.Nd):
		return false
	case eastAsian(r):
		return true
	case unicode.Is(unicode.Latin, r):
		// The rest has letters made to look like others.
		return r >= 0xc0 && r <= 0x17e || r >= 0x1e00 && r <= 0x1e99 || r >= 0x1ea0 && r <= 0x1eff
	case unicode.In(r, unicode.Common, unicode.Inherited):
		return false // letters for mathematics, full-width digits
	}
	return alone && len(lookAlikes(r)) == 0
}

// lookAlikes names a script whose letters are, one by one, taken for Latin ones,
// so that even a word of them alone is shown escaped when it could be a command:
// "сору" in Cyrillic letters is not "copy".
func lookAlikes(r rune) string {
	for name, table := range map[string]*unicode.RangeTable{
		"Cyrillic": unicode.Cyrillic, "Greek": unicode.Greek, "Armenian": unicode.Armenian,
		"Cherokee": unicode.Cherokee, "Coptic": unicode.Coptic, "Lisu": unicode.Lisu,
	} {
		if unicode.Is(table, r) {
			return name
		}
	}
	return ""
}

func eastAsian(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo) &&
		(r < 0xff00 || r > 0xffef) && // half-width forms
		(r < 0x2e80 || r > 0x2fdf) // radicals, which look like ideographs
}

// scripts tells whether a word has Latin letters, and of how many other scripts,
// those of East Asia aside.
func scripts(s string) (latin bool, others int) {
	seen := map[string]bool{}
	for _, r := range s {
		switch {
		case !unicode.IsLetter(r) || eastAsian(r):
		case unicode.Is(unicode.Latin, r):
			latin = true
		default:
			seen[scriptOf(r)] = true
		}
	}
	return latin, len(seen)
}

func scriptOf(r rune) string {
	for name, table := range unicode.Scripts {
		if unicode.Is(table, r) {
			return name
		}
	}
	return ""
}

// odd says what is remarkable of an argument, "" for nothing.
func odd(arg string) string {
	var what []string
	add := func(s string, is bool) {
		if is {
			what = append(what, s)
		}
	}
	var control, unseen, foreign, utf bool
	like := ""
	for i, r := range arg {
		switch {
		case r == utf8.RuneError:
			utf = utf || !strings.HasPrefix(arg[i:], string(utf8.RuneError))
			foreign = true
		case r < ' ' || r >= 0x7f && r < 0xa0:
			control = true
		case r < 0x7f:
		case hidden(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zs, r):
			unseen = true
		case !shownInWord(r, true):
			foreign = true
			if n := lookAlikes(r); n != "" {
				like = n
			}
		}
	}
	latin, others := scripts(arg)
	add("control characters", control)
	add("invisible or reordering characters", unseen)
	add("bytes that are not UTF-8", utf)
	add("letters of several scripts", others > 1 || others == 1 && latin)
	add(like+" letters, which look like Latin ones", like != "")
	add("characters that look like others", foreign && like == "" && !utf)
	add("long runs of spaces", strings.Contains(arg, strings.Repeat(" ", mostSpaces+1)))
	return strings.Join(what, ", ")
}
