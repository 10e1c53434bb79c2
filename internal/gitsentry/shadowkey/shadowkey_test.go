package shadowkey

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestKey(t *testing.T) {
	st := unix.Statx_t{Dev_major: 8, Dev_minor: 1, Ino: 0xbeef, Mask: unix.STATX_BTIME, Btime: unix.StatxTimestamp{Sec: 1, Nsec: 255}}
	if got, want := Key(&st), "801-beef-3b9acaff"; got != want {
		t.Errorf("key %s, want %s", got, want)
	}
	st.Mask = 0
	if got, want := Key(&st), "801-beef-0"; got != want {
		t.Errorf("without a birth time %s, want %s", got, want)
	}
}

// A key follows a directory that is renamed, and is another's once that is made anew.
func TestOfDir(t *testing.T) {
	base := t.TempDir()
	of := func(path string) string {
		t.Helper()
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		key, err := OfDir(fd)
		if errors.Is(err, ErrNoBirthTime) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !Valid(key) {
			t.Errorf("%s is not valid", key)
		}
		return key
	}
	a, b := filepath.Join(base, "a"), filepath.Join(base, "b")
	if err := os.Mkdir(a, 0o700); err != nil {
		t.Fatal(err)
	}
	first := of(a)
	if err := os.Rename(a, b); err != nil {
		t.Fatal(err)
	}
	if got := of(b); got != first {
		t.Errorf("renamed: %s, was %s", got, first)
	}
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := of(b); got == first {
		t.Errorf("a new directory has the old key %s", got)
	}
	file := filepath.Join(base, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if key, err := OfDir(int(f.Fd())); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file: %q, %v", key, err)
	}
}

func TestValid(t *testing.T) {
	for name, want := range map[string]bool{
		"801-beef-3b9acaff": true, "0-0-0": true,
		"": false, "801-beef": false, "801-beef-1-2": false, "801-BEEF-1": false, "0801-1-1": false,
		"801--1": false, "../x-1-1": false, "_801-1-1": false, "1ffffffffffffffff-1-1": false,
	} {
		if Valid(name) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
}
