// Package proc names processes so that a name never comes to mean another one:
// pidfds, and pids with their start times.
package proc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a pidfd (pidfd_open(2)): unlike a pid it never comes to mean
// another process.
type Process struct {
	PID int
	f   *os.File
}

// Open opens a live process by pid.
func Open(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	return &Process{PID: pid, f: os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid))}, nil
}

// Peer is the process at the other end of c. Where the kernel has
// SO_PEERPIDFD (6.5) the answer cannot be a reused pid; before that it could be
// only if the peer died within this call.
func Peer(c *net.UnixConn, pid int) (*Process, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("find the calling process: %w", err)
	}
	fd := -1
	if err := rc.Control(func(s uintptr) {
		fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); err != nil {
		return nil, fmt.Errorf("find the calling process: %w", err)
	}
	if err != nil {
		return Open(pid)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("find the calling process: %w", err), unix.Close(fd))
	}
	unix.CloseOnExec(fd)
	return &Process{PID: pid, f: os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid))}, nil
}

// Wait returns when the process has ended, and closes p.
func (p *Process) Wait() {
	defer p.Close()
	rc, err := p.f.SyscallConn()
	if err != nil {
		return
	}
	// A pidfd is readable once its process has ended; the runtime's poller
	// waits, so no thread is held.
	_ = rc.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // descriptors are small
		n, err := unix.Poll(fds, 0)
		return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
	})
}

// WaitUntil is Wait with an end: it returns at that time at the latest.
func (p *Process) WaitUntil(end time.Time) {
	_ = p.f.SetReadDeadline(end) // a pidfd takes one
	p.Wait()
}

// Ended reports whether the process has ended; also once p is closed, which is
// when it has been seen to end.
func (p *Process) Ended() bool {
	rc, err := p.f.SyscallConn()
	if err != nil {
		return true
	}
	over := true
	if err := rc.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // descriptors are small
		n, err := unix.Poll(fds, 0)
		over = err == nil && n > 0
	}); err != nil {
		return true
	}
	return over
}

// Signal sends sig to this very process (pidfd_send_signal(2)).
func (p *Process) Signal(sig unix.Signal) error {
	rc, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	var kerr error
	if err := rc.Control(func(fd uintptr) { kerr = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return err
	}
	return kerr
}

// Close lets go of the process, which goes on.
func (p *Process) Close() { _ = p.f.Close() } // a pidfd has nothing to lose
