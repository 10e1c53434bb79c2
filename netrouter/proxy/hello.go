package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

// maxHello bounds what a client may send before its name is known.
const maxHello = 64 << 10

// Reasons to refuse a TLS connection.
var (
	errNoTLS = errors.New("not TLS")
	errNoSNI = errors.New("TLS without a server name")
	errECH   = errors.New("TLS with an encrypted server name (ECH)")
	errName  = errors.New("server name is none")
)

// extensionECH is encrypted_client_hello's number.
const extensionECH = 0xfe0d

// readHello reads a ClientHello and returns the server name in it, as plan.Name
// gives it, and all that was read.
func readHello(r io.Reader) (name string, read []byte, err error) {
	c := &replay{r: io.LimitReader(r, maxHello)}
	err = errNoTLS
	seen := false
	// The standard library's parser; the handshake ends with the hello.
	_ = tls.Server(c, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			seen = true
			var ok bool
			switch {
			case slices.Contains(h.Extensions, extensionECH):
				err = errECH
			case h.ServerName == "":
				err = errNoSNI
			default:
				if name, ok = plan.Name(h.ServerName); !ok {
					err = errName
				} else {
					err = nil
				}
			}
			return nil, errNoTLS
		},
	}).Handshake()
	if !seen && c.err != nil && !errors.Is(c.err, io.EOF) {
		err = c.err
	}
	return name, c.got.Bytes(), err
}

// replay is a connection of which only the reading half is there.
type replay struct {
	r   io.Reader
	got bytes.Buffer
	err error
}

func (c *replay) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.got.Write(p[:n])
	if err != nil {
		c.err = err
	}
	return n, err
}

func (c *replay) Write(p []byte) (int, error)      { return len(p), nil } // an alert that nobody needs
func (c *replay) Close() error                     { return nil }
func (c *replay) LocalAddr() net.Addr              { return nil }
func (c *replay) RemoteAddr() net.Addr             { return nil }
func (c *replay) SetDeadline(time.Time) error      { return nil }
func (c *replay) SetReadDeadline(time.Time) error  { return nil }
func (c *replay) SetWriteDeadline(time.Time) error { return nil }
