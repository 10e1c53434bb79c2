package gitsentry

import (
	"errors"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/dotgit"
)

const (
	// surveyWait is how long a start waits for the survey; the rest of a large
	// workspace is surveyed while the sandbox lives.
	surveyWait = 2 * time.Second
	// A directory that the host makes is looked at soon, and once more when a clone
	// into it may have ended.
	freshSoon, freshLate = 200 * time.Millisecond, 5 * time.Second
)

// survey walks the host's directories, for the repositories in the workspace,
// whose configuration git on the host obeys as well, and for the directories that
// have a shadow.
func (f *guard) survey() {
	kept := f.shadows.keys(onDisk)
	done := make(chan struct{})
	go func() {
		defer close(done)
		seen := map[string]bool{}
		whole := true
		for _, n := range []*node{f.workspace, f.gitDir} {
			whole = (n == nil || f.walk(n, ".", len(kept) > 0, seen)) && whole
		}
		if whole {
			f.shadows.collect(kept, seen, time.Now())
		}
	}()
	select {
	case <-done:
	case <-time.After(surveyWait):
		f.log.Warn("the workspace has many directories: it is looked through for repositories in the background")
	}
	f.conf.drain(false)
}

// fresh are directories that the host has made, and that were not looked at yet.
type fresh struct {
	mu   sync.Mutex
	rels map[string]bool
}

// appeared looks for repositories in a directory that the host has made: the
// sandbox need not look there to profit from their configuration.
func (f *guard) appeared(rel string) {
	f.fresh.mu.Lock()
	defer f.fresh.mu.Unlock()
	if f.fresh.rels != nil {
		f.fresh.rels[rel] = true
		return
	}
	f.fresh.rels = map[string]bool{rel: true}
	time.AfterFunc(freshSoon, func() {
		f.fresh.mu.Lock()
		rels := f.fresh.rels
		f.fresh.rels = nil
		f.fresh.mu.Unlock()
		look := func() {
			for rel := range rels {
				f.walk(f.workspace, rel, false, nil)
			}
		}
		look()
		time.AfterFunc(freshLate, look)
	})
}

// walk tells of the repositories below a directory of a root, and of the keys of
// all directories if wanted. It tells whether it has seen everything.
func (f *guard) walk(n *node, from string, keys bool, seen map[string]bool) (whole bool) {
	whole = true
	for todo := []string{from}; len(todo) > 0; {
		rel := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		fd, err := unix.Openat2(n.top.fd, rel, &unix.OpenHow{
			Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err != nil {
			// One that is gone, or has become something else, is none.
			whole = whole && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP))
			continue
		}
		var st unix.Statx_t
		if keys && statx(fd, "", &st) == nil {
			seen[identityOf(onHost, 0, &st).dirKey().String()] = true
		}
		file := os.NewFile(uintptr(fd), rel)
		entries, err := file.ReadDir(-1)
		whole = errors.Join(err, file.Close()) == nil && whole
		has := map[string]bool{}
		for _, e := range entries {
			if completes(e.Name()) || e.Name() == ".git" {
				has[e.Name()] = true
			}
		}
		isGit := has["HEAD"] && (has["objects"] && has["refs"] || has["commondir"])
		if n == f.workspace {
			switch {
			case isGit && dotgit.Is(path.Base(rel)): // met by what it is in
			case isGit || has[".git"]:
				f.conf.meet(rel)
			}
		}
		for _, e := range entries {
			// What git keeps there has neither repositories nor shadows.
			if skip := isGit && slices.Contains([]string{"objects", "refs", "logs", "lfs"}, e.Name()); e.IsDir() && !skip {
				todo = append(todo, join(rel, e.Name()))
			}
		}
	}
	return whole
}

// collectRemoved forgets what was kept apart of a directory that the host has
// removed. One that was only moved keeps it.
func (f *guard) collectRemoved(n *node) {
	if n.key.place != onHost || len(f.shadows.names(n.key.dirKey())) == 0 {
		return
	}
	p, err := f.openPath(n)
	if err != nil {
		return
	}
	defer p.done()
	var st unix.Stat_t
	if unix.Fstat(p.fd, &st) == nil && st.Nlink == 0 {
		f.log.Info("the host has removed a directory: what the sandbox had in it goes too", "path", f.seenName(n))
		go f.shadows.drop(n.key.dirKey().String())
	}
}
