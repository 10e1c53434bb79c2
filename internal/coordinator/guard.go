package coordinator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/gitbranch"
	"github.com/lazaret-dev/lazaret/internal/gitsentry"
	"github.com/lazaret-dev/lazaret/internal/mountinfo"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

const (
	// guardStart bounds the wait for a guard to serve.
	guardStart = 10 * time.Second
	// guardStop is how long a guard may take to end by itself, and to be gone
	// after it was killed.
	guardStop = 2 * time.Second
	// maxWords bounds what a guard says of its start, in bytes.
	maxWords = 16 << 10
	// guardFS is the type of its mount in /proc/self/mountinfo.
	guardFS = "fuse.lazaret"
	// guardReady is its word when it serves; anything else is a guardError.
	guardReady = "ready"
	// guardCut is the line on standard error by which it tells that it has lost
	// the workspace's .git; all others are for the log.
	guardCut = "cut"
	// guardNote begins one that the developer should know.
	guardNote = "note "
	// maxNotes bounds those that are kept.
	maxNotes = 20
)

// guardError is what a guard that cannot serve says.
type guardError struct {
	Error string `json:"error"`
}

// guard is the process that shows the workspace to the sandboxes.
type guard struct {
	req   wire.PrepareRequest // what it was started for
	proc  *proc.Process
	hold  *os.File      // its standard input, whose end is its own
	done  chan struct{} // closed once it has ended
	notes []string      // what the developer should know of its branch
	more  []wire.Bind   // what is mounted of it beside the workspace
	cut   atomic.Bool   // the host has removed or replaced .git
	cuts  chan struct{} // has a token when that was told
	told  struct {      // what it tells the developer
		mu    sync.Mutex
		notes []string // the newest last
	}
}

// startGuard runs argv, which must serve o, and returns once it does. Its words
// are in the error where it does not. Nothing of it is left then but, where it
// was killed, its mount.
func startGuard(ctx context.Context, argv []string, o gitsentry.Options, log *slog.Logger) (_ *guard, err error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	var in, hold, words, said, heard, stderr *os.File
	for _, p := range [][2]**os.File{{&in, &hold}, {&words, &said}, {&heard, &stderr}} {
		if *p[0], *p[1], err = os.Pipe(); err != nil {
			for _, f := range []*os.File{in, hold, words, said} {
				_ = f.Close() // nothing was written, or it is nil
			}
			return nil, fmt.Errorf("start the guard: %w", err)
		}
	}
	defer func() { _ = words.Close() }() // only read
	g := &guard{hold: hold, done: make(chan struct{}), cuts: make(chan struct{}, 1)}
	go g.hear(heard, log)
	started := make(chan error, 1)
	go func() {
		defer close(g.done)
		// PDEATHSIG comes at the end of the thread that forked, so this one waits.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
			Dir: "/", Env: os.Environ(), // little: we were started with next to none
			Files: []*os.File{in, stderr, stderr, said},
			// Whatever ends the session or the group of a container spares it.
			Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
		})
		for _, f := range []*os.File{in, stderr, said} {
			_ = f.Close() // the guard's ends
		}
		if err != nil {
			started <- err
			return
		}
		g.proc, err = proc.Open(p.Pid) // not waited for yet: the pid is its own
		if err != nil {
			err = errors.Join(err, p.Kill())
		}
		started <- err
		_, _ = p.Wait() // it has ended, however that went
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("start the guard: %w", err), hold.Close())
	}
	deadline := time.Now().Add(guardStart)
	err = errors.Join(hold.SetWriteDeadline(deadline), words.SetReadDeadline(deadline))
	defer context.AfterFunc(ctx, func() {
		_ = hold.SetWriteDeadline(time.Unix(1, 0)) // pipes take deadlines
		_ = words.SetReadDeadline(time.Unix(1, 0))
	})()
	if err == nil {
		_, err = hold.Write(append(data, '\n'))
	}
	// One that ends before it has read all has its reason to tell.
	if err == nil || errors.Is(err, unix.EPIPE) {
		err = listenTo(words)
	}
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the guard does not serve after %s: the machine or the workspace's file system hangs; see the domain's coordinator.log", guardStart)
	}
	if err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

