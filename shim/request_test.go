package shim

import (
	"encoding/json"
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
		{"filtered by request", config.Network{Mode: "filtered", ModeSet: true}, same, nil, nil, "cannot enforce yet"},
		{"an allow list", config.Network{Mode: "filtered", AllowSet: true}, same, nil, nil, "allow list"},
		{"an allow list beside none", config.Network{Mode: "none", ModeSet: true, AllowSet: true}, same, nil, nil, "allow list"},
		{"host network by default", config.Network{Mode: "filtered"}, hostNet, nil, nil, "host network refused"},
		{"host network with none", config.Network{Mode: "none", ModeSet: true}, hostNet, nil, nil, "host network refused"},
		{"host network by flag", config.Network{Mode: "filtered"}, same, []string{"--network=host"}, nil, "host network refused"},
		{"host network by configuration", config.Network{Mode: "filtered"}, same, nil, []string{"--network=host"}, "host network refused"},
		{"none with another network by flag", config.Network{Mode: "none", ModeSet: true}, same, []string{"--network=sandbox"}, nil, "take that flag away"},
		{"a sandbox without walls", config.Network{Mode: "open"}, same, nil, []string{"--TESTONLY-unsafe-nonroot"}, "own walls down"},
		{"a sandbox without walls, spelt otherwise", config.Network{Mode: "open"}, same, nil, []string{"-TESTONLY-unsafe-nonroot=true"}, "own walls down"},
		{"none with another network by configuration", config.Network{Mode: "none", ModeSet: true}, same, nil, []string{"-network=sandbox"}, "take that flag away"},
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

func TestPlanMasks(t *testing.T) {
	ws := t.TempDir()
	if err := os.MkdirAll(filepath.Join(ws, ".idea"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(ws, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name         string
		masks        []string
		readOnly     bool
		stubs, paths []string
		fails        string
	}{
		{"present and absent", []string{".vscode", ".idea"}, false, []string{".vscode", ".idea"}, []string{"/workspace/.vscode", "/workspace/.idea"}, ""},
		{"absent in a read-only workspace", []string{".vscode", ".idea"}, true, []string{".idea"}, []string{"/workspace/.idea"}, ""},
		{"absolute in the container", []string{"/opt/x"}, false, nil, []string{"/opt/x"}, ""},
		{"a symbolic link", []string{"link"}, false, nil, nil, "cannot be covered"},
		{"a file", []string{"file"}, false, nil, nil, "cannot be covered"},
		{"out of the workspace", []string{"../x"}, false, nil, nil, "leads out"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			options := []string{}
			if tt.readOnly {
				options = append(options, "ro")
			}
			r := &request{
				doc:     document(t, func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(ws, "/workspace", options...)} }),
				cfg:     &config.Config{General: config.General{DataRoot: "/var/lib/elsewhere"}},
				profile: &config.Profile{Name: "p", Masks: tt.masks}, anchor: domain.New("p", ws, "/data"),
			}
			stubs, err := (&shim{}).planMasks(r)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || !slices.Equal(stubs, tt.stubs) || !slices.Equal(r.masks, tt.paths) {
				t.Errorf("stubs %q, masks %q, %v", stubs, r.masks, err)
			}
		})
	}
	t.Run("the domains' own files in a broad workspace", func(t *testing.T) {
		r := &request{
			doc:     document(t, func(s *specs.Spec) { s.Mounts = []specs.Mount{bind(ws, "/workspace")} }),
			cfg:     &config.Config{General: config.General{DataRoot: filepath.Join(ws, ".local/share/lazaret")}},
			profile: &config.Profile{Name: "p"}, anchor: domain.New("p", ws, "/data"),
		}
		if _, err := (&shim{}).planMasks(r); err != nil || !slices.Equal(r.masks, []string{"/workspace/.local/share/lazaret"}) {
			t.Errorf("masks %q, %v", r.masks, err)
		}
	})
}

// A link in the workspace is the agent's: what is bound read-only must never be
// found through one.
func TestPlanReadOnly(t *testing.T) {
	dir := t.TempDir()
	ws, secret := filepath.Join(dir, "ws"), filepath.Join(dir, "secret")
	for _, d := range []string{filepath.Join(ws, "sub"), filepath.Join(ws, ".git"), secret} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{filepath.Join(ws, "sub/file"), filepath.Join(secret, "key")} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": secret, "file": filepath.Join(secret, "key"), "inner": "sub"} {
		if err := os.Symlink(target, filepath.Join(ws, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(ws, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		paths []string
		git   string
		want  []string // destinations
		notes int
		fails string
	}{
		{"nothing", nil, "sentry", nil, 0, ""},
		{"file and directory", []string{"sub/file", "sub"}, "sentry", []string{"/workspace/sub/file", "/workspace/sub"}, 0, ""},
		{"written as the sandbox sees it", []string{"/workspace/sub/"}, "sentry", []string{"/workspace/sub"}, 0, ""},
		{"git is off", nil, "off", []string{"/workspace/.git"}, 0, ""},
		{"not there", []string{"no"}, "sentry", nil, 1, ""},
		{"a link to a file of the host", []string{"file"}, "sentry", nil, 0, "symbolic link"},
		{"a file behind a link out of the workspace", []string{"link/key"}, "sentry", nil, 0, "symbolic link"},
		{"a file behind a link within the workspace", []string{"inner/file"}, "sentry", nil, 0, "symbolic link"},
		{"a FIFO", []string{"fifo"}, "sentry", nil, 0, "neither"},
		{"out of the workspace", []string{"../secret/key"}, "sentry", nil, 0, "only paths of the workspace"},
		{"elsewhere in the sandbox", []string{"/etc"}, "sentry", nil, 0, "only paths of the workspace"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &request{
				cfg: &config.Config{}, profile: &config.Profile{Name: "p", ReadOnly: tt.paths, Git: tt.git},
				anchor: domain.New("p", ws, "/data"),
			}
			got, err := planReadOnly(r)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			var destinations []string
			for _, p := range got {
				destinations = append(destinations, p.Destination)
			}
			if err != nil || !slices.Equal(destinations, tt.want) || len(r.notes) != tt.notes {
				t.Errorf("got %q, notes %q, %v", destinations, r.notes, err)
			}
		})
	}
	if err := os.Rename(filepath.Join(ws, ".git"), filepath.Join(ws, "g")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("g", filepath.Join(ws, ".git")); err != nil {
		t.Fatal(err)
	}
	r := &request{cfg: &config.Config{}, profile: &config.Profile{Name: "p", Git: "off"}, anchor: domain.New("p", ws, "/data")}
	if got, err := planReadOnly(r); err == nil {
		t.Errorf(".git as a link was accepted: %v", got)
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
		{"escalation asked for", "[escalation]\nenabled = true\n", []string{"escalation has no effect"}},
		{"commands approved", "[escalation]\nauto_approve = [[\"notify-send\"]]\n", []string{"escalation has no effect"}},
		{"escalation off", "[escalation]\nenabled = false\n", nil},
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
