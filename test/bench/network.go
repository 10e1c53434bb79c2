package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
	"github.com/lazaret-dev/lazaret/test/networld"
)

const (
	defaultNetworkTurns = 7
	download            = 128 << 20 // bytes
	lookups             = 20        // names a turn
	// The aims of a filtered network, against an unfiltered one of the same kind:
	// of throughput a ratio of times, else milliseconds; the sidecar's in bytes.
	aimThroughput = 1 / 0.95
	aimLatency    = 0.3
	aimColdNet    = 100.0
	aimWarmNet    = 10.0
	aimSidecar    = 10 << 20
)

const server = "203.0.113.10"

// runNetwork measures a filtered network against plain runsc on an uplink of the
// same program, in a world of its own. It needs root for that.
func runNetwork(t *testing.T, turns int) {
	names := map[string]string{"ok.test": server}
	for i := range lookups * (turns + 1) * 2 {
		names[fmt.Sprintf("n%d.ok.test", i)] = server
	}
	w := newWorld(t, names)
	b := &bench{Harness: harness.New(t, harness.Options{
		Enter:  w.Enter(),
		Config: "[profiles.default]\nstate_paths = []\n[profiles.default.network]\nallow = [\"ok.test\", \"*.ok.test\"]\n[profiles.open]\nstate_paths = []\n[profiles.open.network]\nmode = \"open\"\n",
	}), t: t, turns: turns}
	ws := b.Workspace()
	client := filepath.Join(ws, "netclient")
	b.WriteFile(client, "")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", client, "./test/bench/netclient")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(client, 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	run := func(name string, args ...string) []string {
		return append(args, "-d", "--name="+name, "-v", ws+":/workspace", harness.Busybox, "sleep", "100000")
	}
	b.Podman(run("filtered", append(lazaret, "run")...)...).OK(t)
	n := b.networkStatus(ws)
	b.Podman(run("plain", append(plainNone, "run", b.plainNetwork(n.Uplink))...)...).OK(t)

	row, flush := table(t)
	row("%s\nfiltered network, uplink %s; %d turns; milliseconds: median [quartiles]\n", b.machine(), n.Uplink, turns)
	row("in a sandbox\tplain runsc, ms\tfiltered, ms\tto plain\tmore, ms\taim")
	next := 0
	names20 := func() []string {
		next += lookups
		return []string{"lookups", "ok.test", strconv.Itoa(next - lookups), strconv.Itoa(lookups)}
	}
	fixed := func(args ...string) func() []string { return func() []string { return args } }
	for _, m := range []struct {
		name         string
		args         func() []string
		ratio, added float64 // the aim
	}{
		{fmt.Sprintf("download of %d MB, HTTP", download>>20), fixed("get", "http://ok.test/"), aimThroughput, 0},
		{fmt.Sprintf("download of %d MB, another port", download>>20), fixed("get", "http://ok.test:8080/"), aimThroughput, 0},
		{"upload of 64 MB, HTTP", fixed("put", "http://ok.test/"), aimThroughput, 0},
		{"HTTP request on a new connection", fixed("requests", "http://ok.test/small", "100"), 0, aimLatency},
		{"the same on another port", fixed("requests", "http://ok.test:8080/small", "100"), 0, aimLatency},
		{"connection, another port", fixed("connects", server+":8080", "200"), 0, aimLatency},
		{"lookup of a new name", names20, 0, 0},
	} {
		// The kernel lets an address pass once its name was asked for.
		measure := func(name string) func() time.Duration {
			return func() time.Duration {
				ns, err := strconv.ParseInt(b.Podman(append([]string{"exec", name, "/workspace/netclient"}, m.args()...)...).OK(t), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return time.Duration(ns)
			}
		}
		s := b.alternate([]string{"plain", "filtered"}, []func() time.Duration{measure("plain"), measure("filtered")})
		ratio, more := s[1].ratio(s[0]), s[1].difference(s[0])
		more.format = "%+.2f"
		aim := atMost(ratio.median, m.ratio)
		if m.added != 0 {
			aim = atMost(more.median, m.added)
		}
		row("  %s\t%s\t%s\t%s\t%s\t%s", m.name, s[0].fine(), s[1].fine(), ratio, more, aim)
		flush()
	}
	resident, private := b.residentMemory(strconv.Itoa(b.networkStatus(ws).Sidecar))
	row("\nsidecar's memory\t%.1f MB resident\t%.1f MB its own\t\t\t%s", float64(resident)/(1<<20), float64(private)/(1<<20), atMost(float64(resident), aimSidecar))

	other := b.Workspace()
	start := func(profile, ws string, ends bool) func() time.Duration {
		return func() time.Duration {
			r := b.Podman(append(lazaret, "run", "--rm", "--annotation=dev.lazaret.profile="+profile, "-v", ws+":/workspace", harness.Busybox, "true")...)
			r.OK(t)
			if ends {
				b.DomainEnds(profile, ws)
			}
			return r.Took
		}
	}
	b.Podman(append(lazaret, "run", "-d", "--name=open", "--annotation=dev.lazaret.profile=open", "-v", ws+":/workspace", harness.Busybox, "sleep", "100000")...).OK(t)
	s := b.alternate([]string{"", "", "", ""}, []func() time.Duration{
		start("open", other, true), start("default", other, true), start("open", ws, false), start("default", ws, false),
	})
	row("\nstart to exit of true\topen, ms\tfiltered, ms\t\tmore, ms\taim")
	row("  first in the domain\t%s\t%s\t\t%s\t%s", s[0].ms(), s[1].ms(), s[1].difference(s[0]), atMost(s[1].difference(s[0]).median, aimColdNet))
	row("  coordinator up\t%s\t%s\t\t%s\t%s", s[2].ms(), s[3].ms(), s[3].difference(s[2]), atMost(s[3].difference(s[2]).median, aimWarmNet))
	flush()
}

