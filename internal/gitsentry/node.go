package gitsentry

import (
	"container/list"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/shadowkey"
)

// place says where a node's bytes are.
type place int

const (
	onHost   place = iota // the workspace, or the git directory beside it
	onDisk                // a shadow in the Domain Root
	onMemory              // a shadow on memory
	virtual               // the guard's own
)

// identity tells files apart, also over time. One file can be two nodes: as a
// plain file of the worktree, and as one that git obeys, by another hard link.
type identity struct {
	place place
	class class
	dev   uint64
	ino   uint64
	born  uint64
}

// node is what the kernel knows by a number.
type node struct {
	id  uint64
	key identity
	dir bool
	top *root // of the host's tree; nil in shadows

	// at guards the fields below.
	at     sync.Mutex
	parent *node  // nil for roots
	name   string // by which it was last reached
	path   *file  // O_PATH; may be nil
	io     *file  // for reading, and for writing where canWrite; may be nil
	write  bool
	okPath string // at which writing was allowed
	okFor  *places
	stale  *file // O_PATH of what has lost its last name here; kept until forgotten
	last   stamp
	wd     int32 // inotify's; 0 for none
	elem   *list.Element

	// The table's lock guards these.
	lookups  uint64
	children map[string]*node

	staged atomic.Bool  // an index whose written bytes wait for their end
	named  atomic.Bool  // a directory: the kernel may keep names of it that are no nodes
	zoned  atomic.Int32 // a directory's zoneKind as of the last lookup: enough for reading
	told   atomic.Bool  // git compares its seconds and size to find it changed
	keep   atomic.Int64 // how long the kernel may keep its attributes, in nanoseconds
}

// stamp is what tells whether a file's bytes or attributes have changed.
type stamp struct {
	size         uint64
	mtime, ctime int64
	mode         uint16
	nlink        uint32
}

func stampOf(st *unix.Statx_t) stamp {
	return stamp{st.Size, st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec), st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec), st.Mode, st.Nlink}
}

// file is a descriptor with several users; the last one closes it.
type file struct {
	fd   int
	uses atomic.Int32
}

func newFile(fd int) *file {
	f := &file{fd: fd}
	f.uses.Store(1)
	return f
}

func (f *file) use() *file { f.uses.Add(1); return f }

func (f *file) done() {
	if f != nil && f.uses.Add(-1) == 0 {
		_ = unix.Close(f.fd) // its data was reported by each write
	}
}

// root is a directory of the host that is shown.
type root struct {
	fd  int
	git bool // it is a git directory
}

// procFD is the magic link of an open descriptor: it leads to the very file, and
// tells where that is now.
func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openPath is an O_PATH descriptor of n, whose use the caller ends. What is no
// longer where it was seen is ESTALE: the kernel then looks again.
func (f *guard) openPath(n *node) (*file, error) {
	n.at.Lock()
	defer n.at.Unlock()
	return f.openPathLocked(n)
}

