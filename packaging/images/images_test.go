package images

import (
	"reflect"
	"strings"
	"testing"
)

func TestDefault(t *testing.T) {
	p, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		text := Containerfile(name)
		_, npm := p.Npm[name]
		if npm != strings.Contains(text, "${PACKAGE}") || !strings.Contains(text, "FROM ${BASE}") || !strings.Contains(text, "\nCMD [") {
			t.Errorf("%s: pinned %v, and its Containerfile\n%s", name, npm, text)
		}
		if got := ByReference(Prefix + name + ":latest"); got != name {
			t.Errorf("%s is found as %q", name, got)
		}
	}
	for _, ref := range []string{Base, "localhost/lazaret/claude:1", "docker.io/library/claude", "claude", ""} {
		if got := ByReference(ref); got != "" {
			t.Errorf("%q is found as %q", ref, got)
		}
	}
}

func TestOver(t *testing.T) {
	std, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, wrong string }{
		{"nothing", "", ""},
		{"one version", "[npm]\nclaude = \"@anthropic-ai/claude-code@2.0.1\"", ""},
		{"all else", "base = \"debootstrap\"\nsuite = \"forky\"\nca = \"/etc/ca.pem\"\nmirror = \"http://m.test/debian\"\nregistry = \"https://r.test/npm/\"", ""},
		{"a pre-release of a fork", "[npm]\ncodex = \"@me/codex@1.2.3-rc.1\"", ""},
		{"a range", "[npm]\nclaude = \"@anthropic-ai/claude-code@^2\"", "not one version"},
		{"a tag", "[npm]\nclaude = \"@anthropic-ai/claude-code@latest\"", "not one version"},
		{"no version", "[npm]\nclaude = \"@anthropic-ai/claude-code\"", "name@version"},
		{"a URL", "[npm]\nclaude = \"https://x.test/a.tgz@1.2.3\"", "not the name"},
		{"a flag", "[npm]\nclaude = \"--prefix=/x@1.2.3\"", "not the name"},
		{"a command", "[npm]\nclaude = \"a$(id)@1.2.3\"", "not the name"},
		{"another image", "[npm]\nnosuch = \"a@1.2.3\"", "no such image"},
		{"the shell", "[npm]\nshell = \"a@1.2.3\"", "no such image"},
		{"an unknown key", "bsae = \"x\"", "unknown key"},
		{"a flag as base", "base = \"--volume=/:/\"", "base ="},
		{"a flag as mirror", "mirror = \"--foreign\"", "mirror ="},
		{"a relative ca", "ca = \"ca.pem\"", "absolute"},
		{"no registry", "registry = \"ftp://x.test\"", "URL"},
		{"no TOML", "base = \n", "line 1"},
		{"an empty base", "base = \"\"", "empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := std.Npm["claude"]
			p, err := std.Over(c.text)
			if std.Npm["claude"] != before {
				t.Fatal("the default pins have changed")
			}
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("got %v, want %q", err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := p.Text(std)
			if err != nil {
				t.Fatal(err)
			}
			again, err := std.Over(text)
			if err != nil || !reflect.DeepEqual(again, p) {
				t.Errorf("written\n%s\nread again as %+v (%v), want %+v", text, again, err, p)
			}
		})
	}
}

func FuzzOver(f *testing.F) {
	f.Add("[npm]\nclaude = \"@anthropic-ai/claude-code@2.0.1\"\n")
	f.Add("base = \"debootstrap\"\nca = \"/x\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		std, err := Default()
		if err != nil {
			t.Fatal(err)
		}
		p, err := std.Over(text)
		if err != nil {
			return
		}
		for name, pkg := range p.Npm {
			if strings.ContainsAny(pkg.String(), " \t\n'\"$`;|&<>\\(){}*?#") || strings.HasPrefix(pkg.String(), "-") {
				t.Errorf("%s: %q reaches a shell's command line", name, pkg)
			}
		}
		if strings.HasPrefix(p.Base, "-") || strings.HasPrefix(p.Mirror, "-") {
			t.Errorf("%+v reaches a command line as a flag", p)
		}
	})
}
