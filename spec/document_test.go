package spec

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestParseRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing", ``, "not valid JSON"},
		{"white space", " \n", "not valid JSON"},
		{"null", `null`, "not a JSON object"},
		{"an array", `[]`, "not a JSON object"},
		{"a string", `"{}"`, "not a JSON object"},
		{"cut off", `{"process":{"args":["a"`, "not valid JSON"},
		{"something after it", `{} {}`, "not valid JSON"},
		{"a trailing brace", `{}}`, "not valid JSON"},
		{"a byte order mark", "\ufeff{}", "not valid JSON"},
		{"bytes that are not UTF-8", "{\"hostname\":\"\xff\"}", "not UTF-8"},
		{"a comment", `{/**/}`, "not valid JSON"},
		{"process twice", `{"process":{},"process":{}}`, `"process" twice`},
		{"process twice, once escaped", `{"process":{},"pr\u006fcess":{}}`, `"process" twice`},
		{"an unknown member twice", `{"x":1,"x":1}`, `"x" twice`},
		{"mounts in capitals", `{"MOUNTS":[]}`, `"mounts"`},
		{"mounts twice, by case", `{"mounts":[],"Mounts":[]}`, `"mounts"`},
		{"the long s", `{"hookſ":{}}`, `"hooks"`},
		{"the kelvin sign", `{"hooKs":{}}`, `"hooks"`},
		{"env twice", `{"process":{"env":[],"env":[]}}`, `"env" twice`},
		{"Env", `{"process":{"Env":[]}}`, `"env"`},
		{"an annotation twice", `{"annotations":{"a":"1","a":"2"}}`, `"a" twice`},
		{"a mount's source twice", `{"mounts":[{"source":"/a","source":"/b"}]}`, `mounts[0]`},
		{"a mount's Options", `{"mounts":[{},{"Options":[]}]}`, `mounts[1]`},
		{"a hook's path twice", `{"hooks":{"prestart":[{"path":"/a","path":"/b"}]}}`, `hooks.prestart[0]`},
		{"Prestart", `{"hooks":{"Prestart":[]}}`, `"prestart"`},
		{"a namespace's path twice", `{"linux":{"namespaces":[{"path":"/a","path":""}]}}`, `linux.namespaces[0]`},
		{"Namespaces", `{"linux":{"Namespaces":[]}}`, `"namespaces"`},
		{"root's Path", `{"root":{"Path":"/"}}`, `"path"`},
		{"mounts as an object", `{"mounts":{}}`, "mounts is not a JSON array"},
		{"a mount as a string", `{"mounts":["/a"]}`, "mounts[0] is not a JSON object"},
		{"a null mount", `{"mounts":[null]}`, "mounts[0]"},
		{"env as a string", `{"process":{"env":"A=1"}}`, "process.env"},
		{"a number in env", `{"process":{"env":["A=1",2]}}`, "process.env[1]"},
		{"a number in args", `{"process":{"args":[1]}}`, "process.args"},
		{"a number among annotations", `{"annotations":{"a":1}}`, "annotations"},
		{"terminal as a string", `{"process":{"terminal":"yes"}}`, "process.terminal"},
		{"a negative uid", `{"process":{"user":{"uid":-1}}}`, "process.user"},
		{"process as an array", `{"process":[]}`, "process is not a JSON object"},
		{"hooks as an array", `{"hooks":[]}`, "hooks is not a JSON object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Parse([]byte(tt.in)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestParseTakesNullForAbsent(t *testing.T) {
	in := []byte(`{"process":null,"root":null,"mounts":null,"hooks":null,"annotations":null,"linux":null}`)
	d := mustParse(t, in)
	if !bytes.Equal(d.Bytes(), in) {
		t.Errorf("became %s", d.Bytes())
	}
	if _, err := Rewrite(in, Plan{}); err == nil || !strings.Contains(err.Error(), "no process") {
		t.Errorf("got %v", err)
	}
	got, err := Rewrite([]byte(`{"process":{"env":null},"mounts":null,"hooks":null,"linux":null}`), Plan{
		HookPath: "/x/lazaret-hook", HookEnv: []string{"A=1"}, IsolatedNetwork: true, Masks: []string{"/m"}, Profile: "p",
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(got, []byte("null")); n != 0 {
		t.Errorf("a null is left beside what replaces it: %s", got)
	}
}

func TestAccessors(t *testing.T) {
	d := mustParse(t, read(t, "testdata/docker.json"))
	check := func(name string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	check("Args", d.Args(), []string{"bash", "-l"})
	check("Cwd", d.Cwd(), "/workspace")
	check("Terminal", d.Terminal(), true)
	check("UID", d.UID(), uint32(1000))
	check("RootPath", d.RootPath(), "/var/lib/docker/overlay2/77aa/merged")
	check("RootReadonly", d.RootReadonly(), false)
	check("Hostname", d.Hostname(), "3f2a")
	check("Annotations", d.Annotations(), map[string]string{"com.example.note": "keep <me> & mine", "dev.gvisor.flag.debug": "true"})
	check("Resources", d.Resources(), []string{"cpu.period", "cpu.quota", "memory.limit", "memory.swap", "pids.limit"})
	check("Namespaces", d.Namespaces()[1], specs.LinuxNamespace{Type: "network", Path: "/var/run/docker/netns/9a"})
	check("Env", d.Env()[6], "LANG=café")
	value, ok := d.Getenv("TERM")
	check("Getenv", []any{value, ok}, []any{"xterm", true})
	_, ok = d.Getenv("TERMIN")
	check("Getenv of a part", ok, false)
	// Copies, not the document's own.
	d.Annotations()["x"] = "y"
	d.Mounts()[0].Destination = "/elsewhere"
	d.Args()[0] = "sh"
	check("Args after a change of the copy", d.Args()[0], "bash")
	check("Mounts after a change of the copy", d.Mounts()[0].Destination, "/proc")
	check("Annotations after a change of the copy", len(d.Annotations()), 2)

	keep := mustParse(t, read(t, "testdata/podman-keepid.json"))
	check("UIDMappings", len(keep.UIDMappings()), 3)
	check("GIDMappings", len(keep.GIDMappings()), 3)
	check("Resources of a plain container", len(keep.Resources()), 0)
	var none Document
	check("zero", []any{none.Env(), none.Args(), none.Cwd(), none.Terminal(), none.Resources()},
		[]any{[]string(nil), []string(nil), "", false, []string(nil)})
}

// FuzzParse: what is accepted is what encoding/json, and so runsc, reads, and it
// comes back byte by byte.
func FuzzParse(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data)
		if err != nil {
			return
		}
		if !bytes.Equal(bytes.TrimSpace(data), d.Bytes()) {
			t.Fatal("an untouched document changed")
		}
		var s specs.Spec
		if err := json.Unmarshal(data, &s); err != nil {
			return // wrong somewhere where we do not look
		}
		sameAsSpec(t, d, &s)
	})
}

