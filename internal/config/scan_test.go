package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/lazaret-dev/lazaret/internal/netrule"
)

func TestScanFindsLines(t *testing.T) {
	const text = `# comment with [brackets] and "quotes
top = 1
[a.b]   # trailing
x = [
  "1 ] # not the end",
  ['''
lines''', 2],
]
"quoted \"key\"" = """
[not.a.table]
y = 2
"""
z = { p = 1, q = { r = "}" } }

[[list]]
v = 1979-05-27 07:32:00
`
	found, fault, line := scan(text)
	if fault != "" {
		t.Fatalf("line %d: %s", line, fault)
	}
	for key, want := range map[string]int{
		"top": 2, "a": 3, "a.b": 3, "a.b.x": 4, "a.b.x[0]": 5, "a.b.x[1]": 6, "a.b.x[1][0]": 6, "a.b.x[1][1]": 7,
		`a.b."quoted \"key\""`: 9, "a.b.z": 13, "a.b.z.p": 13, "a.b.z.q.r": 13, "list": 15, "list.v": 16,
	} {
		if found[key] != want {
			t.Errorf("%s: line %d, want %d", key, found[key], want)
		}
	}
	if _, ok := found["not.a.table"]; ok {
		t.Error("the content of a string is taken for a table")
	}
}

// FuzzScan holds the scanner against the parser: it must understand whatever the
// parser does, and see the same keys, or its bounds would not protect the parser.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		"a = 1\n[b]\nc = \"x\"\n", "a.b = [1, [2], {c = 3}]", "'a' = '''x''''\n\"b\\n\" = \"\"\"y\\\"\"\"\"", "[[a]]\nb=1\n[[a]]\nb=2",
		"a = { b = 1, c = { d = 2 } } # x", "a = 1979-05-27T07:32:00Z\r\nb = inf\r\n", "x = \"\"\"\\\n   y\"\"\"", "\"\\u00e9\" = 1", "a = \"\"\nb=''",
		"a = [ # c\n 1, # d\n]\n", "a = {\n b = 1, # c\n}\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 || checkText("f", []byte(text)) != nil {
			return
		}
		found, fault, line := scan(text)
		if line < 1 || line > strings.Count(text, "\n")+1 {
			t.Errorf("line %d of %q", line, text)
		}
		if strings.Count(text, "[")+strings.Count(text, "{") > 200 || strings.Count(text, ".") > 200 {
			return // the parser itself would be too slow
		}
		var doc map[string]any
		md, err := toml.Decode(text, &doc)
		if err != nil {
			return
		}
		if fault == malformed {
			t.Fatalf("the parser reads what the scanner does not, line %d: %q", line, text)
		}
		if fault != "" {
			return
		}
		for _, k := range md.Keys() {
			if _, ok := found[k.String()]; !ok && !inArray(k, found) {
				t.Errorf("key %s is not found in %q", k, text)
			}
		}
	})
}

// inArray reports whether a parent of k is an array: tables in arrays have
// names of their own.
func inArray(k toml.Key, found positions) bool {
	for i := range k {
		if _, ok := found[k[:i+1].String()+"[0]"]; ok {
			return true
		}
	}
	return false
}

// FuzzLoad feeds bytes as the agent's file: never a panic, every error has its
// place, and whatever is accepted leaves the developer's limits standing.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		developer, "[profiles.default]\nmasks = [\"x\"]\n", "[profiles.default.network]\nallow = [\"example.org\"]\n",
		"[escalation]\nauto_approve = [[\"notify-send\", \"x\"]]\ntimeout = \"1s\"\n", "[profiles.default]\nenv = [\"MODE=safe\"]\n",
		"\xef\xbb\xbf", "[general]\r\n", "[profiles.\"a b\"]\n", "[[profiles.default]]\n", "x = [[[[[[[[[[",
	} {
		f.Add([]byte(s))
	}
	base, errs := parseLayer("/user", "/home/dev", []byte(developer))
	if len(errs) > 0 {
		f.Fatal(errs)
	}
	without := builtin(Options{Home: "/home/dev"}).with(base, false)
	f.Fuzz(func(t *testing.T, data []byte) {
		l, errs := parseLayer("/ws", "/home/dev", data)
		for _, e := range errs {
			if e.File != "/ws" || e.Line < 1 || e.Why == "" {
				t.Errorf("error without its place: %+v", e)
			}
			if strings.ContainsAny(e.Error(), "\x1b\n\r\x00") {
				t.Errorf("raw control character in %q", e)
			}
		}
		if len(errs) > 0 {
			return
		}
		with := without.with(l, true)
		if len(loosened(without, with, "/ws")) > 0 {
			return
		}
		for _, key := range []string{"profiles.default.image", "profiles.default.env.MODE", "profiles.default.volumes", "profiles.default.pass_env", "general.data_root", "runtime.sandbox"} {
			if show(with.get(key).v) != show(without.get(key).v) {
				t.Errorf("%s was changed to %v", key, with.get(key).v)
			}
		}
		if len(with.profiles) != len(without.profiles) {
			t.Error("a profile was added")
		}
		for _, m := range []string{".vscode", "secrets"} {
			if !slices.Contains(get[[]string](with, "profiles.default.masks"), m) {
				t.Errorf("mask %s is gone", m)
			}
		}
		if more := netrule.Uncovered(get[[]string](with, "profiles.default.network.allow"), get[[]string](without, "profiles.default.network.allow")); len(more) > 0 {
			t.Errorf("allowed: %q", more)
		}
		if mode := get[string](with, "profiles.closed.network.mode"); mode != "none" {
			t.Errorf("mode %s", mode)
		}
		if len(with.autoApprove("quiet")) > 0 {
			t.Errorf("approved: %q", with.autoApprove("quiet"))
		}
	})
}
