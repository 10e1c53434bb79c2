// Package agents builds the agents' images and works with the real programs in
// them, by the profiles of example.toml and with the machine's own network. It
// takes long and needs Debian's mirror and npm's registry: make agents.
package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/packaging/images"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const (
	patience = 5 * time.Minute
	// roots are the machine's own authorities: its registry may be a mirror.
	roots = "/etc/ssl/certs/ca-certificates.crt"
)

// place is a harness with the shipped profiles.
func place(t *testing.T) *harness.Harness {
	t.Helper()
	if os.Getenv("LAZARET_TEST_AGENTS") == "" {
		t.Skip("set LAZARET_TEST_AGENTS, as make agents does")
	}
	h := harness.New(t, harness.Options{Filtered: true, CommandTime: 40 * time.Minute})
	text, err := os.ReadFile("../../../example.toml")
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(text), "[general]\n", "[general]\ncontrol_dir = \"~\"\n", 1)
	h.Config(strings.Replace(config, "sandbox = \"runsc\"", "sandbox = \""+h.Sandbox+"\"", 1))
	return h
}

// run is lazaret run in a workspace, without a terminal.
func run(h *harness.Harness, ws string, args ...string) harness.Result {
	return h.Sh(ws, `exec lazaret run "$@"`, args...)
}

// pane is a terminal of the developer's, in tmux.
type pane struct {
	t *testing.T
	h *harness.Harness
}

func tmux(h *harness.Harness, args ...string) harness.Result {
	return h.Run("tmux", append([]string{"-S", filepath.Join(h.Home, "tmux.sock"), "-f", "/dev/null"}, args...)...)
}

func open(t *testing.T, h *harness.Harness, dir, script string) *pane {
	t.Helper()
	tmux(h, "new-session", "-d", "-s", "a", "-x", "100", "-y", "40", "-c", dir, "sh", "-c", script+"; echo code=$?; sleep 3000").OK(t)
	p := &pane{t, h}
	t.Cleanup(p.close)
	return p
}

func (p *pane) close() { tmux(p.h, "kill-session", "-t", "a") }

func (p *pane) screen() string { return tmux(p.h, "capture-pane", "-p", "-t", "a").Stdout }

func (p *pane) sees(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(p.screen(), text); time.Sleep(200 * time.Millisecond) {
		if s := p.screen(); time.Now().After(deadline) || strings.Contains(s, "code=") && !strings.Contains(s, text) {
			p.t.Fatalf("no %q on the screen\n%s", text, s)
		}
	}
}

func (p *pane) types(keys ...string) {
	p.t.Helper()
	tmux(p.h, append([]string{"send-keys", "-t", "a"}, keys...)...).OK(p.t)
}

// agents are the programs: what their first screens say, where logins are, and how
// they take the tool run_on_host, as docs/mcp.md has it, and tell that it answers.
func agents() []struct{ name, screen, login, mcp, connected string } {
	return []struct{ name, screen, login, mcp, connected string }{
		{
			"claude", "Claude Code", "/root/.claude/.credentials.json",
			"claude mcp add --scope user lazaret -- /run/lazaret/escalate mcp >&2; claude mcp list", "Connected",
		},
		{
			"codex", "Codex", "/root/.codex/auth.json",
			"codex mcp add lazaret -- /run/lazaret/escalate mcp >&2; codex mcp list", "/run/lazaret/escalate",
		},
		{
			"gemini", "Gemini", "/root/.gemini/oauth_creds.json",
			"gemini mcp add --scope user lazaret /run/lazaret/escalate mcp >&2; gemini mcp list 2>&1", "/run/lazaret/escalate",
		},
		{
			"opencode", "Ask anything", "/root/.local/share/opencode/auth.json",
			`mkdir -p /root/.config/opencode
			echo '{"mcp": {"lazaret": {"type": "local", "command": ["/run/lazaret/escalate", "mcp"], "enabled": true, "timeout": 300000}}}' >/root/.config/opencode/opencode.json
			opencode mcp list 2>&1`, "connected",
		},
	}
}

