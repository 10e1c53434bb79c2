package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
)

// desk is a developer's home and workspace; the working directory is the latter.
type desk struct {
	t              *testing.T
	dir, user, ws  string
	stdin          io.Reader
	stdout, stderr bytes.Buffer
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, dir: dir, user: dir + "/home/.config/lazaret/config.toml", ws: dir + "/ws/lazaret.toml", stdin: strings.NewReader("")}
	for _, p := range []string{filepath.Dir(d.user), filepath.Dir(d.ws), dir + "/run"} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", dir+"/home")
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", dir+"/run")
	t.Chdir(dir + "/ws")
	d.configure("")
	return d
}

// configure writes the user's file, with a runsc that only tells what it can.
func (d *desk) configure(more string) {
	d.t.Helper()
	runsc := d.dir + "/runsc"
	script := "#!/bin/sh\ncase $1 in --version) echo runsc version fake;; flags) printf '  -host-uds\\n  -debug\\n';; esac\n"
	if err := os.WriteFile(runsc, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		d.t.Fatal(err)
	}
	// As root the default data root is the machine's own store.
	d.write(d.user, fmt.Sprintf("[general]\ndata_root = %q\n[runtime]\nsandbox = %q\n%s", d.dir+"/data", runsc, more))
}

func (d *desk) write(path, text string) {
	d.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// run calls lazaret with only this file's commands, and returns the exit status.
func (d *desk) run(args ...string) int {
	d.t.Helper()
	app := newApp()
	app.Commands = []*cli.Command{configCommand(), trustCommand()}
	for _, c := range app.Commands {
		finish("lazaret", c)
	}
	d.stdout.Reset()
	d.stderr.Reset()
	app.Reader, app.Writer, app.ErrWriter = d.stdin, &d.stdout, &d.stderr
	err := app.RunContext(context.Background(), append([]string{"lazaret"}, args...))
	if err == nil {
		return exitOK
	}
	d.stderr.WriteString(err.Error())
	var own *exitError
	if errors.As(err, &own) {
		return own.code
	}
	return exitFailed
}

// want runs and checks status and output; a want that begins with "!" must be absent.
func (d *desk) want(code int, args []string, wants ...string) {
	d.t.Helper()
	got := d.run(args...)
	out := d.stdout.String() + d.stderr.String()
	if got != code {
		d.t.Errorf("%q exits with %d, want %d:\n%s", args, got, code, out)
	}
	for _, w := range wants {
		if no, found := strings.CutPrefix(w, "!"); found {
			if strings.Contains(out, no) {
				d.t.Errorf("%q says %q:\n%s", args, no, out)
			}
		} else if !strings.Contains(out, w) {
			d.t.Errorf("%q does not say %q:\n%s", args, w, out)
		}
	}
}

func TestConfigShow(t *testing.T) {
	d := newDesk(t)
	d.write(d.user, "[general]\ndata_root = \"~/d\"\n[profiles.aa]\nimage = \"img\"\nenv = { A = \"x\\u001b[2J\\u202e\" }\n[profiles.bb]\n")
	d.write(d.ws, "[profiles.aa]\nmasks = [\"private\"]\n")
	d.want(0, []string{"config", "show"},
		"# user      "+d.user+" (read)", "# workspace "+d.ws+" (not trusted, so it may only tighten)",
		`general.data_root = "`+d.dir+`/home/d"  # `+d.user+":2\n",
		`general.control_dir = "/tmp"  # default`+"\n",
		`escalation.timeout = "5m0s"  # default`, "# runtime.platform is not set\n",
		`profiles.aa.image = "img"  # `+d.user+":4\n",
		`profiles.aa.masks = [".vscode", ".idea", "private"]  # default, `+d.ws+":2\n",
		`profiles.aa.env.A = "x\u001b[2J\u202e"`, "profiles.bb.git", "profiles.default.git",
	)
	for _, form := range [][]string{nil, {"--json"}} {
		d.run(append([]string{"config", "show"}, form...)...)
		if strings.ContainsAny(d.stdout.String(), "\x1b\u202e") {
			t.Errorf("raw control characters with %q", form)
		}
	}
	d.want(0, []string{"config", "show", "--profile", "bb"}, "profiles.bb.git", "general.data_root", "!profiles.aa", "!profiles.default")
	d.want(1, []string{"config", "show", "--profile", "cc"}, `unknown profile "cc"`, "aa, bb, default")
	d.write(d.dir+"/extra.toml", "[general]\nlog_level = \"debug\"\n")
	d.want(0, []string{"config", "show", "--config", d.dir + "/extra.toml"}, `general.log_level = "debug"  # `+d.dir+"/extra.toml:2")
	d.want(1, []string{"config", "show", "--config", d.dir + "/absent.toml"}, "absent.toml", "does not exist")
	d.want(2, []string{"config", "show", "--config", ""}, "--config needs a file")
	d.want(0, []string{"config", "show", "--workspace", d.dir}, d.dir+"/lazaret.toml (absent)", "!private")
	d.want(1, []string{"config", "show", "--workspace", d.dir + "/absent"}, "absent")
}

// What config show prints is itself a configuration with the same values.
func TestConfigShowPrintsTOML(t *testing.T) {
	d := newDesk(t)
	d.write(d.user, "[general]\ndata_root = \""+d.dir+"/data\"\n[profiles.aa]\nimage = \"img\"\ncommand = [\"sh\", \"-c\", \"\"\"a\n\\t'\"b\\\\\u00e9\\U0001F600\\u0007\"\"\"]\nenv = { A = \"1\" }\n[escalation]\nauto_approve = [[\"date\", \"-u\"]]\n")
	if d.run("config", "show") != 0 {
		t.Fatal(d.stderr.String())
	}
	first := d.stdout.String()
	d.write(d.user, first)
	if d.run("config", "show") != 0 {
		t.Fatalf("%s\nfrom\n%s", d.stderr.String(), first)
	}
	strip := func(s string) string {
		var b strings.Builder
		for line := range strings.Lines(s) {
			line, _, _ = strings.Cut(line, "  # ")
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
		return b.String()
	}
	if a, b := strip(first), strip(d.stdout.String()); a != b {
		t.Errorf("first\n%s\nthen\n%s", a, b)
	}
}

func TestConfigShowJSON(t *testing.T) {
	d := newDesk(t)
	d.write(d.ws, "[profiles.default.network]\nmode = \"none\"\n")
	d.want(0, []string{"config", "show", "--json"})
	var got struct {
		Layers []config.Layer
		Values map[string]struct {
			Value   any
			Origins []string
		}
	}
	if err := json.Unmarshal(d.stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	mode := got.Values["profiles.default.network.mode"]
	if mode.Value != "none" || len(mode.Origins) != 1 || mode.Origins[0] != d.ws+":2" {
		t.Errorf("mode: %+v", mode)
	}
	if len(got.Layers) != 2 || got.Layers[1].Path != d.ws || got.Layers[1].Trust != config.Untrusted || len(got.Layers[1].SHA256) != 64 {
		t.Errorf("layers: %+v", got.Layers)
	}
}

func TestConfigCheck(t *testing.T) {
	d := newDesk(t)
	d.want(0, []string{"config", "check"}, d.user+": ok", d.ws+": absent")
	d.write(d.ws, "[profiles.default]\nimage = \"x\"\n")
	d.want(1, []string{"config", "check"}, d.ws+`:2: key "profiles.default.image"`, "lazaret trust")
	d.want(0, []string{"config", "check", d.ws}, d.ws+": ok")
	d.write(d.ws, "[profiles.default]\nimag = \"x\"\ngit = \"x\"\n")
	d.want(1, []string{"config", "check", d.ws}, d.ws+`:2: key "profiles.default.imag"`, `did you mean "profiles.default.image"?`, d.ws+":3: ")
	if !strings.HasPrefix(d.stderr.String(), d.ws+":2: ") {
		t.Errorf("the line does not begin with the place: %q", d.stderr.String())
	}
	d.want(1, []string{"config", "check", d.dir + "/absent"}, "does not exist")
	d.want(1, []string{"config", "check", d.dir}, "is a directory")
	d.want(2, []string{"config", "check", "a", "b"}, "one file")
	d.want(2, []string{"config", "check", "--config", "a", "b"}, "by itself")
	d.want(2, []string{"config"}, "show", "check")
}

func TestConfigCheckTellsWhatCannotStart(t *testing.T) {
	for name, c := range map[string]struct{ more, want string }{
		"flags that runsc has":      {"args = [\"--debug\"]\n", ""},
		"a flag it does not have":   {"args = [\"--nope\"]\n", `has no flag "--nope"`},
		"a sidecar that is missing": {"sidecar = \"no-such-runc\"\n[profiles.default.network]\nallow = [\"example.org\"]\n", "no-such-runc"},
		"a network beside none":     {"args = [\"--network=host\"]\n[profiles.default.network]\nmode = \"none\"\n", "take that flag away"},
		"walls taken down":          {"args = [\"--TESTONLY-unsafe-nonroot\"]\n", "walls down"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.configure(c.more)
			if c.want == "" {
				d.want(0, []string{"config", "check"}, d.user+": ok")
				return
			}
			d.want(1, []string{"config", "check"}, d.user+": ok", "sandboxes cannot start: ", c.want)
			d.want(0, []string{"config", "check", d.user}, d.user+": ok")
		})
	}
	d := newDesk(t)
	d.write(d.user, "[runtime]\nsandbox = \"/nonexistent/runsc\"\n[profiles.default.network]\nallow = [\"example.org\"]\n")
	d.want(1, []string{"config", "check"}, "sandboxes cannot start: low-level runtime: ", "install gVisor's runsc")
}

func TestTrust(t *testing.T) {
	d := newDesk(t)
	d.want(1, []string{"trust"}, "does not exist")
	d.want(0, []string{"trust", "--list"}, "no file is trusted")
	d.write(d.ws, "[profiles.default]\nmasks = [\"x\", \".vscode\", \".idea\"]\n")
	d.want(0, []string{"trust", "--yes"}, "only tightens", "without trust")
	d.want(0, []string{"trust", "--list"}, "!lazaret.toml")

	d.write(d.ws, "[profiles.default]\nimage = \"x\"\nenv = { A = \"\\u001b[2J\" }\n")
	d.want(1, []string{"trust"}, "loosens the sandbox", `line 2: profiles.default.image changes "" to "x"`, "line 3: profiles.default.env.A sets", "no terminal", "!\x1b")
	d.want(1, []string{"config", "check"}, "may only tighten")
	d.stdin = strings.NewReader("y\n")
	d.want(1, []string{"trust"}, "no terminal")

	d.want(0, []string{"trust", "--yes"}, "trusted "+d.ws)
	d.want(0, []string{"config", "check"}, d.ws+": ok, trusted")
	d.want(0, []string{"trust", filepath.Dir(d.ws)}, "trusted already")
	d.want(0, []string{"trust", "--list"}, d.ws)

	d.write(d.ws, "[profiles.default]\nimage = \"y\"\n")
	d.want(1, []string{"config", "check"}, "changed since it was trusted")
	d.want(1, []string{"trust", d.ws}, "has changed since it was trusted", `"y"`)
	d.want(0, []string{"trust", "-y", d.ws}, "trusted")

	d.want(0, []string{"trust", "--revoke"}, "not trusted any more")
	d.want(1, []string{"trust", "--revoke"}, "is not trusted")
	d.want(1, []string{"config", "check"}, "may only tighten")

	d.write(d.ws, "[profiles.default]\nimag = \"y\"\n")
	d.want(1, []string{"trust", "--yes"}, d.ws+":2: ", "unknown key")
	d.want(2, []string{"trust", "a", "b"}, "one path")
	d.want(2, []string{"trust", "--list", "a"}, "no path")
}

func TestTrustRevokesWhatIsGone(t *testing.T) {
	d := newDesk(t)
	d.write(d.ws, "[profiles.default]\nimage = \"x\"\n")
	d.want(0, []string{"trust", "--yes"})
	t.Chdir(d.dir)
	if err := os.RemoveAll(filepath.Dir(d.ws)); err != nil {
		t.Fatal(err)
	}
	d.want(0, []string{"trust", "--revoke", d.ws}, "not trusted any more")
}

func TestTrustAsksOnTheTerminal(t *testing.T) {
	for answer, code := range map[string]int{"y": 0, "YES": 0, "": 1, "n": 1, "yep": 1, "\x04": 1} {
		t.Run("answer "+answer, func(t *testing.T) {
			d := newDesk(t)
			d.write(d.ws, "[profiles.default]\nimage = \"x\"\n")
			ptm, pts, err := pty.Open()
			if err != nil {
				t.Skipf("no terminals here: %v", err)
			}
			t.Cleanup(func() { _, _ = ptm.Close(), pts.Close() })
			if err := ptm.SetWriteDeadline(time.Now().Add(5 * time.Second)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
				t.Fatal(err)
			}
			if _, err := ptm.WriteString(answer + "\n"); err != nil {
				t.Fatal(err)
			}
			d.stdin = pts
			d.want(code, []string{"trust"}, "Trust this content? [y/N]")
			want := 1
			if code == 0 {
				want = 0
			}
			d.want(want, []string{"config", "check"})
		})
	}
}
