package hostenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDetect(t *testing.T) {
	me := os.Geteuid()
	tests := []struct {
		name   string
		env    map[string]string
		euid   int // 0 needs the tests to own "root's" directories: me stands in for it
		uidMap string
		want   func(dir string) Env
	}{
		{
			name:   "real root ignores XDG_RUNTIME_DIR of somebody under sudo",
			env:    map[string]string{"XDG_RUNTIME_DIR": "/run/user/1000"},
			uidMap: "         0          0 4294967295\n",
			want:   func(d string) Env { return Env{UID: 0, RuntimeDir: d + "/run/lazaret", Home: "/root"} },
		},
		{
			name:   "podman's variable does not make the host's root an ordinary user",
			env:    map[string]string{"_CONTAINERS_ROOTLESS_UID": "1000", "XDG_RUNTIME_DIR": "/run/user/1000"},
			uidMap: "         0          0 4294967295\n",
			want:   func(d string) Env { return Env{UID: 0, RuntimeDir: d + "/run/lazaret", Home: "/root"} },
		},
		{
			name:   "root of a container with a range of ids is rootful",
			uidMap: "0 100000 65536\n",
			want:   func(d string) Env { return Env{UID: 0, RuntimeDir: d + "/run/lazaret", Home: "/root"} },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := t.TempDir()
			src := Source{
				Getenv: func(k string) string { return tt.env[k] },
				EUID:   tt.euid,
				UIDMap: write(t, d+"/uid_map", tt.uidMap),
				Passwd: write(t, d+"/passwd", "root:x:0:0:root:/root:/bin/sh\ndev:x:1000:1000::/home/dev:/bin/sh\n"),
				RunDir: d + "/run",
				TmpDir: d,
			}
			got, err := Detect(src)
			if err != nil {
				t.Fatal(err)
			}
			if want := tt.want(d); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}

	t.Run("every environment of podman's calls leads to one runtime directory", func(t *testing.T) {
		d := t.TempDir()
		xdg := d + "/run/user/1000"
		if err := os.MkdirAll(xdg, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, env := range map[string]map[string]string{
			"create": {"HOME": d, "XDG_RUNTIME_DIR": xdg, "_CONTAINERS_ROOTLESS_UID": "1000"},
			"start":  {"XDG_RUNTIME_DIR": xdg},
			"none":   {},
		} {
			src := Source{
				Getenv: func(k string) string { return env[k] },
				EUID:   me, // owns xdg, as uid 0 of podman's namespace owns the real one
				UIDMap: write(t, d+"/uid_map", "0 1000 1\n1 100000 65536\n"),
				Passwd: write(t, d+"/passwd", "dev:x:1000:1000::/home/dev:/bin/sh\n"),
				RunDir: d + "/run", TmpDir: d,
			}
			if me != 0 {
				t.Skip("stands for uid 0 of a user namespace: needs root")
			}
			got, err := Detect(src)
			if err != nil {
				t.Fatal(name, err)
			}
			if got.RuntimeDir != xdg+"/lazaret" || got.UID != 1000 || !got.Rootless {
				t.Errorf("%s: %+v", name, got)
			}
		}
	})

	t.Run("a runtime directory in /tmp that others can enter is refused", func(t *testing.T) {
		d := t.TempDir()
		if err := os.Mkdir(d+"/lazaret-runtime-4242", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d+"/lazaret-runtime-4242", 0o755); err != nil { //nolint:gosec // the fault under test
			t.Fatal(err)
		}
		_, err := Detect(Source{Getenv: func(string) string { return "" }, EUID: 4242, UIDMap: "/nonexistent", Passwd: "/nonexistent", RunDir: d, TmpDir: d})
		if err == nil || !strings.Contains(err.Error(), "set XDG_RUNTIME_DIR") {
			t.Errorf("got %v", err)
		}
	})
}
