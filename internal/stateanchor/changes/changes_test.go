package changes

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/stateanchor/layer"
	"github.com/lazaret-dev/lazaret/test/overlay"
)

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if to, link := strings.CutPrefix(files[name], "-> "); link {
			if err := os.Symlink(to, p); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(p, []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func text(r *Report) (lines []string) {
	for _, p := range r.Packages {
		line := fmt.Sprintf("%s %s %s %s", p.Change, p.Manager, p.Name, p.Version)
		if p.From != "" {
			line += " from " + p.From
		}
		if p.Auto {
			line += " auto"
		}
		lines = append(lines, fmt.Sprintf("%s (%d)", line, p.Files))
	}
	for _, f := range r.Files {
		line := f.Change + " " + f.Type + " " + f.Path
		if f.Files > 0 {
			line += fmt.Sprintf(" (%d, %d bytes)", f.Files, f.Size)
		}
		if f.Package != "" {
			line += " of " + f.Package
		}
		lines = append(lines, line)
	}
	return append(lines, r.Notes...)
}

const oneStanza = "Package: %s\nStatus: install ok installed\nArchitecture: amd64\nVersion: %s\n\n"

func stanza(name, version string) string { return fmt.Sprintf(oneStanza, name, version) }

// image is a small distribution.
func image() map[string]string {
	return map[string]string{
		"lib": "-> usr/lib", "bin": "-> usr/bin",
		"var/lib/dpkg/status":             stanza("base", "1") + stanza("old", "1") + stanza("unwanted", "1"),
		"var/lib/dpkg/info/base.list":     "/.\n/usr\n/usr/bin\n/usr/bin/base\n",
		"var/lib/dpkg/info/old.list":      "/.\n/usr\n/usr/bin\n/usr/bin/old\n/lib/old.so.1\n",
		"var/lib/dpkg/info/unwanted.list": "/usr/bin/unwanted\n/usr/share/unwanted\n/usr/share/unwanted/data\n",
		"usr/bin/base":                    "base", "usr/bin/old": "1", "usr/lib/old.so.1": "1",
		"usr/bin/unwanted": "x", "usr/share/unwanted/data": "x",
		"usr/share/zone/a": "a", "usr/share/zone/b": "b",
		"usr/lib/python3/dist-packages/six-1.0.dist-info/METADATA": "Name: six\nVersion: 1.0\n",
		"usr/lib/python3/dist-packages/six-1.0.dist-info/RECORD":   "six.py,,\nsix-1.0.dist-info/METADATA,,\n",
		"usr/lib/python3/dist-packages/six.py":                     "1",
		"etc/passwd":                                               "root", "etc/touched": "same", "etc/hosts": "",
	}
}

// What an agent has done in one session, with both drivers.
func TestCompare(t *testing.T) {
	if !overlay.Inside(t) {
		return
	}
	for driver, style := range map[string]layer.Style{overlay.Kernel: layer.Kernel, overlay.Fuse: layer.Fuse} {
		t.Run(driver, func(t *testing.T) {
			lower := t.TempDir()
			write(t, lower, image())
			in := Input{Image: []layer.Layer{{Path: lower}}, Style: style, Ignore: []string{"/etc/target", "/opt/way/to/it"}}
			trees := map[string]*overlay.Tree{}
			for _, p := range []string{"/usr", "/etc", "/var/lib", "/opt"} {
				o := overlay.New(t, driver, lower+p)
				trees[p] = o
				in.Paths = append(in.Paths, Path{p, o.Upper})
			}
			usr, etc, lib, opt := trees["/usr"].Merged, trees["/etc"].Merged, trees["/var/lib"].Merged, trees["/opt"].Merged
			// apt
			write(t, lib, map[string]string{
				"dpkg/status":                   stanza("base", "1") + stanza("old", "2") + stanza("jq", "1.7") + stanza("libonig5", "6.9"),
				"dpkg/info/jq.list":             "/.\n/usr\n/usr/bin\n/usr/bin/jq\n/usr/share/doc/jq\n/usr/share/doc/jq/copyright\n/lib/jq.so\n",
				"dpkg/info/old.list":            "/usr/bin/old\n/lib/old.so.2\n",
				"dpkg/info/libonig5:amd64.list": "/usr/lib/libonig.so.5\n",
				"dpkg/info/jq.postinst":         "#!", "dpkg/info/base.prerm": "planted", "dpkg/info/base.list": "/usr/bin/base\n/usr\n", "dpkg/lock": "", "apt/lists/x": "x",
				"apt/extended_states": "Package: libonig5\nArchitecture: amd64\nAuto-Installed: 1\n\n",
			})
			write(t, usr, map[string]string{
				"bin/jq": "jq", "share/doc/jq/copyright": "c", "lib/jq.so": "j", "bin/old": "2", "lib/old.so.2": "2", "lib/libonig.so.5": "o",
				"share/doc/jq/planted": "mine", "bin/tool": "mine",
			})
			for _, gone := range []string{"lib/old.so.1", "bin/unwanted", "share/unwanted"} {
				if err := os.RemoveAll(filepath.Join(usr, gone)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Remove(filepath.Join(lib, "dpkg/info/unwanted.list")); err != nil {
				t.Fatal(err)
			}
			// alternatives
			write(t, etc, map[string]string{"alternatives/q": "-> /usr/bin/jq", "alternatives/evil": "-> /opt/evil"})
			write(t, usr, map[string]string{"bin/q": "-> /etc/alternatives/q", "bin/evil": "-> /etc/alternatives/evil"})
			// pip: an upgrade and a new one
			if err := os.RemoveAll(filepath.Join(usr, "lib/python3/dist-packages/six-1.0.dist-info")); err != nil {
				t.Fatal(err)
			}
			write(t, usr, map[string]string{
				"lib/python3/dist-packages/six-2.0.dist-info/METADATA":         "Name: Six\nVersion: 2.0\n",
				"lib/python3/dist-packages/six-2.0.dist-info/RECORD":           "six.py,,\n__pycache__/six.cpython-313.pyc,,\nsix-2.0.dist-info/METADATA,,\n",
				"lib/python3/dist-packages/six.py":                             "2",
				"lib/python3/dist-packages/__pycache__/six.cpython-313.pyc":    "2",
				"local/lib/python3.13/dist-packages/tool_x-3.dist-info/RECORD": "tool_x/__init__.py,,\n../../../bin/tool-x,,\n",
				"local/lib/python3.13/dist-packages/tool_x/__init__.py":        "", "local/bin/tool-x": "#!",
			})
			// npm
			write(t, usr, map[string]string{
				"local/lib/node_modules/cow/package.json": `{"name":"cow","version":"1.0.0"}`, "local/lib/node_modules/cow/node_modules/dep/package.json": `{"name":"dep","version":"9.9.9"}`,
				"local/lib/node_modules/@s/p/package.json": `{"name":"@s/p","version":"2.0.0"}`, "local/bin/cow": "-> ../lib/node_modules/cow/cli.js",
			})
			// files: one changed, one only touched, one deleted, a directory made again, a new tree
			write(t, etc, map[string]string{"passwd": "root2", "touched": "same", "target": "", "odd\nname\x1b[2J": "x"})
			if err := os.RemoveAll(filepath.Join(usr, "share/zone")); err != nil {
				t.Fatal(err)
			}
			write(t, usr, map[string]string{"share/zone/b": "b", "share/zone/c": "c"})
			write(t, opt, map[string]string{"a/one": "1", "a/b/two": "22", "a/b/c/three": "333"})
			if err := os.Chmod(filepath.Join(usr, "share"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(opt, "way/to/it"), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, o := range trees {
				o.Unmount()
			}
			got, err := Compare(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{
				// How many of the changes belong to each.
				"added apt jq 1.7 (6)", "added apt libonig5 6.9 auto (1)", "upgraded apt old 2 from 1 (3)", "removed apt unwanted 1 (2)",
				"added npm @s/p 2.0.0 (0)", "added npm cow 1.0.0 (0)", "upgraded pip Six 2.0 from 1.0 (0)", "added pip tool_x 3 (0)",
				"added directory /etc/alternatives", "added link /etc/alternatives/evil", "added file /etc/odd\nname\x1b[2J", "changed file /etc/passwd",
				"added directory /opt/a (3, 6 bytes)", "added link /usr/bin/evil", "added file /usr/bin/tool",
				"changed directory /usr/share", "added directory /usr/share/doc", "added file /usr/share/doc/jq/planted",
				"deleted file /usr/share/zone/a", "added file /usr/share/zone/c", "added file /var/lib/dpkg/info/base.prerm",
			}
			for i := range got.Packages {
				if got.Packages[i].Manager != "apt" {
					if got.Packages[i].Files == 0 {
						t.Errorf("no files of %s", got.Packages[i].Name)
					}
					got.Packages[i].Files = 0
				}
			}
			if lines := text(got); !slices.Equal(lines, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
			}
			in.All = true
			all, err := Compare(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(all.Files); n <= len(got.Files) || all.Folded != 0 || got.Folded == 0 {
				t.Errorf("all: %d files, folded %d; else %d and %d", n, all.Folded, len(got.Files), got.Folded)
			}
			for _, w := range []string{"added file /usr/bin/jq of jq", "deleted directory /usr/share/unwanted of unwanted", "added file /opt/a/b/c/three", "added link /usr/local/bin/cow of cow"} {
				if !slices.Contains(text(all), w) {
					t.Errorf("all lack %q:\n%s", w, strings.Join(text(all), "\n"))
				}
			}
		})
	}
}

// Nothing was changed; and an image that is not there.
func TestNothing(t *testing.T) {
	t.Parallel()
	lower, upper := t.TempDir(), t.TempDir()
	write(t, lower, image())
	in := Input{Image: []layer.Layer{{Path: lower}}, Paths: []Path{{"/usr", upper}, {"/lib", upper}, {"/etc", upper + "/missing"}}}
	r, err := Compare(t.Context(), in)
	if err != nil || len(text(r)) > 0 {
		t.Errorf("%v, %v", text(r), err)
	}
	in.Image[0].Path = upper + "/missing"
	if _, err := Compare(t.Context(), in); err == nil {
		t.Error("no error without an image")
	}
}

// What an agent can put in the way makes a note, no more.
func TestHostile(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(lib string) error{
		"a link as database": func(lib string) error { return os.Symlink("/etc/passwd", lib+"/dpkg/status") },
		"a FIFO as database": func(lib string) error { return unix.Mkfifo(lib+"/dpkg/status", 0o600) },
		"a directory":        func(lib string) error { return os.Mkdir(lib+"/dpkg/status", 0o700) },
		"a huge database": func(lib string) error {
			if err := os.WriteFile(lib+"/dpkg/status", nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(lib+"/dpkg/status", 1<<40)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lower, lib := t.TempDir(), t.TempDir()
			write(t, lower, image())
			if err := os.Mkdir(lib+"/dpkg", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := make(lib); err != nil {
				t.Fatal(err)
			}
			r, err := Compare(t.Context(), Input{Image: []layer.Layer{{Path: lower}}, Paths: []Path{{"/var/lib", lib}}})
			if err != nil || len(r.Notes) == 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	t.Run("deep", func(t *testing.T) {
		t.Parallel()
		lower, opt := t.TempDir(), t.TempDir()
		root, err := os.OpenRoot(opt)
		if err != nil {
			t.Fatal(err)
		}
		for range maxDepth + 100 {
			if err := root.Mkdir("d", 0o755); err != nil {
				t.Fatal(err)
			}
			next, err := root.OpenRoot("d")
			if err != nil {
				t.Fatal(err)
			}
			_ = root.Close()
			root = next
		}
		_ = root.Close()
		r, err := Compare(t.Context(), Input{Image: []layer.Layer{{Path: lower}}, Paths: []Path{{"/opt", opt}}})
		if err != nil || !r.Cut || len(r.Files) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
