// Package netrouter owns the Network Sidecar, the gateway of a sandbox whose
// profile filters its network: the process that makes the kernel's rules,
// answers names, and looks into what goes to ports 80 and 443. The coordinator
// starts it in the domain's network namespace and tells it everything over one
// socket, whose end is its own.
package netrouter

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/lazaret-dev/lazaret/internal/version"
	"github.com/lazaret-dev/lazaret/netrouter/apply"
	"github.com/lazaret-dev/lazaret/netrouter/dns"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
	"github.com/lazaret-dev/lazaret/netrouter/proxy"
)

// ControlFD is the descriptor of the socket to the coordinator.
const ControlFD = 3

// maxLine bounds one message, in bytes.
const maxLine = 8 << 20

// Main takes the arguments after the program's name and returns the exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == "--version" {
		if _, err := fmt.Fprintln(stdout, version.String("lazaret-netrouter")); err != nil {
			return 1
		}
		return 0
	}
	if len(args) != 1 || args[0] != "serve" {
		_, _ = fmt.Fprintln(stderr, "lazaret-netrouter: the coordinator starts it, as \"lazaret-netrouter serve\" with its socket as descriptor 3") // nowhere left to tell
		return 1
	}
	if err := serve(); err != nil {
		_, _ = fmt.Fprintf(stderr, "lazaret-netrouter: %v\n", err)
		return 1
	}
	return 0
}

func serve() error {
	f := os.NewFile(ControlFD, "control")
	conn, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	_ = f.Close() // conn has its own
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &sidecar{conn: conn, events: make(chan plan.Event, 1024), table: apply.New()}
	s.resolver = dns.New(s.table, s.log)
	s.proxy = proxy.New(s.resolver, s.log)
	err = s.listen(ctx, cancel)
	if err == nil {
		go s.table.Run(ctx)
		go s.tell(ctx)
		err = s.send(plan.Message{})
	}
	if err == nil {
		go func() { cancel(s.hear()) }()
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	cancel(err)
	// Nobody is left to change the rules: nothing passes any more.
	return errors.Join(err, closeLinks())
}

type sidecar struct {
	conn     net.Conn
	events   chan plan.Event
	table    *apply.Table
	resolver *dns.Resolver
	proxy    *proxy.Proxy

	// mu guards writes to conn, and the fields below.
	mu      sync.Mutex
	lost    int
	sources map[netip.Addr]string
}

// listen opens the services' sockets; nothing reaches them before there are rules.
func (s *sidecar) listen(ctx context.Context, end context.CancelCauseFunc) error {
	var lc net.ListenConfig
	pc, err := lc.ListenPacket(ctx, "udp4", ":"+strconv.Itoa(apply.PortDNS))
	if err != nil {
		return fmt.Errorf("forwarder: %w", err)
	}
	var lns []net.Listener
	for _, port := range []int{apply.PortDNS, apply.PortHTTP, apply.PortTLS} {
		ln, err := lc.Listen(ctx, "tcp4", ":"+strconv.Itoa(port))
		if err != nil {
			return fmt.Errorf("listen on port %d: %w", port, err)
		}
		lns = append(lns, ln)
	}
	for _, service := range []func() error{
		func() error { return s.resolver.Serve(ctx, pc, lns[0]) },
		func() error { return s.proxy.ServeHTTP(ctx, lns[1]) },
		func() error { return s.proxy.ServeTLS(ctx, lns[2]) },
		func() error { return apply.Watch(ctx, s.flow) },
		func() error { return apply.WatchEnds(ctx, s.end) },
	} {
		go func() { end(service()) }()
	}
	return nil
}

// hear carries out what the coordinator says, until it goes.
func (s *sidecar) hear() error {
	lines := bufio.NewScanner(s.conn)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var m plan.Message
		answer := plan.Message{}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fmt.Errorf("hear of the coordinator: %w", err)
		}
		answer.Seq = m.Seq
		if m.Config != nil {
			cut, err := s.set(*m.Config)
			answer.Cut = cut
			if err != nil {
				answer.Error = err.Error()
			}
		}
		if err := s.send(answer); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("hear of the coordinator: %w", err)
	}
	return errors.New("the coordinator has gone")
}

