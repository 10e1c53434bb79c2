package fixedpath

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// tree makes a directory that nobody else can write, whatever the umask.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	chmod(t, dir, 0o755)
	return dir
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func program(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	chmod(t, path, mode)
	return path
}

func TestLook(t *testing.T) {
	base := tree(t)
	a, b := filepath.Join(base, "a"), filepath.Join(base, "b")
	program(t, filepath.Join(a, "both"), 0o755)
	program(t, filepath.Join(b, "both"), 0o755)
	second := program(t, filepath.Join(b, "second"), 0o755)
	program(t, filepath.Join(a, "plain"), 0o644)
	plain := program(t, filepath.Join(b, "plain"), 0o755)
	program(t, filepath.Join(a, "open"), 0o757)
	program(t, filepath.Join(b, "open"), 0o755)
	if err := os.MkdirAll(filepath.Join(a, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := program(t, filepath.Join(b, "dir"), 0o755)

	for _, c := range []struct {
		name, arg, want string
		is              error
	}{
		{name: "first directory wins", arg: "both", want: filepath.Join(a, "both")},
		{name: "found in a later directory", arg: "second", want: second},
		{name: "a file without execute bit is passed over", arg: "plain", want: plain},
		{name: "a directory is passed over", arg: "dir", want: dir},
		{name: "one that others can write stops the search", arg: "open", is: ErrUnsafe},
		{name: "nowhere", arg: "absent", is: ErrNotFound},
		{name: "absolute path is taken as it is", arg: second, want: second},
		{name: "absolute path that does not exist", arg: "/nonexistent/runsc", is: ErrNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := look(c.arg, []string{a, b})
			if c.is != nil {
				if !errors.Is(err, c.is) {
					t.Fatalf("error %v, want %v", err, c.is)
				}
				return
			}
			if err != nil || got != c.want {
				t.Fatalf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	for _, bad := range []string{"", ".", "..", "./second", "b/second", "../second"} {
		if got, err := look(bad, []string{a, b}); err == nil {
			t.Errorf("look(%q) = %q, want an error", bad, got)
		}
	}
}

// PATH is the caller's: a program planted there must not be found.
func TestLookIgnoresPath(t *testing.T) {
	dir := tree(t)
	program(t, filepath.Join(dir, "lazaret-test-planted"), 0o755)
	t.Setenv("PATH", dir)
	if got, err := Look("lazaret-test-planted"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("got %q, %v; want ErrNotFound", got, err)
	}
}

func TestCheckRefusesWhatOthersCanReplace(t *testing.T) {
	base := tree(t)
	open := filepath.Join(base, "open")
	prog := program(t, filepath.Join(open, "sub", "prog"), 0o755)
	chmod(t, open, 0o777)
	if err := Check(prog); !errors.Is(err, ErrUnsafe) {
		t.Errorf("program below a directory open to all: %v, want ErrUnsafe", err)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(prog, link); err != nil {
		t.Fatal(err)
	}
	if err := Check(link); !errors.Is(err, ErrUnsafe) {
		t.Errorf("link to it from a closed directory: %v, want ErrUnsafe", err)
	}
	closed := program(t, filepath.Join(base, "closed", "prog"), 0o755)
	bent := filepath.Join(open, "bent")
	if err := os.Symlink(closed, bent); err != nil {
		t.Fatal(err)
	}
	if err := Check(bent); !errors.Is(err, ErrUnsafe) {
		t.Errorf("link in a directory open to all: %v, want ErrUnsafe", err)
	}
	chmod(t, open, 0o777|os.ModeSticky)
	if err := Check(prog); err != nil {
		t.Errorf("below a sticky directory: %v", err)
	}
	if err := Check(link); err != nil {
		t.Errorf("link: %v", err)
	}
	if err := Check("relative"); err == nil {
		t.Error("relative path passed")
	}
	if err := Check(base); err == nil {
		t.Error("directory passed")
	}
}
