package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// developer is the configuration that the agent's file is laid over.
const developer = `
[general]
log_level = "info"
[escalation]
auto_approve = [["notify-send"], ["uptime", "-p"]]
timeout = "5m"
[profiles.default]
image = "localhost/agent"
env = { MODE = "safe" }
masks = [".vscode", "secrets"]
[profiles.default.network]
mode = "filtered"
allow = ["example.org", "*.example.net", "192.0.2.0/24", "@npm"]
deny = ["bad.example.net"]
[profiles.open.network]
mode = "open"
[profiles.closed.network]
mode = "none"
[profiles.branch]
git = "branch"
[profiles.quiet.escalation]
auto_approve = []
[profiles.broad]
allow_broad_workspace = true
`

// Case 54 of the case log: the workspace's file is the agent's to write.
func TestUntrustedWorkspaceFileLoosensNothing(t *testing.T) {
	tests := []struct{ name, text, key, why string }{
		{"a new host", "[profiles.default.network]\nallow = [\"evil.example.com\"]\n", "profiles.default.network.allow", `allows "evil.example.com"`},
		{"a new host among old ones", "[profiles.default.network]\nallow = [\"example.org\", \"evil.example.com\"]\n", "profiles.default.network.allow", "evil"},
		{"the parent of a wildcard", "[profiles.default.network]\nallow = [\"example.net\"]\n", "profiles.default.network.allow", "allows"},
		{"a name that only ends like a wildcard", "[profiles.default.network]\nallow = [\"evilexample.net\"]\n", "profiles.default.network.allow", "allows"},
		{"a wildcard over an allowed host", "[profiles.default.network]\nallow = [\"*.example.org\"]\n", "profiles.default.network.allow", "allows"},
		{"a wider CIDR", "[profiles.default.network]\nallow = [\"192.0.2.0/23\"]\n", "profiles.default.network.allow", "allows"},
		{"another preset", "[profiles.default.network]\nallow = [\"@pypi\"]\n", "profiles.default.network.allow", "allows"},
		{"filtered to open", "[profiles.default.network]\nmode = \"open\"\n", "profiles.default.network.mode", "open"},
		{"none to filtered", "[profiles.closed.network]\nmode = \"filtered\"\n", "profiles.closed.network.mode", "filtered"},
		{"none to open with a list", "[profiles.closed.network]\nmode = \"open\"\nallow = [\"x.example.com\"]\n", "profiles.closed.network.mode", "open"},
		{"no masks", "[profiles.default]\nmasks = []\n", "profiles.default.masks", `removes ".vscode", "secrets"`},
		{"no denials", "[profiles.default.network]\ndeny = []\n", "profiles.default.network.deny", "removes"},
		{"git off", "[profiles.default]\ngit = \"off\"\n", "profiles.default.git", "off"},
		{"git back from branch", "[profiles.branch]\ngit = \"sentry\"\n", "profiles.branch.git", "sentry"},
		{"git off from branch", "[profiles.branch]\ngit = \"off\"\n", "profiles.branch.git", "off"},
		{"a longer time-out", "[escalation]\ntimeout = \"1h\"\n", "escalation.timeout", "1h"},
		{"another prefix", "[escalation]\nauto_approve = [[\"date\"]]\n", "escalation.auto_approve", `"date"`},
		{"a shorter prefix", "[escalation]\nauto_approve = [[\"uptime\"]]\n", "escalation.auto_approve", `"uptime"`},
		{"a prefix for a profile that had none", "[profiles.quiet.escalation]\nauto_approve = [[\"notify-send\"]]\n", "profiles.quiet.escalation.auto_approve", "notify-send"},
		{"a prefix for one profile", "[profiles.default.escalation]\nauto_approve = [[\"date\"]]\n", "profiles.default.escalation.auto_approve", "date"},
		{"inbound connections", "[profiles.default.network]\ninbound = true\n", "profiles.default.network.inbound", "true"},
		{"a broad workspace", "[profiles.default]\nallow_broad_workspace = true\n", "profiles.default.allow_broad_workspace", "true"},
		{"an image", "[profiles.default]\nimage = \"evil\"\n", "profiles.default.image", "evil"},
		{"a long image that differs at its end", "[profiles.default]\nimage = \"" + strings.Repeat("a", 250) + "\"\n", "profiles.default.image", "changes"},
		{"a command", "[profiles.default]\ncommand = [\"evil\"]\n", "profiles.default.command", "evil"},
		{"a variable", "[profiles.default.env]\nLD_PRELOAD = \"x\"\n", "profiles.default.env.LD_PRELOAD", "sets"},
		{"another value of a variable", "[profiles.default]\nenv = [\"MODE=unsafe\"]\n", "profiles.default.env.MODE", "unsafe"},
		{"a secret of the host", "[profiles.default]\npass_env = [\"AWS_SECRET_ACCESS_KEY\"]\n", "profiles.default.pass_env", "AWS"},
		{"a volume", "[profiles.default]\nvolumes = [\"~/.ssh:/ssh\"]\n", "profiles.default.volumes", "ssh"},
		{"persist", "[profiles.default]\npersist = [\"/root\"]\n", "profiles.default.persist", "/root"},
		{"no state", "[profiles.default]\nstate_paths = []\n", "profiles.default.state_paths", "changes"},
		{"a new profile", "[profiles.mine]\n", "profiles.mine", "new profile"},
		{"another default profile", "[general]\ndefault_profile = \"open\"\n", "general.default_profile", "open"},
		{"the storage root", "[general]\ndata_root = \"/tmp/x\"\n", "general.data_root", "/tmp/x"},
		{"the control directory", "[general]\ncontrol_dir = \"/var/tmp\"\n", "general.control_dir", "/var/tmp"},
		{"less log", "[general]\nlog_level = \"error\"\n", "general.log_level", "error"},
		{"a runtime", "[runtime]\nsandbox = \"crun\"\n", "runtime.sandbox", "crun"},
		{"a platform", "[runtime]\nplatform = \"ptrace\"\n", "runtime.platform", "ptrace"},
		{"runtime flags", "[runtime]\nargs = [\"--network=host\"]\n", "runtime.args", "network"},
		{"a socket directory", "[escalation]\nsocket_dir = \"/tmp\"\n", "escalation.socket_dir", "/tmp"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.user(developer)
			path := h.ws(tt.text)
			h.refused(path+":", `key "`+tt.key+`"`, tt.why, "may only tighten", "lazaret trust "+h.opts.Workspace)
			h.trust(h.opts.Workspace)
			c := h.load()
			if got := c.Layers[1]; got.Trust != Trusted {
				t.Errorf("after trust: %+v", got)
			}
			key := tt.key
			if key == "profiles.mine" {
				if _, err := c.Profile("mine"); err != nil {
					t.Error(err)
				}
				return
			}
			if o := c.Origin(key); o.File != path {
				t.Errorf("trusted, but %s comes from %s", key, o)
			}
			h.ws(tt.text + "# one more byte\n")
			h.refused(path+":", `key "`+tt.key+`"`, "changed since it was trusted", "lazaret trust "+h.opts.Workspace)
		})
	}
}

