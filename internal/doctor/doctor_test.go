package doctor

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	dropin "github.com/lazaret-dev/lazaret/containers.conf.d"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/podmanconf"
	"github.com/lazaret-dev/lazaret/internal/version"
)

// machine is a healthy rootless machine; each case breaks one thing.
type machine struct {
	t        *testing.T
	root     string
	env      map[string]string
	tools    map[string]string // found along PATH
	fixed    map[string]string // found in fixed directories
	outputs  map[string]string // by base name and last argument
	probe    Probe
	probeErr error
	uid      int
	set      Settings
}

const runscFlags = `  -host-uds value
    	controls permission to access host Unix-domain sockets.
  -ignore-cgroups
    	don't configure cgroups.
  -overlay2 value
    	wrap mounts with overlayfs.
  -platform string
    	specifies which platform to use: systrap (default), ptrace, kvm. (default "systrap")
`

func healthy(t *testing.T) *machine {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil { //nolint:gosec // fixedpath wants it closed to writers only
		t.Fatal(err)
	}
	uid := os.Geteuid()
	if uid == 0 {
		uid = 1000 // the checks of an ordinary user; ownership is tested apart
	}
	m := &machine{
		t: t, root: root, uid: uid,
		env:   map[string]string{},
		tools: map[string]string{}, fixed: map[string]string{},
		outputs: map[string]string{
			"podman --version": "podman version 4.3.1\n",
			"conmon --version": "conmon version 2.1.6\ncommit: unknown\n",
			"runsc --version":  "runsc version release-20260810.0\nspec: 1.2.1\n",
			"runsc flags":      runscFlags,
			"runc --version":   "runc version 1.1.5\n",
		},
		set: Settings{Sandbox: "runsc", Sidecar: "runc", ControlDir: "/tmp", DataRoot: "/data", RuntimeDir: "/run/user/1000/lazaret"},
	}
	m.put("/etc/os-release", "ID=debian\n", 0o644)
	m.put("/proc/sys/kernel/osrelease", "6.1.0-13-amd64\n", 0o644)
	m.put("/proc/sys/user/max_user_namespaces", "15000\n", 0o644)
	m.put("/etc/subuid", "dev:100000:65536\n", 0o644)
	m.put("/etc/subgid", "dev:100000:65536\n", 0o644)
	m.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n", 0o644)
	m.put(fmt.Sprintf("/sys/fs/cgroup/user.slice/user-%d.slice/user@%d.service/cgroup.controllers", uid, uid), "cpu memory pids\n", 0o644)
	m.put("/dev/fuse", "", 0o666)
	m.put("/dev/net/tun", "", 0o666)
	m.mkdir("/tmp", 0o777|os.ModeSticky)
	m.mkdir("/data", 0o700)
	m.mkdir("/run/user/1000", 0o700)
	m.env["XDG_RUNTIME_DIR"] = m.root + "/run/user/1000"
	for _, tool := range []string{"podman", "conmon", "slirp4netns", "fuse-overlayfs"} {
		m.tools[tool] = m.put("/usr/bin/"+tool, "", 0o755)
	}
	for _, tool := range []string{"newuidmap", "newgidmap"} {
		m.tools[tool] = m.put("/usr/bin/"+tool, "", 0o755|os.ModeSetuid)
	}
	m.fixed["runc"] = m.put("/usr/bin/runc", "", 0o755)
	m.fixed["runsc"] = m.put("/usr/bin/runsc", staticELF(t), 0o755)
	for _, n := range []string{"lazaret-runtime", "lazaret-hook", "lazaret-coordinator", "lazaret-netrouter", "lazaret-escalate"} {
		m.put("/opt/bin/"+n, "", 0o755)
		m.outputs[n+" --version"] = version.String(n) + "\n"
	}
	m.dropin()
	return m
}

func (m *machine) dropin() string {
	m.t.Helper()
	names := []string{"crun", "runc", "lazaret"}
	data, err := dropin.Render(dropin.Values{RuntimePath: m.root + "/opt/bin/lazaret-runtime", JSON: names, NoCgroups: names})
	if err != nil {
		m.t.Fatal(err)
	}
	return m.put("/home/dev/.config/containers/containers.conf.d/50-lazaret.conf", string(data), 0o644)
}

