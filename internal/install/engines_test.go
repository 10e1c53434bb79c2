package install

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestEngines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runtime := filepath.Join(dir, "bin/lazaret-runtime")
	must(t, os.MkdirAll(filepath.Dir(runtime), 0o755))
	must(t, os.WriteFile(runtime, []byte("#!/bin/sh\n"), 0o755))
	const oldBlock = blockBegin + "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.lazaret]\nruntime_type = \"io.containerd.runc.v2\"\n" + blockEnd
	tests := []struct {
		name   string
		engine Engine
		before string // "" for no file
		undone string // what the undo leaves; "=" for what was before
		has    []string
		fails  string
	}{
		{name: "docker, no file", engine: Docker, has: []string{`"path": "RUNTIME"`}},
		{name: "docker, others", engine: Docker, before: "{\n  \"log-level\": \"warn\",\n  \"runtimes\": {\"kata\": {\"path\": \"/x\"}}\n}\n", undone: "=", has: []string{"\n  \"log-level\": \"warn\",\n", `"kata": {"path": "/x"}`, `"lazaret"`}},
		{name: "docker, no runtimes", engine: Docker, before: `{"debug":true}`, undone: "=", has: []string{`{"debug":true,`, `"lazaret"`}},
		{name: "docker, an old path", engine: Docker, before: `{"runtimes":{"lazaret":{"path":"/old"}}}`, undone: "", has: []string{`"RUNTIME"`}},
		{name: "docker, damaged", engine: Docker, before: "{,}", fails: "not a JSON object"},
		{name: "docker, a list", engine: Docker, before: "[]", fails: "not a JSON object"},
		{name: "docker, runtimes is a list", engine: Docker, before: `{"runtimes":[]}`, fails: "runtimes is not an object"},
		{name: "containerd, no file", engine: Containerd, has: []string{"version = 2\n", `BinaryName = "RUNTIME"`}},
		{name: "containerd, version 2", engine: Containerd, before: "# mine\nversion = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"", undone: "# mine\nversion = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n", has: []string{"# mine\n", `[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.lazaret.options]`}},
		{name: "containerd, version 3", engine: Containerd, before: "version = 3\n", undone: "=", has: []string{`[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.lazaret]`}},
		{name: "containerd, an old block", engine: Containerd, before: "version = 2\nroot = \"/x\"\n" + oldBlock, undone: "version = 2\nroot = \"/x\"\n", has: []string{`BinaryName = "RUNTIME"`}},
		{name: "containerd, version 1", engine: Containerd, before: "[plugins.cri]\n", fails: "containerd config migrate"},
		{name: "containerd, damaged", engine: Containerd, before: "version = \n", fails: "mend it first"},
		{name: "containerd, one by hand", engine: Containerd, before: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.lazaret]\nruntime_type = \"x\"\n", fails: "remove what it says of a runtime lazaret"},
		{name: "containerd, a cut block", engine: Containerd, before: "version = 2\n" + strings.TrimSuffix(oldBlock, blockEnd), fails: "does not end"},
		{name: "cri-o", engine: CRIO, has: []string{`runtime_path = "RUNTIME"`}},
		{name: "cri-o, by hand", engine: CRIO, before: "[crio]\n", fails: ErrEdited.Error()},
		{name: "another", engine: "rkt", fails: "want podman, docker, containerd or crio"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "etc/engine.conf")
			if tt.before != "" {
				must(t, os.MkdirAll(filepath.Dir(path), 0o755))
				must(t, os.WriteFile(path, []byte(tt.before), 0o644))
			}
			h := Host{Executable: func() (string, error) { return "", errors.New("not asked") }}
			apply := func(o Options) *Change {
				c, err := PlanEngine(h, tt.engine, path, o)
				must(t, err)
				if _, err := c.Apply(); err != nil {
					t.Fatal(err)
				}
				return c
			}
			_, err := PlanEngine(h, tt.engine, path, Options{RuntimePath: runtime})
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("got %v, want %q", err, tt.fails)
				}
				return
			}
			apply(Options{RuntimePath: runtime})
			data, err := os.ReadFile(path)
			must(t, err)
			for _, want := range tt.has {
				if !strings.Contains(string(data), strings.ReplaceAll(want, "RUNTIME", runtime)) {
					t.Errorf("no %s in\n%s", want, data)
				}
			}
			if tt.engine == Docker && !json.Valid(data) {
				t.Errorf("not JSON:\n%s", data)
			}
			if tt.engine != Docker {
				must(t, toml.Unmarshal(data, &map[string]any{}))
			}
			if c := apply(Options{RuntimePath: runtime}); c.Action != Keep {
				t.Errorf("once more: %s", c.Action)
			}
			apply(Options{Uninstall: true})
			want := tt.undone
			if want == "=" {
				want = tt.before
			}
			data, err = os.ReadFile(path)
			if want == "" && !errors.Is(err, os.ErrNotExist) || string(data) != want {
				t.Errorf("undone:\n%q, %v, want\n%q", data, err, want)
			}
			if c := apply(Options{Uninstall: true}); c.Action != Keep {
				t.Errorf("undone once more: %s", c.Action)
			}
		})
	}
	if _, err := PlanEngine(Host{}, Docker, "/x", Options{Scope: User}); err == nil || !strings.Contains(err.Error(), "whole machine") {
		t.Errorf("for one user: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
