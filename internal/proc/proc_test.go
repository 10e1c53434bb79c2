package proc

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	const rest = " 1 2 3 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"
	for _, tc := range []struct {
		name, text string
		want       Stat
		fails      bool
	}{
		{name: "plain", text: "7 (cat) R" + rest, want: Stat{Parent: 1, Group: 2, Start: 4711}},
		{name: "name like a stat", text: "7 (x) Z 9 (y) S" + rest, want: Stat{Parent: 1, Group: 2, Start: 4711}},
		{name: "zombie", text: "7 (cat) Z" + rest, want: Stat{Parent: 1, Group: 2, Start: 4711, Zombie: true}},
		{name: "dead", text: "7 (cat) X" + rest, want: Stat{Parent: 1, Group: 2, Start: 4711, Zombie: true}},
		{name: "empty", fails: true},
		{name: "no name", text: "7 R" + rest, fails: true},
		{name: "short", text: "7 (cat) R 1 2", fails: true},
		{name: "no number", text: "7 (cat) R one" + rest, fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseStat([]byte(tc.text))
			if (err != nil) != tc.fails || !tc.fails && got != tc.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ReadStat(p.PID)
	if err != nil || s.Parent != os.Getpid() || s.Zombie || p.Ended() {
		t.Fatalf("%+v, %v, ended %v", s, err, p.Ended())
	}
	if start, err := StartTime(p.PID); err != nil || start != s.Start {
		t.Errorf("start %d, %v", start, err)
	}
	q, err := Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	q.WaitUntil(time.Now().Add(10 * time.Millisecond)) // it lives
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.Wait()
	if !p.Ended() {
		t.Error("has not ended")
	}
	if _, err := StartTime(p.PID); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("nobody has waited for it: %v", err)
	}
	var status *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &status) || status.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended with %v", err)
	}
	if _, err := ReadStat(p.PID); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
}
