// Package coordinator owns the Session Coordinator: the process that holds one
// domain while somebody uses it, counts its containers and sessions, and leaves
// nothing behind when the last one is gone.
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/coordinator/broker"
	"github.com/lazaret-dev/lazaret/internal/coordinator/network"
	"github.com/lazaret-dev/lazaret/internal/store"
	"github.com/lazaret-dev/lazaret/internal/trust"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// ErrBusy means that a live coordinator of the domain holds its Domain Root.
var ErrBusy = errors.New("another coordinator holds the domain")

const (
	// startGrace is how long a new coordinator waits for its first container.
	startGrace = 15 * time.Second
	// socketCheck is how often it looks whether its socket's name is still its own.
	socketCheck = 2 * time.Second
	// drain bounds the wait for requests in flight at the end.
	drain = 2 * time.Second
	// reapWait bounds how long a start waits for the end of a container of its id.
	reapWait = 8 * time.Second
	// claimFile in the Domain Root is locked by the coordinator, and names it.
	claimFile = "coordinator.pid"
)

// container is one container of the domain.
type container struct {
	id       string
	stateDir string
	pidFile  string
	prepared time.Time
	attached bool
	proc     *proc.Process // the creating process, then the sandbox
	notes    []string
	looked   bool          // the engine has dropped its bundle, but it was started
	ending   bool          // what is left of it is being removed
	gone     chan struct{} // closed when it is forgotten
	// escalation is its Escalation Socket; nil for none.
	escalation *escalation
	// networked: it has a place in the filtered network, or is about to get one.
	networked bool
	run       bool // lazaret run has started it
	// sessionEnded has a token when a session of lazaret run's container has ended.
	sessionEnded chan struct{}
	stopping     bool            // nobody has used it any more
	holds        map[string]bool // sessions of living lazaret runs
}

type session struct {
	wire.SessionStatus
	conn net.Conn
	key  wire.Session // its Session Anchor, if it may escalate
}

// Coordinator is one domain's coordinator; Run does everything.
type Coordinator struct {
	spec    wire.StartSpec
	log     *slog.Logger
	root    *os.File // the locked claim on the Domain Root
	runDir  string
	started time.Time
	idle    chan struct{} // has a token when the last use may have gone
	sweeps  chan struct{} // has a token when killed coordinators may be looked for
	store   *store.Store
	broker  *broker.Broker
	// escalationConns counts the open connections of all Escalation Sockets.
	escalationConns atomic.Int32

	// guarding is held by who starts or ends a guard; it is taken before mu.
	guarding sync.Mutex

	// mu guards the fields below.
	mu         sync.Mutex
	containers map[string]*container
	sessions   map[string]*session
	used       bool // somebody has come
	closing    bool
	guard      *guard         // alive or dead; nil for none
	state      *state         // mounted; nil for none
	net        *domainNetwork // nil where nobody needs a filtered one
	trust      *trust.Anchor  // nil until a container needs it
	terminals  int            // desks of lazaret run that are open
	orphaned   bool           // a killed predecessor's sandboxes live, whose guard ended with it
	// reviewed is the record of the tree that this session's changes are told of, ""
	// for none yet, and baseline how that was before.
	reviewed string
	baseline *baseline
	// cancelGuard gives up the start of a guard that is under way.
	cancelGuard context.CancelFunc
}

