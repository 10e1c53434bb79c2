package shim

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/imageinfo"
	"github.com/lazaret-dev/lazaret/internal/ociargv"
	"github.com/lazaret-dev/lazaret/spec"
)

// document makes the config.json that a test is about.
func document(t *testing.T, change func(*specs.Spec)) *spec.Document {
	t.Helper()
	s := &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: "/rootfs"},
		Process: &specs.Process{Args: []string{"sh"}, Cwd: "/", Env: []string{"PATH=/bin"}},
		Linux:   &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace, Path: "/run/netns/x"}}},
	}
	change(s)
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	d, err := spec.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func bind(source, destination string, options ...string) specs.Mount {
	return specs.Mount{Source: source, Destination: destination, Type: "bind", Options: append([]string{"rbind"}, options...)}
}

func TestWhichWorkspace(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws, other := filepath.Join(dir, "ws"), filepath.Join(dir, "other")
	volumes := filepath.Join(dir, "storage/volumes")
	anonymous, named := filepath.Join(volumes, strings.Repeat("0123456789abcdef", 4), "_data"), filepath.Join(volumes, "mine/_data")
	for _, d := range []string{ws, other, anonymous + "/sub", named} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(ws, link); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*specs.Spec)
		image  bool // the annotation is the image's
		want   string
		fails  string
	}{
		{"none", func(*specs.Spec) {}, false, "", ""},
		{"a bind at /workspace", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(ws, "/workspace")} }, false, ws, ""},
		{"written with a slash", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(ws, "/workspace/")} }, false, ws, ""},
		{"through a link", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(link, "/workspace")} }, false, ws, ""},
		{"the later of two", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(other, "/workspace"), bind(ws, "/workspace")} }, false, ws, ""},
		{"covered by a tmpfs", func(s *specs.Spec) {
			s.Mounts = []specs.Mount{bind(ws, "/workspace"), {Destination: "/workspace", Type: "tmpfs", Source: "tmpfs"}}
		}, false, "", ""},
		{"an overlay is no workspace", func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Destination: "/workspace", Type: "overlay", Source: "overlay"}}
		}, false, "", ""},
		{"below /workspace only", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(ws, "/workspace/x")} }, false, "", ""},
		{"bind said by an option alone", func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Source: ws, Destination: "/workspace", Type: "none", Options: []string{"bind"}}}
		}, false, ws, ""},
		{"relative to the bundle", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind("ws", "/workspace")} }, false, ws, ""},
		{"by annotation", func(s *specs.Spec) { s.Annotations = map[string]string{workspaceAnnotation: ws} }, false, ws, ""},
		{"annotation and mount agree", func(s *specs.Spec) {
			s.Annotations = map[string]string{workspaceAnnotation: link}
			s.Mounts = []specs.Mount{bind(ws, "/workspace")}
		}, false, ws, ""},
		{"annotation and mount differ", func(s *specs.Spec) {
			s.Annotations = map[string]string{workspaceAnnotation: other}
			s.Mounts = []specs.Mount{bind(ws, "/workspace")}
		}, false, "", "make them the same"},
		{"an anonymous volume of podman's", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(anonymous, "/workspace")} }, false, "", ""},
		{"a volume with a name", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(named, "/workspace")} }, false, named, ""},
		{"below an anonymous volume", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(anonymous+"/sub", "/workspace")} }, false, anonymous + "/sub", ""},
		{"an anonymous volume, but another workspace by annotation", func(s *specs.Spec) {
			s.Annotations = map[string]string{workspaceAnnotation: ws}
			s.Mounts = []specs.Mount{bind(anonymous, "/workspace")}
		}, false, "", "make them the same"},
		{"an anonymous volume by annotation", func(s *specs.Spec) { s.Annotations = map[string]string{workspaceAnnotation: anonymous} }, false, anonymous, ""},
		{"annotation is relative", func(s *specs.Spec) { s.Annotations = map[string]string{workspaceAnnotation: "ws"} }, false, "", "not an absolute path"},
		{"annotation of the image", func(s *specs.Spec) { s.Annotations = map[string]string{workspaceAnnotation: "/"} }, true, "", ""},
		{"the source is a file", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind("/etc/passwd", "/workspace")} }, false, "", "not a directory"},
		{"the source is missing", func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(dir+"/no", "/workspace")} }, false, "", "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &request{bundle: dir, doc: document(t, tt.change)}
			if tt.image {
				r.drop = []string{workspaceAnnotation}
			}
			got, err := r.workspace()
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestWhichProfile(t *testing.T) {
	both := func(s *specs.Spec) {
		s.Annotations = map[string]string{profileAnnotation: "anno"}
		s.Process.Env = append(s.Process.Env, "LAZARET_PROFILE=env")
	}
	env := func(s *specs.Spec) { s.Process.Env = append(s.Process.Env, "LAZARET_PROFILE=env") }
	tests := []struct {
		name   string
		change func(*specs.Spec)
		drop   []string
		image  imageinfo.Info
		want   string
	}{
		{"nobody says", func(*specs.Spec) {}, nil, imageinfo.Info{}, ""},
		{"the annotation goes before the variable", both, nil, imageinfo.Info{}, "anno"},
		{"the variable", env, nil, imageinfo.Info{}, "env"},
		{"the image's annotation does not count", both, []string{profileAnnotation}, imageinfo.Info{}, "env"},
		{"the image's variable does not count", env, nil, imageinfo.Info{Env: []string{"LAZARET_PROFILE=env"}}, ""},
		{"another value in the image is overridden by the user", env, nil, imageinfo.Info{Env: []string{"LAZARET_PROFILE=other"}}, "env"},
		{"both are the image's", both, []string{profileAnnotation}, imageinfo.Info{Env: []string{"LAZARET_PROFILE=env"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &request{doc: document(t, tt.change), drop: tt.drop, image: tt.image}
			if got := r.profileName(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// What a profile asks for and nobody can give is refused, never left out.
func TestNetworkThatCannotBeEnforced(t *testing.T) {
	hostNet := func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[:1] }
	same := func(*specs.Spec) {}
	tests := []struct {
		name    string
		network config.Network
		change  func(*specs.Spec)
		flags   []string
		args    []string
		want    string // of the error; "" where the network is accepted
	}{
		{"host network with a filtered one", config.Network{Mode: "filtered"}, hostNet, nil, nil, "host network refused"},
		{"host network by default", config.Network{Mode: "filtered"}, hostNet, nil, nil, "host network refused"},
		{"host network with none", config.Network{Mode: "none"}, hostNet, nil, nil, "host network refused"},
		{"host network by flag", config.Network{Mode: "filtered"}, same, []string{"--network=host"}, nil, "host network refused"},
		{"host network by configuration", config.Network{Mode: "filtered"}, same, nil, []string{"--network=host"}, "host network refused"},
		{"none with another network by flag", config.Network{Mode: "none"}, same, []string{"--network=sandbox"}, nil, "take that flag away"},
		{"a sandbox without walls", config.Network{Mode: "open"}, same, nil, []string{"--TESTONLY-unsafe-nonroot"}, "own walls down"},
		{"a sandbox without walls, spelt otherwise", config.Network{Mode: "open"}, same, nil, []string{"-TESTONLY-unsafe-nonroot=true"}, "own walls down"},
		{"none with another network by configuration", config.Network{Mode: "none"}, same, nil, []string{"-network=sandbox"}, "take that flag away"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &shim{cmd: &ociargv.Command{Global: tt.flags}}
			r := &request{
				doc: document(t, tt.change), cfg: &config.Config{Runtime: config.Runtime{Args: tt.args}},
				profile: &config.Profile{Name: "p", Network: tt.network}, anchor: domain.Anchor{},
			}
			if err := s.enforceable(r); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPlanGuard(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	ws := filepath.Join(dir, "ws")
	for _, d := range []string{ws + "/sub/.git", ws + "/home/.local/share", dir + "/elsewhere"} {
		must(t, os.MkdirAll(d, 0o700))
	}
	must(t, os.WriteFile(ws+"/file", nil, 0o600))
	for name, target := range map[string]string{"link": "sub", "out": dir + "/elsewhere", "filelink": "file"} {
		must(t, os.Symlink(target, filepath.Join(ws, name)))
	}
	tests := []struct {
		name            string
		masks, readOnly []string
		dataRoot        string
		wantMasks       []string
		wantReadOnly    []string
		wantCovered     []string
		fails           string
	}{
		{name: "nothing"},
		{name: "names and paths, there or not", masks: []string{".vscode", "sub/x/"}, wantMasks: []string{".vscode", "sub/x"}},
		{name: "a file", masks: []string{"file"}, wantMasks: []string{"file"}},
		{name: "a name that is a link", masks: []string{"link"}, wantMasks: []string{"link"}},
		{name: "as the sandbox sees it", masks: []string{"/workspace/sub"}, readOnly: []string{"/workspace/sub/"}, wantMasks: []string{"sub"}, wantReadOnly: []string{"sub"}},
		{name: "elsewhere in the sandbox", masks: []string{"/opt/x"}, wantCovered: []string{"/opt/x"}},
		{name: "a mask out of the workspace", masks: []string{"../x"}, fails: "leads out"},
		{name: "the workspace as a mask", masks: []string{"."}, fails: "leads out"},
		{name: "a mask behind a link", masks: []string{"link/x"}, fails: "symbolic link"},
		{name: "read-only, not there", readOnly: []string{"no/such"}, wantReadOnly: []string{"no/such"}},
		{name: "read-only behind a link", readOnly: []string{"out/key"}, fails: "symbolic link"},
		{name: "a read-only link", readOnly: []string{"filelink"}, fails: "symbolic link"},
		{name: "read-only out of the workspace", readOnly: []string{"../elsewhere"}, fails: "only paths of the workspace"},
		{name: "read-only elsewhere", readOnly: []string{"/etc"}, fails: "only paths of the workspace"},
		{name: "the domains' own files in a broad workspace", dataRoot: ws + "/home/.local/share/lazaret", wantMasks: []string{"home/.local/share/lazaret"}},
		{name: "the same behind a link", dataRoot: ws + "/link/lazaret", wantMasks: []string{"sub/lazaret"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.dataRoot == "" {
				tt.dataRoot = "/var/lib/elsewhere"
			}
			r := &request{
				bundle: dir, cfg: &config.Config{General: config.General{DataRoot: tt.dataRoot}},
				doc:     document(t, func(s *specs.Spec) { s.Root.Path = "/usr"; s.Mounts = []specs.Mount{bind(ws, "/workspace")} }),
				profile: &config.Profile{Name: "p", Masks: tt.masks, ReadOnly: tt.readOnly}, anchor: domain.New("p", ws, "/data"),
			}
			got, err := (&shim{}).planGuard(r)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if err != nil || !slices.Equal(got.masks, tt.wantMasks) || !slices.Equal(got.readOnly, tt.wantReadOnly) || !slices.Equal(got.covered, tt.wantCovered) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	t.Run("without a workspace", func(t *testing.T) {
		r := &request{
			bundle: dir, cfg: &config.Config{}, doc: document(t, func(*specs.Spec) {}),
			profile: &config.Profile{Name: "p", Masks: []string{".vscode", "/opt/x"}}, anchor: domain.Ephemeral("p", "c", "/data"),
		}
		got, err := (&shim{}).planGuard(r)
		if err != nil || len(got.masks) > 0 || !slices.Equal(got.covered, []string{"/opt/x"}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// Every way to the workspace leads through the guard, or is refused.
func TestWorkspaceSources(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	ws, alias := filepath.Join(dir, "up/ws"), filepath.Join(dir, "alias")
	for _, d := range []string{ws + "/sub/deep", dir + "/other", dir + "/up/ws2", alias} {
		must(t, os.MkdirAll(d, 0o700))
	}
	must(t, os.WriteFile(ws+"/file", nil, 0o600))
	must(t, os.Symlink(ws, dir+"/link"))
	must(t, os.Symlink(ws+"/sub", dir+"/sublink"))
	must(t, os.Symlink(dir+"/other", ws+"/outlink"))
	must(t, os.Mkdir(dir+"/other/more", 0o700))
	must(t, os.Symlink(ws, dir+"/other/back"))
	mounted := false
	if os.Getuid() == 0 {
		if err := unix.Mount(ws, alias, "", unix.MS_BIND, ""); err == nil {
			mounted = true
			t.Cleanup(func() { must(t, unix.Unmount(alias, unix.MNT_DETACH)) })
		}
	}
	broad := func(p *config.Profile) { p.AllowBroadWorkspace = true }
	tests := []struct {
		name   string
		mounts []specs.Mount
		root   string
		change func(*config.Profile)
		alias  bool
		want   map[string]string
		fails  string
	}{
		{name: "the workspace", mounts: []specs.Mount{bind(ws, "/workspace")}, want: map[string]string{ws: "."}},
		{name: "by a link, and relative", mounts: []specs.Mount{bind(dir+"/link", "/workspace"), bind("up/ws/", "/x")}, want: map[string]string{dir + "/link": ".", "up/ws/": "."}},
		{name: "what lies in it", mounts: []specs.Mount{bind(ws+"/sub/deep", "/x", "ro"), bind(dir+"/sublink/deep", "/y"), bind(ws+"/file", "/z")}, want: map[string]string{ws + "/sub/deep": "sub/deep", dir + "/sublink/deep": "sub/deep", ws + "/file": "file"}},
		{name: "what only seems to lie in it", mounts: []specs.Mount{bind(dir+"/up/ws2", "/y")}, want: map[string]string{}},
		{name: "a link in it that leads out", mounts: []specs.Mount{bind(ws+"/outlink", "/x")}, fails: "an agent could have made that link"},
		{name: "below such a link", mounts: []specs.Mount{bind(dir+"/link/outlink/more", "/x")}, fails: "an agent could have made that link"},
		{name: "a link in it that leads out and back", mounts: []specs.Mount{bind(ws+"/outlink/back/file", "/x")}, want: map[string]string{ws + "/outlink/back/file": "file"}},
		{name: "the host's other mount of it", alias: true, mounts: []specs.Mount{bind(alias, "/x"), bind(alias+"/sub", "/y")}, want: map[string]string{alias: ".", alias + "/sub": "sub"}},
		{name: "no bind", mounts: []specs.Mount{{Type: "tmpfs", Source: ws, Destination: "/x"}}, want: map[string]string{}},
		{name: "what holds it", mounts: []specs.Mount{bind(dir+"/up", "/x")}, fails: "way around its guard"},
		{name: "the host", mounts: []specs.Mount{bind("/", "/x")}, fails: "way around its guard"},
		{name: "the host, read-only", mounts: []specs.Mount{bind("/", "/x", "ro")}, fails: "way around its guard"},
		{name: "the host, read-only, allowed", mounts: []specs.Mount{bind("/", "/x", "ro")}, change: broad, want: map[string]string{}},
		{name: "the host, writable, however broad", mounts: []specs.Mount{bind("/", "/x")}, change: broad, fails: "way around its guard"},
		{name: "a source that is gone", mounts: []specs.Mount{bind(dir+"/no", "/x")}, fails: "no such file"},
		{name: "a root file system in it", root: ws + "/sub", fails: "keep them apart"},
		{name: "a root file system that holds it", root: dir, fails: "keep them apart"},
		{name: "the same, allowed", root: ws + "/sub", change: broad, want: map[string]string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.alias && !mounted {
				t.Skip("needs to mount")
			}
			r := &request{
				bundle: dir, profile: &config.Profile{Name: "p"}, anchor: domain.New("p", ws, "/data"),
				doc: document(t, func(s *specs.Spec) {
					s.Root.Path, s.Mounts = "/usr", tt.mounts
					if tt.root != "" {
						s.Root.Path = tt.root
					}
				}),
			}
			if tt.change != nil {
				tt.change(r.profile)
			}
			got, err := r.workspaceSources()
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			if err != nil || !maps.Equal(got, tt.want) {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
	t.Run("a broad workspace with the engine's files in it", func(t *testing.T) {
		r := &request{
			bundle: ws + "/sub", profile: &config.Profile{Name: "p", AllowBroadWorkspace: true}, anchor: domain.New("p", ws, "/data"),
			doc: document(t, func(s *specs.Spec) {
				s.Root.Path, s.Mounts = "/usr", []specs.Mount{bind(ws+"/sub/deep", "/etc/hosts"), bind(ws, "/workspace")}
			}),
		}
		if got, err := r.workspaceSources(); err != nil || !maps.Equal(got, map[string]string{ws: "."}) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestGuardThatIsNotMountedHere(t *testing.T) {
	if err := visible(t.TempDir()); err == nil || !strings.Contains(err.Error(), "mount namespace") {
		t.Errorf("got %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoteUnused(t *testing.T) {
	tests := []struct {
		name, file string
		want       []string // a part of each note
	}{
		{"defaults", "", nil},
		{"kept directories", "[profiles.default]\nstate_paths = [\"/usr\"]\npersist = [\"/root\"]\n", []string{"state_paths has no effect", "persist has no effect"}},
		{"nothing to keep", "[profiles.default]\nstate_paths = []\npersist = []\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			file := filepath.Join(home, "c.toml")
			if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load(config.Options{Home: home, File: file})
			if err != nil {
				t.Fatal(err)
			}
			p, err := cfg.Profile("default")
			if err != nil {
				t.Fatal(err)
			}
			r := &request{cfg: cfg, profile: p}
			r.noteUnused()
			if len(r.notes) != len(tt.want) {
				t.Fatalf("notes %q", r.notes)
			}
			for i, part := range tt.want {
				if !strings.Contains(r.notes[i], part) {
					t.Errorf("note %q lacks %q", r.notes[i], part)
				}
			}
		})
	}
}
