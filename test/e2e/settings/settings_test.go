// Package settings runs containers under configurations of every kind: which
// profile counts, who may set it, what a broken or hostile file does, and what the
// masks of the workspace hide.
package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const whoami = `echo $LAZARET_PROFILE`

// The annotation goes before the variable, and that before default_profile.
func TestProfiles(t *testing.T) {
	opts := harness.Options{Config: "[general]\ndefault_profile = \"usual\"\n[profiles.usual]\n[profiles.one]\n[profiles.two]\n"}
	harness.Each(t, opts, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		for _, c := range []struct {
			name string
			args []string
			want string
		}{
			{"nobody says", nil, "usual"},
			{"the built-in one", []string{"-e", "LAZARET_PROFILE=default"}, "default"},
			{"the variable", []string{"-e", "LAZARET_PROFILE=one"}, "one"},
			{"the annotation", []string{"--annotation=dev.lazaret.profile=two"}, "two"},
			{"both", []string{"--annotation=dev.lazaret.profile=two", "-e", "LAZARET_PROFILE=one"}, "two"},
			{"an empty variable", []string{"-e", "LAZARET_PROFILE="}, "usual"},
		} {
			t.Run(c.name, func(t *testing.T) {
				if got := h.Lazaret(ws, append(c.args, harness.Busybox, "sh", "-c", whoami)...).OK(t); got != c.want {
					t.Errorf("profile %q, want %q", got, c.want)
				}
			})
		}
		for _, args := range [][]string{{"--annotation=dev.lazaret.profile=three"}, {"-e", "LAZARET_PROFILE=three"}} {
			h.Lazaret(ws, append(args, harness.Busybox, "true")...).Fails(t, 126, `"three"`, "one", "two", "usual", "default")
		}
		h.Lazaret(ws, "--annotation=dev.lazaret.profile=../x", harness.Busybox, "true").Fails(t, 126, "../x")
	})
}

// What an image brings steers neither Lazaret nor runsc: its annotations and its
// variables are not the user's.
func TestImagesDoNotSteer(t *testing.T) {
	opts := harness.Options{Filtered: true, Config: "[profiles.loose]\n[profiles.loose.network]\nmode = \"open\"\n[profiles.strict]\n"}
	harness.Each(t, opts, func(t *testing.T, h *harness.Harness) {
		ws, other := h.Workspace(), h.Workspace()
		dir := filepath.Join(h.Home, "build")
		h.WriteFile(filepath.Join(dir, "Containerfile"), "FROM "+harness.Busybox+"\nENV LAZARET_PROFILE=loose\n")
		h.Podman("build", "-q", "-t", "localhost/hostile",
			"--annotation=dev.lazaret.profile=loose", "--annotation=dev.lazaret.workspace="+other,
			"--annotation=dev.gvisor.spec.mount.x.type=bind", "--annotation=dev.gvisor.flag.network=host", dir).OK(t)
		if got := h.Podman("image", "inspect", "--format={{json .Annotations}}", "localhost/hostile").OK(t); !strings.Contains(got, "dev.lazaret.profile") {
			t.Fatalf("the image has no annotations: %s", got)
		}
		if got := h.Lazaret("", "localhost/hostile", "sh", "-c", whoami+"; ls -d /workspace 2>/dev/null").Exit(t, 1); got != "default" {
			t.Errorf("without a workspace: %q, want the default profile and no workspace", got)
		}
		h.Detached(ws, "box", "localhost/hostile", "sleep", "300")
		notes := strings.Join(h.Domain("default", ws).Containers[0].Notes, "\n")
		for _, want := range []string{"LAZARET_PROFILE=loose", "dev.lazaret.profile", "dev.lazaret.workspace", "dev.gvisor.flag.network"} {
			if !strings.Contains(notes, want) {
				t.Errorf("lazaret status does not tell that %s was dropped: %q", want, notes)
			}
		}
		h.Podman("rm", "-f", "-t", "0", "box").OK(t)
		// The user's own word counts, also where it is the image's value.
		for want, args := range map[string][]string{
			"strict": {"-e", "LAZARET_PROFILE=strict"},
			"loose":  {"--annotation=dev.lazaret.profile=loose", "--annotation=x=y", "-e", "LAZARET_PROFILE=loose2"},
		} {
			r := h.Lazaret(ws, append(args, "localhost/hostile", "sh", "-c", whoami)...)
			if want == "loose" { // podman does not tell the user's annotation from the image's of the same value
				if r.Code == 0 && strings.TrimSpace(r.Stdout) != "loose" && strings.TrimSpace(r.Stdout) != "default" {
					t.Errorf("profile %q", r.Stdout)
				}
				continue
			}
			if got := r.OK(t); got != want {
				t.Errorf("profile %q, want %q", got, want)
			}
		}
	})
}

