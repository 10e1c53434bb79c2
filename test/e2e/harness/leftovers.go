package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lazaret-dev/lazaret/internal/mountinfo"
)

// AssertNothingLeft fails the test if, a minute after now at the latest,
// anything of Lazaret's or runsc's is still there. Containers that run are the
// test's to remove before.
func (h *Harness) AssertNothingLeft() {
	h.t.Helper()
	deadline := time.Now().Add(settleTime)
	left := h.Leftovers()
	for len(left) > 0 && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
		left = h.Leftovers()
	}
	if len(left) > 0 {
		h.t.Errorf("left behind:\n\t%s", strings.Join(left, "\n\t"))
		h.report()
	}
}

// Leftovers lists, one a line, the processes, mounts, control sockets, held
// locks, runtime files, network namespaces and workspace stubs of this test's
// place. The lock file itself may stay: unlinking it under a waiting starter
// would make two leaders.
func (h *Harness) Leftovers() []string {
	h.t.Helper()
	var left []string
	for _, p := range h.processes() {
		left = append(left, fmt.Sprintf("process %d: %s", p.pid, p.cmdline))
	}
	// runsc keeps one empty network namespace for all its sandboxes without a
	// network, podman the directories of its namespaces and of its layers mounted
	// on themselves.
	nullNet, netns := filepath.Join(h.Runtime, "runsc/null-netns"), filepath.Join(h.Runtime, "netns")
	others := []string{nullNet, netns, h.overlayHome()}
	others = append(others, h.hostMounts()...)
	// What each runsc program can do, asked once until the next boot.
	features := filepath.Join(h.Runtime, "lazaret/runsc") + "/"
	for _, mp := range h.mountPoints() {
		if !h.mounts[mp] && !slices.Contains(others, mp) {
			left = append(left, "mount "+mp)
		}
	}
	for _, dir := range []string{"lazaret", "runsc", "netns"} {
		for _, path := range h.filesBelow(filepath.Join(h.Runtime, dir)) {
			if path != nullNet && !strings.HasPrefix(path, features) {
				left = append(left, "file "+path)
			}
		}
	}
	for _, ws := range h.workspaces {
		left = append(left, h.controlFiles(ws)...)
		left = append(left, stubs(ws)...)
	}
	return left
}

// filesBelow lists what is in a runtime directory: each file, and each directory
// below the first level, where a directory stands for a container or a domain.
func (h *Harness) filesBelow(root string) []string {
	if h.root != nil { // another /run than ours
		out := h.Run("sh", "-c", `[ ! -e "$1" ] || find "$1" ! -type d -o -mindepth 2`, "sh", root).OK(h.t)
		return strings.Fields(out)
	}
	var left []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // gone meanwhile, or never there
			}
			return err
		}
		rel, relErr := filepath.Rel(root, path)
		if relErr != nil {
			return relErr
		}
		if d.IsDir() && !strings.Contains(rel, "/") {
			return nil
		}
		left = append(left, path)
		return nil
	})
	if err != nil {
		left = append(left, err.Error())
	}
	return left
}

// controlFiles finds a coordinator's socket, and its lock if somebody holds it.
func (h *Harness) controlFiles(ws string) []string {
	var left []string
	for _, profile := range h.profiles {
		hash, err := DomainHash(profile, ws)
		if err != nil {
			continue // the test removed the workspace
		}
		if path := ControlSocket(hash); exists(path) {
			left = append(left, "socket "+path)
		}
		lock := strings.TrimSuffix(ControlSocket(hash), ".sock") + ".lock"
		if held(lock) {
			left = append(left, "held lock "+lock)
		}
	}
	return left
}

func held(lock string) bool {
	f, err := os.OpenFile(lock, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // nothing was written
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK)
}

// stubs finds the empty files and directories that a mount left in a workspace
// as its mount point.
func stubs(ws string) []string {
	var left []string
	for _, name := range []string{".vscode", ".idea", "lazaret.toml", ".git/hooks/.lazaret"} {
		path := filepath.Join(ws, name)
		fi, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if fi.IsDir() {
			entries, err := os.ReadDir(path)
			if err != nil || len(entries) > 0 {
				continue
			}
		} else if fi.Size() > 0 {
			continue
		}
		left = append(left, "stub "+path)
	}
	return left
}

