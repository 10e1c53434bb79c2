package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// host is a developer's machine in a temporary directory.
type host struct {
	t    *testing.T
	dir  string
	opts Options
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, dir: dir, opts: Options{Home: dir + "/home", Workspace: dir + "/ws"}}
	for _, d := range []string{h.opts.Home, h.opts.Workspace} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *host) write(path, text string) string {
	h.t.Helper()
	path = filepath.Join(h.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return path
}

func (h *host) user(text string) string { return h.write("home/.config/lazaret/config.toml", text) }
func (h *host) ws(text string) string   { return h.write("ws/lazaret.toml", text) }

func (h *host) file(text string) {
	h.opts.File = h.write("extra.toml", text)
}

func (h *host) load() *Config {
	h.t.Helper()
	c, err := Load(h.opts)
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func (h *host) profile(name string) *Profile {
	h.t.Helper()
	p, err := h.load().Profile(name)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// refused loads and wants an error that holds every one of wants.
func (h *host) refused(wants ...string) {
	h.t.Helper()
	_, err := Load(h.opts)
	wantError(h.t, err, wants...)
}

func wantError(t *testing.T, err error, wants ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted, want an error with %q", wants)
	}
	for _, w := range wants {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q\n  does not say %q", err, w)
		}
	}
}

// trust does what `lazaret trust` does after a yes.
func (h *host) trust(path string) {
	h.t.Helper()
	in, err := Inspect(h.opts, path)
	if err != nil {
		h.t.Fatal(err)
	}
	s, err := OpenTrustStore(h.opts)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := s.Trust(in, time.Unix(1e9, 0)); err != nil {
		h.t.Fatal(err)
	}
}

func TestDefaultsWithoutAnyFile(t *testing.T) {
	h := newHost(t)
	c := h.load()
	if want := (General{h.dir + "/home/.local/share/lazaret", "default", "/tmp", "info"}); c.General != want {
		t.Errorf("general: %+v, want %+v", c.General, want)
	}
	if c.Runtime.Sandbox != "runsc" || c.Runtime.Sidecar != "runc" || c.Runtime.Platform != "" || len(c.Runtime.Args) != 0 {
		t.Errorf("runtime: %+v", c.Runtime)
	}
	p := h.profile("default")
	if p.Git != "sentry" || !reflect.DeepEqual(p.Masks, []string{".vscode", ".idea"}) ||
		!reflect.DeepEqual(p.StatePaths, []string{"/usr", "/etc", "/var/lib", "/opt"}) || p.AllowBroadWorkspace {
		t.Errorf("profile: %+v", p)
	}
	if p.Network.Mode != "filtered" || len(p.Network.Allow) != 0 {
		t.Errorf("network: %+v", p.Network)
	}
	if !p.Escalation.Enabled || p.Escalation.Timeout != 5*time.Minute || len(p.Escalation.AutoApprove) != 0 {
		t.Errorf("escalation: %+v", p.Escalation)
	}
}

func TestDataRoot(t *testing.T) {
	tests := []struct {
		name string
		edit func(*host)
		want string // below the host's directory unless absolute
	}{
		{"home", func(*host) {}, "home/.local/share/lazaret"},
		{"XDG_DATA_HOME", func(h *host) { h.opts.DataHome = h.dir + "/data" }, "data/lazaret"},
		{"real root", func(h *host) { h.opts.SystemWide = true }, "/var/lib/lazaret"},
		{"configured with a tilde", func(h *host) { h.user("[general]\ndata_root = \"~/d\"\n") }, "home/d"},
		{"through a symbolic link", func(h *host) {
			if err := os.Symlink(h.dir+"/home", h.dir+"/link"); err != nil {
				t.Fatal(err)
			}
			h.user("[general]\ndata_root = \"" + h.dir + "/link/new/deep\"\n")
		}, "home/new/deep"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			tt.edit(h)
			want := tt.want
			if !filepath.IsAbs(want) {
				want = filepath.Join(h.dir, want)
			}
			if got := h.load().General.DataRoot; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	t.Run("no home and nothing configured is an error", func(t *testing.T) {
		_, err := Load(Options{})
		wantError(t, err, "general.data_root", "no home directory")
	})
	t.Run("no home but configured", func(t *testing.T) {
		h := newHost(t)
		h.file("[general]\ndata_root = \"/srv/lazaret\"\n")
		c, err := Load(Options{File: h.opts.File})
		if err != nil || c.General.DataRoot != "/srv/lazaret" {
			t.Errorf("got %v, %v", c, err)
		}
	})
}

func TestXDGConfigHomeReplacesTheHome(t *testing.T) {
	h := newHost(t)
	h.user("[general]\nlog_level = \"error\"\n")
	h.write("xdg/lazaret/config.toml", "[general]\nlog_level = \"debug\"\n")
	h.opts.ConfigHome = h.dir + "/xdg"
	if got := h.load().General.LogLevel; got != "debug" {
		t.Errorf("got %s", got)
	}
}

// The merge rule: later scalars win, later lists replace (never append), env
// merges by variable, and what a layer does not name stays.
func TestLayersMerge(t *testing.T) {
	h := newHost(t)
	u := h.user(`
[general]
log_level = "warn"
default_profile = "claude"
[escalation]
auto_approve = [["notify-send"]]
[profiles.claude]
image = "img:user"
command = ["claude"]
masks = ["a", "b"]
pass_env = ["A", "B"]
env = { ONE = "user", TWO = "user" }
[profiles.claude.network]
mode = "open"
allow = ["example.org"]
`)
	h.file(`
[general]
log_level = "debug"
[profiles.claude]
image = "img:file"
masks = ["c"]
pass_env = []
env = ["TWO=file", "THREE=file"]
`)
	c := h.load()
	p, err := c.Profile("claude")
	if err != nil {
		t.Fatal(err)
	}
	if c.General.LogLevel != "debug" || c.General.DefaultProfile != "claude" {
		t.Errorf("general: %+v", c.General)
	}
	if p.Image != "img:file" || !reflect.DeepEqual(p.Command, []string{"claude"}) {
		t.Errorf("scalars: %q %q", p.Image, p.Command)
	}
	if !reflect.DeepEqual(p.Masks, []string{"c"}) || len(p.PassEnv) != 0 {
		t.Errorf("lists are not replaced: %q %q", p.Masks, p.PassEnv)
	}
	if want := map[string]string{"ONE": "user", "TWO": "file", "THREE": "file"}; !reflect.DeepEqual(p.Env, want) {
		t.Errorf("env: %v", p.Env)
	}
	if p.Network.Mode != "open" || len(p.Network.Deny) != 0 {
		t.Errorf("network: %+v", p.Network)
	}
	if !reflect.DeepEqual(p.Escalation.AutoApprove, [][]string{{"notify-send"}}) {
		t.Errorf("global auto_approve does not reach the profile: %q", p.Escalation.AutoApprove)
	}
	for key, want := range map[string]string{
		"general.log_level":            h.opts.File + ":3",
		"general.default_profile":      u + ":4",
		"general.control_dir":          "default",
		"profiles.claude.masks":        h.opts.File + ":6",
		"profiles.claude.env.ONE":      u + ":12",
		"profiles.claude.env.THREE":    h.opts.File + ":8",
		"profiles.claude.network.mode": u + ":14",
		"profiles.claude.git":          "default",
	} {
		if got := c.Origin(key).String(); got != want {
			t.Errorf("origin of %s: %s, want %s", key, got, want)
		}
	}
}

func TestProfileAutoApproveReplacesTheGlobal(t *testing.T) {
	h := newHost(t)
	h.user("[escalation]\nauto_approve = [[\"notify-send\"]]\n[profiles.quiet.escalation]\nauto_approve = []\n")
	if got := h.profile("quiet").Escalation.AutoApprove; len(got) != 0 {
		t.Errorf("an explicit empty list is not honoured: %q", got)
	}
	if got := h.profile("default").Escalation.AutoApprove; len(got) != 1 {
		t.Errorf("default: %q", got)
	}
}

func TestProfilesDoNotInherit(t *testing.T) {
	h := newHost(t)
	h.user("[profiles.default]\nimage = \"a\"\n[profiles.other]\n")
	if got := h.profile("other").Image; got != "" {
		t.Errorf("got %q", got)
	}
}

func TestUnknownProfileListsTheKnown(t *testing.T) {
	h := newHost(t)
	h.user("[profiles.claude]\n[profiles.codex]\n")
	_, err := h.load().Profile("cluade")
	wantError(t, err, `unknown profile "cluade"`, "known: claude, codex, default", `did you mean "claude"?`)
	h.user("[general]\ndefault_profile = \"nope\"\n")
	h.refused("config.toml:2", "general.default_profile", `no profile "nope"`, "allowed: default")
}

// Case 55 of the case log: a misspelling must never leave a permissive default.
func TestMisspeltSafety(t *testing.T) {
	tests := []struct {
		name, text string
		wants      []string
	}{
		{"typo in a key", "[escalation]\nauto_aprove = []\n", []string{":2", `key "escalation.auto_aprove"`, "unknown key", `did you mean "escalation.auto_approve"?`}},
		{"typo in a table at the top", "[netwrok]\nmode = \"none\"\n", []string{":1", `"netwrok"`, "unknown table", `did you mean "profiles.<name>.network"?`}},
		{"typo in a table of a profile", "[profiles.aa]\n\n[profiles.aa.netwrok]\nmode = \"none\"\n", []string{":3", `"profiles.aa.netwrok"`, `did you mean "profiles.aa.network"?`}},
		{"singular section", "[profile.aa]\nimage = \"x\"\n", []string{":1", `did you mean "profiles"?`}},
		{"right key at the top", "auto_approve = []\n", []string{":1", `"auto_approve"`, `did you mean "escalation.auto_approve"?`}},
		{"right key in the wrong table", "[general]\nauto_approve = []\n", []string{":2", `"general.auto_approve"`, `did you mean "escalation.auto_approve"?`}},
		{"network key in the profile", "[profiles.aa]\nallow = [\"example.org\"]\n", []string{":2", `"profiles.aa.allow"`, `did you mean`}},
		{"case variant of a key", "[profiles.aa.network]\nAllow = []\n", []string{":2", `"profiles.aa.network.Allow"`, "lower case", `did you mean "profiles.aa.network.allow"?`}},
		{"case variant of a table", "[Profiles.aa]\n", []string{":1", "lower case", `did you mean "profiles"?`}},
		{"case variant beside the right one", "[general]\nlog_level = \"info\"\nLog_Level = \"debug\"\n", []string{":3", "lower case"}},
		{"string for a boolean", "[escalation]\nenabled = \"false\"\n", []string{":2", "true or false", "a string"}},
		{"integer for a duration", "[escalation]\ntimeout = 300\n", []string{":2", "an integer", `"5m"`}},
		{"no duration", "[escalation]\ntimeout = \"5 minutes\"\n", []string{":2", "not a duration"}},
		{"negative duration", "[escalation]\ntimeout = \"-5m\"\n", []string{":2", "1s to 24h"}},
		{"string for a list", "[profiles.aa]\ncommand = \"claude\"\n", []string{":2", "array of strings", "a string"}},
		{"list for a string", "[profiles.aa]\nimage = [\"x\"]\n", []string{":2", "must be a string, not an array"}},
		{"number in a list", "[profiles.aa]\nmasks = [\n  \"a\",\n  7,\n]\n", []string{":4", `masks[1]`, "an integer"}},
		{"strings for prefixes", "[escalation]\nauto_approve = [\"notify-send hello\"]\n", []string{":2", "auto_approve[0]", "array of words"}},
		{"table for a list", "[profiles.aa.masks]\nx = 1\n", []string{":1", "a table"}},
		{"value for a table", "general = 1\n", []string{":1", "must be a table", "[general]"}},
		{"value for a profile", "[profiles]\naa = \"x\"\n", []string{":2", "must be a table"}},
		{"array of tables", "[[profiles.aa]]\nimage = \"x\"\n", []string{":1", "must be a table, not an array of tables"}},
		{"duplicate table", "[general]\n[runtime]\n[general]\n", []string{":3", "general"}},
		{"duplicate key", "[general]\nlog_level = \"info\"\nlog_level = \"info\"\n", []string{":3", "log_level"}},
		{"bad enum", "[profiles.aa.network]\nmode = \"filterd\"\n", []string{":2", `bad value "filterd"`, "allowed: filtered, learn, none, open", `did you mean "filtered"?`}},
		{"empty enum", "[profiles.aa]\ngit = \"\"\n", []string{":2", "allowed: sentry, branch, off"}},
		{"enum in upper case", "[profiles.aa]\ngit = \"Off\"\n", []string{":2", `did you mean "off"?`}},
		{"profile name of one letter", "[profiles.a]\n", []string{":1", "2 to 32"}},
		{"profile name in upper case", "[profiles.Claude]\n", []string{":1", "2 to 32"}},
		{"profile name with a slash", "[profiles.\"../x\"]\n", []string{":1", "2 to 32"}},
		{"profile name with a control character", "[profiles.\"a\\u001b[2J\"]\n", []string{":1", `\u001b`}},
		{"profile name too long", "[profiles." + strings.Repeat("a", 33) + "]\n", []string{":1", "2 to 32"}},
		{"byte order mark", "\xef\xbb\xbf[general]\n", []string{":1", "byte order mark"}},
		{"UTF-16", "\xff\xfe[\x00", []string{":1", "byte order mark"}},
		{"Latin-1", "[general]\n# caf\xe9\n", []string{":2", "0xe9", "UTF-8"}},
		{"NUL byte", "[general]\n\x00", []string{":2", "NUL"}},
		{"NUL escape", "[profiles.aa]\nenv = { A = \"x\\u0000y\" }\n", []string{":2", "NUL"}},
		{"broken syntax", "[general]\nlog_level = \"info\n", []string{":2"}},
		{"no value", "[general]\n\nlog_level =\n", []string{":3"}},
		{"syntax that only the scanner can place", "[general]\nlog_level \"info\"\n", []string{":2"}},
		{"nested too deep", "x = " + strings.Repeat("[", 100_000), []string{":1", "nested"}},
		{"endless key", strings.Repeat("a.", 100_000) + "a = 1\n", []string{":1", "more than 8 parts"}},
		{"endless list", "x = [" + strings.Repeat("1,", 100_000) + "]\n", []string{":1", "20000"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			path := h.user(tt.text)
			h.refused(append(tt.wants, path)...)
		})
	}
}

func TestAllFaultsOfAllFilesAreToldAtOnce(t *testing.T) {
	h := newHost(t)
	h.user("[general]\nlog_levle = \"info\"\n[profiles.aa]\ngit = \"no\"\n")
	h.ws("[profiles.aa]\nmask = []\n")
	h.refused("config.toml:2", "config.toml:4", "lazaret.toml:2")
}

func TestAManyTimesWrongFileDoesNotFloodTheTerminal(t *testing.T) {
	h := newHost(t)
	h.user(strings.Repeat("[profiles.aa]\n", 1) + func() string {
		var b strings.Builder
		for i := range 500 {
			b.WriteString("x" + strings.Repeat("y", i+1) + " = 1\n")
		}
		return b.String()
	}())
	_, err := Load(h.opts)
	wantError(t, err, "and 480 more")
	if n := strings.Count(err.Error(), "\n"); n != 20 {
		t.Errorf("%d lines", n)
	}
}

func TestAcceptedForms(t *testing.T) {
	for name, text := range map[string]string{
		"empty file":         "",
		"only a comment":     "# nothing\n",
		"CRLF":               "[general]\r\nlog_level = \"info\"\r\n",
		"no final line end":  "[general]\nlog_level = \"info\"",
		"dotted keys":        "general.log_level = \"info\"\n",
		"inline tables":      "profiles = { aa = { git = \"off\", network = { mode = \"none\" } } }\n",
		"quoted keys":        "[\"profiles\".'aa']\n\"git\" = 'off'\n",
		"multi-line strings": "[profiles.aa]\ncommand = [\"sh\", \"-c\", \"\"\"\necho \\\"a\\\"\n\"\"\", '''x''''']\n",
		"JSON in env":        "[profiles.aa.env]\nX = '{\"a\": {}}'\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.user(text)
			h.load()
		})
	}
}

// Unreadable is not absent: a file that cannot be read may hold restrictions.
func TestUnreadableIsNotAbsent(t *testing.T) {
	const rel = "home/.config/lazaret/config.toml"
	tests := []struct {
		name string
		make func(h *host, path string) error
		want string
	}{
		{"directory", func(_ *host, p string) error { return os.MkdirAll(p, 0o700) }, "is a directory"},
		{"FIFO does not block", func(_ *host, p string) error { return syscall.Mkfifo(p, 0o600) }, "is a FIFO"},
		{"link to a FIFO", func(h *host, p string) error {
			return errors.Join(syscall.Mkfifo(h.dir+"/fifo", 0o600), os.Symlink(h.dir+"/fifo", p))
		}, "is a FIFO"},
		{"link to a device", func(_ *host, p string) error { return os.Symlink("/dev/zero", p) }, "is a device"},
		{"dangling link", func(h *host, p string) error { return os.Symlink(h.dir+"/nowhere", p) }, "leads nowhere"},
		{"link to itself", func(_ *host, p string) error { return os.Symlink(p, p) }, "cannot be read"},
		{"too large", func(_ *host, p string) error { return os.WriteFile(p, make([]byte, maxFileSize+1), 0o600) }, "larger than"},
		{"100 MB, sparse", func(_ *host, p string) error {
			return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 100<<20))
		}, "larger than"},
		{"its directory is a file", func(_ *host, p string) error {
			return errors.Join(os.Remove(filepath.Dir(p)), os.WriteFile(filepath.Dir(p), nil, 0o600))
		}, "not a directory"},
		{"its directory is a dangling link", func(h *host, p string) error {
			return errors.Join(os.Remove(filepath.Dir(p)), os.Symlink(h.dir+"/nowhere", filepath.Dir(p)))
		}, "leads nowhere"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			path := filepath.Join(h.dir, rel)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), tt.make(h, path)); err != nil {
				t.Fatal(err)
			}
			h.refused(path, tt.want)
		})
	}
	t.Run("mode 0000", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root reads everything")
		}
		h := newHost(t)
		if err := os.Chmod(h.user("[general]\n"), 0); err != nil {
			t.Fatal(err)
		}
		h.refused("permission denied")
	})
	t.Run("a link to a regular file is a dotfile manager's", func(t *testing.T) {
		h := newHost(t)
		real := h.write("dotfiles/lz.toml", "[general]\nlog_level = \"debug\"\n")
		path := filepath.Join(h.dir, rel)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(real, path)); err != nil {
			t.Fatal(err)
		}
		if got := h.load().General.LogLevel; got != "debug" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("absent --config file", func(t *testing.T) {
		h := newHost(t)
		h.opts.File = h.dir + "/nope.toml"
		_, err := Load(h.opts)
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "nope.toml") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("relative workspace", func(t *testing.T) {
		h := newHost(t)
		h.opts.Workspace = "ws"
		h.refused("not an absolute path")
	})
}

func TestBadValues(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"relative data_root", "[general]\ndata_root = \"data\"\n", "absolute"},
		{"empty data_root", "[general]\ndata_root = \"\"\n", "empty"},
		{"dot-dot in data_root", "[general]\ndata_root = \"/srv/../etc\"\n", `".."`},
		{"placeholder where none has a value", "[general]\ndata_root = \"/srv/{profile_name}\"\n", "only \"~\" expands"},
		{"unknown placeholder", "[profiles.aa]\npersist = [\"/x/{profil_name}\"]\n", "unknown placeholder {profil_name}"},
		{"environment variable in a path", "[profiles.aa]\nvolumes = [\"${HOME}/x:/x\"]\n", "must be absolute"},
		{"blank in a placeholder of a path", "[profiles.aa]\npersist = [\"/x/{ profile_name }\"]\n", "braces"},
		{"other user's home", "[profiles.aa]\nvolumes = [\"~bob/x:/x\"]\n", "your own home"},
		{"dot-dot in a volume", "[profiles.aa]\nvolumes = [\"~/../x:/x\"]\n", `".."`},
		{"dot-dot in a mask", "[profiles.aa]\nmasks = [\"a/../../x\"]\n", `".."`},
		{"dot-dot in a command", "[profiles.aa]\ncommand = [\"/bin/../x\"]\n", `".."`},
		{"dot-dot in a list of env", "[profiles.aa]\nenv = { PATH = \"/bin:..\" }\n", `".."`},
		{"home of the host in the sandbox", "[profiles.aa]\npersist = [\"~/.claude\"]\n", "path in the sandbox"},
		{"relative persist", "[profiles.aa]\npersist = [\".claude\"]\n", "absolute"},
		{"persist of the root", "[profiles.aa]\npersist = [\"/\"]\n", "whole root"},
		{"persist over the workspace", "[profiles.aa]\npersist = [\"/workspace/x\"]\n", "cannot be kept"},
		{"state of the kernel's", "[profiles.aa]\nstate_paths = [\"/proc/x\"]\n", "cannot be kept"},
		{"overlapping state", "[profiles.aa]\nstate_paths = [\"/usr\", \"/usr/local\"]\n", "overlap"},
		{"mask of the workspace itself", "[profiles.aa]\nmasks = [\".\"]\n", "workspace itself"},
		{"empty mask", "[profiles.aa]\nmasks = [\"\"]\n", "empty"},
		{"control character in a path", "[profiles.aa]\nmasks = [\"a\\nb\"]\n", "control character"},
		{"volume without a target", "[profiles.aa]\nvolumes = [\"/x\"]\n", "HOSTPATH:SANDBOXPATH"},
		{"named volume", "[profiles.aa]\nvolumes = [\"cache:/x\"]\n", "must be absolute"},
		{"volume over the workspace", "[profiles.aa]\nvolumes = [\"/x:/workspace\"]\n", "belongs to the sandbox"},
		{"volume over Lazaret's own", "[profiles.aa]\nvolumes = [\"/x:/run/lazaret/certs\"]\n", "nothing can be mounted"},
		{"volume over Lazaret's own, roundabout", "[profiles.aa]\nvolumes = [\"/x:/run/./lazaret//\"]\n", "nothing can be mounted"},
		{"unknown mount option", "[profiles.aa]\nvolumes = [\"/x:/x:readonly\"]\n", "unknown mount option"},
		{"image with a blank", "[profiles.aa]\nimage = \"a b\"\n", "image reference"},
		{"image that is an option", "[profiles.aa]\nimage = \"--privileged\"\n", "image reference"},
		{"empty image", "[profiles.aa]\nimage = \"\"\n", "image reference"},
		{"empty program", "[profiles.aa]\ncommand = [\"\"]\n", "cannot be empty"},
		{"env list without =", "[profiles.aa]\nenv = [\"A\"]\n", "NAME=value"},
		{"env list twice", "[profiles.aa]\nenv = [\"A=1\", \"A=2\"]\n", "twice"},
		{"env with a bad name", "[profiles.aa]\nenv = { \"A-B\" = \"x\" }\n", "name of an environment variable"},
		{"env that is Lazaret's", "[profiles.aa]\nenv = { LAZARET_PROFILE = \"x\" }\n", "Lazaret's own"},
		{"pass_env with a value", "[profiles.aa]\npass_env = [\"A=1\"]\n", "name of an environment variable"},
		{"relative runtime", "[runtime]\nsandbox = \"./runsc\"\n", "absolute"},
		{"runtime with arguments", "[runtime]\nsandbox = \"runsc --debug\"\n", "runtime.args"},
		{"argument that is no flag", "[runtime]\nargs = [\"debug\"]\n", "one flag"},
		{"argument of the engine", "[runtime]\nargs = [\"--root=/x\"]\n", "set by the container engine"},
		{"platform", "[runtime]\nplatform = \"kwm\"\n", "allowed: systrap, ptrace, kvm"},
		{"every host", "[profiles.aa.network]\nallow = [\"*\"]\n", "mode = \"open\""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.user(tt.text)
			h.refused("config.toml:2", tt.want)
		})
	}
}

func TestErrorsEscapeWhatTheFileHolds(t *testing.T) {
	h := newHost(t)
	h.ws("[profiles.default]\n\"a\\u001b]0;owned\\u0007\\u202e\" = 1\nimage = \"x\\u001b[2J\"\n")
	_, err := Load(h.opts)
	if err == nil {
		t.Fatal("accepted")
	}
	if strings.ContainsAny(err.Error(), "\x1b\x07\u202e") {
		t.Errorf("raw control characters in %q", err)
	}
}
