package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/lazaret-dev/lazaret/internal/spell"
)

// Origin says who set a value. The zero Origin is Lazaret's built-in default.
type Origin struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// String is "FILE:LINE" or "default".
func (o Origin) String() string {
	if o.File == "" {
		return "default"
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}

// value is one effective setting: string, bool, []string, [][]string or
// time.Duration, with everybody who contributed to it.
type value struct {
	v       any
	origins []Origin
}

// layer is one parsed file: its settings by dotted key, and the profiles it names.
type layer struct {
	file     string
	values   map[string]value
	profiles map[string]Origin
	sum      string // SHA-256 of the bytes, hex
}

// parser collects the settings and all faults of one file.
type parser struct {
	layer  *layer
	lines  positions
	errs   Errors
	schema *table
}

// parseLayer reads data, the content of file. All faults of a file are told at
// once, except that bad syntax hides what follows it.
func parseLayer(file, home string, data []byte) (*layer, Errors) {
	sum := sha256.Sum256(data)
	p := &parser{
		layer: &layer{
			file: file, sum: hex.EncodeToString(sum[:]),
			values: map[string]value{}, profiles: map[string]Origin{},
		},
		schema: schema(home),
	}
	if err := checkText(file, data); err != nil {
		return p.layer, Errors{err}
	}
	doc, lines, err := parseTOML(file, string(data))
	if err != nil {
		return p.layer, Errors{err}
	}
	p.lines = lines
	p.table(nil, doc, p.schema)
	sort.SliceStable(p.errs, func(i, j int) bool { return p.errs[i].Line < p.errs[j].Line })
	return p.layer, p.errs
}

// checkText refuses what the TOML library would let pass or mangle.
func checkText(file string, data []byte) *Error {
	for _, bom := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if strings.HasPrefix(string(data[:min(len(data), 3)]), bom) {
			return &Error{File: file, Line: 1, Why: "begins with a byte order mark: save the file as plain UTF-8"}
		}
	}
	line := 1
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return &Error{File: file, Line: line, Why: fmt.Sprintf("byte 0x%02x is not UTF-8: save the file as plain UTF-8", data[i])}
		case r == 0:
			return &Error{File: file, Line: line, Why: "holds a NUL byte: save the file as plain UTF-8"}
		case r == '\n':
			line++
		}
		i += n
	}
	return nil
}

// parseTOML decodes text. A panic of the library would be a fault of the file
// to the developer, so it becomes an error as well.
func parseTOML(file, text string) (doc map[string]any, lines positions, ferr *Error) {
	lines, fault, line := scan(text)
	if fault != "" {
		// The parser words syntax errors better; give it no more than was scanned.
		end := len(text)
		for i, n := 0, 0; i < len(text); i++ {
			if text[i] == '\n' {
				if n++; n == line {
					end = i + 1
					break
				}
			}
		}
		if fault == malformed {
			if _, err := decode(file, text[:end]); err != nil {
				return nil, nil, err
			}
		}
		return nil, nil, &Error{File: file, Line: line, Why: fault}
	}
	doc, ferr = decode(file, text)
	return doc, lines, ferr
}

func decode(file, text string) (doc map[string]any, ferr *Error) {
	defer func() {
		if r := recover(); r != nil {
			doc, ferr = nil, &Error{File: file, Line: 1, Why: "cannot be parsed as TOML"}
		}
	}()
	_, err := toml.Decode(text, &doc)
	if err == nil {
		return doc, nil
	}
	ferr = &Error{File: file, Line: 1, Why: err.Error()}
	var pe toml.ParseError
	if errors.As(err, &pe) {
		ferr.Line, ferr.Key, ferr.Why = max(pe.Position.Line, 1), pe.LastKey, pe.Message
	}
	return nil, ferr
}

func (p *parser) line(path toml.Key, suffix string) int {
	if n, ok := p.lines[path.String()+suffix]; ok {
		return n
	}
	if suffix != "" {
		return p.line(path, "")
	}
	return max(p.lines[path.String()], 1)
}

func (p *parser) fail(path toml.Key, suffix string, e Error) {
	e.File, e.Line, e.Key = p.layer.file, p.line(path, suffix), path.String()+suffix
	p.errs = append(p.errs, &e)
}

