// Package escalate attacks Host Escalation from inside a sandbox: its own programs
// against its Escalation Socket, and those of another sandbox of the same domain.
package escalate

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const (
	// settle bounds the wait for the end of connections that do nothing.
	settle = time.Minute
	certs  = "/run/lazaret/certs"
	socket = "/run/lazaret/escalate.sock"
	// mostMemory is what a coordinator may have resident, in bytes.
	mostMemory = 40 << 20
)

func TestAttacks(t *testing.T) {
	harness.Each(t, harness.Options{Config: "[escalation]\ntimeout = \"5s\"\n"}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		bin := filepath.Join(ws, "agent")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./agent")
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build the agent: %v: %s", err, out)
		}
		h.Detached(ws, "box", harness.Debian, "sleep", "900")
		h.Detached(ws, "other", harness.Debian, "sleep", "900")
		domain := h.Domain("default", ws)

		agent := func(t *testing.T, box, dir, sock string, attacks ...string) map[string]string {
			t.Helper()
			out := h.Podman(append([]string{"exec", box, "/workspace/agent", dir, sock}, attacks...)...).OK(t)
			got := map[string]string{}
			for line := range strings.Lines(out) {
				var e struct{ Attack, Answer string }
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				got[e.Attack] = e.Answer
			}
			return got
		}
		tests := []struct{ attack, want string }{ // part of the answer
			{"plain", "waiting"}, // the way that works, so that the rest means something
			{"no certificate", "error: "},
			{"own certificate", "error: "},
			{"TLS 1.2", "error: "},
			{"own session key", "403 bad_signature"},
			{"unknown session", "403 unknown_session"},
			{"altered", "403 bad_signature"},
			{"replay", "waiting, 409 replayed"},
			{"100 MB", "413 too_large"},
			{"no length", "400 bad_request"},
			{"malformed TLS", "closed"},
			{"other paths", "404, 404, 404, 404, 404"},
			{"ambiguous JSON", "400 bad_request"},
			{"slow body", "ended"},
			{"slow header", "ended"},
			{"half a handshake", "ended"},
			{"never reads", "ended"},
		}
		var names []string
		for _, tt := range tests {
			names = append(names, tt.attack)
		}
		got := agent(t, "box", certs, socket, names...)
		for _, tt := range tests {
			if !strings.Contains(got[tt.attack], tt.want) {
				t.Errorf("%s: %q, want %q", tt.attack, got[tt.attack], tt.want)
			}
		}
		t.Run("many requests", func(t *testing.T) {
			n := os.Getenv("LAZARET_ATTACK_REQUESTS") // make flood: 10,000
			if n == "" {
				n = "2000"
			}
			begin := time.Now()
			name := n + " requests"
			// Not bounded by the harness's two minutes.
			r := harness.Do(h.Command(t.Context(), "podman", "exec", "box", "/workspace/agent", certs, socket, name))
			if want := `"answer":"map[403 unknown_session:` + n + `]"`; !strings.Contains(r.OK(t), want) {
				t.Errorf("answered with %s", r.Stdout)
			}
			now := h.Domain("default", ws)
			t.Logf("%s requests in %s; coordinator has %d bytes resident", n, time.Since(begin).Round(time.Second), now.Memory)
			if now.Memory > mostMemory || now.PID != domain.PID {
				t.Errorf("coordinator %d, was %d, has %d bytes resident", now.PID, domain.PID, now.Memory)
			}
		})
		t.Run("connections left open", func(t *testing.T) {
			// More than a sandbox may have; afterwards it is served again.
			agent(t, "box", certs, socket, "connections")
			h.Eventually("the sandbox is served again", settle, func() bool {
				return agent(t, "box", certs, socket, "plain")["plain"] == "waiting"
			})
			if got := agent(t, "other", certs, socket, "plain")["plain"]; got != "waiting" {
				t.Errorf("another sandbox: %q", got)
			}
		})
		t.Run("a certificate copied to another container", func(t *testing.T) {
			h.Podman("exec", "box", "cp", "-r", certs, "/workspace/stolen").OK(t)
			if got := agent(t, "other", "/workspace/stolen", socket, "plain")["plain"]; !strings.HasPrefix(got, "error: ") {
				t.Errorf("answered with %q", got)
			}
		})
		t.Run("a session's key carried to another container", func(t *testing.T) {
			env := h.Podman("exec", "box", "sh", "-c", "echo $LAZARET_SESSION_ID $LAZARET_SESSION_ANCHOR").OK(t)
			id, anchor, _ := strings.Cut(env, " ")
			run := func(box string) string {
				return h.Podman("exec", box, "env", "LAZARET_SESSION_ID="+id, "LAZARET_SESSION_ANCHOR="+anchor, "/workspace/agent", certs, socket, "plain").OK(t)
			}
			if out := run("box"); !strings.Contains(out, "403 ended_session") {
				t.Errorf("after its end: %s", out)
			}
			if out := run("other"); !strings.Contains(out, "403 unknown_session") {
				t.Errorf("in another container: %s", out)
			}
		})
		t.Run("what is within reach", func(t *testing.T) {
			out := h.Podman("exec", "box", "find", "/", "-xdev", "-type", "s").OK(t)
			out += h.Podman("exec", "box", "find", "/run", "/tmp", "-type", "s").OK(t)
			for line := range strings.Lines(out) {
				if strings.TrimSpace(line) != "/run/lazaret/socket/escalate.sock" {
					t.Errorf("a socket of the host's: %s", line)
				}
			}
			for _, path := range []string{certs + "/x", socket + "x", "/run/lazaret/socket/x"} {
				if r := h.Podman("exec", "box", "touch", path); r.Code == 0 {
					t.Errorf("%s can be made", path)
				}
			}
			if r := h.Podman("exec", "box", "rm", "-f", certs+"/ca.pem"); r.Code == 0 {
				t.Error("the authority's certificate can be removed")
			}
		})
		after := h.Domain("default", ws)
		if after.PID != domain.PID {
			t.Errorf("coordinator %d became %d", domain.PID, after.PID)
		}
		if after.Memory > mostMemory {
			t.Errorf("coordinator has %d bytes resident", after.Memory)
		}
		t.Logf("coordinator has %d bytes resident", after.Memory)
	})
}
