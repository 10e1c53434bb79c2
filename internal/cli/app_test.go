package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestNearest(t *testing.T) {
	names := []string{"init", "doctor", "status", "config", "domain"}
	for word, want := range map[string]string{
		"inti": "init", "statsu": "status", "docktor": "doctor", "conf": "config", "domian": "domain", "": "", "run": "", "bogus": "",
		strings.Repeat("x", 100000): "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("%.20q: got %q, want %q", word, got, want)
		}
	}
}

// Generated files in the repository come from the definition of today.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	check := func(dir, kind string, files map[string]string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if _, known := files[e.Name()]; !known {
				t.Errorf("%s/%s is not generated any more: remove it", dir, e.Name())
			}
		}
		for name, want := range files {
			got, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // a file of this repository
			if err != nil || string(got) != want {
				t.Errorf("%s/%s is not current (%v): go run ./cmd/lazaret gen %s packaging/%s", dir, name, err, kind, filepath.Base(dir))
			}
		}
	}
	check("../../packaging/man", "man", manPages())
	scripts := map[string]string{}
	for _, s := range completions() {
		scripts[s.file] = s.text
	}
	check("../../packaging/completions", "completion", scripts)
}

// Every visible command and flag is in the manual page and in all completions.
func TestNothingIsLeftOut(t *testing.T) {
	page := strings.NewReplacer(`\-`, "-", `\fB`, "", `\fP`, "").Replace(manPages()["lazaret.1"])
	var walk func(path string, commands []*cli.Command)
	walk = func(path string, commands []*cli.Command) {
		for _, c := range commands {
			if c.Hidden {
				if strings.Contains(page, path+" "+c.Name+"\n") {
					t.Errorf("hidden command %s in the manual page", c.Name)
				}
				continue
			}
			if c.Usage == "" {
				t.Errorf("%s %s has no usage line", path, c.Name)
			}
			if !strings.Contains(page, path+" "+c.Name) {
				t.Errorf("%s %s is not in the manual page", path, c.Name)
			}
			for _, f := range c.Flags {
				name := f.Names()[0]
				if !strings.Contains(page, "--"+name) {
					t.Errorf("--%s of %s is not in the manual page", name, c.Name)
				}
				for shell, s := range completions() {
					if !strings.Contains(s.text, "--"+name) && !strings.Contains(s.text, "-l "+name) {
						t.Errorf("--%s of %s is not in the completion for %s", name, c.Name, shell)
					}
				}
			}
			walk(path+" "+c.Name, c.Subcommands)
		}
	}
	walk("lazaret", newApp().Commands)
}

func FuzzNearest(f *testing.F) {
	f.Add("init")
	f.Fuzz(func(t *testing.T, word string) {
		names := visibleNames(newApp().Commands)
		got := nearest(word, names)
		for _, n := range names {
			if n == word && got != word {
				t.Fatalf("%q is a command, but %q is called nearer", word, got)
			}
		}
	})
}
