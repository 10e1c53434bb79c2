package network

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
	"github.com/lazaret-dev/lazaret/spec"
)

const (
	// startTime bounds the start of sidecar and uplink.
	startTime = 15 * time.Second
	// tellTime bounds the wait for the sidecar to make a change true.
	tellTime = 10 * time.Second
	// endTime bounds the wait for the end of a process that was killed.
	endTime = 2 * time.Second
	// routerPath is the sidecar's only file.
	routerPath = "/lazaret-netrouter"
	maxLine    = 1 << 20
)

// sidecar is a running lazaret-netrouter.
type sidecar struct {
	runc string
	dir  string
	id   string
	proc *proc.Process // nil until it runs
	conn net.Conn
	done chan struct{} // closed once the process has ended

	mu      sync.Mutex // guards what is below, and writes to conn
	seq     int
	waiting map[int]chan plan.Message
}

// bundle writes the sidecar's bundle: a root file system that holds one program,
// and as little else as that needs.
func bundle(dir, router string, ns *os.File) error {
	if err := os.MkdirAll(filepath.Join(dir, "rootfs"), 0o700); err != nil {
		return err
	}
	data, err := json.MarshalIndent(sidecarSpec(router, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()), openFiles()), "", "\t")
	if err != nil {
		return fmt.Errorf("sidecar's config.json: %w", err)
	}
	d, err := spec.Parse(data)
	if err == nil {
		err = spec.Validate(d)
	}
	if err != nil {
		return fmt.Errorf("sidecar's config.json: %w", err)
	}
	return atomicfile.Write(filepath.Join(dir, "config.json"), data, 0o600, false)
}

// openFiles is how many files a process may open at most.
func openFiles() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 1024
	}
	return min(l.Max, 1<<16)
}

// sidecarSpec is the whole of what the sidecar has: no shell, no file of the
// host's, two capabilities, and the system calls that a Go program makes which
// opens sockets.
func sidecarSpec(router, netns string, files uint64) *specs.Spec {
	caps := []string{"CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE"}
	return &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: "rootfs", Readonly: true},
		Process: &specs.Process{
			Args: []string{routerPath, "serve"}, Cwd: "/",
			Env:             []string{"GOMAXPROCS=2", "GOGC=40", "GOMEMLIMIT=64MiB"},
			Capabilities:    &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits:         []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: files, Soft: files}, {Type: "RLIMIT_CORE"}},
			NoNewPrivileges: true,
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
			{Destination: routerPath, Type: "bind", Source: router, Options: []string{"bind", "ro", "nosuid", "nodev"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.MountNamespace},
				{Type: specs.PIDNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.NetworkNamespace, Path: netns},
			},
			MaskedPaths:   []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/acpi", "/proc/scsi", "/proc/sysrq-trigger"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"},
			Seccomp:       seccomp(),
		},
	}
}

func seccomp() *specs.LinuxSeccomp {
	refused := uint(unix.EPERM)
	names := strings.Fields(`accept4 arch_prctl bind brk capget capset chdir clock_gettime clock_nanosleep clone clone3 close close_range
		connect dup3 epoll_create1 epoll_ctl epoll_pwait eventfd2 execve exit exit_group faccessat2 fcntl fstat fstatfs futex
		getcwd getdents64 getegid geteuid getgid getpeername getpid getppid getrandom getrlimit getsockname getsockopt gettid
		getuid listen lseek madvise membarrier mincore mmap mprotect munmap nanosleep newfstatat openat pipe2 ppoll prctl
		prlimit64 read readlinkat recvfrom recvmmsg recvmsg restart_syscall rseq rt_sigaction rt_sigprocmask rt_sigreturn
		sched_getaffinity sched_yield sendfile sendmmsg sendmsg sendto set_robust_list set_tid_address setsockopt shutdown
		sigaltstack splice statx tgkill timer_create timer_delete timer_settime uname write writev`)
	rules := []specs.LinuxSyscall{{Names: names, Action: specs.ActAllow}}
	for _, family := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_NETLINK} {
		rules = append(rules, specs.LinuxSyscall{
			Names: []string{"socket"}, Action: specs.ActAllow,
			Args: []specs.LinuxSeccompArg{{Index: 0, Value: family, Op: specs.OpEqualTo}},
		})
	}
	return &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &refused, Syscalls: rules}
}

func runcArgs(dir string, args ...string) []string {
	return append([]string{"--root", filepath.Join(dir, "runc")}, args...)
}

