package plan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/netrule"
)

func compile(t *testing.T, mode string, allow, deny []string) *Policy {
	t.Helper()
	p, err := Compile(Config{
		Mode: mode, Allow: allow, Deny: deny, Resolver: netip.MustParseAddr("198.19.255.3"),
		HostAddrs: []netip.Addr{netip.MustParseAddr("203.0.113.99")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What docs/network.md says of names, row by row.
func TestNames(t *testing.T) {
	t.Parallel()
	p := compile(t, Filtered, []string{"example.com", "*.pkg.test", "web.test:8443", "*.cdn.test:443", "half.test"}, []string{"bad.pkg.test", "half.test:22", "*.deep.pkg.test"})
	tests := []struct {
		name string
		port uint16
		want bool
	}{
		{"example.com", 80, true},
		{"example.com.", 443, true},
		{"EXAMPLE.com", 22, true},
		{"evilexample.com", 80, false},
		{"www.example.com", 80, false},
		{"example.com.evil.test", 80, false},
		{"a.pkg.test", 80, true},
		{"a.b.pkg.test", 80, true},
		{"pkg.test", 80, false},
		{"xpkg.test", 80, false},
		{"bad.pkg.test", 80, false},
		{"x.bad.pkg.test", 80, true},
		{"x.deep.pkg.test", 80, false},
		{"web.test", 8443, true},
		{"web.test", 443, false},
		{"a.cdn.test", 443, true},
		{"a.cdn.test", 80, false},
		{"half.test", 443, true},
		{"half.test", 22, false},
		{"0x7f.1", 80, false},
		{"2130706433", 80, false},
		{"127.0.0.1", 80, false},
		{"example.com\x00.evil.test", 80, false},
		{`example.com\000.evil.test`, 80, false},
		{"xn--exmple-cua.com", 80, false},
		{"", 80, false},
		{"*", 80, false},
		{"*.pkg.test", 80, false},
		{"@debian", 80, false},
		{"example.com:80", 80, false},
	}
	for _, tt := range tests {
		name, ok := Name(tt.name)
		if got := ok && p.Lookup(name).Has(tt.port); got != tt.want {
			t.Errorf("%q port %d: %v, want %v", tt.name, tt.port, got, tt.want)
		}
	}
}

func TestEmptyListsAllowNothing(t *testing.T) {
	t.Parallel()
	p := compile(t, Filtered, nil, nil)
	if p.Lookup("example.com").Any() || p.ByAddr(netip.MustParseAddrPort("203.0.113.1:80")) {
		t.Error("an empty list allows something")
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	p := compile(t, Filtered, []string{"10.1.0.0/16", "192.168.1.1:8080"}, []string{"10.1.2.0/24", "203.0.113.7:22"})
	for addr, want := range map[string]bool{
		"203.0.113.1:80": true, "203.0.113.7:22": false, "203.0.113.7:23": true, "203.0.113.99:80": false, "127.0.0.1:80": false,
		"10.0.0.1:80": false, "10.1.1.1:80": true, "10.1.2.1:80": false, "192.168.1.1:8080": true, "192.168.1.1:80": false,
		"169.254.169.254:80": false, "100.64.0.1:80": false, "0.0.0.0:80": false, "224.0.0.1:80": false, "255.255.255.255:80": false,
		"198.18.0.1:80": false, "198.19.255.2:80": false, "[::1]:80": false, "[2001:db8::1]:80": false, "[::ffff:203.0.113.1]:80": false,
	} {
		to := netip.MustParseAddrPort(addr)
		if got := p.Addr(to.Addr(), to.Port()); got != want {
			t.Errorf("a name that leads to %s: %v, want %v", addr, got, want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	good := netip.MustParseAddr("198.19.255.3")
	for want, c := range map[string]Config{
		"not the sidecar's": {Mode: "open", Resolver: good},
		"resolver":          {Mode: Filtered},
		"IPv6":              {Mode: Filtered, Resolver: good, Allow: []string{"2001:db8::/32"}},
		"not one":           {Mode: Filtered, Resolver: good, Allow: []string{"@debian"}},
		"every address":     {Mode: Filtered, Resolver: good, Allow: []string{"0.0.0.0/0"}},
		"not one of ours":   {Mode: Filtered, Resolver: good, Sandboxes: []Sandbox{{Addr: netip.MustParseAddr("10.0.0.1"), Gateway: netip.MustParseAddr("198.18.0.1")}}},
	} {
		if _, err := Compile(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	p := compile(t, Filtered, []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "192.0.2.0/25", "192.0.2.128/25"}, nil)
	var got []string
	for _, n := range p.Nets {
		got = append(got, n.String())
	}
	if want := "10.0.0.0/8 192.0.2.0/25 192.0.2.128/25"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Whatever rules there are: a name that has no rule, or denies all, has no port.
func FuzzRules(f *testing.F) {
	f.Add("example.com", "*.example.com", "www.example.com")
	f.Add("a.b:80", "10.0.0.0/8", "a.b")
	f.Fuzz(func(t *testing.T, allow, deny, name string) {
		p, err := Compile(Config{Mode: Filtered, Allow: []string{allow}, Deny: []string{deny}, Resolver: netip.MustParseAddr("198.19.255.3")})
		if err != nil {
			return
		}
		n, ok := Name(name)
		if !ok {
			return
		}
		ports := p.Lookup(n)
		r, err := netrule.Parse(allow)
		if err == nil && r.Host != "" && ports.Any() && n != r.Host && !strings.HasSuffix(n, "."+r.Host) {
			t.Errorf("%q allows %q", allow, n)
		}
		d, err := netrule.Parse(deny)
		if err == nil && d.Host == n && !d.Wildcard && d.Port == 0 && ports.Any() {
			t.Errorf("%q does not deny %q", deny, n)
		}
	})
}
