package hostrun

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"golang.org/x/sys/unix"
)

const (
	termTime = 2 * time.Second // for processes to end by themselves
	killTime = 3 * time.Second // for the kernel to end them
	pollTime = 5 * time.Millisecond
)

// Descriptors of a supervisor.
const (
	ctlFD = 3 // to the desk: a spec comes in, a report goes out; its end is the desk's
	dirFD = 4 // the working directory
)

// spec is what a supervisor starts.
type spec struct {
	Program string   `json:"program"`
	Argv    []string `json:"argv"`
	Env     []string `json:"env"`
}

// report is how it ended.
type report struct {
	ExitCode int    `json:"exit_code"`
	Error    string `json:"error,omitempty"`
}

// Supervise is what a supervisor does. It must be called by a goroutine that lives
// as long as the process: the kernel ends the command with the thread that started
// it.
func Supervise() error {
	runtime.LockOSThread()
	unix.CloseOnExec(ctlFD)
	unix.CloseOnExec(dirFD)
	ctl := os.NewFile(ctlFD, "desk")
	rep, told := supervise(ctl)
	if !told {
		return nil // the desk is gone
	}
	line, err := json.Marshal(rep)
	if err != nil {
		return err
	}
	_, err = ctl.Write(line)
	return err
}

func failed(format string, args ...any) (report, bool) {
	return report{Error: fmt.Errorf(format, args...).Error()}, true
}

// supervise returns false when the desk has ended it.
func supervise(ctl *os.File) (report, bool) {
	line, err := bufio.NewReader(ctl).ReadBytes('\n') // a desk sends nothing after it
	if err != nil {
		return report{}, false
	}
	var s spec
	if err := json.Unmarshal(line, &s); err != nil {
		return failed("supervisor: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return failed("supervisor: become the one that descendants fall to: %w", err)
	}
	if err := unix.Fchdir(dirFD); err != nil {
		return failed("supervisor: enter the working directory: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return failed("supervisor: %w", err)
	}
	pidfd := -1
	p, err := os.StartProcess(s.Program, s.Argv, &os.ProcAttr{
		Env:   s.Env,
		Files: []*os.File{null, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd},
	})
	if err != nil {
		return failed("start it: %w", err)
	}
	if pidfd < 0 {
		_ = p.Kill() // there is no other way to go on
		return failed("supervisor: the kernel gives no pidfd: Linux 5.4 or newer is needed")
	}
	if deskIsGone(pidfd) {
		end(func(q process) bool { return true })
		return report{}, false
	}
	st, err := p.Wait()
	if err != nil {
		return failed("wait for it: %w", err)
	}
	if hasChildren() {
		// Its process group's number is nobody else's while the group has a member.
		end(func(q process) bool { return q.Group == p.Pid })
	}
	ws, ok := st.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() { //nolint:misspell // the library spells it so
		return report{ExitCode: 128 + int(ws.Signal())}, true
	}
	return report{ExitCode: st.ExitCode()}, true
}

// hasChildren tells whether anything that the command has started may still run:
// what lost its parent is this process's child (prctl(2), PR_SET_CHILD_SUBREAPER).
// Looking through all of /proc takes longer than most commands.
func hasChildren() bool {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && pid > 0: // one that has ended
		default:
			return !errors.Is(err, unix.ECHILD)
		}
	}
}

// deskIsGone waits for the command's end or the desk's.
func deskIsGone(pidfd int) bool {
	for {
		fds := []unix.PollFd{{Fd: ctlFD, Events: unix.POLLIN | unix.POLLRDHUP}, {Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || fds[0].Revents != 0:
			return true
		case fds[1].Revents != 0:
			return false
		}
	}
}

// process is one of /proc.
type process struct {
	pid int
	proc.Stat
}

// end ends those descendants that are meant: politely, then not.
func end(meant func(process) bool) {
	began := time.Now()
	told := map[int]uint64{} // by pid, when each began
	for {
		alive := false
		for _, q := range descendants(os.Getpid()) {
			if !meant(q) {
				continue
			}
			alive = true
			if time.Since(began) > termTime {
				q.signal(unix.SIGKILL)
			} else if told[q.pid] != q.Start {
				q.signal(unix.SIGTERM)
				q.signal(unix.SIGCONT) // one that is stopped would not hear
				told[q.pid] = q.Start
			}
		}
		if !alive || time.Since(began) > termTime+killTime {
			return // what is left belongs to another user
		}
		time.Sleep(pollTime)
	}
}

func (q process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(q.pid, 0)
	if err != nil {
		return // it has ended
	}
	defer func() { _ = unix.Close(fd) }() // nothing to lose
	if now, err := proc.ReadStat(q.pid); err == nil && now.Start == q.Start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // the caller looks again
	}
}

// descendants lists the processes below pid that run.
func descendants(pid int) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	below := map[int][]process{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := proc.ReadStat(n); err == nil {
			below[s.Parent] = append(below[s.Parent], process{pid: n, Stat: s})
		}
	}
	var out []process
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		for _, p := range below[next[0]] {
			next = append(next, p.pid)
			if !p.Zombie {
				out = append(out, p)
			}
		}
		delete(below, next[0])
	}
	return slices.Clip(out)
}
