package podmanconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseVersion(t *testing.T) {
	for in, want := range map[string]Version{
		"podman version 4.3.1\n":  {4, 3, 1},
		"5.0.0-dev":               {5, 0, 0},
		"v4.9.4-rhel":             {4, 9, 4},
		"3.4.4+ds1":               {3, 4, 4},
		"podman version 4.8.0~rc": {4, 8, 0},
		"6.1":                     {6, 1, 0},
	} {
		if got, err := ParseVersion(in); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "podman", "4", "docker version 4.3.1", "4.3.1.2x", "99999.0.0", "-1.2.3"} {
		if got, err := ParseVersion(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}

func TestVersionAppends(t *testing.T) {
	for v, want := range map[Version]bool{
		{}: false, {3, 4, 4}: false, {4, 3, 1}: false, {4, 7, 2}: false, {4, 8, 0}: true, {4, 10, 0}: true, {5, 0, 0}: true,
	} {
		if v.Appends() != want {
			t.Errorf("%v: appends %v, want %v", v, v.Appends(), want)
		}
	}
}

func put(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFiles(t *testing.T) {
	root := t.TempDir()
	home := filepath.Join(root, "home", ".config")
	share := put(t, filepath.Join(root, "usr/share/containers/containers.conf"), "")
	sysB := put(t, filepath.Join(root, "etc/containers/containers.conf.d/60-b.conf"), "")
	sysA := put(t, filepath.Join(root, "etc/containers/containers.conf.d/10-a.conf"), "")
	put(t, filepath.Join(root, "etc/containers/containers.conf.d/20-off.conf.bak"), "")
	put(t, filepath.Join(root, "etc/containers/containers.conf.d/sub.conf/x.conf"), "")
	user := put(t, filepath.Join(home, "containers/containers.conf"), "")
	userD := put(t, filepath.Join(home, "containers/containers.conf.d/70-x.conf"), "")

	l := Layout{Root: root, ConfigHome: home}
	ours := filepath.Join(l.UserDropins(), "50-lazaret.conf")
	sysOurs := filepath.Join(l.SystemDropins(), "50-lazaret.conf")
	for _, c := range []struct {
		name, with string
		l          Layout
		want       []string
	}{
		{"user", "", l, []string{share, sysA, sysB, user, userD}},
		{"user with a drop-in to come", ours, l, []string{share, sysA, sysB, user, ours, userD}},
		{"root does not read the user's", sysOurs, Layout{Root: root}, []string{share, sysA, sysOurs, sysB}},
		{"a file that podman would not read is not added", "/elsewhere/50-lazaret.conf", l, []string{share, sysA, sysB, user, userD}},
		{
			"CONTAINERS_CONF stands for all", ours,
			Layout{Root: root, ConfigHome: home, Getenv: func(k string) string {
				return map[string]string{"CONTAINERS_CONF": "/own.conf"}[k]
			}},
			[]string{"/own.conf"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.l.Files(c.with)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	old, now := Version{4, 3, 1}, Version{5, 2, 0}
	for _, c := range []struct {
		name      string
		v         Version
		files     []string
		json      []string
		nocgroups []string
		err       string
	}{
		{name: "built in, 4.3", v: old, json: []string{"crun", "runc", "kata", "runsc", "krun"}, nocgroups: []string{"crun", "krun"}},
		{name: "built in, 5.2", v: now, json: []string{"crun", "runc", "kata", "runsc", "youki", "krun", "ocijail"}, nocgroups: []string{"crun", "krun"}},
		{
			name: "a later file replaces", v: old,
			files: []string{"[engine]\nruntime_supports_json=[\"a\"]\n", "[engine]\nruntime_supports_json=[\"b\"]\nruntime_supports_nocgroup=[]\n"},
			json:  []string{"b"}, nocgroups: []string{},
		},
		{
			name: "the key as the manual page spells it does nothing", v: old,
			files: []string{"[engine]\nruntime_supports_nocgroups=[\"x\"]\n"},
			json:  []string{"crun", "runc", "kata", "runsc", "krun"}, nocgroups: []string{"crun", "krun"},
		},
		{
			name: "append, and it stays switched on", v: now,
			files: []string{
				"[engine]\nruntime_supports_json=[\"a\"]\n",
				"[engine]\nruntime_supports_json=[\"b\", {append=true}]\n",
				"[engine]\nruntime_supports_json=[\"c\"]\n",
			},
			json: []string{"a", "b", "c"}, nocgroups: []string{"crun", "krun"},
		},
		{
			name: "append switched off again", v: now,
			files: []string{
				"[engine]\nruntime_supports_json=[\"b\", {append=true}]\n",
				"[engine]\nruntime_supports_json=[\"c\", {append=false}]\n",
			},
			json: []string{"c"}, nocgroups: []string{"crun", "krun"},
		},
		{name: "append is unreadable for 4.3", v: old, files: []string{"[engine]\nruntime_supports_json=[\"b\", {append=true}]\n"}, err: "4.8"},
		{name: "no TOML", v: old, files: []string{"[engine"}, err: "podman's configuration"},
		{name: "wrong type", v: old, files: []string{"[engine]\nruntime_supports_json=[1]\n"}, err: "want strings"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			paths := []string{filepath.Join(dir, "absent.conf")}
			for i, content := range c.files {
				paths = append(paths, put(t, filepath.Join(dir, string(rune('a'+i))+".conf"), content))
			}
			e, err := Load(paths, c.v)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.json, e.JSON); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.nocgroups, e.NoCgroups); diff != "" {
				t.Error(diff)
			}
			if len(c.files) == 0 && e.JSONFrom != "" {
				t.Errorf("built-in list said to come from %s", e.JSONFrom)
			}
		})
	}
}

func TestLoadRuntimes(t *testing.T) {
	dir := t.TempDir()
	a := put(t, filepath.Join(dir, "a.conf"), "[engine.runtimes]\nrunsc=[\"/a\"]\nlazaret=[\"/old\"]\n")
	b := put(t, filepath.Join(dir, "b.conf"), "[engine.runtimes]\nlazaret=[\"/new\"]\n")
	e, err := Load([]string{a, b}, Version{4, 3, 1})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"runsc": {"/a"}, "lazaret": {"/new"}}
	if diff := cmp.Diff(want, e.Runtimes); diff != "" {
		t.Error(diff)
	}
	if e.RuntimesFrom["lazaret"] != b || e.RuntimesFrom["runsc"] != a {
		t.Errorf("origins %v", e.RuntimesFrom)
	}
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte("[engine]\nruntime_supports_json=[\"b\", {append=true}]\n[engine.runtimes]\nx=[\"/y\"]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		e := Defaults(Version{5, 0, 0})
		if err := e.merge("f", data, Version{5, 0, 0}); err != nil {
			return
		}
		if d := Defaults(Version{5, 0, 0}); e.JSONFrom == "" && !cmp.Equal(d.JSON, e.JSON) {
			t.Fatalf("list changed to %q without an origin", e.JSON)
		}
	})
}
