package presets

import (
	"slices"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/netrule"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	for name, host := range map[string]string{
		"@debian": "deb.debian.org", "@npm": "registry.npmjs.org", "@pypi": "files.pythonhosted.org", "@go": "proxy.golang.org",
		"@github": "github.com", "@anthropic": "api.anthropic.com", "@openai": "api.openai.com", "@google-ai": "generativelanguage.googleapis.com",
	} {
		got, err := Expand([]string{"a.test", name, "b.test:22"})
		if err != nil || !slices.Contains(got, host+":443") || got[0] != "a.test" || got[len(got)-1] != "b.test:22" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if _, err := netrule.Parse(name); err != nil {
			t.Error(err)
		}
		for _, e := range got[1 : len(got)-1] {
			r, err := netrule.Parse(e)
			if err != nil || r.Port == 0 || r.Wildcard || r.Host == "" {
				t.Errorf("%s: %s is wider than it needs to be: %v", name, e, err)
			}
		}
	}
	if got, err := Expand([]string{"@none"}); err == nil {
		t.Errorf("an unknown preset is %q", got)
	}
}
