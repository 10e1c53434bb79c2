package atomicfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// LockDir makes dir where it is missing, for its owner alone, and waits until
// nobody else holds its lock (flock(2)): reading a file in it and replacing that is
// one step then. unlock lets the next one in.
func LockDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		_ = d.Close() // only opened
		return nil, err
	}
	return func() { _ = d.Close() }, nil // and with it the lock
}
