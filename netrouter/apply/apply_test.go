package apply

import (
	"bytes"
	"encoding/binary"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"

	"github.com/lazaret-dev/lazaret/internal/nsutil"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

var update = flag.Bool("update", false, "write the golden rulesets")

// The kernel's own view of the table, in a namespace of the test's.
func TestRuleset(t *testing.T) {
	t.Parallel()
	nft, err := exec.LookPath("nft")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("needs root, and nft to read the kernel's rules")
	}
	ns, err := nsutil.New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	addr := netip.MustParseAddr
	for _, mode := range []string{plan.Filtered, plan.Learn} {
		c := plan.Config{
			Mode: mode, Allow: []string{"ok.test", "port.test:22", "10.1.0.0/16", "192.0.2.7:5432"}, Deny: []string{"ok.test:25", "10.1.2.0/24", "10.1.3.4:22"},
			Sandboxes: []plan.Sandbox{{Index: 3, Name: "box", Gateway: addr("198.18.0.13"), Addr: addr("198.18.0.14")}, {Index: 4, Name: "server", Gateway: addr("198.18.0.17"), Addr: addr("198.18.0.18"), Inbound: true}},
			Resolver:  addr("198.19.255.3"), HostAddrs: []netip.Addr{addr("203.0.113.99")},
		}
		p, err := plan.Compile(c)
		if err != nil {
			t.Fatal(err)
		}
		var out []byte
		if err := nsutil.Do(ns, func() error {
			table := New()
			keep := func(Element) bool { return true }
			if err := table.Set(p, c.Sandboxes, c.Resolver, keep); err != nil {
				return err
			}
			a := addr("203.0.113.1")
			if err := table.commit([]Element{{Addr: a, TTL: time.Hour}, {Addr: a, Port: 25, Deny: true, TTL: time.Hour}, {Addr: a, Port: 22, TTL: time.Hour}}); err != nil {
				return err
			}
			// The whole once more: what is there stays, and nothing is there twice.
			if err := table.Set(p, c.Sandboxes, c.Resolver, keep); err != nil {
				return err
			}
			out, err = exec.CommandContext(t.Context(), nft, "list", "ruleset").Output()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		got := regexp.MustCompile(`timeout \S+ expires \S+`).ReplaceAllString(string(out), "timeout …")
		path := filepath.Join("testdata", mode+".nft")
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s:\n%s", mode, diff)
		}
	}
}

// destroyed is the kernel's message of a flow's end.
func destroyed(t testing.TB, src, dst, answers string, proto uint8, up, down uint64) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	tuple := func(src, dst string) func(*netlink.AttributeEncoder) error {
		return func(ae *netlink.AttributeEncoder) error {
			ae.Nested(tupleIP, func(ae *netlink.AttributeEncoder) error {
				ae.Bytes(ipSrc, netip.MustParseAddr(src).AsSlice())
				ae.Bytes(ipDst, netip.MustParseAddr(dst).AsSlice())
				return nil
			})
			ae.Nested(tupleProto, func(ae *netlink.AttributeEncoder) error {
				ae.ByteOrder = binary.BigEndian
				ae.Uint8(protoNum, proto)
				ae.Uint16(2, 40000)
				ae.Uint16(protoDstPort, 22)
				return nil
			})
			return nil
		}
	}
	counts := func(n uint64) func(*netlink.AttributeEncoder) error {
		return func(ae *netlink.AttributeEncoder) error {
			ae.ByteOrder = binary.BigEndian
			ae.Uint64(1, 7)
			ae.Uint64(countersBytes, n)
			return nil
		}
	}
	ae.Nested(ctOrig, tuple(src, dst))
	ae.Nested(ctReply, tuple(answers, src))
	ae.Nested(ctCountOrig, counts(up))
	ae.Nested(ctCountReply, counts(down))
	b, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		src, dst, answers string
		proto             uint8
		want              string
	}{
		{"passed", "198.18.0.2", "203.0.113.1", "203.0.113.1", 6, "tcp 203.0.113.1:22"},
		{"UDP", "198.18.0.2", "203.0.113.1", "203.0.113.1", 17, "udp 203.0.113.1:22"},
		{"led to a service", "198.18.0.2", "203.0.113.1", "198.18.0.1", 6, ""},
		{"to a service", "198.18.0.2", "198.18.0.1", "198.18.0.1", 6, ""},
		{"the sidecar's own", "198.19.255.100", "198.19.255.3", "198.19.255.3", 17, ""},
		{"nobody's", "192.0.2.1", "203.0.113.1", "203.0.113.1", 6, ""},
		{"IPv6", "fd00::1", "fd00::2", "fd00::2", 6, ""},
	} {
		e, ok := parseEnd(destroyed(t, tt.src, tt.dst, tt.answers, tt.proto, 100, 2000))
		got := ""
		if ok {
			got = e.Proto + " " + e.Dst.String()
			if e.Up != 100 || e.Down != 2000 || e.Src.String() != tt.src {
				t.Errorf("%s: %+v", tt.name, e)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzEnd(f *testing.F) {
	f.Add(destroyed(f, "198.18.0.2", "203.0.113.1", "203.0.113.1", 6, 1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, ok := parseEnd(b); ok && (!plan.Range().Contains(e.Src) || plan.Range().Contains(e.Dst.Addr())) {
			t.Errorf("%+v is no sandbox's", e)
		}
	})
}

func FuzzFlow(f *testing.F) {
	f.Add(append([]byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 198, 18, 0, 2, 203, 0, 113, 1}, bytes.Repeat([]byte{0}, 20)...))
	f.Add(append([]byte{0x60}, bytes.Repeat([]byte{0}, 60)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if f, ok := parseFlow(b); ok && (!f.Src.IsValid() || !f.Dst.Addr().IsValid()) {
			t.Errorf("%+v has no addresses", f)
		}
	})
}
