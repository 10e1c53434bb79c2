package coordinator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
)

const (
	// unfinished is the name, which no container can have, of a container's
	// directory until its lease is in it.
	unfinished = ",new"
	// claimWait bounds the wait for others who make or remove such directories.
	claimWait = 5 * time.Second
)

// claimState makes the container's directory with its lease. That is the claim on
// its id: another domain, and so another coordinator, may have a container of that
// id, whose later calls would then be given our settings.
func claimState(dir string, lease containerstate.Lease) error {
	all := filepath.Dir(dir)
	unlock, err := lockStates(all)
	if err != nil {
		return err
	}
	defer unlock()
	fresh := filepath.Join(all, unfinished)
	err = os.RemoveAll(fresh) // of one that was killed
	if err == nil {
		err = containerstate.WriteLease(fresh, lease) // makes the directory
	}
	if err != nil {
		return fmt.Errorf("keep its state: %w", errors.Join(err, os.RemoveAll(fresh)))
	}
	err = unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
	if errors.Is(err, fs.ErrExist) {
		if old, err := containerstate.ReadLease(dir); err == nil && old.Alive() {
			return errors.Join(fmt.Errorf("one of that id exists already in another domain (pid %d): remove it or choose another id", old.PID), os.RemoveAll(fresh))
		}
		if err = removeStateDir(dir); err == nil {
			err = os.Rename(fresh, dir)
		}
	}
	if err != nil {
		return fmt.Errorf("keep its state: %w", errors.Join(err, os.RemoveAll(fresh)))
	}
	return nil
}

// removeState removes what is kept for later calls about a container, unless
// another domain has a living one of that id by now.
func (c *Coordinator) removeState(id string) {
	dir := containerstate.Dir(c.spec.RuntimeDir, id)
	unlock, err := lockStates(filepath.Dir(dir))
	if err == nil {
		lease, lerr := containerstate.ReadLease(dir)
		if lerr != nil || lease.Domain == c.spec.Domain.Hash || !lease.Alive() {
			err = removeStateDir(dir)
		}
		unlock()
	}
	if err != nil {
		c.log.Error("remove container state", "container", id, "error", err)
	}
}

// removeStateDir also removes what the container had elsewhere for its Escalation
// Socket.
func removeStateDir(dir string) error {
	var err error
	if kept, kerr := readKept(dir); kerr == nil {
		err = removeEscalation(kept)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// removeUnfinished removes what a coordinator left that was killed in the middle
// of a claim.
func removeUnfinished(runtimeDir string) error {
	all := filepath.Join(runtimeDir, "containers")
	if _, err := os.Lstat(filepath.Join(all, unfinished)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := lockStates(all)
	if err != nil {
		return err
	}
	defer unlock()
	return os.RemoveAll(filepath.Join(all, unfinished))
}

// lockStates keeps the coordinators of all domains from making and removing
// containers' directories at the same time. The kernel unlocks for who is killed.
func lockStates(all string) (unlock func(), err error) {
	if err := os.MkdirAll(all, 0o700); err != nil {
		return nil, fmt.Errorf("keep containers' state: %w", err)
	}
	fd, err := unix.Open(all, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keep containers' state: open %s: %w", all, err)
	}
	for deadline := time.Now().Add(claimWait); ; time.Sleep(time.Millisecond) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = unix.Close(fd) }, nil // which unlocks
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			_ = unix.Close(fd) // the first error is the one to tell
			return nil, fmt.Errorf("keep containers' state: lock %s: %w: another coordinator hangs; end it and try again", all, err)
		}
	}
}
