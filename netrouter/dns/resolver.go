// Package dns owns the sidecar's forwarder: it asks for no name that the policy
// does not allow, answers those at once by itself, and has the kernel know of
// every address before it tells it.
package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/lazaret-dev/lazaret/netrouter/apply"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

const (
	// minTTL and maxTTL bound how long an answer holds: shorter would cost a commit
	// each time, longer would keep addresses that are another's by then.
	minTTL = 10 * time.Second
	maxTTL = 5 * time.Minute
	// maxChain bounds a chain of aliases, maxAddrs the addresses of one name.
	maxChain = 16
	maxAddrs = 32
	// maxCache bounds the names that are remembered.
	maxCache = 1 << 14
	// askTime bounds one question to the upstream resolver.
	askTime = 4 * time.Second
)

// Errors of Addresses.
var (
	ErrBlocked  = errors.New("not allowed") // nothing was asked
	ErrInward   = errors.New("leads to no address that a name may lead to")
	ErrNotFound = errors.New("no such name") // the upstream resolver says so
	ErrNoData   = errors.New("the name has no IPv4 address")
	ErrChain    = errors.New("its chain of aliases is broken, too long, or leads to a denied name")
)

// Table is the kernel's.
type Table interface {
	Allow(ctx context.Context, elements []apply.Element) error
}

// Resolver resolves allowed names. See New.
type Resolver struct {
	table Table
	log   func(plan.Event)
	now   func() time.Time

	// switching is held to read while an answer is being made true, to write while
	// the policy changes. It is taken before mu.
	switching sync.RWMutex
	policy    *plan.Policy
	upstream  string

	// mu guards the fields below.
	mu     sync.Mutex
	cache  map[string]*entry
	byAddr map[netip.Addr]map[string]time.Time // which names led to an address, and when
}

// entry is what is known of one name. done is closed once it is.
type entry struct {
	done  chan struct{}
	addrs []netip.Addr
	until time.Time
	err   error
}

// New makes a Resolver, which refuses everything until Switch.
func New(table Table, log func(plan.Event)) *Resolver {
	return &Resolver{table: table, log: log, now: time.Now, cache: map[string]*entry{}, byAddr: map[netip.Addr]map[string]time.Time{}}
}

// Switch changes the policy while change makes the kernel's side true, with no
// answer in between. Without success nothing has changed here.
func (r *Resolver) Switch(p *plan.Policy, resolver netip.Addr, change func(keep func(apply.Element) bool) error) error {
	r.switching.Lock()
	defer r.switching.Unlock()
	if err := change(func(e apply.Element) bool { return r.keep(p, e) }); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.policy, r.upstream = p, netip.AddrPortFrom(resolver, 53).String()
	r.cache = map[string]*entry{}
	return nil
}

// keep reports whether an element still follows from a name of the policy.
func (r *Resolver) keep(p *plan.Policy, e apply.Element) bool {
	for _, name := range r.Names(e.Addr) {
		ports := p.Lookup(name)
		switch {
		case e.Deny:
			if ports.All() && slices.Contains(ports.Denied(), e.Port) {
				return true
			}
		case e.Port == 0 && ports.All(), e.Port != 0 && !ports.All() && ports.Has(e.Port):
			return true
		}
	}
	return false
}

// Policy is the one that holds; nil before the first.
func (r *Resolver) Policy() *plan.Policy {
	r.switching.RLock()
	defer r.switching.RUnlock()
	return r.policy
}

