package wire

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Teardown watches the end of a coordinator, whose last act is to remove its
// lock's file.
type Teardown struct {
	lock string
	file unix.Stat_t
	gone bool
}

// WatchTeardown notes which lock file is there now, before the request that may
// lead to the end.
func WatchTeardown(lock string) *Teardown {
	t := &Teardown{lock: lock}
	t.gone = unix.Lstat(lock, &t.file) != nil
	return t
}

// Wait returns when the lock's file is gone or another has taken its place, at
// the latest after limit. With stale it also returns where nobody holds the
// lock, as after the coordinator was killed.
func (t *Teardown) Wait(limit time.Duration, stale bool) {
	for deadline := time.Now().Add(limit); !t.gone && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var now unix.Stat_t
		if unix.Lstat(t.lock, &now) != nil || now.Ino != t.file.Ino || now.Dev != t.file.Dev {
			return
		}
		if stale {
			l, err := TryLock(t.lock)
			if err == nil {
				_ = l.Remove() // nobody's: a killed coordinator left it
			}
			if !errors.Is(err, ErrLocked) {
				return
			}
		}
	}
}
