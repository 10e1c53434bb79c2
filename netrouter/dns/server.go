package dns

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

const (
	// rate and burst bound the questions of one sandbox, in a second and at once:
	// names are a way out for data where a rule allows all below one.
	rate  = 200
	burst = 2000
	// inFlight bounds the questions that wait for an answer, perSource those of one
	// sandbox: none keeps the others from asking.
	inFlight  = 1024
	perSource = 256
	// patience bounds one question in all.
	patience = 12 * time.Second
)

// Server answers the sandboxes. See Resolver.Serve.
type server struct {
	r    *Resolver
	gate chan struct{}

	mu      sync.Mutex
	buckets map[netip.Addr]*bucket
}

type bucket struct {
	tokens  float64
	last    time.Time
	waiting int
}

// Serve answers on a socket of each kind until ctx ends or one of them fails.
func (r *Resolver) Serve(ctx context.Context, pc net.PacketConn, ln net.Listener) error {
	s := &server{r: r, gate: make(chan struct{}, inFlight), buckets: map[netip.Addr]*bucket{}}
	h := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) { s.handle(ctx, w, q) })
	udp := &dns.Server{PacketConn: pc, Handler: h, UDPSize: 4096}
	tcp := &dns.Server{Listener: ln, Handler: h, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, MaxTCPQueries: 64}
	failed := make(chan error, 2)
	go func() { failed <- udp.ActivateAndServe() }()
	go func() { failed <- tcp.ActivateAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil // the sockets are the caller's to close
	}
}

func (s *server) handle(ctx context.Context, w dns.ResponseWriter, q *dns.Msg) {
	source := addrOf(w.RemoteAddr())
	if !s.take(source) {
		_ = w.WriteMsg(reply(q, dns.RcodeRefused, "too many questions in a short time")) // gone, or it asks again
		return
	}
	defer s.leave(source)
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	default:
		_ = w.WriteMsg(reply(q, dns.RcodeRefused, "too many questions at one time"))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m := s.r.Answer(ctx, q, source)
	if m == nil {
		return
	}
	size := dns.MaxMsgSize
	if _, ok := w.RemoteAddr().(*net.UDPAddr); ok {
		size = dns.MinMsgSize
		if o := q.IsEdns0(); o != nil {
			size = min(max(int(o.UDPSize()), size), 1232)
		}
	}
	m.Truncate(size)
	_ = w.WriteMsg(m)
}

// take is one question's worth of a sandbox's allowance; leave follows its answer.
func (s *server) take(source netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.r.now()
	b := s.buckets[source]
	if b == nil {
		if len(s.buckets) > 1<<12 {
			maps.DeleteFunc(s.buckets, func(_ netip.Addr, b *bucket) bool { return b.waiting == 0 }) // sandboxes that are gone
		}
		b = &bucket{tokens: burst, last: now}
		s.buckets[source] = b
	}
	b.tokens = min(burst, b.tokens+now.Sub(b.last).Seconds()*rate)
	b.last = now
	if b.tokens < 1 || b.waiting >= perSource {
		return false
	}
	b.tokens--
	b.waiting++
	return true
}

func (s *server) leave(source netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[source].waiting--
}

func addrOf(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// Answer is the answer to one question; nil for what deserves none.
func (r *Resolver) Answer(ctx context.Context, q *dns.Msg, source netip.Addr) *dns.Msg {
	if q.Response {
		return nil
	}
	if q.Opcode != dns.OpcodeQuery {
		return reply(q, dns.RcodeNotImplemented, "")
	}
	if len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		return reply(q, dns.RcodeRefused, "one question of class IN at a time")
	}
	question := q.Question[0]
	name, ok := plan.Name(question.Name)
	p := r.Policy()
	event := plan.Event{Kind: "dns", Name: name, Proto: dns.TypeToString[question.Qtype], Source: source}
	if !ok {
		event.Name = printable(question.Name)
	}
	if p == nil || !ok || !p.Lookup(name).Any() {
		event.Verdict, event.Reason = plan.Blocked, "not allowed"
		r.log(event)
		return blocked(q, dns.ExtendedErrorCodeBlocked, "not allowed by the sandbox's profile")
	}
	event.Verdict = plan.Allowed
	if !p.Lookup(name).ListedAny() {
		event.Verdict, event.Reason = plan.WouldBlock, "not allowed"
	}
	if question.Qtype != dns.TypeA {
		// Without HTTPS records there is no ECH, without AAAA no way that has none.
		return reply(q, dns.RcodeSuccess, "")
	}
	addrs, ttl, err := r.Addresses(ctx, name)
	if err != nil {
		event.Reason = err.Error()
	}
	switch {
	case errors.Is(err, ErrBlocked), errors.Is(err, ErrInward), errors.Is(err, ErrChain):
		event.Verdict = plan.Blocked
		r.log(event)
		return blocked(q, dns.ExtendedErrorCodeFiltered, err.Error())
	case errors.Is(err, ErrNotFound):
		return reply(q, dns.RcodeNameError, "")
	case errors.Is(err, ErrNoData):
		return reply(q, dns.RcodeSuccess, "")
	case err != nil:
		r.log(event)
		return reply(q, dns.RcodeServerFailure, err.Error())
	}
	event.Addr = addrs[0]
	r.log(event)
	m := reply(q, dns.RcodeSuccess, "")
	for _, a := range addrs {
		// The name's own, whatever aliases lead there: nobody needs to ask for those.
		m.Answer = append(m.Answer, &dns.A{
			Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: uint32(min(ttl, maxTTL) / time.Second)}, //nolint:gosec // five minutes at most
			A:   a.AsSlice(),
		})
	}
	return m
}

func reply(q *dns.Msg, code int, why string) *dns.Msg {
	m := new(dns.Msg)
	m.SetRcode(q, code)
	m.RecursionAvailable = true
	if q.IsEdns0() != nil {
		m.SetEdns0(1232, false)
		if why != "" {
			tell(m, dns.ExtendedErrorCodeOther, why)
		}
	}
	return m
}

// blocked is faster and clearer for programs than a refusal.
func blocked(q *dns.Msg, code uint16, why string) *dns.Msg {
	m := reply(q, dns.RcodeNameError, "")
	if m.IsEdns0() != nil {
		tell(m, code, why)
	}
	return m
}

// tell adds an extended error (RFC 8914).
func tell(m *dns.Msg, code uint16, why string) {
	o := m.IsEdns0()
	o.Option = append(o.Option, &dns.EDNS0_EDE{InfoCode: code, ExtraText: "lazaret: " + why})
}

// printable bounds what goes into the log of a name that is none.
func printable(s string) string {
	if len(s) > 260 {
		s = s[:260]
	}
	return s // miekg/dns escapes whatever is not printable
}