// Names are those that have led to an address, sorted.
func (r *Resolver) Names(a netip.Addr) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for name := range r.byAddr[a] {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Reachable reports whether the policy allows a flow to an address, by itself or
// by a name that has led to it.
func (r *Resolver) Reachable(p *plan.Policy, to netip.AddrPort) bool {
	if p.ByAddr(to) {
		return true
	}
	return p.Addr(to.Addr(), to.Port()) && (p.Learn || slices.ContainsFunc(r.Names(to.Addr()), func(name string) bool {
		return p.Lookup(name).Has(to.Port())
	}))
}

// Addresses are those of a name, as plan.Name gives it, that may be told to a
// sandbox, and for how long. The kernel lets the sandboxes reach them then.
func (r *Resolver) Addresses(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	e, err := r.lookup(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	if e.err != nil {
		return nil, minTTL, e.err
	}
	// The policy may be another one since.
	r.switching.RLock()
	defer r.switching.RUnlock()
	p := r.policy
	ports := p.Lookup(name)
	if !ports.Any() {
		return nil, 0, ErrBlocked
	}
	ttl := max(e.until.Sub(r.now()), time.Second)
	var addrs []netip.Addr
	var elements []apply.Element
	for _, a := range e.addrs {
		if !p.Answer(a) {
			continue
		}
		addrs = append(addrs, a)
		elements = append(elements, wanted(ports, a, ttl)...)
	}
	if len(addrs) == 0 {
		return nil, minTTL, ErrInward
	}
	r.remember(name, addrs)
	if err := r.table.Allow(ctx, elements); err != nil {
		return nil, 0, err
	}
	return addrs, ttl, nil
}

// wanted are the elements that a name's ports need. The proxy takes 80 and 443.
func wanted(ports plan.Ports, a netip.Addr, ttl time.Duration) []apply.Element {
	var out []apply.Element
	if ports.All() {
		for _, port := range ports.Denied() {
			out = append(out, apply.Element{Addr: a, Port: port, Deny: true, TTL: ttl})
		}
		return append(out, apply.Element{Addr: a, TTL: ttl})
	}
	for _, port := range ports.Set() {
		if port != 80 && port != 443 {
			out = append(out, apply.Element{Addr: a, Port: port, TTL: ttl})
		}
	}
	return out
}

// remember keeps which name led where, for the log and for revocation.
func (r *Resolver) remember(name string, addrs []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, a := range addrs {
		if r.byAddr[a] == nil {
			if len(r.byAddr) >= 4*maxCache {
				r.forgetOldest()
			}
			r.byAddr[a] = map[string]time.Time{}
		}
		if len(r.byAddr[a]) < 64 || !r.byAddr[a][name].IsZero() {
			r.byAddr[a][name] = now
		}
	}
}

// forgetOldest drops a quarter of what byAddr holds, at random but for the last
// minutes. It needs r.mu.
func (r *Resolver) forgetOldest() {
	goal := len(r.byAddr) * 3 / 4
	for _, age := range []time.Duration{2 * maxTTL, 0} {
		for a, names := range r.byAddr {
			if len(r.byAddr) <= goal {
				return
			}
			if !slices.ContainsFunc(values(names), func(t time.Time) bool { return r.now().Sub(t) < age }) {
				delete(r.byAddr, a)
			}
		}
	}
}

func values(m map[string]time.Time) []time.Time {
	var out []time.Time
	for _, t := range m {
		out = append(out, t)
	}
	return out
}

// lookup asks upstream for a name that the policy allows, once for all who wait.
func (r *Resolver) lookup(ctx context.Context, name string) (*entry, error) {
	r.switching.RLock()
	p, upstream := r.policy, r.upstream
	r.switching.RUnlock()
	if p == nil || !p.Lookup(name).Any() {
		return nil, ErrBlocked
	}
	r.mu.Lock()
	e := r.cache[name]
	if e != nil {
		select {
		case <-e.done:
			if !r.now().Before(e.until) {
				e = nil
			}
		default:
		}
	}
	if e == nil {
		e = &entry{done: make(chan struct{})}
		r.makeRoom()
		r.cache[name] = e
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*askTime)
			defer cancel()
			addrs, ttl, err := chase(ctx, name, p.Denied, exchanger(upstream))
			e.addrs, e.err = addrs, err
			e.until = r.now().Add(min(max(ttl, minTTL), maxTTL))
			if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrNoData) {
				e.until = r.now().Add(time.Second) // it may do better
			}
			close(e.done)
		}()
	}
	r.mu.Unlock()
	select {
	case <-e.done:
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// makeRoom needs r.mu.
func (r *Resolver) makeRoom() {
	if len(r.cache) < maxCache {
		return
	}
	now := r.now()
	for name, e := range r.cache {
		select {
		case <-e.done:
			if !now.Before(e.until) || len(r.cache) >= maxCache {
				delete(r.cache, name)
			}
		default:
		}
	}
}

// exchange asks one question.
type exchange func(ctx context.Context, name string) (*dns.Msg, error)

func exchanger(upstream string) exchange {
	return func(ctx context.Context, name string) (m *dns.Msg, err error) {
		// An uplink may carry no TCP to its resolver: a larger answer comes first.
		for _, try := range []struct {
			network string
			size    uint16
		}{{"udp", 1232}, {"udp", 4096}, {"tcp", 4096}} {
			q := new(dns.Msg)
			q.SetQuestion(dns.Fqdn(name), dns.TypeA)
			q.SetEdns0(try.size, false)
			c := dns.Client{Net: try.network, Timeout: askTime / 2}
			if m, _, err = c.ExchangeContext(ctx, q, upstream); err == nil && !m.Truncated {
				return m, nil
			}
			if ctx.Err() != nil {
				break
			}
		}
		if err == nil {
			err = errors.New("its answer is cut short")
		}
		return nil, err
	}
}

// chase follows a name's aliases to its addresses, asking once more where an
// answer ends before them.
func chase(ctx context.Context, name string, denied func(string) bool, ask exchange) ([]netip.Addr, time.Duration, error) {
	ttl := maxTTL
	seen := map[string]bool{}
	at := name
	for range maxChain {
		m, err := ask(ctx, at)
		if err != nil {
			return nil, 0, fmt.Errorf("ask the upstream resolver: %w", err)
		}
		if !m.Response || len(m.Question) != 1 || !strings.EqualFold(m.Question[0].Name, dns.Fqdn(at)) || m.Question[0].Qtype != dns.TypeA {
			return nil, 0, errors.New("the upstream resolver answers another question")
		}
		if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
			return nil, 0, fmt.Errorf("the upstream resolver says %s", dns.RcodeToString[m.Rcode])
		}
		moved := false
		for {
			addrs, target, least := step(m.Answer, at)
			ttl = min(ttl, least)
			if len(addrs) > 0 {
				return addrs[:min(len(addrs), maxAddrs)], ttl, nil
			}
			if target == "" {
				break
			}
			if seen[target] || len(seen) >= maxChain || target == name || denied(target) {
				return nil, 0, ErrChain
			}
			seen[target], at, moved = true, target, true
		}
		switch {
		case m.Rcode == dns.RcodeNameError:
			return nil, ttl, ErrNotFound
		case !moved:
			return nil, ttl, ErrNoData
		}
	}
	return nil, 0, ErrChain
}

