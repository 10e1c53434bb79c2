package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

// links is how many sandboxes there can be: 198.18.0.0/16 in networks of four.
const links = 1 << 14

// addresses are those of both ends of a link.
func addresses(index int) (gateway, addr netip.Addr) {
	at := func(n int) netip.Addr {
		return netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}) //nolint:gosec // cut on purpose
	}
	return at(index*4 + 1), at(index*4 + 2)
}

// sysctl sets a value of the network namespace that this thread is in.
func sysctl(name, value string) error {
	f, err := os.OpenFile(filepath.Join("/proc/sys/net", name), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("set net/%s: %w", name, err)
	}
	_, err = f.WriteString(value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set net/%s: %w", name, err)
	}
	return nil
}

// noIPv6 takes IPv6 out of a namespace, where the kernel has it.
func noIPv6() error {
	for _, which := range []string{"all", "default"} {
		if err := sysctl("ipv6/conf/"+which+"/disable_ipv6", "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// The functions below work in the network namespace of their thread.

// prepareRouter makes a fresh namespace ready to be the domain's.
func prepareRouter() error {
	if err := noIPv6(); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"ipv4/conf/all/accept_redirects": "0", "ipv4/conf/all/send_redirects": "0", "ipv4/conf/all/accept_source_route": "0",
		"ipv4/conf/default/send_redirects": "0", "ipv4/conf/default/accept_redirects": "0",
	} {
		if err := sysctl(name, value); err != nil {
			return err
		}
	}
	return up("lo")
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// makePair makes a link of which one end is the sandbox's; ours stays down.
func makePair(b plan.Sandbox, guest *os.File) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = b.Veth(), plan.MTU
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: plan.Guest, PeerMTU: plan.MTU, PeerNamespace: netlink.NsFd(guest.Fd())}); err != nil {
		return fmt.Errorf("make %s: %w", b.Veth(), err)
	}
	l, err := netlink.LinkByName(b.Veth())
	if err == nil {
		err = netlink.AddrAdd(l, &netlink.Addr{IPNet: network(b.Gateway)})
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", b.Veth(), err)
	}
	return nil
}

func network(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(30, 32)}
}

// prepareGuest sets up the sandbox's end.
func prepareGuest(b plan.Sandbox) error {
	if err := errors.Join(noIPv6(), up("lo"), up(plan.Guest)); err != nil {
		return err
	}
	l, err := netlink.LinkByName(plan.Guest)
	if err == nil {
		err = netlink.AddrAdd(l, &netlink.Addr{IPNet: network(b.Addr)})
	}
	if err == nil {
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: b.Gateway.AsSlice()})
	}
	if err != nil {
		return fmt.Errorf("set up the sandbox's end of %s: %w", b.Veth(), err)
	}
	return nil
}

// setLinks sets links up or down.
func setLinks(on bool, names ...string) error {
	var errs []error
	for _, name := range names {
		l, err := netlink.LinkByName(name)
		if err == nil && on {
			err = netlink.LinkSetUp(l)
		} else if err == nil {
			err = netlink.LinkSetDown(l)
		}
		var gone netlink.LinkNotFoundError
		if err != nil && !errors.As(err, &gone) {
			errs = append(errs, fmt.Errorf("set %s up (%v): %w", name, on, err))
		}
	}
	return errors.Join(errs...)
}

// setAll sets the links to all sandboxes up or down.
func setAll(on bool) error {
	all, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var names []string
	for _, l := range all {
		if strings.HasPrefix(l.Attrs().Name, plan.VethPrefix) {
			names = append(names, l.Attrs().Name)
		}
	}
	return setLinks(on, names...)
}

func removeLink(name string) error {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(l)
	}
	var gone netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &gone) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// removeLinks takes everything but the loopback away, and reports whether there
// was anything.
func removeLinks() (some bool, err error) {
	all, err := netlink.LinkList()
	if err != nil {
		return false, fmt.Errorf("list links: %w", err)
	}
	var errs []error
	for _, l := range all {
		if l.Attrs().Name == "lo" {
			continue
		}
		some = true
		if err := netlink.LinkDel(l); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", l.Attrs().Name, err))
		}
	}
	if err := errors.Join(append(errs, onlyLinks("lo"))...); err != nil {
		return some, err
	}
	return some, nil
}

// onlyLinks wants exactly these links.
func onlyLinks(names ...string) error {
	all, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var have []string
	for _, l := range all {
		have = append(have, l.Attrs().Name)
	}
	slices.Sort(have)
	slices.Sort(names)
	if !slices.Equal(have, names) {
		return fmt.Errorf("the sandbox has the links %q, not %q", have, names)
	}
	return nil
}
