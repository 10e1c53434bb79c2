package coordinator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// What was listed ahead, the kernel answers alone: even while the guard sleeps.
func TestWorkspaceIsListedAhead(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	const dirs, files = 30, 300 // more than one request's
	for d := range dirs {
		dir := fmt.Sprintf("%s/a%d/b", f.ws, d)
		must(t, os.MkdirAll(dir, 0o700))
		for i := range files {
			must(t, os.WriteFile(fmt.Sprintf("%s/f%d", dir, i), nil, 0o600))
		}
	}
	_ = f.ensure().Close()
	res, err := f.guardPrepare("c1", nil)
	must(t, err)
	pid, guard := f.pid(), f.status().Guard.PID
	// As in a sandbox: what is mounted there is not looked up again.
	w, err := os.Open(res.GuardDir)
	must(t, err)
	// Each look is at files that nobody else has looked at.
	known := func(d int) bool {
		must(t, syscall.Kill(guard, syscall.SIGSTOP))
		seen := make(chan error, 1)
		go func() {
			for i := range files {
				if _, err := os.Lstat(fmt.Sprintf("/proc/self/fd/%d/a%d/b/f%d", w.Fd(), d, i)); err != nil {
					seen <- err
					return
				}
			}
			seen <- nil
		}()
		alone := true
		select {
		case err = <-seen:
		case <-time.After(time.Second):
			alone = false
		}
		must(t, syscall.Kill(guard, syscall.SIGCONT))
		if !alone {
			err = <-seen
		}
		must(t, err)
		return alone
	}
	d := 0
	for ; d < dirs && !known(d); d++ {
		time.Sleep(100 * time.Millisecond)
	}
	if d == dirs {
		t.Error("no file was known to the kernel")
	}
	must(t, errors.Join(w.Close(), f.release("c1")))
	f.gone(pid)
	for d := range dirs {
		must(t, os.RemoveAll(fmt.Sprintf("%s/a%d", f.ws, d)))
	}
	f.nothingLeft()
}

func TestPrimeIsBounded(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/.git/x"), 0o700))
	must(t, os.Symlink("/", filepath.Join(dir, "link")))
	must(t, os.Mkdir(filepath.Join(dir, "gone"), 0))
	buf := make([]byte, primeBuffer)
	below, names, err := primeOne(dir, ".", buf)
	if len(below) != 2 || names != 5 || err != nil {
		t.Errorf("below %q, %d names, %v", below, names, err)
	}
	if below, _, err := primeOne(dir, "a", buf); len(below) != 0 || err != nil {
		t.Errorf("a git directory is looked at: %q, %v", below, err)
	}
	if _, _, err := primeOne(dir, "link", buf); err == nil {
		t.Error("a link was followed")
	}
	done := make(chan struct{})
	close(done)
	must(t, prime(dir, done))
	must(t, prime(filepath.Join(dir, "absent"), nil))
}
