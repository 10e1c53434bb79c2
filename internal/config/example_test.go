package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func exampleFile(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../example.toml")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExampleFile(t *testing.T) {
	h := newHost(t)
	h.opts.File = exampleFile(t)
	c := h.load()
	if got, want := c.Profiles(), []string{"claude", "codex", "default", "gemini", "opencode", "shell"}; !reflect.DeepEqual(got, want) {
		t.Fatalf("profiles %q, want %q", got, want)
	}
	for _, name := range c.Profiles() {
		p, err := c.Profile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Resolve(p, Anchor{Hash: "0123456789ab", Dir: "/d", Workspace: h.opts.Workspace})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == DefaultProfile {
			continue
		}
		if got.Image == "" || len(got.Command) == 0 || len(got.Persist) == 0 {
			t.Errorf("%s is not complete: %+v", name, got)
		}
		if got.Network.Mode != "filtered" || len(got.Network.Allow) == 0 {
			t.Errorf("%s reaches nothing, or everything: %+v", name, got.Network)
		}
	}
}

// What is a comment must be right when it is none.
func TestExampleFileWithoutComments(t *testing.T) {
	data, err := os.ReadFile(exampleFile(t))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), "auto_approve = []\n# auto", "auto")
	h := newHost(t)
	h.user(text)
	p := h.profile("claude")
	if len(p.Escalation.AutoApprove) != 1 {
		t.Errorf("got %+v", p)
	}
}
