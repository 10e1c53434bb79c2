package gitsentry

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/shadowkey"
)

// marked begins every name in a shadow, so that no tool on the host takes
// something in it for a git directory.
const marked = "_"

const (
	// missing is the file in a shadow that marks since when its directory is not in
	// the workspace, for keptMissing at most.
	missing     = "missing"
	keptMissing = 14 * 24 * time.Hour

	seedFile  = 16 << 20  // the largest file that is copied into a shadow, in bytes
	seedTotal = 128 << 20 // of one directory
	seedDepth = 16
)

// dirKey names a directory of the host for its shadows.
type dirKey struct{ dev, ino, born uint64 }

func (i identity) dirKey() dirKey { return dirKey{i.dev, i.ino, i.born} }

func (k dirKey) String() string { return shadowkey.Of(k.dev, k.ino, k.born) }

// shadows knows which names of which directories live apart. What is below such
// a name is found by path: nobody else writes there.
type shadows struct {
	base map[place]string
	mu   sync.RWMutex
	tops map[string]map[string]place
	seed sync.Mutex // one copy at a time
}

func openShadows(disk, memory string) (*shadows, error) {
	s := &shadows{base: map[place]string{onDisk: disk, onMemory: memory}, tops: map[string]map[string]place{}}
	for _, p := range []place{onDisk, onMemory} {
		if err := os.MkdirAll(s.base[p], 0o700); err != nil {
			return nil, fmt.Errorf("make the shadow's directory: %w", err)
		}
		keys, err := os.ReadDir(s.base[p])
		if err != nil {
			return nil, fmt.Errorf("read the shadow: %w", err)
		}
		for _, k := range keys {
			if !shadowkey.Valid(k.Name()) {
				continue
			}
			names, err := os.ReadDir(filepath.Join(s.base[p], k.Name()))
			if err != nil {
				return nil, fmt.Errorf("read the shadow: %w", err)
			}
			for _, n := range names {
				if name, ok := strings.CutPrefix(n.Name(), marked); ok {
					s.note(k.Name(), name, p)
				}
			}
		}
	}
	return s, nil
}

func (s *shadows) note(key, name string, p place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tops[key] == nil {
		s.tops[key] = map[string]place{}
	}
	s.tops[key][name] = p
}

// has tells where name of a host's directory lives apart.
func (s *shadows) has(d dirKey, name string) (place, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.tops) == 0 {
		return 0, false
	}
	p, ok := s.tops[d.String()][name]
	return p, ok
}

// names are all that a host's directory has apart.
func (s *shadows) names(d dirKey) map[string]place {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.tops) == 0 {
		return nil
	}
	out := map[string]place{}
	for n, p := range s.tops[d.String()] {
		out[n] = p
	}
	return out
}

// topPath is where name of the directory is kept; the way there is made.
func (s *shadows) topPath(d dirKey, name string, p place) (string, error) {
	dir := filepath.Join(s.base[p], d.String())
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make a shadow: %w", err)
	}
	return filepath.Join(dir, marked+name), nil
}

// keys are all that a place has.
func (s *shadows) keys(p place) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []string
	for key, names := range s.tops {
		if slices.Contains(slices.Collect(maps.Values(names)), p) {
			out = append(out, key)
		}
	}
	return out
}