// Run serves the domain until its last container and session are gone or ctx
// ends, and removes all that it made.
func Run(ctx context.Context, spec wire.StartSpec, log *slog.Logger) (err error) {
	if err := spec.Validate(); err != nil {
		return err
	}
	c := &Coordinator{
		spec:       spec,
		log:        log,
		started:    time.Now(),
		idle:       make(chan struct{}, 1),
		sweeps:     make(chan struct{}, 1),
		containers: map[string]*container{},
		sessions:   map[string]*session{},
		runDir:     filepath.Join(spec.RuntimeDir, "domains", spec.Domain.Hash, "run"),
	}
	served := false
	if c.root, err = ownRoot(spec.Domain.Root); err != nil {
		return err
	}
	defer func() { _ = c.root.Close() }() // again after the teardown: no harm
	// What a killed predecessor made may be in use.
	if _, statErr := os.Lstat(filepath.Dir(c.runDir)); errors.Is(statErr, fs.ErrNotExist) {
		defer func() {
			if !served {
				err = errors.Join(err, removeDomainDir(filepath.Dir(c.runDir)))
			}
		}()
	}
	if err := c.makeRunDir(); err != nil {
		return err
	}
	c.store = store.Open(store.Options{Root: spec.Domain.Root, Log: log})
	defer func() { _ = c.store.Close() }() // again after the teardown: no harm
	alerts := make(chan struct{}, 1)
	c.broker = broker.New(broker.Options{Domain: spec.Domain, Log: log, Record: c.store.Append, Later: c.store.Later, Busy: c.store.Behind, Alert: func() {
		select {
		case alerts <- struct{}{}:
		default: // will be looked at
		}
	}})
	defer c.broker.Close()
	alerting, endAlerts := context.WithCancel(ctx)
	defer endAlerts()
	go (&alerter{log: log, unattended: c.broker.Unattended, notify: c.notify, withdraw: c.withdraw}).run(alerting, alerts)
	c.adopt(ctx)
	if err := network.Clean(ctx, c.networkDir(), log); err != nil {
		log.Error("remove a killed coordinator's network", "error", err)
	}
	if c.orphaned = spec.Domain.Workspace != "" && len(c.containers) > 0; !c.orphaned {
		c.guarding.Lock()
		err := errors.Join(c.dropGuard(), c.dropState()) // a killed predecessor's
		c.guarding.Unlock()
		if err != nil {
			log.Error("remove a killed coordinator's mounts", "error", err)
		}
	}
	if spec.Recover {
		c.used = true // nobody comes: what was adopted is all
		c.poke()
	}

	ln, err := listen(spec.Domain.SocketPath(spec.ControlDir))
	if err != nil {
		return err
	}
	c.record(audit.Event{Kind: audit.CoordinatorStart}, facts{"pid": os.Getpid(), "profile": spec.Domain.Profile, "workspace": spec.Domain.Workspace, "recover": spec.Recover})
	log.Info("coordinator started", "domain", spec.Domain.Hash, "profile", spec.Domain.Profile, "workspace", spec.Domain.Workspace, "pid", os.Getpid())
	served = true // the teardown removes everything from here on
	go joinScope(ctx, spec, log, "coordinator", os.Getpid())
	go c.watchStarter()
	swept := make(chan struct{})
	c.sweeps <- struct{}{}
	go func() {
		defer close(swept)
		for range c.sweeps {
			c.sweepContainers(context.WithoutCancel(ctx))
			if !spec.Recover { // who started this one looks for the others
				c.sweep()
			}
		}
	}()
	err = c.serve(ctx, ln)
	c.mu.Lock()
	close(c.sweeps)
	c.mu.Unlock()
	select {
	case <-swept:
	case <-time.After(drain): // the next start sweeps again
	}
	return err
}

// watchStarter waits for nobody any more once the starter has ended: it was
// killed before it could ask for anything, or what it asked for counts already.
func (c *Coordinator) watchStarter() {
	if c.spec.Starter == 0 {
		return // started by hand
	}
	p, err := proc.Open(c.spec.Starter)
	if err == nil {
		// Looked at after the opening: while it is our parent, its pid is its own.
		// An orphan's parent is somebody else, such as the engine's monitor.
		if os.Getppid() == c.spec.Starter {
			p.Wait()
		} else {
			p.Close()
		}
	}
	c.giveUp()
}

// ownRoot claims the Domain Root for as long as this process lives, so that
// there are never two coordinators even where /tmp's names have been removed.
func ownRoot(root string) (*os.File, error) {
	path := filepath.Join(root, claimFile)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claim the domain: open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w (%s: %w)", ErrBusy, path, err), f.Close())
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(fmt.Errorf("claim the domain: %w", err), f.Close())
	}
	if _, err := fmt.Fprintf(f, "%d\n", os.Getpid()); err != nil {
		return nil, errors.Join(fmt.Errorf("claim the domain: %w", err), f.Close())
	}
	return f, nil
}

