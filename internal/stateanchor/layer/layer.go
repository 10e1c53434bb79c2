// Package layer reads the directories of an overlay file system without mounting
// it: one layer's own entries, and what a stack of layers shows together. Layers are
// written by agents and images: no symbolic link is followed, nothing is waited for,
// and what is read has bounds.
package layer

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

// Style is how a layer marks what it hides of those below.
type Style int

const (
	// Kernel is the kernel's own: devices 0:0 and attributes.
	Kernel Style = iota
	// Fuse is fuse-overlayfs': names that begin with ".wh." too. It also fits the
	// layers of an image, in which no file can have such a name.
	Fuse
)

const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
)

// MaxNames is how many entries of one directory are looked at.
const MaxNames = 1_000_000

// ErrTooMany is in the chain of an error about a directory beyond MaxNames.
var ErrTooMany = errors.New("too many entries in one directory")

// Layer is one layer's directory on the host.
type Layer struct {
	Path  string
	Style Style
}

// Dir is one directory as a stack of layers shows it. Close it.
type Dir struct{ parts []part } // uppermost first

// part is one layer's piece of a directory.
type part struct {
	f     *os.File
	style Style
}

// Open opens the root of a stack, uppermost layer first. Every path must be a
// directory, and may lead through links only above its last name.
func Open(layers ...Layer) (*Dir, error) {
	d := &Dir{}
	for _, l := range layers {
		fd, err := unix.Open(l.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the layer %s: %w", l.Path, err), d.Close())
		}
		d.parts = append(d.parts, part{os.NewFile(uintptr(fd), l.Path), l.Style})
	}
	return d, nil
}

// Close lets go of the directory; nil may be closed too.
func (d *Dir) Close() error {
	if d == nil {
		return nil
	}
	var errs []error
	for _, p := range d.parts {
		errs = append(errs, p.f.Close())
	}
	return errors.Join(errs...)
}

// FD is the directory of the uppermost layer that has it.
func (d *Dir) FD() int { return int(d.parts[0].f.Fd()) }

// Over is upper on top of lower, nil for none; both stay the caller's to close, and
// the result is not to be closed.
func Over(upper, lower *Dir) (*Dir, error) {
	both := &Dir{}
	for _, d := range []*Dir{upper, lower} {
		if d == nil {
			continue
		}
		both.parts = append(both.parts, d.parts...)
		opaque, err := d.opaque()
		if err != nil {
			return nil, err
		}
		if opaque {
			break
		}
	}
	if len(both.parts) == 0 {
		return nil, fs.ErrNotExist
	}
	return both, nil
}

// opaque reports whether the lowest of the parts hides what is below.
func (d *Dir) opaque() (bool, error) {
	return d.parts[len(d.parts)-1].opaque()
}

// kind is what a layer has under a name.
type kind int

const (
	nothing  kind = iota // the layers below tell
	hidden               // a whiteout
	entry                // an entry; directories may go on below
	replaced             // an entry beside a whiteout: nothing below counts
)

// look tells what the layer itself has under a name.
func (p part) look(name string, st *unix.Stat_t) (kind, error) {
	if p.style == Fuse && strings.HasPrefix(name, whiteoutPrefix) {
		return nothing, nil
	}
	beside := false
	if p.style == Fuse {
		var w unix.Stat_t
		switch err := unix.Fstatat(int(p.f.Fd()), whiteoutPrefix+name, &w, unix.AT_SYMLINK_NOFOLLOW); {
		case err == nil:
			beside = true
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENAMETOOLONG):
			return nothing, fmt.Errorf("look at %q: %w", name, err)
		}
	}
	switch err := unix.Fstatat(int(p.f.Fd()), name, st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENOENT) && beside:
		return hidden, nil
	case errors.Is(err, unix.ENOENT):
		return nothing, nil
	case err != nil:
		return nothing, fmt.Errorf("look at %q: %w", name, err)
	}
	white, err := p.whiteout(name, st)
	switch {
	case err != nil:
		return nothing, err
	case white:
		return hidden, nil
	case beside:
		return replaced, nil
	}
	return entry, nil
}

// whiteout reports whether an entry of the layer is a mark and no file.
func (p part) whiteout(name string, st *unix.Stat_t) (bool, error) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		return st.Rdev == 0, nil
	case unix.S_IFREG:
		if st.Size != 0 {
			return false, nil
		}
		fd, err := openAt(int(p.f.Fd()), name, unix.O_RDONLY)
		if err != nil {
			return false, fmt.Errorf("look at %q: %w", name, err)
		}
		defer func() { _ = unix.Close(fd) }() // only read
		for _, attr := range []string{"user.overlay.whiteout", "trusted.overlay.whiteout"} {
			if _, err := unix.Fgetxattr(fd, attr, nil); err == nil {
				return true, nil
			}
		}
	}
	return false, nil
}