// table walks over one table of the document beside its description.
func (p *parser) table(path toml.Key, doc map[string]any, t *table) {
	names := make([]string, 0, len(doc))
	for name := range doc {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		sub := append(slices.Clone(path), name)
		v := doc[name]
		switch {
		case t.each != nil:
			p.profile(sub, name, v, t.each)
		case t.sub(name) != nil:
			if m, ok := v.(map[string]any); ok {
				p.table(sub, m, t.sub(name))
			} else {
				p.fail(sub, "", Error{Why: fmt.Sprintf("must be a table, not %s", typeName(v)), Allowed: "[" + sub.String() + "]"})
			}
		case t.field(name) != nil:
			p.field(sub, v, t.field(name))
		default:
			p.unknown(sub, name, v, t)
		}
	}
}

func (p *parser) profile(path toml.Key, name string, v any, t *table) {
	if _, err := profileName(name); err != nil {
		p.fail(path, "", Error{Why: "is not a profile name", Allowed: ProfileNames})
		return
	}
	m, ok := v.(map[string]any)
	if !ok {
		p.fail(path, "", Error{Why: fmt.Sprintf("a profile must be a table, not %s", typeName(v)), Allowed: "[" + path.String() + "]"})
		return
	}
	p.layer.profiles[name] = Origin{p.layer.file, p.line(path, "")}
	p.table(path, m, t)
}

// unknown tells of a key that does not exist, and what was probably meant:
// a neighbour with a similar name, or the same name in another section.
func (p *parser) unknown(path toml.Key, name string, v any, t *table) {
	e := Error{Why: "unknown key", Allowed: strings.Join(t.names(), ", ")}
	if _, isTable := v.(map[string]any); isTable {
		e.Why = "unknown table"
	}
	parent := path[:len(path)-1]
	if n := spell.Nearest(name, t.names()); n != "" {
		e.Nearest = n
		if len(parent) > 0 {
			e.Nearest = parent.String() + "." + n
		}
		if strings.EqualFold(n, name) {
			e.Why += ", as keys are written in lower case"
		}
	} else if n := elsewhere(name, p.schema); n != "" {
		e.Nearest = n
	}
	p.fail(path, "", e)
}

// elsewhere finds the key of any section that name most likely means.
func elsewhere(name string, root *table) string {
	full := map[string]string{}
	var leaves []string
	var walk func(prefix string, t *table)
	walk = func(prefix string, t *table) {
		for _, n := range t.names() {
			if prefix != "" && full[n] == "" {
				full[n] = prefix + n
				leaves = append(leaves, n)
			}
		}
		for _, s := range t.tables {
			walk(prefix+s.name+".", s.table)
		}
		if t.each != nil {
			walk(prefix+"<name>.", t.each)
		}
	}
	walk("", root)
	return full[spell.Nearest(name, leaves)]
}

func (p *parser) set(path toml.Key, v any) {
	p.layer.values[path.String()] = value{v, []Origin{{p.layer.file, p.line(path, "")}}}
}

// field checks v and takes it over; a wrong value is told, never replaced.
func (p *parser) field(path toml.Key, v any, f *field) {
	switch f.kind {
	case kindString:
		if s, ok := v.(string); ok {
			p.str(path, s, f)
			return
		}
	case kindBool:
		if b, ok := v.(bool); ok {
			p.set(path, b)
			return
		}
	case kindDuration:
		if s, ok := v.(string); ok {
			p.duration(path, s, f)
			return
		}
	case kindStrings:
		if l, ok := p.strings(path, "", v); ok {
			p.list(path, l, f)
			return
		}
	case kindArgvs:
		if p.argvs(path, v, f) {
			return
		}
	case kindEnv:
		if p.env(path, v, f) {
			return
		}
	}
	p.fail(path, "", Error{Why: fmt.Sprintf("must be %s, not %s", f.kind.want(), typeName(v))})
}

func (p *parser) str(path toml.Key, s string, f *field) {
	if f.allowed != nil && !slices.Contains(f.allowed, s) {
		p.fail(path, "", Error{Why: fmt.Sprintf("bad value %q", s), Allowed: strings.Join(f.allowed, ", "), Nearest: spell.Nearest(s, f.allowed)})
		return
	}
	if s, ok := p.fix(path, "", s, f); ok {
		p.set(path, s)
	}
}

// fix applies the field's check to one string.
func (p *parser) fix(path toml.Key, suffix, s string, f *field) (string, bool) {
	if strings.ContainsRune(s, 0) { // neither paths nor environments nor argv can hold one
		p.fail(path, suffix, Error{Why: "holds a NUL character"})
		return "", false
	}
	if f.fix == nil {
		return s, true
	}
	s, err := f.fix(s)
	if err != nil {
		p.fail(path, suffix, Error{Why: err.Error()})
		return "", false
	}
	return s, true
}

