package dns

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/lazaret-dev/lazaret/netrouter/apply"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

// zone answers from records, each "name KIND value".
func zone(records ...string) (exchange, *[]string) {
	var asked []string
	return func(_ context.Context, name string) (*dns.Msg, error) {
		asked = append(asked, name)
		m := new(dns.Msg)
		m.SetQuestion(dns.Fqdn(name), dns.TypeA)
		m.Response = true
		for _, r := range records {
			f := strings.Fields(r)
			rr, err := dns.NewRR(f[0] + ". 3 IN " + f[1] + " " + f[2])
			if err != nil {
				return nil, err
			}
			m.Answer = append(m.Answer, rr)
		}
		return m, nil
	}, &asked
}

func TestChase(t *testing.T) {
	t.Parallel()
	long := []string{}
	for i := range 20 {
		long = append(long, "c"+string(rune('a'+i))+".test CNAME c"+string(rune('b'+i))+".test.")
	}
	tests := []struct {
		name    string
		records []string
		want    string
		err     error
	}{
		{"an address", []string{"a.test A 192.0.2.1"}, "192.0.2.1", nil},
		{"an alias", []string{"a.test CNAME b.test.", "b.test A 192.0.2.2"}, "192.0.2.2", nil},
		{"what nobody asked for", []string{"other.test A 192.0.2.3"}, "", ErrNoData},
		{"beside the chain", []string{"a.test CNAME b.test.", "b.test A 192.0.2.2", "c.test A 192.0.2.3"}, "192.0.2.2", nil},
		{"a circle", []string{"a.test CNAME b.test.", "b.test CNAME a.test."}, "", ErrChain},
		{"to itself", []string{"a.test CNAME a.test."}, "", ErrChain},
		{"to a denied name", []string{"a.test CNAME denied.test.", "denied.test A 192.0.2.2"}, "", ErrChain},
		{"two aliases", []string{"a.test CNAME b.test.", "a.test CNAME c.test.", "b.test A 192.0.2.2"}, "", ErrNoData},
		{"too long", append(long, "a.test CNAME ca.test."), "", ErrChain},
	}
	for _, tt := range tests {
		ask, _ := zone(tt.records...)
		got, _, err := chase(t.Context(), "a.test", func(n string) bool { return n == "denied.test" }, ask)
		if !errors.Is(err, tt.err) || err == nil && (len(got) != 1 || got[0].String() != tt.want) {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

type table []apply.Element

func (t *table) Allow(_ context.Context, e []apply.Element) error { *t = append(*t, e...); return nil }

// A name that is not allowed is answered without anybody being asked: there is no
// resolver at the address that the policy names.
func TestAnswerOfItself(t *testing.T) {
	t.Parallel()
	var kernel table
	r := New(&kernel, func(plan.Event) {})
	p, err := plan.Compile(plan.Config{Mode: plan.Filtered, Allow: []string{"ok.test"}, Resolver: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Switch(p, netip.MustParseAddr("127.0.0.1"), func(func(apply.Element) bool) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"evil.test.": dns.RcodeNameError, "1.2.0.192.in-addr.arpa.": dns.RcodeNameError, `ok.test\000.evil.test.`: dns.RcodeNameError} {
		q := new(dns.Msg).SetQuestion(name, dns.TypeA)
		if m := r.Answer(t.Context(), q, netip.Addr{}); m.Rcode != want || len(m.Answer) > 0 {
			t.Errorf("%s: %v", name, m)
		}
	}
	for _, kind := range []uint16{dns.TypeAAAA, dns.TypeHTTPS, dns.TypeTXT, dns.TypeANY} {
		q := new(dns.Msg).SetQuestion("ok.test.", kind)
		if m := r.Answer(t.Context(), q, netip.Addr{}); m.Rcode != dns.RcodeSuccess || len(m.Answer) > 0 {
			t.Errorf("type %d: %v", kind, m)
		}
	}
	if len(kernel) > 0 {
		t.Errorf("the kernel was told of %v", kernel)
	}
}

func TestWanted(t *testing.T) {
	t.Parallel()
	p, err := plan.Compile(plan.Config{Mode: plan.Filtered, Allow: []string{"all.test", "web.test:443", "ssh.test:22"}, Deny: []string{"all.test:25"}, Resolver: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr("192.0.2.1")
	for name, want := range map[string][]apply.Element{
		"all.test": {{Addr: a, Port: 25, Deny: true}, {Addr: a}}, "web.test": nil, "ssh.test": {{Addr: a, Port: 22}},
	} {
		if got := wanted(p.Lookup(name), a, 0); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// One sandbox's questions do not use up another's, at once or in a second.
func TestLimits(t *testing.T) {
	t.Parallel()
	clock := time.Unix(1e9, 0)
	r := New(new(table), func(plan.Event) {})
	r.now = func() time.Time { return clock }
	s := &server{r: r, buckets: map[netip.Addr]*bucket{}}
	a, b := netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("198.18.0.6")
	asked := func(source netip.Addr, answered bool) (n int) {
		for range 2 * burst {
			if s.take(source) {
				n++
				if answered {
					s.leave(source)
				}
			}
		}
		return n
	}
	if n := asked(a, true); n != burst {
		t.Errorf("%d questions at once, want %d", n, burst)
	}
	clock = clock.Add(time.Second)
	if n := asked(a, true); n != rate {
		t.Errorf("%d questions a second later, want %d", n, rate)
	}
	if n := asked(b, false); n != perSource {
		t.Errorf("%d questions without an answer, want %d", n, perSource)
	}
	s.leave(b)
	if !s.take(b) || s.take(b) {
		t.Error("an answer does not make room for one question")
	}
}

// FuzzAnswer: whatever comes, the answer is one of DNS, and the kernel hears of
// nothing.
func FuzzAnswer(f *testing.F) {
	q, err := new(dns.Msg).SetQuestion("evil.test.", dns.TypeA).Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(q)
	f.Fuzz(func(t *testing.T, in []byte) {
		m := new(dns.Msg)
		if m.Unpack(in) != nil {
			return
		}
		var kernel table
		r := New(&kernel, func(plan.Event) {})
		answer := r.Answer(t.Context(), m, netip.Addr{})
		if answer == nil {
			return
		}
		if len(answer.Answer) > 0 || len(kernel) > 0 {
			t.Errorf("an answer without a policy: %v", answer)
		}
		if _, err := answer.Pack(); err != nil {
			t.Errorf("an answer that cannot be sent: %v", err)
		}
	})
}
