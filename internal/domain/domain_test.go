package domain

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The wanted values come from sha256sum(1), not from this code.
func TestHash(t *testing.T) {
	tests := []struct{ name, profile, workspace, want string }{
		{"plain", "default", "/home/dev/project", "489295ec508b"},
		{"another profile", "claude", "/srv/w", "f197e6dd9ed4"},
		{"root directory", "default", "/", "56bc25bac9b6"},
		{"UTF-8 and a blank", "default", "/home/dev/prójekt 1", "bac702701ca7"},
		{"container id", "default", "0123abcd", "19e0c6834131"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Hash(tt.profile, tt.workspace); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if !ValidHash(Hash(tt.profile, tt.workspace)) {
				t.Error("not a valid hash")
			}
		})
	}
}

func TestCanonicalLeadsToOneAnchor(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws := filepath.Join(dir, "project")
	if err := os.MkdirAll(filepath.Join(ws, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("project", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "link"), filepath.Join(dir, "link2")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(ws)
	for _, p := range []string{ws, ws + "/", ws + "//", ws + "/.", ws + "/sub/..", dir + "/link", dir + "/link2/", dir + "/link/sub/..", ".", "sub/.."} {
		got, err := Canonical(p)
		if err != nil || got != ws {
			t.Errorf("Canonical(%q) = %q, %v; want %q", p, got, err, ws)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "a\nb"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]string{
		"a file":           file,
		"nothing":          filepath.Join(dir, "absent"),
		"a loop of links":  filepath.Join(dir, "loop"),
		"below a file":     file + "/x",
		"a line break":     filepath.Join(dir, "a\nb"),
		"a dangling empty": filepath.Join(dir, "absent", ".."),
	} {
		if got, err := Canonical(p); err == nil && name != "a dangling empty" {
			t.Errorf("%s: accepted as %q", name, got)
		}
	}
}

func TestCheckBroad(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(base, "home", "dev")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(base, "h")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, workspace, home string
		broad                 bool
	}{
		{"root", "/", home, true},
		{"root without a home", "/", "", true},
		{"the home", home, home, true},
		{"the home known by a link", home, link, true},
		{"the home's parent", filepath.Dir(home), home, true},
		{"a project in it", home + "/p", home, false},
		{"a sibling with the same beginning", home + "2", home, false},
		{"elsewhere", "/srv/p", home, false},
		{"home unknown", "/srv/p", "", false},
		{"home is the root, as for some service users", "/srv/p", "/", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := CheckBroad(tt.workspace, tt.home); errors.Is(err, ErrBroad) != tt.broad {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCheckOwn(t *testing.T) {
	own := Own{DataRoot: "/data/lazaret", RuntimeDir: "/run/user/1000/lazaret", ConfigDir: "/home/dev/.config/lazaret", ControlDir: "/tmp"}
	tests := []struct {
		name, workspace string
		broad           bool
		refused         bool
	}{
		{"the data root", "/data/lazaret", true, true},
		{"a Domain Root", "/data/lazaret/domains/x", true, true},
		{"the data root's parent", "/data", false, true},
		{"the same, broad", "/data", true, false},
		{"a sibling with the same beginning", "/data/lazaret2", false, false},
		{"the runtime directory", "/run/user/1000/lazaret", true, true},
		{"a container's files", "/run/user/1000/lazaret/containers", true, true},
		{"XDG_RUNTIME_DIR", "/run/user/1000", false, true},
		{"the user's configuration", "/home/dev/.config/lazaret", true, true},
		{"its parent", "/home/dev/.config", false, true},
		{"control_dir", "/tmp", true, true},
		{"a project in control_dir", "/tmp/project", false, false},
		{"the root, broad", "/", true, false},
		{"a project", "/home/dev/project", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := CheckOwn(tt.workspace, own, tt.broad); (err != nil) != tt.refused {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := CheckOwn("/x", Own{}, false); err != nil {
		t.Error(err)
	}
}

func TestPaths(t *testing.T) {
	a := New("default", "/home/dev/project", "/data")
	if a.Root != "/data/domains/489295ec508b" || a.Ephemeral {
		t.Errorf("%+v", a)
	}
	if got := a.SocketPath("/tmp"); got != "/tmp/lazaret_coord_489295ec508b.sock" {
		t.Error(got)
	}
	if got := a.LockPath("/tmp"); got != "/tmp/lazaret_coord_489295ec508b.lock" {
		t.Error(got)
	}
	if e := Ephemeral("default", "0123abcd", "/data"); !e.Ephemeral || e.Hash != "19e0c6834131" || e.Workspace != "" {
		t.Errorf("%+v", e)
	}
}
