package doctor

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	dropin "github.com/lazaret-dev/lazaret/containers.conf.d"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/podmanconf"
	"github.com/lazaret-dev/lazaret/internal/version"
)

func (d *examiner) podman(ctx context.Context) (Check, podmanconf.Version) {
	const name = "podman"
	path, err := d.LookPath("podman")
	if err != nil {
		return fail(name, d.install("podman"), "is not installed"), podmanconf.Version{}
	}
	out, err := d.Run(ctx, path, "--version")
	if err != nil {
		return fail(name, path+" --version", "does not answer: %v", err), podmanconf.Version{}
	}
	v, err := podmanconf.ParseVersion(firstLine(out))
	if err != nil {
		return warn(name, path+" --version", "%v", err), podmanconf.Version{}
	}
	if !v.AtLeast(4, 0) {
		return warn(name, d.install("podman"), "%s at %s: Lazaret is tested with 4.3 and newer", v, path), v
	}
	return ok(name, "%s at %s", v, path), v
}

func (d *examiner) conmon(ctx context.Context) Check {
	const name = "conmon"
	// podman's own list (containers.conf(5), conmon_path), then PATH.
	var path string
	for _, p := range []string{
		"/usr/libexec/podman/conmon", "/usr/local/libexec/podman/conmon", "/usr/local/lib/podman/conmon",
		"/usr/bin/conmon", "/usr/sbin/conmon", "/usr/local/bin/conmon", "/usr/local/sbin/conmon",
	} {
		if fi, err := os.Stat(d.Root + p); err == nil && fi.Mode().IsRegular() {
			path = d.Root + p
			break
		}
	}
	if path == "" {
		p, err := d.LookPath("conmon")
		if err != nil {
			return fail(name, d.install("conmon"), "is not installed")
		}
		path = p
	}
	out, err := d.Run(ctx, path, "--version")
	if err != nil {
		return fail(name, d.install("conmon"), "does not answer: %v", err)
	}
	return ok(name, "%s at %s", strings.TrimPrefix(firstLine(out), "conmon version "), path)
}

// registration looks at podman's configuration as podman itself would.
func (d *examiner) registration(v podmanconf.Version) Check {
	const name, mend = "registration", "lazaret init"
	if o := d.Layout.Override(); o != "" {
		return d.registeredIn([]string{o}, v, "unset CONTAINERS_CONF")
	}
	files, err := d.Layout.Files("")
	if err != nil {
		return fail(name, mend, "%v", err)
	}
	for _, dir := range []string{d.Layout.SystemDropins(), d.Layout.UserDropins()} {
		path := filepath.Join(dir, dropin.FileName)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || dir == "" {
			continue
		}
		if err != nil {
			return warn(name, "ls -l "+path, "%v", err)
		}
		if dropin.Inspect(data) != dropin.Intact {
			c := d.registeredIn(files, v, mend)
			if c.Status == OK {
				return warn(name, "lazaret init --force", "%s; %s was changed by hand (a copy is kept)", c.Detail, path)
			}
			return c
		}
	}
	return d.registeredIn(files, v, mend)
}

