package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

type fixture struct {
	base, bin, work string
	host            *Host
	ask             *wire.Ask
}

// setup makes a host with a few programs on PATH and a workspace that has some of
// the same names.
func setup(t *testing.T) *fixture {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	f := &fixture{base: base, bin: filepath.Join(base, "bin"), work: filepath.Join(base, "work")}
	for _, d := range []string{f.bin, f.work + "/sub/deep", f.work + "/bin", base + "/other"} {
		must(t, os.MkdirAll(d, 0o755))
	}
	for _, p := range []string{
		f.bin + "/tool", f.bin + "/toolx", f.bin + "/two words", f.bin + "/TOOL", f.work + "/tool", f.work + "/lint",
		f.work + "/bin/shim", base + "/other/tool", base + "/other/env", f.bin + "/grün",
	} {
		must(t, os.WriteFile(p, []byte("#!/bin/sh\n# "+p), 0o755))
	}
	f.host = &Host{Path: f.bin, Home: base}
	f.ask = &wire.Ask{
		ID: "1", Domain: domain.Anchor{Workspace: f.work}, CWD: "/workspace",
		AutoApprove: [][]string{{"tool", "status"}, {"lint"}, {"shim"}, {"other"}},
	}
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) view(command string) *View { return Evaluate(f.host, f.ask, command) }

// A prefix counts by words, and its program by what it leads to.
func TestPrefix(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, tt := range []struct {
		command string
		auto    bool
	}{
		{"tool status", true},
		{"tool status --", true},
		{"tool status -- x", true},
		{" tool  'status' \"x y\"", true},
		{"tool 'status'", true},
		{f.bin + "/tool status", true}, // the same file
		{"tool status ''", true},
		{"tool", false},
		{"tool statusx", false},
		{"tool status-stash", false},
		{"tool 'status x'", false},
		{"tool 'status '", false},
		{"'tool status'", false},
		{"tool -x status", false},
		{"tool STATUS", false},
		{"TOOL status", false},
		{"toolx status", false},
		{"./tool status", false},
		{"../work/tool status", false},
		{"work/tool status", false},
		{f.work + "/tool status", false},
		{"/workspace/tool status", false},
		{f.base + "/other/tool status", false}, // another file of the name
		{"tool status\n", false},
		{"tool status '\n' x", false},
		{"tool status x\ty", false},
		{"'' status", false},
		{"", false},
		{"''", false},
		{"   ", false},
		{"tool status *", false},
		{"tool status '*'", true},
		{"tool status ~", false},
		{"tool status {a,b}", false},
		{"tool status !x", false},
		{"tool status #x", false},
		{"tool status a=b", false},
		{"tool status 'a=b'", true},
		{"LD_PRELOAD=/x tool status", false},
		{"tool status; id", false},
		{"tool status 'a;b'", false},
		{"tool status & id", false},
		{"tool status | sh", false},
		{"tool status `id`", false},
		{"tool status $(id)", false},
		{"tool status \"$HOME\"", false},
		{"tool status > /x", false},
		{"tool status < /x", false},
		{"tool status \\x", false},
		{"tool status 'x", false},
		{"tool status \u202ex", false},
		{"tool status x\u200b", false},
		{"tool status\u00a0x", false},
		{"tool\u00a0status", false},
		{"tool status \u2028", false},
		{"tool status \U000e0100", false},
		{"tool status \u3164", false},
		{"tool status \u2800", false},
		{"tool status a\u0301", false},
		{"tool status \xff", false},
		{"tool status \x00", false},
		{"tool status \x1b[2K", false},
		{"tool status \u009b31m", false},
		{"tool status grün 日本", true},
	} {
		v := f.view(tt.command)
		if v.Automatic != tt.auto || (v.Why == "") != tt.auto {
			t.Errorf("%q: automatic %v, because %q, error %v", tt.command, v.Automatic, v.Why, v.Err)
		}
		if tt.auto && (v.Err != nil || v.Shell || v.Program != f.bin+"/tool" || v.Dir != f.work) {
			t.Errorf("%q: runs %+v", tt.command, v)
		}
	}
}

// What the coordinator sends is not believed either: a prefix that is refused at
// load approves nothing.
func TestPrefixesThatApproveNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	must(t, os.Rename(f.base+"/other/env", f.bin+"/env"))
	must(t, os.Symlink(f.bin+"/env", f.bin+"/innocent"))
	for _, prefix := range [][]string{{}, {""}, {"env"}, {f.bin + "/env"}, {"innocent"}, {"./tool"}, {"tool status"}} {
		f.ask.AutoApprove = [][]string{prefix}
		for _, command := range []string{"env x", f.bin + "/env x", "innocent x", "tool status", "''", "'tool status'"} {
			if v := f.view(command); v.Automatic {
				t.Errorf("prefix %q approves %q", prefix, command)
			}
		}
	}
	f.ask.AutoApprove = [][]string{{"env"}, {"tool"}}
	if v := f.view("tool x"); !v.Automatic {
		t.Errorf("a prefix after a refused one: %s", v.Why)
	}
}

