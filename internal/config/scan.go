package config

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// Bounds of what a file may nest. The TOML parser recurses for each level and
// copies the whole key for each part of it, so a megabyte of "a.a.a…" or "[[[["
// would cost it minutes or the stack; the workspace file is the agent's to write.
const (
	maxNesting  = 8
	maxKeyParts = 8
	maxKeys     = 20_000 // parts of keys and elements of arrays together
	tooManyKeys = "has more than 20000 keys and values"
	malformed   = "is not valid TOML here"
)

// positions maps a key, as toml.Key.String spells it, to the line of its first
// mention; elements of arrays are "key[0]". The TOML library keeps positions to
// itself except in its own errors.
type positions map[string]int

// scanner walks over TOML just deeply enough to know keys, nesting and lines.
// It is as strict as the parser about where keys, strings and comments begin
// and end, and lenient about bare values.
type scanner struct {
	text  string
	i     int
	line  int
	keys  int
	found positions
	fault string // the first fault, "" = none
}

// scan returns the positions of text's keys, or a fault with its line: a bound
// that was passed, or something that is not TOML.
func scan(text string) (positions, string, int) {
	s := &scanner{text: text, line: 1, found: positions{}}
	s.document()
	return s.found, s.fault, s.line
}

func (s *scanner) fail(why string) bool {
	if s.fault == "" {
		s.fault = why
	}
	return false
}

func (s *scanner) malformed() bool { return s.fail(malformed) }

func (s *scanner) peek() byte {
	if s.i < len(s.text) {
		return s.text[s.i]
	}
	return 0 // NUL is refused before the scan
}

func (s *scanner) accept(prefix string) bool {
	if strings.HasPrefix(s.text[s.i:], prefix) {
		s.i += len(prefix)
		return true
	}
	return false
}

func (s *scanner) blanks() {
	for s.peek() == ' ' || s.peek() == '\t' {
		s.i++
	}
}

// space skips blanks, line ends and comments.
func (s *scanner) space() {
	for s.i < len(s.text) {
		switch s.text[s.i] {
		case ' ', '\t', '\r':
			s.i++
		case '\n':
			s.line++
			s.i++
		case '#':
			for s.i < len(s.text) && s.text[s.i] != '\n' {
				s.i++
			}
		default:
			return
		}
	}
}

func (s *scanner) note(path string, line int) {
	if _, ok := s.found[path]; !ok {
		s.found[path] = line
	}
}

func (s *scanner) document() {
	var table toml.Key
	for {
		s.space()
		if s.i >= len(s.text) {
			return
		}
		if s.peek() == '[' {
			s.i++
			array := s.accept("[")
			s.blanks()
			key, ok := s.key(nil)
			if !ok {
				return
			}
			if !s.accept("]") || array && !s.accept("]") {
				s.malformed()
				return
			}
			table = key
		} else if !s.pair(table, 0) {
			return
		}
		s.blanks()
		if c := s.peek(); s.i < len(s.text) && c != '\n' && c != '\r' && c != '#' {
			s.malformed()
			return
		}
	}
}

// pair reads KEY = VALUE below parent.
func (s *scanner) pair(parent toml.Key, depth int) bool {
	key, ok := s.key(parent)
	if !ok {
		return false
	}
	if !s.accept("=") {
		return s.malformed()
	}
	return s.value(key, key.String(), depth)
}

// key reads a dotted key and notes the line of each of its prefixes.
func (s *scanner) key(parent toml.Key) (toml.Key, bool) {
	key := append(make(toml.Key, 0, len(parent)+2), parent...)
	for {
		part, ok := s.keyPart()
		if !ok {
			return nil, false
		}
		key = append(key, part)
		if s.keys++; s.keys > maxKeys {
			return nil, s.fail(tooManyKeys)
		}
		if len(key) > maxKeyParts {
			return nil, s.fail("a key of more than " + strconv.Itoa(maxKeyParts) + " parts")
		}
		s.note(key.String(), s.line)
		s.blanks()
		if !s.accept(".") {
			return key, true
		}
		s.blanks()
	}
}

func (s *scanner) keyPart() (string, bool) {
	switch c := s.peek(); c {
	case '"', '\'':
		return s.shortString(c)
	}
	start := s.i
	for c := s.peek(); c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'; c = s.peek() {
		s.i++
	}
	if s.i == start {
		return "", s.malformed()
	}
	return s.text[start:s.i], true
}

