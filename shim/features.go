package shim

import (
	"encoding/json"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// features prints the OCI features document (runtime-spec features.md): what a
// container can really have here. runsc's own verb of that name lists
// processor features instead.
func (s *shim) features() error {
	no := false
	f := features.Features{
		OCIVersionMin: "1.0.0",
		OCIVersionMax: specVersion,
		Hooks:         []string{"prestart", "createRuntime", "poststart", "poststop"},
		MountOptions:  []string{"bind", "rbind", "ro", "rw", "nosuid", "nodev", "noexec", "noatime", "private", "rprivate", "shared", "rshared", "slave", "rslave"},
		Linux: &features.Linux{
			Namespaces:      []string{"cgroup", "ipc", "mount", "network", "pid", "user", "uts"},
			Capabilities:    nil, // the sandbox kernel's own; the host grants none
			Cgroup:          &features.Cgroup{V1: yesNo(!s.env.Rootless), V2: yesNo(!s.env.Rootless), Systemd: yesNo(!s.env.Rootless), SystemdUser: &no, Rdma: &no},
			Seccomp:         &features.Seccomp{Enabled: &no},
			Apparmor:        &features.Apparmor{Enabled: &no},
			Selinux:         &features.Selinux{Enabled: &no},
			IntelRdt:        &features.IntelRdt{Enabled: &no},
			MountExtensions: &features.MountExtensions{IDMap: &features.IDMap{Enabled: &no}},
		},
		Annotations: map[string]string{
			"dev.lazaret.version": shortVersion(),
		},
		PotentiallyUnsafeConfigAnnotations: []string{profileAnnotation, workspaceAnnotation, "dev.gvisor."},
	}
	if low := s.lowRuntime(nil); low.err == nil && !low.probe(s.env).hideNet() {
		// runsc of 2022 does not run these; the flag that is looked for came later
		// than they did.
		f.Hooks = append(f.Hooks, "createContainer")
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("features: %w", err)
	}
	_, err = fmt.Fprintf(s.stdout, "%s\n", data)
	return err
}

func yesNo(b bool) *bool { return &b }
