package mainpath

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func itoa(n int) string { return strconv.Itoa(n) }

// The sandbox is gVisor's: its kernel, not the host's.
func TestKernelIsTheSandboxes(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		host := h.Run("uname", "-v").OK(t)
		if got := h.Lazaret("", harness.Busybox, "uname", "-v").OK(t); got == host || got == "" {
			t.Errorf("kernel %q in the sandbox, %q on the host", got, host)
		}
		got := h.Lazaret("", "--hostname=here", harness.Busybox, "hostname").OK(t)
		if got != "here" {
			t.Errorf("hostname %q", got)
		}
		got = h.Lazaret("", "--read-only", harness.Busybox, "sh", "-c", "touch /x 2>/dev/null || echo refused; touch /tmp/y && echo tmp").OK(t)
		if got != "refused\ntmp" {
			t.Errorf("--read-only: %q", got)
		}
		got = h.Lazaret("", "--init", harness.Busybox, "sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '").OK(t)
		if !strings.Contains(got, "init") {
			t.Errorf("--init: process 1 is %q", got)
		}
		got = h.Lazaret("", "--tmpfs=/mem", "--env=A=b c", "--label=l=1", "--ulimit=nofile=512:512", "--workdir=/mem", harness.Busybox,
			"sh", "-c", `echo "$A"; pwd; ulimit -n; touch f`).OK(t)
		if got != "b c\n/mem\n512" {
			t.Errorf("everyday options: %q", got)
		}
	})
}

// The host's network is refused, no unguarded fallback; none has a loopback only.
func TestNetworks(t *testing.T) {
	opts := harness.Options{Filtered: true, Config: "[profiles.quiet]\n[profiles.quiet.network]\nmode = \"none\"\n[profiles.open]\n[profiles.open.network]\nmode = \"open\"\n"}
	harness.Each(t, opts, func(t *testing.T, h *harness.Harness) {
		const links = "ls /sys/class/net 2>/dev/null; grep -o '^ *[a-z0-9]*:' /proc/net/dev | tr -d ' :' | sort"
		for _, c := range []struct {
			name string
			args []string
			want string // "lo" alone, "more", or "" where it is refused
		}{
			{"default: filtered", nil, "more"},
			{"default with keep-id", []string{"--userns=keep-id"}, "more"},
			{"none", []string{"--network=none"}, "lo"},
			{"the profile's none", []string{"--annotation=dev.lazaret.profile=quiet"}, "lo"},
			{"the profile's none over podman's network", []string{"--network=slirp4netns", "--annotation=dev.lazaret.profile=quiet"}, "lo"},
			{"the profile's none with keep-id", []string{"--userns=keep-id", "--annotation=dev.lazaret.profile=quiet"}, "lo"},
			{"open", []string{"--annotation=dev.lazaret.profile=open"}, "more"},
			{"host", []string{"--network=host"}, ""},
			{"host with none", []string{"--network=host", "--annotation=dev.lazaret.profile=quiet"}, ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := h.Lazaret("", append(c.args, harness.Busybox, "sh", "-c", links)...)
				if c.want == "" {
					r.Fails(t, 126, "network")
					if r.Stdout != "" {
						t.Errorf("it ran: %q", r.Stdout)
					}
					return
				}
				got := strings.Fields(r.OK(t))
				more := 0
				for _, l := range got {
					if l != "lo" {
						more++
					}
				}
				if len(got) == 0 || (more > 0) != (c.want == "more") {
					t.Errorf("interfaces %q, want %s", got, c.want)
				}
			})
		}
		// A sandbox without a network still talks to itself.
		got := h.Lazaret("", "--network=none", harness.Busybox, "sh", "-c",
			`(echo hello | nc -l -p 7777 >/dev/null) & for i in 1 2 3 4 5; do nc -w 2 127.0.0.1 7777 </dev/null && break; sleep 0.2; done`).OK(t)
		if got != "hello" {
			t.Errorf("over the loopback: %q", got)
		}
	})
}

// Case "cgroups, rootless": it starts with every manager; a limit that nobody
// enforces is said; runsc's unsafe flag is nowhere.
func TestLimits(t *testing.T) {
	harness.Each(t, harness.Options{}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		for _, c := range []struct {
			name   string
			global []string
			args   []string
			said   string // on stderr, by Lazaret or podman
		}{
			{name: "cgroupfs", global: []string{"--cgroup-manager=cgroupfs"}},
			{name: "systemd", global: []string{"--cgroup-manager=systemd"}},
			{name: "no cgroups", args: []string{"--cgroups=disabled"}},
			{name: "memory", args: []string{"--memory=64m"}, said: "esource limits"},
			{name: "processes", args: []string{"--pids-limit=64"}, said: "esource limits"},
			{name: "processors", args: []string{"--cpus=0.5"}, said: "esource limits"},
		} {
			t.Run(c.name, func(t *testing.T) {
				args := append(append(append([]string{}, c.global...), h.LazaretArgs(ws)...), c.args...)
				r := h.Podman(append(args, harness.Busybox, "echo", "ran")...)
				// podman refuses what the host's cgroups cannot do by itself.
				if r.Code == 125 && c.said != "" && strings.Count(r.Stderr, "\n") == 1 && strings.Contains(r.Stderr, c.said) && !strings.Contains(r.Stderr, "azaret") {
					return
				}
				if got := r.OK(t); got != "ran" {
					t.Errorf("got %q", got)
				}
				if !strings.Contains(r.Stderr, c.said) {
					t.Errorf("nothing said about %s: %q", c.said, r.Stderr)
				}
			})
		}
		h.Detached(ws, "box", harness.Busybox, "sleep", "300")
		id, sandboxes := h.Inspect("box", ".Id"), 0
		for proc := range strings.Lines(h.Run("ps", "-eo", "args").OK(t)) {
			if !strings.Contains(proc, id) || !strings.Contains(proc, "runsc-") {
				continue
			}
			sandboxes++
			if strings.Contains(proc, "TESTONLY-unsafe-nonroot=true") || strings.Contains(proc, "TESTONLY-unsafe-nonroot ") {
				t.Errorf("runsc runs with its unsafe flag: %s", proc)
			}
		}
		if sandboxes == 0 {
			t.Error("the sandbox's process is not found")
		}
		h.Podman("rm", "-f", "-t", "0", "box").OK(t)
		h.Podman("--runtime-flag=TESTONLY-unsafe-nonroot", "run", "--rm", "--runtime=lazaret", harness.Busybox, "true").Fails(t, 126, "TESTONLY-unsafe-nonroot")
	})
}
