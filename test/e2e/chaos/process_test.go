package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// kind is a sort of process on the main path.
type kind struct {
	name   string
	is     func(process) bool
	most   int           // how many of them a round has for sure
	within time.Duration // how long after its appearance it may be killed
}

var kinds = []kind{
	{"shim", func(p process) bool { return p.program == "lazaret-runtime" }, 5, 10 * time.Millisecond},
	{"runsc create", func(p process) bool { return p.program == "runsc" && p.has("create") }, 5, 250 * time.Millisecond},
	{"runsc exec", func(p process) bool { return p.program == "runsc" && p.has("exec") }, 2, 50 * time.Millisecond},
	{"hook", func(p process) bool { return p.program == "lazaret-hook" }, 5, 3 * time.Millisecond},
	{"coordinator", process.coordinator, 3, 700 * time.Millisecond},
	{"guard", func(p process) bool { return p.program == "lazaret-coordinator" && p.has("guard") }, 2, 700 * time.Millisecond},
	{"podman", func(p process) bool { return p.program == "podman" && p.has("run") }, 5, 700 * time.Millisecond},
	{"conmon", func(p process) bool { return p.program == "conmon" }, 5, 500 * time.Millisecond},
	{"sandbox", func(p process) bool { return p.program == "runsc-sandbox" }, 5, 300 * time.Millisecond},
	{"gofer", func(p process) bool { return p.program == "runsc-gofer" }, 5, 300 * time.Millisecond},
}

// process is one of this test's place.
type process struct {
	pid     int
	program string // base name of argv[0]
	argv    []string
	cmdline string
}

func (p process) has(word string) bool {
	for _, a := range p.argv[1:] {
		if a == word {
			return true
		}
	}
	return false
}

func (p process) coordinator() bool { return p.program == "lazaret-coordinator" && !p.has("guard") }

func (p process) podmanPause() bool { return p.program == "catatonit" || p.cmdline == "podman" }

// kill ends p unless its pid has come to mean something else. The descriptor of
// os.FindProcess is a pidfd, so what is looked at is what is killed.
func (p process) kill() bool {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return false
	}
	defer func() { _ = handle.Release() }() // nothing to lose
	argv, err := readArgv(p.pid)
	return err == nil && strings.Join(argv, " ") == p.cmdline && handle.Kill() == nil
}

// find lists the processes of this test's place that are not in skip: their
// arguments or their environment name it.
func (c *chaos) find(skip map[int]bool) []process {
	var found []process
	for pid := range pids() {
		if skip[pid] {
			continue
		}
		argv, err := readArgv(pid)
		if err != nil || len(argv) == 0 {
			continue // gone, a kernel thread or a zombie
		}
		p := process{pid: pid, program: filepath.Base(argv[0]), argv: argv, cmdline: strings.Join(argv, " ")}
		if c.names(p.cmdline) {
			found = append(found, p)
			continue
		}
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && c.names(string(env)) {
			found = append(found, p)
		}
	}
	return found
}

func (c *chaos) names(text string) bool {
	return strings.Contains(text, c.Dir+"/") || strings.Contains(text, c.Runtime+"/") ||
		strings.Contains(text, "XDG_RUNTIME_DIR="+c.Runtime+"\x00")
}

func readArgv(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
}

func pids() map[int]bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := map[int]bool{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			all[pid] = true
		}
	}
	return all
}