// Nothing is found through a place that an agent writes to.
func TestProgram(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, f *fixture)
		command string
		want    string // relative to the fixture; "" for an error
	}{
		{"on PATH", nil, "tool", "bin/tool"},
		{"absolute", nil, "BASE/other/tool", "other/tool"},
		{"absolute with dots", nil, "BASE/bin/../other/tool", "other/tool"},
		{"absolute within the workspace", nil, "BASE/work/tool", ""},
		{"absolute through the workspace", nil, "BASE/work/../bin/tool", ""},
		{"the workspace by a dot on PATH", onPath(".:", ""), "lint", ""},
		{"empty entries of PATH", onPath("::", ":"), "lint", ""},
		{"relative entries of PATH", onPath("work:../work:", ""), "lint", ""},
		{"the workspace on PATH", onPath("BASE/work:", ""), "lint", ""},
		{"below the workspace on PATH", onPath("BASE/work/bin:", ""), "shim", ""},
		{"the workspace passed over", onPath("BASE/work:", ""), "tool", "bin/tool"},
		{"PATH through the workspace", onPath("BASE/work/../other:", ""), "tool", "bin/tool"},
		{"a link on PATH into the workspace", func(t *testing.T, f *fixture) {
			must(t, os.Symlink(f.work+"/bin", f.base+"/mise"))
			f.host.Path = f.base + "/mise:" + f.bin
		}, "shim", ""},
		{"a program's link into the workspace", func(t *testing.T, f *fixture) {
			must(t, os.Symlink(f.work+"/lint", f.bin+"/lint"))
		}, "lint", ""},
		{"a program's link through the workspace", func(t *testing.T, f *fixture) {
			must(t, os.Symlink(f.bin+"/tool", f.work+"/hop"))
			must(t, os.Symlink(f.work+"/hop", f.bin+"/lint"))
		}, "lint", ""},
		{"a relative link through the workspace", func(t *testing.T, f *fixture) {
			must(t, os.Symlink("../work/../bin/tool", f.bin+"/lint"))
		}, "lint", ""},
		{"a link elsewhere", func(t *testing.T, f *fixture) {
			must(t, os.Symlink("../other/tool", f.bin+"/lint"))
		}, "lint", "other/tool"},
		{"a chain of links", func(t *testing.T, f *fixture) {
			must(t, os.Symlink("lint2", f.bin+"/lint"))
			must(t, os.Symlink(f.base+"/other/tool", f.bin+"/lint2"))
		}, "lint", "other/tool"},
		{"links in a circle", func(t *testing.T, f *fixture) {
			must(t, os.Symlink("lint", f.bin+"/lint"))
		}, "lint", ""},
		{"another domain's workspace", func(_ *testing.T, f *fixture) {
			f.host.Agents = []string{f.base + "/other"}
		}, "BASE/other/tool", ""},
		{"a workspace named through a link", func(t *testing.T, f *fixture) {
			must(t, os.Symlink(f.base+"/other", f.base+"/ws"))
			f.host.Agents = []string{f.base + "/ws"}
		}, "BASE/other/tool", ""},
		{"a workspace that is not there yet", func(_ *testing.T, f *fixture) {
			f.host.Agents = []string{f.base + "/later"}
		}, "BASE/later/tool", ""},
		{"a directory that only begins alike", func(t *testing.T, f *fixture) {
			must(t, os.MkdirAll(f.base+"/workshop", 0o755))
			must(t, os.WriteFile(f.base+"/workshop/tool", nil, 0o755))
		}, "BASE/workshop/tool", "workshop/tool"},
		{"not executable", func(t *testing.T, f *fixture) {
			must(t, os.WriteFile(f.bin+"/data", nil, 0o644))
		}, "data", ""},
		{"a directory", func(t *testing.T, f *fixture) {
			must(t, os.Mkdir(f.bin+"/data", 0o755))
		}, "data", ""},
		{"a name with a blank", nil, "'two words'", "bin/two words"},
		{"nowhere", nil, "nowhere", ""},
		{"nothing", nil, "''", ""},
		{"dot", nil, ".", ""},
		{"the root", nil, "/", ""},
		{"a word of the shell", nil, "if", ""},
		{"a builtin", nil, "cd /", ""},
		{"a subshell", nil, "(tool)", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			if tt.prepare != nil {
				tt.prepare(t, f)
			}
			v := f.view(strings.ReplaceAll(tt.command, "BASE", f.base))
			got := strings.TrimPrefix(v.Program, f.base+"/")
			if got != tt.want || (v.Err != nil) != (tt.want == "") || v.Automatic && tt.want == "" {
				t.Errorf("program %q, error %v, automatic %v; want %q", got, v.Err, v.Automatic, tt.want)
			}
		})
	}
}