func (f *guard) openPathLocked(n *node) (*file, error) {
	if n.path != nil {
		f.fds.touch(n)
		return n.path.use(), nil
	}
	if n.stale != nil {
		return n.stale.use(), nil
	}
	if n.parent == nil {
		return nil, unix.ESTALE
	}
	fd, err := f.reopen(n, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	n.path = newFile(fd)
	f.fds.add(n)
	return n.path.use(), nil
}

// reopen opens n by its name, and makes sure that it is n.
func (f *guard) reopen(n *node, flags int) (int, error) {
	var fd int
	var err error
	if n.key.place == onHost {
		dir, derr := f.openPath(n.parent)
		if derr != nil {
			return -1, derr
		}
		fd, err = openat(dir.fd, n.name, flags)
		dir.done()
	} else {
		fd, err = openat(unix.AT_FDCWD, f.shadowPath(n), flags)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) && flags&unix.O_PATH == 0 {
		return -1, unix.ESTALE
	}
	if err != nil {
		return -1, err
	}
	var st unix.Statx_t
	if err := statx(fd, "", &st); err != nil || !n.key.is(&st) {
		_ = unix.Close(fd)
		return -1, unix.ESTALE
	}
	return fd, nil
}

func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func statx(dir int, name string, st *unix.Statx_t) error {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	for {
		if err := unix.Statx(dir, name, flags, shadowkey.Mask, st); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func identityOf(p place, c class, st *unix.Statx_t) identity {
	id := identity{place: p, class: c, dev: unix.Mkdev(st.Dev_major, st.Dev_minor), ino: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.born = uint64(st.Btime.Sec)*1e9 + uint64(st.Btime.Nsec) //nolint:gosec // only compared
	}
	return id
}

func (i identity) is(st *unix.Statx_t) bool {
	return identityOf(i.place, i.class, st) == i
}

// openIO is a descriptor for reading, or also for writing, whose use the caller
// ends. Before each use for writing it makes sure that the host has not moved the
// file to where git obeys it: whoever had it open before could change it there.
func (f *guard) openIO(n *node, write bool) (*file, error) {
	n.at.Lock()
	defer n.at.Unlock()
	if n.io == nil || write && !n.write {
		mode := unix.O_RDONLY
		if write {
			mode = unix.O_RDWR
		}
		fd, err := f.openData(n, mode)
		if write && errors.Is(err, unix.EACCES) {
			fd, err = f.openData(n, unix.O_WRONLY)
		}
		if err != nil {
			return nil, err
		}
		n.io.done()
		n.io, n.write = newFile(fd), write
		f.fds.add(n)
	} else {
		f.fds.touch(n)
	}
	if write && n.key.place == onHost {
		here, err := f.pathOf(n.io.fd)
		if err != nil {
			return nil, err
		}
		if now := f.conf.now.Load(); here != n.okPath || now != n.okFor {
			if err := f.checkWritable(n, n.io.fd); err != nil {
				return nil, err
			}
			n.okPath, n.okFor = here, now
		}
	}
	return n.io.use(), nil
}

func (f *guard) openData(n *node, mode int) (int, error) {
	if n.path == nil && n.stale == nil {
		return f.reopen(n, mode)
	}
	p := n.path
	if p == nil {
		p = n.stale
	}
	for {
		fd, err := unix.Open(procFD(p.fd), mode|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// keep holds on to a file that is about to lose a name, so that whoever has it
// open goes on reading.
func (f *guard) keep(n *node) {
	if n == nil || n.dir {
		return
	}
	p, err := f.openPath(n)
	if err != nil {
		return
	}
	n.at.Lock()
	defer n.at.Unlock()
	if n.stale == nil {
		n.stale = p
		return
	}
	p.done()
}

// table has the nodes by number and by identity.
type table struct {
	mu   sync.RWMutex
	byID map[uint64]*node
	byKy map[identity]*node
	next uint64
}

func (t *table) get(id uint64) *node {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id]
}

// enter finds or makes the node of what was seen as name in parent, and counts
// a lookup.
func (t *table) enter(key identity, dir bool, top *root, parent *node, name string) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byKy[key]
	if n == nil {
		t.next++
		n = &node{id: t.next, key: key, dir: dir, top: top}
		if dir {
			n.children = map[string]*node{}
		}
		t.byID[n.id], t.byKy[key] = n, n
	}
	n.lookups++
	n.at.Lock()
	if n.parent != parent || n.name != name {
		if n.parent != nil && n.parent.children[n.name] == n {
			delete(n.parent.children, n.name)
		}
		n.parent, n.name = parent, name
	}
	n.at.Unlock()
	parent.children[name] = n
	return n
}

// moved notes a rename.
func (t *table) moved(n, parent *node, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.at.Lock()
	defer n.at.Unlock()
	if n.parent != nil && n.parent.children[n.name] == n {
		delete(n.parent.children, n.name)
	}
	n.parent, n.name = parent, name
	parent.children[name] = n
}

// rebind makes n the node of another file, which has come in its place.
func (t *table) rebind(n *node, st *unix.Statx_t) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.at.Lock()
	defer n.at.Unlock()
	if t.byKy[n.key] == n {
		delete(t.byKy, n.key)
	}
	n.key = identityOf(n.key.place, n.key.class, st)
	if t.byKy[n.key] == nil {
		t.byKy[n.key] = n
	}
	n.closeLocked()
	n.stale.done()
	n.stale = nil
}

// child is the node that was last seen as name in parent; it may be nil.
func (t *table) child(parent *node, name string) *node {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return parent.children[name]
}

// drop forgets that parent has name.
func (t *table) drop(parent *node, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(parent.children, name)
}

// forget counts lookups out, and tells whether n is unknown now.
func (t *table) forget(id, count uint64) (n *node, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = t.byID[id]
	if n == nil || n.parent == nil || n.parent.key.place == virtual {
		return nil, false // the guard's own, and the roots
	}
	if n.lookups -= min(count, n.lookups); n.lookups > 0 {
		return n, false
	}
	delete(t.byID, id)
	if t.byKy[n.key] == n {
		delete(t.byKy, n.key)
	}
	if n.parent.children[n.name] == n {
		delete(n.parent.children, n.name)
		n.parent.named.Store(true)
	}
	return n, true
}

// fds bounds the descriptors that are kept open between requests.
type fds struct {
	mu    sync.Mutex
	order list.List // of *node, newest first
	limit int
}

func (l *fds) touch(n *node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.elem != nil {
		l.order.MoveToFront(n.elem)
	}
}

// add needs n.at. It closes the oldest descriptors over the limit.
func (l *fds) add(n *node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.elem == nil {
		n.elem = l.order.PushFront(n)
	} else {
		l.order.MoveToFront(n.elem)
	}
	for e := l.order.Back(); e != nil && l.order.Len() > l.limit; {
		old := e.Value.(*node)
		prev := e.Prev()
		// Somebody is using it just now: the next one then.
		if old != n && old.parent != nil && old.at.TryLock() {
			old.closeLocked()
			l.order.Remove(e)
			old.elem = nil
			old.at.Unlock()
		}
		e = prev
	}
}

func (l *fds) remove(n *node) {
	n.at.Lock()
	defer n.at.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.elem != nil {
		l.order.Remove(n.elem)
		n.elem = nil
	}
	n.closeLocked()
	n.stale.done()
	n.stale = nil
}

func (n *node) closeLocked() {
	n.path.done()
	n.io.done()
	n.path, n.io, n.write = nil, nil, false
}

func status(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return fuse.Status(errno)
	}
	return fuse.EIO
}
