package config

import (
	"os"
	"reflect"
	"testing"
)

func TestExpand(t *testing.T) {
	v := func(name string) (string, bool, error) {
		s, ok := map[string]string{"profile_name": "aa", "workspace_dir": "/w/{domain_hash}", "domain_hash": "0123456789ab"}[name]
		return s, ok, nil
	}
	tests := []struct{ name, in, want string }{
		{"plain", "a b", "a b"},
		{"tilde alone", "~", "/home/dev"},
		{"tilde first", "~/x", "/home/dev/x"},
		{"tilde later is a letter", "/x/~/y~", "/x/~/y~"},
		{"placeholder", "x-{profile_name}-y", "x-aa-y"},
		{"twice", "{profile_name}{profile_name}", "aaaa"},
		{"what is inserted is not expanded again", "{workspace_dir}", "/w/{domain_hash}"},
		{"braces that hold no name", `{"a": {}} {`, `{"a": {}} {`},
		{"dots that are no segment", "/a/..b/c../...", "/a/..b/c../..."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := expand(tt.in, "/home/dev", v); err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
	for name, in := range map[string]string{
		"unknown":             "{profile}",
		"case variant":        "{Profile_Name}",
		"shell variable":      "${HOME}",
		"other user":          "~root/x",
		"dot-dot":             "/a/../b",
		"dot-dot at the end":  "/a/..",
		"dot-dot alone":       "..",
		"dot-dot in a list":   "/bin:../x",
		"dot-dot after a var": "{profile_name}/..",
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			if got, err := expand(in, "/home/dev", v); err == nil {
				t.Errorf("accepted as %q", got)
			}
		})
	}
	if _, err := expand("~/x", "", v); err == nil {
		t.Error("a tilde without a home is accepted")
	}
	if _, err := expand("{workspace_dir}/x", "", func(string) (string, bool, error) { return "/w/..", true, nil }); err == nil {
		t.Error("a dot-dot that comes with a value is accepted")
	}
}

func TestResolve(t *testing.T) {
	h := newHost(t)
	if err := os.Symlink(h.dir+"/home", h.dir+"/link"); err != nil {
		t.Fatal(err)
	}
	u := h.user(`
[escalation]
socket_dir = "{domain_dir}/sockets"
[profiles.aa]
image = "localhost/agent-{profile_name}:latest"
command = ["run", "{domain_hash}", "~"]
volumes = ["` + h.dir + `/link/cache/{profile_name}:/cache/{profile_name}/:ro,nodev", "{profile_dir}/x:/x"]
persist = ["/root//.aa/"]
masks = ["./private/", "{workspace_dir}/tokens"]
read_only = ["/etc/aa"]
[profiles.aa.env]
WS = "{workspace_dir}"
`)
	c := h.load()
	p, err := c.Profile("aa")
	if err != nil {
		t.Fatal(err)
	}
	a := Anchor{Hash: "0123456789ab", Dir: "/data/domains/0123456789ab", Workspace: h.opts.Workspace}
	got, err := c.Resolve(p, a)
	if err != nil {
		t.Fatal(err)
	}
	want := *p
	want.Image = "localhost/agent-aa:latest"
	want.Command = []string{"run", "0123456789ab", h.opts.Home}
	want.Volumes = []Volume{
		{h.opts.Home + "/cache/aa", "/cache/aa", []string{"ro", "nodev"}},
		{h.opts.Home + "/.local/share/lazaret/aa/x", "/x", nil},
	}
	want.Persist = []string{"/root/.aa"}
	want.Masks = []string{"private", "tokens"}
	want.ReadOnly = []string{"/etc/aa"}
	want.Env = map[string]string{"WS": h.opts.Workspace}
	want.Escalation.SocketDir = a.Dir + "/sockets"
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got  %+v\nwant %+v", got, &want)
	}
	if p.Env["WS"] != "{workspace_dir}" || p.Volumes[1].Source != "{profile_dir}/x" {
		t.Error("the profile itself was changed")
	}

	a.Workspace = ""
	_, err = c.Resolve(p, a)
	wantError(t, err, u+":", "{workspace_dir}", "no workspace")
}

func TestResolveRefusesAVolumeThroughADanglingLink(t *testing.T) {
	h := newHost(t)
	if err := os.Symlink(h.dir+"/nowhere", h.dir+"/link"); err != nil {
		t.Fatal(err)
	}
	u := h.user("[profiles.aa]\nvolumes = [\"" + h.dir + "/link/x:/x\"]\n")
	c := h.load()
	p, err := c.Profile("aa")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Resolve(p, Anchor{Hash: "0", Dir: "/d", Workspace: "/w"})
	wantError(t, err, u+":2", `key "profiles.aa.volumes"`, "leads nowhere")
}

func TestDefaultProfileResolvesWithoutAWorkspace(t *testing.T) {
	h := newHost(t)
	c := h.load()
	p, err := c.Profile("default")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Resolve(p, Anchor{Hash: "0", Dir: "/d"})
	if err != nil || !reflect.DeepEqual(got.Masks, []string{".vscode", ".idea"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}