// staticELF is the smallest program file without a dynamic loader: a header.
func staticELF(t *testing.T) string {
	t.Helper()
	h := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, h); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (m *machine) put(path, content string, mode os.FileMode) string {
	m.t.Helper()
	path = m.root + path
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a fake root
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *machine) mkdir(path string, mode os.FileMode) {
	m.t.Helper()
	if err := os.MkdirAll(m.root+path, 0o755); err != nil { //nolint:gosec // a fake root
		m.t.Fatal(err)
	}
	if err := os.Chmod(m.root+path, mode); err != nil {
		m.t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(m.root+path, m.uid, m.uid); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) remove(path string) {
	m.t.Helper()
	if err := os.RemoveAll(m.root + path); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) host() Host {
	find := func(in map[string]string) func(string) (string, error) {
		return func(name string) (string, error) {
			if p, found := in[name]; found {
				return p, nil
			}
			return "", fmt.Errorf("program %s: %w", name, fixedpath.ErrNotFound)
		}
	}
	return Host{
		Root: m.root, UID: m.uid, User: "dev",
		Getenv:   func(k string) string { return m.env[k] },
		LookPath: find(m.tools),
		Find:     find(m.fixed),
		Helper: func(name string) (string, error) {
			p := m.root + "/opt/bin/" + name
			if _, err := os.Stat(p); err != nil {
				return "", err
			}
			return p, nil
		},
		Run: func(_ context.Context, path string, args ...string) (string, error) {
			out, found := m.outputs[filepath.Base(path)+" "+args[len(args)-1]]
			if !found {
				return "", fmt.Errorf("%s: %w", path, exec.ErrNotFound)
			}
			return out, nil
		},
		Probe: func(context.Context) (Probe, error) { return m.probe, m.probeErr },
		Layout: podmanconf.Layout{
			Root: m.root, ConfigHome: m.root + "/home/dev/.config",
			Getenv: func(k string) string { return m.env[k] },
		},
	}
}

func (m *machine) run() Report { return Run(m.t.Context(), m.host(), m.set) }

func find(t *testing.T, r Report, name string) Check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check named %q", name)
	return Check{}
}

func TestHealthyMachine(t *testing.T) {
	r := healthy(t).run()
	for _, c := range r.Checks {
		if c.Status != OK || c.Fix != "" {
			t.Errorf("%s: %s, %s (mend: %s)", c.Name, c.Status, c.Detail, c.Fix)
		}
	}
	if r.Failures != 0 || r.Warnings != 0 {
		t.Errorf("%d failures, %d warnings", r.Failures, r.Warnings)
	}
}

// No cgroups are no fault: rootless none is used.
func TestCgroupsAreNotNeeded(t *testing.T) {
	for _, without := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/user.slice"} {
		m := healthy(t)
		m.remove(without)
		if c := find(t, m.run(), "cgroups"); c.Status != OK || !strings.Contains(c.Detail, "not enforced") {
			t.Errorf("without %s: %+v", without, c)
		}
	}
}