// Case "misspelt safety": a configuration that is not understood stops the start,
// with file, line, key and what is meant; nothing in it falls back to a default.
func TestBrokenConfiguration(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		file := filepath.Join(h.Home, ".config/lazaret/config.toml")
		good := fmt.Sprintf("[runtime]\nsandbox = %q\n", h.Sandbox)
		for _, c := range []struct {
			name, text string
			words      []string
		}{
			{"a misspelt key", good + "[escalation]\nauto_aprove = []\n", []string{"config.toml:4", "auto_aprove", "auto_approve"}},
			{"a misspelt table", good + "[profiles.pp.netwrok]\nallow = []\n", []string{"config.toml:3", "netwrok", "network"}},
			{"a key in the wrong table", good + "allow = []\n", []string{"config.toml:3", "allow"}},
			{"a wrong type", good + "[profiles.pp]\nmasks = \".vscode\"\n", []string{"config.toml:4", "masks"}},
			{"another case", good + "[profiles.pp.network]\nAllow = []\n", []string{"config.toml:4", "Allow", "allow"}},
			{"a table twice", good + "[runtime]\n", []string{"config.toml", "runtime"}},
			{"no TOML", good + "[[[\n", []string{"config.toml:3"}},
			{"no text", good + "# \xff\n", []string{"config.toml"}},
			{"a profile name that is none", good + "[profiles.\"../x\"]\n", []string{"config.toml:3", "../x"}},
			{"a path that climbs", "[general]\ndata_root = \"~/../x\"\n" + good, []string{"config.toml:2", "data_root", ".."}},
		} {
			t.Run(c.name, func(t *testing.T) {
				h.WriteFile(file, c.text)
				r := h.Lazaret(ws, harness.Busybox, "echo", "ran")
				r.Fails(t, 126, c.words...)
				if r.Stdout != "" {
					t.Errorf("it ran: %q", r.Stdout)
				}
			})
		}
		t.Run("unreadable", func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("the developer's own files are readable to root of his namespace: needs root to make another's")
			}
			h.WriteFile(file, good)
			if err := errors.Join(os.Chown(file, 0, 0), os.Chmod(file, 0o600)); err != nil {
				t.Fatal(err)
			}
			h.Lazaret(ws, harness.Busybox, "true").Fails(t, 126, "config.toml", "permission denied")
		})
		t.Run("a directory", func(t *testing.T) {
			h.Sh(h.Home, `rm -f "$1" && mkdir "$1"`, file).OK(t)
			h.Lazaret(ws, harness.Busybox, "true").Fails(t, 126, "config.toml")
			h.Sh(h.Home, `rmdir "$1"`, file).OK(t)
		})
		for name, text := range map[string]string{
			"line ends of another system": strings.ReplaceAll(good, "\n", "\r\n"),
			"a byte order mark":           "\ufeff" + good,
		} {
			t.Run(name, func(t *testing.T) {
				h.WriteFile(file, text)
				r := h.Lazaret(ws, harness.Busybox, "echo", "ran")
				if r.Code != 0 {
					r.Fails(t, 126, "config.toml")
				}
			})
		}
		// A container that runs is ended whatever became of the file.
		h.Config(good)
		h.Detached(ws, "box", harness.Busybox, "sleep", "300")
		h.WriteFile(file, "[[[")
		h.Podman("stop", "-t", "1", "box").OK(t)
		h.Podman("rm", "box").OK(t)
		h.Config(good)
	})
}

