package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

// hello is what a client sends first.
func hello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() { _ = tls.Client(theirs, c).Handshake(); _ = theirs.Close() }()
	defer func() { _ = ours.Close() }()
	buf := make([]byte, 1<<14)
	n, err := ours.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

func TestReadHello(t *testing.T) {
	t.Parallel()
	named := hello(t, &tls.Config{ServerName: "Example.COM", MinVersion: tls.VersionTLS12})
	tests := []struct {
		name string
		in   []byte
		want string
		err  error
	}{
		{"a name", named, "example.com", nil},
		{"more behind it", append(bytes.Clone(named), "early data"...), "example.com", nil},
		{"none", hello(t, &tls.Config{InsecureSkipVerify: true}), "", errNoSNI},                                //nolint:gosec // only its first message is looked at
		{"an address", hello(t, &tls.Config{ServerName: "192.0.2.1", InsecureSkipVerify: true}), "", errNoSNI}, //nolint:gosec // only its first message is looked at
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), "", errNoTLS},
		{"nothing", nil, "", errNoTLS},
		{"half", named[:len(named)/2], "", errNoTLS},
	}
	for _, tt := range tests {
		got, read, err := readHello(bytes.NewReader(tt.in))
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %q, %v, want %q, %v", tt.name, got, err, tt.want, tt.err)
		}
		if !bytes.HasPrefix(tt.in, read) {
			t.Errorf("%s: what was read is not what came", tt.name)
		}
	}
}

func FuzzHello(f *testing.F) {
	f.Add(hello(f, &tls.Config{ServerName: "example.com", MinVersion: tls.VersionTLS12}))
	f.Add([]byte{22, 3, 1, 0, 1, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		name, read, err := readHello(bytes.NewReader(in))
		if !bytes.HasPrefix(in, read) {
			t.Error("what was read is not what came")
		}
		if n, ok := plan.Name(name); err == nil && (!ok || n != name) {
			t.Errorf("%q is no name", name)
		}
	})
}

func TestHostName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: Example.com\r\n\r\n":            "example.com",
		"GET / HTTP/1.1\r\nHost: example.com:80\r\n\r\n":         "example.com",
		"GET / HTTP/1.1\r\nHost: example.com.\r\n\r\n":           "example.com",
		"GET / HTTP/1.1\r\nHost: example.com:8080\r\n\r\n":       "",
		"GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n":              "",
		"GET / HTTP/1.1\r\nHost: \r\n\r\n":                       "",
		"GET / HTTP/1.0\r\n\r\n":                                 "",
		"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n": "",
		"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n":  "",
		"GET http://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n":    "b.test",
		"GET / HTTP/1.1\r\nHost: a.test@b.test\r\n\r\n":          "",
		"GET / HTTP/1.1\r\nHost: a.test/b.test\r\n\r\n":          "",
		"GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n":         "",
	} {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(in)))
		got := ""
		if err == nil {
			got, _ = hostName(r)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzHost(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(in)))
		if err != nil {
			return
		}
		name, err := hostName(r)
		if n, ok := plan.Name(name); err == nil && (!ok || n != name) {
			t.Errorf("%q is no name", name)
		}
	})
}