func onPath(before, after string) func(*testing.T, *fixture) {
	return func(_ *testing.T, f *fixture) {
		f.host.Path = strings.ReplaceAll(before, "BASE", f.base) + f.bin + after
	}
}

// A file that has another name where the agent can write is his to change.
func TestSharedProgram(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Log("as root, whose files no agent writes: only the open mode is looked at")
	}
	f := setup(t)
	must(t, os.Link(f.bin+"/tool", f.work+"/hard"))
	if v := f.view("tool status"); v.Automatic != (os.Geteuid() == 0) {
		t.Errorf("automatic %v: %s", v.Automatic, v.Why)
	}
	f = setup(t)
	must(t, os.Chmod(f.bin+"/tool", 0o757))
	if v := f.view("tool status"); v.Automatic || v.Err != nil {
		t.Errorf("open to all: automatic %v, %v", v.Automatic, v.Err)
	}
	f = setup(t)
	f.host.Home = f.work + "/home"
	if v := f.view("tool status"); v.Automatic {
		t.Error("automatic with a home that the agent writes")
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for link, to := range map[string]string{
		"out": "/etc", "up": "../..", "loop": "loop", "in": "sub", "abs": f.work + "/sub", "box": "/workspace/sub", "dangling": "none",
	} {
		must(t, os.Symlink(to, f.work+"/"+link))
	}
	must(t, os.WriteFile(f.work+"/file", nil, 0o644))
	for _, tt := range []struct {
		cwd  string
		want string // below the workspace; "-" for the fallback, which is it
	}{
		{"", ""},
		{"/workspace", ""},
		{"/workspace/", ""},
		{"/workspace/sub", "/sub"},
		{"/workspace/sub/", "/sub"},
		{"/workspace//sub/./deep", "/sub/deep"},
		{"/workspace/sub/..", ""},
		{"/workspace/in", "/sub"},
		{"/workspace/in/deep", "/sub/deep"},
		{"/workspace/..", "-"},
		{"/workspace/sub/../../work", "-"},
		{"/workspace/../../etc", "-"},
		{"/workspace/out", "-"},
		{"/workspace/up", "-"},
		{"/workspace/loop", "-"},
		{"/workspace/abs", "-"},
		{"/workspace/box", "-"},
		{"/workspace/dangling", "-"},
		{"/workspace/none", "-"},
		{"/workspace/file", "-"},
		{"/workspacex", "-"},
		{"/", "-"},
		{"/root", "-"},
		{"../..", "-"},
		{"sub", "-"},
		{f.work, "-"}, // the host's name of it means nothing in the sandbox
		{f.work + "/sub", "-"},
		{"/workspace/\x1b[2J", "-"},
		{"/workspace/" + strings.Repeat("x", 5000), "-"},
	} {
		f.ask.CWD = tt.cwd
		v := f.view("tool status")
		want, fallback := f.work+tt.want, tt.want == "-"
		if fallback {
			want = f.work
		}
		if v.Err != nil || v.Dir != want || (v.DirNote != "") != fallback || v.Automatic == fallback {
			t.Errorf("%q: in %q, note %q, automatic %v, %v", tt.cwd, v.Dir, v.DirNote, v.Automatic, v.Err)
		}
		if fallback && !slices.Contains(v.Warnings, v.DirNote) {
			t.Errorf("%q: not among the warnings: %q", tt.cwd, v.Warnings)
		}
		dir, err := v.OpenDir(f.ask)
		if err != nil {
			t.Errorf("%q: %v", tt.cwd, err)
			continue
		}
		must(t, dir.Close())
	}
}

func TestDirectoryWithoutAWorkspace(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ask.Domain.Workspace = ""
	for _, cwd := range []string{"", "/workspace", "/", "/root"} {
		f.ask.CWD = cwd
		v := f.view("tool status")
		if v.Err != nil || v.Dir != "/" || v.DirNote == "" || v.Automatic {
			t.Errorf("%q: %+v", cwd, v)
		}
	}
	f.ask.Domain.Workspace = f.base + "/gone"
	if v := f.view("tool status"); v.Err == nil || v.Automatic {
		t.Errorf("a workspace that is gone: %+v", v)
	}
}

