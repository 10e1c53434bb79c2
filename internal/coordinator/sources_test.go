package coordinator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/wire"
)

// What a container mounts of the workspace is what the guard shows there, and
// stays that; no link leads it away.
func TestSources(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	outside := t.TempDir()
	must(t, os.WriteFile(outside+"/secret", []byte("secret"), 0o600))
	must(t, os.MkdirAll(f.ws+"/a/b", 0o700))
	must(t, os.WriteFile(f.ws+"/a/b/file", []byte("mine"), 0o600))
	must(t, os.Symlink(outside, f.ws+"/link"))
	must(t, os.Symlink(outside+"/secret", f.ws+"/a/b/link"))
	_ = f.ensure().Close()
	pid := f.pid()
	ask := func(id string, rels ...string) (wire.PrepareResponse, error) {
		return f.guardPrepare(id, func(r *wire.PrepareRequest) { r.Sources = rels })
	}
	res, err := ask("c1", ".", "a/b", "a/b/file")
	must(t, err)
	if res.Sources["."] != res.GuardDir {
		t.Errorf("the workspace: %+v", res)
	}
	dir, file := res.Sources["a/b"], res.Sources["a/b/file"]
	mine := func() {
		t.Helper()
		for _, name := range []string{filepath.Join(dir, "file"), file} {
			if text, err := os.ReadFile(name); err != nil || string(text) != "mine" {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
	}
	mine()
	// An agent puts links in its place; what is mounted is what it was, and a path
	// of it is one through the guard.
	must(t, os.Rename(filepath.Join(res.GuardDir, "a"), filepath.Join(res.GuardDir, "was")))
	must(t, os.Symlink(outside, filepath.Join(res.GuardDir, "a")))
	mine()
	if err := os.WriteFile(filepath.Join(dir, ".git"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(f.ws + "/was/b/.git"); err == nil {
		t.Error("what is mounted is not behind the guard")
	}
	for _, rel := range []string{"link", "link/secret", "a/secret", "was/b/link"} {
		if res, err := ask("c2", rel); err == nil || !strings.Contains(err.Error(), "symbolic link has come in its way") {
			t.Errorf("%s: %+v, %v", rel, res, err)
		}
	}
	for _, rel := range []string{"..", "../x", "/etc", "a/../..", ""} {
		if _, err := ask("c2", rel); err == nil {
			t.Errorf("source %q was accepted", rel)
		}
	}
	if _, err := ask("c2", "none"); err == nil {
		t.Error("what is not there was mounted")
	}
	if m := f.mounts(); len(m) != 3 {
		t.Errorf("mounts %v", m)
	}
	res, err = ask("c2", "was")
	must(t, err)
	must(t, f.release("c2"))
	if _, err := os.Lstat(res.Sources["was"]); err == nil {
		t.Error("what a container had mounted is left")
	}
	mine()
	must(t, f.release("c1"))
	f.gone(pid)
	if m := f.mounts(); len(m) > 0 {
		t.Errorf("mounts left: %v", m)
	}
	if text, err := os.ReadFile(f.ws + "/was/b/file"); err != nil || string(text) != "mine" {
		t.Errorf("the workspace's file: %q, %v", text, err)
	}
}
