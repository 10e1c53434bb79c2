package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// object is a JSON object whose members keep their order and their raw text, so
// that what nobody edits is written back as it was read.
type object struct {
	raw     json.RawMessage // the text it was read from; stale once dirty
	members []member
	dirty   bool
}

type member struct {
	name  string // decoded
	key   json.RawMessage
	value json.RawMessage
}

// checkJSON refuses what is not exactly one JSON value in UTF-8. Everything else
// in this file may assume well-formed input.
func checkJSON(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	if json.Valid(data) {
		return nil
	}
	var v any // only to learn what is wrong, and where
	err := json.Unmarshal(data, &v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("not valid JSON at byte %d of %d: %w", syntax.Offset, len(data), err)
	}
	return fmt.Errorf("not valid JSON: %w", err)
}

// parseObject splits well-formed JSON. where names the value in errors. A name
// that occurs twice, or that differs only in case from one of known, is refused:
// encoding/json, and with it runsc, takes the last of both and folds case, so
// what we had checked need not be what runs.
func parseObject(raw json.RawMessage, where string, known []string) (*object, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return nil, fmt.Errorf("%s is not a JSON object", where)
	}
	o := &object{raw: raw}
	seen := make(map[string]bool)
	for i := next(raw, 1); raw[i] != '}'; {
		if raw[i] == ',' {
			i = next(raw, i+1)
		}
		end := skipValue(raw, i)
		m := member{key: raw[i:end]}
		if err := json.Unmarshal(m.key, &m.name); err != nil {
			return nil, fmt.Errorf("%s: member name: %w", where, err)
		}
		i = next(raw, next(raw, end)+1) // past the colon
		end = skipValue(raw, i)
		m.value = raw[i:end]
		i = next(raw, end)
		if seen[m.name] {
			return nil, fmt.Errorf("%s has the member %q twice; which of them counts is undefined", where, m.name)
		}
		seen[m.name] = true
		for _, k := range known {
			if k != m.name && strings.EqualFold(k, m.name) {
				return nil, fmt.Errorf("%s has a member %q, which readers that fold case take for %q", where, m.name, k)
			}
		}
		o.members = append(o.members, m)
	}
	return o, nil
}

// parseArray splits well-formed JSON; null is an empty array.
func parseArray(raw json.RawMessage, where string) ([]json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if isNull(raw) {
		return nil, nil
	}
	if raw[0] != '[' {
		return nil, fmt.Errorf("%s is not a JSON array", where)
	}
	var all []json.RawMessage
	for i := next(raw, 1); raw[i] != ']'; {
		if raw[i] == ',' {
			i = next(raw, i+1)
		}
		end := skipValue(raw, i)
		all = append(all, raw[i:end])
		i = next(raw, end)
	}
	return all, nil
}

// next is the index of the first byte from i on that is not white space.
func next(data []byte, i int) int {
	for i < len(data) && strings.IndexByte(" \t\r\n", data[i]) >= 0 {
		i++
	}
	return i
}

// skipValue is the index after the value that begins at i.
func skipValue(data []byte, i int) int {
	depth := 0
	for ; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if strings.IndexByte("-+.0123456789abcdefghijklmnopqrstuvwxyzE", data[i]) >= 0 {
				for i+1 < len(data) && strings.IndexByte(",]} \t\r\n", data[i+1]) < 0 {
					i++
				}
				break
			}
			continue // white space, comma, colon
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(data)
}

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// get returns nil for a member that is absent or null.
func (o *object) get(name string) json.RawMessage {
	if o == nil {
		return nil
	}
	for _, m := range o.members {
		if m.name == name && !isNull(m.value) {
			return m.value
		}
	}
	return nil
}

func (o *object) set(name string, value json.RawMessage) {
	for i := range o.members {
		if o.members[i].name == name {
			if !bytes.Equal(o.members[i].value, value) {
				o.members[i].value = value
				o.dirty = true
			}
			return
		}
	}
	o.members = append(o.members, member{name: name, key: encode(name), value: value})
	o.dirty = true
}

func (o *object) remove(name string) {
	for i := range o.members {
		if o.members[i].name == name {
			o.members = append(o.members[:i:i], o.members[i+1:]...)
			o.dirty = true
			return
		}
	}
}

func (o *object) bytes() json.RawMessage {
	if !o.dirty {
		return o.raw
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o.members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(m.key)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func joinArray(all []json.RawMessage) json.RawMessage {
	out := []byte{'['}
	for i, raw := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, raw...)
	}
	return append(out, ']')
}

// encode writes v, made of strings, numbers, slices and structs only, without
// the escapes for HTML.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("spec: encode %T: %v", v, err)) // such types cannot fail
	}
	return bytes.TrimSpace(b.Bytes())
}

// decode fills v, a pointer, from raw; absent and null leave it as it is.
func decode(raw json.RawMessage, where string, v any) error {
	if isNull(raw) {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

// fieldNames lists the JSON names of a struct of the runtime-spec.
func fieldNames[T any]() []string {
	t := reflect.TypeFor[T]()
	names := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
