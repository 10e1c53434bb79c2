package dropin

import (
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

type parsed struct {
	Engine struct {
		JSON       []any               `toml:"runtime_supports_json"`
		NoCgroup   []any               `toml:"runtime_supports_nocgroup"`
		Documented []any               `toml:"runtime_supports_nocgroups"`
		Runtimes   map[string][]string `toml:"runtimes"`
	} `toml:"engine"`
}

func TestRenderIsTheTOMLThatPodmanReads(t *testing.T) {
	for _, c := range []struct {
		name string
		v    Values
		json []any
	}{
		{
			name: "whole lists",
			v:    Values{RuntimePath: "/usr/local/bin/lazaret-runtime", JSON: []string{"crun", "lazaret"}, NoCgroups: []string{"crun", "lazaret"}},
			json: []any{"crun", "lazaret"},
		},
		{
			name: "appending",
			v:    Values{RuntimePath: "/usr/local/bin/lazaret-runtime", JSON: []string{"lazaret"}, NoCgroups: []string{"lazaret"}, Append: true},
			json: []any{"lazaret", map[string]any{"append": true}},
		},
		{
			name: "awkward path",
			v:    Values{RuntimePath: `/home/J "ö" \n Doe/bin/lazaret-runtime`, JSON: []string{"lazaret"}, NoCgroups: []string{"lazaret"}},
			json: []any{"lazaret"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := Render(c.v)
			if err != nil {
				t.Fatal(err)
			}
			var p parsed
			if _, err := toml.Decode(string(data), &p); err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			if diff := cmp.Diff(c.json, p.Engine.JSON); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(p.Engine.NoCgroup, p.Engine.Documented); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(map[string][]string{"lazaret": {c.v.RuntimePath}}, p.Engine.Runtimes); diff != "" {
				t.Error(diff)
			}
			if got := Inspect(data); got != Intact {
				t.Errorf("own text inspected as %v", got)
			}
		})
	}
}

func TestRenderRefusesWhatTOMLCannotHold(t *testing.T) {
	for _, path := range []string{"", "/a\nb", "/a\x00", "/\xff", "/\x7f"} {
		if data, err := Render(Values{RuntimePath: path}); err == nil {
			t.Errorf("path %q gave\n%s", path, data)
		}
	}
}

func TestInspect(t *testing.T) {
	data, err := Render(Values{RuntimePath: "/x/lazaret-runtime", JSON: []string{"lazaret"}, NoCgroups: []string{"lazaret"}})
	if err != nil {
		t.Fatal(err)
	}
	own := string(data)
	for _, c := range []struct {
		name, content string
		want          Origin
	}{
		{"as written", own, Intact},
		{"a line added", own + "debug = true\n", Edited},
		{"the last newline gone", strings.TrimSuffix(own, "\n"), Edited},
		{"the path changed", strings.Replace(own, "/x/", "/y/", 1), Edited},
		{"a line above the header", "# mine\n" + own, Edited},
		{"the checksum emptied", strings.Replace(own, "sha256:", "", 1), Edited},
		{"no header", "[engine]\n", Foreign},
		{"the mark within a line only", "x = \"# lazaret-checksum: \"\n", Foreign},
		{"empty", "", Foreign},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Inspect([]byte(c.content)); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func FuzzRender(f *testing.F) {
	f.Add("/usr/bin/lazaret-runtime", "crun")
	f.Add(`/a"b\c`, `"]`)
	f.Fuzz(func(t *testing.T, path, name string) {
		data, err := Render(Values{RuntimePath: path, JSON: []string{name}, NoCgroups: []string{name}})
		if err != nil {
			return
		}
		var p parsed
		if _, err := toml.Decode(string(data), &p); err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if got := p.Engine.Runtimes["lazaret"]; len(got) != 1 || got[0] != path {
			t.Fatalf("path %q read back as %q", path, got)
		}
		if len(p.Engine.JSON) != 1 || p.Engine.JSON[0] != name {
			t.Fatalf("name %q read back as %q", name, p.Engine.JSON)
		}
		if Inspect(data) != Intact {
			t.Fatalf("own text not recognised:\n%s", data)
		}
	})
}
