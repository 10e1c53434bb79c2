package hooks

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// loopbackUp sets lo up in the network namespace of pid, as runc does in one that
// it makes: runsc shows a sandbox only those interfaces that are up at start, and
// without lo nothing in it could listen. The calling thread stays in the
// namespace, and ends with its goroutine.
func loopbackUp(pid int) error {
	runtime.LockOSThread()
	name := fmt.Sprintf("/proc/%d/ns/net", pid)
	ns, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer func() { _ = ns.Close() }() // only entered
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("loopback: enter %s: %w", name, err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: socket: %w", err)
	}
	defer func() { _ = unix.Close(s) }() // nothing was sent
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	// netdevice(7); the kernel gives it its addresses by itself.
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, lo); err != nil {
		return fmt.Errorf("loopback: read its flags: %w", err)
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("loopback: set it up: %w", err)
	}
	return nil
}
