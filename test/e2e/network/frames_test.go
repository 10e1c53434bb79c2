package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// frames sends, on the thread's own eth0, TCP, UDP, ICMP, SCTP, IPv6, with sources
// that are not the sandbox's, IP options and fragments, marked and not, to where no
// rule leads.
func frames(p *place) error {
	l, err := netlink.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("the sandbox's link: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	gateways, err := netlink.NeighList(l.Attrs().Index, unix.AF_INET)
	to := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if err == nil && len(gateways) > 0 && len(gateways[0].HardwareAddr) == 6 {
		to = gateways[0].HardwareAddr
	}
	sent := 0
	own := netip.MustParseAddr("198.18.0.2")
	for _, src := range []netip.Addr{own, netip.MustParseAddr("198.18.0.6"), netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.19.255.100"), netip.MustParseAddr(bad), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.168.77.2")} {
		for _, dst := range []string{bad, private, metadata, "192.168.77.1", good2, "198.19.255.2"} {
			for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_SCTP, 47, 50} {
				for i, kind := range []string{"plain", "options", "fragment", "later", "plain"} {
					if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, i); err != nil {
						return fmt.Errorf("SO_MARK: %w", err)
					}
					frame := append(append(append([]byte{}, to...), l.Attrs().HardwareAddr...), 8, 0)
					frame = append(frame, packet(src, netip.MustParseAddr(dst), proto, kind)...)
					if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index, Protocol: htons(unix.ETH_P_IP), Halen: 6, Addr: [8]byte(append(append([]byte{}, to...), 0, 0))}); err != nil {
						return fmt.Errorf("send: %w", err)
					}
					sent++
				}
			}
		}
	}
	six := append(append(append([]byte{}, to...), l.Attrs().HardwareAddr...), 0x86, 0xdd)
	six = append(six, 0x60, 0, 0, 0, 0, 8, unix.IPPROTO_UDP, 64)
	six = append(six, net.ParseIP("fd00::2")...)
	six = append(six, net.ParseIP("fd77::1")...)
	six = append(six, 0x10, 0, 0x27, 0x0f, 0, 8, 0, 0)
	if err := unix.Sendto(fd, six, 0, &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index, Protocol: htons(unix.ETH_P_IPV6), Halen: 6, Addr: [8]byte(append(append([]byte{}, to...), 0, 0))}); err != nil {
		return fmt.Errorf("send IPv6: %w", err)
	}
	if sent == 0 {
		return errors.New("nothing was sent")
	}
	return nil
}

func packet(src, dst netip.Addr, proto byte, kind string) []byte {
	options := []byte(nil)
	if kind == "options" { // loose source route by way of the destination
		hop := dst.As4()
		options = append([]byte{131, 7, 4}, hop[:]...)
		options = append(options, 0)
	}
	body := make([]byte, 20)
	binary.BigEndian.PutUint16(body[0:], 40000)
	binary.BigEndian.PutUint16(body[2:], 9999)
	switch proto {
	case unix.IPPROTO_TCP:
		body[12], body[13] = 5<<4, 2 // SYN
	case unix.IPPROTO_UDP:
		binary.BigEndian.PutUint16(body[4:], 20)
	case unix.IPPROTO_ICMP:
		body[0] = 8
	}
	h := make([]byte, 20, 64)
	h[0] = 4<<4 | byte(5+len(options)/4)
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(options)+len(body)))
	switch kind {
	case "fragment":
		h[6] = 0x20
	case "later":
		h[7] = 2
	}
	h[8], h[9] = 64, proto
	s, d := src.As4(), dst.As4()
	copy(h[12:], s[:])
	copy(h[16:], d[:])
	h = append(h, options...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, body...)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
