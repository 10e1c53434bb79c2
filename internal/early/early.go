// Package early owns what Lazaret's programs do before Go's runtime starts. The
// start of the runtime takes longer than most of what it would do there: a
// program that only becomes another one is done here, in a tenth of the time.
//
// The linker's flag -E _lazaret_entry makes the assembly function of that name a
// program's entry. It calls early, on the process's first stack: no allocation,
// no goroutine, no function that may grow its stack, which compiler and linker
// hold by go:nosplit. Where early has nothing to do, or is in any doubt, it
// returns and Go starts as ever; main then does the same the long way. Without the
// flag it always does.
package early

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scratchSize is what the entry gives.
const scratchSize = 16 << 10

// scratch is early's memory; what is in it at first is of no meaning.
type scratch struct {
	call     call
	git      git
	path     [4096]byte // of the program to become
	buf      [4096]byte
	argv     [512]*byte
	self, st syscall.Stat_t
}

const _ = uint(scratchSize - unsafe.Sizeof(scratch{}))

// words is a list of C strings that ends with nil.
type words = [1 << 16]*byte

// call is how this program was called.
type call struct {
	argc int
	argv *words
	envp *words
}

// early is the entry's.
//
//go:nosplit
func early(sp unsafe.Pointer, s *scratch) {
	c := &s.call // a variable of its own would be Go's to allocate
	c.argc = *(*int)(sp)
	if c.argc < 1 || c.argc >= len(words{}) {
		return
	}
	c.argv = (*words)(unsafe.Add(sp, 8))
	c.envp = (*words)(unsafe.Add(sp, 8*(c.argc+2)))
	switch base(text(c.argv[0])) {
	case "git":
		beforeGit(c, s)
	case "lazaret-runtime":
		passThrough(c, s)
	}
}

var _ = early // called by the entry alone

// getenv is a variable's value, nil where there is none. name ends with "=".
//
//go:nosplit
func (c *call) getenv(name string) *byte {
	for i := 0; i < len(c.envp) && c.envp[i] != nil; i++ {
		if v := after(c.envp[i], name); v != nil {
			return v
		}
	}
	return nil
}

// execve becomes the program at s.path. It returns where that failed.
//
//go:nosplit
func execve(s *scratch, argv, envp *words) {
	do(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&s.path)), uintptr(unsafe.Pointer(argv)), uintptr(unsafe.Pointer(envp)), 0)
}

//go:nosplit
func open(name *byte, flags uintptr) (uintptr, syscall.Errno) {
	at := unix.AT_FDCWD
	return sys(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(name)), flags|unix.O_CLOEXEC, 0o600)
}

// read fills buf as far as there is something to read.
//
//go:nosplit
func read(fd uintptr, buf *[4096]byte) (int, syscall.Errno) {
	for {
		n, e := sys(unix.SYS_READ, fd, uintptr(unsafe.Pointer(buf)), uintptr(len(buf)), 0)
		if e == unix.EINTR {
			continue
		}
		if e != 0 || n > uintptr(len(buf)) {
			return 0, unix.EIO
		}
		return int(n), 0
	}
}

//go:nosplit
func stat(name *byte, st *syscall.Stat_t) syscall.Errno {
	at := unix.AT_FDCWD
	_, e := sys(unix.SYS_NEWFSTATAT, uintptr(at), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(st)), 0)
	return e
}

//go:nosplit
func sys(number, a, b, c, d uintptr) (uintptr, syscall.Errno) {
	r, _, e := syscall.RawSyscall6(number, a, b, c, d, 0, 0)
	return r, e
}

// do is a system call of which nobody needs to know how it ended.
//
//go:nosplit
func do(number, a, b, c, d uintptr) {
	_, _, _ = syscall.RawSyscall6(number, a, b, c, d, 0, 0)
}

// text is the C string at p, "" for nil.
//
//go:nosplit
func text(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return unsafe.String(p, n)
}

// after is the rest of a C string that begins with prefix, else nil.
//
//go:nosplit
func after(p *byte, prefix string) *byte {
	for i := range len(prefix) {
		if *(*byte)(unsafe.Add(unsafe.Pointer(p), i)) != prefix[i] {
			return nil
		}
	}
	return (*byte)(unsafe.Add(unsafe.Pointer(p), len(prefix)))
}

// base is what comes after the last slash.
//
//go:nosplit
func base(s string) string {
	i := len(s)
	for i > 0 && s[i-1] != '/' {
		i--
	}
	return s[i:]
}

//go:nosplit
func holds(s string, b byte) bool {
	for i := range len(s) {
		if s[i] == b {
			return true
		}
	}
	return false
}

// put appends s and a byte to a path of n bytes, and is false where they do not
// fit.
//
//go:nosplit
func put(buf *[4096]byte, n int, s string, last byte) (int, bool) {
	if n+len(s)+1 > len(buf) {
		return n, false
	}
	for i := range len(s) {
		buf[n+i] = s[i]
	}
	buf[n+len(s)] = last
	return n + len(s) + 1, true
}
