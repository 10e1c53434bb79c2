package spec

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// tree makes a bundle: files end in nothing, directories in /, and a link is
// written "name -> target".
func tree(t *testing.T, dir string, entries map[string]os.FileMode) {
	t.Helper()
	for name, mode := range entries {
		link, target, isLink := strings.Cut(name, " -> ")
		full := filepath.Join(dir, link)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case isLink:
			err = os.Symlink(target, full)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(full, 0o755)
		default:
			if err = os.WriteFile(full, []byte("#!/bin/sh\n"), 0o600); err == nil {
				err = os.Chmod(full, mode)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLookExecutable(t *testing.T) {
	bundle, host := t.TempDir(), t.TempDir()
	tree(t, bundle, map[string]os.FileMode{
		"rootfs/bin/sh": 0o755, "rootfs/bin/data": 0o644, "rootfs/bin/owner": 0o500, "rootfs/etc/": 0,
		"rootfs/usr/bin/tool": 0o755, "rootfs/usr/lib/helper": 0o644,
		"rootfs/usr/bin/absolute -> /bin/sh": 0, "rootfs/usr/bin/relative -> ../../bin/sh": 0,
		"rootfs/usr/bin/dangling -> /no/such": 0, "rootfs/usr/bin/loop -> loop": 0,
		"rootfs/usr/bin/dirlink -> /etc": 0, "rootfs/sbin -> usr/bin": 0,
		"rootfs/var/run -> /run": 0, "rootfs/run/": 0,
		// Links that aim at the host: what is outside must not be found.
		"rootfs/usr/bin/out -> ../../../../../../../../../../../.." + filepath.Join(host, "secret"): 0,
		"rootfs/usr/bin/outabs -> " + filepath.Join(host, "secret"):                                 0,
		"rootfs/escape -> " + host: 0,
		"rootfs/work/script":       0o755,
		"sub/relative-source":      0o755,
	})
	tree(t, host, map[string]os.FileMode{"secret": 0o755, "dir/mounted": 0o755, "dir/plain": 0o600, "dir/up -> ../secret": 0, "hidden/": 0})
	bind := func(source, dest string) specs.Mount {
		return specs.Mount{Type: "bind", Source: source, Destination: dest, Options: []string{"rbind"}}
	}
	tests := []struct {
		name   string
		arg    string
		path   string // PATH; "-" for none
		cwd    string
		mounts []specs.Mount
		notes  map[string]string
		want   string // empty for no error
		code   int
	}{
		{name: "absolute", arg: "/bin/sh"},
		{name: "on PATH", arg: "tool", path: "/bin:/usr/bin"},
		{name: "on PATH, through a link to a directory", arg: "tool", path: "/sbin"},
		{name: "no PATH means the standard one", arg: "tool", path: "-"},
		{name: "absolute link", arg: "/usr/bin/absolute"},
		{name: "relative link", arg: "/usr/bin/relative"},
		{name: "executable by its owner only", arg: "/bin/owner"},
		{name: "dots above the root", arg: "/../../bin/./sh"},
		{name: "relative to the working directory", arg: "./script", cwd: "/work"},
		{name: "missing", arg: "/no/such", want: `exec: "/no/such": stat /no/such: no such file or directory`, code: 127},
		{name: "missing on PATH", arg: "nosuch", path: "/bin:/usr/bin", want: `exec: "nosuch": executable file not found in $PATH`, code: 127},
		{name: "on PATH, not executable", arg: "data", path: "/bin", want: `exec: "data": executable file not found in $PATH`, code: 127},
		{name: "empty PATH", arg: "sh", path: "", want: "not found in $PATH", code: 127},
		{name: "relative PATH is not searched", arg: "sh", path: "bin:.", want: "not found in $PATH", code: 127},
		{name: "empty name", arg: "", path: "/bin", want: "not found in $PATH", code: 127},
		{name: "missing in the working directory", arg: "./nosuch", cwd: "/work", want: `exec: "./nosuch": stat ./nosuch: no such file or directory`, code: 127},
		{name: "a directory", arg: "/etc", want: `exec: "/etc": permission denied`, code: 126},
		{name: "a link to a directory", arg: "/usr/bin/dirlink", want: "permission denied", code: 126},
		{name: "not executable by anybody", arg: "/bin/data", want: `exec: "/bin/data": permission denied`, code: 126},
		{name: "below a file", arg: "/bin/sh/x", want: "not a directory", code: 126},
		{name: "dangling link", arg: "/usr/bin/dangling", want: "no such file", code: 127},
		{name: "a loop of links is runsc's to judge", arg: "/usr/bin/loop"},

		{name: "relative link to the host", arg: "/usr/bin/out", want: "no such file", code: 127},
		{name: "absolute link to the host", arg: "/usr/bin/outabs", want: "no such file", code: 127},
		{name: "directory link to the host", arg: "/escape/secret", want: "no such file", code: 127},
		{name: "dots out of a bind mount", arg: "/mnt/../../secret", mounts: []specs.Mount{bind(filepath.Join(host, "dir"), "/mnt")}, want: "no such file", code: 127},
		{name: "link out of a bind mount", arg: "/mnt/up", mounts: []specs.Mount{bind(filepath.Join(host, "dir"), "/mnt")}, want: "no such file", code: 127},

		{name: "in a bind mount", arg: "/mnt/mounted", mounts: []specs.Mount{bind(filepath.Join(host, "dir"), "/mnt")}},
		{name: "in a bind mount of a relative source", arg: "/mnt/relative-source", mounts: []specs.Mount{bind("sub", "/mnt")}},
		{name: "a file bound where none was", arg: "/opt/x/tool", mounts: []specs.Mount{bind(filepath.Join(host, "secret"), "/opt/x/tool")}},
		{name: "beside a file bound where none was", arg: "/opt/x/other", mounts: []specs.Mount{bind(filepath.Join(host, "secret"), "/opt/x/tool")}, want: "no such file", code: 127},
		{name: "a directory made for a mount point", arg: "/opt/x", mounts: []specs.Mount{bind(filepath.Join(host, "secret"), "/opt/x/tool")}, want: "permission denied", code: 126},
		{name: "bound by option, not by type", arg: "/mnt/mounted", mounts: []specs.Mount{{Source: filepath.Join(host, "dir"), Destination: "/mnt", Options: []string{"bind"}}}},
		{name: "not executable in a bind mount", arg: "/mnt/plain", mounts: []specs.Mount{bind(filepath.Join(host, "dir"), "/mnt")}, want: "permission denied", code: 126},
		{name: "hidden by a bind mount", arg: "/bin/sh", mounts: []specs.Mount{bind(filepath.Join(host, "hidden"), "/bin")}, want: "no such file", code: 127},
		{name: "hidden by a later mount above", arg: "/mnt/d/mounted", mounts: []specs.Mount{
			bind(filepath.Join(host, "dir"), "/mnt/d"), bind(filepath.Join(host, "hidden"), "/mnt"),
		}, want: "no such file", code: 127},
		{name: "a mount point reached through a link", arg: "/run/x/mounted", mounts: []specs.Mount{bind(filepath.Join(host, "dir"), "/var/run/x")}},
		{name: "a mount point spelt with dots", arg: "/mnt/mounted", mounts: []specs.Mount{bind(filepath.Join(host, "dir"), "/etc/../mnt/")}},
		{name: "on a tmpfs, unseen", arg: "/opt/nosuch", mounts: []specs.Mount{{Type: "tmpfs", Destination: "/opt"}}},
		{name: "on a tmpfs of PATH, unseen", arg: "nosuch", path: "/bin:/opt", mounts: []specs.Mount{{Type: "tmpfs", Destination: "/opt"}}},
		{name: "on proc, bound from the host", arg: "/proc/self/exe", mounts: []specs.Mount{bind("/proc", "/proc")}},
		{name: "a bind mount that cannot be opened", arg: "/mnt/x", mounts: []specs.Mount{bind(filepath.Join(host, "gone"), "/mnt")}},
		{name: "a root that runsc replaces", arg: "/no/such", notes: map[string]string{"dev.gvisor.spec.rootfs.source": "/image.erofs"}},
		{name: "a name longer than any path", arg: "/" + strings.Repeat("a/../", 2000) + "nosuch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := specs.Spec{
				Root:    &specs.Root{Path: "rootfs"},
				Process: &specs.Process{Args: []string{tt.arg}, Cwd: tt.cwd},
				Mounts:  tt.mounts, Annotations: tt.notes,
			}
			if tt.path != "-" {
				s.Process.Env = []string{"PATH=" + tt.path}
			}
			data, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			before := openFiles(t)
			err = LookExecutable(mustParse(t, data), bundle, nil)
			if tt.arg != "" && !strings.Contains(tt.arg, "/") && HasProgram(mustParse(t, data), bundle, nil, tt.arg) != (err == nil) {
				t.Errorf("HasProgram differs from %v", err)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			var exec *ExecError
			if !errors.As(err, &exec) || !strings.Contains(err.Error(), tt.want) || exec.ExitCode() != tt.code {
				t.Errorf("got %v, want %q with %d", err, tt.want, tt.code)
			}
		})
	}
}

func TestLookExecutableWithoutARoot(t *testing.T) {
	for _, in := range []string{
		`{}`, `{"process":{"args":[]}}`, `{"process":{"args":["/no/such"]},"root":{"path":"/no/such/root"}}`,
	} {
		if err := LookExecutable(mustParse(t, []byte(in)), t.TempDir(), nil); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
