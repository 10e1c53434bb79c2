package gitsentry

import (
	"errors"
	"os"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// listing is an open directory: what was in it when it was read from its start.
type listing struct {
	names []fuse.DirEntry
	read  bool
}

// openDirFD opens a directory for reading. The caller closes it.
func (f *guard) openDirFD(n *node) (int, error) {
	p, err := f.openPath(n)
	if err != nil {
		return -1, err
	}
	defer p.done()
	return unix.Openat(p.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// OpenDir implements fuse.RawFileSystem.
func (f *guard) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n := f.nodes.get(in.NodeId)
	if n == nil || !n.dir {
		return fuse.Status(unix.ESTALE)
	}
	f.dirs.mu.Lock()
	f.dirs.next++
	out.Fh = f.dirs.next
	f.dirs.open[out.Fh] = &listing{}
	f.dirs.mu.Unlock()
	if f.keepsList(n) {
		out.OpenFlags = fuse.FOPEN_CACHE_DIR | fuse.FOPEN_KEEP_CACHE
	}
	return fuse.OK
}

// keepsList tells whether the kernel may keep what is in a directory: the host's
// changes are told, or there are none. In a git directory only the loose objects'
// may: by their lists git finds abbreviations and what to pack or drop, and looks
// at each object itself; whether there is one it asks by name.
func (f *guard) keepsList(n *node) bool {
	if n.key.place != onHost {
		return n.key.place == onDisk || n.key.place == onMemory
	}
	switch zoneKind(n.zoned.Load()) {
	case worktree:
		return f.watch.add(n)
	case gitDir:
		z := f.zoneSeen(n)
		fan, ok := strings.CutPrefix(z.sub, "objects/")
		return ok && len(fan) == 2 && strings.Trim(fan, "0123456789abcdef") == "" && f.watch.add(n)
	}
	return false
}

// ReleaseDir implements fuse.RawFileSystem.
func (f *guard) ReleaseDir(in *fuse.ReleaseIn) {
	f.dirs.mu.Lock()
	defer f.dirs.mu.Unlock()
	delete(f.dirs.open, in.Fh)
}

// list reads all names of a directory.
func (f *guard) list(n *node) ([]fuse.DirEntry, error) {
	out := []fuse.DirEntry{{Name: ".", Mode: unix.S_IFDIR, Ino: n.key.ino}, {Name: "..", Mode: unix.S_IFDIR}}
	if n.key.place == virtual {
		names := []string{InfoName, WorkspaceName}
		if f.gitDir != nil {
			names = append(names, GitDirName)
		}
		if n.id == infoID {
			return append(out, fuse.DirEntry{Name: "refusals", Mode: unix.S_IFREG}), nil
		}
		for _, name := range names {
			out = append(out, fuse.DirEntry{Name: name, Mode: unix.S_IFDIR})
		}
		return out, nil
	}
	fd, err := f.openDirFD(n)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(fd), "directory")
	defer func() { _ = d.Close() }() // only read
	over := map[string]place(nil)
	hide := func(string) bool { return false }
	if n.key.place == onHost {
		over = f.shadows.names(n.key.dirKey())
		if z := f.zoneSeen(n); z.kind == worktree || z.kind == gitDir {
			hide = func(name string) bool { return f.hidden(n, z, name) }
		}
	}
	buf := make([]byte, 64<<10)
	for {
		sz, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if sz == 0 {
			break
		}
		for rest := buf[:sz]; len(rest) > 0; {
			var e fuse.DirEntry
			rest = rest[e.Parse(rest):]
			if e.Name == "." || e.Name == ".." {
				continue
			}
			if n.key.place != onHost {
				name, ok := strings.CutPrefix(e.Name, marked)
				if !ok {
					continue
				}
				e.Name = name
			} else if _, ok := over[e.Name]; ok || hide(e.Name) {
				continue
			}
			e.Off = 0
			out = append(out, e)
		}
	}
	for name, p := range over {
		var st unix.Statx_t
		path, err := f.shadows.topPath(n.key.dirKey(), name, p)
		if err == nil && statx(unix.AT_FDCWD, path, &st) == nil {
			out = append(out, fuse.DirEntry{Name: name, Mode: uint32(st.Mode), Ino: st.Ino})
		}
	}
	return out, nil
}

// hidden tells whether the host's entry is not to be seen: it is masked, and has
// nothing that shows in its place.
func (f *guard) hidden(dir *node, z zone, name string) bool {
	if z.kind == worktree && !f.masked(join(z.rel, name), name) {
		return false
	}
	if z.kind == gitDir && name != "hooks" {
		return false
	}
	s, err := f.find(dir, name, false) // copies what shows in its place
	if err != nil {
		return true
	}
	s.done()
	if s.class != memory {
		return false
	}
	_, shown := f.shadows.has(dir.key.dirKey(), name)
	return !shown
}

func (f *guard) listed(in *fuse.ReadIn) (*node, []fuse.DirEntry, fuse.Status) {
	n := f.nodes.get(in.NodeId)
	f.dirs.mu.Lock()
	l := f.dirs.open[in.Fh]
	f.dirs.mu.Unlock()
	if n == nil || l == nil {
		return nil, nil, fuse.EBADF
	}
	// The kernel reads one open directory from one task at a time.
	if in.Offset == 0 || !l.read {
		names, err := f.list(n)
		if err != nil {
			return nil, nil, status(err)
		}
		l.names, l.read = names, true
	}
	if in.Offset > uint64(len(l.names)) {
		return n, nil, fuse.OK
	}
	return n, l.names[in.Offset:], fuse.OK
}

// ReadDir implements fuse.RawFileSystem.
func (f *guard) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f.names.RLock()
	defer f.names.RUnlock()
	n, names, s := f.listed(in)
	if !s.Ok() {
		return s
	}
	n.named.Store(true)
	for _, e := range names {
		if !out.AddDirEntry(e) {
			break
		}
	}
	return fuse.OK
}

// ReadDirPlus implements fuse.RawFileSystem. It saves a lookup of each name.
func (f *guard) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f.names.RLock()
	defer f.names.RUnlock()
	n, names, s := f.listed(in)
	if !s.Ok() {
		return s
	}
	var here spot
	if n.key.place != virtual {
		var err error
		if here, err = f.inside(n, false); err != nil {
			return status(err)
		}
		defer here.done()
	}
	for _, e := range names {
		eo := out.AddDirLookupEntry(e)
		if eo == nil {
			break
		}
		if e.Name == "." || e.Name == ".." || n.key.place == virtual {
			continue // the kernel wants no lookup of these
		}
		sp, err := f.named(n, here, e.Name)
		if err != nil {
			continue
		}
		if st := f.enter(n, sp, e.Name, eo); !st.Ok() {
			*eo = fuse.EntryOut{} // it is gone: the kernel looks itself
		} else if eo.NodeId != 0 {
			out.FixMode(eo.Mode)
		}
	}
	return fuse.OK
}
