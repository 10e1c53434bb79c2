package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

func TestLockDomain(t *testing.T) {
	dir := t.TempDir()
	r := resolved{
		env:    hostenv.Env{RuntimeDir: filepath.Join(dir, "run")},
		cfg:    &config.Config{General: config.General{ControlDir: dir}},
		anchor: domain.New("default", "/ws", filepath.Join(dir, "data")),
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(r.anchor.Root, 0o700))
	lockPath := r.anchor.LockPath(dir)
	refused := func(what string) {
		t.Helper()
		if release, err := lockDomain(r); !errors.Is(err, errInUse) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				must(release())
			}
		}
	}
	free := func(what string) {
		t.Helper()
		release, err := lockDomain(r)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		// A start waits for us meanwhile.
		if _, err := wire.TryLock(lockPath); !errors.Is(err, wire.ErrLocked) {
			t.Errorf("%s: another could lock it: %v", what, err)
		}
		must(release())
		if _, err := os.Lstat(lockPath); !os.IsNotExist(err) {
			t.Errorf("%s: left %s", what, lockPath)
		}
	}
	free("nobody")
	lock, err := wire.TryLock(lockPath)
	must(err)
	refused("a start")
	// Who is in the way is named, to either side.
	_, err = lockDomain(r)
	if want := fmt.Sprintf("pid %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
	_, err = wire.WaitLock(lockPath, time.Now())
	if want := fmt.Sprintf("pid %d: it is at work in the same domain; wait for its end", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
	must(lock.Remove())
	// A sandbox whose coordinator was killed, and then its process's end.
	sleeper := exec.CommandContext(t.Context(), "sleep", "60")
	must(sleeper.Start())
	start, err := proc.StartTime(sleeper.Process.Pid)
	must(err)
	state := containerstate.Dir(r.env.RuntimeDir, "c1")
	must(os.MkdirAll(state, 0o700))
	lease := containerstate.Lease{Version: containerstate.Version, Domain: "0123456789ab", PID: sleeper.Process.Pid, StartTime: start}
	must(containerstate.WriteLease(state, lease))
	free("another domain's sandbox")
	lease.Domain = r.anchor.Hash
	must(containerstate.WriteLease(state, lease))
	refused("a sandbox")
	must(sleeper.Process.Kill())
	_ = sleeper.Wait() // killed
	free("a dead sandbox")
}