func TestEveryLooseningKeyIsNamed(t *testing.T) {
	h := newHost(t)
	h.ws("[profiles.default]\nimage = \"x\"\ncommand = [\"y\"]\n[profiles.default.network]\nmode = \"open\"\n[runtime]\nargs = [\"--debug\"]\n")
	h.refused(":2: key \"profiles.default.image\"", ":3: key \"profiles.default.command\"", ":5: key \"profiles.default.network.mode\"", ":7: key \"runtime.args\"")
}

func TestAttackOfTheCaseLog(t *testing.T) {
	h := newHost(t)
	path := h.ws("[network]\nallow=[\"*\"]\n[escalation]\nauto_approve=[[\"sh\"]]\n[git]\nsentry=false\n")
	h.refused(path+`:1: key "network"`, path+`:4: key "escalation.auto_approve[0]"`, "is a shell", path+`:5: key "git"`)
	if _, err := Inspect(h.opts, h.opts.Workspace); err == nil {
		t.Error("a file with faults can be trusted")
	}
}

func TestUntrustedWorkspaceFileMayTighten(t *testing.T) {
	tests := []struct {
		name, text, profile string
		check               func(p *Profile) bool
	}{
		{"fewer hosts", "[profiles.default.network]\nallow = [\"example.org\"]\n", "default", func(p *Profile) bool {
			return reflect.DeepEqual(p.Network.Allow, []string{"example.org"})
		}},
		{"narrower rules", "[profiles.default.network]\nallow = [\"EXAMPLE.org:443\", \"a.b.example.net\", \"*.c.example.net\", \"192.0.2.8\", \"192.0.2.128/25\", \"@npm\"]\n", "default", func(p *Profile) bool {
			return len(p.Network.Allow) == 6 && p.Network.Allow[0] == "example.org:443"
		}},
		{"no hosts", "[profiles.default.network]\nallow = []\n", "default", func(p *Profile) bool { return len(p.Network.Allow) == 0 }},
		{"filtered to none", "[profiles.default.network]\nmode = \"none\"\n", "default", func(p *Profile) bool { return p.Network.Mode == "none" }},
		{"open to filtered with hosts", "[profiles.open.network]\nmode = \"filtered\"\nallow = [\"x.example.com\"]\n", "open", func(p *Profile) bool {
			return p.Network.Mode == "filtered" && len(p.Network.Allow) == 1
		}},
		{"more denials", "[profiles.default.network]\ndeny = [\"worse.example.net\"]\n", "default", func(p *Profile) bool {
			return reflect.DeepEqual(p.Network.Deny, []string{"bad.example.net", "worse.example.net"})
		}},
		{"more masks", "[profiles.default]\nmasks = [\"private\", \"secrets\"]\n", "default", func(p *Profile) bool {
			return reflect.DeepEqual(p.Masks, []string{".vscode", "secrets", "private"})
		}},
		{"masks above the defaults", "[profiles.open]\nmasks = [\"private\"]\n", "open", func(p *Profile) bool {
			return reflect.DeepEqual(p.Masks, []string{".vscode", ".idea", "private"})
		}},
		{"more read-only", "[profiles.default]\nread_only = [\"vendor/\"]\n", "default", func(p *Profile) bool { return reflect.DeepEqual(p.ReadOnly, []string{"vendor"}) }},
		{"git sentry to branch", "[profiles.default]\ngit = \"branch\"\n", "default", func(p *Profile) bool { return p.Git == "branch" }},
		{"no escalation", "[escalation]\nenabled = false\n", "default", func(p *Profile) bool { return !p.Escalation.Enabled }},
		{"shorter time-out", "[escalation]\ntimeout = \"10s\"\n", "default", func(p *Profile) bool { return p.Escalation.Timeout.Seconds() == 10 }},
		{"longer prefixes", "[escalation]\nauto_approve = [[\"notify-send\", \"--urgency=low\"]]\n", "default", func(p *Profile) bool { return len(p.Escalation.AutoApprove) == 1 }},
		{"fewer prefixes for a profile", "[profiles.default.escalation]\nauto_approve = []\n", "default", func(p *Profile) bool { return len(p.Escalation.AutoApprove) == 0 }},
		{"no broad workspace", "[profiles.broad]\nallow_broad_workspace = false\n", "broad", func(p *Profile) bool { return !p.AllowBroadWorkspace }},
		{"what is so already", "[general]\nlog_level = \"info\"\ndefault_profile = \"default\"\n[profiles.default]\nimage = \"localhost/agent\"\nenv = [\"MODE=safe\"]\n", "default", func(p *Profile) bool { return p.Image == "localhost/agent" }},
		{"nothing", "", "default", func(*Profile) bool { return true }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.user(developer)
			h.ws(tt.text)
			if p := h.profile(tt.profile); !tt.check(p) {
				t.Errorf("profile: %+v", p)
			}
			if got := h.load().Layers[1].Trust; got != Untrusted {
				t.Errorf("trust: %s", got)
			}
		})
	}
}

