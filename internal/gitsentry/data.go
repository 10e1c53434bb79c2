package gitsentry

import (
	"errors"
	"path"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
)

// zoneOfFile is the zone of the directory in which an open file is now.
func (f *guard) zoneOfFile(top *root, fd int) (zone, error) {
	z, _, err := f.whereIs(top, fd)
	return z, err
}

// whereIs is the zone of an open file's directory, and its name there.
func (f *guard) whereIs(top *root, fd int) (zone, string, error) {
	rel, inside, err := f.below(top, fd)
	if err != nil {
		return zone{}, "", err
	}
	if !inside || rel == "" {
		return zone{kind: outside}, "", nil
	}
	dir, name := path.Split(rel)
	return f.zoneOf(top, strings.TrimSuffix(dir, "/")), name, nil
}

// checkWritable refuses to write to a file that the host has moved to where git
// obeys it.
func (f *guard) checkWritable(n *node, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return nil // it has no name any more
	}
	z, name, err := f.whereIs(n.top, fd)
	if err != nil {
		return err
	}
	rel := join(z.rel, name)
	switch z.kind {
	case worktree:
		now := f.conf.now.Load()
		twin := st.Nlink > 1 && (now.allTwins || now.twins[fileID{st.Dev, st.Ino}])
		if n.key.class == real && name != ".git" && !now.unknown && !twin && !f.protected(rel) && !f.masked(rel, name) && !f.ownCopy(rel) {
			return nil
		}
	case gitDir:
		if f.cut.Load() {
			return unix.EIO
		}
		next := z
		next.rel, next.sub = rel, join(z.sub, name)
		if c := f.rule(n.top, next); c == n.key.class && c == real {
			return nil
		}
	}
	f.refuse("write", rel, unix.EROFS)
	return unix.EROFS
}

// writable tells whether the bytes of n can be changed at all.
func (f *guard) writable(n *node, op string) fuse.Status {
	switch {
	case n.key.place == virtual:
		return fuse.EROFS
	case n.key.class == readOnly:
		return f.refuse(op, f.seenName(n), unix.EROFS)
	}
	return fuse.OK
}

func (f *guard) seenName(n *node) string {
	f.nodes.mu.RLock()
	parent, name := n.parent, n.name
	f.nodes.mu.RUnlock()
	if parent == nil {
		return name
	}
	return join(f.seenAt(parent), name)
}

// Open implements fuse.RawFileSystem: the kernel need not ask. Whatever matters
// is judged by each READ and WRITE.
func (f *guard) Open(_ <-chan struct{}, _ *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	return fuse.ENOSYS
}

// pread fills buf from off, as far as there is something.
func pread(h *file, buf []byte, off int64) ([]byte, fuse.Status) {
	got := 0
	for got < len(buf) {
		n, err := unix.Pread(h.fd, buf[got:], off+int64(got))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil && got == 0 {
			return nil, status(err)
		}
		if err != nil || n == 0 {
			break
		}
		got += n
	}
	return buf[:got], fuse.OK
}

// Read implements fuse.RawFileSystem.
func (f *guard) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n := f.nodes.get(in.NodeId)
	switch {
	case n == nil:
		return nil, fuse.Status(unix.ESTALE)
	case n.id == logID:
		text, _ := f.refused.text()
		if in.Offset >= uint64(len(text)) {
			return fuse.ReadResultData(nil), fuse.OK
		}
		return fuse.ReadResultData(text[in.Offset:min(uint64(len(text)), in.Offset+uint64(len(buf)))]), fuse.OK
	case n.dir:
		return nil, fuse.EISDIR
	}
	if f.hasSuffix(n) {
		return f.readConfig(n, in.Offset, len(buf))
	}
	if n.staged.Load() {
		if data, ok := f.readStaged(n, in.Offset, len(buf)); ok {
			return fuse.ReadResultData(data), fuse.OK
		}
	}
	h, err := f.openIO(n, false)
	if err != nil {
		return nil, status(err)
	}
	defer h.done()
	data, s := pread(h, buf, int64(in.Offset)) //nolint:gosec // a file offset
	if !s.Ok() {
		return nil, s
	}
	return fuse.ReadResultData(data), fuse.OK
}

