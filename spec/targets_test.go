package spec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestMountTargets(t *testing.T) {
	tests := []struct {
		name   string
		links  map[string]string // in the image
		client bool
		fails  string
	}{
		{"an ordinary image", nil, true, ""},
		{"the client is a link into the workspace", map[string]string{"usr/local/bin/lazaret-escalate": "/workspace/evil"}, false, ""},
		{"its directory is", map[string]string{"usr/local/bin": "/workspace"}, false, ""},
		{"its directory is elsewhere in the image", map[string]string{"usr/local/bin": "/opt/bin"}, true, ""},
		{"/run is the workspace", map[string]string{"run": "/workspace"}, true, "leads /run/lazaret to /workspace/lazaret"},
		{"/run/lazaret leads into it", map[string]string{"run/lazaret": "../workspace/.git"}, true, "leads /run/lazaret to /workspace/.git"},
		{"/run/lazaret leads into another of the user's directories", map[string]string{"run/lazaret": "/data/x"}, true, "what is mounted at /data"},
		{"/workspace is /run", map[string]string{"workspace": "/run"}, true, "leads /workspace to /run"},
		{"/run is /var/run", map[string]string{"run": "var/run"}, true, ""},
		{"a loop is runsc's to refuse", map[string]string{"run": "run"}, true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bundle := t.TempDir()
			ws := t.TempDir()
			for _, d := range []string{"rootfs/var/run", "rootfs/usr/local", "rootfs/opt/bin", "rootfs/data"} {
				if err := os.MkdirAll(filepath.Join(bundle, d), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for name, to := range tt.links {
				full := filepath.Join(bundle, "rootfs", name)
				if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(to, full); err != nil {
					t.Fatal(err)
				}
			}
			data, err := json.Marshal(specs.Spec{
				Root: &specs.Root{Path: "rootfs"},
				Mounts: []specs.Mount{
					{Destination: "/data", Type: "bind", Source: ws, Options: []string{"rbind"}},
					{Destination: "/workspace", Type: "bind", Source: ws, Options: []string{"rbind"}},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			client, err := MountTargets(mustParse(t, data), bundle, nil)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || client != tt.client {
				t.Errorf("client %v, %v", client, err)
			}
		})
	}
}