func TestUnionKeepsBothOrigins(t *testing.T) {
	h := newHost(t)
	u := h.user("[profiles.default]\nmasks = [\"a\"]\n")
	w := h.ws("[profiles.default]\nmasks = [\"b\"]\n")
	for _, v := range h.load().Values("default") {
		if v.Key == "profiles.default.masks" {
			if want := []Origin{{u, 2}, {w, 2}}; !reflect.DeepEqual(v.Origins, want) {
				t.Errorf("got %v, want %v", v.Origins, want)
			}
			return
		}
	}
	t.Error("masks are not listed")
}

func TestTrustedListsReplace(t *testing.T) {
	h := newHost(t)
	h.ws("[profiles.default]\nmasks = [\"b\"]\n")
	if got := h.profile("default").Masks; len(got) != 3 {
		t.Errorf("untrusted: %q", got)
	}
	in, err := Inspect(h.opts, h.opts.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Loosens) != 1 || !strings.Contains(in.Loosens[0].Why, `removes ".vscode", ".idea"`) {
		t.Errorf("the developer is not told that trust drops masks: %v", in.Loosens)
	}
	h.trust(h.opts.Workspace)
	if got := h.profile("default").Masks; !reflect.DeepEqual(got, []string{"b"}) {
		t.Errorf("trusted: %q", got)
	}
}

