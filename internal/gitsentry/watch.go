package gitsentry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

const watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY |
	unix.IN_ATTRIB | unix.IN_CLOSE_WRITE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// watcher tells the kernel what the host has changed under what it keeps.
type watcher struct {
	g  *guard
	fd int

	mu    sync.Mutex
	nodes map[int32]*node
	full  bool // no more watches can be had
}

func newWatcher(g *guard) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch the workspace for the host's changes: %w (raise fs.inotify.max_user_instances)", err)
	}
	return &watcher{g: g, fd: fd, nodes: map[int32]*node{}}, nil
}

func (w *watcher) close() { _ = unix.Close(w.fd) }

// watching makes sure that the host's changes in dir are told, if that is of use.
func (f *guard) watching(dir *node, s spot) bool {
	if dir.key.place != onHost {
		return false
	}
	if s.zone.kind != worktree && (s.zone.kind != gitDir || !under(s.zone.sub, "objects")) {
		return false
	}
	return f.watch.add(dir)
}

// add watches dir. It must be called before anything in dir is looked at.
func (w *watcher) add(dir *node) bool {
	dir.at.Lock()
	defer dir.at.Unlock()
	if dir.wd > 0 {
		return true
	}
	w.mu.Lock()
	full := w.full
	w.mu.Unlock()
	if full || dir.wd < 0 || remote(dir) {
		dir.wd = -1
		return false
	}
	p, err := w.g.openPathLocked(dir)
	if err != nil {
		return false
	}
	defer p.done()
	wd, err := unix.InotifyAddWatch(w.fd, procFD(p.fd), watched)
	if err != nil {
		if errors.Is(err, unix.ENOSPC) {
			w.mu.Lock()
			w.full = true
			w.mu.Unlock()
			w.g.log.Warn("no more directories can be watched (raise fs.inotify.max_user_watches): the host's changes in the rest show within a second", "limit", unwatched)
		}
		dir.wd = -1
		return false
	}
	dir.wd = int32(wd) //nolint:gosec // the kernel's own
	w.mu.Lock()
	w.nodes[dir.wd] = dir
	w.mu.Unlock()
	return true
}

// remote tells whether others than this kernel change the file system, which
// nobody tells of.
func remote(dir *node) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(dir.top.fd, &st) != nil {
		return true
	}
	switch st.Type {
	case unix.NFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC:
		return true
	}
	return false
}

func (w *watcher) drop(n *node) {
	n.at.Lock()
	wd := n.wd
	n.wd = 0
	n.at.Unlock()
	if wd <= 0 {
		return
	}
	w.mu.Lock()
	delete(w.nodes, wd)
	w.mu.Unlock()
	_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // it is gone with its directory
}

// run passes events on until the descriptor is closed.
func (w *watcher) run() {
	buf := make([]byte, 256<<10)
	for {
		n, err := unix.Read(w.fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(rest)) //nolint:gosec // the kernel's own
			mask := binary.NativeEndian.Uint32(rest[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			name := string(bytes.TrimRight(rest[unix.SizeofInotifyEvent:end], "\x00"))
			rest = rest[end:]
			w.event(wd, mask, name)
		}
	}
}

func (w *watcher) event(wd int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.forgetAll()
		return
	}
	w.mu.Lock()
	dir := w.nodes[wd]
	w.mu.Unlock()
	if dir == nil {
		return
	}
	if mask&unix.IN_IGNORED != 0 {
		w.mu.Lock()
		delete(w.nodes, wd)
		w.mu.Unlock()
		dir.at.Lock()
		if dir.wd == wd {
			dir.wd = 0
		}
		dir.at.Unlock()
		return
	}
	if name == "" {
		// Of the directory itself: its attributes.
		w.g.srv.InodeNotify(dir.id, -1, 0)
		return
	}
	if dir == w.g.workspace && name == ".git" && mask&(unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_CREATE) != 0 && w.g.hasGit {
		w.lookAtGit()
	}
	if name == ".git" && dir.top == w.g.workspace.top && mask&(unix.IN_MOVED_TO|unix.IN_CREATE) != 0 {
		w.g.conf.meet(w.g.seenAt(dir))
	}
	n := w.g.nodes.child(dir, name)
	var st unix.Statx_t
	p, err := w.g.openPath(dir)
	if err == nil {
		err = statx(p.fd, name, &st)
		p.done()
	}
	if n == nil && err == nil {
		// The sandbox may be making it just now: to forget that name would take away
		// what somebody has mounted there already.
		w.g.names.Lock()
		w.g.names.Unlock() //nolint:staticcheck // only to wait for who holds it
		n = w.g.nodes.child(dir, name)
	}
	if n != nil && err == nil && n.key.is(&st) {
		n.at.Lock()
		same := n.last == stampOf(&st) || n.dir && mask&unix.IN_ATTRIB == 0
		if !same {
			n.last = stampOf(&st)
		}
		n.at.Unlock()
		if !same {
			w.g.srv.InodeNotify(n.id, 0, 0)
		}
		return
	}
	if n != nil && n.dir {
		w.g.collectRemoved(n)
	}
	if n == nil && err != nil {
		return // neither we nor the host have it
	}
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && dir.top == w.g.workspace.top && zoneKind(dir.zoned.Load()) == worktree {
		w.g.appeared(join(w.g.seenAt(dir), name))
	}
	w.g.srv.EntryNotify(dir.id, name)
	w.g.srv.InodeNotify(dir.id, 0, 0)
}

// lookAtGit notes that the host has removed or replaced the workspace's .git.
func (w *watcher) lookAtGit() {
	var st unix.Statx_t
	if err := statx(w.g.workspace.top.fd, ".git", &st); err != nil || identityOf(onHost, 0, &st) != w.g.rootGit {
		w.g.noteCut()
	}
}

// forgetAll makes the kernel ask for everything anew.
func (w *watcher) forgetAll() {
	w.g.log.Warn("the host changed more than was told: the sandbox's view is read anew")
	t := &w.g.nodes
	type edge struct {
		parent uint64
		name   string
	}
	t.mu.RLock()
	ids := make([]uint64, 0, len(t.byID))
	var edges []edge
	for id, n := range t.byID {
		if n.key.place != onHost {
			continue
		}
		ids = append(ids, id)
		for name := range n.children {
			edges = append(edges, edge{id, name})
		}
	}
	t.mu.RUnlock()
	for _, e := range edges {
		w.g.srv.EntryNotify(e.parent, e.name)
	}
	for _, id := range ids {
		w.g.srv.InodeNotify(id, 0, 0)
	}
}
