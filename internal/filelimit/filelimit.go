// Package filelimit owns the limit of open files of what holds one for each file
// that a sandbox knows.
package filelimit

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Raise lets this process, and what it becomes, have as many files open as it may:
// gVisor and the guard keep one for each file of a mount that a sandbox has open,
// and a large tree would end in EMFILE at the soft limit.
func Raise() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	l.Cur = l.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("raise the limit of open files to %d: %w", l.Max, err)
	}
	return nil
}
