package gitsentry

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/repo"
)

const (
	// confDelay gathers the several changes of one edit.
	confDelay = 10 * time.Millisecond
	// confPoll is how often everything is looked at that nobody tells of.
	confPoll = 10 * time.Second
	// maxRounds bounds a search that finds something new each time.
	maxRounds = 50
	// maxPlaced bounds the files of one place that are looked at for other names.
	maxPlaced = 100_000
	// toldPlaces is how many new places one note tells of.
	toldPlaces = 5
)

// places are the names in the workspace that git on the host obeys or runs, and
// what leads to them. What is one stays one while the guard lives: an edit that is
// half done says too little.
type places struct {
	memory, readOnly, ways []string
	// unknown is set while the developer's configuration cannot be understood:
	// nothing of the worktree may change then.
	unknown bool
	// twins are files of places that have other names too.
	twins    map[fileID]bool
	allTwins bool // there are too many to tell
}

type fileID struct{ dev, ino uint64 }

// conf keeps the places up to date: it reads git's configuration, the developer's
// and that of each repository of the host's in the workspace, and again whenever
// something of it changes.
type conf struct {
	g     *guard
	fd    int      // inotify's
	in    *os.File // the same
	now   atomic.Pointer[places]
	done  chan struct{}
	wake  chan struct{} // the queue has something
	event chan string   // a path that has changed, "" for any

	repos map[string]*repoConf // by directory; only the loop's
	found places               // of all repositories; only the loop's

	mu      sync.Mutex // guards the fields below
	known   map[string]bool
	queue   []string // directories of repositories, relative to the workspace
	settled *sync.Cond
	closed  bool
	watched map[int32]string // directories
	looked  map[string]bool  // everything that a search has looked at

	busy atomic.Bool // the queue is not empty
}

// repoConf is one repository's configuration.
type repoConf struct {
	free   map[string]bool
	looked map[string]gitconf.Stamp
	broken string // the tree that is read-only as the configuration is not understood
}

// newConf finds the places of the workspace's own configuration.
func newConf(g *guard) (*conf, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch git's configuration: %w (raise fs.inotify.max_user_instances)", err)
	}
	c := &conf{
		g: g, fd: fd, in: os.NewFile(uintptr(fd), "inotify"),
		done: make(chan struct{}), wake: make(chan struct{}, 1), event: make(chan string, 256),
		repos: map[string]*repoConf{}, known: map[string]bool{}, watched: map[int32]string{}, looked: map[string]bool{},
		found: places{twins: map[fileID]bool{}},
	}
	c.settled = sync.NewCond(&c.mu)
	c.now.Store(&places{readOnly: g.o.ReadOnly})
	if g.o.Config == nil {
		return c, nil
	}
	c.known["."] = g.o.Config.WorkTree == g.o.Workspace
	main := &repoConf{}
	c.repos[""] = main
	if err := c.look("", main, false); err != nil {
		return nil, errors.Join(err, c.in.Close())
	}
	return c, nil
}

func (c *conf) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.done)
	c.settled.Broadcast()
	_ = c.in.Close() // only read
}

