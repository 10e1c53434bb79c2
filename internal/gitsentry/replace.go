package gitsentry

import (
	"bytes"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
)

// maxMessage bounds a message that a file of the sandbox's own replaces, in bytes.
const maxMessage = 4 << 20

// replaces tells whether a rename in the root of a git directory is one by which a
// file of the sandbox's own is to take the place of the host's: a config's lock, or
// the file of an editor.
func replaces(dir *node, a, b *spot, oldName, newName string, st *unix.Statx_t) bool {
	return dir.key.place == onHost && b.zone.kind == gitDir && b.zone.sub == "" &&
		a.place == onDisk && b.place == onHost && st.Mode&unix.S_IFMT == unix.S_IFREG &&
		(oldName == configLock && newName == "config" && b.class == readOnly || messages[newName] && b.class == real)
}

// replace carries such a rename out: a config must have the bytes that it has
// already, and a message is written as the sandbox could write it itself. Where it is
// not done and not refused, the rename is judged like any other.
func (f *guard) replace(dir *node, a, b *spot, oldName, newName string, over *unix.Statx_t, there bool) (done bool, s fuse.Status) {
	src, err := f.place(dir, *a, oldName)
	if err != nil {
		return false, status(err)
	}
	limit := int64(maxMessage)
	if b.class == readOnly {
		limit = gitconf.MaxFile
	}
	data, err := readAt(src.fd, src.name, limit)
	if b.class == readOnly {
		if err != nil || !f.sameConfig(dir, b, data) {
			return false, f.refuse("rename", join(b.zone.rel, newName), unix.EROFS)
		}
	} else if err != nil {
		return false, fuse.OK // too large, or no plain file any more
	} else if err := f.writeMessage(dir, b, newName, data, over, there); err != nil {
		return false, status(err)
	}
	moved, replaced := f.nodes.child(dir, oldName), f.nodes.child(dir, newName)
	f.keep(moved)
	if b.class != readOnly {
		f.keep(replaced)
		f.nodes.drop(dir, newName)
	}
	if err := unix.Unlinkat(src.fd, src.name, 0); err != nil {
		return false, status(err)
	}
	f.shadows.gone(dir.key.dirKey(), oldName)
	f.nodes.drop(dir, oldName)
	return true, fuse.OK
}

// sameConfig tells whether data is what the config beside it shows.
func (f *guard) sameConfig(dir *node, b *spot, data []byte) bool {
	if f.o.ConfigSuffix != "" && dir == f.gitDir {
		rest, ok := bytes.CutSuffix(data, []byte(f.o.ConfigSuffix))
		if !ok {
			return false
		}
		data = rest
	}
	host, err := readAt(b.dir.fd, "config", gitconf.MaxFile)
	return err == nil && bytes.Equal(host, data)
}

// writeMessage makes data the host's file, with the mode and owner that it had.
func (f *guard) writeMessage(dir *node, b *spot, name string, data []byte, over *unix.Statx_t, there bool) error {
	if f.cut.Load() && f.isRootGit(dir, b.zone) {
		return unix.EIO
	}
	if !there {
		return unix.EXDEV // an editor replaces what it was given
	}
	if over.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EPERM
	}
	st := *over
	st.Mtime = unix.StatxTimestamp{Sec: time.Now().Unix(), Nsec: uint32(time.Now().Nanosecond())} //nolint:gosec // below 1e9
	return f.writeIndex(b, name, data, &st)
}
