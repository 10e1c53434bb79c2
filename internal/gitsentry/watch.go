package gitsentry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

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

// told is an event of inotify.
type told struct {
	wd   int32
	mask uint32
	name string
}

// ownPause is how long events are gathered while all that they tell of was done
// by the sandbox: one file is five of them, which one look answers.
const ownPause = time.Millisecond

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
		own := true
		for _, e := range gather(buf[:n]) {
			own = !w.event(e.wd, e.mask, e.name) && own
		}
		if own {
			time.Sleep(ownPause)
		}
	}
}

// gather reads events, and makes one of several about the same name: what is there
// now counts.
func gather(buf []byte) []told {
	type key struct {
		wd   int32
		name string
	}
	var all []told
	at := map[key]int{}
	for rest := buf; len(rest) >= unix.SizeofInotifyEvent; {
		e := told{
			wd:   int32(binary.NativeEndian.Uint32(rest)), //nolint:gosec // the kernel's own
			mask: binary.NativeEndian.Uint32(rest[4:]),
		}
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
		e.name = string(bytes.TrimRight(rest[unix.SizeofInotifyEvent:end], "\x00"))
		rest = rest[end:]
		k := key{e.wd, e.name}
		if i, ok := at[k]; ok && e.name != "" {
			all[i].mask |= e.mask
			continue
		}
		at[k] = len(all)
		all = append(all, e)
	}
	return all
}

// seen compares what the host has as name in dir with what the kernel was told of.
type seen struct {
	n    *node // what was shown under that name; nil for nothing
	st   unix.Statx_t
	err  error
	same bool // the kernel knows it as it is
}

func (w *watcher) look(dir *node, name string, mask uint32) (s seen) {
	s.n = w.g.nodes.child(dir, name)
	var p *file
	if p, s.err = w.g.openPath(dir); s.err == nil {
		s.err = statx(p.fd, name, &s.st)
		p.done()
	}
	switch {
	case s.n == nil:
		// Neither we nor the host have it; but a list that the kernel keeps may.
		s.same = s.err != nil && (mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) == 0 || !dir.named.Load())
	case s.err == nil && s.n.key.is(&s.st):
		s.n.at.Lock()
		s.same = s.n.last == stampOf(&s.st) || s.n.dir && mask&unix.IN_ATTRIB == 0
		s.n.at.Unlock()
	}
	return s
}

// event tells whether it was about a change that is not the sandbox's own.
func (w *watcher) event(wd int32, mask uint32, name string) bool {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.forgetAll()
		return true
	}
	w.mu.Lock()
	dir := w.nodes[wd]
	w.mu.Unlock()
	if dir == nil {
		return false
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
		return false
	}
	if name == "" {
		// Of the directory itself: its attributes.
		w.g.srv.InodeNotify(dir.id, -1, 0)
		return true
	}
	if dir == w.g.workspace && name == ".git" && mask&(unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_CREATE) != 0 && w.g.hasGit {
		w.lookAtGit()
	}
	if name == ".git" && dir.top == w.g.workspace.top && mask&(unix.IN_MOVED_TO|unix.IN_CREATE) != 0 {
		w.g.conf.meet(w.g.seenAt(dir))
	}
	s := w.look(dir, name, mask)
	if !s.same {
		// The sandbox may be changing it just now. To forget what it has made would
		// have the kernel ask for it again, and take away what somebody has mounted
		// there already.
		w.g.names.Lock()
		w.g.names.Unlock() //nolint:staticcheck // only to wait for who holds it
		s = w.look(dir, name, mask)
	}
	n := s.n
	switch {
	case s.same:
		return false
	case n != nil && s.err == nil && n.key.is(&s.st):
		n.at.Lock()
		n.last = stampOf(&s.st)
		n.at.Unlock()
		w.g.srv.InodeNotify(n.id, 0, 0)
		return true
	case n != nil && n.dir:
		w.g.collectRemoved(n)
	}
	if s.err == nil && s.st.Mode&unix.S_IFMT == unix.S_IFDIR && dir.top == w.g.workspace.top && zoneKind(dir.zoned.Load()) == worktree {
		w.g.appeared(join(w.g.seenAt(dir), name))
	}
	dir.named.Store(false)
	w.g.srv.EntryNotify(dir.id, name)
	w.g.srv.InodeNotify(dir.id, 0, 0)
	return true
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
