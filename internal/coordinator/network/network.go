// Package network owns a domain's filtered network: the network namespace in its
// midst with an uplink of its own, the Network Sidecar that runs there, and the
// sandboxes' links to it. The coordinator makes one, and ends it.
//
// Nothing is mounted and nothing lies outside its directory: namespaces are held
// by descriptors, so that the kernel removes them, and all links with them, when
// the last process that holds one has ended.
package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/nsutil"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
	"github.com/lazaret-dev/lazaret/netrouter/presets"
)

// repairPause is the time before another try to start what has ended.
const repairPause = 200 * time.Millisecond

// maxBlocked bounds the refused destinations that are remembered.
const maxBlocked = 256

// Options says what a Network is for.
type Options struct {
	Dir     string                    // of its own, in the domain's runtime directory
	Hash    string                    // of the domain
	Router  string                    // lazaret-netrouter on the host
	Request wire.Network              // of the first container
	Event   func(plan.Event)          // gets every decision; nil for nobody
	Lost    func(int)                 // is told of decisions that were too many to tell; nil for nobody
	Changed func(up bool, why string) // is told when nothing passes any more, and again; nil for nobody
	Log     *slog.Logger
}

// Network is a domain's. See Start.
type Network struct {
	o  Options
	ns *os.File // the domain's namespace

	// pushing is held while the sidecar is told something; it is taken before mu.
	pushing sync.Mutex

	// mu guards the fields below.
	mu       sync.Mutex
	boxes    map[string]*box
	next     int // where the search for a free link begins
	session  []wire.NetworkChange
	side     *sidecar
	up       *uplink
	down     bool
	closed   bool
	blocked  []wire.NetworkBlocked // the newest last
	watchers sync.WaitGroup
	ctx      context.Context // ends what goes on in the background
	quit     context.CancelFunc
}

// box is one sandbox's link.
type box struct {
	plan.Sandbox
	ns   *os.File // the sandbox's namespace; nil where it is the runtime's own
	stop func()   // ends what lead has begun; nil where nothing has
}

// Start makes the namespace, and returns once the sidecar has its rules in force.
// Nothing is left where it fails.
func Start(ctx context.Context, o Options) (_ *Network, err error) {
	n := &Network{o: o, boxes: map[string]*box{}}
	n.ctx, n.quit = context.WithCancel(context.WithoutCancel(ctx))
	if err := Clean(ctx, o.Dir, o.Log); err != nil { // a killed predecessor's
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close(context.WithoutCancel(ctx)))
		}
	}()
	if n.ns, err = nsutil.New(); err != nil {
		return nil, err
	}
	if err := nsutil.Do(n.ns, prepareRouter); err != nil {
		return nil, err
	}
	var uperr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.up, uperr = startUplink(ctx, n.o, n.ns)
	}()
	n.side, err = startSidecar(ctx, n.o, n.ns, n.event)
	<-done
	if err = errors.Join(err, uperr); err != nil {
		return nil, err
	}
	if _, err := n.push(ctx); err != nil {
		return nil, err
	}
	if err := nsutil.Do(n.ns, func() error { return sysctl("netfilter/nf_conntrack_acct", "1") }); err != nil {
		o.Log.Warn("the records have no byte counts of what the sidecar does not carry itself", "error", err)
	}
	// Only now is anything passed on.
	if err := nsutil.Do(n.ns, func() error { return sysctl("ipv4/ip_forward", "1") }); err != nil {
		return nil, err
	}
	n.watchers.Go(n.watch)
	o.Log.Info("network is filtered", "mode", o.Request.Mode, "uplink", n.up.name, "uplink_pid", n.up.proc.Pid, "sidecar", n.side.proc.PID)
	return n, nil
}

// Matches reports whether a container that asks for this may share the Network: its
// lists are those that hold, or add to them only what is allowed for the time
// being, as they do once a person has put that into the profile.
func (n *Network) Matches(r wire.Network) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := n.o.Request
	if o.Mode != r.Mode || !slices.Equal(o.Deny, r.Deny) {
		return false
	}
	gone := slices.ContainsFunc(o.Allow, func(e string) bool { return !slices.Contains(r.Allow, e) })
	return !gone && !slices.ContainsFunc(r.Allow, func(e string) bool {
		return !slices.Contains(o.Allow, e) && !slices.Contains(n.session, wire.NetworkChange{Entry: e})
	})
}

