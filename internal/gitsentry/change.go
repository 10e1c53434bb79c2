package gitsentry

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/dotgit"
)

// at is a place for a new name: the directory's descriptor and the name in it.
type at struct {
	fd   int
	name string
}

// target is a name that is about to be made.
type target struct {
	spot
	at
	dir  *node
	name string // in the sandbox
	top  bool   // the first name of a shadow
}

// holdNames keeps judgements valid during the act. What completes a shape, or moves a
// directory, is alone.
func (f *guard) holdNames(alone bool) (release func()) {
	f.conf.wait()
	if alone {
		f.names.Lock()
		return f.names.Unlock
	}
	f.names.RLock()
	return f.names.RUnlock
}

// newName judges the making of name in dir. The caller ends the use of the result.
func (f *guard) newName(op string, id uint64, name string) (*target, fuse.Status) {
	dir := f.nodes.get(id)
	if dir == nil || !dir.dir {
		return nil, fuse.Status(unix.ESTALE)
	}
	if dir.key.place == virtual {
		return nil, fuse.EROFS
	}
	s, err := f.find(dir, name, true)
	if err != nil {
		return nil, status(err)
	}
	t := &target{spot: s, dir: dir, name: name}
	fail := func(st fuse.Status) (*target, fuse.Status) {
		s.done()
		return nil, st
	}
	if dir.key.place != onHost {
		p, err := f.childPath(dir, name, s.place)
		if err != nil {
			return fail(status(err))
		}
		t.at = at{unix.AT_FDCWD, p}
		return t, fuse.OK
	}
	where := join(s.zone.rel, name)
	if s.zone.kind == gitDir && f.cut.Load() && f.isRootGit(dir, s.zone) {
		return fail(fuse.EIO)
	}
	switch s.class {
	case readOnly:
		return fail(f.refuse(op, where, unix.EROFS))
	case refused:
		return fail(f.refuse(op, where, unix.EPERM))
	case shadow:
		s.place = onDisk
	case memory:
		s.place = onMemory
	default:
		if s.zone.kind == gitDir && s.zone.sub == "" && isDirName(name) != (op == "mkdir") {
			return fail(f.refuse(op, where, unix.EPERM))
		}
		t.at = at{s.dir.fd, name}
		return t, fuse.OK
	}
	if dir == f.workspace && name == ".git" && f.hasGit {
		if !entry(s.dir.fd, name) {
			f.noteCut()
		}
		return fail(f.refuse(op, where, unix.EBUSY))
	}
	if s.class == shadow && entry(s.dir.fd, name) {
		return fail(fuse.Status(unix.EEXIST)) // the host's own shows
	}
	p, err := f.shadows.topPath(dir.key.dirKey(), name, s.place)
	if err != nil {
		return fail(status(err))
	}
	t.spot.place, t.at, t.top = s.place, at{unix.AT_FDCWD, p}, true
	return t, fuse.OK
}

// isRootGit tells whether a zone is in the git directory that the workspace had
// at the start, wherever the host has put it since.
func (f *guard) isRootGit(dir *node, z zone) bool {
	var st unix.Statx_t
	return dir.top == f.workspace.top && statx(dir.top.fd, z.git, &st) == nil && identityOf(onHost, 0, &st) == f.rootGit
}

// made answers the making of a name; h is nil where nobody is to own it anew.
func (f *guard) made(t *target, h *fuse.InHeader, out *fuse.EntryOut) (*node, fuse.Status) {
	if t.top {
		f.shadows.note(t.dir.key.dirKey().String(), t.name, t.place)
	}
	var st unix.Statx_t
	p, err := f.stat(t.dir, t.spot, t.name, &st)
	if err != nil {
		return nil, status(err)
	}
	if h != nil {
		if err := own(p.fd, &st, h); err != nil {
			p.done()
			return nil, status(err)
		}
	}
	watched := f.watching(t.dir, t.spot)
	n := f.admit(t.dir, t.spot, t.name, p, &st)
	f.fillEntry(n, t.spot, t.name, watched, &st, out)
	return n, fuse.OK
}