// serve answers requests, and returns when the domain has been torn down.
func (c *Coordinator) serve(ctx context.Context, ln *peerListener) error {
	srv := &http.Server{
		Handler:           c.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(c.log.Handler(), slog.LevelWarn),
		ConnContext:       withPeer,
	}
	failed := make(chan error, 1)
	start := func(l *peerListener) {
		go func() {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				failed <- err
			}
		}()
	}
	start(ln)

	grace := time.NewTimer(startGrace)
	defer grace.Stop()
	check := time.NewTicker(socketCheck)
	defer check.Stop()
	var lock *wire.Lock
	var result error
	var closed bool
loop:
	for {
		select {
		case <-ctx.Done():
			c.log.Info("told to stop")
			break loop
		case err := <-failed:
			result = fmt.Errorf("serve the control socket: %w", err)
			break loop
		case <-grace.C:
			c.mu.Lock()
			c.used = true // nobody came: the count alone decides from now on
			c.mu.Unlock()
			c.poke()
		case <-check.C:
			c.lookForDropped(ctx)
			c.renewCerts()
			if ln.current() {
				continue
			}
			c.log.Warn("control socket's name is gone: bind it again")
			l, err := c.rebind(ln)
			if err != nil {
				c.log.Error("bind the control socket again", "error", err)
				continue
			}
			ln = l
			start(ln)
		case <-c.idle:
			if lock, closed = c.tryClose(ctx); closed {
				break loop
			}
		}
	}
	// ctx may be over: what is left to do has its own bound.
	return errors.Join(result, c.teardown(context.WithoutCancel(ctx), srv, ln, lock))
}

// poke asks the main loop to look whether anything is left to do.
func (c *Coordinator) poke() {
	select {
	case c.idle <- struct{}{}:
	default:
	}
}

// tryClose takes the hold-to-bind lock and, if the domain is still unused then,
// marks the coordinator as closing. Whoever starts in the meantime waits for
// the lock, and finds nobody afterwards. The lock is nil where its name cannot
// be had.
func (c *Coordinator) tryClose(ctx context.Context) (lock *wire.Lock, closed bool) {
	path := c.spec.Domain.LockPath(c.spec.ControlDir)
	for c.unused() && ctx.Err() == nil {
		lock, err := wire.TryLock(path)
		if errors.Is(err, wire.ErrLocked) {
			time.Sleep(2 * time.Millisecond) // a start is under way, most likely to us
			continue
		}
		if err != nil {
			// Somebody took the name. Nobody of ours can be starting then.
			c.log.Error("take the lock to close", "error", err)
		}
		c.mu.Lock()
		if c.empty() {
			c.closing = true
			c.mu.Unlock()
			return lock, true
		}
		c.mu.Unlock()
		if lock != nil {
			_ = lock.Release() // closing the descriptor cannot keep it
		}
	}
	return nil, false
}

func (c *Coordinator) unused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.empty()
}

// empty needs c.mu.
func (c *Coordinator) empty() bool {
	return c.used && len(c.containers) == 0 && len(c.sessions) == 0 && c.terminals == 0
}

// teardown removes everything that this process made. The hold-to-bind lock is
// held so that a successor starts after us; only a signal comes without it.
func (c *Coordinator) teardown(ctx context.Context, srv *http.Server, ln *peerListener, lock *wire.Lock) error {
	c.mu.Lock()
	c.closing = true
	left := len(c.containers)
	if c.cancelGuard != nil {
		c.cancelGuard()
	}
	for _, s := range c.sessions {
		_ = s.conn.Close() // hijacked: the server does not know them
	}
	var errs []error
	for _, ct := range c.containers {
		if ct.escalation != nil {
			errs = append(errs, ct.escalation.close(false)) // a successor takes its directories over
			ct.escalation = nil
		}
	}
	c.broker.Close()
	c.mu.Unlock()
	if lock == nil {
		l, err := wire.WaitLock(c.spec.Domain.LockPath(c.spec.ControlDir), time.Now().Add(drain))
		if err != nil {
			c.log.Warn("close without the lock", "error", err)
		}
		lock = l
	}
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	ln.unlink()
	if err := srv.Shutdown(ctx); err != nil {
		c.log.Warn("requests were cut", "error", err)
		errs = append(errs, srv.Close())
	}
	// Sandboxes that live on are cut off: what they see of the workspace ends with
	// the guard.
	c.guarding.Lock()
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		if left == 0 {
			c.endReview(context.WithoutCancel(ctx))
		}
	}()
	errs = append(errs, c.dropNetwork(context.WithoutCancel(ctx)), c.dropGuard())
	if left == 0 {
		errs = append(errs, c.dropState())
	} else {
		errs = append(errs, c.leaveState())
	}
	c.guarding.Unlock()
	<-seen
	c.record(audit.Event{Kind: audit.CoordinatorEnd}, facts{"containers_left": left})
	errs = append(errs, c.store.Close()) // after the last that can happen, before a successor may open it
	if left == 0 {
		errs = append(errs, removeDomainDir(filepath.Dir(c.runDir)))
		if c.spec.Domain.Ephemeral {
			// The store first: a root that a kill leaves without its record has none.
			errs = append(errs, store.Remove(c.spec.Domain.Root), os.RemoveAll(c.spec.Domain.Root))
		}
	}
	c.log.Info("coordinator ends", "containers_left", left)
	errs = append(errs, c.root.Close()) // a successor claims it once the lock is gone
	if lock != nil {
		errs = append(errs, lock.Remove())
	}
	return errors.Join(errs...)
}

