package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/domain"
)

// StartTimeout bounds how long anybody waits for a coordinator to answer.
const StartTimeout = 10 * time.Second

// ExitBusy is the coordinator's exit status when a live one holds the domain.
const ExitBusy = 75

// busyPause is how long a starter waits for one that holds the domain without
// answering, before it tries to start another.
const busyPause = 100 * time.Millisecond

// maxSocketPath is what fits into sockaddr_un (unix(7)) with its final zero.
const maxSocketPath = 107

// Lock is the held hold-to-bind lock of a domain.
type Lock struct {
	f    *os.File
	path string
}

// ErrLocked means that somebody else holds the lock.
var ErrLocked = errors.New("lock is held")

// TryLock takes the exclusive flock(2) on path without waiting; ErrLocked when
// another process has it. The file is made with mode 0600 if it is missing. A
// name that is not a regular file of our own is refused: the directory is
// usually /tmp, where anybody can have put it.
func TryLock(path string) (*Lock, error) { return tryLock(path, unix.O_CREAT) }

// TryLockThere is TryLock for a file that must exist: else fs.ErrNotExist.
func TryLockThere(path string) (*Lock, error) { return tryLock(path, 0) }

func tryLock(path string, create int) (*Lock, error) {
	for {
		l, err := openLock(path, create)
		if err != nil {
			return nil, err
		}
		switch err := unix.Flock(int(l.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("%w: %s", ErrLocked, path), l.f.Close())
		case errors.Is(err, unix.EINTR):
			_ = l.f.Close()
			continue
		case err != nil:
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), l.f.Close())
		}
		// Whoever held it may have removed the name before letting go.
		if current, err := l.current(); err != nil {
			return nil, errors.Join(err, l.f.Close())
		} else if current {
			return l, nil
		}
		_ = l.f.Close()
	}
}

// WaitLock takes the lock as TryLock does but waits for it, until deadline.
func WaitLock(path string, deadline time.Time) (*Lock, error) {
	pause := time.Millisecond
	for {
		l, err := TryLock(path)
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		if !time.Now().Before(deadline) {
			return nil, fmt.Errorf("%w for %s by %s: it is at work in the same domain; wait for its end, or end it, and try again", err, StartTimeout, LockHolder(path))
		}
		// flock(2) cannot be given a deadline; polling keeps the wait bounded.
		time.Sleep(pause)
		pause = min(pause*2, 20*time.Millisecond)
	}
}

func openLock(path string, create int) (*Lock, error) {
	fd, err := unix.Open(path, unix.O_RDWR|create|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock %s: %w: another user may have taken the name; remove it or set control_dir in [general]", path, err)
	}
	l := &Lock{f: os.NewFile(uintptr(fd), path), path: path}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("open lock %s: %w", path, err), l.f.Close())
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Nlink > 1 {
		return nil, errors.Join(fmt.Errorf("lock %s is not a plain file of yours (uid %d, mode %o, links %d): somebody took the name; remove it or set control_dir in [general]", path, st.Uid, st.Mode, st.Nlink), l.f.Close())
	}
	if st.Mode&0o777 != 0o600 {
		if err := unix.Fchmod(fd, 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("open lock %s: %w", path, err), l.f.Close())
		}
	}
	return l, nil
}

// current reports whether the path still names the locked file.
func (l *Lock) current() (bool, error) {
	var held, named unix.Stat_t
	if err := unix.Fstat(int(l.f.Fd()), &held); err != nil {
		return false, fmt.Errorf("lock %s: %w", l.path, err)
	}
	if err := unix.Lstat(l.path, &named); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		return false, fmt.Errorf("lock %s: %w", l.path, err)
	}
	return held.Dev == named.Dev && held.Ino == named.Ino, nil
}

// Release lets go of the lock; the file stays.
func (l *Lock) Release() error { return l.f.Close() }

// Remove unlinks the lock's file and lets go of it. Waiters notice that the
// name is gone and start over.
func (l *Lock) Remove() error {
	err := os.Remove(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.f.Close())
}