// setID are the bits by which a program runs as its owner. The sandbox does not
// follow them in the workspace, so they would only be of use to somebody on the
// host: no file there gets them.
const setID = unix.S_ISUID | unix.S_ISGID

// own gives a new file to whoever made it. It is made as ours.
func own(fd int, st *unix.Statx_t, h *fuse.InHeader) error {
	uid, gid := int(h.Uid), int(h.Gid)
	if st.Uid == h.Uid {
		uid = -1
	}
	// A group that the directory has set stays: the kernel's own rule.
	if st.Gid == h.Gid || st.Gid != uint32(os.Getegid()) { //nolint:gosec // a gid
		gid = -1
	}
	if uid == -1 && gid == -1 {
		return nil
	}
	if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return statx(fd, "", st)
}

// Mkdir implements fuse.RawFileSystem.
func (f *guard) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	defer f.holdNames(completes(name) || dotgit.Is(name))()
	t, s := f.newName("mkdir", in.NodeId, name)
	if !s.Ok() {
		return s
	}
	defer t.done()
	if err := unix.Mkdirat(t.fd, t.at.name, in.Mode&0o7777); err != nil {
		return status(err)
	}
	_, s = f.made(t, &in.InHeader, out)
	return s
}

// Mknod implements fuse.RawFileSystem.
func (f *guard) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	defer f.holdNames(completes(name) || dotgit.Is(name))()
	t, s := f.newName("mknod", in.NodeId, name)
	if !s.Ok() {
		return s
	}
	defer t.done()
	switch in.Mode & unix.S_IFMT {
	case unix.S_IFREG, 0:
	case unix.S_IFIFO, unix.S_IFSOCK:
		if t.place == onHost && (t.zone.kind != worktree || f.leads(join(t.zone.rel, name))) {
			return f.refuse("mknod", join(t.zone.rel, name), unix.EPERM)
		}
	default:
		return fuse.EPERM
	}
	if t.place == onHost && t.class == index {
		return f.refuse("create", join(t.zone.rel, name), unix.EPERM)
	}
	if err := unix.Mknodat(t.fd, t.at.name, in.Mode&^setID, 0); err != nil {
		return status(err)
	}
	_, s = f.made(t, &in.InHeader, out)
	return s
}

// Symlink implements fuse.RawFileSystem.
func (f *guard) Symlink(_ <-chan struct{}, h *fuse.InHeader, to, name string, out *fuse.EntryOut) fuse.Status {
	defer f.holdNames(completes(name) || dotgit.Is(name))()
	t, s := f.newName("symlink", h.NodeId, name)
	if !s.Ok() {
		return s
	}
	defer t.done()
	if t.place == onHost && (t.zone.kind != worktree || f.leads(join(t.zone.rel, name))) {
		return f.refuse("symlink", join(t.zone.rel, name), unix.EPERM)
	}
	if err := unix.Symlinkat(to, t.fd, t.at.name); err != nil {
		return status(err)
	}
	_, s = f.made(t, h, out)
	return s
}

// Link implements fuse.RawFileSystem.
func (f *guard) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	defer f.holdNames(completes(name) || dotgit.Is(name))()
	old := f.nodes.get(in.Oldnodeid)
	if old == nil || old.dir || old.key.place == virtual {
		return fuse.EPERM
	}
	t, s := f.newName("link", in.NodeId, name)
	if !s.Ok() {
		return s
	}
	defer t.done()
	if old.key.place != t.place {
		return fuse.EXDEV
	}
	p, err := f.openPath(old)
	if err != nil {
		return status(err)
	}
	defer p.done()
	if t.place == onHost {
		where := join(t.zone.rel, name)
		lock, isTwin := lockTwin(name)
		from, oldName, err := f.whereIs(old.top, p.fd)
		if err != nil {
			return status(err)
		}
		isTwin = isTwin && lock == oldName && from.rel == t.zone.rel
		switch {
		case old.key.class != real || from.kind != t.zone.kind || old.top != t.dir.top || from.git != t.zone.git:
			return fuse.EXDEV
		case t.zone.kind == gitDir && !under(join(t.zone.sub, name), "objects") && !isTwin, t.class != real, f.leads(where):
			return f.refuse("link", where, unix.EPERM)
		}
		if err := f.checkWritable(old, p.fd); t.zone.kind == worktree && err != nil {
			return status(err) // what is written by the new name is written there
		}
	}
	if err := unix.Linkat(unix.AT_FDCWD, procFD(p.fd), t.fd, t.at.name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return status(err)
	}
	_, s = f.made(t, nil, out)
	return s
}