// startSidecar runs the sidecar in ns, and returns once it has said that it is
// there.
func startSidecar(ctx context.Context, o Options, ns *os.File, event func(plan.Event)) (_ *sidecar, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	s := &sidecar{runc: o.Request.Sidecar, dir: o.Dir, id: "lazaret-net-" + o.Hash, done: make(chan struct{}), waiting: map[int]chan plan.Message{}}
	if err := writeRemains(o.Dir, "sidecar.json", remains{Sidecar: s.runc, ID: s.id}); err != nil {
		return nil, err
	}
	if err := bundle(filepath.Join(o.Dir, "bundle"), o.Router, ns); err != nil {
		return nil, fmt.Errorf("network sidecar: %w", err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("network sidecar: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "sidecar"), os.NewFile(uintptr(fds[1]), "control")
	defer func() { _ = errors.Join(ours.Close(), theirs.Close()) }() // conn has its own
	if s.conn, err = net.FileConn(ours); err != nil {
		return nil, fmt.Errorf("network sidecar: %w", err)
	}
	stderr, words, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("network sidecar: %w", err), s.conn.Close())
	}
	said := make(chan string, 1)
	go func() { said <- hear(stderr, o) }()
	pidFile := filepath.Join(o.Dir, "pid")
	cmd := exec.CommandContext(ctx, s.runc, runcArgs(o.Dir, "run", "--detach", "--preserve-fds", "1", "--pid-file", pidFile, "--bundle", filepath.Join(o.Dir, "bundle"), s.id)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "XDG_RUNTIME_DIR=" + o.Dir}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = words, words, []*os.File{theirs}
	err = cmd.Run()
	_, _ = words.Close(), theirs.Close() // the sidecar's now
	if err == nil {
		err = s.open(pidFile)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("network sidecar: %s run: %w", s.runc, err), s.conn.Close(), deleteSidecar(context.WithoutCancel(ctx), s.runc, s.dir, s.id))
		select {
		case last := <-said:
			err = fmt.Errorf("%w: %.500s", err, last)
		case <-time.After(endTime):
		}
		return nil, err
	}
	there := make(chan plan.Message, 1)
	s.waiting[0] = there
	go s.read(event, o)
	select {
	case <-there:
		return s, nil
	case <-s.done:
		err = errors.New("network sidecar: it ended at its start; see the domain's coordinator.log")
	case <-ctx.Done():
		err = fmt.Errorf("network sidecar: it does not answer: %w", ctx.Err())
	}
	return nil, errors.Join(err, s.stop(context.WithoutCancel(ctx)))
}

// open takes hold of the process.
func (s *sidecar) open(pidFile string) error {
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return err
	}
	if s.proc, err = proc.Open(pid); err != nil {
		return err
	}
	go func() {
		defer close(s.done)
		s.proc.Wait()
	}()
	return nil
}

func (s *sidecar) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// hear hands what sidecar and runtime write to the log, and returns the last line.
func hear(r *os.File, o Options) (last string) {
	defer func() { _ = r.Close() }() // only read
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadSlice('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			last = string(line)
			o.Log.Warn("network sidecar", "says", last)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return last
		}
	}
}

// read takes the sidecar's messages until its end.
func (s *sidecar) read(event func(plan.Event), o Options) {
	in := bufio.NewScanner(s.conn)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		var m plan.Message
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			o.Log.Error("network sidecar: message", "error", err)
			break
		}
		switch {
		case m.Event != nil:
			event(*m.Event)
		case m.Lost > 0:
			if o.Lost != nil {
				o.Lost(m.Lost)
			}
		default:
			s.mu.Lock()
			c := s.waiting[m.Seq]
			delete(s.waiting, m.Seq)
			s.mu.Unlock()
			if c != nil {
				c <- m
			}
		}
	}
	// One that is not heard any more is none: its end closes the links.
	_ = s.proc.Signal(unix.SIGKILL) // it may be gone
}

// tell has the sidecar make a Config true.
func (s *sidecar) tell(ctx context.Context, c plan.Config) (cut int, err error) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	answer := make(chan plan.Message, 1)
	s.mu.Lock()
	s.seq++
	seq := s.seq
	s.waiting[seq] = answer
	data, err := json.Marshal(plan.Message{Seq: seq, Config: &c})
	if err == nil {
		_ = s.conn.SetWriteDeadline(time.Now().Add(tellTime)) // sockets take deadlines
		_, err = s.conn.Write(append(data, '\n'))
	}
	s.mu.Unlock()
	if err == nil {
		select {
		case m := <-answer:
			if m.Error != "" {
				err = errors.New(m.Error)
			}
			cut = m.Cut
		case <-s.done:
			err = errors.New("it has ended")
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return 0, fmt.Errorf("network sidecar: %w", err)
	}
	return cut, nil
}

// stop ends the sidecar and removes what its runtime keeps of it.
func (s *sidecar) stop(ctx context.Context) error {
	if !s.ended() {
		_ = s.proc.Signal(unix.SIGKILL) // it may end by itself
		select {
		case <-s.done:
		case <-time.After(endTime):
		}
	}
	return s.remove(ctx)
}

// remove is for one that has ended.
func (s *sidecar) remove(ctx context.Context) error {
	_ = s.conn.Close() // the other end is gone
	return deleteSidecar(ctx, s.runc, s.dir, s.id)
}

func deleteSidecar(ctx context.Context, runc, dir, id string) error {
	if _, err := os.Lstat(filepath.Join(dir, "runc", id)); err != nil {
		return nil //nolint:nilerr // nothing is kept of it
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, runc, runcArgs(dir, "delete", "--force", id)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "XDG_RUNTIME_DIR=" + dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s delete %s: %w: %.300s", runc, id, err, bytes.TrimSpace(out))
	}
	return nil
}

func writeRemains(dir, name string, r remains) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, name), data, 0o600, false)
}
