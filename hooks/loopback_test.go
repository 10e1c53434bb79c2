package hooks

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestLoopbackUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("makes a network namespace: needs root; the end-to-end tests do without")
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	up := func() bool {
		// lo has routes of its own, and so its addresses, only while it is up.
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/net/fib_trie")
		return err == nil && strings.Contains(string(data), "127.0.0.1")
	}
	if up() {
		t.Error("a new namespace has its loopback up already")
	}
	for range 2 {
		if err := loopbackUp(pid); err != nil {
			t.Fatal(err)
		}
		if !up() {
			t.Error("the loopback is not up")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if err := loopbackUp(pid); err == nil {
		t.Error("a process that is gone has a loopback")
	}
}
