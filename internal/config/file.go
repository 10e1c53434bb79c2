package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxFileSize bounds a configuration file, in bytes.
const maxFileSize = 1 << 20

// readFile reads a whole configuration file. The error matches fs.ErrNotExist
// only where nothing at all is at path: a link that leads nowhere, or a
// directory that may not be searched, is a fault, as it may hide restrictions.
// With noFollow a symbolic link at path is refused. It never blocks: FIFOs and
// devices are refused before and after the open.
func readFile(path string, noFollow bool) ([]byte, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if dir, derr := os.Lstat(filepath.Dir(path)); derr == nil && dir.Mode()&fs.ModeSymlink != 0 {
			if _, serr := os.Stat(filepath.Dir(path)); serr != nil {
				return nil, errors.New("its directory is a symbolic link that leads nowhere: mend or remove the link")
			}
		}
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, plain(err)
	}
	flags := syscall.O_NONBLOCK | syscall.O_NOCTTY
	if noFollow {
		if fi.Mode()&fs.ModeSymlink != 0 {
			return nil, errors.New("is a symbolic link: it must be a regular file here, as whoever writes this directory could point the link elsewhere")
		}
		flags |= syscall.O_NOFOLLOW
	}
	if fi, err = os.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("is a symbolic link that leads nowhere: mend or remove the link")
		}
		return nil, plain(err)
	}
	if err := checkRegular(fi); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|flags, 0)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	if fi, err = f.Stat(); err != nil {
		return nil, plain(err)
	}
	if err := checkRegular(fi); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, plain(err)
	}
	if len(data) > maxFileSize {
		return nil, tooLarge()
	}
	return data, nil
}

func tooLarge() error {
	return fmt.Errorf("is larger than %d bytes: no configuration is that long", maxFileSize)
}

func checkRegular(fi fs.FileInfo) error {
	kind := ""
	switch m := fi.Mode(); {
	case m.IsRegular():
		if fi.Size() > maxFileSize {
			return tooLarge()
		}
		return nil
	case m.IsDir():
		kind = "a directory"
	case m&fs.ModeNamedPipe != 0:
		kind = "a FIFO"
	case m&fs.ModeSocket != 0:
		kind = "a socket"
	default:
		kind = "a device"
	}
	return fmt.Errorf("is %s: it must be a regular file", kind)
}

// plain drops the operation and path that our own message already names.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("cannot be read: %w", pe.Err)
	}
	return fmt.Errorf("cannot be read: %w", err)
}

// Canonical resolves the symbolic links of the existing part of path, which
// must be absolute; what does not exist yet is kept as written. A link that
// leads nowhere is an error, as its target could appear anywhere later.
func Canonical(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("path %q is not absolute", path)
	}
	rest := ""
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		resolved, err := filepath.EvalSymlinks(p)
		if err == nil {
			return filepath.Join(resolved, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("resolve %s: %w", path, err)
		}
		if _, lerr := os.Lstat(p); lerr == nil {
			return "", fmt.Errorf("resolve %s: %s is a symbolic link that leads nowhere", path, p)
		}
		if p == "/" {
			return "", fmt.Errorf("resolve %s: %w", path, err)
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

// within reports whether path is dir or lies below it; both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// passesThrough reports whether the kernel, resolving path, comes through dir:
// then whoever writes dir decides what path leads to, even if it ends outside.
func passesThrough(path, dir string) (bool, error) {
	if !filepath.IsAbs(path) {
		wd, err := os.Getwd()
		if err != nil {
			return false, fmt.Errorf("resolve %s: %w", path, err)
		}
		path = wd + "/" + path // not cleaned: the kernel takes ".." after following links
	}
	cur, todo := "/", strings.Split(path, "/")
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			cur = filepath.Dir(cur)
			continue
		}
		next := filepath.Join(cur, name)
		if within(next, dir) {
			return true, nil
		}
		target, err := os.Readlink(next)
		if err != nil { // no link, or nothing there
			cur = next
			continue
		}
		if links++; links > 40 { // as path_resolution(7)
			return false, fmt.Errorf("resolve %s: too many symbolic links", path)
		}
		if filepath.IsAbs(target) {
			cur = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return within(cur, dir), nil
}