// The agent must not be able to prepare something in one layer's gap that the
// --config file then opens.
func TestTightenRuleHoldsBelowTheConfigFile(t *testing.T) {
	t.Run("hosts prepared under an open mode that --config filters", func(t *testing.T) {
		h := newHost(t)
		h.user("[profiles.default.network]\nmode = \"open\"\n")
		h.ws("[profiles.default.network]\nallow = [\"evil.example.com\"]\n")
		h.load()
		h.file("[profiles.default.network]\nmode = \"filtered\"\n")
		h.refused("lazaret.toml:2", "evil.example.com")
	})
	t.Run("a prefix that --config dropped", func(t *testing.T) {
		h := newHost(t)
		h.user("[escalation]\nauto_approve = [[\"notify-send\"]]\n")
		h.ws("[profiles.default.escalation]\nauto_approve = [[\"notify-send\"]]\n")
		h.load()
		h.file("[escalation]\nauto_approve = []\n")
		h.refused("lazaret.toml:2", "notify-send")
	})
	t.Run("what --config replaces anyway does no harm", func(t *testing.T) {
		h := newHost(t)
		h.ws("[profiles.default]\nimage = \"evil\"\n")
		h.file("[profiles.default]\nimage = \"good\"\n")
		if got := h.profile("default").Image; got != "good" {
			t.Errorf("got %q", got)
		}
	})
}

func TestWorkspaceFileMustBeARegularFile(t *testing.T) {
	tests := []struct {
		name string
		make func(h *host, p string) error
		want string
	}{
		{"link to a harmless file", func(h *host, p string) error { return os.Symlink(h.write("x.toml", ""), p) }, "symbolic link"},
		{"link to the user's own file", func(h *host, p string) error { return os.Symlink(h.user(""), p) }, "symbolic link"},
		{"dangling link", func(h *host, p string) error { return os.Symlink(h.dir+"/nowhere", p) }, "symbolic link"},
		{"FIFO", func(_ *host, p string) error { return syscall.Mkfifo(p, 0o600) }, "FIFO"},
		{"directory", func(_ *host, p string) error { return os.Mkdir(p, 0o700) }, "directory"},
		{"100 MB", func(_ *host, p string) error {
			return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 100<<20))
		}, "larger than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			p := filepath.Join(h.opts.Workspace, WorkspaceFile)
			if err := tt.make(h, p); err != nil {
				t.Fatal(err)
			}
			h.refused(p, tt.want)
			if _, err := Inspect(h.opts, p); err == nil {
				t.Error("it can be trusted")
			}
		})
	}
}