func (p *parser) duration(path toml.Key, s string, f *field) {
	d, err := time.ParseDuration(s)
	if err != nil {
		p.fail(path, "", Error{Why: fmt.Sprintf("%q is not a duration", s), Allowed: f.kind.want()})
		return
	}
	if err := f.dur(d); err != nil {
		p.fail(path, "", Error{Why: err.Error()})
		return
	}
	p.set(path, d)
}

// strings takes an array of strings out of v. It is false if v is no array, and
// tells of each element that is no string; then the result is nil.
func (p *parser) strings(path toml.Key, suffix string, v any) ([]string, bool) {
	l, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]string, 0, len(l))
	bad := false
	for i, e := range l {
		s, ok := e.(string)
		if !ok {
			p.fail(path, fmt.Sprintf("%s[%d]", suffix, i), Error{Why: fmt.Sprintf("must be a string, not %s", typeName(e))})
			bad = true
			continue
		}
		out = append(out, s)
	}
	if bad {
		return nil, true
	}
	return out, true
}

func (p *parser) list(path toml.Key, l []string, f *field) {
	if l == nil { // told
		return
	}
	ok := true
	for i, s := range l {
		fixed, good := p.fix(path, fmt.Sprintf("[%d]", i), s, f)
		l[i], ok = fixed, ok && good
	}
	if !ok {
		return
	}
	if f.whole != nil {
		if i, err := f.whole(l); err != nil {
			suffix := ""
			if i >= 0 {
				suffix = fmt.Sprintf("[%d]", i)
			}
			p.fail(path, suffix, Error{Why: err.Error()})
			return
		}
	}
	p.set(path, l)
}

func (p *parser) argvs(path toml.Key, v any, f *field) bool {
	l, ok := v.([]any)
	if !ok {
		return false
	}
	out := make([][]string, 0, len(l))
	good := true
	for i, e := range l {
		suffix := fmt.Sprintf("[%d]", i)
		argv, ok := p.strings(path, suffix, e)
		switch {
		case !ok:
			p.fail(path, suffix, Error{Why: fmt.Sprintf("must be an array of words, such as [\"notify-send\", \"--urgency=low\"], not %s", typeName(e))})
			good = false
		case argv == nil: // told
			good = false
		default:
			if err := f.argv(argv); err != nil {
				p.fail(path, suffix, Error{Why: err.Error()})
				good = false
			}
		}
		out = append(out, argv)
	}
	if good {
		p.set(path, out)
	}
	return true
}

// env takes a table, or an array of "NAME=value" as container tools write it.
func (p *parser) env(path toml.Key, v any, f *field) bool {
	switch env := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(env))
		for name := range env {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			sub := append(slices.Clone(path), name)
			s, ok := env[name].(string)
			if !ok {
				p.fail(sub, "", Error{Why: fmt.Sprintf("must be a string, not %s", typeName(env[name]))})
				continue
			}
			p.variable(sub, sub, "", s, f)
		}
	case []any:
		l, _ := p.strings(path, "", v)
		seen := map[string]bool{}
		for i, s := range l {
			suffix := fmt.Sprintf("[%d]", i)
			name, val, ok := strings.Cut(s, "=")
			if !ok {
				p.fail(path, suffix, Error{Why: fmt.Sprintf("%q is not NAME=value", s)})
				continue
			}
			if seen[name] {
				p.fail(path, suffix, Error{Why: fmt.Sprintf("%q is set twice", name)})
				continue
			}
			seen[name] = true
			p.variable(append(slices.Clone(path), name), path, suffix, val, f)
		}
	default:
		return false
	}
	return true
}

// variable sets one variable; at and suffix are where the file writes it.
func (p *parser) variable(key, at toml.Key, suffix, s string, f *field) {
	if err := envName(key[len(key)-1]); err != nil {
		p.fail(at, suffix, Error{Why: err.Error()})
		return
	}
	if s, ok := p.fix(at, suffix, s, f); ok {
		p.layer.values[key.String()] = value{s, []Origin{{p.layer.file, p.line(at, suffix)}}}
	}
}

func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	case time.Time:
		return "a date or time"
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "an array of tables"
	}
	return fmt.Sprintf("%T", v)
}
