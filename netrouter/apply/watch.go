package apply

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Flow is the first packet of one, as far as its head tells.
type Flow struct {
	Proto string // "tcp", "udp" or a number
	Src   netip.Addr
	Dst   netip.AddrPort // port 0 where the protocol has none
}

// HasPorts reports whether the protocol is one that rules can allow.
func (f Flow) HasPorts() bool { return f.Proto == "tcp" || f.Proto == "udp" }

// nfnetlink_log's numbers, of linux/netfilter/nfnetlink_log.h.
const (
	ulogConfig   = unix.NFNL_SUBSYS_ULOG<<8 | 1
	ulogPacket   = unix.NFNL_SUBSYS_ULOG << 8
	cfgCmd       = 1
	cfgMode      = 2
	cmdBind      = 1
	copyPacket   = 2
	attrPayload  = 9
	maxLogPacket = 96
)

// Watch calls tell for every packet that a rule has logged, until ctx ends.
func Watch(ctx context.Context, tell func(group uint16, f Flow)) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("hear of flows: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	for _, group := range []uint16{LogBlocked, LogPassed} {
		mode := make([]byte, 6) // range (big endian), mode, padding
		binary.BigEndian.PutUint32(mode, maxLogPacket)
		mode[4] = copyPacket
		for _, a := range []netlink.Attribute{{Type: cfgCmd, Data: []byte{cmdBind}}, {Type: cfgMode, Data: mode}} {
			data, err := netlink.MarshalAttributes([]netlink.Attribute{a})
			if err != nil {
				return fmt.Errorf("hear of flows: %w", err)
			}
			head := binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, group)
			if _, err := c.Execute(netlink.Message{
				Header: netlink.Header{Type: ulogConfig, Flags: netlink.Request | netlink.Acknowledge},
				Data:   append(head, data...),
			}); err != nil {
				return fmt.Errorf("hear of flows: bind group %d: %w", group, err)
			}
		}
	}
	if err := receive(ctx, c, ulogPacket, func(head, body []byte) {
		attrs, err := netlink.UnmarshalAttributes(body)
		if err != nil {
			return // of another kernel; the rules do not depend on it
		}
		for _, a := range attrs {
			if f, ok := parseFlow(a.Data); ok && a.Type == attrPayload {
				tell(binary.BigEndian.Uint16(head[2:]), f)
			}
		}
	}); err != nil {
		return fmt.Errorf("hear of flows: %w", err)
	}
	return nil
}

// receive hands on the kernel's messages of one type, each as its head (struct
// nfgenmsg) and what follows, until ctx ends. What comes while too many wait is
// lost: it is for the log, no rule depends on it.
func receive(ctx context.Context, c *netlink.Conn, kind netlink.HeaderType, each func(head, body []byte)) error {
	for {
		all, err := c.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			continue
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		for _, m := range all {
			if m.Header.Type == kind && len(m.Data) >= 4 {
				each(m.Data[:4], m.Data[4:])
			}
		}
	}
}

// parseFlow reads the head of an IP packet.
func parseFlow(b []byte) (Flow, bool) {
	if len(b) >= 40 && b[0]>>4 == 6 {
		src, _ := netip.AddrFromSlice(b[8:24])
		dst, _ := netip.AddrFromSlice(b[24:40])
		return flow(b[6], b[40:], src, dst), true
	}
	if len(b) < 20 || b[0]>>4 != 4 {
		return Flow{}, false
	}
	n := int(b[0]&15) * 4
	if n < 20 || len(b) < n {
		return Flow{}, false
	}
	src, _ := netip.AddrFromSlice(b[12:16])
	dst, _ := netip.AddrFromSlice(b[16:20])
	rest := b[n:]
	if binary.BigEndian.Uint16(b[6:8])&0x1fff != 0 {
		rest = nil // a later fragment
	}
	return flow(b[9], rest, src, dst), true
}

func flow(proto byte, rest []byte, src, dst netip.Addr) Flow {
	f := Flow{Proto: fmt.Sprint(proto), Src: src, Dst: netip.AddrPortFrom(dst, 0)}
	switch proto {
	case unix.IPPROTO_TCP:
		f.Proto = "tcp"
	case unix.IPPROTO_UDP:
		f.Proto = "udp"
	case unix.IPPROTO_ICMP:
		f.Proto = "icmp"
		return f
	default:
		return f
	}
	if len(rest) >= 4 {
		f.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(rest[2:4]))
	}
	return f
}
