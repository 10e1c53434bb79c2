package early

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// passThrough becomes the low-level runtime where lazaret-runtime is asked for
// something that is that one's alone, in the words that engines use, of a
// container whose call file tells which runtime it is and which flags it takes:
// internal/containerstate writes it. Everything else is Go's, which does the same
// for all spellings.
//
//go:nosplit
func passThrough(c *call, s *scratch) {
	id := c.plainID()
	if id == nil {
		return
	}
	n := readCall(c, s, text(id))
	// path NUL flag NUL … flag NUL: whole strings, the path absolute.
	if n < 2 || n == len(s.buf) || s.buf[0] != '/' || s.buf[n-1] != 0 {
		return
	}
	argc := 0
	for i := 0; i < n; argc++ {
		if argc+c.argc >= len(s.argv) {
			return
		}
		s.argv[argc] = &s.buf[i]
		for s.buf[i] != 0 {
			i++
		}
		i++
	}
	path := text(s.argv[0])
	if _, ok := put(&s.path, 0, path, 0); !ok {
		return
	}
	s.argv[0] = unsafe.StringData(base(path))
	for i := 1; i <= c.argc; i++ { // with the nil at the end
		s.argv[argc] = c.argv[i]
		argc++
	}
	execve(s, (*words)(unsafe.Pointer(&s.argv)), c.envp)
}

// plainID is the container's id in a call that begins with one of these verbs and
// has nothing else that needs to be understood; else nil.
//
//go:nosplit
func (c *call) plainID() *byte {
	if c.argc < 3 {
		return nil
	}
	at, more := 2, 0 // where the id is; how many words follow it
	switch text(c.argv[1]) {
	case "state", "start":
	case "delete":
		if text(c.argv[2]) == "--force" {
			at++
		}
	case "kill":
		if text(c.argv[2]) == "--all" {
			at++
		}
		more = 1
	default:
		return nil
	}
	if c.argc != at+1+more {
		return nil
	}
	for i := at; i < c.argc; i++ {
		if !plainWord(text(c.argv[i])) {
			return nil
		}
	}
	return c.argv[at]
}

// plainWord tells whether s is no flag, and can be the name of one file.
//
//go:nosplit
func plainWord(s string) bool {
	if len(s) == 0 || len(s) > 255 || s[0] == '-' || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		b := s[i]
		if (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && !holds("_+.-", b) {
			return false
		}
	}
	return true
}

// readCall reads a container's call file into s.buf and returns how many bytes it
// has, 0 for none. It looks where internal/hostenv does: in a runtime directory
// that is this user's own, else where root's is.
//
//go:nosplit
func readCall(c *call, s *scratch, id string) int {
	uid, _ := sys(unix.SYS_GETEUID, 0, 0, 0, 0)
	if xdg := text(c.getenv("XDG_RUNTIME_DIR=")); len(xdg) > 0 && xdg[0] == '/' {
		if n, ok := put(&s.buf, 0, xdg, 0); ok && stat(&s.buf[0], &s.st) == 0 && uintptr(s.st.Uid) == uid {
			s.buf[n-1] = '/'
			if n := readCallIn(s, n, id); n > 0 {
				return n
			}
		}
	}
	n, ok := put(&s.buf, 0, "/run/", 0)
	if !ok || stat(&s.buf[0], &s.st) != 0 || uintptr(s.st.Uid) != uid {
		return 0
	}
	return readCallIn(s, n-1, id)
}

//go:nosplit
func readCallIn(s *scratch, n int, id string) int {
	n, ok := put(&s.buf, n, "lazaret/containers", '/')
	if ok {
		n, ok = put(&s.buf, n, id, '/')
	}
	if ok {
		_, ok = put(&s.buf, n, "call", 0)
	}
	if !ok {
		return 0
	}
	fd, e := open(&s.buf[0], unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if e != 0 {
		return 0
	}
	n, e = read(fd, &s.buf)
	do(unix.SYS_CLOSE, fd, 0, 0, 0)
	if e != 0 {
		return 0
	}
	return n
}
