package shim

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// overflowID stands for an id that the user namespace does not map
// (/proc/sys/kernel/overflowgid).
const overflowID = 65534

// reachable refuses a workspace in which runsc cannot mount anything: it looks
// for the mount points as root of the container, whose capabilities do not count
// for a directory whose owner or group the container does not map
// (user_namespaces(7)), such as one of a shared group with --userns=keep-id.
func (r *request) reachable() error {
	uids, gids := r.doc.UIDMappings(), r.doc.GIDMappings()
	if len(uids) == 0 {
		return nil // the engine's own: the developer is root
	}
	var st unix.Stat_t
	if err := unix.Stat(r.anchor.Workspace, &st); err != nil {
		return fmt.Errorf("workspace %s: %w", r.anchor.Workspace, err)
	}
	root := slices.ContainsFunc(uids, func(m specs.LinuxIDMapping) bool { return m.ContainerID == 0 && m.HostID == st.Uid })
	if root || st.Mode&unix.S_IXOTH != 0 || mapped(uids, st.Uid) && mapped(gids, st.Gid) {
		return nil
	}
	return fmt.Errorf("workspace %s: its owner or group is not in the container's user namespace and others may not enter it (mode %o), so that its masks could not be mounted: give it to a group of yours (chgrp), or leave --userns out", r.anchor.Workspace, st.Mode&0o7777)
}

func mapped(all []specs.LinuxIDMapping, id uint32) bool {
	return id != overflowID && slices.ContainsFunc(all, func(m specs.LinuxIDMapping) bool {
		return id >= m.HostID && uint64(id) < uint64(m.HostID)+uint64(m.Size)
	})
}
