// Package pause owns the first process of a sandbox that lazaret run has started:
// it does nothing but to be there, so that every session is an exec and none
// depends on another, to reap what others leave, and to end the rest before it
// ends itself.
package pause

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"
)

// Words of the client's command line for Hold and EndSession.
const (
	HoldWord = "hold-sandbox"
	EndWord  = "end-session"
)

// Called reports whether the client's arguments are for this package.
func Called(args []string) bool {
	return len(args) == 1 && args[0] == HoldWord || len(args) == 2 && args[0] == EndWord
}

// Main does what args, of which Called is true, ask for, and returns the exit
// status.
func Main(args []string, stderr io.Writer) int {
	var err error
	if args[0] == HoldWord {
		err = Hold()
	} else {
		err = EndSession(args[1])
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "lazaret-escalate: %v\n", err) // nowhere left to tell
		return 125
	}
	return 0
}

// grace is what processes get between SIGTERM and the end.
const grace = 3 * time.Second

// Hold waits for SIGTERM or SIGINT, ends all other processes, and returns. It is
// for process 1 only: it signals and reaps whatever there is.
func Hold() error {
	if os.Getpid() != 1 {
		return errors.New("this is for the first process of a sandbox")
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for sig := range signals {
		if sig != syscall.SIGCHLD {
			break
		}
		reap()
	}
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGCONT} {
		_ = syscall.Kill(-1, s) // fails when there is nobody
	}
	for deadline := time.Now().Add(grace); time.Now().Before(deadline) && others(); {
		reap()
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// others reports whether another process lives.
func others() bool {
	pids, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return false
	}
	for _, p := range pids {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if err != nil || pid == 1 {
			continue
		}
		if s, err := proc.ReadStat(pid); err == nil && !s.Zombie {
			return true
		}
	}
	return false
}

// EndSession ends the processes whose environment names the session: SIGHUP and
// SIGTERM, then SIGKILL.
func EndSession(id string) error {
	want := []byte("LAZARET_SESSION_ID=" + id)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGKILL} {
		pids, err := session(want)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, sig) // may have ended
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
		wait := grace / 2
		if sig == syscall.SIGHUP {
			wait = 0 // shells end at it, others ignore it
		}
		for deadline := time.Now().Add(wait); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if pids, err := session(want); err != nil || len(pids) == 0 {
				return err
			}
		}
	}
	return nil
}

func session(want []byte) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, fmt.Errorf("look for the session's processes: %w", err)
	}
	var pids []int
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil || pid <= 1 || pid == os.Getpid() {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended, or is another user's
		}
		for _, v := range bytes.Split(data, []byte{0}) {
			if bytes.Equal(v, want) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids, nil
}
