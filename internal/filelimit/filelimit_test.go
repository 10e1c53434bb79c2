package filelimit

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestRaise(t *testing.T) {
	var before, after unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 100, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	if err := Raise(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &after); err != nil || after.Cur != before.Max {
		t.Errorf("limit %+v, %v", after, err)
	}
}