// The shipped images and profiles: from an image that is missing to the program's
// first screen, with what an agent needs to work.
func TestAgents(t *testing.T) {
	h := place(t)
	ws, other := h.Workspace(), h.Workspace()
	r := run(h, ws, "claude", "--", "true")
	if r.Code != 1 || !strings.Contains(r.Stderr, "lazaret image build claude") {
		t.Errorf("without the image: exit %d, %q", r.Code, r.Stderr)
	}
	build := h.Run("lazaret", "image", "build", "--all", "--base", harness.Debian, "--ca", roots)
	if build.Code != 0 {
		t.Fatalf("exit %d: %s %s", build.Code, build.Stdout, build.Stderr[max(0, len(build.Stderr)-8000):])
	}
	t.Logf("built in %v", build.Took.Round(time.Second))
	pins, err := images.Default()
	if err != nil {
		t.Fatal(err)
	}
	list := h.Run("lazaret", "image", "list").OK(t)
	for _, a := range agents() {
		t.Run(a.name, func(t *testing.T) {
			if n := strings.Count(list, pins.Npm[a.name].Version); n != 2 {
				t.Errorf("its version is %d times in the list, want 2:\n%s", n, list)
			}
			r := run(h, ws, a.name, "--", a.name, "--version")
			if got := r.OK(t); !strings.Contains(got, pins.Npm[a.name].Version) {
				t.Errorf("--version: %q, %q", got, r.Stderr)
			}
			r = run(h, ws, a.name, "--", a.name, "--help")
			if r.Code != 0 || !strings.Contains(r.Stdout+r.Stderr, a.name) {
				t.Errorf("--help: exit %d, %q, %q", r.Code, r.Stdout, r.Stderr)
			}
			h.DomainEnds(a.name, ws)
			p := open(t, h, ws, "lazaret run "+a.name)
			p.sees(a.screen)
			t.Logf("its first screen:\n%s", p.screen())
			p.close()
			h.DomainEnds(a.name, ws)
			// What it writes at login is there in another project.
			run(h, ws, a.name, "--", "sh", "-ceu", `mkdir -p "$(dirname "$1")"; echo secret >"$1"`, "sh", a.login).OK(t)
			h.DomainEnds(a.name, ws)
			if got := run(h, other, a.name, "--", "cat", a.login).OK(t); got != "secret" {
				t.Errorf("its login is not kept: %q", got)
			}
			h.DomainEnds(a.name, other)
			if got := run(h, ws, a.name, "--", "bash", "-ceu", a.mcp).OK(t); !strings.Contains(got, "lazaret") || !strings.Contains(got, a.connected) {
				t.Errorf("its tools: %q", got)
			}
			h.DomainEnds(a.name, ws)
		})
	}
	t.Run("npm and apt-get", func(t *testing.T) {
		for _, a := range agents() {
			got := run(h, ws, a.name, "--", "bash", "-ceu", `mkdir /tmp/p; cd /tmp/p
				npm install --no-audit --no-fund ms@2.1.3 >&2; node -p 'require("ms/package.json").version'`).OK(t)
			if got != "2.1.3" {
				t.Errorf("%s: npm install: %q", a.name, got)
			}
			h.DomainEnds(a.name, ws)
		}
		for _, name := range []string{"claude", "shell"} {
			got := run(h, ws, name, "--", "bash", "-ceu", `apt-get -qq update >&2
				DEBIAN_FRONTEND=noninteractive apt-get -qq -y install hello >&2; hello`).OK(t)
			if got != "Hello, world!" {
				t.Errorf("%s: apt-get install: %q", name, got)
			}
			h.DomainEnds(name, ws)
		}
	})
	t.Run("git", func(t *testing.T) {
		run(h, ws, "claude", "--", "bash", "-ceu", `echo by the agent >made; git add made; git commit -qm "from the sandbox"`).OK(t)
		h.DomainEnds("claude", ws)
		if got := h.Sh(ws, `git log -1 --format=%s; git status --porcelain; cat made`).OK(t); got != "from the sandbox\nby the agent" {
			t.Errorf("on the host: %q", got)
		}
		// A developer whose name is in his own settings only.
		h.Sh(other, `git config --unset user.name; git config --unset user.email`).OK(t)
		h.WriteFile(filepath.Join(h.Home, ".gitconfig"), "[user]\n\tname = D. Developer\n\temail = d@example.test\n")
		run(h, other, "claude", "--", "git", "commit", "-q", "--allow-empty", "-m", "as the developer").OK(t)
		h.DomainEnds("claude", other)
		if got := h.Sh(other, `git log -1 --format='%an <%ae>, %cn <%ce>: %s'`).OK(t); got != "D. Developer <d@example.test>, D. Developer <d@example.test>: as the developer" {
			t.Errorf("on the host: %q", got)
		}
	})
	t.Run("MCP", func(t *testing.T) {
		h.WriteFile(filepath.Join(ws, "client.py"), client)
		p := open(t, h, ws, "lazaret run claude -- python3 client.py")
		p.sees("may this run on the host?")
		p.sees("the test's reason")
		time.Sleep(time.Second) // longer than the prompt's pause
		p.types("a")
		p.sees("tools: run_on_host")
		p.sees("answer: exit code 0")
		p.sees("ran in " + filepath.Base(ws))
		p.sees("code=0")
		p.close()
		h.DomainEnds("claude", ws)
	})
}

// client asks by the Model Context Protocol, as agents do.
const client = `import json, subprocess
server = subprocess.Popen(["/run/lazaret/escalate", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def send(**message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()
def call(number, method, **params):
    send(id=number, method=method, params=params)
    while True:
        answer = json.loads(server.stdout.readline())
        if answer.get("id") == number:
            return answer["result"]
call(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"})
send(method="notifications/initialized")
tools = call(2, "tools/list")["tools"]
result = call(3, "tools/call", name="run_on_host",
              arguments={"argv": ["sh", "-c", "echo ran in $(basename $PWD)"], "justification": "the test's reason"})
print("tools:", *[t["name"] for t in tools])
print("answer:", *[c["text"] for c in result["content"]])
server.stdin.close()
raise SystemExit(server.wait())
`

// Where there is no registry, the base is made of Debian's packages.
func TestBaseByDebootstrap(t *testing.T) {
	h := place(t)
	ws := h.Workspace()
	r := h.Run("lazaret", "image", "build", "--base", images.Bootstrap)
	if r.Code != 0 {
		t.Fatalf("exit %d: %s %s", r.Code, r.Stdout, r.Stderr[max(0, len(r.Stderr)-8000):])
	}
	if got := run(h, ws, "--", "bash", "-ceu", ". /etc/os-release; echo $VERSION_CODENAME; git --version >&2; rg --version >&2; node --version >&2; npm --version >&2; cc --version >&2; python3 --version >&2").OK(t); got != "trixie" {
		t.Errorf("got %q", got)
	}
	h.DomainEnds("shell", ws)
	// Once more: all of it is there.
	if again := h.Run("lazaret", "image", "build", "--base", images.Bootstrap); again.Code != 0 || strings.Contains(again.Stderr, "debootstrap") {
		t.Errorf("again: exit %d, %s", again.Code, again.Stderr)
	}
}