// shortString reads a one-line string that begins with quote.
func (s *scanner) shortString(quote byte) (string, bool) {
	s.i++
	start := s.i
	for s.i < len(s.text) {
		switch c := s.text[s.i]; {
		case c == '\n':
			return "", s.malformed()
		case c == '\\' && quote == '"':
			s.i++ // whatever follows is part of the string
			if s.peek() == '\n' {
				return "", s.malformed()
			}
			s.i++
		case c == quote:
			raw := s.text[start:s.i]
			s.i++
			if quote == '"' {
				return unescape(raw), true
			}
			return raw, true
		default:
			s.i++
		}
	}
	return "", s.malformed()
}

// longString reads a string between triple quotes, whose first three are behind.
func (s *scanner) longString(quote byte) bool {
	closing := strings.Repeat(string(quote), 3)
	for s.i < len(s.text) {
		switch c := s.text[s.i]; {
		case c == '\\' && quote == '"':
			s.i++
			if s.peek() == '\n' {
				s.line++
			}
			s.i++
		case c == '\n':
			s.line++
			s.i++
		case s.accept(closing):
			// Up to two more quotes belong to the string.
			for range 2 {
				if s.peek() == quote {
					s.i++
				}
			}
			return true
		default:
			s.i++
		}
	}
	return s.malformed()
}

// value reads the value of key; path is its name, with an index below arrays.
func (s *scanner) value(key toml.Key, path string, depth int) bool {
	if depth > maxNesting {
		return s.fail("values nested more than " + strconv.Itoa(maxNesting) + " deep")
	}
	s.blanks()
	switch c := s.peek(); {
	case s.accept(`"""`):
		return s.longString('"')
	case s.accept(`'''`):
		return s.longString('\'')
	case c == '"' || c == '\'':
		_, ok := s.shortString(c)
		return ok
	case s.accept("["):
		return s.array(key, path, depth)
	case s.accept("{"):
		return s.inlineTable(key, depth)
	}
	start := s.i
	for s.i < len(s.text) && !strings.ContainsRune(",]}#\n", rune(s.text[s.i])) {
		s.i++
	}
	if strings.ContainsAny(s.text[start:s.i], "=[{\"'") || strings.TrimSpace(s.text[start:s.i]) == "" {
		return s.malformed()
	}
	return true
}

func (s *scanner) array(key toml.Key, path string, depth int) bool {
	for n := 0; ; n++ {
		s.space()
		if s.accept("]") {
			return true
		}
		if s.keys++; s.keys > maxKeys {
			return s.fail(tooManyKeys)
		}
		elem := path + "[" + strconv.Itoa(n) + "]"
		s.note(elem, s.line)
		if !s.value(key, elem, depth+1) {
			return false
		}
		s.space()
		if !s.accept(",") {
			if s.accept("]") {
				return true
			}
			return s.malformed()
		}
	}
}

func (s *scanner) inlineTable(key toml.Key, depth int) bool {
	for {
		s.space()
		if s.accept("}") {
			return true
		}
		if !s.pair(key, depth+1) {
			return false
		}
		s.space()
		if !s.accept(",") {
			if s.accept("}") {
				return true
			}
			return s.malformed()
		}
	}
}

// unescape resolves TOML's escapes in a quoted key. What is no escape stays as
// it is: the parser refuses such a file with a better message.
func unescape(raw string) string {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 >= len(raw) {
			b.WriteByte(raw[i])
			continue
		}
		i++
		digits := 0
		switch raw[i] {
		case 'b':
			b.WriteByte('\b')
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'f':
			b.WriteByte('\f')
		case 'r':
			b.WriteByte('\r')
		case 'e':
			b.WriteByte(0x1b)
		case 'x':
			digits = 2
		case 'u':
			digits = 4
		case 'U':
			digits = 8
		default:
			b.WriteByte(raw[i])
		}
		if digits > 0 && i+digits < len(raw) {
			if n, err := strconv.ParseUint(raw[i+1:i+1+digits], 16, 32); err == nil && n <= utf8.MaxRune {
				b.WriteRune(rune(n))
			}
			i += digits
		}
	}
	return b.String()
}
