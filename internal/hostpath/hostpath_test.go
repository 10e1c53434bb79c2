package hostpath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFollow(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"rel": "a/b", "abs": dir + "/a", "up": "a/b/../..", "loop": "loop", "to-none": "a/none"} {
		if err := os.Symlink(to, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("x/", maxPath)
	for _, tt := range []struct {
		path, end string
		links     string
		err       error
	}{
		{path: "/a/b", end: "/a/b"},
		{path: "//a/./b/", end: "/a/b"},
		{path: "/rel/c", end: "/a/b/c", links: "rel"},
		{path: "/abs/b", end: "/a/b", links: "abs"},
		{path: "/up/abs", end: "/a", links: "up abs"},
		{path: "/to-none/more", end: "/a/none/more", links: "to-none"},
		{path: "/none/../a", end: "/a"},
		{path: "/loop/x", end: "/loop", err: ErrPath},
		{path: "/" + long, err: ErrPath},
	} {
		var links []string
		end, err := Follow(dir+tt.path, func(s *Step) error {
			if s.Target != "" && !strings.HasSuffix(s.Path, "/loop") {
				links = append(links, filepath.Base(s.Path))
			}
			return nil
		})
		if !errors.Is(err, tt.err) || tt.end != "" && end != dir+tt.end || strings.Join(links, " ") != tt.links {
			t.Errorf("%.40s: %s by %v, %v", tt.path, end, links, err)
		}
	}
	stop := errors.New("stop")
	if _, err := Follow(dir, func(*Step) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a refused step: %v", err)
	}
}
