// Package gitconf owns the reading of git's configuration: which places in a
// workspace the developer's git on the host obeys as configuration, or runs.
//
// It is a parser of its own, since the answer must not come from running git in
// a workspace that a sandbox wrote: git would obey what is in there.
package gitconf

import (
	"bytes"
	"fmt"
	"strings"
)

// MaxFile is how many bytes one configuration file may have.
const MaxFile = 1 << 20

// Var is one variable as git understands it.
type Var struct {
	// Section and Key are in lower case, but for a key that a NUL has cut out of the
	// section's name. Section is "" for a variable before any section, which git
	// takes too.
	Section, Key string
	// Subsection keeps its case, but for the old spelling [section.sub].
	Subsection string
	// Value is as git 2.45 and newer read it; older ones turn a tab within an
	// unquoted value into a space.
	Value string
	// HasValue is false for a key without "=", which means true.
	HasValue bool
}

// Name is the variable's whole name: section.subsection.key.
func (v Var) Name() string {
	switch {
	case v.Subsection != "":
		return v.Section + "." + v.Subsection + "." + v.Key
	case v.Section != "":
		return v.Section + "." + v.Key
	}
	return v.Key
}

// Parse reads a configuration file in git's syntax (git-config(1), "Syntax").
// What git refuses is an error that names the line; so is a file above MaxFile.
func Parse(data []byte) ([]Var, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("larger than %d bytes", MaxFile)
	}
	p := parser{data: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), line: 1}
	vars, ok := p.file()
	if !ok {
		return nil, fmt.Errorf("line %d: not git's configuration syntax", p.line)
	}
	return vars, nil
}

type parser struct {
	data []byte
	pos  int
	line int  // of the character that next returned
	nl   bool // next returned a newline: what follows is on another line
	eof  bool
}

// next returns one character; CR LF and the end of the file count as newline.
func (p *parser) next() byte {
	if p.nl {
		p.line++
		p.nl = false
	}
	if p.pos == len(p.data) {
		p.eof = true
		return '\n'
	}
	c := p.data[p.pos]
	p.pos++
	if c == '\r' && p.pos < len(p.data) && p.data[p.pos] == '\n' {
		p.pos++
		c = '\n'
	}
	p.nl = c == '\n'
	return c
}

func (p *parser) file() (vars []Var, ok bool) {
	var in Var // what the section gives to its variables
	comment := false
	for {
		c := p.next()
		switch {
		case p.eof:
			return vars, true
		case c == '\n':
			comment = false
		case comment || isSpace(c):
		case c == '#' || c == ';':
			comment = true
		case c == '[':
			name, ok := p.section()
			if !ok || len(name) == 0 {
				return nil, false
			}
			in = inherit(name)
		case isAlpha(c):
			v, ok := p.variable(in, c)
			if !ok {
				return nil, false
			}
			vars = append(vars, v)
		default:
			return nil, false
		}
	}
}

// section reads what follows "[", to the "]".
func (p *parser) section() (name []byte, ok bool) {
	for {
		c := p.next()
		switch {
		case p.eof:
			return nil, false
		case c == ']':
			return name, true
		case isSpace(c):
			return p.subsection(name, c)
		case !isKey(c) && c != '.':
			return nil, false
		}
		name = append(name, lower(c))
	}
}

func (p *parser) subsection(name []byte, c byte) ([]byte, bool) {
	for isSpace(c) {
		if c == '\n' {
			return nil, false
		}
		c = p.next()
	}
	if c != '"' {
		return nil, false
	}
	name = append(name, '.')
	for {
		c = p.next()
		switch c {
		case '"':
			return name, p.next() == ']'
		case '\\':
			c = p.next()
		}
		if c == '\n' {
			return nil, false
		}
		name = append(name, c)
	}
}

// variable reads the rest of a variable that begins with c.
func (p *parser) variable(v Var, c byte) (Var, bool) {
	var key []byte
	for ; !p.eof && isKey(c); c = p.next() {
		key = append(key, lower(c))
	}
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	if v.Key == "" {
		v.Key = string(key)
	}
	if c == '\n' {
		return v, true
	}
	if c != '=' {
		return v, false
	}
	value, ok := p.value()
	v.Value, v.HasValue = cString(value), true
	return v, ok
}

func (p *parser) value() (value []byte, ok bool) {
	var quote, comment bool
	trim := 0 // length without the blanks at the end, 0 for no such blanks
	for {
		c := p.next()
		switch {
		case c == '\n':
			if trim > 0 {
				value = value[:trim]
			}
			return value, !quote
		case comment:
			continue
		case isSpace(c) && !quote:
			if trim == 0 {
				trim = len(value)
			}
			if len(value) > 0 {
				value = append(value, c)
			}
			continue
		case (c == '#' || c == ';') && !quote:
			comment = true
			continue
		}
		trim = 0
		switch c {
		case '"':
			quote = !quote
			continue
		case '\\':
			switch c = p.next(); c {
			case '\n':
				continue
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			case 'n':
				c = '\n'
			case '\\', '"':
			default:
				return nil, false
			}
		}
		value = append(value, c)
	}
}

// inherit makes the part of a variable that its section's name gives. git takes
// the whole name apart, section.subsection.key, at its first and its last dot,
// and it ends at a NUL: so that [core "hookspath<NUL>"] says core.hookspath,
// whatever the key below it.
func inherit(name []byte) Var {
	whole := cString(append(name, '.'))
	last := strings.LastIndexByte(whole, '.')
	if last < 0 {
		return Var{Key: whole}
	}
	section, sub, _ := strings.Cut(whole[:last], ".")
	return Var{Section: section, Subsection: sub, Key: whole[last+1:]}
}

// cString ends at the first NUL: git hands names and values on as C strings.
func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isKey(c byte) bool   { return isAlpha(c) || c >= '0' && c <= '9' || c == '-' }

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
