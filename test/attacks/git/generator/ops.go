package generator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Op is one step of a program. Path and To are relative to the view.
type Op struct {
	Kind string `json:"k"`
	Path string `json:"p,omitempty"`
	To   string `json:"t,omitempty"`
	Text string `json:"x,omitempty"`
	Slot int    `json:"s,omitempty"` // descriptor kept over programs
	With *Op    `json:"w,omitempty"` // of race: what runs at the same time
}

// String is the op as a program's listing shows it.
func (o Op) String() string {
	s := fmt.Sprintf("%s %q", o.Kind, o.Path)
	if o.To != "" {
		s += fmt.Sprintf(" %q", o.To)
	}
	if o.Text != "" {
		s += fmt.Sprintf(" text=%q", o.Text)
	}
	if o.Slot != 0 {
		s += fmt.Sprintf(" slot=%d", o.Slot)
	}
	if o.With != nil {
		s += " while " + o.With.String()
	}
	return s
}

const slots = 8

// Machine runs ops in a view. Its descriptors live on over programs, so that a
// file opened in one is written in another. Not for concurrent use.
type Machine struct {
	root string
	fds  [slots]int
	peer *os.File // a socket to who writes what is passed; nil to write here
}

// NewMachine runs in root. Descriptors of pass go over peer, a unix socket that
// somebody serves with Peer.
func NewMachine(root string, peer *os.File) *Machine {
	m := &Machine{root: root, peer: peer}
	for i := range m.fds {
		m.fds[i] = -1
	}
	return m
}

// Close closes what ops left open.
func (m *Machine) Close() {
	for i := range m.fds {
		m.set(i, -1)
	}
}

func (m *Machine) set(slot, fd int) {
	if m.fds[slot] >= 0 {
		_ = unix.Close(m.fds[slot])
	}
	m.fds[slot] = fd
}

// The kinds of ops that need no other party. "host" and "hostrace" are Drive's.
const (
	raceRounds = 8
	create     = unix.O_CREAT | unix.O_NONBLOCK | unix.O_CLOEXEC // a FIFO must not stop the program
)

