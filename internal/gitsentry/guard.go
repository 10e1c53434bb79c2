package gitsentry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/dotgit"
)

const (
	rootID = 1 // FUSE's own number
	infoID = 2
	logID  = 3

	// keptFor is how long the kernel keeps what it is told to forget in time.
	keptFor = time.Hour
	// unwatched is how long it keeps what nobody tells of.
	unwatched = time.Second
	// moment lets the attributes that a lookup brought serve the call that it was
	// made for.
	moment = time.Millisecond
)

// guard is the file system.
type guard struct {
	fuse.RawFileSystem // answers ENOSYS to the rest

	o       Options
	log     *slog.Logger
	shadows *shadows
	nodes   table
	fds     fds
	watch   *watcher
	conf    *conf
	fresh   fresh
	refused refusals
	stages  stages
	srv     *fuse.Server
	proc    int // /proc/self/fd, where the kernel tells paths

	workspace, gitDir *node // gitDir may be nil
	rootGit           identity
	hasGit            bool        // the workspace has a .git of its own
	cut               atomic.Bool // which the host has taken away

	// names is held for writing by what moves directories or completes a shape,
	// for reading by all else that makes or removes names: a judgement holds until
	// the act that it allows.
	names sync.RWMutex

	dirs struct {
		mu   sync.Mutex
		open map[uint64]*listing
		next uint64
	}
}

// Serve mounts the guard, calls ready, and serves until ctx ends or somebody
// unmounts it. Preconditions: /dev/fuse can be opened, and the caller may mount
// in its mount namespace; umask and the limit of descriptors are the process's.
func Serve(ctx context.Context, o Options, ready func() error, log *slog.Logger) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("options of the guard: %w", err)
	}
	unix.Umask(0) // the kernel has applied the caller's
	f, err := newGuard(o, log)
	if err != nil {
		return err
	}
	srv, err := fuse.NewServer(f, o.Mountpoint, &fuse.MountOptions{
		AllowOther: true, DirectMountStrict: true, Options: []string{"default_permissions"},
		FsName: "lazaret", Name: "lazaret", DisableXAttrs: true,
		MaxWrite: 1 << 20, MaxBackground: 64,
		// A pipe for each answer costs more than the copy that it saves.
		DisableSplice: true,
		// The kernel would take OPEN for the truncation, which nobody sees here.
		DisabledCapabilities: fuse.CAP_ATOMIC_O_TRUNC,
		// Else it asks for a file's mode before each change of its owner.
		ExtraCapabilities: fuse.CAP_HANDLE_KILLPRIV_V2,
		DirectMountFlags:  unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME,
		PanicHandler: func(v any) fuse.Status {
			log.Error("guard: internal error", "panic", fmt.Sprint(v))
			return fuse.EIO
		},
	})
	if err != nil {
		f.close()
		return fmt.Errorf("mount the guard at %s: %w (it needs /dev/fuse, readable and writable)", o.Mountpoint, err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		srv.Serve()
	}()
	stop := func(err error) error { //nolint:contextcheck // ctx is over; a call of git's bounds itself
		f.settleAll()
		// Detached: who still has it open gets errors from now on.
		uerr := unix.Unmount(o.Mountpoint, unix.MNT_DETACH)
		if errors.Is(uerr, unix.EINVAL) || errors.Is(uerr, unix.ENOENT) {
			uerr = nil // somebody else has
		}
		return errors.Join(err, uerr)
	}
	if err := srv.WaitMount(); err != nil {
		return stop(fmt.Errorf("mount the guard at %s: %w", o.Mountpoint, err))
	}
	if err := ready(); err != nil {
		return stop(err)
	}
	select {
	case <-ctx.Done():
		return stop(nil)
	case <-served:
		f.close()
		return nil
	}
}