// Create implements fuse.RawFileSystem.
func (f *guard) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	defer f.holdNames(completes(name) || dotgit.Is(name))()
	t, s := f.newName("create", in.NodeId, name)
	if !s.Ok() {
		return s
	}
	defer t.done()
	if t.place == onHost {
		where := join(t.zone.rel, name)
		if t.class == index && !entry(t.fd, name) || f.leads(where) && t.zone.kind == worktree {
			return f.refuse("create", where, unix.EPERM)
		}
		if t.class == index {
			return fuse.Status(unix.EEXIST)
		}
	}
	flags := unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK | int(in.Flags)&(unix.O_EXCL|unix.O_TRUNC)
	existed := flags&unix.O_EXCL == 0 && entry(t.fd, t.at.name)
	fd, err := unix.Openat(t.fd, t.at.name, flags, in.Mode&0o7777&^setID)
	if err != nil {
		return status(err)
	}
	h := &in.InHeader
	if existed {
		h = nil // the host was faster: it is nobody's to give away
	}
	n, s := f.made(t, h, &out.EntryOut)
	if !s.Ok() {
		_ = unix.Close(fd)
		return s
	}
	n.at.Lock()
	defer n.at.Unlock()
	n.io.done()
	n.io, n.write = newFile(fd), true
	f.fds.add(n)
	return fuse.OK
}

// Unlink implements fuse.RawFileSystem.
func (f *guard) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return f.remove(h.NodeId, name, "unlink", 0)
}

// Rmdir implements fuse.RawFileSystem.
func (f *guard) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return f.remove(h.NodeId, name, "rmdir", unix.AT_REMOVEDIR)
}

func (f *guard) remove(id uint64, name, op string, flags int) fuse.Status {
	defer f.holdNames(flags != 0)()
	dir := f.nodes.get(id)
	if dir == nil || !dir.dir {
		return fuse.Status(unix.ESTALE)
	}
	if dir.key.place == virtual {
		return fuse.Status(unix.EBUSY)
	}
	s, err := f.find(dir, name, true)
	if err != nil {
		return status(err)
	}
	defer s.done()
	var st unix.Statx_t
	p, err := f.stat(dir, s, name, &st)
	if err != nil {
		return status(err)
	}
	defer p.done()
	if s.place == onHost {
		if errno := f.fixed(dir, s, name, &st); errno != 0 {
			return f.refuse(op, join(s.zone.rel, name), errno)
		}
		if flags != 0 && len(f.shadows.names(identityOf(onHost, real, &st).dirKey())) > 0 {
			if !f.emptyMemory(&st) {
				return fuse.Status(unix.ENOTEMPTY)
			}
		}
	} else if s.class == memory && s.zone.kind == gitDir && flags != 0 {
		return f.refuse(op, join(s.zone.rel, name), unix.EBUSY) // hooks
	}
	n := f.nodes.child(dir, name)
	f.keep(n)
	at, err := f.place(dir, s, name)
	if err != nil {
		return status(err)
	}
	if err := unix.Unlinkat(at.fd, at.name, flags); err != nil {
		return status(err)
	}
	if s.place != onHost && dir.key.place == onHost {
		f.shadows.gone(dir.key.dirKey(), name)
	}
	f.nodes.drop(dir, name)
	return fuse.OK
}

