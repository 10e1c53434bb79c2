package wire

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestReadResponse(t *testing.T) {
	tests := []struct {
		name, in string
		status   int
		body     string
		fails    bool
	}{
		{"plain", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, "{}", false},
		{"other case and 1.1", "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nX: y\r\n\r\n{}", 404, "{}", false},
		{"nothing", "", 0, "", true},
		{"not HTTP", "SSH-2.0-OpenSSH\r\n", 0, "", true},
		{"cut head", "HTTP/1.0 200 OK\r\nContent-Le", 0, "", true},
		{"cut body", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n{}", 0, "", true},
		{"no length", "HTTP/1.0 200 OK\r\n\r\n{}", 0, "", true},
		{"negative length", "HTTP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n", 0, "", true},
		{"two lengths", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 0, "", true},
		{"too long", "HTTP/1.0 200 OK\r\nContent-Length: 99999999\r\n\r\n", 0, "", true},
		{"bad status", "HTTP/1.0 9999 x\r\nContent-Length: 0\r\n\r\n", 0, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, body, err := readResponse(bufio.NewReader(strings.NewReader(tt.in)))
			if (err != nil) != tt.fails || status != tt.status || string(body) != tt.body {
				t.Errorf("got %d %q %v", status, body, err)
			}
		})
	}
}

func TestReadResponseLeavesTheRest(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}{\"type\":\"ask\"}\n"))
	if _, _, err := readResponse(r); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "{\"type\":\"ask\"}\n" {
		t.Errorf("left %q, %v", rest, err)
	}
}

func FuzzReadResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("HTTP/1.1 500 x\r\nContent-Length: 99999999999999999999\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		status, body, err := readResponse(bufio.NewReader(bytes.NewReader(data)))
		if err == nil && (status < 100 || status > 599 || len(body) > MaxBody) {
			t.Fatalf("accepted status %d, %d bytes", status, len(body))
		}
	})
}
