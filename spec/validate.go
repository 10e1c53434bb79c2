package spec

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/configs/validate"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Validate checks a document with libcontainer's configs/validate, converting by
// hand what those rules look at, as libcontainer's own conversion needs cgo. The
// root file system is left out: it is the engine's, and runsc tells better.
// Preconditions: it runs in the namespaces in which the runtime will.
func Validate(d *Document) error {
	c, err := d.libcontainer()
	if err != nil {
		return err
	}
	return validate.Validate(c)
}

func (d *Document) libcontainer() (*configs.Config, error) {
	c := &configs.Config{
		Rootfs:       "/",
		Hostname:     d.hostname,
		Domainname:   d.domainname,
		RootlessEUID: os.Geteuid() != 0,
		UIDMappings:  idMappings(d.uidMappings),
		GIDMappings:  idMappings(d.gidMappings),
	}
	for _, n := range d.namespaces {
		kind, err := namespaceType(n.Type)
		if err != nil {
			return nil, err
		}
		if c.Namespaces.Contains(kind) {
			return nil, fmt.Errorf("the %s namespace is listed twice", n.Type)
		}
		c.Namespaces.Add(kind, n.Path)
	}
	for _, m := range d.mounts {
		c.Mounts = append(c.Mounts, libcontainerMount(m.Mount))
	}
	var resources specs.LinuxResources
	err := errors.Join(
		decode(d.linux.get("sysctl"), "linux.sysctl", &c.Sysctl),
		decode(d.linux.get("maskedPaths"), "linux.maskedPaths", &c.MaskPaths),
		decode(d.linux.get("readonlyPaths"), "linux.readonlyPaths", &c.ReadonlyPaths),
		decode(d.linux.get("timeOffsets"), "linux.timeOffsets", &c.TimeOffsets),
		decode(d.linux.get("resources"), "linux.resources", &resources),
	)
	c.Cgroups = &cgroups.Cgroup{Resources: cgroupResources(resources)}
	if d.process != nil {
		err = errors.Join(err,
			decode(d.process.obj.get("selinuxLabel"), "process.selinuxLabel", &c.ProcessLabel),
			decode(d.process.obj.get("scheduler"), "process.scheduler", &c.Scheduler),
			decode(d.process.obj.get("ioPriority"), "process.ioPriority", &c.IOPriority),
		)
	}
	return c, err
}

func cgroupResources(r specs.LinuxResources) *cgroups.Resources {
	out := &cgroups.Resources{Unified: r.Unified}
	if m := r.Memory; m != nil {
		if m.Limit != nil {
			out.Memory = *m.Limit
		}
		if m.Swap != nil {
			out.MemorySwap = *m.Swap
		}
	}
	return out
}

func idMappings(all []specs.LinuxIDMapping) []configs.IDMap {
	var out []configs.IDMap // nil, not empty, stands for none
	for _, m := range all {
		out = append(out, configs.IDMap{
			ContainerID: int64(m.ContainerID), HostID: int64(m.HostID), Size: int64(m.Size),
		})
	}
	return out
}

func namespaceType(t specs.LinuxNamespaceType) (configs.NamespaceType, error) {
	switch t {
	case specs.PIDNamespace:
		return configs.NEWPID, nil
	case specs.NetworkNamespace:
		return configs.NEWNET, nil
	case specs.MountNamespace:
		return configs.NEWNS, nil
	case specs.IPCNamespace:
		return configs.NEWIPC, nil
	case specs.UTSNamespace:
		return configs.NEWUTS, nil
	case specs.UserNamespace:
		return configs.NEWUSER, nil
	case specs.CgroupNamespace:
		return configs.NEWCGROUP, nil
	case specs.TimeNamespace:
		return configs.NEWTIME, nil
	}
	return "", fmt.Errorf("there is no namespace type %q", t)
}

func libcontainerMount(m specs.Mount) *configs.Mount {
	out := &configs.Mount{Source: m.Source, Destination: m.Destination, Device: m.Type}
	var data []string
	for _, o := range m.Options {
		switch {
		case o == "bind", o == "rbind":
			out.Flags |= unix.MS_BIND
		case o == "idmap", o == "ridmap":
			out.IDMapping = new(configs.MountIDMapping)
		case !isMountFlag(o):
			data = append(data, o)
		}
	}
	if m.UIDMappings != nil || m.GIDMappings != nil {
		out.IDMapping = &configs.MountIDMapping{
			UIDMappings: idMappings(m.UIDMappings), GIDMappings: idMappings(m.GIDMappings),
		}
	}
	out.Data = strings.Join(data, ",")
	return out
}

// isMountFlag tells the options of the runtime-spec's table that become mount
// flags or attributes from those that are the file system's own.
func isMountFlag(o string) bool {
	if slices.Contains(strings.Fields(`async defaults dirsync iversion lazytime loud mand noiversion nolazytime
		nomand remount silent sync tmpcopyup
		private rprivate shared rshared slave rslave unbindable runbindable`), o) {
		return true
	}
	paired := strings.Fields("ro rw atime diratime relatime strictatime dev exec suid symfollow")
	for _, name := range []string{o, strings.TrimPrefix(o, "r")} { // rro is the recursive ro
		if slices.Contains(paired, strings.TrimPrefix(name, "no")) {
			return true
		}
	}
	return false
}
