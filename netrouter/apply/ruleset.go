package apply

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

// Ports on which the sidecar's own services listen; sandboxes are led there.
const (
	PortDNS  = 53
	PortHTTP = 1080
	PortTLS  = 1443
)

const (
	tableName = "lazaret"
	// setSize bounds what names may come to at one time, in elements.
	setSize = 1 << 16
	// chunk is how many elements go into one netlink attribute, which holds 64 KiB.
	chunk = 512
)

// LogBlocked and LogPassed are the groups of NFLOG that tell of refused and of new
// flows.
const (
	LogBlocked = 1
	LogPassed  = 2
)

// ruleset is the table as it is being written.
type ruleset struct {
	c     *nftables.Conn
	t     *nftables.Table
	chain *nftables.Chain
	names map[string]*nftables.Set
	err   error
}

func key4(a netip.Addr) []byte { b := a.As4(); return b[:] }

// keyPort is an address and a port, each padded to a register.
func keyPort(a netip.Addr, port uint16) []byte {
	return append(binary.BigEndian.AppendUint16(key4(a), port), 0, 0)
}

// keyLink is an interface's name and an address.
func keyLink(name string, a netip.Addr) []byte {
	b := make([]byte, unix.IFNAMSIZ, unix.IFNAMSIZ+4)
	copy(b, name)
	return append(b, key4(a)...)
}

func (r *ruleset) add(s *nftables.Set, elements []nftables.SetElement) {
	s.Table = r.t
	if r.err == nil {
		r.err = r.c.AddSet(s, nil)
	}
	r.names[s.Name] = s
	for len(elements) > 0 && r.err == nil {
		n := min(chunk, len(elements))
		r.err = r.c.SetAddElements(s, elements[:n])
		elements = elements[n:]
	}
}

func addrPortType() nftables.SetDatatype {
	return nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)
}

func (r *ruleset) prefixes(name string, all []netip.Prefix) {
	var out []nftables.SetElement
	for i, p := range all {
		first := p.Masked().Addr()
		out = append(out, nftables.SetElement{Key: key4(first)})
		n := uint64(binary.BigEndian.Uint32(key4(first))) + 1<<(32-p.Bits())
		if n >= 1<<32 {
			continue // to the end of all addresses
		}
		next := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(n))))
		if i+1 < len(all) && all[i+1].Masked().Addr() == next {
			continue // the next one begins there
		}
		out = append(out, nftables.SetElement{Key: key4(next), IntervalEnd: true})
	}
	r.add(&nftables.Set{Name: name, KeyType: nftables.TypeIPAddr, Interval: true}, out)
}

func (r *ruleset) endpoints(name string, all []netip.AddrPort) {
	var out []nftables.SetElement
	for _, e := range all {
		out = append(out, nftables.SetElement{Key: keyPort(e.Addr(), e.Port())})
	}
	r.add(&nftables.Set{Name: name, KeyType: addrPortType(), Concatenation: true}, out)
}

// The expressions of rules. Register 1 holds four of the small ones, 8 to 11.

func cmp(data ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

func meta(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: 1} }

// The interface is always the uplink.
func iif() []expr.Any {
	return []expr.Any{meta(expr.MetaKeyIIFNAME), &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: uplink()}}
}

func oif(op expr.CmpOp) []expr.Any {
	return []expr.Any{meta(expr.MetaKeyOIFNAME), &expr.Cmp{Op: op, Register: 1, Data: uplink()}}
}

func uplink() []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, plan.Uplink)
	return b
}

func ipv4() []expr.Any { return []expr.Any{meta(expr.MetaKeyNFPROTO), cmp(unix.NFPROTO_IPV4)} }
func ipv6() []expr.Any { return []expr.Any{meta(expr.MetaKeyNFPROTO), cmp(unix.NFPROTO_IPV6)} }

func l4(proto byte) []expr.Any { return []expr.Any{meta(expr.MetaKeyL4PROTO), cmp(proto)} }

func loadPort(register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

func dport(port uint16) []expr.Any {
	return []expr.Any{loadPort(1), cmp(binary.BigEndian.AppendUint16(nil, port)...)}
}

func loadDaddr() expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}
}

func (r *ruleset) lookup(set string, invert bool) expr.Any {
	s := r.names[set]
	return &expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID, Invert: invert}
}

func (r *ruleset) daddr(set string) []expr.Any {
	return []expr.Any{loadDaddr(), r.lookup(set, false)}
}

// daddrPort needs a transport with ports.
func (r *ruleset) daddrPort(set string) []expr.Any {
	return []expr.Any{loadDaddr(), loadPort(9), r.lookup(set, false)}
}

