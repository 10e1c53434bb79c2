package shim

import (
	"os"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/lazaret-dev/lazaret/internal/domain"
)

func TestReachable(t *testing.T) {
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid()) //nolint:gosec // ids
	one := func(container, host uint32) []specs.LinuxIDMapping {
		return []specs.LinuxIDMapping{{ContainerID: container, HostID: host, Size: 1}}
	}
	for _, tt := range []struct {
		name       string
		mode       os.FileMode
		uids, gids []specs.LinuxIDMapping
		ok         bool
	}{
		{"no mapping of its own", 0o700, nil, nil, true},
		{"owner and group are mapped", 0o700, one(1000, uid), one(1000, gid), true},
		{"the owner is the container's root", 0o700, one(0, uid), one(0, gid+1), true},
		{"everybody may enter", 0o711, one(1000, uid), one(1000, gid+1), true},
		{"the group is not mapped", 0o770, one(1000, uid), one(1000, gid+1), false},
		{"the owner is not mapped", 0o770, one(0, uid+1), one(0, gid), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ws := t.TempDir()
			if err := os.Chmod(ws, tt.mode); err != nil {
				t.Fatal(err)
			}
			r := &request{anchor: domain.New("p", ws, "/data"), doc: document(t, func(s *specs.Spec) {
				s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
				s.Linux.UIDMappings, s.Linux.GIDMappings = tt.uids, tt.gids
			})}
			if err := r.reachable(); (err == nil) != tt.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
