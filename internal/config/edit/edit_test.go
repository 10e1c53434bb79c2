package edit

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/lazaret-dev/lazaret/internal/config"
)

func TestAddAllow(t *testing.T) {
	t.Parallel()
	const e = "new.test:443"
	tests := []struct{ name, in, want string }{
		{"nothing there", "", "[profiles.dev.network]\nallow = [\"new.test:443\"]\n"},
		{"another profile", "[profiles.other.network]\nallow = [\"a.test\"]", "[profiles.other.network]\nallow = [\"a.test\"]\n\n[profiles.dev.network]\nallow = [\"new.test:443\"]\n"},
		{"a table without a list", "[profiles.dev.network] # mine\nmode = \"filtered\"\n", "[profiles.dev.network] # mine\nallow = [\"new.test:443\"]\nmode = \"filtered\"\n"},
		{"an empty list", "[profiles.dev.network]\nallow = [] # none\n", "[profiles.dev.network]\nallow = [\"new.test:443\"] # none\n"},
		{"one line", "[profiles.dev.network]\nallow = [\"a.test\", 'b.test'] # two\n", "[profiles.dev.network]\nallow = [\"a.test\", 'b.test', \"new.test:443\"] # two\n"},
		{"a last comma", "[profiles.dev.network]\nallow = [\"a.test\", ]\n", "[profiles.dev.network]\nallow = [\"a.test\", \"new.test:443\", ]\n"},
		{
			"lines with comments", "[profiles.dev.network]\nallow = [\n\t\"a.test\", # ] \"why\"\n\t# \"off.test\",\n\t\"b.test\" # last\n]\ndeny = [\"c.test\"]\n",
			"[profiles.dev.network]\nallow = [\n\t\"a.test\", # ] \"why\"\n\t# \"off.test\",\n\t\"b.test\", # last\n\t\"new.test:443\",\n]\ndeny = [\"c.test\"]\n",
		},
		{"dotted", "[profiles.dev]\nimage = \"x\"\nnetwork.allow = [\"a.test\"]\n", "[profiles.dev]\nimage = \"x\"\nnetwork.allow = [\"a.test\", \"new.test:443\"]\n"},
		{"quoted header", "[ profiles . \"dev\" . network ]\nallow=[\"a.test\"]\n", "[ profiles . \"dev\" . network ]\nallow=[\"a.test\", \"new.test:443\"]\n"},
		{"there already", "[profiles.dev.network]\nallow = [\"new.test:443\"]\n", "[profiles.dev.network]\nallow = [\"new.test:443\"]\n"},
		{"an inline table", "[profiles.dev]\nnetwork = { allow = [\"a.test\"] }\n", ""},
		{"an inline table without a list", "[profiles.dev]\nnetwork = { mode = \"filtered\" }\n", ""},
		{"a header in a string", "[profiles.dev]\nimage = \"\"\"\n[profiles.dev.network]\nallow = [\n\"\"\"\nnetwork.mode = \"filtered\"\n", ""},
		{"denied", "[profiles.dev.network]\ndeny = [\"new.test:443\"]\n", ""},
		{"not TOML", "[profiles", ""},
	}
	for _, tt := range tests {
		got, err := addAllow(tt.in, "dev", e)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %v\n%s\nwant\n%s", tt.name, err, got, tt.want)
		}
	}
}

func TestAddAllowKeepsTheFile(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	o := config.Options{Home: home}
	path, err := AddAllow(o, "dev", "A.test:443")
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatal(fi, err)
	}
	real := filepath.Join(home, "real.toml")
	if err := os.Rename(path, real); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(real, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, path); err != nil {
		t.Fatal(err)
	}
	if _, err := AddAllow(o, "dev", "b.test"); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Lstat(path); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Error("the link is none any more", err)
	}
	data, err := os.ReadFile(real)
	if err != nil || !strings.Contains(string(data), `allow = ["a.test:443", "b.test"]`) {
		t.Errorf("%s, %v", data, err)
	}
	if fi, err := os.Stat(real); err != nil || fi.Mode().Perm() != 0o644 {
		t.Error(fi, err)
	}
	for _, bad := range []string{"*", "a b", "https://x.test", "\"]"} {
		if _, err := AddAllow(o, "dev", bad); err == nil {
			t.Errorf("%q was added", bad)
		}
	}
	conf, err := config.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := conf.Profile("dev")
	if err != nil || len(p.Network.Allow) != 2 {
		t.Errorf("%v, %v", p.Network.Allow, err)
	}
}

// Whatever the file: what it becomes differs by the entry alone, or nothing comes
// of it.
func FuzzAddAllow(f *testing.F) {
	f.Add("[profiles.dev.network]\nallow = [\"a.test\"] # x\n")
	f.Add("profiles.dev.network.allow = [\n]\n")
	f.Add("profiles.dev.networK.allow=[]")
	f.Fuzz(func(t *testing.T, in string) {
		out, err := addAllow(in, "dev", "new.test")
		if err != nil {
			return
		}
		// Into maps: for fields of a struct the library takes names of another case.
		var m map[string]any
		if _, err := toml.Decode(out, &m); err != nil {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		for _, name := range []string{"profiles", "dev", "network"} {
			m, _ = m[name].(map[string]any)
		}
		if all, _ := m["allow"].([]any); slices.Contains(all, any("new.test")) {
			return
		}
		t.Errorf("%q became %q", in, out)
	})
}
