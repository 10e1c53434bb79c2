// Package plan owns what the Network Sidecar is told, and what follows from it:
// which names and addresses the sandboxes of a domain may reach. It is pure: no
// socket, no clock, no file.
package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/netrule"
)

// Modes of a Config.
const (
	Filtered = "filtered" // only what the lists allow passes
	Learn    = "learn"    // everything but what is never reachable passes, and is logged as what would not
)

// Names of the sidecar's world that both of its sides know.
const (
	Uplink     = "up0"   // the interface to the outside
	VethPrefix = "lz"    // those to the sandboxes are called lz0, lz1 …
	Guest      = "eth0"  // the sandbox's end
	MTU        = 65520   // of both ends: gVisor is several times slower with small packets
	MaxRules   = 1 << 14 // in one list, presets expanded
)

// Range holds every address that Lazaret gives out: the uplink's network and the
// sandboxes'. It is set aside for benchmarks (RFC 2544), so nobody's network has it.
func Range() netip.Prefix { return netip.MustParsePrefix("198.18.0.0/15") }

// Config is what the coordinator tells the sidecar. It is always the whole: the
// sidecar makes the kernel as this says, whatever was there before.
type Config struct {
	Mode      string       `json:"mode"`
	Allow     []string     `json:"allow"` // entries for netrule.Parse, without presets
	Deny      []string     `json:"deny"`  // win over allow
	Sandboxes []Sandbox    `json:"sandboxes"`
	Resolver  netip.Addr   `json:"resolver"`   // whom the forwarder asks, by the uplink
	HostAddrs []netip.Addr `json:"host_addrs"` // the host's own, never reached by name
}

// Sandbox is one sandbox's link to the sidecar.
type Sandbox struct {
	Index   int        `json:"index"`
	Name    string     `json:"name"` // the container's id, for the log
	Gateway netip.Addr `json:"gateway"`
	Addr    netip.Addr `json:"addr"`
	Inbound bool       `json:"inbound,omitempty"` // connections from outside may reach it
}

// Veth is the name of the sidecar's end of the link.
func (s Sandbox) Veth() string { return fmt.Sprintf("%s%d", VethPrefix, s.Index) }

// Policy is what a Config's lists come to.
type Policy struct {
	Learn bool
	// Nets and Endpoints are what may be reached by address, DeniedNets and
	// DeniedEndpoints what may not. Sorted, each once.
	Nets, DeniedNets           []netip.Prefix
	Endpoints, DeniedEndpoints []netip.AddrPort
	HostAddrs                  []netip.Addr

	allow, deny names
}

// names are rules for names: by name the ports, nil for all.
type names struct{ exact, below map[string]ports }

type ports struct {
	all bool
	set []uint16
}

func (p ports) has(port uint16) bool { return p.all || slices.Contains(p.set, port) }

func (p ports) with(port uint16) ports {
	if port == 0 {
		p.all = true
	} else if !slices.Contains(p.set, port) {
		p.set = append(slices.Clone(p.set), port)
		slices.Sort(p.set)
	}
	return p
}

func (p ports) union(o ports) ports {
	p.all = p.all || o.all
	for _, port := range o.set {
		p = p.with(port)
	}
	return p
}

