package trust

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const server = "server.test"

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

// shake runs a handshake of a client with i's listener, and tells what each found.
func shake(t *testing.T, i *Identity, client *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s")) // a pipe has no room: both sides would write
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	near, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	_, _ = near.SetDeadline(deadline), far.SetDeadline(deadline)
	done := make(chan error, 1)
	go func() {
		s := tls.Server(far, i.ServerConfig())
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		_ = far.Close()
		done <- err
	}()
	c := tls.Client(near, client)
	err = c.Handshake()
	if err == nil {
		_, err = c.Read(make([]byte, 1)) // the server judges after our part is done
	}
	_ = near.Close()
	return err, <-done
}

func pair(t *testing.T, cert, key []byte) tls.Certificate {
	t.Helper()
	p, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHandshake(t *testing.T) {
	c := &clock{time.Now()}
	newAnchor := func() *Anchor {
		a, err := New(server, c.now)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	identify := func(a *Anchor, sandbox string) *Identity {
		i, err := a.Identify(Name("0123456789ab", "dev", sandbox))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	issue := func(i *Identity) tls.Certificate {
		cert, err := i.Issue()
		if err != nil {
			t.Fatal(err)
		}
		return pair(t, cert, i.KeyPEM())
	}
	a, stranger := newAnchor(), newAnchor()
	box, other := identify(a, "box"), identify(a, "other")
	oldest, old, current := issue(box), issue(box), issue(box)
	again := identify(a, "box") // the same name, made once more
	revoked := identify(a, "box")
	revokedCert := issue(revoked)
	revoked.Revoke()
	tests := []struct {
		name   string
		at     *Identity
		certs  []tls.Certificate
		roots  *Anchor
		server string
		max    uint16
		skip   time.Duration
		err    string // part of the server's or client's; "" for a good handshake
	}{
		{name: "current", at: box, certs: []tls.Certificate{current}},
		{name: "the one before", at: box, certs: []tls.Certificate{old}},
		{name: "the one before that", at: box, certs: []tls.Certificate{oldest}, err: "replaced or revoked"},
		{name: "none", at: box, err: "certificate"},
		{name: "another sandbox's", at: box, certs: []tls.Certificate{issue(other)}, err: "is not lazaret://0123456789ab/dev/box"},
		{name: "of an earlier life of the sandbox", at: again, certs: []tls.Certificate{current}, err: "replaced or revoked"},
		{name: "another coordinator's", at: box, certs: []tls.Certificate{issue(identify(stranger, "box"))}, err: "certificate"},
		{name: "the server's own", at: box, certs: []tls.Certificate{a.server}, err: "certificate"},
		{name: "expired", at: box, certs: []tls.Certificate{current}, skip: Life + time.Second, err: "expired"},
		{name: "revoked", at: revoked, certs: []tls.Certificate{revokedCert}, err: "replaced or revoked"},
		{name: "TLS 1.2", at: box, certs: []tls.Certificate{current}, max: tls.VersionTLS12, err: "version"},
		{name: "a server of another authority", at: box, certs: []tls.Certificate{current}, roots: stranger, err: "authority"},
		{name: "a server of another name", at: box, certs: []tls.Certificate{current}, server: "x.test", err: "x.test"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c.t = c.t.Add(tt.skip)
			defer func() { c.t = c.t.Add(-tt.skip) }()
			roots := x509.NewCertPool()
			roots.AddCert(a.cert)
			if tt.roots != nil {
				roots = tt.roots.pool
			}
			conf := &tls.Config{RootCAs: roots, ServerName: server, Certificates: tt.certs, MaxVersion: tt.max, Time: c.now}
			if tt.server != "" {
				conf.ServerName = tt.server
			}
			clientErr, serverErr := shake(t, tt.at, conf)
			if tt.err == "" {
				if clientErr != nil || serverErr != nil {
					t.Errorf("client %v, server %v", clientErr, serverErr)
				}
				return
			}
			if clientErr == nil || serverErr == nil {
				t.Fatalf("client %v, server %v", clientErr, serverErr)
			}
			if !strings.Contains(serverErr.Error()+clientErr.Error(), tt.err) {
				t.Errorf("client %v, server %v, want %q", clientErr, serverErr, tt.err)
			}
		})
	}
}

func TestDue(t *testing.T) {
	c := &clock{time.Now()}
	a, err := New(server, c.now)
	if err != nil {
		t.Fatal(err)
	}
	i, err := a.Identify(Name("0123456789ab", "dev", "box"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Issue(); err != nil || i.Due() {
		t.Errorf("due at once, or %v", err)
	}
	c.t = c.t.Add(Life/2 + time.Second)
	if !i.Due() {
		t.Error("not due at half of its life")
	}
	if _, err := i.Issue(); err != nil || i.Due() {
		t.Errorf("due after it was renewed, or %v", err)
	}
	i.Revoke()
	c.t = c.t.Add(Life)
	if _, err := i.Issue(); err == nil || i.Due() {
		t.Error("issued after it was revoked")
	}
}