// RemoveNames removes a domain's lock, which it takes over, and its socket, if
// nobody answers there.
func RemoveNames(lock *Lock, socket string) error {
	c, err := Dial(socket, time.Second)
	if err == nil {
		return errors.Join(c.Close(), lock.Release())
	}
	if !errors.Is(err, ErrNoCoordinator) {
		return errors.Join(err, lock.Release())
	}
	if err := removeStale(socket); err != nil {
		return errors.Join(err, lock.Release())
	}
	return lock.Remove()
}

// LockHolder names the process that holds a lock, for messages only.
func LockHolder(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return unknownHolder
	}
	data, err := os.ReadFile("/proc/locks")
	if err != nil {
		return unknownHolder
	}
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) >= 6 && f[1] == "FLOCK" && f[5] == want {
			return processName(f[4])
		}
	}
	return unknownHolder
}

const unknownHolder = "a process that the kernel does not tell"

// processName is a pid with the first words of its command line, the developer's
// own: nobody else can hold the lock.
func processName(pid string) string {
	data, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if words := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00"); err == nil && words[0] != "" {
		return fmt.Sprintf("%.100q, pid %s", strings.Join(words[:min(len(words), 4)], " "), pid)
	}
	return "pid " + pid
}

// Ensure returns a connection to the domain's coordinator, started by us if
// nobody had: hold-to-bind. program is the coordinator's path.
func Ensure(spec StartSpec, program string) (*Conn, error) {
	lockPath, socket := spec.Domain.LockPath(spec.ControlDir), spec.Domain.SocketPath(spec.ControlDir)
	if len(socket) > maxSocketPath {
		return nil, fmt.Errorf("control socket %s: the path has more than %d bytes, which no unix socket can have: set a shorter control_dir in [general]", socket, maxSocketPath)
	}
	deadline := time.Now().Add(StartTimeout)
	for {
		lock, err := TryLock(lockPath)
		if errors.Is(err, ErrLocked) {
			// A follower: wait for the leader, let go at once, connect.
			if lock, err = WaitLock(lockPath, deadline); err != nil {
				return nil, err
			}
			if err := lock.Release(); err != nil {
				return nil, fmt.Errorf("release lock %s: %w", lockPath, err)
			}
			c, err := Dial(socket, time.Until(deadline))
			if errors.Is(err, ErrNoCoordinator) && time.Now().Before(deadline) {
				continue // it went away in between: compete again
			}
			return c, err
		}
		if err != nil {
			return nil, err
		}
		c, err := lead(spec, program, socket, deadline)
		if err != nil {
			// Nobody else would remove it. Where a coordinator comes up late it
			// makes another when it goes.
			return nil, errors.Join(err, lock.Remove())
		}
		// The lock's file stays: the coordinator removes it when it goes.
		if err := lock.Release(); err != nil {
			return nil, errors.Join(fmt.Errorf("release lock %s: %w", lockPath, err), c.Close())
		}
		return c, nil
	}
}

// lead runs with the lock held.
func lead(spec StartSpec, program, socket string, deadline time.Time) (*Conn, error) {
	c, err := Dial(socket, time.Until(deadline))
	if !errors.Is(err, ErrNoCoordinator) {
		return c, err
	}
	if err := removeStale(socket); err != nil {
		return nil, err
	}
	exited, err := startCoordinator(spec, program)
	if err != nil {
		return nil, err
	}
	pause := 500 * time.Microsecond
	var again <-chan time.Time
	for {
		c, err := Dial(socket, time.Until(deadline))
		if !errors.Is(err, ErrNoCoordinator) {
			return c, err
		}
		select {
		case <-again:
			again = nil
			if exited, err = startCoordinator(spec, program); err != nil {
				return nil, err
			}
		case status := <-exited:
			if status.ExitCode() == ExitBusy {
				// One is alive without its socket's name, and binds it again; or
				// it was killed, and the kernel is not yet done with it.
				exited, again = nil, time.After(busyPause)
				continue
			}
			err := fmt.Errorf("coordinator of domain %s ended while starting (%s)%s", spec.Domain.Hash, status, logTail(spec.Domain.Root))
			if spec.Domain.Ephemeral {
				err = errors.Join(err, os.RemoveAll(spec.Domain.Root)) // nobody comes back to it
			}
			return nil, err
		case <-time.After(pause):
		}
		if !time.Now().Before(deadline) {
			return nil, fmt.Errorf("coordinator of domain %s does not answer at %s after %s%s", spec.Domain.Hash, socket, StartTimeout, logTail(spec.Domain.Root))
		}
		pause = min(pause*3/2, 5*time.Millisecond)
	}
}

