package network

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/nsutil"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// TestMain runs as root: the tests make network namespaces. The sandboxes are the
// test user's all the same.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 && !slices.Contains(os.Args, "-test.short=true") {
		self, err := os.Executable()
		if err == nil {
			cmd := exec.CommandContext(context.Background(), "sudo", append([]string{"-n", "--preserve-env", self}, os.Args[1:]...)...)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if cmd.Run() == nil {
				os.Exit(0)
			}
		}
		os.Exit(1)
	}
	code := m.Run()
	if builtProbe.path != "" {
		_ = os.RemoveAll(filepath.Dir(builtProbe.path))
	}
	os.Exit(code)
}

// Addresses of the world.
const (
	resolver = "192.0.2.53"
	good     = "203.0.113.10"
	good2    = "203.0.113.11"
	bad      = "198.51.100.10"
	shared   = "203.0.113.20" // of a listed and of an unlisted name
	private  = "10.9.9.9"
	metadata = "169.254.169.254"
	web      = "203.0.113.30" // of the sites of serves
)

// world is an internet of the test's own, behind a host of the test's own. Its
// servers are sockets of the test's process in the namespace beyond the host.
type world struct {
	t     *testing.T
	host  *os.File // where the test user's commands run
	net   *os.File // where the servers are
	enter []string

	mu      sync.Mutex
	names   map[string]func(n int) []string // records by name, of the n-th question
	asked   map[string]int
	packets map[string]int // what arrived: "proto dst:port"
	hosts   map[string]int // Host headers and server names that arrived
	sites   map[string]http.Handler
	ca      *authority
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("end-to-end tests need podman and runsc")
	}
	w := &world{t: t, names: map[string]func(int) []string{}, asked: map[string]int{}, packets: map[string]int{}, hosts: map[string]int{}, sites: map[string]http.Handler{}, ca: newAuthority(t)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.host, err = nsutil.New()
	must(err)
	w.net, err = nsutil.New()
	must(err)
	t.Cleanup(func() { _ = w.host.Close(); _ = w.net.Close() })
	must(nsutil.Do(w.host, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "wan"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "wan", PeerNamespace: netlink.NsFd(w.net.Fd())}); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		return addressed("wan", "192.168.77.2/24", "192.168.77.1", "fd77::2/64", "fd77::1")
	}))
	must(nsutil.Do(w.net, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		for _, a := range []string{resolver, good, good2, bad, shared, private, metadata, web} {
			addr, err := netlink.ParseAddr(a + "/32")
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(lo, addr); err != nil {
				return err
			}
		}
		return addressed("wan", "192.168.77.1/24", "", "fd77::1/64", "")
	}))
	dir := t.TempDir()
	conf := filepath.Join(dir, "resolv.conf")
	must(os.WriteFile(conf, []byte("nameserver "+resolver+"\n"), 0o644))
	w.enter = []string{
		"nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), w.host.Fd()),
		"unshare", "--mount", "--propagation", "slave", "sh", "-ceu", `mount --bind "$0" /etc/resolv.conf; exec "$@"`, conf,
	}
	w.capture()
	w.serve()
	return w
}

// addressed sets a link up with its addresses, and ways out by others.
func addressed(name, addr4, via4, addr6, via6 string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, s := range []string{addr4, addr6} {
		a, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	for _, s := range []string{via4, via6} {
		if s == "" {
			continue
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(s)}); err != nil {
			return err
		}
	}
	return nil
}

// capture counts what arrives in the world, whatever answers it.
func (w *world) capture() {
	w.t.Helper()
	var f *os.File
	if err := nsutil.Do(w.net, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		l, err := netlink.LinkByName("wan")
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), "capture")
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: l.Attrs().Index})
	}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = f.Close() })
	rc, err := f.SyscallConn()
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 2048)
		for {
			var n int
			var from unix.Sockaddr
			if err := rc.Read(func(fd uintptr) bool {
				var err error
				n, from, err = unix.Recvfrom(int(fd), buf, 0)
				return err != unix.EAGAIN
			}); err != nil || n < 0 {
				return
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if key := describe(buf[:n]); key != "" {
				w.mu.Lock()
				w.packets[key]++
				w.mu.Unlock()
			}
		}
	}()
}

func htons(n uint16) uint16 { return n>>8 | n<<8 }

func describe(b []byte) string {
	if len(b) >= 20 && b[0]>>4 == 4 {
		dst := netip.AddrFrom4([4]byte(b[16:20]))
		rest := b[min(len(b), int(b[0]&15)*4):]
		switch b[9] {
		case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
			if len(rest) >= 4 {
				return fmt.Sprintf("%d %s:%d", b[9], dst, binary.BigEndian.Uint16(rest[2:4]))
			}
		}
		return fmt.Sprintf("%d %s", b[9], dst)
	}
	if len(b) >= 40 && b[0]>>4 == 6 && b[6] != unix.IPPROTO_ICMPV6 { // neighbours look for each other
		return fmt.Sprintf("ip6 %d %s", b[6], netip.AddrFrom16([16]byte(b[24:40])))
	}
	return ""
}

