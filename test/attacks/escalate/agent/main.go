// Agent is the attacker's program: it runs in a sandbox, as a static binary, with
// whatever certificate and session it finds there, and says for each attack how it
// was answered, one JSON object a line.
//
//	agent CERTS SOCKET ATTACK…
package main

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/escalate"
)

func main() {
	a := &agent{certs: os.Args[1], socket: os.Args[2]}
	out := json.NewEncoder(os.Stdout)
	for _, name := range os.Args[3:] {
		text, err := a.attack(name)
		if err != nil {
			text = "error: " + err.Error()
		}
		if err := out.Encode(map[string]string{"attack": name, "answer": text}); err != nil {
			os.Exit(1)
		}
	}
}

type agent struct {
	certs, socket string
	hold          []net.Conn
}

func (a *agent) config(cert bool) (*tls.Config, error) {
	ca, err := os.ReadFile(filepath.Join(a.certs, "ca.pem"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	c := &tls.Config{RootCAs: pool, ServerName: escalate.ServerName, MinVersion: tls.VersionTLS12}
	if cert {
		p, err := tls.LoadX509KeyPair(filepath.Join(a.certs, "client.pem"), filepath.Join(a.certs, "client.key"))
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{p}
	}
	return c, nil
}

func (a *agent) dial(c *tls.Config) (*tls.Conn, error) {
	raw, err := net.Dial("unix", a.socket)
	if err != nil {
		return nil, err
	}
	_ = raw.SetDeadline(time.Now().Add(time.Minute))
	conn := tls.Client(raw, c)
	return conn, conn.Handshake()
}

// post sends a body as it is, and returns the status and the answer's code.
func (a *agent) post(c *tls.Config, body []byte) (string, error) {
	conn, err := a.dial(c)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", escalate.RequestPath, len(body)); err != nil {
		return "", err
	}
	go func() { _, _ = conn.Write(body) }() // refused before it is read
	return answer(conn)
}

func answer(conn io.Reader) (string, error) {
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	for err == nil && res.StatusCode < 200 {
		return "waiting", nil
	}
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(res.Body)
	var e struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(data, &e) // some answers are text
	return strings.TrimSpace(fmt.Sprintf("%d %s", res.StatusCode, e.Code)), err
}

func (a *agent) request() (*escalate.Request, escalate.Session, error) {
	s, err := escalate.FindSession(os.Getenv, "/proc")
	r := &escalate.Request{RequestID: uuid.NewString(), SessionID: s.ID, Profile: "default", Command: "touch /tmp/marker", Justification: "x"}
	if err == nil {
		r.Sign(s.Key)
	}
	return r, s, err
}

func (a *agent) attack(name string) (string, error) {
	good, err := a.config(true)
	if err != nil {
		return "", err
	}
	r, s, err := a.request()
	if err != nil {
		return "", err
	}
	body := func() []byte {
		data, _ := json.Marshal(r) // always can be
		return data
	}
	switch name {
	case "no certificate":
		c, err := a.config(false)
		if err != nil {
			return "", err
		}
		return a.post(c, body())
	case "own certificate":
		public, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return "", err
		}
		leaf, err := x509.ParseCertificate(good.Certificates[0].Certificate[0])
		if err != nil {
			return "", err
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, public, key)
		if err != nil {
			return "", err
		}
		good.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
		return a.post(good, body())
	case "TLS 1.2":
		good.MaxVersion = tls.VersionTLS12
		return a.post(good, body())
	case "plain": // the certificate that is in CERTS, over SOCKET
		return a.post(good, body())
	case "own session key":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return "", err
		}
		r.Sign(key)
		return a.post(good, body())
	case "unknown session":
		r.SessionID = uuid.NewString()
		r.Sign(s.Key)
		return a.post(good, body())
	case "altered":
		r.Command += " x"
		return a.post(good, body())
	case "replay":
		first, err := a.post(good, body())
		if err != nil {
			return "", err
		}
		second, err := a.post(good, body())
		return first + ", " + second, err
	case "100 MB":
		return a.post(good, make([]byte, 100<<20))
	case "slow body":
		return a.slow(good, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", escalate.RequestPath))
	case "slow header":
		return a.slow(good, "POST /v1/escalate HTTP/1.1\r\n")
	case "no length":
		return a.raw(good, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", escalate.RequestPath))
	case "malformed TLS":
		raw, err := net.Dial("unix", a.socket)
		if err != nil {
			return "", err
		}
		defer func() { _ = raw.Close() }()
		junk := make([]byte, 1<<16)
		if _, err := rand.Read(junk); err != nil {
			return "", err
		}
		_ = raw.SetDeadline(time.Now().Add(time.Minute))
		_, _ = raw.Write(junk)
		_, err = io.Copy(io.Discard, raw)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return "goes on", nil
		}
		return "closed", nil // by a reset, as our junk was not read
	case "half a handshake":
		raw, err := net.Dial("unix", a.socket)
		if err != nil {
			return "", err
		}
		defer func() { _ = raw.Close() }()
		_ = raw.SetDeadline(time.Now().Add(time.Minute))
		if _, err := raw.Write([]byte{22, 3, 1, 2, 0, 1}); err != nil { // a ClientHello of 512 bytes
			return "", err
		}
		if _, err = io.Copy(io.Discard, raw); errors.Is(err, os.ErrDeadlineExceeded) {
			return "goes on", nil
		}
		return "ended", nil
	case "never reads":
		conn, err := a.dial(good)
		if err != nil {
			return "", err
		}
		defer func() { _ = conn.Close() }()
		r.SessionID = uuid.NewString() // judged at once
		b := body()
		for {
			if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", escalate.RequestPath, len(b), b); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return "goes on", nil
				}
				return "ended", nil
			}
		}
	case "other paths":
		var all []string
		for _, path := range []string{"/v1/status", "/v1/prepare", "/v1/desk", "/v1/sessions", "/"} {
			got, err := a.raw(good, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
			if err != nil {
				return "", err
			}
			all = append(all, got)
		}
		return strings.Join(all, ", "), nil
	case "ambiguous JSON":
		return a.ambiguous(good, body())
	case "connections":
		for range 300 {
			raw, err := net.Dial("unix", a.socket)
			if err != nil {
				break
			}
			a.hold = append(a.hold, raw)
		}
		return "open", nil
	}
	if text, ok := strings.CutSuffix(name, " requests"); ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			return "", err
		}
		return a.many(good, r, n), nil
	}
	return "", errors.New("no such attack")
}