// fine is ms for short times.
func (s series) fine() spread { return newSpread(s.turns, "%.2f") }

// newWorld makes a world that serves downloads, uploads and short answers. It needs
// root.
func newWorld(t *testing.T, names map[string]string) *networld.World {
	if os.Geteuid() != 0 {
		t.Fatal("this benchmark makes network namespaces: run it as root")
	}
	w, err := networld.New(t.TempDir(), names)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			_, _ = io.Copy(io.Discard, r.Body) // the client sees it end
		case r.URL.Path == "/small":
			_, _ = io.WriteString(rw, "small\n")
		default:
			rw.Header().Set("Content-Length", strconv.Itoa(download))
			chunk := make([]byte, 1<<20)
			for range download / len(chunk) {
				if _, err := rw.Write(chunk); err != nil {
					return
				}
			}
		}
	})
	for _, addr := range []string{":80", ":8080"} {
		ln, err := w.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		go func() { _ = s.Serve(ln) }() // until the listener closes
		t.Cleanup(func() { _ = s.Close() })
	}
	return w
}

func (b *bench) networkStatus(ws string) wire.NetworkStatus {
	var n wire.NetworkStatus
	if err := json.Unmarshal([]byte(b.Run("lazaret", "net", "list", "--json", "--profile=default", "--workspace="+ws).OK(b.t)), &n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// plainNetwork is podman's flag for an unfiltered network by the same program as
// Lazaret's uplink, with packets of the same size.
func (b *bench) plainNetwork(uplink string) string {
	if uplink != "pasta" {
		return fmt.Sprintf("--network=slirp4netns:mtu=%d", plan.MTU)
	}
	// podman before 4.4 does not know pasta: a namespace is made for it, by a process
	// without the capabilities that pasta lacks when it opens that.
	cmd := b.Command(b.t.Context(), "podman", "unshare", "unshare", "--net", "setpriv", "--bounding-set=-all", "--inh-caps=-all", "sh", "-c", "echo $$; exec sleep 100000")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cmd.Cancel(); _ = cmd.Wait() })
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		b.t.Fatal(err)
	}
	ns := fmt.Sprintf("/proc/%d/ns/net", pid)
	pasta := b.Command(b.t.Context(), "podman", "unshare", "pasta", "--foreground", "--quiet", "--config-net", "--ipv4-only", "--no-map-gw",
		"--mtu", strconv.Itoa(plan.MTU), "--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none", "--netns", ns)
	if err := pasta.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = pasta.Cancel(); _ = pasta.Wait() })
	b.Eventually("pasta has its link", 10*time.Second, func() bool {
		return strings.Contains(b.Podman("unshare", "nsenter", "--net="+ns, "ip", "route").Stdout, "default")
	})
	return "--network=ns:" + ns
}
