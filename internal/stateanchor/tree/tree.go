// Package tree copies, measures and removes directory trees that somebody else has
// written: no link is followed, no other file system entered, nothing waited for.
// Nobody may change the tree meanwhile.
package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDepth is how deep directories may be nested in what is copied or measured.
const maxDepth = 1000

// Stats says how much a tree is.
type Stats struct {
	Files int   `json:"files"` // all entries but its root; one with several names counts for each
	Bytes int64 `json:"bytes"` // on the disk, if nothing is shared with other files
}

// openAt opens one name below a directory.
func openAt(dir int, name string, flags int) (int, error) {
	if flags&unix.O_PATH == 0 { // openat2(2) takes nothing else beside it
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{
			Flags:   uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC), //nolint:gosec // flags are not negative
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		})
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// openRoot opens a tree's root, which must be a directory.
func openRoot(path string) (int, error) {
	return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// names lists a directory.
func names(fd int) ([]string, error) {
	again, err := openAt(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(again), ".")
	defer func() { _ = f.Close() }() // only read
	return f.Readdirnames(-1)
}

// inode names a file of one file system.
type inode struct{ dev, ino uint64 }

// Measure tells how much a tree is; zero where there is none. What is nested too
// deep does not count.
func Measure(ctx context.Context, path string) (s Stats, err error) {
	fd, err := openRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("measure %s: %w", path, err)
	}
	if err := measure(ctx, fd, 0, map[inode]bool{}, &s); err != nil {
		return s, fmt.Errorf("measure %s: %w", path, err)
	}
	return s, nil
}

// measure closes fd.
func measure(ctx context.Context, fd, depth int, seen map[inode]bool, s *Stats) error {
	defer func() { _ = unix.Close(fd) }() // only read
	if err := ctx.Err(); err != nil || depth > maxDepth {
		return err
	}
	all, err := names(fd)
	if err != nil {
		return err
	}
	for _, name := range all {
		var st unix.Stat_t
		switch err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); {
		case errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return fmt.Errorf("%q: %w", name, err)
		}
		s.Files++
		key := inode{st.Dev, st.Ino}
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if seen[key] {
				continue
			}
			seen[key] = true
		}
		s.Bytes += st.Blocks * 512
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		sub, err := openAt(fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOENT) {
			continue // a mount is none of the tree's
		}
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		if err := measure(ctx, sub, depth+1, seen, s); err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
	}
	return nil
}

// Remove removes a tree, however deep it is and whatever its modes are; one that
// is not there is no error. A mount in it is, and stays.
func Remove(ctx context.Context, path string) error {
	fd, err := openRoot(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return os.Remove(path)
	case errors.Is(err, unix.EACCES): // our own, but closed
		if err = os.Chmod(path, 0o700); err == nil { //nolint:gosec // its owner alone
			fd, err = openRoot(path)
		}
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written by it
	if err := removeIn(ctx, fd); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return os.Remove(path)
}

// removeIn empties a directory. What lies two levels down is moved up, so that no
// depth needs more descriptors than two.
func removeIn(ctx context.Context, fd int) error {
	if err := unix.Fchmod(fd, 0o700); err != nil {
		return err
	}
	next := 0
	for {
		all, err := names(fd)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, name := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			if done, err := removeOne(fd, name); err != nil {
				return fmt.Errorf("%.200q: %w", name, err)
			} else if done {
				continue
			}
			if err := raise(ctx, fd, name, &next); err != nil {
				return fmt.Errorf("%.200q: %w", name, err)
			}
		}
	}
}

// removeOne removes a file or an empty directory; false for a full one.
func removeOne(dir int, name string) (bool, error) {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return true, nil
	case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST):
		return false, nil
	}
	return false, err
}

// raise removes a directory of top after it has moved full directories in it to top.
func raise(ctx context.Context, top int, name string, next *int) error {
	// Without these bits its own owner can neither empty nor move it.
	if err := unix.Fchmodat(top, name, 0o700, 0); err != nil {
		return err
	}
	fd, err := openAt(top, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written by it
	all, err := names(fd)
	if err != nil {
		return err
	}
	for _, child := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if done, err := removeOne(fd, child); err != nil {
			return fmt.Errorf("%.200q: %w", child, err)
		} else if done {
			continue
		}
		if err := unix.Fchmodat(fd, child, 0o700, 0); err != nil {
			return err
		}
		for {
			*next++
			err := unix.Renameat2(fd, child, top, fmt.Sprintf("lazaret-%d", *next), unix.RENAME_NOREPLACE)
			if errors.Is(err, unix.EEXIST) {
				continue
			}
			if err != nil {
				return fmt.Errorf("%.200q: %w", child, err)
			}
			break
		}
	}
	return unix.Unlinkat(top, name, unix.AT_REMOVEDIR)
}

// path is a name in a tree, for messages: its end, where it is long.
func show(rel string) string {
	const most = 200
	if len(rel) > most {
		rel = "…" + strings.ToValidUTF8(rel[len(rel)-most:], "")
	}
	return rel
}