// set makes everything as the Config says, and ends what it does not allow.
func (s *sidecar) set(c plan.Config) (cut int, err error) {
	p, err := plan.Compile(c)
	if err != nil {
		return 0, err
	}
	err = s.resolver.Switch(p, c.Resolver, func(keep func(apply.Element) bool) error {
		return s.table.Set(p, c.Sandboxes, c.Resolver, keep)
	})
	if err != nil {
		return 0, err
	}
	sources := map[netip.Addr]string{}
	for _, b := range c.Sandboxes {
		sources[b.Addr] = b.Name
	}
	s.mu.Lock()
	s.sources = sources
	s.mu.Unlock()
	cut = s.proxy.Cut()
	n, err := apply.Cut(func(to netip.AddrPort) bool { return s.resolver.Reachable(p, to) })
	return cut + n, err
}

func (s *sidecar) send(m plan.Message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("tell the coordinator: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.conn.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("tell the coordinator: %w", err)
	}
	return nil
}

// log never waits: a flood of decisions must not slow the network down.
func (s *sidecar) log(e plan.Event) {
	e.Time = time.Now().UTC().Format(time.RFC3339Nano)
	select {
	case s.events <- e:
	default:
		s.mu.Lock()
		s.lost++
		s.mu.Unlock()
	}
}

// flow is the kernel's word of a flow that it has refused or let pass.
func (s *sidecar) flow(group uint16, f apply.Flow) {
	e := s.event(f)
	passed, p := group == apply.LogPassed, s.resolver.Policy()
	switch {
	case p != nil && p.Learn && !s.resolver.Listed(p, f.Dst) && (passed || s.resolver.Reachable(p, f.Dst) && f.HasPorts()):
		e.Verdict = plan.WouldBlock
	case passed:
		e.Verdict = plan.Allowed
	}
	s.log(e)
}

func (s *sidecar) event(f apply.Flow) plan.Event {
	return plan.Event{
		Kind: "flow", Verdict: plan.Blocked, Addr: f.Dst.Addr(), Port: f.Dst.Port(), Proto: f.Proto, Source: f.Src,
		Name: strings.Join(s.resolver.Names(f.Dst.Addr()), " "),
	}
}

// end is the kernel's word of a flow that passed and is over.
func (s *sidecar) end(end apply.End) {
	e := s.event(end.Flow)
	e.Verdict, e.Reason, e.Up, e.Down = plan.Allowed, plan.Ended, end.Up, end.Down
	if p := s.resolver.Policy(); p != nil && p.Learn && !s.resolver.Listed(p, end.Dst) {
		e.Verdict = plan.WouldBlock
	}
	s.log(e)
}

// tell sends events, so many a second: the rest is counted.
func (s *sidecar) tell(ctx context.Context) {
	const perSecond = 200
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	left := perSecond
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			left = perSecond
			s.mu.Lock()
			lost := s.lost
			s.lost = 0
			s.mu.Unlock()
			if lost > 0 && s.send(plan.Message{Lost: lost}) != nil {
				return
			}
		case e := <-s.events:
			s.mu.Lock()
			e.Sandbox = s.sources[e.Source]
			if left--; left < 0 {
				s.lost++
			}
			s.mu.Unlock()
			if left >= 0 && s.send(plan.Message{Event: &e}) != nil {
				return
			}
		}
	}
}

// closeLinks sets every link to a sandbox down.
func closeLinks() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("close the sandboxes' links: %w", err)
	}
	var errs []error
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, plan.VethPrefix) {
			errs = append(errs, netlink.LinkSetDown(l))
		}
	}
	return errors.Join(errs...)
}
