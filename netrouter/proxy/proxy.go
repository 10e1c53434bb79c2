// Package proxy owns what a sandbox's connections to ports 80 and 443 go through:
// the name that the client sends decides, and the proxy resolves it by itself, as
// many names share one address.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

const (
	// helloTime bounds the wait for a client's name.
	helloTime = 15 * time.Second
	dialTime  = 10 * time.Second
	// maxConns bounds the connections of one sandbox.
	maxConns = 4096
)

// Resolver resolves names that the policy allows.
type Resolver interface {
	Policy() *plan.Policy
	Addresses(ctx context.Context, name string) ([]netip.Addr, time.Duration, error)
}

// Proxy is both services. See New.
type Proxy struct {
	r   Resolver
	log func(plan.Event)

	mu    sync.Mutex
	conns map[*flow]bool
	count map[netip.Addr]int
}

// flow is one connection to a name.
type flow struct {
	name string
	port uint16
	end  func()
}

// New makes a Proxy.
func New(r Resolver, log func(plan.Event)) *Proxy {
	return &Proxy{r: r, log: log, conns: map[*flow]bool{}, count: map[netip.Addr]int{}}
}

// Cut ends the connections that the policy does not allow any more, and returns
// how many.
func (x *Proxy) Cut() int {
	p := x.r.Policy()
	var ends []func()
	x.mu.Lock()
	for f := range x.conns {
		if p == nil || !p.Lookup(f.name).Has(f.port) {
			ends = append(ends, f.end)
		}
	}
	x.mu.Unlock()
	for _, end := range ends {
		end()
	}
	return len(ends)
}

// begin registers a flow and looks at the policy once more, so that Cut and it
// cannot miss each other.
func (x *Proxy) begin(f *flow) bool {
	x.mu.Lock()
	x.conns[f] = true
	x.mu.Unlock()
	if !x.allowed(f.name, f.port) {
		x.done(f)
		return false
	}
	return true
}

func (x *Proxy) done(f *flow) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.conns, f)
}

// enter counts a client in; false where it has too many connections.
func (x *Proxy) enter(source netip.Addr) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.count[source] >= maxConns {
		return false
	}
	x.count[source]++
	return true
}

func (x *Proxy) leave(source netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.count[source]--; x.count[source] <= 0 {
		delete(x.count, source)
	}
}

// dial connects to a name by the addresses that it may lead to.
func (x *Proxy) dial(ctx context.Context, name string, port uint16) (*net.TCPConn, netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	// Name and addresses are judged by one policy.
	p := x.r.Policy()
	if p == nil || !p.Lookup(name).Has(port) {
		return nil, netip.Addr{}, errNotAllowed
	}
	addrs, _, err := x.r.Addresses(ctx, name)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	err = errNotAllowed
	for i, a := range addrs {
		if !p.Addr(a, port) {
			continue
		}
		each, stop := context.WithTimeout(ctx, dialTime/time.Duration(len(addrs)-i))
		var c net.Conn
		c, err = new(net.Dialer).DialContext(each, "tcp4", netip.AddrPortFrom(a, port).String())
		stop()
		if err == nil {
			return c.(*net.TCPConn), a, nil //nolint:forcetypeassert // what tcp4 gives
		}
	}
	return nil, netip.Addr{}, err
}

var errNotAllowed = errors.New("not allowed")

// ServeTLS answers on a listener that port 443 is led to, until it is closed.
func (x *Proxy) ServeTLS(ctx context.Context, ln net.Listener) error {
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				continue
			}
			return fmt.Errorf("accept: %w", err)
		}
		go x.serveTLS(ctx, c.(*net.TCPConn)) //nolint:forcetypeassert // a TCP listener's
	}
}

var errTooMany = errors.New("too many connections")

// alert tells a client in TLS's own words: fatal, access_denied.
func alert() []byte { return []byte{21, 3, 3, 0, 2, 2, 49} }

func (x *Proxy) serveTLS(ctx context.Context, client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	source := addrOf(client.RemoteAddr())
	event := plan.Event{Kind: "tls", Port: 443, Proto: "tcp", Source: source}
	refuse := func(why error) {
		event.Verdict, event.Reason = plan.Blocked, why.Error()
		x.log(event)
		_, _ = client.Write(alert()) // gone already, or it hears why
	}
	if !x.enter(source) {
		refuse(errTooMany)
		return
	}
	defer x.leave(source)
	_ = client.SetReadDeadline(time.Now().Add(helloTime)) // sockets take deadlines
	name, hello, err := readHello(client)
	event.Name = name
	if err != nil {
		refuse(err)
		return
	}
	_ = client.SetReadDeadline(time.Time{})
	server, addr, err := x.dial(ctx, name, 443)
	if err != nil {
		if errors.Is(err, errNotAllowed) || !x.allowed(name, 443) {
			refuse(errNotAllowed)
			return
		}
		event.Verdict, event.Reason = plan.Allowed, err.Error()
		x.log(event)
		_ = client.SetLinger(0) // a reset, as the server's side has failed
		return
	}
	defer func() { _ = server.Close() }()
	event.Addr, event.Verdict = addr, plan.Allowed
	f := &flow{name: name, port: 443, end: func() {
		_ = client.SetLinger(0)
		_ = client.Close()
		_ = server.Close()
	}}
	if !x.begin(f) {
		refuse(errNotAllowed)
		return
	}
	defer x.done(f)
	if _, err := server.Write(hello); err != nil {
		event.Reason = err.Error()
		x.log(event)
		_ = client.SetLinger(0)
		return
	}
	event.Up, event.Down = join(client, server)
	event.Up += int64(len(hello))
	x.log(event)
}

func (x *Proxy) allowed(name string, port uint16) bool {
	p := x.r.Policy()
	return p != nil && p.Lookup(name).Has(port)
}

// join copies both ways until both have ended; the kernel does it (splice).
func join(client, server *net.TCPConn) (up, down int64) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		up, _ = io.Copy(server, client) // whoever fails, the other side sees it
		_ = server.CloseWrite()
	}()
	var err error
	down, err = io.Copy(client, server)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
	} else {
		_ = client.CloseWrite()
	}
	<-done
	return up, down
}

func addrOf(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