// Compile reads a Config's lists, or tells what is wrong with it.
func Compile(c Config) (*Policy, error) {
	p := &Policy{Learn: c.Mode == Learn, HostAddrs: c.HostAddrs}
	if c.Mode != Filtered && c.Mode != Learn {
		return nil, fmt.Errorf("network mode %q is not the sidecar's: filtered or learn", c.Mode)
	}
	if !c.Resolver.Is4() {
		return nil, fmt.Errorf("resolver %s is not an IPv4 address", c.Resolver)
	}
	if err := checkSandboxes(c.Sandboxes); err != nil {
		return nil, err
	}
	for _, l := range []struct {
		what      string
		entries   []string
		names     *names
		nets      *[]netip.Prefix
		endpoints *[]netip.AddrPort
	}{
		{"allow", c.Allow, &p.allow, &p.Nets, &p.Endpoints},
		{"deny", c.Deny, &p.deny, &p.DeniedNets, &p.DeniedEndpoints},
	} {
		rules, err := parse(l.entries)
		if err != nil {
			return nil, fmt.Errorf("network %s: %w", l.what, err)
		}
		l.names.exact, l.names.below = map[string]ports{}, map[string]ports{}
		for _, r := range rules {
			switch {
			case r.Host != "" && r.Wildcard:
				l.names.below[r.Host] = l.names.below[r.Host].with(r.Port)
			case r.Host != "":
				l.names.exact[r.Host] = l.names.exact[r.Host].with(r.Port)
			case !r.Prefix.Addr().Is4():
				// IPv6 has no way out at all: to deny it is kept, to allow it cannot be.
				if l.what == "allow" {
					return nil, fmt.Errorf("network allow: %s: IPv6 addresses are not reachable in a filtered network: name the host, or its IPv4 address", r)
				}
			case r.Port != 0:
				*l.endpoints = append(*l.endpoints, netip.AddrPortFrom(r.Prefix.Addr(), r.Port))
			default:
				*l.nets = append(*l.nets, r.Prefix)
			}
		}
		slices.SortFunc(*l.endpoints, netip.AddrPort.Compare)
		*l.endpoints = slices.Compact(*l.endpoints)
		*l.nets = merge(*l.nets)
	}
	return p, nil
}

func checkSandboxes(all []Sandbox) error {
	var errs []error
	seen := map[any]bool{}
	for _, s := range all {
		for _, key := range []any{s.Index, s.Addr, s.Gateway} {
			if seen[key] {
				errs = append(errs, fmt.Errorf("two sandboxes have %v", key))
			}
			seen[key] = true
		}
		if s.Index < 0 || !Range().Contains(s.Addr) || !Range().Contains(s.Gateway) {
			errs = append(errs, fmt.Errorf("sandbox %d with address %s at %s is not one of ours", s.Index, s.Addr, s.Gateway))
		}
	}
	return errors.Join(errs...)
}