// config is what the sidecar is to be told. It needs n.mu.
func (n *Network) config() (c plan.Config, err error) {
	c = plan.Config{Mode: n.o.Request.Mode, Resolver: uplinkResolver(), HostAddrs: hostAddrs()}
	c.Allow, c.Deny = slices.Clone(n.o.Request.Allow), slices.Clone(n.o.Request.Deny)
	for _, ch := range n.session {
		if ch.Deny {
			c.Deny = append(c.Deny, ch.Entry)
		} else {
			c.Allow = append(c.Allow, ch.Entry)
		}
	}
	for _, l := range []*[]string{&c.Allow, &c.Deny} {
		if *l, err = presets.Expand(*l); err != nil {
			return c, fmt.Errorf("network: %w", err)
		}
	}
	for _, b := range n.boxes {
		c.Sandboxes = append(c.Sandboxes, b.Sandbox)
	}
	slices.SortFunc(c.Sandboxes, func(a, b plan.Sandbox) int { return a.Index - b.Index })
	return c, nil
}

// hostAddrs are this machine's own IPv4 addresses, as far as they are known.
func hostAddrs() []netip.Addr {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() && !slices.Contains(out, p.Addr()) {
			out = append(out, p.Addr())
		}
	}
	return out
}

// push tells the sidecar the whole, and returns once it is in force.
func (n *Network) push(ctx context.Context) (cut int, err error) {
	n.pushing.Lock()
	defer n.pushing.Unlock()
	n.mu.Lock()
	side := n.side
	c, err := n.config()
	n.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if side == nil {
		return 0, errors.New("the network sidecar has ended and is being started again: try again")
	}
	return side.tell(ctx, c)
}

// Join gives a container a network namespace with a link to the sidecar. What comes
// in at the engine's is led there, or must not come.
func (n *Network) Join(ctx context.Context, id string, r wire.Network) (wire.NetworkPlan, error) {
	var engine *os.File
	if r.Engine != "" {
		var err error
		if engine, err = os.Open(r.Engine); err != nil {
			return wire.NetworkPlan{}, fmt.Errorf("the engine's network namespace: %w", err)
		}
		defer func() { _ = engine.Close() }() // what needs it has it
		if !r.Inbound {
			if some, err := published(engine); err != nil {
				return wire.NetworkPlan{}, fmt.Errorf("look for published ports: %w", err)
			} else if some {
				return wire.NetworkPlan{}, errors.New("published ports refused: the profile lets nobody connect to its sandboxes: set inbound = true in its network, or leave --publish out")
			}
		}
	}
	ns, err := nsutil.New()
	if err != nil {
		return wire.NetworkPlan{}, err
	}
	b, err := n.link(ctx, id, r.Inbound && engine != nil, ns, ns)
	if err != nil {
		return wire.NetworkPlan{}, errors.Join(err, ns.Close())
	}
	if b.Inbound {
		if err := n.lead(b, engine); err != nil { //nolint:contextcheck // what it begins lives as long as the network
			n.Leave(id)
			return wire.NetworkPlan{}, err
		}
	}
	return wire.NetworkPlan{Path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()), Resolv: n.resolvPath(b)}, nil
}

// Reserve is Join for a container whose namespace does not exist yet: Connect
// follows.
func (n *Network) Reserve(id string) (wire.NetworkPlan, error) {
	b, err := n.reserve(id)
	if err == nil {
		if err = n.writeResolv(b); err != nil {
			n.Leave(id)
		}
	}
	if err != nil {
		return wire.NetworkPlan{}, err
	}
	return wire.NetworkPlan{Resolv: n.resolvPath(b)}, nil
}

// Connect replaces the network that an engine has brought into the namespace of a
// reserved container's sandbox. Where there is none but the loopback, it stays so.
func (n *Network) Connect(ctx context.Context, id string, pid int) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return fmt.Errorf("network of container %s: %w", id, err)
	}
	defer func() { _ = ns.Close() }() // the sandbox holds it
	n.mu.Lock()
	b := n.boxes[id]
	n.mu.Unlock()
	if b == nil {
		return fmt.Errorf("container %s has no place in the network", id)
	}
	some := false
	if err := nsutil.Do(ns, func() error { some, err = removeLinks(); return err }); err != nil {
		return fmt.Errorf("replace the engine's network of container %s: %w", id, err)
	}
	if !some {
		n.Leave(id)
		return nil
	}
	if err := n.plug(ctx, b, ns); err != nil {
		return err
	}
	return nsutil.Do(ns, func() error { return onlyLinks("lo", plan.Guest) })
}

// link makes a container's link into ns.
func (n *Network) link(ctx context.Context, id string, inbound bool, ns, hold *os.File) (*box, error) {
	b, err := n.reserve(id)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	b.ns, b.Inbound = hold, inbound
	n.mu.Unlock()
	if err = n.writeResolv(b); err == nil {
		err = n.plug(ctx, b, ns)
	}
	if err != nil {
		b.ns = nil // the caller's to close
		n.Leave(id)
		return nil, err
	}
	return b, nil
}