// link is the sending interface and address.
func (r *ruleset) link(invert bool) []expr.Any {
	return []expr.Any{
		meta(expr.MetaKeyIIFNAME),
		&expr.Payload{DestRegister: 2, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
		r.lookup("links", invert),
	}
}

func ctState(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

func known() []expr.Any { return ctState(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED) }

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

func accept() []expr.Any { return verdict(expr.VerdictAccept) }
func drop() []expr.Any   { return verdict(expr.VerdictDrop) }

func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

func redirect(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)},
		&expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED},
	}
}

func logTo(group uint16) []expr.Any {
	return []expr.Any{&expr.Log{Key: 1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_SNAPLEN, Group: group, Snaplen: 96}}
}

// slowly lets pass so many a second, and as many at once.
func slowly(rate uint32) []expr.Any {
	return []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(rate), Unit: expr.LimitTimeSecond, Burst: rate}}
}

func (r *ruleset) rule(parts ...[]expr.Any) {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	r.c.AddRule(&nftables.Rule{Table: r.t, Chain: r.chain, Exprs: all})
}

func (r *ruleset) base(name string, hook *nftables.ChainHook, prio *nftables.ChainPriority, kind nftables.ChainType, policy nftables.ChainPolicy) {
	r.chain = r.c.AddChain(&nftables.Chain{Name: name, Table: r.t, Type: kind, Hooknum: hook, Priority: prio, Policy: &policy})
}

// write puts the whole table down: first it is removed, so that the batch makes
// the kernel's state the same whatever was there.
func (r *ruleset) write(p *plan.Policy, boxes []plan.Sandbox, resolver netip.Addr, live []Element) error {
	r.names = map[string]*nftables.Set{}
	r.t = &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	r.c.AddTable(r.t)
	r.c.DelTable(r.t)
	r.c.AddTable(r.t)

	var links, inbound []nftables.SetElement
	for _, b := range boxes {
		e := nftables.SetElement{Key: keyLink(b.Veth(), b.Addr)}
		if links = append(links, e); b.Inbound {
			inbound = append(inbound, e)
		}
	}
	linkType := nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIPAddr)
	r.add(&nftables.Set{Name: "links", KeyType: linkType, Concatenation: true}, links)
	r.add(&nftables.Set{Name: "inbound", KeyType: linkType, Concatenation: true}, inbound)
	r.prefixes("special", plan.Special())
	r.add(&nftables.Set{Name: "host", KeyType: nftables.TypeIPAddr}, hostElements(p.HostAddrs))
	r.prefixes("nets", p.Nets)
	r.prefixes("denied_nets", p.DeniedNets)
	r.endpoints("endpoints", p.Endpoints)
	r.endpoints("denied_endpoints", p.DeniedEndpoints)
	bySet := map[string][]nftables.SetElement{}
	for _, e := range live {
		bySet[e.set()] = append(bySet[e.set()], e.element())
	}
	r.add(&nftables.Set{Name: setHosts, KeyType: nftables.TypeIPAddr, HasTimeout: true, Size: setSize}, bySet[setHosts])
	for _, name := range []string{setNames, setDenied} {
		r.add(&nftables.Set{Name: name, KeyType: addrPortType(), Concatenation: true, HasTimeout: true, Size: setSize}, bySet[name])
	}

	r.refuse()
	r.prerouting(p)
	r.input()
	r.forward(p)
	r.output(resolver)
	r.base("postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, nftables.ChainTypeNAT, nftables.ChainPolicyAccept)
	r.rule(oif(expr.CmpOpEq), []expr.Any{&expr.Masq{}})
	return r.err
}

func hostElements(all []netip.Addr) []nftables.SetElement {
	var out []nftables.SetElement
	for _, a := range all {
		if a.Is4() {
			out = append(out, nftables.SetElement{Key: key4(a)})
		}
	}
	return out
}

// refuse answers at once: a reset, or port unreachable, which is what gVisor hears.
func (r *ruleset) refuse() {
	r.chain = r.c.AddChain(&nftables.Chain{Name: "refuse", Table: r.t})
	r.rule(slowly(50), logTo(LogBlocked))
	r.rule(l4(unix.IPPROTO_TCP), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
	r.rule([]expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}})
}

// prerouting leads to the sidecar's services what they decide about.
func (r *ruleset) prerouting(p *plan.Policy) {
	r.base("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, nftables.ChainTypeNAT, nftables.ChainPolicyAccept)
	r.rule(iif(), verdict(expr.VerdictReturn))
	r.rule(ipv6(), verdict(expr.VerdictReturn))
	for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		r.rule(l4(proto), dport(53), redirect(PortDNS))
	}
	r.rule(r.daddr("denied_nets"), verdict(expr.VerdictReturn))
	r.rule(r.daddr("nets"), verdict(expr.VerdictReturn))
	r.rule(l4(unix.IPPROTO_TCP), r.daddrPort("endpoints"), verdict(expr.VerdictReturn))
	if p.Learn {
		return // seen as what it is
	}
	r.rule(l4(unix.IPPROTO_TCP), dport(80), redirect(PortHTTP))
	r.rule(l4(unix.IPPROTO_TCP), dport(443), redirect(PortTLS))
}

