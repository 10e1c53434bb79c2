package sessionkey

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestHandOver(t *testing.T) {
	dir, id := t.TempDir(), uuid.NewString()
	key, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if err := Leave(dir, id, key, true); err != nil {
		t.Fatal(err)
	}
	got, owned, err := Take(dir, id)
	if !owned {
		t.Error("it is not owned any more")
	}
	if err != nil || !got.Equal(key) {
		t.Errorf("took %v, %v", got, err)
	}
	if _, _, err := Take(dir, id); !errors.Is(err, ErrNone) {
		t.Errorf("taken twice: %v", err)
	}
	if err := Forget(dir, id); err != nil {
		t.Errorf("forget what was taken: %v", err)
	}
}

func TestTakeRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sessions"), 0o700); err != nil {
		t.Fatal(err)
	}
	key, err := New()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		make func(path string) error
		none bool
	}{
		{"nothing there", func(string) error { return nil }, true},
		{"readable by others", func(p string) error {
			return errors.Join(os.WriteFile(p, []byte(Encode(key)), 0o600), os.Chmod(p, 0o644))
		}, false},
		{"a link", func(p string) error { return os.Symlink("/etc/hostname", p) }, false},
		{"no key", func(p string) error { return os.WriteFile(p, []byte("x"), 0o600) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id := uuid.NewString()
			if err := tt.make(filepath.Join(dir, "sessions", id)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Take(dir, id); err == nil || errors.Is(err, ErrNone) != tt.none {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, id := range []string{"", "..", "../x", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"} {
		if _, _, err := Take(dir, id); !errors.Is(err, ErrNone) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestSweep(t *testing.T) {
	dir, id := t.TempDir(), uuid.NewString()
	if err := Sweep(dir); err != nil {
		t.Errorf("nothing there: %v", err)
	}
	key, err := New()
	if err == nil {
		err = Leave(dir, id, key, true)
	}
	if err == nil {
		err = Sweep(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sessions", id)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a fresh one is gone: %v", err)
	}
	old := time.Now().Add(-2 * maxAge)
	if err := errors.Join(os.Chtimes(path, old, old), Sweep(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old one stays: %v", err)
	}
}
