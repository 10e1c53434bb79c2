package console

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

func TestNetOf(t *testing.T) {
	t.Parallel()
	last := began.Format(time.RFC3339)
	st := &wire.Status{Domain: domain.Anchor{Profile: "dev"}, Network: &wire.NetworkStatus{
		Mode: "filtered", Allow: []string{"*.listed.test", "@debian"}, Deny: []string{"never.test"},
		Session: []wire.NetworkChange{{Entry: "now.test:443"}},
		Blocked: []wire.NetworkBlocked{ // the newest first
			{Name: "b.test", Port: 80, Proto: "tcp", Count: 2, Last: last},
			{Name: "a.test", Proto: "AAAA", Count: 1, Last: last},
			{Name: "a.test", Proto: "A", Count: 3, Last: last},
			{Name: "x.test y.test", Addr: "203.0.113.1", Port: 22, Proto: "tcp", Count: 1, Last: last},
			{Addr: "203.0.113.2", Port: 22, Proto: "udp", Count: 1, Last: last},
			{Addr: "203.0.113.2", Proto: "icmp", Count: 1, Last: last},
			{Addr: "fd77::1", Port: 22, Proto: "tcp", Count: 1, Last: last},
			{Name: "never.test", Proto: "A", Count: 1, Last: last},
			{Name: "in.listed.test", Proto: "A", Count: 1, Last: last},
			{Name: "now.test", Proto: "A", Count: 1, Last: last},
			{Name: "a\x1b[2J.test", Proto: "A", Count: 1, Last: last},
			{Name: "lone.test", Port: 443, Proto: "tcp", Would: true, Count: 1, Last: last},
			{Name: "asked.test", Proto: "A", Would: true, Count: 1, Last: last},
		},
	}}
	var got []string
	for _, r := range netOf(st).Refused {
		got = append(got, fmt.Sprint(r.Entry, " ", r.Count))
	}
	want := []string{"lone.test:443 1", "203.0.113.2:22 1", "x.test:22 1", "y.test:22 1", "a.test:443 4", "b.test:80 2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := netOf(&wire.Status{}); len(n.Refused) > 0 {
		t.Errorf("no network refuses %v", n)
	}
}

func refusing(entries ...string) *Net {
	n := &Net{Of: domain.Anchor{Profile: "dev", Workspace: "/home/u/project"}}
	for i, e := range entries {
		n.Refused = append(n.Refused, Refused{e, i + 1, began})
	}
	return n
}

func TestNetworkScreens(t *testing.T) {
	for _, width := range []int{80, 40} {
		name := func(s string) string { return fmt.Sprintf("%s%d", s, width) }
		p := newPerson(t, width, 24)
		p.keys("n")
		p.golden(name("net-nothing"))
		p.keys("esc")
		p.tell(updateMsg{Socket: "a", Open: true, Net: refusing("registry.npmjs.org:443", "203.0.113.2:22", "a-very-long-name-of-a-host.of-a-cloud-provider.example.com:8443")})
		learning := refusing("learnt.test:443")
		learning.Learn, learning.Of = true, domain.Anchor{Profile: "pro\x1b[2Jfile-of-many-letters"}
		p.tell(updateMsg{Socket: "b", Open: true, Net: learning})
		p.clock = p.clock.Add(65 * time.Second)
		p.golden(name("net-title"))
		p.keys("n", "down")
		p.golden(name("net"))
		p.keys("p")
		p.golden(name("net-added"))
		p.fail = errors.New("the file is\x1b[2J written by hand")
		p.keys("p")
		p.golden(name("net-failed"))
		p.fail = nil
		p.keys("j")
		p.golden(name("net-long"))
	}
}

// A key is for what was selected when it was pressed, whatever has come or gone.
func TestNetworkKeys(t *testing.T) {
	t.Parallel()
	p := newPerson(t, 80, 24)
	p.tell(updateMsg{Socket: "a", Open: true, Net: refusing("a.test:443", "b.test:443", "c.test:443")})
	p.keys("n", "j", "a")
	p.tell(updateMsg{Socket: "a", Open: true, Net: refusing("0.test:443", "b.test:443", "c.test:443", "d.test:443")})
	p.keys("a", "p")
	p.tell(updateMsg{Socket: "a", Open: true, Net: refusing("c.test:443")}) // b.test is allowed now
	p.keys("a", "p")
	if !strings.Contains(p.screen(), "select a destination first") {
		t.Errorf("a key hit what was not selected:\n%s", p.screen())
	}
	p.keys("j", "a")
	p.tell(updateMsg{Socket: "a"})
	p.keys("a", "p", "j", "k", "G")
	want := []string{"allow a b.test:443", "allow a b.test:443", "save dev b.test:443", "allow a b.test:443", "allow a c.test:443"}
	if !slices.Equal(p.did, want) {
		t.Errorf("did %q, want %q", p.did, want)
	}
	p.fail = errors.New("no")
	p.tell(updateMsg{Socket: "a", Open: true, Net: refusing("a.test:443")})
	p.did = nil
	p.keys("j", "p")
	if want := []string{"save dev a.test:443"}; !slices.Equal(p.did, want) {
		t.Errorf("after a failure to save: did %q, want %q", p.did, want)
	}
	p.keys("q")
	if p.net.open || p.quit {
		t.Error("q leaves the list alone")
	}
}