func TestOneThingBroken(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(m *machine)
		check  string
		status Status
		fix    string // part of it
	}{
		{"old kernel", func(m *machine) { m.put("/proc/sys/kernel/osrelease", "5.4.0-150-generic\n", 0o644) }, "kernel", Fail, "reboot"},
		{"kernel without overlay in namespaces", func(m *machine) { m.put("/proc/sys/kernel/osrelease", "5.10.0\n", 0o644) }, "kernel", Warn, "reboot"},
		{"no user namespaces", func(m *machine) { m.put("/proc/sys/user/max_user_namespaces", "0\n", 0o644) }, "user namespaces", Fail, "sudo sysctl -w user.max_user_namespaces=15000"},
		{"Debian's switch off", func(m *machine) { m.put("/proc/sys/kernel/unprivileged_userns_clone", "0\n", 0o644) }, "user namespaces", Fail, "unprivileged_userns_clone=1"},
		{"Ubuntu's AppArmor restriction", func(m *machine) { m.put("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", 0o644) }, "user namespaces", Warn, "apparmor_restrict_unprivileged_userns=0"},
		{"no subuids", func(m *machine) { m.put("/etc/subuid", "other:100000:65536\n", 0o644) }, "subordinate ids", Fail, "usermod --add-subuids 165536-231071 --add-subgids 165536-231071 dev"},
		{"subgid file missing", func(m *machine) { m.remove("/etc/subgid") }, "subordinate ids", Fail, "podman system migrate"},
		{"too few subuids", func(m *machine) { m.put("/etc/subuid", "dev:100000:1000\n", 0o644) }, "subordinate ids", Fail, "usermod"},
		{"newuidmap missing", func(m *machine) { delete(m.tools, "newuidmap") }, "newuidmap", Fail, "sudo apt install -y uidmap"},
		{"newuidmap without rights", func(m *machine) { m.put("/usr/bin/newuidmap", "", 0o755) }, "newuidmap", Fail, "chmod u+s"},
		{"no session", func(m *machine) { delete(m.env, "XDG_RUNTIME_DIR") }, "runtime dir", Warn, "loginctl enable-linger dev"},
		{"relative runtime directory", func(m *machine) { m.env["XDG_RUNTIME_DIR"] = "run" }, "runtime dir", Fail, "XDG_RUNTIME_DIR=/run/user/"},
		{"runtime directory gone", func(m *machine) { m.remove("/run/user/1000") }, "runtime dir", Fail, "loginctl"},
		{"runtime directory open to others", func(m *machine) { m.mkdir("/run/user/1000", 0o755) }, "runtime dir", Warn, "chmod 700"},
		{"podman on vfs", func(m *machine) {
			m.put("/home/dev/.config/containers/storage.conf", "[storage]\ndriver = \"vfs\"\n", 0o644)
		}, "podman storage", Warn, "storage.conf"},
		{"podman on vfs for all users", func(m *machine) {
			m.put("/etc/containers/storage.conf", "[storage]\ndriver = \"vfs\"\n", 0o644)
		}, "podman storage", Warn, "home/dev/.config/containers/storage.conf"},
		{"podman has chosen vfs", func(m *machine) {
			m.env["HOME"] = m.root + "/home/dev"
			m.mkdir("/home/dev/.local/share/containers/storage/vfs-images", 0o700)
		}, "podman storage", Warn, "overlay"},
		{"podman missing", func(m *machine) { delete(m.tools, "podman") }, "podman", Fail, "sudo apt install -y podman"},
		{"podman missing on Fedora", func(m *machine) {
			delete(m.tools, "podman")
			m.put("/etc/os-release", "ID=\"nobara\"\nID_LIKE=\"rhel fedora\"\n", 0o644)
		}, "podman", Fail, "sudo dnf install -y podman"},
		{"newuidmap missing on Arch", func(m *machine) {
			delete(m.tools, "newuidmap")
			m.remove("/etc/os-release")
			m.put("/usr/lib/os-release", "ID=arch\n", 0o644)
		}, "newuidmap", Fail, "sudo pacman -S --noconfirm shadow"},
		{"old podman", func(m *machine) { m.outputs["podman --version"] = "podman version 3.4.4\n" }, "podman", Warn, "podman"},
		{"conmon missing", func(m *machine) { delete(m.tools, "conmon"); m.remove("/usr/bin/conmon") }, "conmon", Fail, "conmon"},
		{"not registered", func(m *machine) { m.remove("/home/dev/.config") }, "registration", Fail, "lazaret init"},
		{"drop-in edited", func(m *machine) {
			p := m.dropin()
			data, err := os.ReadFile(p) //nolint:gosec // the test's own file
			if err != nil {
				m.t.Fatal(err)
			}
			m.put(strings.TrimPrefix(p, m.root), string(data)+"# mine\n", 0o644)
		}, "registration", Warn, "lazaret init --force"},
		{"overruled by a later file", func(m *machine) {
			m.put("/home/dev/.config/containers/containers.conf.d/99-x.conf", "[engine]\nruntime_supports_json=[\"crun\"]\n", 0o644)
		}, "registration", Warn, "lazaret init"},
		{"registered program gone", func(m *machine) {
			m.put("/home/dev/.config/containers/containers.conf.d/60-x.conf", "[engine.runtimes]\nlazaret=[\"/gone\"]\n", 0o644)
		}, "registration", Fail, "lazaret init"},
		{"registered program open to all", func(m *machine) { m.put("/opt/bin/lazaret-runtime", "", 0o777) }, "registration", Fail, "lazaret init"},
		{"another installation registered", func(m *machine) {
			p := m.put("/usr/local/bin/lazaret-runtime", "", 0o755)
			m.put("/home/dev/.config/containers/containers.conf.d/60-x.conf", "[engine.runtimes]\nlazaret=[\""+p+"\"]\n", 0o644)
		}, "registration", Warn, "lazaret init"},
		{"podman reads another file", func(m *machine) { m.env["CONTAINERS_CONF"] = m.put("/x.conf", "", 0o644) }, "registration", Fail, "unset CONTAINERS_CONF"},
		{"drop-in unreadable for this podman", func(m *machine) {
			m.put("/home/dev/.config/containers/containers.conf.d/60-x.conf", "[engine]\nruntime_supports_json=[\"x\",{append=true}]\n", 0o644)
		}, "registration", Fail, "lazaret init"},
		{"hook missing", func(m *machine) { m.remove("/opt/bin/lazaret-hook") }, "lazaret programs", Fail, "make install"},
		{"coordinator of another version", func(m *machine) { m.outputs["lazaret-coordinator --version"] = "lazaret-coordinator 0.0.1\n" }, "lazaret programs", Warn, "make install"},
		{"runsc missing", func(m *machine) { delete(m.fixed, "runsc") }, "runsc", Fail, "install -m 755 runsc /usr/local/bin/runsc"},
		{"runsc only on PATH", func(m *machine) {
			delete(m.fixed, "runsc")
			m.tools["runsc"] = "/home/dev/go/bin/runsc"
		}, "runsc", Fail, "install -m 755 /home/dev/go/bin/runsc /usr/local/bin/"},
		{"runsc is a script", func(m *machine) { m.fixed["runsc"] = m.put("/usr/bin/wrapped", "#!/bin/sh\n", 0o755) }, "runsc", Fail, "runsc"},
		{"runsc of 2022", func(m *machine) {
			m.outputs["runsc --version"] = "runsc version 0.0~20221219.0\n"
			m.outputs["runsc flags"] = strings.ReplaceAll(strings.ReplaceAll(runscFlags, "systrap (default), ptrace", "ptrace (default)"), `"systrap"`, `"ptrace"`)
		}, "runsc", Warn, "install"},
		{"runsc without a version and with old flags", func(m *machine) {
			m.outputs["runsc --version"] = "runsc version VERSION_MISSING\n"
			m.outputs["runsc flags"] = strings.Replace(runscFlags, "-host-uds", "-fsgofer-host-uds", 1)
		}, "runsc", Fail, "install"},
		{"nobody may trace", func(m *machine) { m.put("/proc/sys/kernel/yama/ptrace_scope", "3\n", 0o644) }, "platform", Fail, "ptrace_scope=1"},
		{"kvm wanted, absent", func(m *machine) { m.set.Platform = "kvm" }, "platform", Fail, "modprobe kvm"},
		{"runc missing", func(m *machine) { delete(m.fixed, "runc") }, "runc", Fail, "sudo apt install -y runc"},
		{"no uplink", func(m *machine) { delete(m.tools, "slirp4netns") }, "uplink", Fail, "slirp4netns"},
		{"no nftables", func(m *machine) { m.probe.Nftables = "operation not supported" }, "network", Fail, "modprobe nf_tables"},
		{"no veth", func(m *machine) { m.probe.Veth = "operation not supported" }, "network", Fail, "modprobe veth"},
		{"probe failed", func(m *machine) { m.probeErr = errors.New("no namespaces") }, "network", Warn, "lazaret doctor"},
		{"no overlay of any kind", func(m *machine) { m.probe.Overlay = "EPERM"; delete(m.tools, "fuse-overlayfs") }, "overlay", Fail, "fuse-overlayfs"},
		{"no /dev/fuse", func(m *machine) { m.remove("/dev/fuse") }, "/dev/fuse", Fail, "sudo modprobe fuse"},
		{"no /dev/net/tun", func(m *machine) { m.remove("/dev/net/tun") }, "/dev/net/tun", Fail, "sudo modprobe tun"},
		{"control directory without sticky bit", func(m *machine) { m.mkdir("/tmp", 0o777) }, "control files", Fail, "chmod +t"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := healthy(t)
			c.do(m)
			r := m.run()
			got := find(t, r, c.check)
			if got.Status != c.status || !strings.Contains(got.Fix, c.fix) {
				t.Errorf("%s: %s (mend: %s), want %s with %q", got.Status, got.Detail, got.Fix, c.status, c.fix)
			}
			if (r.Failures > 0) != (c.status == Fail) {
				t.Errorf("%d failures", r.Failures)
			}
		})
	}
}