// Do runs one op. That it fails is what an attacker expects: the error is only for
// who asks.
func (m *Machine) Do(op Op) error {
	op.Slot %= slots
	path, to := filepath.Join(m.root, op.Path), filepath.Join(m.root, op.To)
	text := []byte(op.Text)
	switch op.Kind {
	case "mkdir":
		return unix.Mkdir(path, 0o755)
	case "write":
		return put(unix.AT_FDCWD, path, unix.O_WRONLY|unix.O_TRUNC|create, text)
	case "append":
		return put(unix.AT_FDCWD, path, unix.O_WRONLY|unix.O_APPEND|create, text)
	case "overwrite": // no O_TRUNC, no O_CREAT
		return put(unix.AT_FDCWD, path, unix.O_RDWR|unix.O_NONBLOCK, text)
	case "truncate":
		return unix.Truncate(path, int64(len(text)))
	case "mmap":
		return mmapWrite(path, text)
	case "fallocate":
		return withFile(path, unix.O_RDWR|unix.O_NONBLOCK, func(fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 8)
		})
	case "copyrange":
		return copyRange(path, to)
	case "unlink":
		return unix.Unlink(path)
	case "rmdir":
		return unix.Rmdir(path)
	case "rename":
		return unix.Rename(path, to)
	case "exchange":
		return unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	case "noreplace":
		return unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	case "whiteout":
		return unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, to, unix.RENAME_WHITEOUT)
	case "link":
		return unix.Link(path, to)
	case "symlink": // Text is the target
		return unix.Symlink(op.Text, path)
	case "fifo":
		return unix.Mkfifo(path, 0o666)
	case "char":
		return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
	case "socket":
		return unix.Mknod(path, unix.S_IFSOCK|0o666, 0)
	case "chmod":
		return unix.Chmod(path, 0o777)
	case "setuid":
		return unix.Chmod(path, 0o6777)
	case "chown":
		return unix.Lchown(path, 1, 1)
	case "xattr":
		return unix.Setxattr(path, "user.lazaret", text, 0)
	case "tmpfile":
		return tmpfile(path, to, text)
	case "index":
		return m.writeIndex(path, op.Text)
	case "open":
		return m.open(op.Slot, path, unix.O_RDWR|create)
	case "openread":
		return m.open(op.Slot, path, unix.O_RDONLY|unix.O_NONBLOCK)
	case "openpath":
		return m.open(op.Slot, path, unix.O_PATH)
	case "opendir":
		return m.open(op.Slot, path, unix.O_RDONLY|unix.O_DIRECTORY)
	case "close":
		m.set(op.Slot, -1)
		return nil
	case "fdwrite":
		return writeAt(m.fds[op.Slot], text)
	case "fdtruncate":
		return unix.Ftruncate(m.fds[op.Slot], int64(len(text)))
	case "fdreopen":
		return put(unix.AT_FDCWD, procFD(m.fds[op.Slot]), unix.O_RDWR|unix.O_NONBLOCK, text)
	case "fdlink":
		err := unix.Linkat(m.fds[op.Slot], "", unix.AT_FDCWD, to, unix.AT_EMPTY_PATH)
		if err != nil {
			err = unix.Linkat(unix.AT_FDCWD, procFD(m.fds[op.Slot]), unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
		}
		return err
	case "pass":
		return m.pass(op.Slot, text)
	case "atwrite": // Path is below the directory in Slot
		return put(m.fds[op.Slot], op.Path, unix.O_WRONLY|create, text)
	case "atmkdir":
		return unix.Mkdirat(m.fds[op.Slot], op.Path, 0o755)
	case "atrename": // out of the directory in Slot
		return unix.Renameat(m.fds[op.Slot], op.Path, unix.AT_FDCWD, to)
	case "atrenamein":
		return unix.Renameat(unix.AT_FDCWD, to, m.fds[op.Slot], op.Path)
	case "atunlink":
		return unix.Unlinkat(m.fds[op.Slot], op.Path, 0)
	case "atproc": // through the link of /proc
		return put(unix.AT_FDCWD, filepath.Join(procFD(m.fds[op.Slot]), op.Path), unix.O_WRONLY|create, text)
	case "race":
		return m.race(op)
	case "barrier": // of attack programs: wait until the file is there
		return waitFor(path)
	}
	return fmt.Errorf("no such op: %q", op.Kind)
}

func (m *Machine) open(slot int, path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	m.set(slot, fd)
	return nil
}

// race runs both ops again and again at the same time.
func (m *Machine) race(op Op) error {
	if op.With == nil || op.With.Kind == "race" {
		return errors.New("a race needs an op to run with")
	}
	other := NewMachine(m.root, nil)
	defer other.Close()
	// The other one works with descriptors of its own.
	for i, fd := range m.fds {
		if fd < 0 {
			continue
		}
		if dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			other.fds[i] = dup
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range raceRounds {
			_ = other.Do(*op.With)
		}
	}()
	one := op
	one.Kind, one.With = op.Text, nil
	one.Text = op.With.Text
	var err error
	for range raceRounds {
		err = m.Do(one)
	}
	<-done
	return err
}

func procFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func put(dir int, path string, flags int, text []byte) error {
	fd, err := unix.Openat(dir, path, flags|unix.O_CLOEXEC, 0o777)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // gVisor reports errors of write at write
	_, err = unix.Write(fd, text)
	return err
}

func writeAt(fd int, text []byte) error {
	if _, err := unix.Pwrite(fd, text, 0); err != nil {
		return err
	}
	return nil
}

func withFile(path string, flags int, do func(fd int) error) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // the op's own error is what counts
	return do(fd)
}