// many sends n requests, over eight connections at a time, that are all judged and
// none of which waits.
func (a *agent) many(c *tls.Config, r *escalate.Request, n int) string {
	codes := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range n / 8 {
				one := *r
				one.RequestID, one.SessionID = uuid.NewString(), uuid.NewString()
				data, err := json.Marshal(one)
				got := "no JSON"
				if err == nil {
					if got, err = a.post(c, data); err != nil {
						got = "cut"
					}
				}
				mu.Lock()
				codes[got]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return fmt.Sprint(codes)
}

func (a *agent) raw(c *tls.Config, text string) (string, error) {
	conn, err := a.dial(c)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	return answer(conn)
}

// slow sends a byte in a second after head, and tells that the host ends it.
func (a *agent) slow(c *tls.Config, head string) (string, error) {
	conn, err := a.dial(c)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, head); err != nil {
		return "", err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		close(ended)
	}()
	for range 50 {
		select {
		case <-ended:
			return "ended", nil
		case <-time.After(time.Second):
			_, _ = conn.Write([]byte("x"))
		}
	}
	return "goes on", nil
}

// ambiguous sends bodies that two readers could take differently, or that are none.
func (a *agent) ambiguous(c *tls.Config, good []byte) (string, error) {
	open := bytes.TrimSuffix(good, []byte("}"))
	bodies := map[string][]byte{
		"another case":   append(bytes.Clone(open), `,"COMMAND":"sh -c x"}`...),
		"twice":          append(bytes.Clone(open), `,"command":"sh -c x"}`...),
		"escaped twice":  append(bytes.Clone(open), `,"\u0063ommand":"sh -c x"}`...),
		"unknown":        append(bytes.Clone(open), `,"env":{"LD_PRELOAD":"x"}}`...),
		"second object":  append(bytes.Clone(good), good...),
		"list":           bytes.Replace(good, []byte(`"touch /tmp/marker"`), []byte(`["touch","x"]`), 1),
		"number":         bytes.Replace(good, []byte(`"touch /tmp/marker"`), []byte(`7`), 1),
		"NUL":            bytes.Replace(good, []byte(`touch`), []byte(`to\u0000uch`), 1),
		"not UTF-8":      bytes.Replace(good, []byte(`touch`), []byte("to\xffuch"), 1),
		"10^5 elements":  []byte(`{"command":[` + strings.TrimSuffix(strings.Repeat("1,", 30000), ",") + `]}`),
		"cut":            good[:len(good)/2],
		"nothing":        nil,
		"deep":           []byte(strings.Repeat("[", 60000)),
		"too many bytes": bytes.Replace(good, []byte(`touch`), bytes.Repeat([]byte("x"), 70<<10), 1),
	}
	for name, body := range bodies {
		got, err := a.post(c, body)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if got != "400 bad_request" {
			return name + ": " + got, nil
		}
	}
	return "400 bad_request", nil
}