// collect marks those keys on disk whose directory was not seen in the whole
// workspace, and drops those that are marked for long: the host may bring back
// what it has moved away.
func (s *shadows) collect(keys []string, seen map[string]bool, now time.Time) {
	for _, key := range keys {
		mark := filepath.Join(s.base[onDisk], key, missing)
		fi, err := os.Lstat(mark)
		switch {
		case seen[key]:
			_ = os.Remove(mark) // seldom there
		case err == nil && now.Sub(fi.ModTime()) > keptMissing:
			s.drop(key)
		case errors.Is(err, fs.ErrNotExist):
			fd, err := unix.Open(mark, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
			if err == nil {
				_ = unix.Close(fd) // its time is all
			}
		}
	}
}

// drop removes all that a directory has apart.
func (s *shadows) drop(key string) {
	s.mu.Lock()
	delete(s.tops, key)
	s.mu.Unlock()
	for _, base := range s.base {
		_ = os.RemoveAll(filepath.Join(base, key)) // the next start tries again
	}
}

// gone notes that name has been removed.
func (s *shadows) gone(d dirKey, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := d.String()
	p, ok := s.tops[key][name]
	if !ok {
		return
	}
	delete(s.tops[key], name)
	if len(s.tops[key]) == 0 {
		delete(s.tops, key)
		_ = os.Remove(filepath.Join(s.base[onDisk], key, missing)) // seldom there
	}
	_ = os.Remove(filepath.Join(s.base[p], key)) // fails while others are in it
}

// shadowPath is the path of a node in a shadow.
func (f *guard) shadowPath(n *node) string {
	parent, name := n.parent, n.name
	if parent == nil {
		return ""
	}
	if parent.key.place == onHost || parent.key.place == virtual {
		return filepath.Join(f.shadows.base[n.key.place], parent.key.dirKey().String(), marked+name)
	}
	parent.at.Lock()
	defer parent.at.Unlock()
	return f.shadowPath(parent) + "/" + marked + name
}

// childPath is where name in dir is kept, dir being in a shadow or, for a name
// that lives apart, on the host.
func (f *guard) childPath(dir *node, name string, p place) (string, error) {
	if dir.key.place == onHost {
		return f.shadows.topPath(dir.key.dirKey(), name, p)
	}
	dir.at.Lock()
	defer dir.at.Unlock()
	base := f.shadowPath(dir)
	if base == "" {
		return "", unix.ESTALE
	}
	return base + "/" + marked + name, nil
}

// begin copies what the host has as name in dir into memory, for the sandbox to
// see and change, unless that was done before. A name that is not there is no
// error.
func (f *guard) begin(dir *node, name string) error {
	s := f.shadows
	s.seed.Lock()
	defer s.seed.Unlock()
	if _, ok := s.has(dir.key.dirKey(), name); ok {
		return nil
	}
	d, err := f.openPath(dir)
	if err != nil {
		return err
	}
	defer d.done()
	if !entry(d.fd, name) {
		return nil
	}
	dest, err := s.topPath(dir.key.dirKey(), name, onMemory)
	if err != nil {
		return err
	}
	left := int64(seedTotal)
	if err := copyTree(d.fd, name, dest, 0, &left); err != nil {
		return errors.Join(fmt.Errorf("copy %s for the sandbox: %w", name, err), os.RemoveAll(dest))
	}
	s.note(dir.key.dirKey().String(), name, onMemory)
	return nil
}

// copyTree copies plain files, directories and symbolic links.
func copyTree(dir int, name, dest string, depth int, left *int64) error {
	var st unix.Statx_t
	if err := statx(dir, name, &st); err != nil {
		return err
	}
	mode := uint32(st.Mode) & 0o777
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if depth > seedDepth {
			return nil
		}
		if err := unix.Mkdir(dest, mode|0o700); err != nil {
			return err
		}
		fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		d := os.NewFile(uintptr(fd), name)
		defer func() { _ = d.Close() }() // only read
		names, err := d.Readdirnames(-1)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := copyTree(fd, n, filepath.Join(dest, marked+n), depth+1, left); err != nil {
				return err
			}
		}
		return nil
	case unix.S_IFREG:
		if st.Size > seedFile || int64(st.Size) > *left {
			return nil
		}
		*left -= int64(st.Size)
		return copyFile(dir, name, dest, mode)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, buf)
		if err != nil {
			return err
		}
		return unix.Symlink(string(buf[:n]), dest)
	}
	return nil
}

func copyFile(dir int, name, dest string, mode uint32) error {
	in, err := openat(dir, name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(in), name)
	defer func() { _ = src.Close() }() // only read
	out, err := unix.Open(dest, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode|0o600)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(out), dest)
	_, err = dst.ReadFrom(src)
	return errors.Join(err, dst.Close())
}