// makeRunDir makes what the sandboxes see at /run/lazaret: the escalation client,
// once more by the name git and by its own for PATH, a place for terminfo entries, and one to mount what
// the guard tells.
func (c *Coordinator) makeRunDir() error {
	// First of all how to come back to what follows.
	if err := os.MkdirAll(filepath.Dir(c.runDir), 0o700); err != nil {
		return fmt.Errorf("make the domain's runtime directory: %w", err)
	}
	if err := writeStart(c.spec); err != nil {
		return err
	}
	for _, d := range []string{c.runDir, filepath.Join(c.runDir, "terminfo"), filepath.Join(c.runDir, "bin"), filepath.Join(c.runDir, "sbin"), filepath.Join(c.runDir, "guard")} {
		if err := openDir(d); err != nil {
			return fmt.Errorf("make the domain's runtime directory: %w", err)
		}
	}
	client := filepath.Join(c.runDir, "escalate")
	if err := copyProgram(c.spec.ClientPath, client); err != nil {
		return fmt.Errorf("offer the escalation client: %w", err)
	}
	if err := linkProgram(client, filepath.Join(c.runDir, "bin/git")); err != nil {
		return fmt.Errorf("offer the program that stands before git: %w", err)
	}
	if err := linkProgram(client, filepath.Join(c.runDir, "sbin/lazaret-escalate")); err != nil {
		return fmt.Errorf("offer the escalation client on PATH: %w", err)
	}
	return nil
}

// openDir makes a directory that any uid of a sandbox may look into; what is above
// it keeps other users of the host out.
func openDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755) //nolint:gosec // meant for all of the sandbox
}

// adopt counts in the containers of a predecessor that was killed. Those that
// ended meanwhile are the sweep's.
func (c *Coordinator) adopt(ctx context.Context) {
	ids, err := containerstate.List(c.spec.RuntimeDir)
	if err != nil {
		c.log.Error("look for leftovers", "error", err)
		return
	}
	for _, id := range ids {
		dir := containerstate.Dir(c.spec.RuntimeDir, id)
		lease, err := containerstate.ReadLease(dir)
		if err != nil {
			continue
		}
		if lease.Domain == c.spec.Domain.Hash {
			c.adoptOne(ctx, id, dir, lease)
		}
	}
}