// reserve finds a free link: not the one that was in use last, whose flows the
// kernel may still remember.
func (n *Network) reserve(id string) (*box, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errors.New("the network is being removed")
	}
	if n.boxes[id] != nil {
		return nil, fmt.Errorf("container %s has a place in the network already", id)
	}
	used := map[int]bool{}
	for _, b := range n.boxes {
		used[b.Index] = true
	}
	for range links {
		i := n.next % links
		n.next = i + 1
		if used[i] {
			continue
		}
		gateway, addr := addresses(i)
		b := &box{Sandbox: plan.Sandbox{Index: i, Name: id, Gateway: gateway, Addr: addr}}
		n.boxes[id] = b
		return b, nil
	}
	return nil, fmt.Errorf("all %d places in the network are taken", links)
}

// plug makes the pair of links, and sets it up once the sidecar knows of it.
func (n *Network) plug(ctx context.Context, b *box, ns *os.File) error {
	if err := nsutil.Do(n.ns, func() error { return makePair(b.Sandbox, ns) }); err != nil {
		return fmt.Errorf("link to the network sidecar: %w", err)
	}
	if err := nsutil.Do(ns, func() error { return prepareGuest(b.Sandbox) }); err != nil {
		return fmt.Errorf("link to the network sidecar: %w", err)
	}
	if _, err := n.push(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down || n.closed {
		return nil // set up with all others
	}
	return nsutil.Do(n.ns, func() error { return setLinks(true, b.Veth()) })
}

func (n *Network) resolvPath(b *box) string {
	return filepath.Join(n.o.Dir, "resolv", fmt.Sprint(b.Index))
}

func (n *Network) writeResolv(b *box) error {
	path := n.resolvPath(b)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644) //nolint:gosec // every user of the sandbox reads it
	if err != nil {
		return fmt.Errorf("resolv.conf: %w", err)
	}
	_, err = fmt.Fprintf(f, "# Lazaret: the sandbox's network is filtered (lazaret net).\nnameserver %s\n", b.Gateway)
	return errors.Join(err, f.Close())
}

// Leave takes a container's link away; unknown ones are no error. The kernel does
// that in its own time.
func (n *Network) Leave(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.boxes[id]
	if b == nil || n.closed {
		return
	}
	delete(n.boxes, id)
	if b.stop != nil {
		b.stop()
	}
	if err := os.Remove(n.resolvPath(b)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.o.Log.Error("remove a sandbox's resolv.conf", "container", id, "error", err)
	}
	n.watchers.Go(func() { n.unplug(b) })
}

// unplug takes a link away, and tells the sidecar.
func (n *Network) unplug(b *box) {
	if err := nsutil.Do(n.ns, func() error { return removeLink(b.Veth()) }); err != nil {
		n.o.Log.Error("remove a sandbox's link", "container", b.Name, "error", err)
	}
	if b.ns != nil {
		_ = b.ns.Close() // only held
	}
	if _, err := n.push(n.ctx); err != nil {
		n.o.Log.Debug("tell the sidecar of a link that is gone", "error", err) // with the next
	}
}

// Change adds to and removes from the lists, until the Network ends, and returns
// how many flows that has ended.
func (n *Network) Change(ctx context.Context, add, remove []wire.NetworkChange) (cut int, err error) {
	n.mu.Lock()
	old := n.session
	session := slices.DeleteFunc(slices.Clone(old), func(c wire.NetworkChange) bool {
		// What is added last counts: allowing takes an earlier denial back.
		return slices.Contains(remove, c) || slices.ContainsFunc(add, func(a wire.NetworkChange) bool { return a.Entry == c.Entry })
	})
	n.session = append(session, add...)
	c, err := n.config()
	if len(n.session) > 1024 {
		err = errors.New("more than 1024 changes: put them into the profile")
	}
	if err == nil {
		_, err = plan.Compile(c)
	}
	if err != nil {
		n.session = old
	}
	n.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if cut, err = n.push(ctx); err != nil {
		n.mu.Lock()
		n.session = old
		n.mu.Unlock()
	}
	return cut, err
}

// Status describes the Network.
func (n *Network) Status() *wire.NetworkStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	st := &wire.NetworkStatus{
		State: wire.NetworkUp, Mode: n.o.Request.Mode, Allow: n.o.Request.Allow, Deny: n.o.Request.Deny,
		Session: slices.Clone(n.session), Blocked: slices.Clone(n.blocked),
	}
	slices.Reverse(st.Blocked)
	if n.down {
		st.State = wire.NetworkDown
	}
	if n.side != nil {
		st.Sidecar = n.side.proc.PID
	}
	if n.up != nil {
		st.Uplink, st.UplinkP = n.up.name, n.up.proc.Pid
	}
	return st
}