// hear reads what the guard writes to its standard error until its end.
func (g *guard) hear(stderr *os.File, log *slog.Logger) {
	defer func() { _ = stderr.Close() }() // only read
	r := bufio.NewReader(stderr)
	for {
		line, err := r.ReadSlice('\n') // a long one comes in pieces
		if line := string(bytes.TrimSpace(line)); line == guardCut {
			g.cut.Store(true)
			select {
			case g.cuts <- struct{}{}:
			default: // told before
			}
		} else if note, ok := strings.CutPrefix(line, guardNote); ok {
			g.told.mu.Lock()
			g.told.notes = append(g.told.notes, note)
			g.told.notes = g.told.notes[max(0, len(g.told.notes)-maxNotes):]
			g.told.mu.Unlock()
		} else if line != "" {
			log.Warn("guard", "says", line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// listenTo reads the guard's one line.
func listenTo(words io.Reader) error {
	line, err := bufio.NewReader(io.LimitReader(words, maxWords)).ReadBytes('\n')
	line = bytes.TrimSpace(line)
	var e guardError
	switch {
	case string(line) == guardReady:
		return nil
	case json.Unmarshal(line, &e) == nil && e.Error != "":
		return errors.New(e.Error)
	case err != nil && !errors.Is(err, io.EOF):
		return fmt.Errorf("hear of the guard: %w", err)
	case len(line) == 0:
		return errors.New("the guard ended without a word: see the domain's coordinator.log")
	}
	return fmt.Errorf("the guard said %.200q: reinstall Lazaret so that its programs are of one version", line)
}

// ended reports whether the process is gone.
func (g *guard) ended() bool {
	select {
	case <-g.done:
		return true
	default:
		return g.proc.Ended() // seen to be gone before it was waited for
	}
}

// stop ends the guard: by word, by SIGKILL if it does not hear.
func (g *guard) stop() {
	_ = g.hold.Close()              // a pipe
	_ = g.proc.Signal(unix.SIGTERM) // it may be gone
	select {
	case <-g.done:
	case <-time.After(guardStop):
		_ = g.proc.Signal(unix.SIGKILL)
		select {
		case <-g.done:
		case <-time.After(guardStop): // in the kernel; its mount is detached all the same
		}
	}
	g.proc.Close()
}

func (c *Coordinator) guardDir() string    { return filepath.Join(filepath.Dir(c.runDir), "guard") }
func (c *Coordinator) shownDir() string    { return filepath.Join(c.guardDir(), gitsentry.WorkspaceName) }
func (c *Coordinator) guardMemory() string { return c.guardDir() + "-memory" }

// guarded has the workspace served as req asks before ct may be created, and
// returns what is to be mounted beside it. It needs c.guarding, not c.mu. What
// lives already keeps the guard that it was made with: a second one below it
// would be another file system, and a changed one another promise.
func (c *Coordinator) guarded(ctx context.Context, ct *container, req *wire.PrepareRequest) ([]wire.Bind, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	if c.closing || c.containers[ct.id] != ct {
		c.mu.Unlock()
		return nil, &wire.Error{Code: wire.CodeClosing, Message: "coordinator is closing"}
	}
	var others []string
	for id := range c.containers {
		if id != ct.id {
			others = append(others, id)
		}
	}
	slices.Sort(others)
	old := c.guard
	dead := c.orphaned || old != nil && old.ended()
	if len(others) == 0 {
		c.orphaned = false // their guard is nobody's any more
	}
	c.cancelGuard = cancel
	c.mu.Unlock()
	switch {
	case len(others) == 0:
	case dead:
		return nil, refused("its guard was killed, and its sandboxes are cut off from the workspace: end container %.12s first", others[0])
	case !sameGuard(old.req, *req):
		return nil, refused("git, masks or read_only of profile %q have changed since container %.12s was made, which sees the workspace by the old ones: end it first", c.spec.Domain.Profile, others[0])
	}
	if old != nil && !old.ended() && sameGuard(old.req, *req) {
		return old.more, nil
	}
	if err := c.dropGuard(); err != nil {
		return nil, refused("guard over the workspace: %w", err)
	}
	g, err := c.newGuard(ctx, req)
	if err != nil {
		return nil, errors.Join(refused("guard over workspace %s: %w", c.spec.Domain.Workspace, err), c.dropGuard())
	}
	c.mu.Lock()
	c.guard = g
	c.mu.Unlock()
	c.record(audit.Event{Kind: audit.GuardChanged, Verdict: wire.GuardServing}, facts{"guard": "workspace", "pid": g.proc.PID, "git": req.Git, "masks": req.Masks, "read_only": req.ReadOnly})
	c.log.Info("guard serves", "pid", g.proc.PID, "git", req.Git, "masks", req.Masks, "read_only", req.ReadOnly)
	go c.watchGuard(g)
	go joinScope(context.WithoutCancel(ctx), c.spec, c.log, "guard", g.proc.PID)
	return g.more, nil
}

func refused(format string, args ...any) error {
	return &wire.Error{Code: wire.CodeRefused, Message: fmt.Errorf(format, args...).Error()}
}

func sameGuard(a, b wire.PrepareRequest) bool {
	return a.Git == b.Git && slices.Equal(a.Masks, b.Masks) && slices.Equal(a.ReadOnly, b.ReadOnly)
}

// guardOptions are those of a guard for what req asks.
func (c *Coordinator) guardOptions(req *wire.PrepareRequest) gitsentry.Options {
	return gitsentry.Options{
		Workspace:  c.spec.Domain.Workspace,
		Mountpoint: c.guardDir(),
		ShadowDir:  filepath.Join(c.spec.Domain.Root, "git", "shadow"),
		MemoryDir:  c.guardMemory(),
		Git:        req.Git,
		Masks:      req.Masks,
		ReadOnly:   req.ReadOnly,
	}
}

// ownBranchOnly keeps gc in branch mode from what it may not do: writing all
// branches into packed-refs, and the logs of others.
const ownBranchOnly = "\n[gc]\n\tpackRefs = false\n\treflogExpire = never\n\treflogExpireUnreachable = never\n"

func (c *Coordinator) newGuard(ctx context.Context, req *wire.PrepareRequest) (*guard, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o := c.guardOptions(req)
	var notes []string
	if req.Git == "branch" {
		w, err := gitbranch.Prepare(ctx, gitbranch.Options{Domain: c.spec.Domain, Home: c.spec.Home, ConfigHome: c.spec.ConfigHome})
		if err != nil {
			return nil, err
		}
		o.Workspace, o.Branch, notes = w.Path, w.Branch, w.Notes
		notes = append(notes, "the agent works on branch "+w.Branch+": lazaret git status")
	}
	more, err := c.findGit(ctx, &o)
	if err != nil {
		return nil, err
	}
	if req.Git == "branch" {
		if o.GitDir == "" || o.WorktreeName == "" {
			return nil, fmt.Errorf("the agent's worktree %s is not one of the repository: remove it by lazaret git drop", o.Workspace)
		}
		o.ConfigSuffix += ownBranchOnly
	}
	for _, d := range []string{o.Mountpoint, o.MemoryDir, o.ShadowDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	c.beginReview(ctx, o.Workspace, req.Git == "branch")
	g, err := startGuard(ctx, []string{program, "guard", "--log=" + wire.LogPath(c.spec.Domain.Root), "--log-level=" + c.spec.LogLevel}, o, c.log)
	if err != nil {
		return nil, err
	}
	go func() {
		if err := prime(filepath.Join(o.Mountpoint, gitsentry.WorkspaceName), g.done); err != nil {
			c.log.Info("list the workspace ahead", "error", err)
		}
	}()
	g.req, g.notes = *req, notes
	g.more = append(more, wire.Bind{Source: filepath.Join(o.Mountpoint, gitsentry.InfoName), Destination: "/run/lazaret/guard", ReadOnly: true})
	return g, nil
}

// watchGuard tells of a guard that cuts itself off, or ends by itself. Its mount stays, dead, while
// sandboxes live: nothing can come to lie in its place.
func (c *Coordinator) watchGuard(g *guard) {
	for over := false; !over; {
		select {
		case <-g.cuts:
			c.record(audit.Event{Kind: audit.GuardChanged, Verdict: "cut"}, facts{"guard": "workspace", "pid": g.proc.PID, "reason": "the host removed or replaced .git"})
		case <-g.done:
			over = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.guard == g {
		c.record(audit.Event{Kind: audit.GuardChanged, Verdict: wire.GuardDead}, facts{"guard": "workspace", "pid": g.proc.PID, "containers": len(c.containers)})
		c.log.Error("the guard over the workspace has ended: its sandboxes are cut off", "pid", g.proc.PID, "containers", len(c.containers))
	}
}

// dropGuard ends the guard, and removes its mount and its memory. It needs
// c.guarding, not c.mu.
func (c *Coordinator) dropGuard() error {
	c.mu.Lock()
	g := c.guard
	c.guard = nil
	c.mu.Unlock()
	if g != nil {
		g.stop()
		c.record(audit.Event{Kind: audit.GuardChanged, Verdict: "ended"}, facts{"guard": "workspace", "pid": g.proc.PID})
	}
	return errors.Join(c.removeSources(""), removeMountpoint(c.guardDir()), os.RemoveAll(c.guardMemory()))
}

// guardStatus needs c.mu.
func (c *Coordinator) guardStatus() wire.Guard {
	switch {
	case c.guard != nil && !c.guard.ended():
		c.guard.told.mu.Lock()
		defer c.guard.told.mu.Unlock()
		return wire.Guard{State: wire.GuardServing, PID: c.guard.proc.PID, Cut: c.guard.cut.Load(), Notes: slices.Clone(c.guard.told.notes)}
	case c.guard != nil || c.orphaned && len(c.containers) > 0:
		return wire.Guard{State: wire.GuardDead}
	}
	return wire.Guard{State: wire.GuardNone}
}

// removeDomainDir removes a domain's directory of the runtime directory. What is
// mounted in it is the user's workspace, so nothing is removed by name before
// the mount is gone, and its mount point with it.
func removeDomainDir(dir string) error {
	if err := errors.Join(removeSources(filepath.Join(dir, "sources"), ""), removeMountpoint(filepath.Join(dir, "guard")), removeMemory(filepath.Join(dir, sandboxesName))); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// unmountOurs takes all mounts of a file system of ours off path, and returns it as
// the kernel tells it, "" where the directory above it is not there. Anything else
// that is mounted there is not ours to take away.
func unmountOurs(path, fstype string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	path = filepath.Join(parent, filepath.Base(path))
	for {
		m, mounted, err := mountinfo.At(path)
		if err != nil || !mounted {
			return path, err
		}
		if m.FSType != fstype {
			return "", fmt.Errorf("a file system of type %s is mounted at %s, which is Lazaret's: unmount it", m.FSType, path)
		}
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return "", fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}

// removeMountpoint takes a guard's mounts, of which one that was killed leaves a
// dead one, off a directory of ours, and removes that.
func removeMountpoint(path string) error {
	path, err := unmountOurs(path, guardFS)
	if err != nil || path == "" {
		return err
	}
	err = unix.Rmdir(path)
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.Unlink(path)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the guard's mount point %s: %w", path, err)
	}
	return nil
}