// input is what comes to the sidecar itself.
func (r *ruleset) input() {
	r.base("input", nftables.ChainHookInput, nftables.ChainPriorityFilter, nftables.ChainTypeFilter, nftables.ChainPolicyDrop)
	r.rule(iif(), ipv4(), known(), accept())
	r.rule(iif(), drop())
	r.rule(ipv6(), jump("refuse"))
	r.rule(r.link(true), drop()) // no answer to an address that is not the sender's
	r.rule(known(), accept())
	r.rule(l4(unix.IPPROTO_UDP), dport(PortDNS), accept())
	for _, port := range []uint16{PortDNS, PortHTTP, PortTLS} {
		r.rule(l4(unix.IPPROTO_TCP), dport(port), accept())
	}
	r.rule(jump("refuse"))
}

// forward is what passes through.
func (r *ruleset) forward(p *plan.Policy) {
	r.base("forward", nftables.ChainHookForward, nftables.ChainPriorityFilter, nftables.ChainTypeFilter, nftables.ChainPolicyDrop)
	r.rule(iif(), ipv4(), known(), accept())
	r.rule(iif(), drop())
	r.rule(ipv6(), jump("refuse"))
	r.rule(r.link(true), drop())
	r.rule(known(), accept())
	r.rule(ctState(expr.CtStateBitINVALID), drop())
	r.rule(oif(expr.CmpOpNeq), jump("refuse"))
	r.rule(r.daddr("denied_nets"), jump("refuse"))
	tcpUDP := []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP}
	r.chain = r.c.AddChain(&nftables.Chain{Name: "pass", Table: r.t})
	r.rule(slowly(50), logTo(LogPassed))
	r.rule(accept())
	// Nothing else has ports, or a name: ICMP, SCTP and the like.
	r.chain = r.c.AddChain(&nftables.Chain{Name: "ports", Table: r.t})
	r.rule(r.daddrPort("denied_endpoints"), jump("refuse"))
	r.rule(r.daddrPort("endpoints"), jump("pass"))
	for _, proto := range tcpUDP {
		r.rule(l4(proto), dport(853), jump("refuse")) // DNS past the forwarder
	}
	r.rule(l4(unix.IPPROTO_UDP), dport(443), jump("refuse")) // QUIC: its name cannot be seen
	r.rule(r.daddr("nets"), jump("pass"))
	r.rule(r.daddr("special"), jump("refuse"))
	r.rule(r.daddr("host"), jump("refuse"))
	r.rule(r.daddrPort(setDenied), jump("refuse"))
	r.rule(r.daddrPort(setNames), jump("pass"))
	r.rule(r.daddr(setHosts), jump("pass"))
	if p.Learn {
		r.rule(slowly(50), logTo(LogBlocked))
		r.rule(accept())
	}
	r.rule(jump("refuse"))
	r.chain = &nftables.Chain{Name: "forward", Table: r.t}
	for _, proto := range tcpUDP {
		r.rule(l4(proto), jump("ports"))
	}
	r.rule(jump("refuse"))
}

// output is what the sidecar sends: its own questions, the proxy's connections,
// answers, and refusals, which belong to what they refuse.
func (r *ruleset) output(resolver netip.Addr) {
	r.base("output", nftables.ChainHookOutput, nftables.ChainPriorityFilter, nftables.ChainTypeFilter, nftables.ChainPolicyDrop)
	r.rule(ipv6(), drop())
	r.rule(known(), accept())
	// The coordinator's, for published ports.
	r.rule(l4(unix.IPPROTO_TCP), []expr.Any{
		meta(expr.MetaKeyOIFNAME),
		&expr.Payload{DestRegister: 2, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		r.lookup("inbound", false),
	}, accept())
	r.rule(oif(expr.CmpOpNeq), drop())
	to := []expr.Any{loadDaddr(), cmp(key4(resolver)...)}
	for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		r.rule(l4(proto), to, dport(53), accept())
	}
	r.rule(r.daddr("denied_nets"), drop())
	r.rule(l4(unix.IPPROTO_TCP), r.daddrPort("denied_endpoints"), drop())
	r.rule(l4(unix.IPPROTO_TCP), r.daddrPort("endpoints"), accept())
	for _, port := range []uint16{80, 443} {
		r.rule(l4(unix.IPPROTO_TCP), dport(port), r.daddr("nets"), accept())
	}
	r.rule(r.daddr("special"), drop())
	r.rule(r.daddr("host"), drop())
	for _, port := range []uint16{80, 443} {
		r.rule(l4(unix.IPPROTO_TCP), dport(port), accept())
	}
}
