// Package trust owns the Trust Anchor: a certificate authority that lives in a
// coordinator's memory only, its server certificate, and the short-lived client
// certificate of each sandbox.
package trust

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"sync"
	"time"
)

const (
	// Life is how long a client certificate is good; at half of it, a new one is due.
	Life = time.Hour
	// backdate keeps a clock that is set back a little from refusing everything.
	backdate = 5 * time.Minute
	// anchorLife outlasts every coordinator.
	anchorLife = 10 * 365 * 24 * time.Hour
)

// Name is the one URI that a sandbox's certificate has as its subject's
// alternative name.
func Name(domainHash, profile, sandbox string) string {
	return "lazaret://" + domainHash + "/" + profile + "/" + sandbox
}

// Anchor is a certificate authority whose key never leaves this process.
type Anchor struct {
	key    ed25519.PrivateKey
	cert   *x509.Certificate
	pool   *x509.CertPool
	server tls.Certificate
	now    func() time.Time
}

// New makes an authority and its certificate for a server of that name, which
// clients check. now is the clock, nil for the machine's.
func New(server string, now func() time.Time) (*Anchor, error) {
	if now == nil {
		now = time.Now
	}
	a := &Anchor{now: now, pool: x509.NewCertPool()}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the trust anchor: %w", err)
	}
	a.key = key
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Lazaret Trust Anchor"},
		NotBefore: now().Add(-backdate), NotAfter: now().Add(anchorLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, public, key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, fmt.Errorf("make the trust anchor: %w", err)
	}
	a.pool.AddCert(a.cert)
	public, key, err = ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the server certificate: %w", err)
	}
	der, err = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: server}, DNSNames: []string{server},
		NotAfter: now().Add(anchorLife), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, public)
	if err != nil {
		return nil, fmt.Errorf("make the server certificate: %w", err)
	}
	a.server = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return a, nil
}

// sign completes tmpl: a random serial, not a CA, valid from a little ago.
func (a *Anchor) sign(tmpl *x509.Certificate, public ed25519.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	tmpl.SerialNumber, tmpl.NotBefore = serial, a.now().Add(-backdate)
	tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, x509.KeyUsageDigitalSignature
	return x509.CreateCertificate(rand.Reader, tmpl, a.cert, public, a.key)
}

// PEM is the authority's certificate.
func (a *Anchor) PEM() []byte { return block("CERTIFICATE", a.cert.Raw) }

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Identity is who one sandbox is: a key for its life, and the certificates of it
// that are good now. Its methods may be called at the same time.
type Identity struct {
	anchor *Anchor
	name   string
	public ed25519.PublicKey
	keyPEM []byte

	// mu guards the fields below.
	mu      sync.Mutex
	good    []string // serials of the current certificate and the one before it
	expires time.Time
	revoked bool
}

// Identify makes the identity called name, a URI, which has no certificate yet.
func (a *Anchor) Identify(name string) (*Identity, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of %s: %w", name, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make the key of %s: %w", name, err)
	}
	return &Identity{anchor: a, name: name, public: public, keyPEM: block("PRIVATE KEY", der)}, nil
}

// KeyPEM is the private key.
func (i *Identity) KeyPEM() []byte { return i.keyPEM }

// Issue makes a new certificate. The one before it stays good until the next; older
// ones are not any more.
func (i *Identity) Issue() (certPEM []byte, err error) {
	uri, err := url.Parse(i.name)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of %s: %w", i.name, err)
	}
	tmpl := &x509.Certificate{
		URIs: []*url.URL{uri}, NotAfter: i.anchor.now().Add(Life),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := i.anchor.sign(tmpl, i.public)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of %s: %w", i.name, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.revoked {
		return nil, fmt.Errorf("make the certificate of %s: it is revoked", i.name)
	}
	i.good = append(i.good, tmpl.SerialNumber.String())
	i.good = i.good[max(0, len(i.good)-2):]
	i.expires = tmpl.NotAfter
	return block("CERTIFICATE", der), nil
}

// Due reports whether the certificate has lived for half of its life, by the
// clock on the wall: a machine may have slept.
func (i *Identity) Due() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.revoked && i.anchor.now().Add(Life/2).After(i.expires)
}

// Revoke makes every certificate of i bad for good.
func (i *Identity) Revoke() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revoked, i.good = true, nil
}

// Check refuses a certificate that is not one of i's good ones. That the authority
// signed it and that it is valid now has been checked.
func (i *Identity) Check(cert *x509.Certificate) error {
	if len(cert.URIs) != 1 || cert.URIs[0].String() != i.name || len(cert.DNSNames)+len(cert.EmailAddresses)+len(cert.IPAddresses) != 0 {
		return fmt.Errorf("certificate is not %s's", i.name)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range i.good {
		if s == cert.SerialNumber.String() {
			return nil
		}
	}
	return errors.New("certificate has been replaced or revoked")
}

// ServerConfig is for a listener that serves i alone: TLS 1.3, no resumption,
// a client certificate that i.Check takes. Nothing on the way records what a
// quantum computer could read one day: the hybrid exchange would only cost.
func (i *Identity) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.anchor.server},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: i.anchor.pool,
		CurvePreferences:       []tls.CurveID{tls.X25519},
		SessionTicketsDisabled: true, // a ticket would outlive its certificate
		Time:                   i.anchor.now,
		NextProtos:             []string{"http/1.1"},
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) != 1 {
				return errors.New("client sent no certificate, or a chain")
			}
			return i.Check(cs.PeerCertificates[0])
		},
	}
}