// step is what an answer says of one name: its addresses, or the name that it is
// an alias of.
func step(answer []dns.RR, name string) (addrs []netip.Addr, target string, ttl time.Duration) {
	ttl = maxTTL
	for _, rr := range answer {
		h := rr.Header()
		if !strings.EqualFold(h.Name, dns.Fqdn(name)) || h.Class != dns.ClassINET {
			continue
		}
		switch rr := rr.(type) {
		case *dns.A:
			if a, ok := netip.AddrFromSlice(rr.A); ok && !slices.Contains(addrs, a.Unmap()) {
				addrs = append(addrs, a.Unmap())
			}
		case *dns.CNAME:
			n := strings.ToLower(strings.TrimSuffix(rr.Target, "."))
			if target != "" && target != n || n == "" {
				return nil, "", ttl // two aliases are none
			}
			target = n
		default:
			continue
		}
		ttl = min(ttl, time.Duration(h.Ttl)*time.Second)
	}
	return addrs, target, ttl
}

// Listed reports whether the lists allow a flow, whatever the mode.
func (r *Resolver) Listed(p *plan.Policy, to netip.AddrPort) bool {
	return p.ByAddr(to) || slices.ContainsFunc(r.Names(to.Addr()), func(name string) bool { return p.Lookup(name).Listed(to.Port()) })
}
