package atomicfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// LockDir makes dir where it is missing, for its owner alone, and waits until
// nobody else holds its lock (flock(2)): reading a file in it and replacing that is
// one step then. unlock lets the next one in.
func LockDir(dir string) (unlock func(), err error) {
	d, err := lockable(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		_ = d.Close() // only opened
		return nil, err
	}
	return func() { _ = d.Close() }, nil // and with it the lock
}

// lockPause is between two looks whether somebody else is done.
const lockPause = 5 * time.Millisecond

// LockDirContext is LockDir that gives up when ctx ends.
func LockDirContext(ctx context.Context, dir string) (unlock func(), err error) {
	d, err := lockable(dir)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = d.Close() }, nil // and with it the lock
		}
		if ctx.Err() != nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, cmp.Or(ctx.Err(), err)), d.Close())
		}
		time.Sleep(lockPause)
	}
}

func lockable(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.Open(dir)
}