// What is missing but not needed, or there in another form, is no fault.
func TestAlternatives(t *testing.T) {
	for _, c := range []struct {
		name, check string
		do          func(m *machine)
	}{
		{"overlay by fuse-overlayfs alone", "overlay", func(m *machine) { m.probe.Overlay = "EPERM" }},
		{"pasta in place of slirp4netns", "uplink", func(m *machine) { delete(m.tools, "slirp4netns"); m.tools["pasta"] = "/usr/bin/pasta" }},
		{"runsc built by go install", "runsc", func(m *machine) { m.outputs["runsc --version"] = "runsc version VERSION_MISSING\n" }},
		{"kvm wanted and there", "platform", func(m *machine) { m.set.Platform = "kvm"; m.put("/dev/kvm", "", 0o666) }},
		{"subuids by number", "subordinate ids", func(m *machine) { m.put("/etc/subuid", fmt.Sprintf("%d:100000:65536\n", m.uid), 0o644) }},
		{"subuids in two ranges", "subordinate ids", func(m *machine) { m.put("/etc/subuid", "dev:100000:40000\ndev:200000:40000\n", 0o644) }},
		{"subuids from the network", "subordinate ids", func(m *machine) {
			m.remove("/etc/subuid")
			m.remove("/etc/subgid")
			m.put("/etc/nsswitch.conf", "passwd: files sss\nsubid: sss\n", 0o644)
			m.tools["getsubids"] = "/usr/bin/getsubids"
			m.outputs["getsubids dev"] = "0: dev 2147483648 65536\n"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := healthy(t)
			c.do(m)
			if got := find(t, m.run(), c.check); got.Status != OK {
				t.Errorf("%s: %s", got.Status, got.Detail)
			}
		})
	}
}