// emptyMemory drops empty directories of masks from a directory that is about to
// be removed; it tells whether nothing else lives apart in it.
func (f *guard) emptyMemory(st *unix.Statx_t) bool {
	key := identityOf(onHost, real, st).dirKey()
	for name, p := range f.shadows.names(key) {
		if p != onMemory || unix.Rmdir(filepath.Join(f.shadows.base[p], key.String(), marked+name)) != nil {
			return false
		}
		f.shadows.gone(key, name)
	}
	return true
}

// place is where an existing name is.
func (f *guard) place(dir *node, s spot, name string) (at, error) {
	if s.place == onHost {
		return at{s.dir.fd, name}, nil
	}
	p, err := f.childPath(dir, name, s.place)
	return at{unix.AT_FDCWD, p}, err
}

// fixed is the error for removing or moving what the host has at a spot, 0 where
// that is allowed.
func (f *guard) fixed(dir *node, s spot, name string, st *unix.Statx_t) unix.Errno {
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	where := join(s.zone.rel, name)
	switch s.zone.kind {
	case worktree:
		switch {
		case s.class == readOnly:
			return unix.EROFS
		case dotgit.Is(name), s.class == memory, f.leads(where):
			return unix.EBUSY
		}
		return 0
	case gitDir:
		if f.cut.Load() && f.isRootGit(dir, s.zone) {
			return unix.EIO
		}
		if s.class != real && s.class != index {
			return unix.EBUSY
		}
		if sub := join(s.zone.sub, name); isDir && (s.zone.sub == "" || sub == "objects/info" || sub == "objects/pack" || sub == "refs/heads" || sub == "refs/tags") {
			return unix.EBUSY
		}
		if !isDir && (s.zone.sub == "" || s.zone.sub == "worktrees/"+f.o.WorktreeName) && strings.EqualFold(name, "HEAD") {
			return unix.EBUSY // without it this would be a directory like others
		}
		if isDir && s.zone.sub == "worktrees" {
			return unix.EBUSY
		}
		return 0
	}
	return unix.EROFS
}

// Rename implements fuse.RawFileSystem.
func (f *guard) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	defer f.holdNames(true)()
	if in.Flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return fuse.EINVAL
	}
	from, to := f.nodes.get(in.NodeId), f.nodes.get(in.Newdir)
	if from == nil || to == nil || !from.dir || !to.dir {
		return fuse.Status(unix.ESTALE)
	}
	if from.key.place == virtual || to.key.place == virtual {
		return fuse.Status(unix.EBUSY)
	}
	a, err := f.find(from, oldName, true)
	if err != nil {
		return status(err)
	}
	defer a.done()
	b, err := f.find(to, newName, true)
	if err != nil {
		return status(err)
	}
	defer b.done()
	var st, over unix.Statx_t
	p, err := f.stat(from, a, oldName, &st)
	if err != nil {
		return status(err)
	}
	defer p.done()
	q, err := f.stat(to, b, newName, &over)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return status(err)
	}
	there := err == nil
	defer q.done()
	if there && in.Flags&unix.RENAME_NOREPLACE != 0 {
		return fuse.Status(unix.EEXIST)
	}
	if !there && in.Flags&unix.RENAME_EXCHANGE != 0 {
		return fuse.ENOENT
	}
	if from == to && in.Flags == 0 && replaces(from, &a, &b, oldName, newName, &st) {
		done, s := f.replace(from, &a, &b, oldName, newName, &over, there)
		if done || !s.Ok() {
			return s
		}
	}
	publish, s := f.judgeRename(from, to, &a, &b, oldName, newName, &st, &over, there, in.Flags)
	if !s.Ok() {
		return s
	}
	moved, replaced := f.nodes.child(from, oldName), f.nodes.child(to, newName)
	if in.Flags&unix.RENAME_EXCHANGE == 0 {
		f.keep(replaced)
	}
	if publish {
		if err := f.publishFile(&a, &b, oldName, newName); err != nil {
			return f.refusedIndex(join(b.zone.rel, newName), err)
		}
		f.keep(moved)
		f.nodes.drop(from, oldName)
		f.nodes.drop(to, newName)
		return fuse.OK
	}
	src, err := f.place(from, a, oldName)
	if err != nil {
		return status(err)
	}
	var dst at
	switch {
	case b.place == onHost:
		dst = at{b.dir.fd, newName}
	case to.key.place == onHost:
		p, err := f.shadows.topPath(to.key.dirKey(), newName, b.place)
		if err != nil {
			return status(err)
		}
		dst = at{unix.AT_FDCWD, p}
	default:
		if dst, err = f.place(to, b, newName); err != nil {
			return status(err)
		}
	}
	if err := unix.Renameat2(src.fd, src.name, dst.fd, dst.name, uint(in.Flags)); err != nil {
		return status(err)
	}
	exchange := in.Flags&unix.RENAME_EXCHANGE != 0
	if from.key.place == onHost && a.place != onHost && !exchange {
		f.shadows.gone(from.key.dirKey(), oldName)
	}
	if to.key.place == onHost && b.place != onHost {
		f.shadows.note(to.key.dirKey().String(), newName, b.place)
	}
	if moved != nil {
		f.nodes.moved(moved, to, newName)
	}
	if a.place == onHost && a.zone.kind == worktree && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		f.conf.moved(join(a.zone.rel, oldName), join(b.zone.rel, newName))
	}
	if exchange && replaced != nil {
		f.nodes.moved(replaced, from, oldName)
	}
	return fuse.OK
}