// arrived is what has come to the world, but for the DNS server and what is listed.
func (w *world) arrived(but ...string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for key, n := range w.packets {
		if !slices.ContainsFunc(append(but, " "+resolver+":53", "ip6 0 ff02::16"), func(b string) bool { return strings.Contains(key, b) }) {
			out = append(out, fmt.Sprintf("%s ×%d", key, n))
		}
	}
	slices.Sort(out)
	return out
}

// questions is how often a name was asked for, of whatever type.
func (w *world) questions(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[strings.ToLower(name)]
}

// name gives a name fixed records, "A 1.2.3.4" or "CNAME other.test".
func (w *world) name(name string, records ...string) {
	w.vary(name, func(int) []string { return records })
}

func (w *world) vary(name string, records func(n int) []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = records
}

func (w *world) saw(host string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hosts[host]
}

func (w *world) see(host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts[host]++
}

func (w *world) answer(rw dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	name := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, "."))
	w.mu.Lock()
	w.asked[name]++
	n := w.asked[name]
	known := w.names[name] != nil
	for at, hops := name, 0; w.names[at] != nil && hops < 6; hops++ {
		next := ""
		for _, r := range w.names[at](n) {
			kind, value, _ := strings.Cut(r, " ")
			if kind == "CNAME" {
				next = value
				value += "."
			}
			if rr, err := dns.NewRR(fmt.Sprintf("%s. 5 IN %s %s", at, kind, value)); err == nil && (kind == "CNAME" || dns.StringToType[kind] == q.Question[0].Qtype) {
				m.Answer = append(m.Answer, rr)
			}
		}
		if at = next; at == "" {
			break
		}
	}
	w.mu.Unlock()
	if !known {
		m.Rcode = dns.RcodeNameError
	}
	_ = rw.WriteMsg(m)
}

// serve starts the world's servers: DNS, HTTP on 80, TLS on 443, one that says
// lines back on every other port that the tests use, on all addresses.
func (w *world) serve() {
	w.t.Helper()
	listen := func(port int) net.Listener {
		var ln net.Listener
		if err := nsutil.Do(w.net, func() error {
			var err error
			ln, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
			return err
		}); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = ln.Close() })
		return ln
	}
	packets := func(addr string) net.PacketConn {
		var pc net.PacketConn
		if err := nsutil.Do(w.net, func() error {
			var err error
			pc, err = net.ListenPacket("udp", addr)
			return err
		}); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = pc.Close() })
		return pc
	}
	h := dns.HandlerFunc(w.answer)
	go func() { _ = (&dns.Server{PacketConn: packets(resolver + ":53"), Handler: h}).ActivateAndServe() }()
	go func() { _ = (&dns.Server{Listener: listen(53), Handler: h}).ActivateAndServe() }()
	go func() {
		_ = http.Serve(listen(80), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { //nolint:gosec // ends with the test
			w.see(r.Host)
			if site := w.site(r.Host); site != nil {
				site.ServeHTTP(rw, r)
				return
			}
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(rw, "http %s %s %d\n", r.Host, r.URL.Path, len(body)) //nolint:gosec // what the client sent is the point
		}))
	}()
	secure := listen(443)
	sites := handoff{make(chan net.Conn), w.t.Context().Done()}
	go func() {
		_ = (&http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.site(r.Host).ServeHTTP(rw, r) })}).Serve(sites)
	}()
	go w.secured(secure, sites)
	for _, port := range []int{22, 853, 8080, 9999} {
		go echo(listen(port), "line")
	}
	for _, addr := range []string{good + ":443", good + ":9998", bad + ":443", bad + ":9998"} {
		pc := packets(addr)
		go func() {
			buf := make([]byte, 2048)
			for {
				n, from, err := pc.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = pc.WriteTo(buf[:n], from)
			}
		}()
	}
}

// serves puts a site into the world, over HTTP and TLS.
func (w *world) serves(name string, site http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sites[name] = site
}

func (w *world) site(name string) http.Handler {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sites[name]
}

// handoff is a listener whose connections come from elsewhere.
type handoff struct {
	conns chan net.Conn
	done  <-chan struct{}
}

func (h handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}
func (h handoff) Close() error   { return nil }
func (h handoff) Addr() net.Addr { return &net.TCPAddr{} }

// secured answers TLS by its server name: a site, or one that says lines back.
func (w *world) secured(ln net.Listener, sites handoff) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		w.see(h.ServerName)
		return w.ca.leaf(h.ServerName)
	}}
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			c := tls.Server(c, conf)
			if c.HandshakeContext(w.t.Context()) != nil {
				_ = c.Close()
				return
			}
			if w.site(c.ConnectionState().ServerName) == nil {
				lines(c, "tls")
				return
			}
			select {
			case sites.conns <- c:
			case <-sites.done:
				_ = c.Close()
			}
		}()
	}
}

