// Package doctor owns the question whether this machine can run Lazaret: one
// check after the other, each with the command that mends what it found.
//
// It reads and asks only; nothing on the machine is changed, apart from a probe
// in namespaces and a directory of its own.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lazaret-dev/lazaret/internal/layout"
	"github.com/lazaret-dev/lazaret/internal/podmanconf"
)

// Status of a check.
type Status string

// The statuses.
const (
	OK   Status = "ok"
	Warn Status = "warn" // works, but less well or not everywhere
	Fail Status = "fail" // sandboxes cannot start
)

// Check is one finding.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // command that mends it, "" when OK
}

// Report is the outcome of all checks. Its JSON form is part of the interface.
type Report struct {
	Checks   []Check `json:"checks"`
	Warnings int     `json:"warnings"`
	Failures int     `json:"failures"`
}

// Add appends checks and counts them.
func (r *Report) Add(checks ...Check) {
	for _, c := range checks {
		switch c.Status {
		case Warn:
			r.Warnings++
		case Fail:
			r.Failures++
		}
		r.Checks = append(r.Checks, c)
	}
}

// Write prints the report for people: a line for each check, and below one that
// is not well the command that mends it.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%-4s  %-16s  %s\n", c.Status, c.Name, c.Detail)
		if c.Fix != "" {
			fmt.Fprintf(&b, "%-4s  %-16s  mend: %s\n", "", "", c.Fix)
		}
	}
	fmt.Fprintf(&b, "%d checks, %d warnings, %d failures\n", len(r.Checks), r.Warnings, r.Failures)
	_, err := io.WriteString(w, b.String())
	return err
}

// Settings are the configured values that the checks depend on.
type Settings struct {
	Sandbox    string // [runtime] sandbox: name or absolute path of runsc
	Sidecar    string // [runtime] sidecar: likewise of runc
	Platform   string // [runtime] platform; "" for runsc's default
	ControlDir string // [general] control_dir
	DataRoot   string // [general] data_root, absolute
	RuntimeDir string // <XDG_RUNTIME_DIR>/lazaret, see package hostenv
}

// Host is the machine as the checks see it; tests replace parts of it.
type Host struct {
	Root     string // put before every path that is read: "" on a real machine
	UID      int    // of the caller
	User     string // his name, "" if nobody knows it
	Getenv   func(string) string
	LookPath func(name string) (string, error)                                      // a tool that podman finds along PATH
	Find     func(name string) (string, error)                                      // a program that Lazaret finds in fixed directories
	Helper   func(name string) (string, error)                                      // a program of this installation
	Run      func(ctx context.Context, path string, args ...string) (string, error) // both outputs
	Probe    func(ctx context.Context) (Probe, error)
	Layout   podmanconf.Layout
}

// Real is the Host of the running process. probe is the command line that ends
// in ServeProbe.
func Real(uid int, user string, l podmanconf.Layout, find func(string) (string, error), probe []string) Host {
	return Host{
		UID: uid, User: user, Getenv: os.Getenv,
		LookPath: lookPath,
		Find:     find,
		Helper:   layout.Helper,
		Run:      run,
		Probe:    func(ctx context.Context) (Probe, error) { return runProbe(ctx, uid, probe) },
		Layout:   l,
	}
}

// lookPath adds the directories of administrators, which an ordinary user's
// PATH may lack though podman looks there.
func lookPath(name string) (string, error) {
	p, err := exec.LookPath(name)
	if err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", err
}

// runTimeout bounds a tool that is asked for its version.
const runTimeout = 20 * time.Second

func run(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, firstLine(string(out)))
	}
	return string(out), nil
}

// Run does all checks, in the order in which their subjects depend on each other.
func Run(ctx context.Context, h Host, s Settings) Report {
	d := &examiner{Host: h, set: s, pkg: packagesOf(h.Root)}
	probe, probeErr := h.Probe(ctx)
	runsc := d.sandbox(ctx)
	podman, version := d.podman(ctx)
	var r Report
	r.Add(
		d.kernel(),
		d.userNamespaces(),
		d.subIDs(ctx),
		d.idMapTools(),
		d.runtimeDir(),
		d.cgroups(),
		podman,
		d.storage(),
		d.conmon(ctx),
		d.registration(version),
		d.programs(ctx),
		runsc.check,
		d.platform(runsc),
		d.sidecar(ctx),
		d.uplink(),
		d.network(probe, probeErr),
		d.overlay(probe, probeErr),
		d.device("/dev/fuse", "fuse", "the guard needs it read-write, and no workspace is shown without one"),
		d.device("/dev/net/tun", "tun", "the Network Sidecar's uplink needs it"),
	)
	r.Add(Leftovers(LeftoverDirs{
		Root: h.Root, UID: h.UID,
		Runtime: s.RuntimeDir, Control: s.ControlDir, Data: s.DataRoot,
	})...)
	return r
}

type examiner struct {
	Host
	set Settings
	pkg packages
}

func ok(name, format string, args ...any) Check {
	return Check{Name: name, Status: OK, Detail: fmt.Sprintf(format, args...)}
}

func warn(name, fix, format string, args ...any) Check {
	return Check{Name: name, Status: Warn, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

func fail(name, fix, format string, args ...any) Check {
	return Check{Name: name, Status: Fail, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

// sudo makes command one for root.
func (d *examiner) sudo(command string) string {
	if d.UID == 0 {
		return command
	}
	return "sudo " + command
}

func (d *examiner) install(tool string) string { return d.sudo(d.pkg.install(tool)) }

// read returns a small file below Root without the white space around it;
// fs.ErrNotExist is in the chain of the error when there is none.
func (d *examiner) read(path string) (string, error) {
	data, err := os.ReadFile(d.Root + path)
	return strings.TrimSpace(string(data)), err
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// packages installs tools with the distribution's own package manager.
type packages struct {
	command string
	names   map[string]string // tool → package, where they differ
}

func (p packages) install(tool string) string {
	if name, ok := p.names[tool]; ok {
		tool = name
	}
	return p.command + " " + tool
}

func packagesOf(root string) packages {
	apt := packages{"apt install -y", map[string]string{"newuidmap": "uidmap", "pasta": "passt"}}
	dnf := packages{"dnf install -y", map[string]string{"newuidmap": "shadow-utils", "pasta": "passt"}}
	pacman := packages{"pacman -S --noconfirm", map[string]string{"newuidmap": "shadow", "pasta": "passt"}}
	zypper := packages{"zypper install -y", map[string]string{"newuidmap": "shadow", "pasta": "passt"}}
	// os-release(5): /etc first, /usr/lib where a distribution has no copy there.
	data, err := os.ReadFile(root + "/etc/os-release")
	if errors.Is(err, fs.ErrNotExist) {
		data, _ = os.ReadFile(root + "/usr/lib/os-release") // none: apt is as good a guess as any
	}
	ids := ""
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "ID" || key == "ID_LIKE" {
			ids += " " + strings.Trim(value, `"'`)
		}
	}
	for id := range strings.FieldsSeq(ids) {
		switch id {
		case "fedora", "rhel", "centos":
			return dnf
		case "arch":
			return pacman
		case "suse", "opensuse":
			return zypper
		}
	}
	return apt
}
