package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/nsutil"
	"github.com/lazaret-dev/lazaret/netrouter/apply"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

// maxInbound bounds the connections to one sandbox that are open at one time.
const maxInbound = 1024

// lead has what comes into the engine's network namespace, where it brings the
// connections to published ports, go on to the sandbox's own port.
func (n *Network) lead(b *box, engine *os.File) error {
	var ln net.Listener
	err := nsutil.Do(engine, func() error {
		var err error
		if ln, err = new(net.ListenConfig).Listen(n.ctx, "tcp4", ":0"); err != nil {
			return err
		}
		return apply.Lead(uint16(ln.Addr().(*net.TCPAddr).Port)) //nolint:gosec,forcetypeassert // a TCP listener's port
	})
	if err != nil {
		if ln != nil {
			err = errors.Join(err, ln.Close())
		}
		return fmt.Errorf("published ports: %w", err)
	}
	ctx, stop := context.WithCancel(n.ctx)
	n.mu.Lock()
	b.stop = stop
	n.mu.Unlock()
	context.AfterFunc(ctx, func() { _ = ln.Close() }) // ends Accept
	n.watchers.Go(func() {
		slots := make(chan struct{}, maxInbound)
		for {
			c, err := ln.Accept()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				n.o.Log.Error("published ports", "container", b.Name, "error", err)
				select {
				case <-ctx.Done():
				case <-time.After(repairPause):
				}
				continue
			}
			select {
			case slots <- struct{}{}:
				go func() { n.carry(ctx, b, c.(*net.TCPConn)); <-slots }() //nolint:forcetypeassert // a TCP listener's
			default:
				reset(c.(*net.TCPConn)) //nolint:forcetypeassert // likewise
			}
		}
	})
	return nil
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// carry connects to the port that was meant, and copies both ways.
func (n *Network) carry(ctx context.Context, b *box, client *net.TCPConn) {
	e := plan.Event{
		Time: time.Now().UTC().Format(time.RFC3339Nano), Sandbox: b.Name, Kind: "inbound", Verdict: plan.Allowed, Addr: b.Addr, Proto: "tcp",
	}
	defer func() { n.event(e) }()
	server, port, err := n.dialIn(ctx, b, client)
	e.Port = port
	if err != nil {
		e.Reason = err.Error()
		reset(client) // as nobody listens
		return
	}
	end := context.AfterFunc(ctx, func() { reset(client); reset(server) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Up, _ = io.Copy(client, server) // whoever fails, the other side sees it
		_ = client.CloseWrite()
	}()
	e.Down, _ = io.Copy(server, client)
	_ = server.CloseWrite()
	<-done
	if end() {
		_ = client.Close()
		_ = server.Close()
	}
}

func (n *Network) dialIn(ctx context.Context, b *box, client *net.TCPConn) (server *net.TCPConn, port uint16, err error) {
	if port, err = originalPort(client); err != nil {
		return nil, 0, err
	}
	err = nsutil.Do(n.ns, func() error {
		c, err := (&net.Dialer{Timeout: tellTime}).DialContext(ctx, "tcp4", netip.AddrPortFrom(b.Addr, port).String())
		if err == nil {
			server = c.(*net.TCPConn) //nolint:forcetypeassert // what tcp4 gives
		}
		return err
	})
	return server, port, err
}

// originalPort is the port that a redirected connection was meant for.
func originalPort(c *net.TCPConn) (port uint16, err error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := rc.Control(func(fd uintptr) {
		var a *unix.IPv6Mreq // as large as the kernel's answer: family, port, address
		if a, err = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); err == nil {
			port = uint16(a.Multiaddr[2])<<8 | uint16(a.Multiaddr[3])
		}
	})
	return port, errors.Join(cerr, err)
}

// published reports whether podman's port forwarder waits in a network namespace.
func published(ns *os.File) (bool, error) {
	mine, err := ns.Stat()
	if err != nil {
		return false, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		fi, err := os.Stat("/proc/" + e.Name() + "/ns/net")
		if err != nil || !os.SameFile(mine, fi) {
			continue // gone, or another's
		}
		args, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if name, _, _ := strings.Cut(string(args), "\x00"); err == nil && strings.Contains(name, "rootlessport") {
			return true, nil
		}
	}
	return false, nil
}
