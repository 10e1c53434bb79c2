package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Decode reads the one JSON value that data holds into v, strictly: no unknown
// name, no name twice, none in another case, nothing after the value. What two
// readers of a message could take differently is an error.
func Decode(data []byte, v any) error {
	if err := checkNames(data); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the JSON value")
	}
	return nil
}

// checkNames refuses objects that have a name twice, or one that is not in lower
// case: all names of the protocol are, and encoding/json takes any case for them.
// It stops at what is no JSON, which the decoder then tells.
func checkNames(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	// The objects and arrays around the next token; an array has no names.
	type level struct {
		names map[string]bool
		value bool // the next token of an object is a value
	}
	var open []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return nil //nolint:nilerr // the end, or the decoder's to tell
		}
		if d, ok := tok.(json.Delim); ok {
			switch d {
			case '{':
				open = append(open, level{names: map[string]bool{}})
			case '[':
				open = append(open, level{})
			default:
				open = open[:len(open)-1]
			}
			if d == '{' || d == '[' {
				continue // its own end is the end of the value
			}
		}
		if len(open) == 0 {
			continue
		}
		in := &open[len(open)-1]
		if in.names == nil {
			continue
		}
		name, isName := tok.(string)
		if isName && !in.value {
			if in.names[name] {
				return fmt.Errorf("name %.64q is there twice", name)
			}
			if !plainName(name) {
				return fmt.Errorf("unknown name %.64q: names are in lower case", name)
			}
			in.names[name] = true
		}
		in.value = !in.value
	}
}

func plainName(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}