// Case "the middle file belongs to the agent": lazaret.toml tightens without
// asking, loosens only what the developer has trusted word by word, and is
// read-only inside.
func TestWorkspaceFile(t *testing.T) {
	opts := harness.Options{Config: "[profiles.agent]\nmasks = [\".vscode\"]\n[profiles.agent.network]\nmode = \"none\"\n"}
	harness.Each(t, opts, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		file := filepath.Join(ws, "lazaret.toml")
		run := func(script string) harness.Result {
			return h.Lazaret(ws, "--annotation=dev.lazaret.profile=agent", harness.Busybox, "sh", "-c", script)
		}
		const attack = `for f in /workspace/lazaret.toml; do echo x 2>/dev/null >$f && echo wrote; rm -f $f 2>/dev/null && echo removed; mv $f /workspace/o 2>/dev/null && echo moved; done; echo x >/workspace/n 2>/dev/null; mv /workspace/n /workspace/lazaret.toml 2>/dev/null && echo replaced; true`
		for _, c := range []struct{ name, text, word string }{
			{"another network", "[profiles.agent.network]\nmode = \"open\"\n", "mode"},
			{"fewer masks", "[profiles.agent]\nmasks = []\n", "masks"},
			{"another runsc", "[runtime]\nsandbox = \"/workspace/runsc\"\n", "sandbox"},
			{"another data_root", "[general]\ndata_root = \"/tmp/x\"\n", "data_root"},
			{"commands of its own", "[escalation]\nauto_approve = [[\"ls\"]]\n", "auto_approve"},
			{"a broad workspace", "[profiles.agent]\nallow_broad_workspace = true\n", "allow_broad_workspace"},
		} {
			t.Run(c.name, func(t *testing.T) {
				h.WriteFile(file, c.text)
				r := run("echo ran")
				r.Fails(t, 126, "lazaret.toml", c.word)
				if r.Stdout != "" {
					t.Errorf("it ran: %q", r.Stdout)
				}
			})
		}
		t.Run("tighter", func(t *testing.T) {
			h.WriteFile(file, "[profiles.agent]\nmasks = [\".vscode\", \"src\"]\n")
			h.Sh(ws, "echo secret > src/secret; echo changed > src/two").OK(t)
			if got := run("ls -A /workspace/src; cat /workspace/src/two; " + attack + "; echo end").OK(t); got != "two\ntwo\nend" {
				t.Errorf("got %q, want nothing of src but what is committed, and the file as it is", got)
			}
			h.Sh(ws, "rm src/secret; echo two > src/two").OK(t)
			if data, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(data), "[profiles.agent]") {
				t.Errorf("on the host: %q, %v", data, err)
			}
			h.Sh(ws, "test -e src/two && rm -f n o").OK(t)
		})
		t.Run("trusted", func(t *testing.T) {
			h.WriteFile(file, "[profiles.agent.network]\nmode = \"open\"\n")
			h.Run("lazaret", "trust", "--yes", ws).OK(t)
			if got := run("echo ran").OK(t); got != "ran" {
				t.Errorf("got %q", got)
			}
			h.WriteFile(file, "[profiles.agent.network]\nmode = \"open\" \n")
			run("echo ran").Fails(t, 126, "lazaret.toml")
		})
		for name, make := range map[string]string{
			"a link":      `ln -s README lazaret.toml`,
			"a FIFO":      `mkfifo lazaret.toml`,
			"a directory": `mkdir lazaret.toml`,
			"huge":        `dd if=/dev/zero of=lazaret.toml bs=1M count=0 seek=100 2>/dev/null`,
		} {
			t.Run(name, func(t *testing.T) {
				h.Sh(ws, "rm -rf lazaret.toml; "+make).OK(t)
				r := run("echo ran")
				r.Fails(t, 126, "lazaret.toml")
			})
		}
		h.Sh(ws, "rm -rf lazaret.toml").OK(t)
		t.Run("made by the agent", func(t *testing.T) {
			run("echo x > /workspace/lazaret.toml").Exit(t, 1)
			if _, err := os.Lstat(file); err == nil {
				t.Error("it came to the host")
			}
		})
	})
}

// lazaret config show tells where each value is from.
func TestConfigShow(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Config: "[profiles.agent]\nmasks = [\".vscode\", \"secret\"]\n"})
	ws := h.Workspace()
	out := h.Sh(ws, "lazaret config show").OK(t)
	if !strings.Contains(out, "secret") || !strings.Contains(out, "config.toml") {
		t.Errorf("lazaret config show:\n%s", out)
	}
	var domain struct{ Hash, Workspace string }
	if err := json.Unmarshal([]byte(h.Sh(ws, "lazaret domain --profile=agent --json").OK(t)), &domain); err != nil {
		t.Fatal(err)
	}
	if want, err := harness.DomainHash("agent", ws); err != nil || domain.Hash != want || domain.Workspace != ws {
		t.Errorf("lazaret domain: %+v, want hash %s, %v", domain, want, err)
	}
	if got := h.Lazaret(ws, "--annotation=dev.lazaret.profile=agent", harness.Busybox, "sh", "-c", "echo $LAZARET_DOMAIN").OK(t); got != domain.Hash {
		t.Errorf("domain of the container: %q, want %q", got, domain.Hash)
	}
}
