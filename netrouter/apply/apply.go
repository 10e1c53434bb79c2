// Package apply owns the kernel's side of the Network Sidecar: one nftables table
// that is always replaced as a whole, the elements that the forwarder puts into
// its sets, and the end of flows that are no longer allowed. It must run in the
// domain's network namespace.
package apply

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

// Sets that names fill.
const (
	setHosts  = "hosts"  // addresses, every port
	setNames  = "names"  // addresses and ports
	setDenied = "denied" // exceptions from hosts
)

// edge is how near to its end an element is neither there nor gone for sure.
const edge = 2 * time.Second

// ErrFull means that names have come to more addresses than the kernel is to hold.
var ErrFull = errors.New("too many addresses are allowed at one time")

// Element is what a name has led to.
type Element struct {
	Addr netip.Addr
	Port uint16 // 0 for every port
	Deny bool   // an exception from every port
	TTL  time.Duration
}

type key struct {
	addr netip.Addr
	port uint16
	deny bool
}

func (e Element) key() key { return key{e.Addr, e.Port, e.Deny} }

func (e Element) set() string {
	switch {
	case e.Deny:
		return setDenied
	case e.Port != 0:
		return setNames
	}
	return setHosts
}

func (e Element) element() nftables.SetElement {
	k := key4(e.Addr)
	if e.Port != 0 {
		k = keyPort(e.Addr, e.Port)
	}
	return nftables.SetElement{Key: k, Timeout: e.TTL}
}

// Table is the kernel's table. The zero value is not ready; see New.
type Table struct {
	now  func() time.Time
	asks chan ask

	// mu guards the fields below, and holds each commit together.
	mu   sync.Mutex
	live map[key]time.Time // until when an element is in the kernel
	sets map[string]*nftables.Set
}

type ask struct {
	elements []Element
	done     chan error
}

// New makes a Table; nothing is in the kernel before Set. Run must run for Allow
// to answer.
func New() *Table {
	return &Table{now: time.Now, asks: make(chan ask), live: map[key]time.Time{}}
}

// Set makes the kernel's table what the policy says, in one batch. Elements that
// are there stay for their time where keep says so.
func (t *Table) Set(p *plan.Policy, boxes []plan.Sandbox, resolver netip.Addr, keep func(Element) bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	var live []Element
	kept := map[key]time.Time{}
	for k, until := range t.live {
		e := Element{Addr: k.addr, Port: k.port, Deny: k.deny, TTL: until.Sub(now)}
		if e.TTL > edge && keep(e) {
			live = append(live, e)
			kept[k] = until
		}
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	r := ruleset{c: c}
	if err := r.write(p, boxes, resolver, live); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: replace the table: %w", err)
	}
	t.sets, t.live = r.names, kept
	return nil
}

// Allow returns once the kernel has all elements for their time at least.
func (t *Table) Allow(ctx context.Context, elements []Element) error {
	if len(elements) == 0 {
		return nil
	}
	a := ask{elements, make(chan error, 1)}
	select {
	case t.asks <- a:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run commits what Allow asks for until ctx ends; what is asked for while a commit
// runs, of 10 ms or so, comes together in the next.
func (t *Table) Run(ctx context.Context) {
	for {
		var batch []ask
		select {
		case a := <-t.asks:
			batch = append(batch, a)
		case <-ctx.Done():
			return
		}
		for more := true; more; {
			select {
			case a := <-t.asks:
				batch = append(batch, a)
			default:
				more = false
			}
		}
		var all []Element
		for _, a := range batch {
			all = append(all, a.elements...)
		}
		err := t.commit(all)
		for _, a := range batch {
			a.done <- err
		}
	}
}

// commit puts elements into the kernel, those anew whose time there would be too
// short: the kernel keeps the first time-out that it was told.
func (t *Table) commit(all []Element) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sets == nil {
		return errors.New("nftables: there is no table yet")
	}
	now := t.now()
	want := map[key]time.Duration{}
	for _, e := range all {
		if until, there := t.live[e.key()]; !there || until.Sub(now) < e.TTL {
			want[e.key()] = max(want[e.key()], e.TTL)
		}
	}
	if len(want) == 0 {
		return nil
	}
	for k, until := range t.live {
		if until.Before(now.Add(-edge)) {
			delete(t.live, k)
		}
	}
	if len(t.live)+len(want) > setSize {
		return ErrFull
	}
	// One that ends right now is waited for.
	for k := range want {
		if until, there := t.live[k]; there && until.Sub(now).Abs() <= edge {
			time.Sleep(max(0, until.Add(edge/4).Sub(t.now())))
			delete(t.live, k)
		}
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	// A little longer than promised, for the way of the answer.
	const grace = time.Minute
	for k, ttl := range want {
		e := Element{Addr: k.addr, Port: k.port, Deny: k.deny, TTL: ttl + grace}
		set, one := t.sets[e.set()], []nftables.SetElement{e.element()}
		if _, there := t.live[k]; there {
			if err := c.SetDeleteElements(set, one); err != nil {
				return fmt.Errorf("nftables: %w", err)
			}
		}
		if err := c.SetAddElements(set, one); err != nil {
			return fmt.Errorf("nftables: %w", err)
		}
	}
	now = t.now() // before the kernel's own
	if err := c.Flush(); err != nil {
		for k := range want {
			delete(t.live, k)
		}
		return fmt.Errorf("nftables: add addresses: %w", err)
	}
	for k, ttl := range want {
		t.live[k] = now.Add(ttl + grace)
	}
	return nil
}

// Cut ends the flows of sandboxes that passed without a service of ours and are
// no longer allowed, and returns how many.
func Cut(allowed func(netip.AddrPort) bool) (int, error) {
	n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, revoked{allowed})
	if err != nil {
		return int(n), fmt.Errorf("end revoked flows: %w", err)
	}
	return int(n), nil
}

type revoked struct{ allowed func(netip.AddrPort) bool }

// MatchConntrackFlow picks the flows to end.
func (r revoked) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	src, ok := netip.AddrFromSlice(f.Forward.SrcIP)
	dst, ok2 := netip.AddrFromSlice(f.Forward.DstIP)
	from, ok3 := netip.AddrFromSlice(f.Reverse.SrcIP)
	if !ok || !ok2 || !ok3 {
		return false
	}
	src, dst, from = src.Unmap(), dst.Unmap(), from.Unmap()
	return passed(src, dst, from) && !r.allowed(netip.AddrPortFrom(dst, f.Forward.DstPort))
}
