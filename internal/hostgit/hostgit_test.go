package hostgit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDeveloperEnv(t *testing.T) {
	got := DeveloperEnv([]string{"HOME=/h", "GIT_DIR=/x", "GIT_AUTHOR_NAME=me", "GIT_INDEX_FILE=/i", "GIT_DIRECTION=up"})
	if want := []string{"HOME=/h", "GIT_AUTHOR_NAME=me", "GIT_DIRECTION=up"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The caller's environment has no say, and every status but 0 is told.
func TestRun(t *testing.T) {
	for _, v := range []string{"GIT_DIR", "GIT_CONFIG_GLOBAL", "GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND"} {
		t.Setenv(v, "/nowhere")
	}
	g, err := New(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &Repo{git: g, Cwd: dir}
	if _, err := r.Output(t.Context(), "init", "-q", "--template="); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Line(t.Context(), "rev-parse", "--git-dir"); got != ".git" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := r.Line(t.Context(), "config", "core.hooksPath"); got != "/dev/null" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	_, err = r.Output(t.Context(), "rev-parse", "--verify", "nothing")
	var failed *Error
	if !errors.As(err, &failed) || Code(err) != 128 || !strings.Contains(err.Error(), "Needed a single revision") {
		t.Errorf("%v", err)
	}
	// No transport, so that nothing is fetched behind anybody's back.
	_, err = r.Output(t.Context(), "fetch", "file://"+dir)
	if err == nil || !strings.Contains(err.Error(), "not allowed") {
		t.Errorf("fetch: %v", err)
	}
}

func TestSubmoduleDir(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"super/.git/modules/a/modules/b", "modules/x/.git"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"super/.git", "super/.git/modules/a", "modules/x/.git"} {
		if err := os.WriteFile(filepath.Join(dir, d, "HEAD"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for d, want := range map[string]bool{"super/.git": false, "super/.git/modules/a": true, "super/.git/modules/a/modules/b": true, "modules/x/.git": false} {
		if SubmoduleDir(filepath.Join(dir, d)) != want {
			t.Errorf("%s: %t", d, !want)
		}
	}
}

// The developer's own settings, and those of the repository above them.
func TestIdentity(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	g, err := New(home, "")
	if err != nil {
		t.Fatal(err)
	}
	is := func(wantName, wantEmail string) {
		t.Helper()
		if name, email, err := g.Identity(t.Context(), dir); name != wantName || email != wantEmail || err != nil {
			t.Errorf("got %q, %q, %v; want %q, %q", name, email, err, wantName, wantEmail)
		}
	}
	is("", "")
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\n\tname = D. Developer\n\temail = private\n\temail = dev@example.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	is("D. Developer", "dev@example.test")
	if err := os.MkdirAll(filepath.Join(dir, ".git", "objects"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "refs/heads/x": "", "config": "[core]\n\trepositoryformatversion = 0\n[user]\n\temail = work@example.test\n"} {
		path := filepath.Join(dir, ".git", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is("D. Developer", "work@example.test")
}
