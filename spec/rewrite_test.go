package spec

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

var update = flag.Bool("update", false, "write the golden files anew")

func fullPlan() Plan {
	return Plan{
		ContainerID: "c0ffee", Profile: "claude", DomainHash: "0123456789ab",
		Env:                []string{"LAZARET_SESSION_ID=s-1", "COLORTERM=truecolor"},
		RunDir:             "/run/user/1000/lazaret/containers/c0ffee/run",
		ClientPath:         true,
		PathDirs:           []string{"/run/lazaret/bin"},
		TerminfoDir:        "/run/lazaret/terminfo",
		HookPath:           "/usr/libexec/lazaret/lazaret-hook",
		HookArgs:           []string{"--domain", "0123456789ab"},
		HookEnv:            []string{"PATH=/usr/bin:/bin", "XDG_RUNTIME_DIR=/run/user/1000"},
		HookTimeoutSeconds: 20,
		Masks:              []string{"/workspace/.vscode", "/workspace/.idea/", "/workspace/.vscode"},
		Sources:            map[string]string{"/home/u/project": "/run/user/1000/lazaret/domains/0123456789ab/guard/w"},
		Binds: []Bind{
			{"/run/user/1000/lazaret/domains/0123456789ab/guard/i", "/run/lazaret/guard", true},
			{"/run/user/1000/lazaret/domains/0123456789ab/guard/g", "/home/u/main/.git", false},
		},
		DropAnnotations: []string{"dev.gvisor.flag.debug"},
	}
}

func TestRewriteGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, in := range inputs {
		name := strings.TrimSuffix(filepath.Base(in), ".json")
		if strings.HasSuffix(name, ".golden") {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			data := read(t, in)
			rewriteTwice := func(apply func([]byte) ([]byte, error)) []byte {
				once, err := apply(data)
				if err != nil {
					t.Fatal(err)
				}
				twice, err := apply(once)
				if err != nil {
					t.Fatal("rewrite what was rewritten:", err)
				}
				if !bytes.Equal(once, twice) {
					t.Errorf("rewriting twice differs: %s", cmp.Diff(indent(t, once), indent(t, twice)))
				}
				return once
			}
			var got []byte
			if strings.HasPrefix(name, "process-") {
				got = rewriteTwice(func(b []byte) ([]byte, error) {
					return RewriteProcess(b, ProcessPlan{
						Env:      []string{"LAZARET_SESSION_ID=s-2", "LAZARET_SESSION_KEY=k"},
						PathDirs: []string{"/run/lazaret/bin"}, TerminfoDir: "/run/lazaret/terminfo",
					})
				})
			} else {
				p := fullPlan()
				p.IsolatedNetwork = name == "docker" || name == "podman-hostnet" || name == "podman-pod"
				if !slices.ContainsFunc(mustParse(t, data).Mounts(), func(m specs.Mount) bool {
					return m.Destination == WorkspacePath
				}) {
					p.Workspace = "/home/u/other"
				}
				got = rewriteTwice(func(b []byte) ([]byte, error) { return Rewrite(b, p) })
			}
			golden := strings.TrimSuffix(in, ".json") + ".golden.json"
			if *update {
				if err := os.WriteFile(golden, append(indent(t, got), '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(bytes.TrimSpace(read(t, golden))), string(indent(t, got))); diff != "" {
				t.Errorf("differs from %s (-want +got):\n%s", golden, diff)
			}
		})
	}
	if ran < 9 {
		t.Errorf("only %d documents were tried", ran)
	}
}