// meet has the repository in a directory of the workspace looked at, before
// anything in the workspace changes again.
func (c *conf) meet(rel string) {
	if rel = filepath.Clean(rel); c.g.o.Config == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[rel] {
		return
	}
	c.known[rel] = true
	c.queue = append(c.queue, rel)
	c.busy.Store(true)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// moved has what is known below a directory looked at in its new place.
func (c *conf) moved(from, to string) {
	c.mu.Lock()
	var met []string
	for rel := range c.known {
		if under(rel, from) {
			met = append(met, to+rel[len(from):])
			delete(c.known, rel)
		}
	}
	c.mu.Unlock()
	for _, rel := range met {
		c.meet(rel)
	}
}

// wait returns once everything that was met has been looked at. Nobody calls it
// with a lock of the guard's.
func (c *conf) wait() {
	if !c.busy.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 && !c.closed {
		c.settled.Wait()
	}
}

// drain looks at what was met.
func (c *conf) drain(tell bool) {
	for {
		c.mu.Lock()
		met := slices.Clone(c.queue)
		c.mu.Unlock()
		if len(met) == 0 {
			c.watchAll()
			return
		}
		for _, rel := range met {
			r := c.repos[rel]
			if r == nil {
				r = &repoConf{}
				c.repos[rel] = r
			}
			if err := c.look(rel, r, tell); err != nil {
				c.g.tell("git configuration of %s in the workspace: %v: that repository is read-only in the sandbox", rel, err)
			}
		}
		c.mu.Lock()
		c.queue = slices.Clone(c.queue[len(met):])
		if len(c.queue) == 0 {
			c.busy.Store(false)
			c.settled.Broadcast()
		}
		c.mu.Unlock()
	}
}

// run follows changes until close.
func (c *conf) run() {
	go c.hear()
	poll := time.NewTimer(confPoll)
	c.watchAll()
	for {
		select {
		case <-c.done:
			return
		case <-c.wake:
			c.drain(true)
		case p := <-c.event:
			changed := map[string]bool{p: true}
			for after := time.After(confDelay); after != nil; {
				select {
				case p := <-c.event:
					changed[p] = true
				case <-after:
					after = nil
				}
			}
			c.again(func(r *repoConf) bool {
				for p := range changed {
					if _, ok := r.looked[p]; ok || p == "" {
						return true
					}
				}
				return false
			})
		case <-poll.C:
			began := time.Now()
			stamps := map[string]gitconf.Stamp{}
			c.again(func(r *repoConf) bool { return r.broken != "" || r.stale(stamps) })
			poll.Reset(max(confPoll, 100*time.Since(began)))
		}
	}
}

// stale tells whether something has changed since it was looked at.
func (r *repoConf) stale(now map[string]gitconf.Stamp) bool {
	for p, was := range r.looked {
		s, ok := now[p]
		if !ok {
			s = gitconf.Look(p)
			now[p] = s
		}
		if s != was {
			return true
		}
	}
	return false
}

// again searches once more what needs it.
func (c *conf) again(needs func(r *repoConf) bool) {
	looked := false
	for dir, r := range c.repos {
		if !needs(r) {
			continue
		}
		looked = true
		was := r.broken
		err := c.look(dir, r, true)
		switch {
		case err != nil && was == "":
			c.g.tell("%v: until it is understood, %s of the workspace is read-only in the sandbox", err, r.broken)
		case err == nil && was != "":
			c.g.tell("git configuration is understood again: %s of the workspace is writable in the sandbox", was)
		}
	}
	if looked {
		c.watchAll()
	}
}

// look searches a repository's configuration, "" for the workspace's, until
// nothing more is found: only what is guarded stays as it was seen. Its error is
// of what it cannot understand; the repository's tree is read-only then.
func (c *conf) look(dir string, r *repoConf, tell bool) error {
	var err error
	for round := 0; ; round++ {
		o := *c.g.o.Config
		extra := map[string]gitconf.Stamp{}
		if dir != "" {
			at := filepath.Join(c.g.o.Workspace, dir)
			for _, name := range []string{".git", ".git/commondir", ".git/HEAD", "commondir", "HEAD"} {
				p := filepath.Join(at, name)
				extra[p] = gitconf.Look(p)
			}
			if extra[at+"/.git"] == (gitconf.Stamp{}) && extra[at+"/HEAD"] == (gitconf.Stamp{}) {
				delete(c.repos, dir) // it is gone
				c.mu.Lock()
				delete(c.known, dir)
				c.mu.Unlock()
				return nil
			}
			o.WorkTree, o.GitDirs = repo.Obeyed(at)
		}
		o.Free = r.free
		var p gitconf.Places
		p, err = gitconf.Find(o)
		maps.Copy(extra, p.Looked)
		r.looked, r.free, r.broken = extra, p.Free, ""
		if err == nil && round > maxRounds {
			err = errors.New("git configuration leads to something else each time that it is read")
		}
		if err != nil {
			r.broken = cmp.Or(dir, ".")
			if rel, ok := strings.CutPrefix(o.WorkTree, c.g.o.Workspace+"/"); ok && dir != "" {
				r.broken = rel
			}
		}
		if !c.guard(p, tell) || err != nil {
			return err
		}
	}
}

// guard makes p places, and tells whether there is a new one among them.
func (c *conf) guard(p gitconf.Places, tell bool) (grown bool) {
	var added []string
	add := func(to *[]string, rels []string, place bool) {
		for _, rel := range rels {
			if !slices.Contains(*to, rel) {
				*to = append(slices.Clone(*to), rel) // whoever reads the old one goes on
				grown = true
				if place {
					added = append(added, rel)
				}
			}
		}
	}
	add(&c.found.memory, p.Hooks, true)
	add(&c.found.readOnly, p.Files, true)
	add(&c.found.readOnly, p.Programs, true)
	add(&c.found.ways, p.Ways, false)
	now := c.found
	now.readOnly = slices.Concat(c.g.o.ReadOnly, c.found.readOnly)
	now.unknown = false
	for _, r := range c.repos {
		switch r.broken {
		case "":
		case ".":
			now.unknown = true
		default:
			now.readOnly = append(now.readOnly, r.broken)
		}
	}
	was := c.now.Load()
	if !grown && was.unknown == now.unknown && slices.Equal(was.readOnly, now.readOnly) {
		return false
	}
	changed := slices.Clone(added)
	for _, rel := range slices.Concat(was.readOnly, now.readOnly) {
		if slices.Contains(was.readOnly, rel) != slices.Contains(now.readOnly, rel) {
			changed = append(changed, rel)
		}
	}
	c.g.names.Lock()
	c.now.Store(&now)
	c.g.names.Unlock()
	// No further names can be made for what is guarded now: these are all.
	if len(added) > 0 {
		twins, all := maps.Clone(c.found.twins), c.found.allTwins
		for _, rel := range added {
			all = c.twinsOf(rel, twins) || all
		}
		c.found.twins, c.found.allTwins = twins, all
		next := now
		next.twins, next.allTwins = twins, all
		c.now.Store(&next)
	}
	if c.g.srv != nil {
		go c.g.forgetNames(changed)
	}
	if tell {
		c.tell(added, p.Why)
	}
	return grown
}

// tell tells the developer of new places.
func (c *conf) tell(added []string, why map[string]gitconf.Source) {
	for i, rel := range added {
		if i == toldPlaces {
			c.g.tell("git configuration leads to %d more places in the workspace, which the sandbox cannot change from now on", len(added)-i)
			return
		}
		then := "nothing is there yet"
		if _, err := os.Lstat(filepath.Join(c.g.o.Workspace, rel)); err == nil {
			then = "until now it could, so look at what is there before you run git"
		}
		c.g.tell("%v leads to %q in the workspace: the sandbox cannot change it from now on; %s", why[rel], rel, then)
	}
}

// twinsOf adds the files of a place that have other names too. It tells whether
// there may be more.
func (c *conf) twinsOf(rel string, twins map[fileID]bool) (more bool) {
	seen := 0
	err := filepath.WalkDir(filepath.Join(c.g.o.Workspace, rel), func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		if seen++; seen > maxPlaced && err == nil {
			err = unix.E2BIG
		}
		if err != nil || e.IsDir() {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
			twins[fileID{st.Dev, st.Ino}] = true
		}
		return nil
	})
	return err != nil
}

