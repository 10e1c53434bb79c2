package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Key describes one key of a configuration file, for the reference.
type Key struct {
	Section string   // such as "general" or "profiles.<name>.network"
	Name    string   // within the section
	Type    string   // what a file has to say, in words
	Allowed []string // the only values there are; nil for any of the type
	Default string   // as a file would say it; "" where the key is not set
}

// Keys lists every key that a file may have, in the order of `lazaret config show`.
// What depends on the user, such as data_root, has no Default.
func Keys() []Key {
	var keys []Key
	defaults := builtin(Options{}).defaults
	var walk func(section, dotted string, t *table)
	walk = func(section, dotted string, t *table) {
		for _, f := range t.fields {
			keys = append(keys, Key{section, f.name, f.kind.want(), f.allowed, defaultText(defaults[dotted+"."+f.name])})
		}
		for _, s := range t.tables {
			walk(strings.TrimPrefix(section+"."+s.name, "."), strings.TrimPrefix(dotted+"."+s.name, "."), s.table)
		}
		if t.each != nil {
			walk(section+".<name>", dotted+".*", t.each)
		}
	}
	walk("", "", schema(""))
	return slices.Clip(keys)
}

func defaultText(v any) string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return ""
		}
		return strconv.Quote(v)
	case bool:
		return strconv.FormatBool(v)
	case []string:
		words := make([]string, len(v))
		for i, w := range v {
			words[i] = strconv.Quote(w)
		}
		return "[" + strings.Join(words, ", ") + "]"
	case [][]string:
		if len(v) == 0 {
			return "[]"
		}
	case time.Duration:
		return strconv.Quote(strings.TrimSuffix(v.String(), "0s"))
	case nil:
		return ""
	}
	return fmt.Sprint(v)
}