// FuzzRewrite: rewriting keeps the rest, twice is once, and runsc's reader sees
// what we see.
func FuzzRewrite(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		p := fullPlan()
		p.IsolatedNetwork = len(data)%2 == 0
		once, err := Rewrite(data, p)
		if err != nil {
			if strings.Contains(err.Error(), "fault in Lazaret") {
				t.Fatal(err)
			}
			return
		}
		twice, err := Rewrite(once, p)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(once, twice) {
			t.Fatalf("twice is not once:\n%s\n%s", once, twice)
		}
		var before, after map[string]any
		unmarshal(t, data, &before)
		unmarshal(t, once, &after)
		for _, touched := range []string{"process", "hooks", "annotations", "linux", "mounts"} {
			delete(before, touched)
			delete(after, touched)
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatal("an untouched member changed")
		}
		var s specs.Spec
		if json.Unmarshal(once, &s) == nil {
			sameAsSpec(t, mustParse(t, once), &s)
		}
	})
}

func FuzzRewriteProcess(f *testing.F) {
	for _, name := range []string{"process-exec", "process-tty"} {
		f.Add(read(f, "testdata/"+name+".json"))
	}
	f.Add([]byte(`{"env":["LAZARET_A=1","PATH=","TERMINFO_DIRS=:"],"x":1e5}`))
	plan := ProcessPlan{Env: []string{"LAZARET_SESSION_ID=s"}, PathDirs: []string{"/run/lazaret/bin"}, TerminfoDir: "/run/lazaret/terminfo"}
	f.Fuzz(func(t *testing.T, data []byte) {
		once, err := RewriteProcess(data, plan)
		if err != nil {
			if strings.Contains(err.Error(), "fault in Lazaret") {
				t.Fatal(err)
			}
			return
		}
		twice, err := RewriteProcess(once, plan)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("twice is not once (%v):\n%s\n%s", err, once, twice)
		}
	})
}

func seed(f *testing.F) {
	inputs, err := filepath.Glob("testdata/*.json")
	if err != nil || len(inputs) == 0 {
		f.Fatal("no documents", err)
	}
	for _, in := range inputs {
		f.Add(read(f, in))
	}
	f.Add([]byte(`{"process":{"env":["A=\ud800"]},"mounts":[ {"destination":"/a"} , {} ]}`))
	f.Add([]byte("{ \"process\" : { } , \"x\":\t-1.5e+3 , \"y\" : [ {\"z\":\"]}\\\"\"} ] }"))
}

func sameAsSpec(t *testing.T, d *Document, s *specs.Spec) {
	t.Helper()
	if len(d.Mounts()) != len(s.Mounts) || len(s.Mounts) > 0 && !reflect.DeepEqual(d.Mounts(), s.Mounts) {
		t.Fatalf("mounts: %v, runsc reads %v", d.Mounts(), s.Mounts)
	}
	if len(d.Annotations()) != len(s.Annotations) || len(s.Annotations) > 0 && !reflect.DeepEqual(d.Annotations(), s.Annotations) {
		t.Fatalf("annotations: %v, runsc reads %v", d.Annotations(), s.Annotations)
	}
	if p := s.Process; p != nil {
		if len(d.Env()) != len(p.Env) || len(p.Env) > 0 && !reflect.DeepEqual(d.Env(), p.Env) {
			t.Fatalf("env: %q, runsc reads %q", d.Env(), p.Env)
		}
		if len(d.Args()) != len(p.Args) || len(p.Args) > 0 && !reflect.DeepEqual(d.Args(), p.Args) {
			t.Fatalf("args: %q, runsc reads %q", d.Args(), p.Args)
		}
	}
	if h := s.Hooks; h != nil {
		//nolint:staticcheck // prestart is deprecated, but what runsc and podman agree on
		if len(d.Prestart()) != len(h.Prestart) || len(h.Prestart) > 0 && !reflect.DeepEqual(d.Prestart(), h.Prestart) {
			t.Fatalf("hooks: %v, runsc reads %v", d.Prestart(), h.Prestart)
		}
	}
}

func unmarshal(t *testing.T, data []byte, v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		t.Fatal(err)
	}
}

func owner(t *testing.T, info os.FileInfo) [2]uint32 {
	t.Helper()
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no owner")
	}
	return [2]uint32{st.Uid, st.Gid}
}

func mkfifo(t *testing.T, name string) {
	t.Helper()
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
}