func (c *Coordinator) adoptOne(ctx context.Context, id, dir string, lease containerstate.Lease) {
	ct := &container{id: id, stateDir: dir, pidFile: lease.PIDFile, prepared: time.Now(), attached: lease.Attached, gone: make(chan struct{})}
	if fi, err := os.Stat(filepath.Join(dir, "lease.json")); err == nil {
		ct.prepared = fi.ModTime()
	}
	if st, err := containerstate.ReadState(dir); err == nil {
		ct.notes = st.Notes
	}
	p, err := proc.Open(lease.PID)
	if err == nil && !lease.Alive() {
		p.Close() // another process has got that pid
		err = os.ErrProcessDone
	}
	if err != nil && ct.attached {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.containers[id] = ct
	c.used = true
	switch {
	case err != nil: // its create ended while nobody looked
		c.createEnded(ctx, ct)
	case ct.attached:
		c.log.Info("adopt a running container", "container", id, "pid", lease.PID)
		ct.proc = p
		c.adoptEscalation(ct)
		go c.watch(ct, p)
	default:
		c.log.Info("adopt a container that is being created", "container", id, "pid", lease.PID)
		ct.proc = p
		c.adoptEscalation(ct)
		go c.watchCreate(ctx, ct, p)
	}
}

// watchCreate waits for the end of the process that creates ct.
func (c *Coordinator) watchCreate(ctx context.Context, ct *container, creator *proc.Process) {
	creator.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.containers[ct.id] == ct {
		c.createEnded(ctx, ct)
	}
}

// createEnded decides what came of a create that is over. The runtime's last
// act in it is to write the pid file: without that, it failed or was killed, and
// whatever it has started is nobody's. It needs c.mu.
func (c *Coordinator) createEnded(ctx context.Context, ct *container) {
	sandbox := ct.sandboxFromPIDFile()
	switch {
	case sandbox == nil:
	case ct.attached && ct.proc.PID == sandbox.PID:
		sandbox.Close() // the hook had told
		return
	default:
		c.log.Info("container created", "container", ct.id, "pid", sandbox.PID)
		if err := c.attach(ct, sandbox); err == nil {
			return
		}
	}
	c.log.Info("create ended without a sandbox", "container", ct.id)
	c.end(ctx, ct)
}

// end removes what is left of ct, and forgets it then. It needs c.mu.
func (c *Coordinator) end(ctx context.Context, ct *container) {
	if ct.ending {
		return
	}
	ct.ending = true
	go func() {
		c.reap(context.WithoutCancel(ctx), ct.stateDir)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forget(ct)
		c.removeState(ct.id)
	}()
}

// lookForDropped ends containers that were created, never started, and whose
// bundle is gone: an engine that is killed in the middle of a create does not
// know that it succeeded, and removes its container without a word to us.
func (c *Coordinator) lookForDropped(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ct := range c.containers {
		if !ct.attached || ct.looked || ct.ending {
			continue
		}
		st, err := containerstate.ReadState(ct.stateDir)
		if err != nil || !dropped(st) {
			continue
		}
		ct.looked = true // one that was started ends in its own time
		go func() {
			if !neverStarted(ctx, st) {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.containers[ct.id] == ct {
				c.log.Info("end a container that its engine has dropped", "container", ct.id)
				c.end(ctx, ct)
			}
		}()
	}
}

// watch waits for the end of ct's sandbox.
func (c *Coordinator) watch(ct *container, p *proc.Process) {
	p.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.containers[ct.id] != ct || ct.proc != p || ct.ending {
		return // released, or somebody else's to forget
	}
	c.log.Info("sandbox ended", "container", ct.id, "pid", p.PID)
	c.forget(ct)
	if !runtimeKnows(ct.stateDir) {
		c.removeState(ct.id)
	} // else the engine's delete follows, with our poststop hook
}

// sandboxFromPIDFile is nil unless the pid file was written after Prepare by a
// process that is still alive.
func (ct *container) sandboxFromPIDFile() *proc.Process {
	fi, err := os.Stat(ct.pidFile)
	if err != nil || fi.ModTime().Before(ct.prepared.Add(-time.Second)) {
		return nil
	}
	if !fi.Mode().IsRegular() {
		return nil // a FIFO would keep us for ever
	}
	data, err := os.ReadFile(ct.pidFile)
	if err != nil {
		return nil
	}
	var pid int
	if _, err := fmt.Sscanf(string(data), "%d", &pid); err != nil || pid <= 1 {
		return nil
	}
	p, err := proc.Open(pid)
	if err != nil {
		return nil
	}
	return p
}

// attach makes p the sandbox of ct. It needs c.mu.
func (c *Coordinator) attach(ct *container, p *proc.Process) error {
	t, err := proc.StartTime(p.PID)
	if err == nil {
		err = containerstate.WriteLease(ct.stateDir, containerstate.Lease{Version: containerstate.Version, Domain: c.spec.Domain.Hash, Attached: true, PID: p.PID, StartTime: t, PIDFile: ct.pidFile})
	}
	if err != nil {
		p.Close()
		return fmt.Errorf("attach container %s: %w", ct.id, err)
	}
	ct.attached, ct.proc = true, p
	c.record(audit.Event{Kind: audit.ContainerStarted, Container: ct.id}, facts{"pid": p.PID})
	go c.watch(ct, p)
	return nil
}

// forget counts ct out. It needs c.mu.
func (c *Coordinator) forget(ct *container) {
	if c.containers[ct.id] != ct {
		return
	}
	delete(c.containers, ct.id)
	c.dropEscalation(ct)
	c.record(audit.Event{Kind: audit.ContainerEnded, Container: ct.id}, facts{"started": ct.attached})
	if err := c.removeSources(ct.id); err != nil {
		c.log.Error("remove the mounts of a container", "container", ct.id, "error", err) // the domain's end tries again
	}
	if c.net != nil {
		c.net.Leave(ct.id)
	}
	close(ct.gone)
	c.poke()
}

// giveUp ends the grace of a new coordinator: whoever it was started for has
// been refused.
func (c *Coordinator) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = true
	c.poke()
}

func (c *Coordinator) prepare(ctx context.Context, req *wire.PrepareRequest, peer *proc.Process) (*wire.PrepareResponse, error) {
	fail := func(code, format string, args ...any) (*wire.PrepareResponse, error) {
		peer.Close()
		return nil, &wire.Error{Code: code, Message: fmt.Errorf(format, args...).Error()}
	}
	if req.Domain != c.spec.Domain {
		return fail(wire.CodeDomainMismatch, "control socket belongs to domain %s (profile %s, workspace %q, data root %s), not to the one asked for", c.spec.Domain.Hash, c.spec.Domain.Profile, c.spec.Domain.Workspace, c.spec.Domain.Root)
	}
	if !containerstate.ValidID(req.ContainerID) || req.StateDir != containerstate.Dir(c.spec.RuntimeDir, req.ContainerID) || !filepath.IsAbs(req.PIDFile) {
		return fail(wire.CodeBadRequest, "container %.64q, state directory %q or pid file %q is not valid here", req.ContainerID, req.StateDir, req.PIDFile)
	}
	guarded := c.spec.Domain.Workspace != ""
	if guarded != (req.Git != "") {
		return fail(wire.CodeBadRequest, "git is %q in a domain with workspace %q: one comes with the other", req.Git, c.spec.Domain.Workspace)
	}
	if guarded {
		o := c.guardOptions(req)
		if err := o.Validate(); err != nil {
			return fail(wire.CodeBadRequest, "guard: %w", err)
		}
		for _, rel := range req.Sources {
			if !filepath.IsLocal(rel) || filepath.Clean(rel) != rel {
				return fail(wire.CodeBadRequest, "source %q is not a clean path in the workspace", rel)
			}
		}
	}
	if err := c.checkState(req); err != nil {
		return fail(wire.CodeBadRequest, "state: %w", err)
	}
	if err := c.checkEscalation(req); err != nil {
		return fail(wire.CodeBadRequest, "escalation: %w", err)
	}
	if err := checkNetwork(req); err != nil {
		return fail(wire.CodeBadRequest, "%w", err)
	}
	start, err := proc.StartTime(peer.PID)
	if err != nil {
		return fail(wire.CodeBadRequest, "the process that asks is gone: %w", err)
	}
	if guarded || req.Network != nil {
		c.guarding.Lock()
		defer c.guarding.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.containers[req.ContainerID]; old != nil && old.ending {
		c.mu.Unlock()
		select {
		case <-old.gone:
		case <-time.After(reapWait):
		}
		c.mu.Lock()
	}
	if c.closing {
		return fail(wire.CodeClosing, "coordinator is closing")
	}
	if old := c.containers[req.ContainerID]; old != nil {
		// One that asks again had prepared at a coordinator that was killed then.
		again := !old.attached && !old.ending && old.proc.PID == peer.PID
		if old.ending || !again && !old.proc.Ended() {
			return fail(wire.CodeRefused, "container %s exists already in domain %s", req.ContainerID, c.spec.Domain.Hash)
		}
		c.forget(old) // its end has not been seen yet
		c.removeState(old.id)
	}
	lease := containerstate.Lease{Version: containerstate.Version, Domain: c.spec.Domain.Hash, PID: peer.PID, StartTime: start, PIDFile: req.PIDFile}
	if err := claimState(req.StateDir, lease); err != nil {
		return fail(wire.CodeRefused, "container %s: %w", req.ContainerID, err)
	}
	ct := &container{
		id: req.ContainerID, stateDir: req.StateDir, pidFile: req.PIDFile,
		prepared: time.Now(), proc: peer, notes: req.Notes, gone: make(chan struct{}), run: req.Run,
	}
	c.containers[ct.id] = ct
	c.used = true
	go c.watchCreate(context.WithoutCancel(ctx), ct, peer)
	if ct.run {
		ct.sessionEnded = make(chan struct{}, 1)
		go c.holdOrStop(context.WithoutCancel(ctx), ct)
	}
	res := &wire.PrepareResponse{RunDir: c.runDir}
	if guarded || req.Escalation != nil || req.Network != nil {
		// Counted in already, so that nobody closes the domain meanwhile.
		c.mu.Unlock()
		connected := make(chan error, 1)
		if req.Network == nil {
			connected <- nil
		} else {
			go func() { // takes as long as the guard
				var err error
				res.Network, err = c.networked(ctx, ct, req)
				connected <- err
			}()
		}
		if guarded {
			err = c.guardedFully(ctx, ct, req, res)
		}
		if err == nil && req.Escalation != nil {
			var binds []wire.Bind
			if binds, err = c.escalated(ct, req.Escalation); err != nil {
				err = errors.Join(refused("escalation: %w", err), c.removeSources(ct.id))
			}
			res.Binds = append(res.Binds, binds...)
		}
		err = errors.Join(<-connected, err)
		c.mu.Lock()
		if err == nil && c.containers[ct.id] != ct { // whoever asked has ended
			err = errors.Join(refused("the process that asks is gone"), c.removeSources(ct.id))
		}
		if err != nil {
			c.dropEscalation(ct)
			c.forget(ct)
			c.removeState(ct.id)
			return nil, err
		}
		if c.guard != nil {
			res.Notes = slices.Concat(c.guard.notes, res.Notes)
		}
		ct.notes = append(ct.notes, res.Notes...)
	}
	if !c.closing {
		select {
		case c.sweeps <- struct{}{}:
		default: // asked for already
		}
	}
	c.log.Info("container prepared", "container", ct.id, "pid", peer.PID, "notes", req.Notes)
	return res, nil
}

// guardedFully puts the workspace's guard and what is kept into res.
func (c *Coordinator) guardedFully(ctx context.Context, ct *container, req *wire.PrepareRequest, res *wire.PrepareResponse) (err error) {
	res.GuardDir = c.shownDir()
	var persist []wire.Bind
	if res.Binds, err = c.guarded(ctx, ct, req); err == nil {
		res.State, persist, res.Notes, err = c.kept(ctx, ct, req)
		res.Binds = slices.Concat(persist, res.Binds)
	}
	if err == nil && len(req.Sources) > 0 {
		if res.Sources, err = c.mountSources(ct.id, req.Sources); err != nil {
			err = errors.Join(refused("%w", err), c.removeSources(ct.id))
		}
	}
	return err
}

func (c *Coordinator) attachRequest(req *wire.AttachRequest) error {
	if req.PID <= 1 {
		return &wire.Error{Code: wire.CodeBadRequest, Message: fmt.Sprintf("pid %d cannot be a sandbox", req.PID)}
	}
	if err := c.awaitBaseline(); err != nil {
		return err
	}
	p, err := proc.Open(req.PID)
	if err != nil {
		return &wire.Error{Code: wire.CodeRefused, Message: fmt.Sprintf("sandbox of container %s: %v", req.ContainerID, err)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ct := c.containers[req.ContainerID]
	if ct == nil || c.closing {
		p.Close()
		return &wire.Error{Code: wire.CodeUnknown, Message: fmt.Sprintf("container %s was not prepared in domain %s", req.ContainerID, c.spec.Domain.Hash)}
	}
	if ct.attached && ct.proc.PID == req.PID {
		p.Close()
		return nil
	}
	if err := c.attach(ct, p); err != nil {
		return err
	}
	c.log.Info("container attached", "container", ct.id, "pid", req.PID)
	return nil
}

func (c *Coordinator) release(id string) wire.ReleaseResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ct := c.containers[id]; ct != nil {
		c.log.Info("container released", "container", id)
		c.forget(ct)
	}
	if containerstate.ValidID(id) {
		lease, err := containerstate.ReadLease(containerstate.Dir(c.spec.RuntimeDir, id))
		if err == nil && lease.Domain == c.spec.Domain.Hash {
			c.removeState(id)
		}
	}
	return wire.ReleaseResponse{InUse: !c.empty() && !c.closing}
}

// addSession counts a session in; its end is the end of its connection.
func (c *Coordinator) addSession(s *session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		return &wire.Error{Code: wire.CodeClosing, Message: "coordinator is closing"}
	case c.sessions[s.ID] != nil:
		return &wire.Error{Code: wire.CodeRefused, Message: fmt.Sprintf("session %s exists already", s.ID)}
	}
	if ct := c.containers[s.ContainerID]; ct != nil && s.key.PublicKey != nil {
		if err := c.beginExec(ct, s.key); err != nil {
			return fmt.Errorf("let session %s ask for host commands: %w", s.ID, err)
		}
	}
	c.sessions[s.ID] = s
	c.used = true
	c.record(audit.Event{Kind: audit.SessionStarted, Session: s.ID, Container: s.ContainerID}, facts{"kind": s.Kind, "terminal": s.Terminal, "pid": s.PID})
	c.log.Info("session began", "session", s.ID, "kind", s.Kind, "container", s.ContainerID, "pid", s.PID)
	return nil
}

func (c *Coordinator) endSession(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[id]; s != nil {
		delete(c.sessions, id)
		if c.containers[s.ContainerID] != nil {
			c.broker.End(id)
		}
		_ = s.conn.Close() // its peer is gone already
		c.record(audit.Event{Kind: audit.SessionEnded, Session: id, Container: s.ContainerID}, facts{"kind": s.Kind, "since": s.Since.UTC()})
		c.log.Info("session ended", "session", id)
		if ct := c.containers[s.ContainerID]; ct != nil && ct.sessionEnded != nil {
			select {
			case ct.sessionEnded <- struct{}{}:
			default: // will be looked at
			}
		}
		c.poke()
	}
}

func (c *Coordinator) status() wire.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := wire.Status{
		Version: wire.Version, Domain: c.spec.Domain, PID: os.Getpid(), Started: c.started,
		ControlDir: c.spec.ControlDir, MemoryBytes: residentBytes(), Guard: c.guardStatus(), State: c.stateStatus(), Network: c.networkStatus(),
		Containers: []wire.ContainerStatus{}, Sessions: []wire.SessionStatus{}, Desks: c.broker.Desks(), Waiting: c.broker.Waiting(),
	}
	for _, ct := range c.containers {
		s := wire.ContainerStatus{ID: ct.id, State: "preparing", Since: ct.prepared, Notes: ct.notes}
		if ct.attached {
			s.State, s.PID = "attached", ct.proc.PID
		}
		st.Containers = append(st.Containers, s)
	}
	for _, s := range c.sessions {
		st.Sessions = append(st.Sessions, s.SessionStatus)
	}
	slices.SortFunc(st.Containers, func(a, b wire.ContainerStatus) int { return a.Since.Compare(b.Since) })
	slices.SortFunc(st.Sessions, func(a, b wire.SessionStatus) int { return a.Since.Compare(b.Since) })
	return st
}

// residentBytes is VmRSS of this process, 0 when /proc does not tell.
func residentBytes() uint64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident uint64
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize()) //nolint:gosec // a page size is positive
}

// rebind binds the socket's name again after it was removed.
func (c *Coordinator) rebind(old *peerListener) (*peerListener, error) {
	path := c.spec.Domain.SocketPath(c.spec.ControlDir)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is taken by somebody else", path)
	}
	l, err := listen(path)
	if err != nil {
		return nil, err
	}
	old.abandon()
	return l, nil
}