// event remembers what was refused, and hands everything on.
func (n *Network) event(e plan.Event) {
	if n.o.Event != nil {
		n.o.Event(e)
	}
	if e.Verdict == plan.Allowed || e.Reason == plan.Ended {
		return
	}
	b := wire.NetworkBlocked{Name: e.Name, Port: e.Port, Proto: e.Proto, Count: 1, Last: e.Time, Would: e.Verdict == plan.WouldBlock}
	if e.Addr.IsValid() {
		b.Addr = e.Addr.String()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, o := range n.blocked {
		if o.Name == b.Name && o.Addr == b.Addr && o.Port == b.Port && o.Proto == b.Proto && o.Would == b.Would {
			b.Count += o.Count
			n.blocked = append(slices.Delete(n.blocked, i, i+1), b)
			return
		}
	}
	n.blocked = append(n.blocked, b)
	n.blocked = n.blocked[max(0, len(n.blocked)-maxBlocked):]
}

// watch closes all links as soon as sidecar or uplink has ended, starts that
// again, and opens them.
func (n *Network) watch() {
	for {
		n.mu.Lock()
		side, up := n.side, n.up
		n.mu.Unlock()
		select {
		case <-n.ctx.Done():
			return
		case <-side.done:
		case <-up.done:
		}
		n.mu.Lock()
		if n.closed {
			n.mu.Unlock()
			return
		}
		n.down = true
		n.mu.Unlock()
		if n.o.Changed != nil {
			n.o.Changed(false, fmt.Sprintf("sidecar ended: %t, uplink ended: %t", side.ended(), up.ended()))
		}
		if err := nsutil.Do(n.ns, func() error { return setAll(false) }); err != nil {
			n.o.Log.Error("close the sandboxes' links", "error", err)
		}
		n.o.Log.Error("a part of the network has ended: nothing passes until it is there again", "sidecar_ended", side.ended(), "uplink_ended", up.ended())
		for !n.repair() {
			select {
			case <-n.ctx.Done():
				return
			case <-time.After(repairPause):
			}
		}
		n.o.Log.Info("the network is there again")
		if n.o.Changed != nil {
			n.o.Changed(true, "")
		}
	}
}

// repair starts what has ended, and reports whether all is well.
func (n *Network) repair() bool {
	ctx, cancel := context.WithTimeout(n.ctx, startTime)
	defer cancel()
	err := n.restart(ctx)
	if err == nil {
		_, err = n.push(ctx)
	}
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.side.ended() || n.up.ended() {
			return false
		}
		if err = nsutil.Do(n.ns, func() error { return setAll(true) }); err == nil {
			n.down = false
			return true
		}
	}
	n.o.Log.Error("start the network again", "error", err)
	return false
}

func (n *Network) restart(ctx context.Context) error {
	n.mu.Lock()
	side, up := n.side, n.up
	n.mu.Unlock()
	if side.ended() {
		if err := side.remove(ctx); err != nil {
			return err
		}
		s, err := startSidecar(ctx, n.o, n.ns, n.event)
		if err != nil {
			return err
		}
		n.mu.Lock()
		n.side = s
		n.mu.Unlock()
	}
	if up.ended() {
		u, err := startUplink(ctx, n.o, n.ns)
		if err != nil {
			return err
		}
		n.mu.Lock()
		n.up = u
		n.mu.Unlock()
	}
	return nil
}

// Close ends everything. Sandboxes that live on have no network any more.
func (n *Network) Close(ctx context.Context) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	n.quit()
	boxes := n.boxes
	n.boxes = map[string]*box{}
	n.mu.Unlock()
	n.watchers.Wait()
	var errs []error
	if n.ns != nil {
		errs = append(errs, nsutil.Do(n.ns, func() error { return setAll(false) }))
	}
	if n.side != nil {
		errs = append(errs, n.side.stop(ctx))
	}
	if n.up != nil {
		n.up.stop()
	}
	for _, b := range boxes {
		if b.ns != nil {
			errs = append(errs, b.ns.Close())
		}
	}
	if n.ns != nil {
		errs = append(errs, n.ns.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(n.o.Dir))...)
}

// remains is what Clean needs to know of a killed coordinator's network.
type remains struct {
	Sidecar   string `json:"sidecar"` // the program that runs it
	ID        string `json:"id"`
	Uplink    int    `json:"uplink,omitempty"` // pid
	StartTime uint64 `json:"start_time,omitempty"`
}

// Clean removes what a killed coordinator's network has left in its directory, and
// ends its uplink.
func Clean(ctx context.Context, dir string, log *slog.Logger) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a killed coordinator's network: %w", err)
	}
	var errs []error
	for _, e := range entries {
		var r remains
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if r.Uplink != 0 && endUplink(r.Uplink, r.StartTime) {
			log.Info("ended a killed coordinator's uplink", "pid", r.Uplink)
		}
		if r.ID != "" {
			errs = append(errs, deleteSidecar(ctx, r.Sidecar, dir, r.ID))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove a killed coordinator's network: %w", err)
	}
	return os.RemoveAll(dir)
}