// judgeRename allows a rename, or says why not. With publish, the old name's bytes
// must be checked and become the new one's.
func (f *guard) judgeRename(from, to *node, a, b *spot, oldName, newName string, st, over *unix.Statx_t, there bool, flags uint32) (publish bool, s fuse.Status) {
	wa, wb := join(a.zone.rel, oldName), join(b.zone.rel, newName)
	// Where a new name would go, if nothing is there.
	if b.place == onHost {
		switch b.class {
		case shadow:
			if !there {
				b.place = onDisk
			}
		case memory:
			b.place = onMemory
		}
	}
	if a.place == onHost {
		if errno := f.fixed(from, *a, oldName, st); errno != 0 {
			return false, f.refuse("rename", wa, errno)
		}
	} else if from.key.place == onHost && a.class == memory && a.zone.kind == gitDir {
		return false, f.refuse("rename", wa, unix.EBUSY)
	}
	if there && b.place == onHost {
		if errno := f.fixed(to, *b, newName, over); errno != 0 && (b.zone.kind != gitDir || newName != "HEAD" || b.class != real) {
			return false, f.refuse("rename", wb, errno)
		}
	}
	if b.place == onHost {
		switch b.class {
		case readOnly:
			return false, f.refuse("rename", wb, unix.EROFS)
		case refused:
			return false, f.refuse("rename", wb, unix.EPERM)
		}
	}
	if to == f.workspace && newName == ".git" && f.hasGit {
		return false, f.refuse("rename", wb, unix.EBUSY)
	}
	if a.place != b.place {
		return false, fuse.EXDEV
	}
	if a.place != onHost {
		// A directory of the host has either a shadow or its own.
		return false, fuse.OK
	}
	if a.zone.kind != b.zone.kind || a.zone.git != b.zone.git || from.top != to.top {
		return false, fuse.EXDEV
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if a.zone.kind == gitDir {
		switch {
		case flags&unix.RENAME_EXCHANGE != 0, st.Mode&unix.S_IFMT != unix.S_IFREG:
			return false, f.refuse("rename", wa, unix.EBUSY)
		case b.class == index:
			return true, fuse.OK
		}
		return false, fuse.OK
	}
	if flags&unix.RENAME_EXCHANGE != 0 && (completes(oldName) || completes(newName) || a.class != real || b.class != real) {
		return false, f.refuse("rename", wa, unix.EBUSY)
	}
	if f.leads(wb) && !isDir {
		return false, f.refuse("rename", wb, unix.EROFS)
	}
	if there && over.Mode&unix.S_IFMT == unix.S_IFDIR && len(f.shadows.names(identityOf(onHost, real, over).dirKey())) > 0 && flags&unix.RENAME_EXCHANGE == 0 {
		return false, fuse.Status(unix.ENOTEMPTY)
	}
	return false, fuse.OK
}
