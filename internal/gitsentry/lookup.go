package gitsentry

import (
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/dotgit"
)

// spot is where a name of a directory is, or would be.
type spot struct {
	place place
	class class
	zone  zone
	dir   *file // of a host's directory; its use is the holder's
}

// find says where name of dir lives. With now, as before every change, it judges
// by where dir is at this moment; reading goes by what was true at the lookup.
func (f *guard) find(dir *node, name string, now bool) (spot, error) {
	s, err := f.inside(dir, now)
	if err != nil {
		return spot{}, err
	}
	if s, err = f.named(dir, s, name); err != nil {
		s.done()
		return spot{}, err
	}
	return s, nil
}

// inside is what find knows of all names in dir.
func (f *guard) inside(dir *node, now bool) (spot, error) {
	if dir.key.place != onHost {
		return spot{place: dir.key.place, class: real, zone: zone{kind: apart}}, nil
	}
	p, err := f.openPath(dir)
	if err != nil {
		return spot{}, err
	}
	s := spot{place: onHost, dir: p}
	if !now {
		s.zone = f.zoneSeen(dir)
		return s, nil
	}
	if s.zone, err = f.zoneOfFD(dir.top, p.fd); err == nil && s.zone.kind == outside {
		err = unix.ESTALE
	}
	if s.zone.kind == worktree && f.conf.now.Load().unknown {
		s.zone.kind = frozen
	}
	if err != nil {
		p.done()
		return spot{}, err
	}
	return s, nil
}

// named makes s, which inside has returned for dir, the spot of name. The use of
// its descriptor stays one.
func (f *guard) named(dir *node, s spot, name string) (spot, error) {
	if dir.key.place != onHost {
		return s, nil
	}
	s.class = f.judge(dir.top, s.zone, s.dir.fd, name)
	if place, ok := f.shadows.has(dir.key.dirKey(), name); ok {
		s.place = place
		return s, nil
	}
	if s.class == memory {
		s.place = onMemory // nothing of the host's shows through
		if s.zone.kind == worktree && f.masked(join(s.zone.rel, name), name) {
			return s, f.beginMask(dir, s, name)
		}
		return s, f.begin(dir, name)
	}
	return s, nil
}

// zoneSeen is the zone of a host's directory as it was reached. It is enough for
// reading: what the host has moved since then is judged anew before it is changed.
func (f *guard) zoneSeen(dir *node) zone {
	rel := f.seenAt(dir)
	if zoneKind(dir.zoned.Load()) == worktree {
		return zone{kind: worktree, rel: rel}
	}
	return f.zoneOf(dir.top, rel)
}

// seenAt is the path below its root by which dir was reached.
func (f *guard) seenAt(dir *node) string {
	f.nodes.mu.RLock()
	defer f.nodes.mu.RUnlock()
	var parts []string
	for n := dir; n.parent != nil && n.parent.key.place != virtual; n = n.parent {
		parts = append(parts, n.name)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "/")
}

func (s spot) done() { s.dir.done() }

// stat is statx of what is at a spot, and an O_PATH descriptor of it; an absent
// one is ENOENT.
func (f *guard) stat(dir *node, s spot, name string, st *unix.Statx_t) (*file, error) {
	var fd int
	var err error
	if s.place == onHost {
		fd, err = openat(s.dir.fd, name, unix.O_PATH)
	} else {
		if dir.key.place == onHost {
			if _, ok := f.shadows.has(dir.key.dirKey(), name); !ok {
				return nil, unix.ENOENT
			}
		}
		var p string
		if p, err = f.childPath(dir, name, s.place); err == nil {
			fd, err = openat(unix.AT_FDCWD, p, unix.O_PATH)
		}
	}
	if err != nil {
		return nil, err
	}
	h := newFile(fd)
	if err := statx(fd, "", st); err != nil {
		h.done()
		return nil, err
	}
	return h, nil
}

// classOf is the class of an existing file, which decides over its bytes.
func classOf(s spot, st *unix.Statx_t) class {
	if s.place != onHost {
		return real
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return real // what is in it is judged by its own zone
	}
	switch s.zone.kind {
	case worktree:
		if s.class == real {
			return real
		}
	case gitDir:
		if s.class == real || s.class == index {
			return s.class
		}
	}
	return readOnly
}

// Lookup implements fuse.RawFileSystem.
func (f *guard) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	dir := f.nodes.get(h.NodeId)
	if dir == nil || !dir.dir {
		return fuse.ENOENT
	}
	if dir.key.place == virtual {
		return f.lookupVirtual(dir, name, out)
	}
	f.names.RLock()
	defer f.names.RUnlock()
	s, err := f.find(dir, name, false)
	if err != nil {
		return status(err)
	}
	defer s.done()
	return f.enter(dir, s, name, out)
}

