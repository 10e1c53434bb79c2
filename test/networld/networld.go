// Package networld owns a small internet for benchmark and demo: a network
// namespace in the place of the host, and one beyond it with servers in it. It
// must be used as root, and touches nothing of the machine.
package networld

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"github.com/lazaret-dev/lazaret/internal/nsutil"
)

// Resolver is the address of the world's DNS server; nobody's addresses are used.
const Resolver = "192.0.2.53"

// World is there until Close.
type World struct {
	host, net *os.File
	resolv    string
	servers   []*dns.Server
}

// New makes a world in which names lead to their addresses. dir gets a
// resolv.conf.
func New(dir string, names map[string]string) (_ *World, err error) {
	w := &World{resolv: filepath.Join(dir, "resolv.conf")}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make a network: %w", err), w.Close())
		}
	}()
	if w.host, err = nsutil.New(); err != nil {
		return nil, err
	}
	if w.net, err = nsutil.New(); err != nil {
		return nil, err
	}
	addrs := []string{"192.168.77.1/24", Resolver + "/32"}
	for _, a := range names {
		addrs = append(addrs, a+"/32")
	}
	if err := nsutil.Do(w.host, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "wan"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "wan", PeerNamespace: netlink.NsFd(w.net.Fd())}); err != nil {
			return err
		}
		return up("192.168.77.1", "192.168.77.2/24")
	}); err != nil {
		return nil, err
	}
	if err := nsutil.Do(w.net, func() error { return up("", addrs...) }); err != nil {
		return nil, err
	}
	if err := os.WriteFile(w.resolv, []byte("nameserver "+Resolver+"\n"), 0o644); err != nil { //nolint:gosec,forbidigo // everybody in there reads it
		return nil, err
	}
	return w, w.answer(names)
}

// up sets the loopback up, and the link to the other side with its addresses.
func up(via string, addrs ...string) error {
	for _, name := range []string{"lo", "wan"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
		for _, s := range addrs {
			if name == "lo" {
				break
			}
			a, err := netlink.ParseAddr(s)
			if err != nil {
				return err
			}
			if err := netlink.AddrReplace(l, a); err != nil { // names may share one
				return err
			}
		}
		if name == "wan" && via != "" {
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(via)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// answer starts the DNS server.
func (w *World) answer(names map[string]string) error {
	h := dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		name := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, "."))
		a := net.ParseIP(names[name])
		switch {
		case a == nil:
			m.Rcode = dns.RcodeNameError
		case q.Question[0].Qtype == dns.TypeA:
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: a}}
		}
		_ = rw.WriteMsg(m) // whoever asked has gone
	})
	return nsutil.Do(w.net, func() error {
		pc, err := net.ListenPacket("udp", Resolver+":53") //nolint:noctx // bound in this namespace, at once
		if err != nil {
			return err
		}
		s := &dns.Server{PacketConn: pc, Handler: h}
		w.servers = append(w.servers, s)
		go func() { _ = s.ActivateAndServe() }() // until Close
		return nil
	})
}

// Listen opens a TCP listener beyond the host.
func (w *World) Listen(addr string) (ln net.Listener, err error) {
	err = nsutil.Do(w.net, func() error {
		ln, err = net.Listen("tcp", addr) //nolint:noctx // likewise
		return err
	})
	return ln, err
}

// Enter is what comes before a command, as root, that shall run in the host's place.
func (w *World) Enter() []string {
	return []string{
		"nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), w.host.Fd()),
		"unshare", "--mount", "--propagation", "slave", "sh", "-ceu", `mount --bind "$0" /etc/resolv.conf; mount --make-rshared /; exec "$@"`, w.resolv,
	}
}

// Close ends the servers. The kernel removes the namespaces with the last process
// in them.
func (w *World) Close() error {
	var errs []error
	for _, s := range w.servers {
		errs = append(errs, s.Shutdown())
	}
	for _, f := range []*os.File{w.host, w.net} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