// mmapWrite writes over what the file has, through a shared mapping.
func mmapWrite(path string, text []byte) error {
	return withFile(path, unix.O_RDWR|unix.O_NONBLOCK, func(fd int) error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		n := min(int(st.Size), len(text))
		if n == 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
			return unix.EINVAL
		}
		mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		copy(mem, text)
		return errors.Join(unix.Msync(mem, unix.MS_SYNC), unix.Munmap(mem))
	})
}

func copyRange(from, to string) error {
	return withFile(from, unix.O_RDONLY|unix.O_NONBLOCK, func(src int) error {
		return withFile(to, unix.O_WRONLY|unix.O_NONBLOCK, func(dst int) error {
			_, err := unix.CopyFileRange(src, nil, dst, nil, 1<<16, 0)
			return err
		})
	})
}

// tmpfile makes a file without a name in a directory and links it to a name.
func tmpfile(dir, to string, text []byte) error {
	return withFile(dir, unix.O_TMPFILE|unix.O_RDWR, func(fd int) error {
		if _, err := unix.Write(fd, text); err != nil {
			return err
		}
		if err := unix.Linkat(fd, "", unix.AT_FDCWD, to, unix.AT_EMPTY_PATH); err == nil {
			return nil
		}
		return unix.Linkat(unix.AT_FDCWD, procFD(fd), unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
	})
}

// writeIndex writes an index by rename of its lock, as git does. Text lists its
// entries, one a line, as WriteIndex takes them.
func (m *Machine) writeIndex(path, text string) error {
	data, err := EncodeIndex(4-2*(len(text)%2), parseEntries(text))
	if err != nil {
		return err
	}
	lock := path + ".lock"
	if err := put(unix.AT_FDCWD, lock, unix.O_WRONLY|unix.O_TRUNC|create, data); err != nil {
		return err
	}
	return unix.Rename(lock, path)
}

func parseEntries(text string) []Entry {
	var entries []Entry
	for line := range strings.Lines(text) {
		entries = append(entries, Entry{Mode: 0o100755, Path: strings.TrimSuffix(line, "\n")})
	}
	return entries
}

// waitFor is for attacks that start before the host acts and go on after.
func waitFor(path string) error {
	for range 1200 {
		if _, err := os.Lstat(path); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%s never appeared", path)
}

// pass hands a descriptor to the peer, which writes the text.
func (m *Machine) pass(slot int, text []byte) error {
	if m.fds[slot] < 0 || len(text) == 0 {
		return unix.EBADF
	}
	if m.peer == nil {
		return writeAt(m.fds[slot], text)
	}
	peer := int(m.peer.Fd())
	if err := unix.Sendmsg(peer, text, unix.UnixRights(m.fds[slot]), nil, 0); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := unix.Read(peer, answer[:]); err != nil {
		return err
	}
	if answer[0] != 0 {
		return unix.Errno(answer[0])
	}
	return nil
}

// Peer is the other process of pass: it writes to the descriptors it is handed
// until the socket ends.
func Peer(socket *os.File) error {
	fd := int(socket.Fd())
	text, oob := make([]byte, 4096), make([]byte, 256)
	for {
		n, oobn, _, _, err := unix.Recvmsg(fd, text, oob, 0)
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		answer := []byte{0}
		if err := writePassed(oob[:oobn], text[:n]); err != nil {
			answer[0] = byte(unix.EIO)
			var errno unix.Errno
			if errors.As(err, &errno) {
				answer[0] = byte(errno)
			}
		}
		if _, err := unix.Write(fd, answer); err != nil {
			return err
		}
	}
}

func writePassed(oob, text []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for _, msg := range msgs {
		fds, err := unix.ParseUnixRights(&msg)
		if err != nil {
			return err
		}
		for _, passed := range fds {
			err = errors.Join(err, writeAt(passed, text), unix.Close(passed))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Socketpair makes the two ends for a Machine and its Peer.
func Socketpair() (machine, peer *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "machine"), os.NewFile(uintptr(fds[1]), "peer"), nil
}