// parse reads entries.
func parse(entries []string) ([]netrule.Rule, error) {
	if len(entries) > MaxRules {
		return nil, fmt.Errorf("%d entries are more than %d", len(entries), MaxRules)
	}
	out := make([]netrule.Rule, 0, len(entries))
	for _, e := range entries {
		r, err := netrule.Parse(e)
		if err == nil && r.Preset != "" {
			err = fmt.Errorf("%s is a name for entries, not one", r.Preset)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// merge sorts prefixes and drops those that another one holds, as the kernel's
// sets of ranges take no overlaps.
func merge(all []netip.Prefix) []netip.Prefix {
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var out []netip.Prefix
	for _, p := range all {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// Name is a DNS name as rules spell it: lower case, without the last dot. ok is
// false for what can be no host's name, which nothing allows.
func Name(s string) (name string, ok bool) {
	r, err := netrule.Parse(strings.TrimSuffix(strings.ToLower(s), "."))
	return r.Host, err == nil && r.Host != "" && !r.Wildcard && r.Port == 0
}

// find are the ports that the rules give a name.
func (n names) find(name string) ports {
	p := n.exact[name]
	for rest := name; ; {
		_, up, ok := strings.Cut(rest, ".")
		if !ok {
			return p
		}
		p = p.union(n.below[up])
		rest = up
	}
}

// Ports is what of a name may be reached.
type Ports struct {
	allow, deny ports
	learn       bool
}

// Lookup tells what of a name, as Name gives it, may be reached.
func (p *Policy) Lookup(name string) Ports {
	return Ports{p.allow.find(name), p.deny.find(name), p.Learn}
}

// Any reports whether anything of the name may be reached: whether it may be
// asked for at all.
func (p Ports) Any() bool {
	if p.deny.all {
		return false
	}
	return p.learn || p.allow.all || slices.ContainsFunc(p.allow.set, func(port uint16) bool { return !p.deny.has(port) })
}

// Listed reports whether a list allows the port: in learn mode Has says more.
func (p Ports) Listed(port uint16) bool { return p.allow.has(port) && !p.deny.has(port) }

// ListedAny reports whether a list allows anything of the name.
func (p Ports) ListedAny() bool { p.learn = false; return p.Any() }

// Has reports whether the port may be reached.
func (p Ports) Has(port uint16) bool { return (p.learn || p.allow.has(port)) && !p.deny.has(port) }

// All reports whether every port but Denied may be reached.
func (p Ports) All() bool { return (p.learn || p.allow.all) && !p.deny.all }

// Set are the ports that may be reached where All is false.
func (p Ports) Set() []uint16 {
	return slices.DeleteFunc(slices.Clone(p.allow.set), p.deny.has)
}

// Denied are the ports that may not be reached where All is true.
func (p Ports) Denied() []uint16 { return p.deny.set }

// Addr reports whether a name may lead to an address: never inwards, unless the
// address itself is allowed, and never to one that is denied.
func (p *Policy) Addr(a netip.Addr, port uint16) bool {
	holds := func(all []netip.Prefix) bool {
		return slices.ContainsFunc(all, func(n netip.Prefix) bool { return n.Contains(a) })
	}
	to := netip.AddrPortFrom(a, port)
	switch {
	case !a.Is4(), holds(p.DeniedNets), slices.Contains(p.DeniedEndpoints, to):
		return false
	case holds(p.Nets), slices.Contains(p.Endpoints, to):
		return true
	}
	return !holds(Special()) && !slices.Contains(p.HostAddrs, a)
}

// ByAddr reports whether an address and port may be reached without any name.
func (p *Policy) ByAddr(to netip.AddrPort) bool {
	holds := func(all []netip.Prefix) bool {
		return slices.ContainsFunc(all, func(n netip.Prefix) bool { return n.Contains(to.Addr()) })
	}
	if holds(p.DeniedNets) || slices.Contains(p.DeniedEndpoints, to) {
		return false
	}
	return holds(p.Nets) || slices.Contains(p.Endpoints, to)
}

// Special are the addresses that no name leads to: this machine, private and
// link-local networks (cloud metadata is there), multicast, and what is set aside
// (RFC 6890). Documentation's own are left out: nothing answers there.
func Special() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3",
	} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// Answer reports whether a name's address may be told: something of it may be
// reachable.
func (p *Policy) Answer(a netip.Addr) bool {
	return p.Addr(a, 0) || slices.ContainsFunc(p.Endpoints, func(e netip.AddrPort) bool { return e.Addr() == a && p.ByAddr(e) })
}

// Denied reports whether a list denies all of a name.
func (p *Policy) Denied(name string) bool { return p.deny.find(name).all }

// Verdicts of an Event.
const (
	Allowed    = "allowed"
	Blocked    = "blocked"
	WouldBlock = "would-block" // learn mode let it pass
)

// Ended is the reason of an Event that tells of the end of a flow, and what went
// through it, after one that told of its beginning.
const Ended = "ended"

// Event is one decision, for the log.
type Event struct {
	Time    string     `json:"time"`
	Sandbox string     `json:"sandbox,omitempty"`
	Kind    string     `json:"kind"` // "dns", "tls", "http", "flow" or "inbound"
	Verdict string     `json:"verdict"`
	Name    string     `json:"name,omitempty"`
	Addr    netip.Addr `json:"addr,omitzero"`
	Port    uint16     `json:"port,omitempty"`
	Proto   string     `json:"proto,omitempty"`
	Up      int64      `json:"bytes_up,omitempty"`   // from the sandbox; of HTTP the bodies'
	Down    int64      `json:"bytes_down,omitempty"` // to it
	Reason  string     `json:"reason,omitempty"`
	Source  netip.Addr `json:"-"` // the sandbox's address
}

// Message is one line between coordinator and sidecar: a Config with its number
// one way, the answer to it or an event the other. The number 0 says that the
// sidecar is there.
type Message struct {
	Seq    int     `json:"seq"`
	Config *Config `json:"config,omitempty"`
	Error  string  `json:"error,omitempty"`
	Cut    int     `json:"cut,omitempty"` // flows that the Config has ended
	Event  *Event  `json:"event,omitempty"`
	Lost   int     `json:"lost,omitempty"` // events that were too many to tell
}