func echo(ln net.Listener, word string) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go lines(c, word)
	}
}

func lines(c net.Conn, word string) {
	defer func() { _ = c.Close() }()
	in := bufio.NewScanner(c)
	for in.Scan() {
		if _, err := fmt.Fprintf(c, "%s %s %s\n", word, c.LocalAddr(), in.Text()); err != nil {
			return
		}
	}
}

// authority issues the world's certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		Subject: pkix.Name{CommonName: "world"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &authority{c, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a *authority) leaf(name string) (*tls.Certificate, error) {
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}, nil
}

// place is a test user's place in a world, with a workspace that has the probe.
type place struct {
	*harness.Harness
	w  *world
	t  *testing.T
	ws string
}

// profile is a profile's text.
func profile(name, mode string, allow, deny []string) string {
	return fmt.Sprintf("[profiles.%s]\nstate_paths = []\n[profiles.%s.network]\nmode = %q\nallow = [%s]\ndeny = [%s]\n", name, name, mode, list(allow), list(deny))
}

func list(all []string) string {
	out := make([]string, 0, len(all))
	for _, s := range all {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return strings.Join(out, ", ")
}

func (w *world) place(sandbox, config string) *place {
	w.t.Helper()
	h := harness.New(w.t, harness.Options{Sandbox: sandbox, Config: config, Filtered: true, Enter: w.enter})
	p := &place{Harness: h, w: w, t: w.t, ws: h.Workspace()}
	data, err := os.ReadFile(probe(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(p.ws, "probe")
	h.WriteFile(path, string(data))
	if err := os.Chmod(path, 0o755); err != nil {
		w.t.Fatal(err)
	}
	return p
}

var builtProbe struct { //nolint:gochecknoglobals // built once for all tests
	once sync.Once
	path string
	err  error
}

func probe(t *testing.T) string {
	t.Helper()
	builtProbe.once.Do(func() {
		dir, err := os.MkdirTemp("/var/tmp", "lazaret-probe.") //nolint:usetesting // for all tests of the package
		if err != nil {
			builtProbe.err = err
			return
		}
		builtProbe.path = filepath.Join(dir, "probe")
		cmd := exec.CommandContext(context.Background(), "go", "build", "-ldflags=-s -w", "-o", builtProbe.path, "./probe") //nolint:usetesting // likewise
		if g := os.Getenv("GO"); g != "" {
			cmd.Path, cmd.Args[0] = g, g
		}
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			builtProbe.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if builtProbe.err != nil {
		t.Fatal(builtProbe.err)
	}
	return builtProbe.path
}

// sandbox starts one that waits, by podman's further arguments.
func (p *place) sandbox(name string, args ...string) {
	p.t.Helper()
	p.Detached(p.ws, name, append(args, harness.Busybox, "sleep", "600")...)
}

// try runs the probe in a sandbox and returns its line.
func (p *place) try(name string, args ...string) string {
	p.t.Helper()
	r := p.Podman(append([]string{"exec", name, "/workspace/probe"}, args...)...)
	if r.Stdout == "" {
		p.t.Fatalf("%s: no outcome: %s", r.Args, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// check is a probe and what its line must be.
type check struct {
	want  string
	fails bool // an error with want in it, within seconds
	args  []string
}

// says wants a line that begins so, reaches one that has it and is no error, fails
// an error with it.
func says(want string, args ...string) check    { return check{"^" + want, false, args} }
func reaches(want string, args ...string) check { return check{want, false, args} }
func fails(want string, args ...string) check   { return check{want, true, args} }

// all runs probes, one after the other, in one exec.
func (p *place) all(name string, checks ...check) {
	p.t.Helper()
	var lines strings.Builder
	for _, c := range checks {
		lines.WriteString(strings.Join(c.args, "\t") + "\n")
	}
	p.WriteFile(filepath.Join(p.ws, "probes"), lines.String())
	out := strings.Split(p.Podman("exec", name, "/workspace/probe", "all", "/workspace/probes").OK(p.t), "\n")
	if len(out) != len(checks) {
		p.t.Fatalf("%d outcomes of %d probes: %q", len(out), len(checks), out)
	}
	for i, c := range checks {
		got := out[i]
		bare, begin := strings.CutPrefix(c.want, "^")
		failed := strings.HasPrefix(got, "error: ")
		switch {
		case failed != c.fails, begin && !strings.HasPrefix(got, bare), !begin && !strings.Contains(got, bare):
			p.t.Errorf("%v: %q, want %q (an error: %v)", c.args, got, bare, c.fails)
		case c.fails:
			var ms int
			if _, err := fmt.Sscanf(got[strings.LastIndex(got, "("):], "(%d ms)", &ms); err != nil || ms > 5000 {
				p.t.Errorf("%v: refused only after %d ms (%v)", c.args, ms, err)
			}
		}
	}
}