// hostMounts are those of the host that podman's namespace is told of, such as
// another engine's. An ordinary user's programs make none there.
func (h *Harness) hostMounts() []string {
	if h.root != nil {
		return nil
	}
	all, err := mountinfo.All()
	if err != nil {
		h.t.Fatal(err)
	}
	var mps []string
	for _, m := range all {
		mps = append(mps, m.Point)
	}
	return mps
}

// mountPoints lists those of podman's namespace, sorted.
func (h *Harness) mountPoints() []string {
	h.t.Helper()
	look := []string{"podman", "unshare", "cat", "/proc/self/mountinfo"}
	if h.root != nil {
		look = look[2:]
	}
	out := h.Run(look[0], look[1:]...).OK(h.t)
	var mps []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 4 {
			mps = append(mps, f[4])
		}
	}
	slices.Sort(mps)
	return slices.Compact(mps)
}

type process struct {
	pid     int
	cmdline string
}

// processes lists what runs in this test's place but podman's pause process: by
// arguments, environment, or podman's namespaces, as a sandbox shows the first
// only and a coordinator perhaps none but the last.
func (h *Harness) processes() []process {
	if h.root != nil {
		return h.rootProcesses()
	}
	spaces := map[string]bool{}
	pause := h.pauseProcesses()
	for _, p := range pause {
		for _, kind := range []string{"mnt", "user"} {
			if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.pid, kind)); err == nil {
				spaces[ns] = true
			}
		}
	}
	return findProcesses(func(pid int, cmdline string) bool {
		if slices.Contains(pause, process{pid, cmdline}) {
			return false
		}
		if strings.Contains(cmdline, h.Dir+"/") || strings.Contains(cmdline, h.Runtime+"/") {
			return true
		}
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil {
			if strings.Contains(string(env), "XDG_RUNTIME_DIR="+h.Runtime+"\x00") || strings.Contains(string(env), "HOME="+h.Home+"\x00") {
				return true
			}
		}
		for _, kind := range []string{"mnt", "user"} {
			ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
			if err == nil && spaces[ns] {
				return true
			}
		}
		return false
	})
}

// pauseProcesses finds the process that keeps podman's namespaces.
func (h *Harness) pauseProcesses() []process {
	data, err := os.ReadFile(filepath.Join(h.Runtime, "libpod/tmp/pause.pid"))
	if err != nil {
		return nil
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return nil
	}
	return findProcesses(func(p int, _ string) bool { return p == pid })
}

// running lists the processes whose program is below dir.
func running(dir string) []string {
	var lines []string
	for _, p := range findProcesses(func(pid int, _ string) bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err == nil && strings.HasPrefix(exe, dir+"/")
	}) {
		lines = append(lines, fmt.Sprintf("%d %s", p.pid, p.cmdline))
	}
	return lines
}

func findProcesses(match func(pid int, cmdline string) bool) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(data) == 0 {
			continue // gone, a kernel thread or a zombie
		}
		cmdline := strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
		if match(pid, cmdline) {
			found = append(found, process{pid, cmdline})
		}
	}
	return found
}

// KillEverything kills all of the test's processes: podman's, runsc's and ours.
func (h *Harness) KillEverything() {
	h.t.Helper()
	h.end(h.processes())
}

// end kills processes one by one and waits until they are gone.
func (h *Harness) end(ps []process) {
	for _, p := range ps {
		err := syscall.Kill(p.pid, syscall.SIGKILL)
		if errors.Is(err, syscall.EPERM) { // root's, and we are not
			err = asRoot(context.Background(), "kill", "-KILL", strconv.Itoa(p.pid)).Run()
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			h.t.Logf("end process %d (%s): %v", p.pid, p.cmdline, err)
		}
	}
	deadline := time.Now().Add(settleTime)
	for _, p := range ps {
		for time.Now().Before(deadline) && len(findProcesses(func(pid int, c string) bool { return pid == p.pid && c == p.cmdline })) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
}
