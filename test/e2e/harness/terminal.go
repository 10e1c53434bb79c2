package harness

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
)

// Terminal is a command of the user's on a pseudo-terminal of 80 columns and 24
// rows.
type Terminal struct {
	t      testing.TB
	cmd    *exec.Cmd
	pty    *os.File
	cancel context.CancelFunc
	read   chan struct{} // closed at the end of the output

	mu   sync.Mutex // guards those below
	text strings.Builder
	seen int // how far Expect has looked
}

// Terminal starts a command on a pseudo-terminal; the test's end ends it.
func (h *Harness) Terminal(name string, args ...string) *Terminal {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	cmd := h.Command(ctx, name, args...)
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		cancel()
		h.t.Fatal(err)
	}
	term := &Terminal{t: h.t, cmd: cmd, pty: f, cancel: cancel, read: make(chan struct{})}
	go term.collect()
	h.t.Cleanup(term.Close)
	return term
}

// collect ends with EIO, when the last process of the terminal has closed it.
func (term *Terminal) collect() {
	defer close(term.read)
	buf := make([]byte, 4096)
	for {
		n, err := term.pty.Read(buf)
		term.mu.Lock()
		term.text.Write(buf[:n])
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Send types text; "\r" is the return key.
func (term *Terminal) Send(text string) {
	term.t.Helper()
	if _, err := term.pty.WriteString(text); err != nil {
		term.t.Fatalf("type %q: %v\nscreen: %q", text, err, term.Text())
	}
}

// Expect waits until the text appears after what earlier calls have seen. What
// is typed is echoed: expect what only the answer can hold.
func (term *Terminal) Expect(text string, within time.Duration) {
	term.t.Helper()
	deadline := time.Now().Add(within)
	for {
		term.mu.Lock()
		i := strings.Index(term.text.String()[term.seen:], text)
		if i >= 0 {
			term.seen += i + len(text)
		}
		term.mu.Unlock()
		if i >= 0 {
			return
		}
		if time.Now().After(deadline) {
			term.t.Fatalf("no %q within %s\nterminal: %q", text, within, term.Text())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Text is all output so far, raw.
func (term *Terminal) Text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.text.String()
}

// Resize changes the terminal's size; the kernel sends SIGWINCH.
func (term *Terminal) Resize(rows, cols uint16) {
	term.t.Helper()
	if err := pty.Setsize(term.pty, &pty.Winsize{Rows: rows, Cols: cols}); err != nil {
		term.t.Fatal(err)
	}
}

// Pid is the command's process id.
func (term *Terminal) Pid() int { return term.cmd.Process.Pid }

// Wait waits for the command's end and returns its exit code, -1 for a signal.
func (term *Terminal) Wait() int {
	term.t.Helper()
	err := term.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		term.t.Fatalf("%v\nterminal: %q", err, term.Text())
	}
	select {
	case <-term.read:
	case <-time.After(2 * time.Second): // a background process keeps the terminal
	}
	return term.cmd.ProcessState.ExitCode()
}

// Close hangs the terminal up and ends the command.
func (term *Terminal) Close() {
	term.cancel()
	_ = term.cmd.Wait() // its exit code is Wait's to tell
	_ = term.pty.Close()
}
