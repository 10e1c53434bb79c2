package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lazaret-dev/lazaret/internal/config"
)

func TestConfigurationReferenceIsCurrent(t *testing.T) {
	const path = "../../docs/configuration.md"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := withReference(doc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(doc)); diff != "" {
		t.Errorf("%s is not current: go run ./cmd/lazaret gen config docs/configuration.md\n%s", path, diff)
	}
}

func TestEveryKeyHasAMeaning(t *testing.T) {
	known := map[string]bool{}
	for _, k := range config.Keys() {
		dotted := k.Section + "." + k.Name
		known[dotted] = true
		if keyMeaning()[dotted] == "" {
			t.Errorf("%s has no meaning in keyMeaning", dotted)
		}
		if k.Type == "" || k.Type == "unknown" {
			t.Errorf("%s has no type", dotted)
		}
	}
	for _, m := range []map[string]string{keyMeaning(), keyDefault()} {
		for dotted := range m {
			if !known[dotted] {
				t.Errorf("%s is described, and is no key", dotted)
			}
		}
	}
	for _, want := range []string{"| `masks` |", "`filtered`, `learn`, `none`, `open`", "`\"5m\"`", "`[\"/usr\", \"/etc\", \"/var/lib\", \"/opt\"]`"} {
		if !strings.Contains(configReference(), want) {
			t.Errorf("%q is not in the reference:\n%s", want, configReference())
		}
	}
}

// What config show prints for an unconfigured machine are the reference's defaults.
func TestReferenceHasTheDefaultsThatHold(t *testing.T) {
	conf, err := config.Load(config.Options{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	holds := map[string]string{}
	for _, v := range conf.Values("") {
		holds[strings.Replace(v.Key, "profiles.default.", "profiles.<name>.", 1)] = tomlValue(v.Value)
	}
	for _, k := range config.Keys() {
		dotted := k.Section + "." + k.Name
		if k.Default == "" {
			continue
		}
		if got := strings.ReplaceAll(holds[dotted], "5m0s", "5m"); got != k.Default {
			t.Errorf("%s: the reference says %s, config show %s", dotted, k.Default, got)
		}
	}
}