// hasSuffix tells whether n is a config that says more in the sandbox: git takes
// the last word, which config.worktree has where it is in use.
func (f *guard) hasSuffix(n *node) bool {
	if f.o.ConfigSuffix == "" || f.gitDir == nil || n.dir || n.top != f.gitDir.top {
		return false
	}
	f.nodes.mu.RLock()
	defer f.nodes.mu.RUnlock()
	return n.parent == f.gitDir && (n.name == "config" || n.name == "config.worktree")
}

// readConfig reads the host's config and what follows it in the sandbox.
func (f *guard) readConfig(n *node, off uint64, size int) (fuse.ReadResult, fuse.Status) {
	h, err := f.openIO(n, false)
	if err != nil {
		return nil, status(err)
	}
	defer h.done()
	data, s := pread(h, make([]byte, gitconf.MaxFile), 0)
	if !s.Ok() {
		return nil, s
	}
	data = append(data, f.o.ConfigSuffix...)
	return fuse.ReadResultData(data[min(off, uint64(len(data))):min(uint64(len(data)), off+uint64(size))]), fuse.OK //nolint:gosec // a buffer's length
}

const (
	rwfAppend  = 0x10 // RWF_APPEND of linux/fs.h
	writeCache = 1    // FUSE_WRITE_CACHE of linux/fuse.h: it comes from a mapping
)

// Write implements fuse.RawFileSystem.
func (f *guard) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n := f.nodes.get(in.NodeId)
	if n == nil || n.dir {
		return 0, fuse.Status(unix.ESTALE)
	}
	if s := f.writable(n, "write"); !s.Ok() {
		return 0, s
	}
	if n.key.class == index {
		return f.writeStaged(n, in.Offset, data)
	}
	defer f.holdNames(false)()
	h, err := f.openIO(n, true)
	if err != nil {
		return 0, status(err)
	}
	defer h.done()
	if in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
		if err := dropSetID(h.fd); err != nil {
			return 0, status(err)
		}
	}
	appending := in.Flags&unix.O_APPEND != 0 && in.WriteFlags&writeCache == 0
	done := 0
	for done < len(data) {
		var w int
		if appending {
			// Where the host has appended meanwhile, the kernel's offset is too low.
			w, err = unix.Pwritev2(h.fd, [][]byte{data[done:]}, 0, rwfAppend)
		} else {
			w, err = unix.Pwrite(h.fd, data[done:], int64(in.Offset)+int64(done)) //nolint:gosec // a file offset
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			break
		}
		done += w
	}
	if done == 0 && err != nil {
		return 0, status(err)
	}
	f.stampNow(n, h.fd)
	return uint32(done), fuse.OK
}

// dropSetID takes the bits by which a program runs as its owner from a file that is
// about to be changed: the kernel leaves that to us, who may be allowed to keep them.
func dropSetID(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&setID == 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	return unix.Fchmod(fd, st.Mode&0o7777&^setID)
}

