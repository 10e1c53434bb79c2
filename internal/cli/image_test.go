package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/packaging/images"
)

func TestNewestVersion(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		status       int
		want, wrong  string
	}{
		{"a version", `{"name": "@a/b", "version": "1.2.3", "dist": {}}`, 200, "1.2.3", ""},
		{"about another package", `{"name": "@a/c", "version": "1.2.3"}`, 200, "", "answers about"},
		{"what is no version", `{"name": "@a/b", "version": "1.2.3 --foreground-scripts"}`, 200, "", "not one version"},
		{"none", `{"name": "@a/b"}`, 200, "", "not one version"},
		{"no JSON", `<html>`, 200, "", "read the answer"},
		{"not found", `{}`, 404, "", "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.URL.EscapedPath(); got != "/npm/@a%2Fb/latest" {
					t.Errorf("asked for %q", got)
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.answer))
			}))
			defer s.Close()
			got, err := newestVersion(t.Context(), s.URL+"/npm", "@a/b")
			if got != c.want || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("got %q, %v; want %q, %q", got, err, c.want, c.wrong)
			}
		})
	}
}

// Each profile of example.toml has the image of its name.
func TestImageNames(t *testing.T) {
	load := func(file string) *config.Config {
		t.Helper()
		cfg, err := config.Load(config.Options{Home: t.TempDir(), File: file})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	example, err := filepath.Abs("../../example.toml")
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(other, []byte("[profiles.mine]\nimage = \"localhost/lazaret/codex:latest\"\n[profiles.claude]\nimage = \"docker.io/library/node:22\"\n[profiles.gemini]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file string
		profiles   []string
		want       []string
		wrong      string
	}{
		{"the example's", example, images.Names(), images.Names(), ""},
		{"without a configuration", "", images.Names(), images.Names(), ""},
		{"by another profile, once", other, []string{"mine", "codex"}, []string{"codex"}, ""},
		{"a profile without an image", other, []string{"gemini"}, []string{"gemini"}, ""},
		{"a profile with another image", other, []string{"claude"}, nil, "none of Lazaret's"},
		{"neither", example, []string{"nosuch"}, nil, "neither a profile"},
		{"a profile of no image's name", example, []string{"default"}, nil, "neither a profile"},
		{"the base", example, []string{"base"}, nil, "neither a profile"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := imageNames(load(c.file), c.profiles)
			if !slices.Equal(got, c.want) || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("got %q, %v; want %q, %q", got, err, c.want, c.wrong)
			}
		})
	}
}

func TestBuiltImages(t *testing.T) {
	got, err := builtImages(`[{"Names": ["localhost/lazaret/shell:latest", "localhost/mine:1"], "Labels": {"dev.lazaret.image": "shell"}, "CreatedAt": "2026-11-30T15:42:20Z"},
		{"Names": null, "Labels": {"dev.lazaret.image": "claude"}, "CreatedAt": "2026-11-29T15:42:20Z"}]`)
	if err != nil {
		t.Fatal(err)
	}
	if i, ok := got["localhost/lazaret/shell"]; !ok || i.Labels[labelImage] != "shell" || i.CreatedAt.Day() != 30 || len(got) != 2 {
		t.Errorf("got %+v", got)
	}
	if _, err := builtImages(""); err == nil {
		t.Error("no answer was taken for no images")
	}
}