func (d *examiner) registeredIn(files []string, v podmanconf.Version, mend string) Check {
	const name = "registration"
	e, err := podmanconf.Load(files, v)
	if err != nil {
		return fail(name, mend, "%v", err)
	}
	paths := e.Runtimes[dropin.RuntimeName]
	if problems := e.Problems(dropin.RuntimeName, ""); len(problems) > 0 {
		if paths == nil {
			return fail(name, mend, "%s", strings.Join(problems, "; "))
		}
		return warn(name, mend, "%s", strings.Join(problems, "; "))
	}
	// podman takes the first of them that exists.
	i := slices.IndexFunc(paths, func(p string) bool { _, err := os.Stat(p); return err == nil })
	from := e.RuntimesFrom[dropin.RuntimeName]
	if i < 0 {
		return fail(name, mend, "%s names %s, which does not exist", from, strings.Join(paths, ", "))
	}
	if err := fixedpath.Check(paths[i]); err != nil {
		return fail(name, mend, "%s: %v", from, err)
	}
	if own, err := d.Helper("lazaret-runtime"); err == nil && !sameFile(own, paths[i]) {
		return warn(name, mend, "podman starts %s, of another installation than this one (%s)", paths[i], own)
	}
	return ok(name, "podman runs %s (%s)", paths[i], from)
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// programs checks the rest of this installation.
func (d *examiner) programs(ctx context.Context) Check {
	const name, mend = "lazaret programs", "make install"
	var other []string
	names := []string{"lazaret-runtime", "lazaret-hook", "lazaret-coordinator", "lazaret-netrouter", "lazaret-escalate"}
	for _, n := range names {
		path, err := d.Helper(n)
		if err != nil {
			return fail(name, d.sudo(mend), "%v", err)
		}
		out, err := d.Run(ctx, path, "--version")
		if err != nil {
			return fail(name, d.sudo(mend), "does not answer: %v", err)
		}
		// The runtime says it in more lines, as engines expect.
		if !strings.Contains(out, " "+version.Version) || !strings.Contains(out, version.Commit) {
			other = append(other, fmt.Sprintf("%s says %q", path, firstLine(out)))
		}
	}
	if len(other) > 0 {
		return warn(name, d.sudo(mend), "of another version than this one (%s): %s", version.String("lazaret"), strings.Join(other, "; "))
	}
	return ok(name, "all %d of this version are in place", len(names)+1)
}

// sandboxInfo is what was found out about runsc.
type sandboxInfo struct {
	check Check
	path  string // "" when it cannot be used
	flags string // its list of flags
}

// getRunsc is gVisor's documented installation.
const getRunsc = "curl -fsSLO https://storage.googleapis.com/gvisor/releases/release/latest/$(uname -m)/runsc && "

var (
	runscDate    = regexp.MustCompile(`\b20\d{6}`) // also of a pseudo-version, with the time behind it
	platformForm = regexp.MustCompile(`(\w+) \(default\)`)
)

// oldRunsc is the first release whose default platform was systrap, yyyymmdd.
const oldRunsc = "20230501"

func (d *examiner) sandbox(ctx context.Context) sandboxInfo {
	const name = "runsc"
	get := getRunsc + d.sudo("install -m 755 runsc /usr/local/bin/runsc")
	path, err := d.Find(d.set.Sandbox)
	if err != nil {
		if along, lookErr := d.LookPath(d.set.Sandbox); lookErr == nil && errors.Is(err, fixedpath.ErrNotFound) {
			return sandboxInfo{check: fail(name, d.sudo("install -m 755 "+along+" /usr/local/bin/"), "%s is in none of the directories that Lazaret trusts; or give its path as [runtime] sandbox", along)}
		}
		return sandboxInfo{check: fail(name, get, "%v", err)}
	}
	if interp, err := interpreter(path); err != nil {
		return sandboxInfo{check: fail(name, get, "%s: %v", path, err)}
	} else if interp != "" {
		return sandboxInfo{check: fail(name, get, "%s is linked dynamically (%s), which is out of its reach once it has locked itself in", path, interp)}
	}
	out, err := d.Run(ctx, path, "--version")
	if err != nil {
		return sandboxInfo{check: fail(name, get, "does not answer: %v", err)}
	}
	flags, err := d.Run(ctx, path, "flags")
	if err != nil {
		return sandboxInfo{check: fail(name, get, "does not answer: %v", err)}
	}
	for _, f := range []string{"host-uds", "overlay2", "ignore-cgroups"} {
		if !hasFlag(flags, f) {
			return sandboxInfo{check: fail(name, get, "%s is too old: it has no --%s", path, f)}
		}
	}
	info := sandboxInfo{path: path, flags: flags}
	v := strings.TrimPrefix(firstLine(out), "runsc version ")
	if v == "VERSION_MISSING" { // go install sets none
		if m := moduleVersion(path); m != "" {
			v = m
		}
	}
	date := runscDate.FindString(v)
	switch {
	case date == "":
		// Its flags have to tell.
		info.check = ok(name, "%s, a build without a version, knows the flags that are needed", path)
		if defaultPlatform(flags) == "ptrace" {
			info.check = warn(name, get, "%s, a build without a version, has the slow platform ptrace by default: older than May 2023", path)
		}
	case date < oldRunsc:
		info.check = warn(name, get, "%s is %s: it works, but slower than a current one and with known faults (see docs/troubleshooting.md)", path, v)
	default:
		info.check = ok(name, "%s at %s", v, path)
	}
	return info
}

// moduleVersion is the version of gVisor's Go module that a program was built
// from, "" when the program does not tell.
func moduleVersion(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return ""
	}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == "gvisor.dev/gvisor" && runscDate.MatchString(m.Version) {
			return m.Version
		}
	}
	return ""
}