// hear reads inotify's events.
func (c *conf) hear() {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.in.Read(buf)
		if err != nil {
			return // closed
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(rest)) //nolint:gosec // the kernel's own
			mask := binary.NativeEndian.Uint32(rest[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			name := string(bytes.TrimRight(rest[unix.SizeofInotifyEvent:end], "\x00"))
			rest = rest[end:]
			c.mu.Lock()
			dir, ok := c.watched[wd]
			var told []string
			switch p := filepath.Join(dir, name); {
			case mask&unix.IN_Q_OVERFLOW != 0:
				told = []string{""}
			case !ok || mask&unix.IN_IGNORED != 0:
			default:
				for _, p := range []string{p, dir + "/"} {
					if c.looked[p] {
						told = append(told, p)
					}
				}
			}
			c.mu.Unlock()
			for _, p := range told {
				select {
				case c.event <- p:
				case <-c.done:
					return
				}
			}
		}
	}
}

// watchAll watches the directories of everything that was looked at.
func (c *conf) watchAll() {
	looked, dirs := map[string]bool{}, map[string]bool{}
	for _, r := range c.repos {
		for p := range r.looked {
			looked[p] = true
			dirs[filepath.Dir(p)] = true // of "dir/" that is dir itself
		}
	}
	watched := map[int32]string{}
	for dir := range dirs {
		wd, err := unix.InotifyAddWatch(c.fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|
			unix.IN_MODIFY|unix.IN_ATTRIB|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_ONLYDIR)
		if errors.Is(err, unix.ENOSPC) {
			c.g.log.Warn("no more directories can be watched (raise fs.inotify.max_user_watches): changes of git's configuration are seen late", "after", confPoll)
			break
		}
		if err == nil {
			watched[int32(wd)] = dir //nolint:gosec // the kernel's own
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for wd := range c.watched {
		if _, ok := watched[wd]; !ok {
			_, _ = unix.InotifyRmWatch(c.fd, uint32(wd)) //nolint:gosec // the kernel's own; it may be gone
		}
	}
	c.watched, c.looked = watched, looked
}

// forgetNames has the kernel ask anew for names that have become places.
func (f *guard) forgetNames(rels []string) {
	for _, rel := range rels {
		n, parts := f.workspace, strings.Split(rel, "/")
		for i, part := range parts {
			next := f.nodes.child(n, part)
			if i == len(parts)-1 {
				f.srv.EntryNotify(n.id, part)
				f.srv.InodeNotify(n.id, 0, 0)
			}
			if next == nil {
				break
			}
			n = next
		}
	}
}

// tell notes something for the developer: the coordinator reads it.
func (f *guard) tell(format string, args ...any) {
	line := fmt.Sprintf("%.2000s", strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "))
	f.log.Warn(line)
	_, _ = fmt.Fprintln(os.Stderr, "note", line)
}