// Everything that a plan does not name keeps its text: nothing goes through a
// float, and no unknown member is lost, wherever it stands.
func TestRewriteKeepsWhatItDoesNotKnow(t *testing.T) {
	got, err := Rewrite(read(t, "testdata/docker.json"), fullPlan())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"newerEngine":{"exact":18446744073709551615,"tiny":1e-400}`,
		`"futureFlag":null`, `"newerEngine":1.50`, `"newerEngine":"x"`, `"newerEngine":[1,2.0,3E2]`,
		`"options":["rbind","rprivate"],"newerEngine":true`, `"LANG=caf\u00e9"`, `"keep <me> & mine"`,
		`"startContainer":[{"path":"/bin/inside"}]`,
	} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("%s is lost", want)
		}
	}
}

func TestRewriteReplacesAnEarlierRewrite(t *testing.T) {
	data := read(t, "testdata/docker.json")
	old := fullPlan()
	old.RunDir, old.HookPath = "/run/old", "/opt/old/libexec/lazaret-hook"
	old.Masks = append(old.Masks, "/workspace/.cursor")
	old.PathDirs, old.TerminfoDir = []string{"/run/lazaret/old"}, "/run/lazaret/ti"
	old.Env = []string{"LAZARET_GONE=1"}
	stale, err := Rewrite(data, old)
	if err != nil {
		t.Fatal(err)
	}
	p := fullPlan()
	p.Env = nil
	got, err := Rewrite(stale, p)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Rewrite(data, p)
	if err != nil {
		t.Fatal(err)
	}
	// COLORTERM was never in the first rewrite, so the two must agree in full.
	if diff := cmp.Diff(string(indent(t, want)), string(indent(t, got))); diff != "" {
		t.Errorf("traces of the earlier rewrite (-fresh +over the old):\n%s", diff)
	}
	// The empty plan leaves nothing of ours.
	none, err := Rewrite(got, Plan{})
	if err != nil {
		t.Fatal(err)
	}
	for _, trace := range []string{"/run/lazaret", "lazaret-hook", maskSource, "LAZARET_DOMAIN", "LAZARET_SANDBOX"} {
		if bytes.Contains(none, []byte(trace)) {
			t.Errorf("%s is left by the empty plan", trace)
		}
	}
}

func TestEmptyPlanChangesNothing(t *testing.T) {
	for _, name := range []string{"podman-plain", "podman-keepid", "podman-pod"} {
		data := read(t, "testdata/"+name+".json")
		got, err := Rewrite(data, Plan{})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytes.TrimSpace(data), got) {
			t.Errorf("%s: %s", name, cmp.Diff(string(data), string(got)))
		}
	}
}

func TestRewriteHookOrder(t *testing.T) {
	got, err := Rewrite(read(t, "testdata/docker.json"), fullPlan())
	if err != nil {
		t.Fatal(err)
	}
	d := mustParse(t, got)
	paths := func(hooks []specs.Hook) (all []string) {
		for _, h := range hooks {
			all = append(all, h.Path)
		}
		return all
	}
	ours := "/usr/libexec/lazaret/lazaret-hook"
	if diff := cmp.Diff([]string{"/proc/812/exe", ours}, paths(d.Prestart())); diff != "" {
		t.Error("prestart:", diff)
	}
	if diff := cmp.Diff([]string{ours, "/usr/bin/tidy"}, paths(d.Poststop())); diff != "" {
		t.Error("poststop:", diff)
	}
}

func TestRewriteEnvironment(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		plan Plan
		want []string
	}{
		{
			"no PATH gets the standard one and ours",
			[]string{"A=1"},
			Plan{PathDirs: []string{"/x"}},
			[]string{"A=1", "PATH=/x:" + standardPath},
		},
		{"no PATH and nothing to add stays", []string{"A=1"}, Plan{}, []string{"A=1"}},
		{"a directory that is there is not added", []string{"PATH=/x:/bin"}, Plan{PathDirs: []string{"/x"}}, []string{"PATH=/x:/bin"}},
		{"a directory that is there comes first", []string{"PATH=/bin:/x"}, Plan{PathDirs: []string{"/x"}}, []string{"PATH=/x:/bin"}},
		{"a longer name is not the same directory", []string{"PATH=/xy"}, Plan{PathDirs: []string{"/x"}}, []string{"PATH=/x:/xy"}},
		{"every PATH is mended, whichever counts", []string{"PATH=/a", "PATH=/b"}, Plan{PathDirs: []string{"/x"}}, []string{"PATH=/x:/a", "PATH=/x:/b"}},
		{"PATHEXT is not PATH", []string{"PATHEXT=/a"}, Plan{}, []string{"PATHEXT=/a"}},
		{"an entry without a value is left alone", []string{"PATH", "TERMINFO_DIRS"}, Plan{}, []string{"PATH", "TERMINFO_DIRS"}},
		{"terminfo before the default", nil, Plan{TerminfoDir: "/t"}, []string{"TERMINFO_DIRS=/t:"}},
		{"terminfo before the image's own", []string{"TERMINFO_DIRS=/i::/j"}, Plan{TerminfoDir: "/t"}, []string{"TERMINFO_DIRS=/t:/i::/j"}},
		{"foreign variables go", []string{"LAZARET_SESSION_KEY=stolen", "LAZARET_=", "LAZARET_X", "lazaret_x=1"}, Plan{}, []string{"lazaret_x=1"}},
		{"the user's profile stays when the plan names none", []string{"LAZARET_PROFILE=a"}, Plan{}, []string{"LAZARET_PROFILE=a"}},
		{"the plan's profile counts", []string{"LAZARET_PROFILE=a", "LAZARET_PROFILE=b"}, Plan{Profile: "c"}, []string{"LAZARET_PROFILE=c"}},
		{"the last of two counts", nil, Plan{Profile: "c", Env: []string{"LAZARET_PROFILE=d", "X=1", "X=2"}}, []string{"LAZARET_PROFILE=d", "X=2"}},
		{"the engine's doubles go", []string{"X=1", "Y=2", "X=3"}, Plan{Env: []string{"X=4"}}, []string{"Y=2", "X=4"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, err := json.Marshal(specs.Spec{Process: &specs.Process{Args: []string{"a"}, Cwd: "/", Env: tt.env}})
			if err != nil {
				t.Fatal(err)
			}
			out, err := Rewrite(in, tt.plan)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, mustParse(t, out).Env()); diff != "" {
				t.Error(diff)
			}
			in, err = json.Marshal(specs.Process{Args: []string{"a"}, Cwd: "/", Env: tt.env})
			if err != nil {
				t.Fatal(err)
			}
			plan := ProcessPlan{Env: tt.plan.environment(), PathDirs: tt.plan.PathDirs, TerminfoDir: tt.plan.TerminfoDir}
			if out, err = RewriteProcess(in, plan); err != nil {
				t.Fatal(err)
			}
			var p specs.Process
			if err := json.Unmarshal(out, &p); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, p.Env); diff != "" {
				t.Error("exec:", diff)
			}
		})
	}
}

// What the user mounts where Lazaret's own things go is refused, under whatever
// spelling, as are plans that would cover them.
func TestRewriteRefusesReservedPaths(t *testing.T) {
	for _, dest := range []string{
		"/run/lazaret", "/run/lazaret/", "/run/./lazaret", "/run/x/../lazaret", "run/lazaret", "//run//lazaret",
		"/run/lazaret/escalate.sock", "/run/lazaret/certs", "/var/run/lazaret", "/var/run/../run/lazaret/x",
		"/../run/lazaret", "/usr/local/bin/lazaret-escalate", "/usr/local/bin/../bin/lazaret-escalate/",
	} {
		t.Run(dest, func(t *testing.T) {
			_, err := Rewrite(withMounts(t, specs.Mount{Destination: dest, Type: "bind", Source: "/etc", Options: []string{"rbind", "ro"}}), fullPlan())
			if err == nil || !strings.Contains(err.Error(), "mount it elsewhere") {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, dest := range []string{"/run", "/run/lazarets", "/var/run", "/run/user/lazaret", "/usr/local/bin/lazaret-escalate2"} {
		if _, err := Rewrite(withMounts(t, specs.Mount{Destination: dest, Type: "tmpfs", Source: "tmpfs"}), fullPlan()); err != nil {
			t.Errorf("%s is refused: %v", dest, err)
		}
	}
}

// A mount that only looks like ours is replaced by ours, never taken for it.
func TestRewriteForgedOwnMount(t *testing.T) {
	forged := specs.Mount{Destination: RunPath, Type: "bind", Source: "/home/evil", Options: ownBind()}
	got, err := Rewrite(withMounts(t, forged), fullPlan())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(got, []byte("/home/evil")) {
		t.Error("the forged mount is still there")
	}
}

// A directory of the user's at /usr/local/bin must not get an empty file from the
// runtime, which makes one to mount on.
func TestRewriteClientPathUnderABindMount(t *testing.T) {
	got, err := Rewrite(read(t, "testdata/docker.json"), fullPlan())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mustParse(t, got).Mounts() {
		if m.Destination == ClientPath {
			t.Error("the client is mounted in the user's directory")
		}
	}
}

func TestRewritePlanErrors(t *testing.T) {
	tests := []struct {
		name string
		edit func(*Plan)
		want string
	}{
		{"relative mask", func(p *Plan) { p.Masks = []string{"workspace/.vscode"} }, "not an absolute path"},
		{"mask with ..", func(p *Plan) { p.Masks = []string{"/workspace/../run"} }, "has .. in it"},
		{"mask of everything", func(p *Plan) { p.Masks = []string{"//"} }, "the root"},
		{"mask over the run directory", func(p *Plan) { p.Masks = []string{"/run"} }, "would hide"},
		{"mask in the run directory", func(p *Plan) { p.Masks = []string{"/run/lazaret/certs"} }, "would hide"},
		{"mount over the run directory", func(p *Plan) { p.Binds = []Bind{{"/a", "/run", true}} }, "would hide"},
		{"writable mount in the run directory", func(p *Plan) { p.Binds = []Bind{{"/a", "/run/lazaret/x", false}} }, "writable in it"},
		{"mount in a run directory that is not there", func(p *Plan) {
			p.RunDir, p.ClientPath = "", false
			p.Binds = []Bind{{"/a", "/run/lazaret/x", true}}
		}, "would hide"},
		{"mount from a relative source", func(p *Plan) { p.Binds = []Bind{{"a", "/b", true}} }, "clean absolute"},
		{"mount out of the container", func(p *Plan) { p.Binds = []Bind{{"/a", "/b/../..", true}} }, "has .. in it"},
		{"relative new source", func(p *Plan) { p.Sources = map[string]string{"/a": "b"} }, "clean absolute"},
		{"relative run directory", func(p *Plan) { p.RunDir = "run" }, "clean absolute"},
		{"unclean run directory", func(p *Plan) { p.RunDir = "/run/../etc" }, "clean absolute"},
		{"client without run directory", func(p *Plan) { p.RunDir = "" }, "needs a run directory"},
		{"hook found on PATH", func(p *Plan) { p.HookPath = "lazaret-hook" }, "clean absolute"},
		{"hook by another name", func(p *Plan) { p.HookPath = "/bin/sh" }, "not called lazaret-hook"},
		{"hook without environment", func(p *Plan) { p.HookEnv = nil }, "would inherit"},
		{"negative time limit", func(p *Plan) { p.HookTimeoutSeconds = -1 }, "-1 seconds"},
		{"variable without a value", func(p *Plan) { p.Env = []string{"A"} }, "NAME=value"},
		{"variable without a name", func(p *Plan) { p.Env = []string{"=A"} }, "NAME=value"},
		{"NUL in a variable", func(p *Plan) { p.Env = []string{"A=\x00"} }, "NUL"},
		{"NUL in a path", func(p *Plan) { p.Masks = []string{"/a\x00b"} }, "not an absolute path"},
		{"bytes that JSON cannot carry", func(p *Plan) { p.Env = []string{"A=\xff"} }, "UTF-8"},
		{"colon in a PATH directory", func(p *Plan) { p.PathDirs = []string{"/a:/b"} }, "colon"},
		{"relative terminfo directory", func(p *Plan) { p.TerminfoDir = "t" }, "not absolute"},
	}
	data := read(t, "testdata/podman-plain.json")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := fullPlan()
			tt.edit(&p)
			if _, err := Rewrite(data, p); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// The post-check is not the modifiers' word for it: it finds each promise broken.
func TestCheckFindsBrokenPromises(t *testing.T) {
	good, err := Rewrite(read(t, "testdata/podman-plain.json"), fullPlan())
	if err != nil {
		t.Fatal(err)
	}
	later := func(d *Document, dest string) {
		d.setMounts(append([]mount{}, slices.Insert(d.mounts, len(d.mounts)-1, newMount(specs.Mount{Destination: dest, Type: "tmpfs"}))...))
	}
	tests := []struct {
		name  string
		spoil func(*Document)
		want  string
	}{
		{"mask gone", func(d *Document) {
			d.setMounts(slices.DeleteFunc(d.mounts, func(m mount) bool { return m.Destination == "/workspace/.idea" }))
		}, "1 of 2 masks"},
		{"workspace mounted over the masks", func(d *Document) { later(d, "/workspace") }, "undoes it"},
		{"mount inside a mask", func(d *Document) { later(d, "/workspace/.vscode/x") }, "undoes it"},
		{"mount covered", func(d *Document) { later(d, "/home/u/main") }, "undoes it"},
		{"mount gone", func(d *Document) {
			d.setMounts(slices.DeleteFunc(d.mounts, func(m mount) bool { return m.Destination == "/home/u/main/.git" }))
		}, "is not mounted"},
		{"mount in the run directory covered", func(d *Document) {
			d.addMount(specs.Mount{Destination: "/run/lazaret/guard", Type: "tmpfs"})
		}, "undoes it"},
		{"mount after the run directory", func(d *Document) { d.addMount(specs.Mount{Destination: "/x", Type: "tmpfs"}) }, "comes after /run/lazaret"},
		{"mount in the run directory", func(d *Document) { later(d, "/var/run/lazaret/certs") }, "comes after /run/lazaret"},
		{"writable run directory", func(d *Document) {
			i := slices.IndexFunc(d.mounts, func(m mount) bool { return m.Destination == RunPath })
			m := d.mounts[i].Mount
			m.Options = []string{"rbind", "rw"}
			d.setMounts(slices.Replace(slices.Clone(d.mounts), i, i+1, newMount(m)))
		}, "read-only"},
		{"no run directory", func(d *Document) {
			d.setMounts(slices.DeleteFunc(d.mounts, func(m mount) bool { return under(m.Destination, RunPath) }))
		}, "is not mounted"},
		{"workspace past the guard", func(d *Document) {
			d.addMount(specs.Mount{Destination: "/y", Type: "bind", Source: "/home/u/project", Options: []string{"rbind"}})
		}, "not of /run/user/1000"},
		{"hook twice", func(d *Document) { d.setHooks("prestart", &d.prestart, append(d.prestart, d.prestart...)) }, "2 hooks of ours"},
		{"hook gone", func(d *Document) { d.setHooks("poststop", &d.poststop, nil) }, "0 hooks of ours"},
		{"foreign variable", func(d *Document) { d.process.setEnv(append(d.process.env, newVariable("LAZARET_X=1"))) }, "foreign variable"},
		{"variable twice", func(d *Document) { d.process.setEnv(append(d.process.env, newVariable("LAZARET_DOMAIN=1"))) }, "2 times"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := mustParse(t, good)
			p, err := fullPlan().normal()
			if err != nil {
				t.Fatal(err)
			}
			if err := check(d, p); err != nil {
				t.Fatal("before:", err)
			}
			tt.spoil(d)
			if err := check(mustParse(t, d.Bytes()), p); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Kept directories lie below everything else, the client among it.
func TestRewriteKeptDirectoriesComeFirst(t *testing.T) {
	p := fullPlan()
	p.State = []Bind{{"/data/usr_merged", "/usr", false}, {"/data/etc_merged", "/etc", false}}
	got, err := Rewrite(read(t, "testdata/podman-plain.json"), p)
	if err == nil {
		got, err = Rewrite(got, p) // as when a bundle comes again
	}
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) int {
		return slices.IndexFunc(mustParse(t, got).Mounts(), func(m specs.Mount) bool { return m.Destination == name })
	}
	if at("/usr") != 0 || at("/etc") != 1 || at(ClientPath) < 2 || at("/etc/hosts") < 2 {
		t.Errorf("/usr %d, /etc %d, the client %d, /etc/hosts %d", at("/usr"), at("/etc"), at(ClientPath), at("/etc/hosts"))
	}
}

// A guard's place may be gone, and another in its stead, when a bundle comes again.
func TestSourcesComeBack(t *testing.T) {
	data := read(t, "testdata/docker.json")
	find := func(text []byte) (read, seen specs.Mount) {
		d := mustParse(t, text)
		i := slices.IndexFunc(d.mounts, func(m mount) bool { return m.Destination == "/workspace" })
		return d.Mounts()[i], d.AskedMounts()[i]
	}
	for _, to := range []string{"/run/one/w", "/run/two/w", "/run/one/w", ""} {
		p := Plan{}
		if to != "" {
			p.Sources = map[string]string{"/home/u/project": to}
		}
		var err error
		if data, err = Rewrite(data, p); err != nil {
			t.Fatal(err)
		}
		want := to
		if to == "" {
			want = "/home/u/project"
		}
		got, seen := find(data)
		if got.Source != want || seen.Source != "/home/u/project" || !slices.Equal(got.Options, []string{"rbind", "rprivate"}) {
			t.Errorf("to %q: %+v, seen as %q", to, got, seen.Source)
		}
		if !bytes.Contains(data, []byte(`"options":["rbind","rprivate"],"newerEngine":true`)) {
			t.Errorf("to %q: a member that nobody knows is lost", to)
		}
	}
	if bytes.Contains(data, []byte(givenMember)) {
		t.Error("a trace is left")
	}
}

func TestRewriteFile(t *testing.T) {
	bundle := t.TempDir()
	name := filepath.Join(bundle, "config.json")
	data := read(t, "testdata/podman-nonet.json")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o640); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(name, 12, 34); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := RewriteFile(bundle, fullPlan()); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if after.Mode() != before.Mode() {
		t.Errorf("mode %v became %v", before.Mode(), after.Mode())
	}
	if a, b := owner(t, after), owner(t, before); a != b {
		t.Errorf("owner %v became %v", b, a)
	}
	want, err := Rewrite(data, fullPlan())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, name), want) {
		t.Error("the file is not what Rewrite gives")
	}
	if left, _ := os.ReadDir(bundle); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	d, err := ReadFile(bundle)
	if err != nil || d.Hostname() == "" {
		t.Errorf("ReadFile: %v", err)
	}
}

func TestRewriteFileRefuses(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, name string)
		want string
	}{
		{"no file", func(*testing.T, string) {}, "no such file"},
		{"a symbolic link", func(t *testing.T, name string) {
			target := filepath.Join(t.TempDir(), "target")
			if err := os.WriteFile(target, read(t, "testdata/podman-plain.json"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, name); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
		{"a directory", func(t *testing.T, name string) {
			if err := os.Mkdir(name, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
		{"a FIFO that nobody writes to", func(t *testing.T, name string) { mkfifo(t, name) }, "not a regular file"},
		{"a truncated file", func(t *testing.T, name string) {
			data := read(t, "testdata/podman-plain.json")
			if err := os.WriteFile(name, data[:len(data)/2], 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not valid JSON at byte"},
		{"an endless file", func(t *testing.T, name string) {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(name, MaxSize+1); err != nil {
				t.Fatal(err)
			}
		}, "larger than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bundle := t.TempDir()
			tt.make(t, filepath.Join(bundle, "config.json"))
			if err := RewriteFile(bundle, fullPlan()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// libcontainer's rules judge what we add; what the user's document breaks by
// itself stays the runtime's to report.
func TestValidate(t *testing.T) {
	base := func() specs.Spec {
		return specs.Spec{
			Process: &specs.Process{Args: []string{"a"}, Cwd: "/"}, Root: &specs.Root{Path: "rootfs"},
			Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
				{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.UserNamespace},
			}, UIDMappings: []specs.LinuxIDMapping{{Size: 1}}, GIDMappings: []specs.LinuxIDMapping{{Size: 1}}},
		}
	}
	tests := []struct {
		name string
		edit func(*specs.Spec)
		want string
	}{
		{"sound", func(*specs.Spec) {}, ""},
		{"bind with data", func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Destination: "/a", Source: "/b", Options: []string{"bind", "size=1m"}}}
		}, "filesystem-specific"},
		{"bind with every flag", func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Destination: "/a", Source: "/b", Options: []string{
				"rbind", "rro", "ro", "rw", "nosuid", "rnosuid", "relatime", "norelatime", "rrelatime", "rslave", "noatime", "defaults",
			}}}
		}, ""},
		{"hostname without uts", func(s *specs.Spec) { s.Hostname = "h" }, "UTS"},
		{"namespace twice", func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.MountNamespace})
		}, "twice"},
		{"unknown namespace", func(s *specs.Spec) { s.Linux.Namespaces[0].Type = "moon" }, "moon"},
		{"mapping without user namespace", func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[:2] }, "user"},
		{"foreign sysctl", func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"kernel.panic": "1"} }, "kernel.panic"},
		{"sysctl of the own network", func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "1"} }, ""},
		{"masked without mount namespace", func(s *specs.Spec) {
			s.Linux.MaskedPaths = []string{"/x"}
			s.Linux.Namespaces = s.Linux.Namespaces[1:]
		}, "MNT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := base()
			tt.edit(&s)
			data, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			err = Validate(mustParse(t, data))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			bundle := t.TempDir()
			if err := os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := RewriteFile(bundle, fullPlan()); err != nil {
				t.Errorf("the user's own fault is refused as ours: %v", err)
			}
		})
	}
}

func withMounts(t *testing.T, mounts ...specs.Mount) []byte {
	t.Helper()
	data, err := json.Marshal(specs.Spec{Process: &specs.Process{Args: []string{"a"}, Cwd: "/"}, Mounts: mounts})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustParse(t testing.TB, data []byte) *Document {
	t.Helper()
	d, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func indent(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", " "); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return bytes.TrimSpace(b.Bytes())
}