// hasFlag looks for a flag in what Go's flag package prints about all of them.
func hasFlag(list, name string) bool {
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 0 && strings.TrimLeft(f[0], "-") == name && strings.HasPrefix(f[0], "-") {
			return true
		}
	}
	return false
}

func defaultPlatform(flags string) string {
	_, after, _ := strings.Cut(flags, "specifies which platform to use")
	m := platformForm.FindStringSubmatch(firstLine(after))
	if m == nil {
		return ""
	}
	return m[1]
}

// interpreter returns the dynamic loader that a program asks for, "" for a
// static one. A script is an error, as its interpreter is dynamic as a rule.
func interpreter(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("is no ELF program: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		data := make([]byte, min(p.Filesz, 4096))
		if _, err := p.ReadAt(data, 0); err != nil {
			return "", fmt.Errorf("read its loader's name: %w", err)
		}
		return string(bytes.TrimRight(data, "\x00")), nil
	}
	return "", nil
}

func (d *examiner) platform(s sandboxInfo) Check {
	const name = "platform"
	if s.path == "" {
		return warn(name, "lazaret doctor  # again, once runsc is there", "not known without runsc")
	}
	p := d.set.Platform
	if p == "" {
		p = defaultPlatform(s.flags)
	}
	if p == "kvm" {
		c := d.device("/dev/kvm", "kvm", "[runtime] platform = \"kvm\" needs it")
		c.Name = name
		if c.Status == OK {
			c.Detail = "kvm: /dev/kvm " + c.Detail
		} else {
			c.Detail = "/dev/kvm " + c.Detail
		}
		return c
	}
	// systrap and ptrace both trace their own processes.
	v, err := d.read("/proc/sys/kernel/yama/ptrace_scope")
	switch {
	case err != nil || v == "0" || v == "1":
	case v == "2" && d.UID == 0:
	case v == "2":
		return fail(name, d.sudo("sysctl -w kernel.yama.ptrace_scope=1"), "%s: kernel.yama.ptrace_scope is 2, only root may trace", p)
	default: // 3 stays until the next boot
		return fail(name, d.sudo("sysctl -w kernel.yama.ptrace_scope=1")+" || "+d.sudo("reboot"), "%s: kernel.yama.ptrace_scope is %s, nobody may trace", p, v)
	}
	return ok(name, "%s", p)
}

func (d *examiner) sidecar(ctx context.Context) Check {
	const name = "runc"
	path, err := d.Find(d.set.Sidecar)
	if err != nil {
		return fail(name, d.install("runc"), "%v: the Network Sidecar runs in it", err)
	}
	out, err := d.Run(ctx, path, "--version")
	if err != nil {
		return fail(name, d.install("runc"), "does not answer: %v", err)
	}
	return ok(name, "%s at %s", strings.TrimPrefix(firstLine(out), "runc version "), path)
}

func (d *examiner) uplink() Check {
	const name = "uplink"
	var have []string
	for _, tool := range []string{"pasta", "slirp4netns"} {
		if path, err := d.LookPath(tool); err == nil {
			have = append(have, path)
		}
	}
	if len(have) == 0 {
		return fail(name, d.install("slirp4netns"), "neither pasta nor slirp4netns is installed: nothing connects a rootless namespace")
	}
	return ok(name, "%s", strings.Join(have, ", "))
}
