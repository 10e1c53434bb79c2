package network

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// mostSidecar is what a sidecar may have resident after all of TestMany, in bytes.
const mostSidecar = 64 << 20

// Many names, many connections, a name whose addresses change, and a server name
// that is hidden. LAZARET_NETWORK_NAMES says how many names, of which a fifth are
// the connections at one time, a thousand at most.
func TestMany(t *testing.T) {
	t.Parallel()
	count := 2000
	if v := os.Getenv("LAZARET_NETWORK_NAMES"); v != "" {
		var err error
		if count, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	w.name("ok.test", "A "+good)
	for i := range count {
		w.name(fmt.Sprintf("%d.many.test", i), "A "+good2)
	}
	var moved atomic.Bool
	w.vary("rotate.test", func(int) []string {
		if moved.Load() {
			return []string{"A " + shared}
		}
		return []string{"A " + good}
	})
	p := w.place(harness.SandboxCurrent, profile("filt", "filtered", []string{"ok.test:80", "ok.test:443", "ok.test:9999", "*.many.test", "rotate.test"}, nil))
	p.sandbox("c", filt)

	// A name moves: what is open goes on, what is new goes to where it is now.
	p.all("c", reaches("line "+good+":22", "tcp", "rotate.test:22", "hi"))
	ends := p.hold("c", good+":22")
	moved.Store(true)

	p.all("c",
		// Another name than the one that is seen, and the one that is hidden is not listed.
		fails("access denied", "ech", "ok.test:443", "ok.test", "evil.test"),
		fails("access denied", "ech", "ok.test:443", "evil.test", "ok.test"),
		reaches("tls "+good+":443", "tls", "ok.test:443", "ok.test"),
	)
	gateway := strings.Fields(p.try("c", "server"))[0]
	p.long("c", fmt.Sprintf("%d of %d", count, count), "names", gateway+":53", ".many.test", strconv.Itoa(count))
	conns := min(count/5, 1000)
	p.long("c", fmt.Sprintf("%d of %d", conns, conns), "many", "ok.test:9999", strconv.Itoa(conns))
	p.all("c", reaches("http ok.test /", "raw", "ok.test:80", get("ok.test", "/")), reaches("line "+good2+":22", "tcp", "1.many.test:22", "hi"))

	p.Eventually("no new connection goes to the old address", 3*time.Minute, func() bool {
		return p.Podman("exec", "c", "/workspace/probe", "tcp", good+":22", "hi").Code != 0
	})
	p.all("c", reaches("line "+shared+":22", "tcp", "rotate.test:22", "hi"), fails("refused", "tcp", good+":22"))
	select {
	case <-ends:
		t.Error("an open connection ended when its name moved")
	default:
	}

	n := p.network()
	size := resident(t, n.Sidecar)
	t.Logf("sidecar has %d bytes resident", size)
	if size > mostSidecar {
		t.Errorf("sidecar has %d bytes resident", size)
	}
	if got := w.questions("evil.test") + w.saw("evil.test"); got > 0 {
		t.Errorf("evil.test was asked for or reached %d times", got)
	}
}

// resident is the memory that a process has resident, in bytes.
func resident(t *testing.T, pid int) (size int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "\nVmRSS:")
	if _, err := fmt.Sscan(rest, &size); err != nil || size == 0 {
		t.Fatalf("VmRSS of process %d: %d, %v", pid, size, err)
	}
	return size << 10
}

// long runs one probe that may take minutes.
func (p *place) long(name, want string, args ...string) {
	p.t.Helper()
	cmd := p.Command(p.t.Context(), "podman", append([]string{"exec", name, "/workspace/probe"}, args...)...)
	if r := harness.Do(cmd); !strings.HasPrefix(r.Stdout, want+" ") {
		p.t.Errorf("%v: %q, want %q: %s", args, r.Stdout, want, r.Stderr)
	}
}