// Writev implements fuse.RawFileSystem.
func (f *guard) Writev(_ <-chan struct{}, _ *fuse.WriteIn, _ [][]byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

// stampNow keeps our own change apart from the host's.
func (f *guard) stampNow(n *node, fd int) {
	var st unix.Statx_t
	if statx(fd, "", &st) != nil {
		return
	}
	n.at.Lock()
	n.last = stampOf(&st)
	n.at.Unlock()
}

// SetAttr implements fuse.RawFileSystem.
func (f *guard) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	defer f.holdNames(false)()
	n := f.nodes.get(in.NodeId)
	if n == nil {
		return fuse.Status(unix.ESTALE)
	}
	op := "setattr"
	if in.Valid&fuse.FATTR_SIZE != 0 {
		op = "truncate"
	}
	if s := f.writable(n, op); !s.Ok() {
		return s
	}
	if f.ownedAlready(n, in, out) {
		return fuse.OK
	}
	if s := f.judgeAttr(n, in); !s.Ok() {
		return s
	}
	if size, ok := in.GetSize(); ok {
		if n.key.class == index {
			if s := f.truncateStaged(n, size); !s.Ok() {
				return s
			}
		} else {
			h, err := f.openIO(n, true)
			if err != nil {
				return status(err)
			}
			if err = dropSetID(h.fd); err == nil {
				err = unix.Ftruncate(h.fd, int64(size)) //nolint:gosec // the kernel checks it
			}
			h.done()
			if err != nil {
				return status(err)
			}
		}
	}
	p, err := f.openPath(n)
	if err != nil {
		return status(err)
	}
	defer p.done()
	if !n.dir {
		in.Mode &^= setID
	}
	if err := applyAttr(p.fd, in); err != nil {
		return status(err)
	}
	var st unix.Statx_t
	if err := statx(p.fd, "", &st); err != nil {
		return status(err)
	}
	f.fillAttrOut(n, &st, out)
	return fuse.OK
}

// ownedAlready answers who gives a file that he has just made to its owner, as runsc
// does with each: there is nothing to do.
func (f *guard) ownedAlready(n *node, in *fuse.SetAttrIn, out *fuse.AttrOut) bool {
	const owner, other = fuse.FATTR_UID | fuse.FATTR_GID, fuse.FATTR_MODE | fuse.FATTR_SIZE | fuse.FATTR_ATIME | fuse.FATTR_MTIME | fuse.FATTR_CTIME
	if n.dir || in.Valid&owner == 0 || in.Valid&other != 0 {
		return false
	}
	p, err := f.openPath(n)
	if err != nil {
		return false
	}
	defer p.done()
	var st unix.Statx_t
	if statx(p.fd, "", &st) != nil || st.Mask&unix.STATX_BTIME == 0 || st.Btime != st.Ctime || uint32(st.Mode)&setID != 0 {
		return false
	}
	if uid, ok := in.GetUID(); ok && uid != st.Uid {
		return false
	}
	if gid, ok := in.GetGID(); ok && gid != st.Gid {
		return false
	}
	f.fillAttrOut(n, &st, out)
	return true
}

// judgeAttr refuses to change the mode or owner of what a git directory consists of.
func (f *guard) judgeAttr(n *node, in *fuse.SetAttrIn) fuse.Status {
	if n.key.place != onHost || in.Valid&(fuse.FATTR_MODE|fuse.FATTR_UID|fuse.FATTR_GID) == 0 {
		return fuse.OK
	}
	p, err := f.openPath(n)
	if err != nil {
		return status(err)
	}
	defer p.done()
	var z zone
	if n.dir {
		z, err = f.zoneOfFD(n.top, p.fd)
	} else {
		z, err = f.zoneOfFile(n.top, p.fd)
	}
	switch {
	case err != nil:
		return status(err)
	case z.kind == outside:
		return fuse.Status(unix.ESTALE)
	case z.kind == frozen, z.kind == gitDir && n.dir && !strings.Contains(z.sub, "/"):
		return f.refuse("chmod", f.seenName(n), unix.EROFS)
	case z.kind == worktree && (f.conf.now.Load().unknown || f.protected(f.seenName(n))):
		return f.refuse("chmod", f.seenName(n), unix.EROFS)
	}
	return fuse.OK
}