func TestConfigFileInTheWorkspaceNeedsTrust(t *testing.T) {
	const text = "[profiles.default]\nimage = \"mine\"\n"
	t.Run("named directly", func(t *testing.T) {
		h := newHost(t)
		h.opts.File = h.write("ws/sub/dev.toml", text)
		h.refused(h.opts.File, "the agent can write it", "lazaret trust")
		h.trust(h.opts.File)
		if got := h.profile("default").Image; got != "mine" {
			t.Errorf("got %q", got)
		}
		h.write("ws/sub/dev.toml", text+"\n")
		h.refused("changed since it was trusted")
	})
	t.Run("by a relative path", func(t *testing.T) {
		h := newHost(t)
		h.write("ws/dev.toml", text)
		t.Chdir(h.opts.Workspace)
		h.opts.File = "dev.toml"
		h.refused("the agent can write it")
		t.Chdir(h.opts.Home)
		h.opts.File = "../ws/../ws/dev.toml"
		h.refused("the agent can write it")
	})
	t.Run("through a link outside", func(t *testing.T) {
		h := newHost(t)
		target := h.write("ws/dev.toml", text)
		h.opts.File = h.dir + "/link.toml"
		if err := os.Symlink(target, h.opts.File); err != nil {
			t.Fatal(err)
		}
		h.refused("the agent can write it")
	})
	t.Run("through a link to the workspace", func(t *testing.T) {
		h := newHost(t)
		h.write("ws/dev.toml", text)
		if err := os.Symlink(h.opts.Workspace, h.dir+"/w"); err != nil {
			t.Fatal(err)
		}
		h.opts.File = h.dir + "/w/dev.toml"
		h.refused("the agent can write it")
	})
	t.Run("through a link in the workspace that leads out", func(t *testing.T) {
		h := newHost(t)
		target := h.write("elsewhere/dev.toml", text)
		h.opts.File = h.opts.Workspace + "/dev.toml"
		if err := os.Symlink(target, h.opts.File); err != nil {
			t.Fatal(err)
		}
		h.refused("the agent can write it")
	})
	t.Run("through a directory link in the workspace, taken by a path outside", func(t *testing.T) {
		h := newHost(t)
		h.write("elsewhere/dev.toml", text)
		if err := errors.Join(
			os.Symlink(h.dir+"/elsewhere", h.opts.Workspace+"/d"),
			os.Symlink(h.opts.Workspace+"/d", h.dir+"/d"),
		); err != nil {
			t.Fatal(err)
		}
		h.opts.File = h.dir + "/d/dev.toml"
		h.refused("the agent can write it")
	})
	t.Run("beside the workspace, with the same beginning", func(t *testing.T) {
		h := newHost(t)
		h.opts.File = h.write("ws2/dev.toml", text)
		h.load()
	})
}

func TestTrustIsOfOnePathAndOneContent(t *testing.T) {
	const text = "[profiles.default]\nimage = \"mine\"\n"
	h := newHost(t)
	h.ws(text)
	h.trust(h.opts.Workspace)
	h.load()

	other := *h
	h.write("other/lazaret.toml", text)
	other.opts.Workspace = h.dir + "/other"
	other.refused("may only tighten")

	h.ws(text + " ")
	h.refused("changed since it was trusted")
	h.ws("[profiles.default]\nmasks = [\"x\"]\n")
	if got := h.load().Layers[1].Trust; got != Changed {
		t.Errorf("a changed file that only tightens: %s", got)
	}
	h.ws(text)
	h.load()

	s, err := OpenTrustStore(h.opts)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := s.Revoke(h.opts.Workspace + "/lazaret.toml"); err != nil || !found {
		t.Fatalf("revoke: %v, %v", found, err)
	}
	h.refused("may only tighten")
	if found, err := s.Revoke(h.opts.Workspace + "/lazaret.toml"); err != nil || found {
		t.Fatalf("second revoke: %v, %v", found, err)
	}
}