// enter answers with what is at the spot. It counts a lookup.
func (f *guard) enter(dir *node, s spot, name string, out *fuse.EntryOut) fuse.Status {
	watched := f.watching(dir, s)
	var st unix.Statx_t
	h, err := f.stat(dir, s, name, &st)
	if err == nil && !f.sameGit(dir, s, name, &st) {
		h.done()
		return fuse.EIO
	}
	if errors.Is(err, unix.ENOENT) {
		if f.lostGit(dir, s, name) {
			return fuse.EIO
		}
		if !watched && s.place == onHost || s.zone.kind == gitDir {
			return fuse.ENOENT
		}
		out.NodeId = 0 // kept as absent
		out.SetEntryTimeout(keptFor)
		return fuse.OK
	}
	if err != nil {
		return status(err)
	}
	n := f.admit(dir, s, name, h, &st)
	f.fillEntry(n, s, name, watched, &st, out)
	return fuse.OK
}

// admit makes st's file, open as h, a node.
func (f *guard) admit(dir *node, s spot, name string, h *file, st *unix.Statx_t) *node {
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	top := dir.top
	if s.place != onHost {
		top = nil
	}
	n := f.nodes.enter(identityOf(s.place, classOf(s, st), st), isDir, top, dir, name)
	n.at.Lock()
	if n.path == nil {
		n.path = h
		f.fds.add(n)
	} else {
		h.done()
	}
	if !n.staged.Load() {
		n.last = stampOf(st)
	}
	n.at.Unlock()
	if isDir {
		z := zone{kind: apart}
		if s.place == onHost {
			z = f.step(dir.top, s.zone, name)
			f.meetRepository(z, dir.top)
		}
		n.zoned.Store(int32(z.kind))
	}
	return n
}

// meetRepository looks whether the host has a repository in a directory.
func (f *guard) meetRepository(z zone, top *root) {
	if top != f.workspace.top {
		return
	}
	switch {
	case z.kind == gitDir && z.sub == "" && dotgit.Is(path.Base(z.rel)):
		f.conf.meet(path.Dir(z.rel))
	case z.kind == gitDir && z.sub == "" || z.kind == worktree && entry(top.fd, z.rel+"/.git"):
		f.conf.meet(z.rel)
	}
}

// timeouts are how long the kernel may keep a name and its attributes.
func (f *guard) timeouts(s spot, name string, watched, dir bool) (entry, attr time.Duration) {
	switch {
	case s.place != onHost:
		return keptFor, keptFor
	case s.zone.kind == frozen, s.zone.kind == outside:
		return 0, moment
	case s.zone.kind == gitDir && !under(s.zone.sub, "objects"):
		switch sub := join(s.zone.sub, name); {
		case !dir:
			return 0, moment
		case sub == "refs", sub == "refs/heads", sub == "refs/tags", sub == "refs/remotes", sub == "info", sub == "logs", sub == "logs/refs", sub == "objects":
			return keptFor, unwatched // made once for all time
		}
		return 0, unwatched
	case watched:
		return keptFor, keptFor
	}
	return unwatched, unwatched
}

func (f *guard) fillEntry(n *node, s spot, name string, watched bool, st *unix.Statx_t, out *fuse.EntryOut) {
	e, a := f.timeouts(s, name, watched, n.dir)
	out.NodeId, out.Generation = n.id, 1
	n.keep.Store(int64(a))
	out.SetEntryTimeout(e)
	out.SetAttrTimeout(a)
	n.told.Store(s.zone.kind != worktree && (name == "packed-refs" || name == "shallow"))
	fillAttr(st, &out.Attr)
	f.shown(n, &out.Attr)
}

func fillAttr(st *unix.Statx_t, a *fuse.Attr) {
	a.Ino, a.Size, a.Blocks, a.Blksize = st.Ino, st.Size, st.Blocks, st.Blksize
	a.Atime, a.Atimensec = uint64(st.Atime.Sec), st.Atime.Nsec //nolint:gosec // as the protocol has it
	a.Mtime, a.Mtimensec = uint64(st.Mtime.Sec), st.Mtime.Nsec //nolint:gosec // as the protocol has it
	a.Ctime, a.Ctimensec = uint64(st.Ctime.Sec), st.Ctime.Nsec //nolint:gosec // as the protocol has it
	a.Mode, a.Nlink = uint32(st.Mode), st.Nlink
	a.Uid, a.Gid = st.Uid, st.Gid
	a.Rdev = st.Rdev_major<<8 | st.Rdev_minor
}