// opaque reports whether the layer's directory hides the same one below.
func (p part) opaque() (bool, error) {
	attrs := []string{"user.overlay.opaque", "trusted.overlay.opaque"}
	if p.style == Fuse {
		attrs = append(attrs, "user.fuseoverlayfs.opaque")
		var st unix.Stat_t
		switch err := unix.Fstatat(int(p.f.Fd()), opaqueName, &st, unix.AT_SYMLINK_NOFOLLOW); {
		case err == nil:
			return true, nil
		case !errors.Is(err, unix.ENOENT):
			return false, fmt.Errorf("look at %s: %w", opaqueName, err)
		}
	}
	value := make([]byte, 4)
	for _, attr := range attrs {
		// "x" says only that whiteouts with attributes are in it.
		if n, err := unix.Fgetxattr(int(p.f.Fd()), attr, value); err == nil && string(value[:n]) == "y" {
			return true, nil
		}
	}
	return false, nil
}

// openAt opens one name below a directory, never another place: no link is followed.
func openAt(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{
			Flags:   uint64(flags | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC), //nolint:gosec // flags are not negative
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

func plain(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.Contains(name, "/")
}

// Lookup tells about an entry, whose layer it is from (0 is the uppermost of this
// directory's), or fs.ErrNotExist.
func (d *Dir) Lookup(name string) (st unix.Stat_t, err error) {
	if !plain(name) {
		return st, fmt.Errorf("look at %q: %w", name, fs.ErrInvalid)
	}
	for _, p := range d.parts {
		switch k, err := p.look(name, &st); {
		case err != nil:
			return st, err
		case k == hidden:
			return st, fs.ErrNotExist
		case k != nothing:
			return st, nil
		}
	}
	return st, fs.ErrNotExist
}

// Sub opens a directory in this one. It fails with fs.ErrNotExist where there is
// none, and with unix.ENOTDIR where the name is no directory's.
func (d *Dir) Sub(name string) (_ *Dir, err error) {
	if !plain(name) {
		return nil, fmt.Errorf("open %q: %w", name, fs.ErrInvalid)
	}
	sub := &Dir{}
	defer func() {
		if err != nil {
			_ = sub.Close() // only read
		}
	}()
	for _, p := range d.parts {
		var st unix.Stat_t
		k, err := p.look(name, &st)
		if err != nil {
			return nil, err
		}
		if k == nothing {
			continue
		}
		if k == hidden {
			break
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if len(sub.parts) == 0 {
				return nil, fmt.Errorf("open %q: %w", name, unix.ENOTDIR)
			}
			break
		}
		fd, err := openAt(int(p.f.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return nil, fmt.Errorf("open %q: %w", name, err)
		}
		next := part{os.NewFile(uintptr(fd), name), p.style}
		sub.parts = append(sub.parts, next)
		opaque, err := next.opaque()
		if err != nil {
			return nil, err
		}
		if opaque || k == replaced {
			break
		}
	}
	if len(sub.parts) == 0 {
		return nil, fmt.Errorf("open %q: %w", name, fs.ErrNotExist)
	}
	return sub, nil
}

// Walk opens a directory some levels down; "" or "." is this one once more.
func (d *Dir) Walk(path string) (*Dir, error) {
	var at *Dir
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name == "" || name == "." {
			continue
		}
		from := at
		if from == nil {
			from = d
		}
		next, err := from.Sub(name)
		if cerr := at.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	if at == nil {
		return d.again()
	}
	return at, nil
}

func (d *Dir) again() (*Dir, error) {
	c := &Dir{}
	for _, p := range d.parts {
		fd, err := unix.FcntlInt(p.f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a directory again: %w", err), c.Close())
		}
		c.parts = append(c.parts, part{os.NewFile(uintptr(fd), p.f.Name()), p.style})
	}
	return c, nil
}

// Names lists the entries, sorted. With more than MaxNames it returns the first of
// them and ErrTooMany.
func (d *Dir) Names() ([]string, error) {
	all := map[string]bool{} // whether it shows
	for i, p := range d.parts {
		names, err := p.names()
		if err != nil && !errors.Is(err, ErrTooMany) {
			return nil, err
		}
		for _, name := range names {
			if p.style == Fuse {
				if name == opaqueName {
					continue
				}
				if bare, found := strings.CutPrefix(name, whiteoutPrefix); found {
					var st unix.Stat_t
					if k, err := p.look(bare, &st); err != nil {
						return nil, err
					} else if _, known := all[bare]; !known && k == hidden {
						all[bare] = false
					}
					continue
				}
			}
			if _, known := all[name]; known {
				continue
			}
			var st unix.Stat_t
			k, err := p.look(name, &st)
			if err != nil {
				return nil, err
			}
			all[name] = k == entry || k == replaced
		}
		if err != nil {
			return sorted(all), fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return sorted(all), nil
}

func sorted(all map[string]bool) []string {
	var names []string
	for name, show := range all {
		if show {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (p part) names() ([]string, error) {
	if _, err := p.f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("list a directory: %w", err)
	}
	var all []string
	for {
		some, err := p.f.Readdirnames(4096)
		all = append(all, some...)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("list a directory: %w", err)
		case len(all) > MaxNames:
			slices.Sort(all)
			return all[:MaxNames], ErrTooMany
		}
	}
}

// Own are the uppermost layer's own marks and entries in this directory.
type Own struct {
	Names  []string // entries, sorted
	Hidden []string // names that it hides of the layers below, sorted
	Opaque bool     // it hides all that is below
	Cut    bool     // there was more than MaxNames
}

// Own lists what the uppermost layer has in this directory.
func (d *Dir) Own() (o Own, err error) {
	p := d.parts[0]
	names, err := p.names()
	if o.Cut = errors.Is(err, ErrTooMany); err != nil && !o.Cut {
		return o, err
	}
	if o.Opaque, err = p.opaque(); err != nil {
		return o, err
	}
	for _, name := range names {
		bare, mark := name, false
		if p.style == Fuse {
			if name == opaqueName {
				continue
			}
			bare, mark = strings.CutPrefix(name, whiteoutPrefix)
		}
		var st unix.Stat_t
		k, err := p.look(bare, &st)
		switch {
		case err != nil:
			return o, err
		case k == hidden:
			o.Hidden = append(o.Hidden, bare)
		case !mark && k != nothing:
			o.Names = append(o.Names, bare)
		}
	}
	slices.Sort(o.Names)
	slices.Sort(o.Hidden)
	o.Hidden = slices.Compact(o.Hidden)
	return o, nil
}

// OpenFile opens a regular file for reading.
func (d *Dir) OpenFile(name string) (*os.File, error) {
	if !plain(name) {
		return nil, fmt.Errorf("open %q: %w", name, fs.ErrInvalid)
	}
	for _, p := range d.parts {
		var st unix.Stat_t
		k, err := p.look(name, &st)
		switch {
		case err != nil:
			return nil, err
		case k == nothing:
			continue
		case k == hidden:
			return nil, fmt.Errorf("open %q: %w", name, fs.ErrNotExist)
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			return nil, fmt.Errorf("open %q: not a regular file", name)
		}
		fd, err := openAt(int(p.f.Fd()), name, unix.O_RDONLY)
		if err != nil {
			return nil, fmt.Errorf("open %q: %w", name, err)
		}
		f := os.NewFile(uintptr(fd), name)
		// It may have been replaced since.
		if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
			return nil, errors.Join(fmt.Errorf("open %q: not a regular file", name), err, f.Close())
		}
		return f, nil
	}
	return nil, fmt.Errorf("open %q: %w", name, fs.ErrNotExist)
}

// ReadFile reads a regular file of at most limit bytes.
func (d *Dir) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := d.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %q: more than %d bytes", name, limit)
	}
	return data, nil
}

// Readlink is a symbolic link's target.
func (d *Dir) Readlink(name string) (string, error) {
	if !plain(name) {
		return "", fmt.Errorf("read the link %q: %w", name, fs.ErrInvalid)
	}
	for _, p := range d.parts {
		var st unix.Stat_t
		switch k, err := p.look(name, &st); {
		case err != nil:
			return "", err
		case k == nothing:
			continue
		case k == hidden:
			return "", fmt.Errorf("read the link %q: %w", name, fs.ErrNotExist)
		}
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(p.f.Fd()), name, buf)
		if err != nil {
			return "", fmt.Errorf("read the link %q: %w", name, err)
		}
		return string(buf[:n]), nil
	}
	return "", fmt.Errorf("read the link %q: %w", name, fs.ErrNotExist)
}

// maxLinks is how many symbolic links one path may lead through, as the kernel has it.
const maxLinks = 40

// Resolve is an absolute path without symbolic links: they are followed as if this
// directory were the file system's root. What does not exist stays as it is.
func (d *Dir) Resolve(path string) (string, error) {
	var done []string
	rest := strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			done = done[:max(len(done)-1, 0)]
			continue
		}
		parent, err := d.Walk(strings.Join(done, "/"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			done = append(done, name)
			continue
		}
		if err != nil {
			return "", err
		}
		st, err := parent.Lookup(name)
		to := ""
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			to, err = parent.Readlink(name)
		}
		if cerr := parent.Close(); err == nil {
			err = cerr
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if to == "" {
			done = append(done, name)
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: %w", path, unix.ELOOP)
		}
		if strings.HasPrefix(to, "/") {
			done = nil
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return "/" + strings.Join(done, "/"), nil
}
