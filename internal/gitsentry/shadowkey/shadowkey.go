// Package shadowkey owns the name under which a shadow is kept: which real
// directory it belongs to. The guard writes by it, "lazaret git export" reads.
package shadowkey

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mask are the fields that a statx of a directory must ask for.
const Mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

// ErrNoBirthTime marks a file system that does not keep when a directory was
// made: a new directory with an old one's inode would inherit its shadow.
var ErrNoBirthTime = errors.New("the file system keeps no birth times")

// Key names the directory that st describes: device, inode and birth time in
// nanoseconds, in hexadecimal without leading zeros, joined by "-". Preconditions:
// st was taken with Mask. Where the file system keeps no birth time that part is
// 0; OfDir refuses there.
func Key(st *unix.Statx_t) string {
	var born uint64
	if st.Mask&unix.STATX_BTIME != 0 {
		// Times before 1970 wrap around, which is as good a name as another.
		born = uint64(st.Btime.Sec)*1e9 + uint64(st.Btime.Nsec) //nolint:gosec // a name, not a number
	}
	return Of(unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, born)
}

// Of is the Key of a directory by its device, inode and birth time in nanoseconds.
func Of(dev, ino, born uint64) string { return hex(dev) + "-" + hex(ino) + "-" + hex(born) }

// OfDir is the Key of an open directory; fd may be O_PATH. ErrNoBirthTime is in
// the chain of its error where the key would not be unique over time.
func OfDir(fd int) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, Mask, &st); err != nil {
		return "", fmt.Errorf("statx of a directory: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", fmt.Errorf("key of a shadow: %w", unix.ENOTDIR)
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		return "", ErrNoBirthTime
	}
	return Key(&st), nil
}

// Valid reports whether name has the form of a key.
func Valid(name string) bool {
	parts := strings.Split(name, "-")
	if len(parts) != 3 {
		return false
	}
	for _, p := range parts {
		if n, err := strconv.ParseUint(p, 16, 64); err != nil || hex(n) != p {
			return false
		}
	}
	return true
}

func hex(n uint64) string { return strconv.FormatUint(n, 16) }
