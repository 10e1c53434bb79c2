package escalate

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/internal/sessionkey"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want options
		err  string
	}{
		{"words", []string{"--", "a", "b c", "", "d'e", "-j"}, options{command: `a 'b c' '' 'd'\''e' -j`}, ""},
		{"one word after --", []string{"--", "git status"}, options{command: `'git status'`}, ""},
		{"a line", []string{"a | b"}, options{command: "a | b"}, ""},
		{"options", []string{"-j", "why", "--timeout", "90s", "--json", "--", "x"}, options{command: "x", reason: "why", timeout: 90 * time.Second, json: true}, ""},
		{"options with =", []string{"-j=why", "--timeout=1m", "x"}, options{command: "x", reason: "why", timeout: time.Minute}, ""},
		{"words without --", []string{"git", "status"}, options{}, "put --"},
		{"nothing", nil, options{}, "no command"},
		{"nothing after --", []string{"--"}, options{}, "no command"},
		{"unknown option", []string{"-x", "--", "a"}, options{}, "unknown option"},
		{"option without value", []string{"-j"}, options{}, "needs a value"},
		{"no time", []string{"--timeout", "soon", "x"}, options{}, "invalid duration"},
		{"negative time", []string{"--timeout", "-1s", "x"}, options{}, "not positive"},
		{"help is a command after --", []string{"--", "--help"}, options{command: "--help"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse(tt.args)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestNothingRuns(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name     string
		args     []string
		env      map[string]string
		code     int
		out, err string
	}{
		{"no socket", []string{"--", "touch", "/x"}, nil, 125, "", "offers no host escalation"},
		{"no socket, as JSON", []string{"--json", "--", "touch", "/x"}, nil, 125, `"exit_code":125`, ""},
		{"bad anchor", []string{"x"}, map[string]string{"LAZARET_SESSION_ID": uuid.NewString(), "LAZARET_SESSION_ANCHOR": "x"}, 125, "", "no host escalation"},
		{"version", []string{"--version"}, nil, 0, "lazaret-escalate ", ""},
		{"help", []string{"--help"}, nil, 0, "Usage: lazaret-escalate", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			p := Program{
				Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut, Proc: dir, Getenv: func(n string) string { return tt.env[n] },
				Client: Client{Socket: dir + "/sock", Certs: dir + "/certs"},
			}
			if code := p.Main(tt.args); code != tt.code || !strings.Contains(out.String(), tt.out) || !strings.Contains(errOut.String(), tt.err) {
				t.Errorf("exit %d, stdout %q, stderr %q", code, out.String(), errOut.String())
			}
		})
	}
}

// The variables were taken out of the program's environment, not of its
// grandparent's.
func TestFindSessionOfAnAncestor(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	id, proc := uuid.NewString(), t.TempDir()
	write := func(pid, parent int, env string) {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"stat": strconv.Itoa(pid) + " (a ) b) S " + strconv.Itoa(parent) + strings.Repeat(" 0", 30), "environ": env} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	none := func(string) string { return "" }
	write(os.Getppid(), 999999, "PATH=/bin\x00")
	if _, err := FindSession(none, proc); err == nil || !strings.Contains(err.Error(), "no LAZARET_SESSION_ANCHOR") {
		t.Errorf("got %v", err)
	}
	seed := sessionkey.Encode(key)
	write(999999, 1, "A=b\x00LAZARET_SESSION_ID="+id+"\x00LAZARET_SESSION_ANCHOR="+seed+"\x00")
	got, err := FindSession(none, proc)
	if err != nil || got.ID != id || !got.Key.Equal(key) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestReadAnswer(t *testing.T) {
	tests := []struct {
		name, in, body, news string
		status               int
		fails                bool
	}{
		{"plain", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "{}", "", 200, false},
		{"news before", "HTTP/1.1 102 P\r\nLazaret-News: asked\r\n\r\nHTTP/1.1 102 P\r\nlazaret-news: running\r\n\r\nHTTP/1.1 403 F\r\nContent-Length: 0\r\n\r\n", "", "asked running", 403, false},
		{"no length", "HTTP/1.1 200 OK\r\n\r\n{}", "", "", 0, true},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "", "", 0, true},
		{"too long", "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{}", "", "", 0, true},
		{"cut", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", "", "", 0, true},
		{"not HTTP", "SSH-2.0\r\n\r\n", "", "", 0, true},
		{"many lines", "HTTP/1.1 200 OK\r\n" + strings.Repeat("a: b\r\n", 1000), "", "", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var news []string
			status, body, err := readAnswer(bufio.NewReader(strings.NewReader(tt.in)), func(n string) { news = append(news, n) })
			if (err != nil) != tt.fails || status != tt.status || string(body) != tt.body || strings.Join(news, " ") != tt.news {
				t.Errorf("got %d %q %q %v", status, body, news, err)
			}
		})
	}
}

func TestOutput(t *testing.T) {
	long := bytes.Repeat([]byte("x"), MaxOutput+1)
	tests := []struct {
		name     string
		out      []byte
		encoding string
		cut      bool
	}{
		{"text", []byte("a <b>\n\u00e4"), "", false},
		{"not UTF-8", []byte("a\xff"), "base64", false},
		{"control characters", bytes.Repeat([]byte{1}, 1000), "base64", false},
		{"too long", long, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r Response
			r.SetOutput(tt.out, nil)
			got, _, err := r.Output()
			if err != nil || r.Encoding != tt.encoding {
				t.Fatalf("encoding %q, %v", r.Encoding, err)
			}
			if tt.cut {
				if len(got) != MaxOutput || !bytes.HasSuffix(got, []byte("was cut]\n")) {
					t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-20:])
				}
			} else if !bytes.Equal(got, tt.out) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// FuzzDecodeRequest: what is taken is within bounds, means one thing, and has one
// canonical form.
func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"request_id":"7b0f5a52-3f6a-4f0c-9c5e-2f6f0a3d1e11","session_id":"7b0f5a52-3f6a-4f0c-9c5e-2f6f0a3d1e12","profile":"p","command":"a b","justification":"j","signature":"s"}`))
	f.Add([]byte(`{"request_id":"7b0f5a52-3f6a-4f0c-9c5e-2f6f0a3d1e11","Request_id":"x","command":["a"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRequest(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		second, err := DecodeRequest(again)
		if len(again) <= MaxRequest && (err != nil || *second != *r || !bytes.Equal(second.Canonical(), r.Canonical())) {
			t.Fatalf("another meaning: %v", err)
		}
		if strings.TrimSpace(r.Command) == "" || len(r.Command) > MaxCommand || strings.ContainsRune(r.Command, 0) {
			t.Fatalf("took the command %q", r.Command)
		}
	})
}
