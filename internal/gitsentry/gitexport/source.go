package gitexport

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// layer is a directory in which names are looked for, each with a leading "_"
// where marked.
type layer struct {
	dir    string
	marked bool
	fd     int
}

// source is a git directory that lies in one layer or, bare, in two: the first
// one that has a top name has all of it. No symbolic link is followed.
type source struct{ layers []layer }

func openSource(layers []layer) (*source, error) {
	s := &source{}
	for _, l := range layers {
		var err error
		if l.fd, err = unix.Open(l.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
			s.close()
			return nil, &fs.PathError{Op: "open", Path: l.dir, Err: err}
		}
		s.layers = append(s.layers, l)
	}
	return s, nil
}

func (s *source) close() {
	for _, l := range s.layers {
		_ = unix.Close(l.fd) // only looked at
	}
}

// open opens name, a relative path of the git directory, for reading.
func (s *source) open(name string, flags uint64) (*os.File, error) {
	top, _, _ := strings.Cut(name, "/")
	for _, l := range s.layers {
		at := func(p string) string {
			if l.marked {
				return "_" + strings.ReplaceAll(p, "/", "/_")
			}
			return p
		}
		var st unix.Stat_t
		if err := unix.Fstatat(l.fd, at(top), &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.ENOENT) {
			continue
		}
		fd, err := unix.Openat2(l.fd, at(name), &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOFOLLOW | flags,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
		})
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// file opens a plain file.
func (s *source) file(name string) (*os.File, error) {
	f, err := s.open(name, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%q is not a plain file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// read reads a plain file of at most most bytes.
func (s *source) read(name string, most int64) ([]byte, error) {
	f, err := s.file(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%q has more than %d bytes", name, most)
	}
	return data, err
}

// list is what a directory holds, in order; one that is not there holds nothing.
func (s *source) list(name string) ([]fs.DirEntry, error) {
	d, err := s.open(name, unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	top, _, _ := strings.Cut(name, "/")
	if s.isMarked(top) {
		// A name without the mark is nobody's.
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !strings.HasPrefix(e.Name(), "_") })
		for i, e := range entries {
			entries[i] = named{e, e.Name()[1:]}
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

func (s *source) isMarked(top string) bool {
	var st unix.Stat_t
	return s.layers[0].marked && unix.Fstatat(s.layers[0].fd, "_"+top, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// named is an entry under its name without the mark.
type named struct {
	fs.DirEntry
	name string
}

func (n named) Name() string { return n.name }