func applyAttr(fd int, in *fuse.SetAttrIn) error {
	uid, okUID := in.GetUID()
	gid, okGID := in.GetGID()
	if okUID || okGID {
		u, g := -1, -1
		if okUID {
			u = int(uid)
		}
		if okGID {
			g = int(gid)
		}
		if err := unix.Fchownat(fd, "", u, g, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	if mode, ok := in.GetMode(); ok {
		if err := unix.Chmod(procFD(fd), mode); err != nil {
			return err
		}
	}
	if in.Valid&(fuse.FATTR_ATIME|fuse.FATTR_MTIME) == 0 {
		return nil
	}
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	set := func(i int, now, given uint32, t time.Time) {
		switch {
		case in.Valid&given == 0:
		case in.Valid&now != 0:
			ts[i] = unix.Timespec{Nsec: unix.UTIME_NOW}
		default:
			ts[i] = unix.NsecToTimespec(t.UnixNano())
		}
	}
	set(0, fuse.FATTR_ATIME_NOW, fuse.FATTR_ATIME, time.Unix(int64(in.Atime), int64(in.Atimensec))) //nolint:gosec // as the protocol has it
	set(1, fuse.FATTR_MTIME_NOW, fuse.FATTR_MTIME, time.Unix(int64(in.Mtime), int64(in.Mtimensec))) //nolint:gosec // as the protocol has it
	// The magic link leads to the very file, a symbolic link too.
	return utimes(fd, ts)
}

func utimes(fd int, ts [2]unix.Timespec) error {
	err := unix.UtimesNanoAt(fd, "", ts[:], unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // kernels before 5.8
		err = unix.UtimesNanoAt(unix.AT_FDCWD, procFD(fd), ts[:], 0)
	}
	return err
}

// Fsync implements fuse.RawFileSystem.
func (f *guard) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n := f.nodes.get(in.NodeId)
	if n == nil || n.key.place == virtual || n.key.class == readOnly {
		return fuse.OK
	}
	if n.staged.Load() {
		f.settle(n)
		return fuse.OK
	}
	h, err := f.openIO(n, false)
	if err != nil {
		return status(err)
	}
	defer h.done()
	if in.FsyncFlags&1 != 0 {
		return status(unix.Fdatasync(h.fd))
	}
	return status(unix.Fsync(h.fd))
}

// FsyncDir implements fuse.RawFileSystem.
func (f *guard) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n := f.nodes.get(in.NodeId)
	if n == nil || n.key.place == virtual {
		return fuse.OK
	}
	fd, err := f.openDirFD(n)
	if err != nil {
		return status(err)
	}
	err = unix.Fsync(fd)
	_ = unix.Close(fd)
	return status(err)
}

// Fallocate implements fuse.RawFileSystem.
func (f *guard) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	n := f.nodes.get(in.NodeId)
	if n == nil || n.dir {
		return fuse.Status(unix.ESTALE)
	}
	if s := f.writable(n, "write"); !s.Ok() {
		return s
	}
	if n.key.class == index {
		return fuse.Status(unix.EOPNOTSUPP)
	}
	defer f.holdNames(false)()
	h, err := f.openIO(n, true)
	if err != nil {
		return status(err)
	}
	defer h.done()
	if err := dropSetID(h.fd); err != nil {
		return status(err)
	}
	err = unix.Fallocate(h.fd, in.Mode, int64(in.Offset), int64(in.Length)) //nolint:gosec // the kernel checks them
	f.stampNow(n, h.fd)
	return status(err)
}

// Lseek implements fuse.RawFileSystem.
func (f *guard) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	n := f.nodes.get(in.NodeId)
	if n == nil || n.key.place == virtual || n.staged.Load() {
		return fuse.ENOSYS
	}
	h, err := f.openIO(n, false)
	if err != nil {
		return status(err)
	}
	defer h.done()
	off, err := unix.Seek(h.fd, int64(in.Offset), int(in.Whence)) //nolint:gosec // the kernel checks it
	if err != nil {
		return status(err)
	}
	out.Offset = uint64(off) //nolint:gosec // not negative
	return fuse.OK
}