func (f *guard) lookupVirtual(dir *node, name string, out *fuse.EntryOut) fuse.Status {
	n := f.nodes.child(dir, name)
	switch {
	case dir.id == rootID && name == InfoName:
		n = f.nodes.get(infoID)
	case dir.id == infoID && name == "refusals":
		n = f.nodes.get(logID)
	}
	if n == nil {
		return fuse.ENOENT
	}
	out.NodeId, out.Generation = n.id, 1
	var a fuse.AttrOut
	if s := f.attr(n, &a); !s.Ok() {
		return s
	}
	out.Attr = a.Attr
	if n.key.place == onHost {
		out.SetEntryTimeout(keptFor) // its name never changes
		out.SetAttrTimeout(time.Duration(n.keep.Load()))
	}
	return fuse.OK
}

// sameGit tells whether .git of the workspace is still the one of the start.
func (f *guard) sameGit(dir *node, s spot, name string, st *unix.Statx_t) bool {
	if dir != f.workspace || s.place != onHost || name != ".git" {
		return true
	}
	if f.hasGit && identityOf(onHost, 0, st) != f.rootGit {
		f.noteCut()
	}
	return !f.cut.Load()
}

// lostGit tells whether name is the workspace's .git, which the host has had.
func (f *guard) lostGit(dir *node, s spot, name string) bool {
	if dir != f.workspace || name != ".git" || s.place != onHost && s.place != onDisk || !f.hasGit {
		return false
	}
	f.noteCut()
	return true
}

// Flush implements fuse.RawFileSystem: there is nothing to do at the end of an
// open file, and the kernel need not ask again.
func (f *guard) Flush(_ <-chan struct{}, _ *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

// Forget implements fuse.RawFileSystem.
func (f *guard) Forget(id, count uint64) {
	n, gone := f.nodes.forget(id, count)
	if !gone {
		return
	}
	f.watch.drop(n)
	f.fds.remove(n)
}

// GetAttr implements fuse.RawFileSystem.
func (f *guard) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := f.nodes.get(in.NodeId)
	if n == nil {
		return fuse.Status(unix.ESTALE)
	}
	return f.attr(n, out)
}

func (f *guard) attr(n *node, out *fuse.AttrOut) fuse.Status {
	if n.key.place == virtual {
		out.Ino, out.Nlink = n.id, 1
		out.Mode = unix.S_IFDIR | 0o555
		if n.id == logID {
			text, at := f.refused.text()
			out.Mode, out.Size = unix.S_IFREG|0o444, uint64(len(text))
			out.SetTimes(nil, &at, &at)
		}
		return fuse.OK // not kept: nobody gets past a dead guard's root
	}
	p, err := f.openPath(n)
	if err != nil {
		return status(err)
	}
	defer p.done()
	var st unix.Statx_t
	if err := statx(p.fd, "", &st); err != nil {
		return status(err)
	}
	f.fillAttrOut(n, &st, out)
	return fuse.OK
}

func (f *guard) fillAttrOut(n *node, st *unix.Statx_t, out *fuse.AttrOut) {
	n.at.Lock()
	if !n.staged.Load() {
		n.last = stampOf(st)
	}
	n.at.Unlock()
	fillAttr(st, &out.Attr)
	f.shown(n, &out.Attr)
	out.SetTimeout(time.Duration(n.keep.Load()))
}

// Readlink implements fuse.RawFileSystem.
func (f *guard) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	n := f.nodes.get(h.NodeId)
	if n == nil || n.key.place == virtual {
		return nil, fuse.EINVAL
	}
	p, err := f.openPath(n)
	if err != nil {
		return nil, status(err)
	}
	defer p.done()
	buf := make([]byte, unix.PathMax)
	sz, err := unix.Readlinkat(p.fd, "", buf)
	if err != nil {
		return nil, status(err)
	}
	return buf[:sz], fuse.OK
}

// StatFs implements fuse.RawFileSystem.
func (f *guard) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	var st unix.Statfs_t
	if err := unix.Fstatfs(f.workspace.top.fd, &st); err != nil {
		return status(err)
	}
	out.Blocks, out.Bfree, out.Bavail = st.Blocks, st.Bfree, st.Bavail
	out.Files, out.Ffree = st.Files, st.Ffree
	out.Bsize, out.Frsize = uint32(st.Bsize), uint32(st.Frsize) //nolint:gosec // block sizes
	out.NameLen = uint32(st.Namelen) - uint32(len(marked))      //nolint:gosec // 255
	return fuse.OK
}
