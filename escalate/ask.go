package escalate

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/wire"
)

// ServerName is what the host's certificate is for.
const ServerName = "escalate.lazaret.internal"

// NewsHeader of an interim answer (status 102) has one of the News values.
const NewsHeader = "Lazaret-News"

// What an interim answer tells.
const (
	NewsNobody  = "nobody"  // no person's desk is there
	NewsAway    = "away"    // the terminal that owns the session is not there
	NewsAsked   = "asked"   // a person has the request
	NewsRunning = "running" // approved, and recorded
)

const (
	dialTime = 10 * time.Second
	// maxAnswer bounds an answer, in bytes: two outputs, each byte escaped, and the rest.
	maxAnswer = 8 << 20
	maxLines  = 64 // of an answer's head
)

// ErrNoSocket means that the sandbox offers no host escalation.
var ErrNoSocket = errors.New("this sandbox offers no host escalation")

// Client asks over a sandbox's Escalation Socket.
type Client struct {
	Socket string // path
	Certs  string // directory of ca.pem, client.pem and client.key
}

// Profile is the sandbox's, as its certificate tells.
func (c *Client) Profile() (string, error) {
	conf, err := c.config()
	if err != nil {
		return "", err
	}
	leaf, err := x509.ParseCertificate(conf.Certificates[0].Certificate[0])
	if err != nil || len(leaf.URIs) != 1 {
		return "", fmt.Errorf("%s/client.pem is not a sandbox's certificate", c.Certs)
	}
	profile, _, _ := strings.Cut(strings.TrimPrefix(leaf.URIs[0].Path, "/"), "/")
	return profile, nil
}

func (c *Client) config() (*tls.Config, error) {
	ca, err := os.ReadFile(filepath.Join(c.Certs, "ca.pem"))
	if err != nil {
		return nil, c.missing(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.Certs, "client.pem"), filepath.Join(c.Certs, "client.key"))
	if err != nil {
		return nil, c.missing(err)
	}
	block, _ := pem.Decode(ca)
	if block == nil {
		return nil, fmt.Errorf("%s/ca.pem is not a certificate", c.Certs)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s/ca.pem: %w", c.Certs, err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: ServerName,
		Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"},
		CurvePreferences: []tls.CurveID{tls.X25519}, // the host's
	}, nil
}

func (c *Client) missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Stat(c.Socket); errors.Is(serr, fs.ErrNotExist) {
			return ErrNoSocket
		}
	}
	return fmt.Errorf("read the sandbox's certificate: %w", err)
}

// Ask sends a signed request and waits for its answer, or the end of ctx; news is
// called with each News value that comes meanwhile. What the host refuses before
// anybody is asked is a *wire.Error.
func (c *Client) Ask(ctx context.Context, req *Request, news func(string)) (*Response, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	if len(body) > MaxRequest {
		return nil, fmt.Errorf("request has %d bytes, %d are allowed: shorten the command or the reason", len(body), MaxRequest)
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	defer func() {
		stop()
		_ = conn.NetConn().Close() // answered, or given up
	}()
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", RequestPath, ServerName, len(body))
	if _, err := conn.Write(append([]byte(head), body...)); err != nil {
		return nil, told(ctx, fmt.Errorf("send the request: %w", err))
	}
	status, answer, err := readAnswer(conn, news)
	if err != nil {
		return nil, told(ctx, fmt.Errorf("wait for the answer: %w", err))
	}
	if status != 200 {
		e := &wire.Error{}
		if json.Unmarshal(answer, e) != nil || e.Message == "" {
			return nil, fmt.Errorf("the host answered with status %d", status)
		}
		return nil, e
	}
	var res Response
	if err := json.Unmarshal(answer, &res); err != nil {
		return nil, fmt.Errorf("decode the answer: %w", err)
	}
	if res.RequestID != req.RequestID {
		return nil, errors.New("the answer is to another request")
	}
	return &res, nil
}

// told is the end of ctx where that is why err came.
func told(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var alert tls.AlertError
	switch {
	case errors.As(err, &alert):
		return fmt.Errorf("the host refused this sandbox's certificate: %w", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return errors.New("the host hung up: it ended, or has too many connections of this sandbox already")
	}
	return err
}

// dial shakes hands with the host. The certificate may be exchanged while it is
// read, after the host's own process was replaced: then once more.
func (c *Client) dial(ctx context.Context) (*tls.Conn, error) {
	var first error
	for range 3 {
		conf, err := c.config()
		if errors.Is(err, ErrNoSocket) {
			return nil, err
		}
		var conn *tls.Conn
		if err == nil {
			conn, err = c.handshake(ctx, conf)
		}
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		if first == nil {
			first = err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, first
}

func (c *Client) handshake(ctx context.Context, conf *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "unix", c.Socket)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, ErrNoSocket
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, errors.New("the host does not answer: its coordinator has ended; the next podman exec into this sandbox brings it back")
	case err != nil:
		return nil, fmt.Errorf("reach the host: %w", err)
	}
	conn := tls.Client(raw, conf)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // never used
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("the host did not answer within %s", dialTime)
		}
		return nil, told(ctx, fmt.Errorf("shake hands with the host: %w", err))
	}
	return conn, nil
}

// readAnswer reads interim answers, and the one after them.
func readAnswer(r io.Reader, news func(string)) (status int, body []byte, err error) {
	br := bufio.NewReaderSize(r, 8<<10)
	for {
		status, header, err := readHead(br)
		if err != nil {
			return 0, nil, err
		}
		if status < 200 {
			if n := header["lazaret-news"]; n != "" {
				news(n)
			}
			continue
		}
		n, err := strconv.Atoi(header["content-length"])
		if err != nil || n < 0 || n > maxAnswer {
			return 0, nil, fmt.Errorf("answer has the length %.20q", header["content-length"])
		}
		body = make([]byte, n)
		if _, err := io.ReadFull(br, body); err != nil {
			return 0, nil, err
		}
		return status, body, nil
	}
}

// readHead reads a status line and its header, names in lower case.
func readHead(br *bufio.Reader) (status int, header map[string]string, err error) {
	header = map[string]string{}
	for n := 0; n < maxLines; n++ {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case n == 0:
			proto, rest, _ := strings.Cut(string(line), " ")
			code, _, _ := strings.Cut(rest, " ")
			if status, err = strconv.Atoi(code); err != nil || status < 100 || status > 599 || proto != "HTTP/1.1" {
				return 0, nil, fmt.Errorf("not an HTTP answer: %.40q", line)
			}
		case len(line) == 0:
			return status, header, nil
		default:
			name, value, _ := strings.Cut(string(line), ":")
			name = strings.ToLower(name)
			if _, twice := header[name]; twice {
				return 0, nil, fmt.Errorf("answer has two headers %.40q", name)
			}
			header[name] = strings.TrimSpace(value)
		}
	}
	return 0, nil, errors.New("answer's head is too long")
}
