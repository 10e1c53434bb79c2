package apply

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

// End is a flow that passed without a service of ours, and is over.
type End struct {
	Flow
	Up, Down int64 // bytes, with the packets' heads
}

// nfnetlink_conntrack's numbers, of linux/netfilter/nfnetlink_conntrack.h.
const (
	ctDelete      = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
	groupDestroy  = 3
	ctOrig        = 1
	ctReply       = 2
	ctCountOrig   = 9
	ctCountReply  = 10
	tupleIP       = 1
	tupleProto    = 2
	ipSrc, ipDst  = 1, 2
	protoNum      = 1
	protoDstPort  = 3
	countersBytes = 2
)

// WatchEnds calls tell for every sandbox's flow that ends, until ctx ends.
func WatchEnds(ctx context.Context, tell func(End)) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("hear of ended flows: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_ = c.SetReadBuffer(1 << 20) // without it a storm of them costs some of their counts
	if err := c.JoinGroup(groupDestroy); err != nil {
		return fmt.Errorf("hear of ended flows: %w", err)
	}
	if err := receive(ctx, c, ctDelete, func(_, body []byte) {
		if e, ok := parseEnd(body); ok {
			tell(e)
		}
	}); err != nil {
		return fmt.Errorf("hear of ended flows: %w", err)
	}
	return nil
}

// parseEnd reads the kernel's message of a flow; ok is false for those that are no
// sandbox's, or that a service of ours has carried.
func parseEnd(b []byte) (e End, ok bool) {
	type tuple struct {
		src, dst netip.Addr
		proto    uint8
		dport    uint16
	}
	var there, back tuple
	readTuple := func(t *tuple) func(*netlink.AttributeDecoder) error {
		return func(ad *netlink.AttributeDecoder) error {
			for ad.Next() {
				switch ad.Type() {
				case tupleIP:
					ad.Nested(func(ad *netlink.AttributeDecoder) error {
						for ad.Next() {
							a, _ := netip.AddrFromSlice(ad.Bytes())
							switch ad.Type() {
							case ipSrc:
								t.src = a
							case ipDst:
								t.dst = a
							}
						}
						return nil
					})
				case tupleProto:
					ad.Nested(func(ad *netlink.AttributeDecoder) error {
						ad.ByteOrder = binary.BigEndian
						for ad.Next() {
							switch ad.Type() {
							case protoNum:
								t.proto = ad.Uint8()
							case protoDstPort:
								t.dport = ad.Uint16()
							}
						}
						return nil
					})
				}
			}
			return nil
		}
	}
	readBytes := func(n *int64) func(*netlink.AttributeDecoder) error {
		return func(ad *netlink.AttributeDecoder) error {
			ad.ByteOrder = binary.BigEndian
			for ad.Next() {
				if ad.Type() == countersBytes {
					*n = int64(ad.Uint64()) //nolint:gosec // nobody has sent so much
				}
			}
			return nil
		}
	}
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return End{}, false
	}
	for ad.Next() {
		switch ad.Type() {
		case ctOrig:
			ad.Nested(readTuple(&there))
		case ctReply:
			ad.Nested(readTuple(&back))
		case ctCountOrig:
			ad.Nested(readBytes(&e.Up))
		case ctCountReply:
			ad.Nested(readBytes(&e.Down))
		}
	}
	if ad.Err() != nil || !passed(there.src, there.dst, back.src) {
		return End{}, false
	}
	e.Flow = flow(there.proto, nil, there.src, there.dst)
	if e.HasPorts() {
		e.Dst = netip.AddrPortFrom(there.dst, there.dport)
	}
	return e, true
}

// passed reports whether a flow is a sandbox's that no service of ours carries:
// answers come from where it was sent.
func passed(src, dst, answers netip.Addr) bool {
	return src.Is4() && dst.Is4() && plan.Range().Contains(src) && !plan.Range().Contains(dst) && answers == dst
}