func TestRootNeedsNoSudo(t *testing.T) {
	m := healthy(t)
	m.uid = 0
	delete(m.fixed, "runc")
	m.remove("/etc/subuid")
	delete(m.env, "XDG_RUNTIME_DIR")
	r := m.run()
	if c := find(t, r, "runc"); c.Fix != "apt install -y runc" {
		t.Errorf("fix %q", c.Fix)
	}
	for _, name := range []string{"subordinate ids", "runtime dir"} {
		if c := find(t, r, name); c.Status != OK {
			t.Errorf("%s: %s", name, c.Detail)
		}
	}
}

func TestInterpreter(t *testing.T) {
	static := filepath.Join(t.TempDir(), "static")
	if err := os.WriteFile(static, []byte(staticELF(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, dynamic := range map[string]bool{static: false, "/bin/sh": true} {
		got, err := interpreter(path)
		if err != nil {
			t.Fatal(err)
		}
		if (got != "") != dynamic {
			t.Errorf("%s: loader %q", path, got)
		}
	}
}

func TestRunscDate(t *testing.T) {
	for v, want := range map[string]string{
		"release-20260810.0":                "20260810",
		"0.0~20221219.0":                    "20221219",
		"0.0.0-20260905035102-160fafc42237": "20260905",
		"VERSION_MISSING":                   "",
		"1.20231.5":                         "",
	} {
		if got := runscDate.FindString(v); got != want {
			t.Errorf("%s: got %q, want %q", v, got, want)
		}
	}
}

func TestReportForms(t *testing.T) {
	var r Report
	r.Add(Check{"a", OK, "fine", ""}, Check{"b", Warn, "so so", "do x"}, Check{"c", Fail, "broken", "do y"})
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	want := "ok    a                 fine\n" +
		"warn  b                 so so\n" +
		"                        mend: do x\n" +
		"fail  c                 broken\n" +
		"                        mend: do y\n" +
		"3 checks, 1 warnings, 1 failures\n"
	if text.String() != want {
		t.Errorf("got\n%s", text.String())
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON := `{"checks":[{"name":"a","status":"ok","detail":"fine"},` +
		`{"name":"b","status":"warn","detail":"so so","fix":"do x"},` +
		`{"name":"c","status":"fail","detail":"broken","fix":"do y"}],"warnings":1,"failures":1}`
	if string(data) != wantJSON {
		t.Errorf("got %s", data)
	}
}