func newGuard(o Options, log *slog.Logger) (*guard, error) {
	f := &guard{RawFileSystem: fuse.NewDefaultRawFileSystem(), o: o, log: log}
	f.dirs.open = map[uint64]*listing{}
	f.nodes.byID, f.nodes.byKy, f.nodes.next = map[uint64]*node{}, map[identity]*node{}, 15
	f.fds.limit = 1024
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil && lim.Cur > 2048 {
		f.fds.limit = int(min(lim.Cur/3, 100_000)) // a node has up to two
	}
	var err error
	if f.proc, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open /proc/self/fd: %w (the guard needs /proc)", err)
	}
	if f.shadows, err = openShadows(o.ShadowDir, o.MemoryDir); err != nil {
		return nil, err
	}
	if f.watch, err = newWatcher(f); err != nil {
		return nil, err
	}
	base := &node{id: rootID, key: identity{place: virtual, ino: rootID}, dir: true, children: map[string]*node{}}
	info := &node{id: infoID, key: identity{place: virtual, ino: infoID}, dir: true, children: map[string]*node{}, parent: base, name: InfoName}
	list := &node{id: logID, key: identity{place: virtual, ino: logID}, parent: info, name: "refusals"}
	for _, n := range []*node{base, info, list} {
		f.nodes.byID[n.id] = n
	}
	if f.workspace, err = f.openRoot(o.Workspace, WorkspaceName, base, false); err != nil {
		f.close()
		return nil, err
	}
	if o.GitDir != "" {
		if f.gitDir, err = f.openRoot(o.GitDir, GitDirName, base, true); err != nil {
			f.close()
			return nil, err
		}
	}
	var st unix.Statx_t
	switch err := statx(f.workspace.top.fd, ".git", &st); {
	case err == nil:
		f.rootGit, f.hasGit = identityOf(onHost, 0, &st), true
	case !errors.Is(err, unix.ENOENT):
		f.close()
		return nil, fmt.Errorf("look at .git of the workspace: %w", err)
	}
	f.sweepTemporary()
	if f.conf, err = newConf(f); err != nil {
		f.close()
		return nil, err
	}
	f.survey()
	return f, nil
}

// openRoot adds a directory of the host to the guard's root.
func (f *guard) openRoot(dir, name string, base *node, git bool) (*node, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	var st unix.Statx_t
	if err := statx(fd, "", &st); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("look at %s: %w", dir, err)
	}
	if hasDotGit(strings.TrimPrefix(path.Dir(dir), "/")) && !git {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s lies in a git directory: take the repository's working tree as the workspace", dir)
	}
	git = git || dotgit.Is(path.Base(dir)) || shaped(fd, ".") // a bare repository
	top := &root{fd: fd, git: git}
	n := f.nodes.enter(identityOf(onHost, 0, &st), true, top, base, name)
	n.path = newFile(fd)
	n.keep.Store(int64(unwatched))
	if git {
		n.zoned.Store(int32(gitDir))
	} else if f.watch.add(n) {
		n.keep.Store(int64(keptFor))
	}
	return n, nil
}

func (f *guard) close() {
	if f.watch != nil {
		f.watch.close()
	}
	if f.conf != nil {
		f.conf.close()
	}
}

// Init is called before the first request.
func (f *guard) Init(s *fuse.Server) {
	f.srv = s
	go f.watch.run()
	go f.conf.run()
}

func (f *guard) String() string { return "lazaret" }

// refusals are what the sandbox was not allowed, for it to read.
type refusals struct {
	mu   sync.Mutex
	seq  uint64
	last []string
	at   time.Time
}

const keptRefusals = 64

func (r *refusals) text() ([]byte, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []byte
	for _, l := range r.last {
		out = append(out, l...)
	}
	return out, r.at
}

// refuse notes a refusal and answers it.
func (f *guard) refuse(op, where string, errno unix.Errno) fuse.Status {
	f.refused.mu.Lock()
	f.refused.seq++
	f.refused.at = time.Now()
	line := fmt.Sprintf("%d %s %s %q\n", f.refused.seq, unix.ErrnoName(errno), op, where)
	if len(f.refused.last) >= keptRefusals {
		f.refused.last = f.refused.last[1:]
	}
	f.refused.last = append(f.refused.last, line)
	loud := f.refused.seq <= 1000 || f.refused.seq%1000 == 0
	f.refused.mu.Unlock()
	if loud {
		f.log.Info("refused", "op", op, "path", where, "errno", unix.ErrnoName(errno))
	}
	return fuse.Status(errno) //nolint:gosec // errors are small
}

func (f *guard) noteCut() {
	if f.cut.CompareAndSwap(false, true) {
		f.log.Warn("the workspace's .git was removed or replaced on the host: the sandbox is cut off from git")
		_, _ = fmt.Fprintln(os.Stderr, "cut") // the coordinator reads it
	}
}
