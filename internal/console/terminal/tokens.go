package terminal

import "unicode/utf8"

// kind is what a token of a terminal's stream is.
type kind int

const (
	printed kind = iota // text
	control             // one C0 character
	escape              // ESC and what belongs to it, but for the two below
	csi
	str // OSC, DCS, SOS, PM or APC, with its end
)

// Bytes of ECMA-48.
const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f
)

// next returns the length of b's first token. A token that is not complete has
// none, 0: more of it is to come. Sequences that are cut short by CAN, SUB or
// another ESC are complete.
func next(b []byte) (n int, k kind) {
	if len(b) == 0 {
		return 0, printed
	}
	switch c := b[0]; {
	case c == esc:
		return sequence(b)
	case c < ' ' || c == del:
		return 1, control
	}
	for n < len(b) && b[n] >= ' ' && b[n] != del {
		if b[n] < utf8.RuneSelf {
			n++
			continue
		}
		if !utf8.FullRune(b[n:]) {
			break
		}
		_, size := utf8.DecodeRune(b[n:])
		n += size
	}
	return n, printed
}

func sequence(b []byte) (n int, k kind) {
	if len(b) < 2 {
		return 0, escape
	}
	switch b[1] {
	case '[':
		return until(b, 2, csi, func(c byte) bool { return c >= 0x40 && c < del })
	case ']', 'P', 'X', '^', '_':
		return stringEnd(b, 2)
	case esc, can, sub:
		return 1, escape
	}
	return until(b, 1, escape, func(c byte) bool { return c >= '0' && c < del })
}

// until looks for the byte that ends a sequence whose head has from bytes.
// Control characters within it are a terminal's to execute at once.
func until(b []byte, from int, k kind, last func(byte) bool) (int, kind) {
	for i := from; i < len(b); i++ {
		switch c := b[i]; {
		case c == esc:
			return i, k
		case c == can || c == sub || last(c):
			return i + 1, k
		case c >= utf8.RuneSelf:
			return i, k // no part of a sequence
		}
	}
	return 0, k
}

// stringEnd looks for the end of a control string, from there on.
func stringEnd(b []byte, from int) (int, kind) {
	for i := from; i < len(b); i++ {
		switch b[i] {
		case can, sub:
			return i + 1, str
		case bel:
			if b[0] != esc || b[1] == ']' {
				return i + 1, str
			}
		case esc:
			if i+1 == len(b) {
				return 0, str
			}
			if b[i+1] == '\\' {
				return i + 2, str
			}
			return i, str
		}
	}
	return 0, str
}
