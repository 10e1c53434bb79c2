package harness

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// rootSetup runs as root in a new mount and network namespace: /run,
// /etc/containers and /var/lib/lazaret are the test's own there, so that neither
// the machine's podman nor its registered runtimes, networks, firewall and domains
// are touched. It tells its process id and then keeps the namespaces.
const rootSetup = `
	mount -t tmpfs -o mode=0755 tmpfs /run
	mkdir /run/lock
	mkdir -p /var/lib/lazaret
	mount -t tmpfs -o mode=0755 tmpfs /var/lib/lazaret
	mkdir "$1"
	cp -a /etc/containers "$2"
	mount --bind "$2" /etc/containers
	ip link set lo up
	echo $$
	exec sleep infinity
`

// asRoot is a command of root's.
func asRoot(ctx context.Context, name string, args ...string) *exec.Cmd {
	if os.Geteuid() == 0 {
		return exec.CommandContext(ctx, name, args...)
	}
	return exec.CommandContext(ctx, "sudo", append([]string{"-n", name}, args...)...)
}

// DropCaches empties the host's caches, so that what is read next comes from the disk.
func (h *Harness) DropCaches() {
	h.t.Helper()
	if out, err := asRoot(h.t.Context(), "sh", "-c", "sync && echo 3 >/proc/sys/vm/drop_caches").CombinedOutput(); err != nil {
		h.t.Fatalf("drop the host's caches: %v: %s", err, out)
	}
}

// becomeRoot makes the namespaces of a rootful test.
func (h *Harness) becomeRoot() {
	h.t.Helper()
	h.User = User{Name: "root", Home: "/root"}
	h.Runtime = "/run"
	h.root = asRoot(context.Background(), "unshare", "--mount", "--propagation", "private", "--net", "--",
		"sh", "-ceu", rootSetup, "sh", h.Home, filepath.Join(h.Dir, "etc-containers"))
	h.root.Stderr = os.Stderr
	out, err := h.root.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.root.Start(); err != nil {
		h.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		h.t.Fatalf("make the namespaces of a rootful test: %v", err)
	}
	if h.rootPID, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		h.t.Fatal(err)
	}
}

// leaveRoot ends the process that keeps the namespaces, and with it all mounts,
// bridges and rules that were made in them.
func (h *Harness) leaveRoot() {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	if out, err := asRoot(ctx, "kill", "-KILL", strconv.Itoa(h.rootPID)).CombinedOutput(); err != nil {
		h.t.Errorf("end the namespaces of a rootful test: %v: %s", err, out)
	}
	_ = h.root.Wait() // killed
}

// rootProcesses lists what runs in the test's mount namespace, or in one that a
// sandbox made below it, but the process that keeps it.
func (h *Harness) rootProcesses() []process {
	const members = `
		mine=$(readlink /proc/$1/ns/mnt)
		for p in /proc/[0-9]*; do
			[ "$(readlink $p/ns/mnt)" != "$mine" ] || echo ${p#/proc/}
		done 2>/dev/null`
	// Looking from outside, the shell that looks is none of them.
	out, err := asRoot(context.Background(), "sh", "-c", members, "sh", strconv.Itoa(h.rootPID)).Output()
	if err != nil {
		h.t.Fatalf("list the processes of a rootful test: %v", err)
	}
	inside := strings.Fields(string(out))
	return findProcesses(func(pid int, cmdline string) bool {
		return pid != h.rootPID && pid != h.root.Process.Pid &&
			(slices.Contains(inside, strconv.Itoa(pid)) || strings.Contains(cmdline, h.Dir+"/"))
	})
}

// rootCommand is a command of root's inside the test's namespaces, in its home
// whatever Dir says. What a test adds to its Env arrives only where the tests run
// as root themselves.
func (h *Harness) rootCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(h.rootPID), "--mount", "--net", "--wd=" + h.Home, "--", name}
	enter = append(enter, args...)
	var cmd *exec.Cmd
	if os.Geteuid() == 0 {
		cmd = exec.CommandContext(ctx, "nsenter", enter...)
		cmd.Env = h.Env()
	} else {
		env := slices.Concat([]string{"-n", "env", "-i"}, h.Env(), []string{"nsenter"}, enter)
		cmd = exec.CommandContext(ctx, "sudo", env...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
