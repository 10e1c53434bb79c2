package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

var releaseForm = regexp.MustCompile(`^(\d+)\.(\d+)`)

func (d *examiner) kernel() Check {
	const name = "kernel"
	release, err := d.read("/proc/sys/kernel/osrelease")
	if err != nil {
		return warn(name, "mount -t proc proc /proc", "version unknown: %v", err)
	}
	m := releaseForm.FindStringSubmatch(release)
	if m == nil {
		return warn(name, "uname -r", "version %q is not understood", release)
	}
	major, _ := strconv.Atoi(m[1]) // digits by the pattern
	minor, _ := strconv.Atoi(m[2])
	atLeast := func(a, b int) bool { return major > a || major == a && minor >= b }
	upgrade := d.sudo("reboot") + "  # into a newer kernel of your distribution"
	switch {
	case !atLeast(5, 6):
		return fail(name, upgrade, "%s: 5.6 or newer is needed (pidfd_open, openat2)", release)
	case !atLeast(5, 11):
		return warn(name, upgrade, "%s: before 5.11 there is no overlay in user namespaces, fuse-overlayfs stands in", release)
	}
	return ok(name, "%s", release)
}

func (d *examiner) userNamespaces() Check {
	const name = "user namespaces"
	if v, err := d.read("/proc/sys/user/max_user_namespaces"); errors.Is(err, fs.ErrNotExist) {
		return fail(name, d.sudo("reboot")+"  # into a kernel with CONFIG_USER_NS", "the kernel has none")
	} else if err != nil {
		return warn(name, "sysctl user.max_user_namespaces", "cannot be read: %v", err)
	} else if v == "0" {
		return fail(name, d.sudo("sysctl -w user.max_user_namespaces=15000"), "user.max_user_namespaces is 0")
	}
	if d.UID == 0 {
		return ok(name, "allowed")
	}
	// Debian's and Ubuntu's own switches: absent elsewhere.
	if v, err := d.read("/proc/sys/kernel/unprivileged_userns_clone"); err == nil && v == "0" {
		return fail(name, d.sudo("sysctl -w kernel.unprivileged_userns_clone=1"), "kernel.unprivileged_userns_clone is 0: only root may make them")
	}
	if v, err := d.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); err == nil && v != "0" {
		return warn(name, d.sudo("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
			"AppArmor lets only programs with a profile of theirs use them: podman has one, runsc and lazaret-coordinator may not")
	}
	return ok(name, "allowed for ordinary users")
}

// wantIDs is what images expect: uids and gids up to 65535.
const wantIDs = 65536

func (d *examiner) subIDs(ctx context.Context) Check {
	const name = "subordinate ids"
	if d.UID == 0 {
		return ok(name, "not needed by root")
	}
	var have []string
	short := false
	next := 100000
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		data, err := os.ReadFile(d.Root + file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return warn(name, "ls -l "+file, "%v", err)
		}
		count, end := subIDs(string(data), d.User, d.UID)
		next = max(next, end)
		if count == 0 && d.subIDsElsewhere() {
			count = d.askSubIDs(ctx, file)
		}
		short = short || count < wantIDs
		have = append(have, fmt.Sprintf("%d in %s", count, file))
	}
	if short {
		who := d.User
		if who == "" {
			who = strconv.Itoa(d.UID)
		}
		span := fmt.Sprintf("%d-%d", next, next+wantIDs-1)
		return fail(name, d.sudo("usermod --add-subuids "+span+" --add-subgids "+span+" "+who)+" && podman system migrate",
			"%s has too few: %s, images need %d", who, strings.Join(have, ", "), wantIDs)
	}
	return ok(name, "%s", strings.Join(have, ", "))
}

// subIDs counts the ids of a user in a file of subuid(5)'s form; end is the
// first id beyond every range in it, whosever they are.
func subIDs(data, user string, uid int) (count, end int) {
	for line := range strings.Lines(data) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(f[1], 10, 32)
		n, err2 := strconv.ParseUint(f[2], 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		if f[0] == strconv.Itoa(uid) || user != "" && f[0] == user {
			count += int(n)
		}
		end = max(end, int(first+n))
	}
	return count, end
}

// subIDsElsewhere tells whether nsswitch.conf(5) names a source besides files.
func (d *examiner) subIDsElsewhere() bool {
	conf, err := d.read("/etc/nsswitch.conf")
	if err != nil {
		return false
	}
	for line := range strings.Lines(conf) {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), "subid:"); found {
			return strings.TrimSpace(rest) != "files"
		}
	}
	return false
}

func (d *examiner) askSubIDs(ctx context.Context, file string) int {
	tool, err := d.LookPath("getsubids")
	if err != nil {
		return 0
	}
	args := []string{d.User}
	if file == "/etc/subgid" {
		args = []string{"-g", d.User}
	}
	out, err := d.Run(ctx, tool, args...)
	if err != nil {
		return 0
	}
	count := 0
	for line := range strings.Lines(out) { // "0: user 100000 65536"
		if f := strings.Fields(line); len(f) == 4 {
			if n, err := strconv.Atoi(f[3]); err == nil {
				count += n
			}
		}
	}
	return count
}