// What is trusted is what was shown, even if the agent swaps the file meanwhile.
func TestTrustRecordsWhatWasInspected(t *testing.T) {
	h := newHost(t)
	h.ws("[profiles.default]\nimage = \"shown\"\n")
	in, err := Inspect(h.opts, h.opts.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	h.ws("[profiles.default]\nimage = \"swapped\"\n")
	s, err := OpenTrustStore(h.opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Trust(in, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	h.refused("swapped", "changed since it was trusted")
}

func TestTrustStoreFollowsOnlyTheUsersDataRoot(t *testing.T) {
	h := newHost(t)
	h.user("[general]\ndata_root = \"~/store\"\n")
	h.ws("[general]\ndata_root = \"" + h.dir + "/ws/fake\"\n")
	h.write("ws/fake/trust.json", "x")
	h.refused("general.data_root", "may only tighten")
	s, err := OpenTrustStore(h.opts)
	if err != nil || s.Path() != h.opts.Home+"/store/trust.json" {
		t.Errorf("store: %v, %v", s, err)
	}
}

func TestTrustStoreRefusesWhatOthersCouldHaveWritten(t *testing.T) {
	tests := []struct {
		name string
		edit func(h *host, path string) error
		want string
	}{
		{"writable by the group", func(_ *host, p string) error { return os.Chmod(p, 0o660) }, "written by others"},
		{"writable by all", func(_ *host, p string) error { return os.Chmod(p, 0o602) }, "written by others"},
		{"a link", func(h *host, p string) error {
			return errors.Join(os.Rename(p, h.dir+"/moved"), os.Symlink(h.dir+"/moved", p))
		}, "trust store"},
		{"a FIFO", func(_ *host, p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) }, "not a regular file"},
		{"garbage", func(_ *host, p string) error { return os.WriteFile(p, []byte("{"), 0o600) }, "damaged"},
		{"a newer version", func(_ *host, p string) error { return os.WriteFile(p, []byte(`{"version":2,"files":{}}`), 0o600) }, "version 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.ws("[profiles.default]\nimage = \"x\"\n")
			h.trust(h.opts.Workspace)
			p := h.opts.Home + "/.local/share/lazaret/trust.json"
			if fi, err := os.Stat(p); err != nil || fi.Mode().Perm() != 0o600 {
				t.Fatalf("store: %v, %v", fi, err)
			}
			if err := tt.edit(h, p); err != nil {
				t.Fatal(err)
			}
			h.refused(tt.want)
		})
	}
	t.Run("of another user", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can give files away")
		}
		h := newHost(t)
		h.ws("")
		h.trust(h.opts.Workspace)
		if err := os.Chown(h.opts.Home+"/.local/share/lazaret/trust.json", 12345, -1); err != nil {
			t.Fatal(err)
		}
		h.refused("another user")
	})
}

func TestWithoutAHomeNothingIsTrusted(t *testing.T) {
	h := newHost(t)
	h.file("[general]\ndata_root = \"" + h.dir + "/data\"\n")
	h.opts.Home = ""
	h.ws("[profiles.default]\nmasks = [\"x\"]\n")
	if got := h.load().Layers[0].Trust; got != Untrusted {
		t.Errorf("got %q", got)
	}
	h.ws("[profiles.default]\nimage = \"x\"\n")
	h.refused("may only tighten")
}

func TestTrustPath(t *testing.T) {
	h := newHost(t)
	file := h.ws("")
	if err := errors.Join(os.Symlink(h.opts.Workspace, h.dir+"/w"), os.Symlink(file, h.dir+"/f")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(h.opts.Workspace)
	for _, p := range []string{".", "lazaret.toml", file, h.opts.Workspace + "/", h.dir + "/w", h.dir + "/w/lazaret.toml", h.dir + "/home/../ws"} {
		if got, err := TrustPath(p); err != nil || got != file {
			t.Errorf("TrustPath(%q) = %q, %v; want %q", p, got, err, file)
		}
	}
	if got, err := TrustPath(h.dir + "/f"); err == nil {
		t.Errorf("a link to a file is taken as %q", got)
	}
}

func TestGuardedPaths(t *testing.T) {
	h := newHost(t)
	h.file("")
	want := []string{
		h.opts.Home + "/.config/lazaret/config.toml", h.opts.Workspace + "/lazaret.toml",
		h.opts.File, h.opts.Home + "/.local/share/lazaret/trust.json",
	}
	if got := h.load().GuardedPaths(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
