package review

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a file holds ends no look, takes no more room than its bounds, and is the
// same for the same.
func FuzzParts(f *testing.F) {
	f.Add([]byte(`{"scripts":{"postinstall":"x"},"husky":null,"pnpm":[]}`))
	f.Add([]byte("[tool.poe.tasks]\nx = 1e400\n[package]\nbuild = false\n"))
	f.Add([]byte("# pack-refs\n" + strings.Repeat("a", 40) + " refs/replace/b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, parts := range map[string]func([]byte) map[string]string{
			"package.json": packageJSON, "composer.json": composerJSON, "deno.json": denoJSON, "pyproject.toml": pyproject, "Cargo.toml": cargoTOML, "packed-refs": replacements,
			"index": func(data []byte) map[string]string {
				return hiddenPaths(data, func(string) ([]byte, error) { return nil, errors.New("none") })
			},
		} {
			got := parts(data)
			if got == nil || len(got) > maxParts {
				t.Errorf("%s: %d parts", name, len(got))
			}
			if !maps.Equal(got, parts(data)) {
				t.Errorf("%s: differs from itself", name)
			}
		}
	})
}

// A record that was read is written as it was.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"tree":"/x","base":{"\u0000\"\\xff\"":{"rule":0,"mode":33188,"parts":{}}},"pending":["a"],"rules":["git: why"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parse(data)
		if err != nil {
			return
		}
		file := filepath.Join(t.TempDir(), "r.json")
		if err := r.save(file); err != nil {
			t.Skip() // a year that JSON does not know
		}
		back, err := load(file)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(r.convert(encode))
		b, _ := json.Marshal(back.convert(encode))
		var x, y record
		if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil || len(x.Base) != len(y.Base) || !slices.Equal(x.Pending, y.Pending) {
			t.Errorf("%s\n%s", a, b)
		}
	})
}

// Every pattern of the table is one that can match, and is met by its own name.
func TestTable(t *testing.T) {
	t.Parallel()
	rules := table()
	m := newMatcher(rules)
	for i := range rules {
		for _, name := range strings.Fields(rules[i].names) {
			if strings.Count(name, "*") > 1 || name != strings.ToLower(name) {
				t.Errorf("pattern %q", name)
			}
			path := strings.Trim(strings.ReplaceAll(name, "*", "x"), "/")
			dir, last := filepath.Split(path)
			dir = strings.TrimSuffix(dir, "/")
			var r *rule
			if strings.HasSuffix(name, "/") {
				r = m.dir(dir, last)
			} else {
				r = m.file(dir, last)
			}
			if r == nil {
				t.Errorf("%q is met by no rule", name)
			} else if r != &rules[i] && r.parts == nil && rules[i].parts != nil {
				t.Errorf("%q is met by %q first", name, r.why)
			}
			if first := strings.HasPrefix(name, "/"); first && m.file("sub", last) == &rules[i] && !strings.Contains(rules[i].names, " "+last) {
				t.Errorf("%q is met below the top", name)
			}
		}
	}
	if _, err := os.Stat("table.go"); err != nil {
		t.Fatal(err)
	}
}