func (d *examiner) idMapTools() Check {
	const name = "newuidmap"
	if d.UID == 0 {
		return ok(name, "not needed by root")
	}
	for _, tool := range []string{"newuidmap", "newgidmap"} {
		path, err := d.LookPath(tool)
		if err != nil {
			return fail(name, d.install("newuidmap"), "%s is not installed", tool)
		}
		fi, err := os.Stat(path)
		if err != nil {
			return fail(name, d.install("newuidmap"), "%v", err)
		}
		// Distributions give it either the setuid bit or file capabilities.
		caps, _ := unix.Getxattr(path, "security.capability", nil) // an error means none
		if fi.Mode()&fs.ModeSetuid == 0 && caps <= 0 {
			return fail(name, d.sudo("chmod u+s "+path), "%s has neither the setuid bit nor capabilities: it cannot map ids", path)
		}
	}
	return ok(name, "newuidmap and newgidmap can map ids")
}

func (d *examiner) runtimeDir() Check {
	const name = "runtime dir"
	if d.UID == 0 {
		return ok(name, "%s", d.set.RuntimeDir)
	}
	who := d.User
	if who == "" {
		who = strconv.Itoa(d.UID)
	}
	login := d.sudo("loginctl enable-linger "+who) + fmt.Sprintf(" && export XDG_RUNTIME_DIR=/run/user/%d", d.UID)
	dir := d.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		return warn(name, login, "XDG_RUNTIME_DIR is not set: no session of this user (su and sudo start none); %s is used", d.set.RuntimeDir)
	}
	if !filepath.IsAbs(dir) {
		return fail(name, login, "XDG_RUNTIME_DIR=%s is not an absolute path", dir)
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return fail(name, login, "XDG_RUNTIME_DIR: %v", err)
	}
	st, known := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.IsDir():
		return fail(name, login, "XDG_RUNTIME_DIR=%s is not a directory", dir)
	case !known || int(st.Uid) != d.UID:
		return fail(name, login, "XDG_RUNTIME_DIR=%s belongs to another user", dir)
	case fi.Mode().Perm()&0o077 != 0:
		return warn(name, "chmod 700 "+dir, "XDG_RUNTIME_DIR=%s is open to others (mode %04o)", dir, fi.Mode().Perm())
	}
	return ok(name, "%s", dir)
}

// cgroups only tells: rootless no runtime of Lazaret's is given one, whatever the
// machine delegates.
func (d *examiner) cgroups() Check {
	const name = "cgroups"
	kind := "version 2"
	switch _, err := d.read("/sys/fs/cgroup/cgroup.controllers"); {
	case errors.Is(err, fs.ErrNotExist):
		kind = "version 1"
		if _, err := os.Stat(d.Root + "/sys/fs/cgroup/unified"); err == nil {
			kind = "hybrid (versions 1 and 2)"
		}
	case err != nil:
		return warn(name, "ls -l /sys/fs/cgroup", "%v", err)
	}
	if d.UID == 0 {
		return ok(name, "%s", kind)
	}
	return ok(name, "%s; limits on memory, cpu and processes are not enforced for ordinary users", kind)
}

func (d *examiner) device(name, module, why string) Check {
	path := name
	f, err := os.OpenFile(d.Root+path, os.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case err == nil:
		_ = f.Close() // nothing was written
		return ok(name, "can be opened")
	case errors.Is(err, fs.ErrPermission):
		return fail(name, d.sudo("chmod 666 "+path), "may not be opened by this user: %s", why)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fail(name, d.sudo("modprobe "+module), "is missing: %s", why)
	}
	return fail(name, d.sudo("modprobe "+module), "cannot be opened: %v", err)
}

func (d *examiner) network(p Probe, err error) Check {
	const name = "network"
	switch {
	case err != nil:
		return warn(name, "lazaret doctor  # again, once user namespaces work", "nftables and veth could not be tried: %v", err)
	case p.Nftables != "":
		return fail(name, d.sudo("modprobe nf_tables"), "nftables does not work in a network namespace of this user: %s", p.Nftables)
	case p.Veth != "":
		return fail(name, d.sudo("modprobe veth"), "veth pairs cannot be made in a network namespace of this user: %s", p.Veth)
	}
	return ok(name, "nftables and veth work in a namespace of this user")
}

func (d *examiner) overlay(p Probe, err error) Check {
	const name = "overlay"
	tool, lookErr := d.LookPath("fuse-overlayfs")
	switch {
	case err == nil && p.Overlay == "":
		return ok(name, "the kernel's overlay works in a namespace of this user")
	case lookErr == nil:
		return ok(name, "%s (the kernel's: %s)", tool, reason(p.Overlay, err))
	}
	return fail(name, d.install("fuse-overlayfs"), "the kernel's overlay does not work here (%s) and fuse-overlayfs is not installed", reason(p.Overlay, err))
}

func reason(s string, err error) string {
	if err != nil {
		return "could not be tried: " + err.Error()
	}
	return s
}
