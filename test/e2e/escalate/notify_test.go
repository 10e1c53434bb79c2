package escalate

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// lines starts a program of the user's that ends with the test, and hands on what
// it prints.
func lines(t *testing.T, cmd *exec.Cmd) <-chan string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := make(chan string, 1000)
	t.Cleanup(func() {
		_ = cmd.Cancel()
		for range printed { // to its end, so that Wait may close the pipe
		}
		_ = cmd.Wait() // was killed
	})
	go func() {
		defer close(printed)
		for in := bufio.NewScanner(io.LimitReader(out, 1<<20)); in.Scan(); {
			printed <- in.Text()
		}
	}()
	return printed
}

// expect waits for a line that has text in it.
func expect(t *testing.T, printed <-chan string, text string) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		select {
		case line, ok := <-printed:
			if !ok {
				t.Fatalf("ended without %q", text)
			}
			if strings.Contains(line, text) {
				return
			}
		case <-deadline:
			t.Fatalf("no %q within a minute", text)
		}
	}
}

// From podman's user namespace to the user's own bus: nobody is there to answer,
// and the desktop is told so. The bus is the test's, with no desktop on it but a
// monitor.
func TestNotification(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	ws := h.Workspace()
	// Where the user's bus is: engines do not pass another address on.
	address := "unix:path=" + filepath.Join(h.Runtime, "bus")
	expect(t, lines(t, h.Command(t.Context(), "dbus-daemon", "--session", "--nofork", "--address="+address, "--print-address")), "unix:")
	t.Cleanup(func() { _ = os.Remove(strings.TrimPrefix(address, "unix:path=")) }) // the killed daemon does not
	seen := lines(t, h.Command(t.Context(), "dbus-monitor", "--address", address, "interface='org.freedesktop.Notifications'"))
	expect(t, seen, "NameAcquired")
	h.Detached(ws, "box", harness.Busybox, "sleep", "600")
	asked := background(t, h, "podman", "exec", "box", "lazaret-escalate", "--", "aws <b>sts</b>\x1b[2J")
	expect(t, seen, "member=Notify")
	expect(t, seen, `"Lazaret: a request waits"`)
	expect(t, seen, "aws &lt;b&gt;sts&lt;/b&gt;?[2J")
	h.Podman("rm", "-f", "-t", "0", "box").OK(t)
	wait(t, asked)
	h.DomainEnds("default", ws)
}