func TestShell(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, command := range []string{"tool | cat", "a\nb", "tool 'x", "nowhere; nowhere", "\x1b[2J", "tool '$'"} {
		v := f.view(command)
		shell := command != "tool 'x"
		if v.Shell != shell || v.Automatic || (v.Err == nil) != shell {
			t.Errorf("%q: %+v", command, v)
		}
		if shell && !slices.Equal(v.Argv, []string{"/bin/sh", "-c", command}) {
			t.Errorf("%q: runs %q", command, v.Argv)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for command, part := range map[string]string{
		"tool *":               "no shell expands",
		"tool | cat":           "runs in the host's shell: it has '|'",
		"tool \u202e":          "U+202E",
		"tool \u200b":          "U+200B",
		"grün":                 "beyond ASCII",
		"tool \x1b[2K | a \n ": `it has '\x1b' '|' '\n'`,
	} {
		if v := f.view(command); !strings.Contains(strings.Join(v.Warnings, "\n"), part) {
			t.Errorf("%q: warnings %q lack %q", command, v.Warnings, part)
		}
	}
	if v := f.view("tool x"); len(v.Warnings) > 0 {
		t.Errorf("of a plain command: %q", v.Warnings)
	}
}

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	a := domain.New("dev", "/some/workspace", root)
	must(t, os.MkdirAll(a.Root, 0o700))
	must(t, domain.WriteRecord(a))
	must(t, os.MkdirAll(filepath.Join(root, "domains", "junk"), 0o700))
	h := FromEnvironment(root)
	if !slices.Equal(h.Agents, []string{root, "/some/workspace"}) || h.Path != os.Getenv("PATH") {
		t.Errorf("got %+v", h)
	}
}

// What a sandbox was given to write to beside its workspace holds no program of
// the developer's: not by name, by path, by link, nor as a single file; and
// without the list nothing runs.
func TestWrittenTo(t *testing.T) {
	t.Parallel()
	f := setup(t)
	root := t.TempDir()
	given := filepath.Join(f.base, "other")
	single := f.bin + "/toolx"
	must(t, os.Symlink(given+"/tool", f.bin+"/other"))
	must(t, domain.RecordWritten(root, []string{given, single}))
	f.host = FromEnvironment(root)
	f.host.Home = ""
	f.host.Path = given + ":" + f.bin
	if v := f.view("tool status"); v.Err != nil || !v.Automatic || v.Program != f.bin+"/tool" {
		t.Errorf("by name: %q, automatic %v, %v", v.Program, v.Automatic, v.Err)
	}
	for _, command := range []string{given + "/tool", "other", single, "toolx"} {
		if v := f.view(command); v.Err == nil {
			t.Errorf("%s runs as %q", command, v.Program)
		}
	}
	if p := f.host.CleanPath(f.ask); p != f.bin {
		t.Errorf("PATH is %q", p)
	}
	if leads := f.host.Leads(f.ask); !leads(given+"/x.so") || leads(f.bin) {
		t.Error("a variable that names the directory is not seen, or another is")
	}
	must(t, os.WriteFile(filepath.Join(root, "written-to"), []byte("junk"), 0o600))
	f.host = FromEnvironment(root)
	if v := f.view("tool status"); v.Err == nil || v.Automatic {
		t.Errorf("without the list it runs: %+v", v)
	}
}

// FuzzEvaluate looks for a command that would run without a person and is not
// just the prefix with words after it.
func FuzzEvaluate(f *testing.F) {
	for _, s := range []string{"tool status x", "'tool' status", "tool status;id", "tool\u00a0status", "tool status\n", "/x/tool status"} {
		f.Add(s, "/workspace/sub")
	}
	base := f.TempDir()
	bin := filepath.Join(base, "bin")
	work := filepath.Join(base, "work")
	for _, d := range []string{bin, filepath.Join(work, "sub")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			f.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "tool"), []byte("x"), 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, command, cwd string) {
		ask := &wire.Ask{Domain: domain.Anchor{Workspace: work}, CWD: cwd, AutoApprove: [][]string{{"tool", "status"}}}
		h := &Host{Path: bin}
		v := Evaluate(h, ask, command)
		if err := v.Same(Evaluate(h, ask, command)); (err != nil) != (v.Err != nil) {
			t.Fatalf("%q is not the same twice: %v", command, err)
		}
		for _, s := range append(slices.Clone(v.Warnings), v.Why, v.DirNote) {
			if strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
				t.Fatalf("%q: a text of ours is not inert: %q", command, s)
			}
		}
		if v.Err != nil && strings.IndexFunc(v.Err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
			t.Fatalf("%q: the error is not inert: %q", command, v.Err)
		}
		if !v.Automatic {
			return
		}
		in := v.Dir == work || strings.HasPrefix(v.Dir, work+"/")
		ok := len(v.Argv) >= 2 && (v.Argv[0] == "tool" || v.Argv[0] == bin+"/tool") && v.Argv[1] == "status" && v.Program == bin+"/tool"
		if !ok || !in || v.Shell || !utf8.ValidString(command) || strings.IndexFunc(command, func(r rune) bool { return isMeta(r) || !Plain(r) }) >= 0 {
			t.Fatalf("%q in %q would run by itself: %+v", command, cwd, v)
		}
	})
}