// removeStale removes a socket file that nobody answers at. Anything else, or
// somebody else's, is refused: it is not ours to remove.
func removeStale(socket string) error {
	fi, err := os.Lstat(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || fi.Mode().Type() != fs.ModeSocket || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("control socket %s is not a socket of yours (%s): somebody took the name; remove it or set control_dir in [general]", socket, fi.Mode())
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale control socket: %w", err)
	}
	return nil
}

// startCoordinator starts the coordinator detached: own session, no inherited
// descriptors (conmon waits for the end of its pipes), log in the Domain Root.
func startCoordinator(spec StartSpec, program string) (exited <-chan *os.ProcessState, err error) {
	spec.Starter = os.Getpid()
	input, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("start coordinator: %w", err)
	}
	if err := os.MkdirAll(spec.Domain.Root, 0o700); err != nil {
		return nil, fmt.Errorf("make the domain's directory: %w: free disk space or set data_root in [general]", err)
	}
	// From the first moment, so that whoever finds a killed start's leftovers
	// knows what they are.
	if err := domain.WriteRecord(spec.Domain); err != nil {
		return nil, err
	}
	logFile, err := os.OpenFile(LogPath(spec.Domain.Root), os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the coordinator's log: %w", err)
	}
	defer func() { _ = logFile.Close() }() // the coordinator has its own copy
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start coordinator: %w", err)
	}
	defer func() { _ = r.Close() }()
	restore, err := hideDescriptors()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	p, err := os.StartProcess(program, []string{program, spec.Domain.Hash}, &os.ProcAttr{
		Dir:   "/", // never keep a directory of the user's busy
		Env:   coordinatorEnv(),
		Files: []*os.File{r, logFile, logFile},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	restore()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start coordinator %s: %w", program, err), w.Close())
	}
	_, werr := w.Write(input)
	if err := errors.Join(werr, w.Close()); err != nil {
		return nil, fmt.Errorf("start coordinator: hand over its settings: %w", err)
	}
	done := make(chan *os.ProcessState, 1)
	go func() {
		if st, err := p.Wait(); err == nil {
			done <- st
		}
	}()
	return done, nil
}

// coordinatorEnv is the little that the coordinator needs: where the user's
// systemd answers, and PATH for nothing but messages.
func coordinatorEnv() []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, k := range []string{"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"} {
		if v := os.Getenv(k); v != "" {
			env = append(env, k+"="+v)
		}
	}
	return env
}

// hideDescriptors sets close-on-exec on every inherited descriptor above
// stderr and returns what takes it off again. Descriptors that Go opened have
// it already.
func hideDescriptors() (restore func(), err error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("list open descriptors: %w", err)
	}
	var hidden []int
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscanf(e.Name(), "%d", &fd); err != nil || fd <= 2 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue // closed since, as the one of the listing itself
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags|unix.FD_CLOEXEC); err == nil {
			hidden = append(hidden, fd)
		}
	}
	return func() {
		for _, fd := range hidden {
			// Cannot fail on a descriptor that took the flag a moment ago.
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
		}
	}, nil
}

// LogPath is the coordinator's log in a Domain Root.
func LogPath(domainRoot string) string { return filepath.Join(domainRoot, "coordinator.log") }

// logTail is the last line of the coordinator's log, for an error message.
func logTail(domainRoot string) string {
	f, err := os.Open(LogPath(domainRoot))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	const most = 4096
	if fi, err := f.Stat(); err == nil && fi.Size() > most {
		if _, err := f.Seek(-most, 2); err != nil {
			return ""
		}
	}
	buf := make([]byte, most)
	n, _ := f.Read(buf)
	lines := bytes.Split(bytes.TrimSpace(buf[:n]), []byte("\n"))
	last := strings.TrimSpace(string(lines[len(lines)-1]))
	if last == "" {
		return ""
	}
	return fmt.Sprintf("; its log %s ends with: %s", LogPath(domainRoot), last)
}
