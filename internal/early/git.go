package early

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refusalsFile is where the guard tells what it refused, one line a refusal,
// newest last, each beginning with its number. A test sets another by the linker.
var refusalsFile = "/run/lazaret/guard/refusals" //nolint:gochecknoglobals // the linker's -X needs a variable

const (
	selfFile    = "/proc/self/exe\x00"
	cannotStart = "lazaret: the git that was found on PATH cannot be started\n"
	noTracking  = "branch.autoSetupMerge=false\x00"
	optionC     = "-c\x00"
)

// kind is what may become of a call of git.
type kind int

const (
	harmless         kind = iota // writes nothing that can be refused
	mayWrite                     // whatever it is
	mayTrack                     // may make a branch that tracks another, unless told not to
	wouldWriteConfig             // does half of it before the config, which it cannot write
)

// GitOutcome is what became of a call of git before Go started.
type GitOutcome struct {
	Refused bool   // not run, as it would be left half done
	Ended   bool   // run to its end, and something was refused
	Verb    int    // its index in the arguments
	Before  uint64 // the number of the last refusal before git ran
	status  uint32 // wait4(2)'s
}

// Succeeded tells whether git has ended with status 0.
func (o GitOutcome) Succeeded() bool { return o.status == 0 }

// Finish ends this process as git has ended, by a signal too.
func (o GitOutcome) Finish() { finish(o.status) }

// gitOutcome is written before the runtime starts, and then no more.
var gitOutcome GitOutcome //nolint:gochecknoglobals // nothing else carries it over the start of the runtime

// Git is what became of a call of git; the zero GitOutcome where Go has to start
// it.
func Git() GitOutcome { return gitOutcome }

// RefusalsFile is where the guard tells what it refused.
func RefusalsFile() string { return refusalsFile }

// git is beforeGit's part of the scratch.
type git struct {
	call      gitCall
	info      siginfo
	oldMask   uint64
	oldAction sigaction
	status    uint32
}

// sigaction and siginfo are the kernel's, alike on both architectures.
type (
	sigaction struct{ handler, flags, restorer, mask uintptr }
	siginfo   struct {
		signo, errno, code, _ int32
		pid                   int32
		_                     [27]int32
	}
)

// gitCall is one call of git.
type gitCall struct {
	*call
	verb   int   // index of the first word that is no option, 0 for none
	dir    *byte // -C
	gitDir *byte // --git-dir or GIT_DIR
	odd    bool  // which repository it is about is not known
}

// beforeGit becomes git where nothing that it may do can be refused. Else it runs
// git, and returns where there is something to say.
//
//go:nosplit
func beforeGit(start *call, s *scratch) {
	c := &s.git.call
	*c = gitCall{call: start, gitDir: start.getenv("GIT_DIR=")}
	c.options()
	k := c.kind()
	var before uint64
	if k != harmless {
		n, ok := lastRefusal(s)
		if !ok {
			k = harmless // nobody refuses anything here
		}
		before = n
	}
	if k == wouldWriteConfig || k == mayTrack {
		if !c.configGuarded(s) {
			k = mayWrite
		}
		before, _ = lastRefusal(s) // the guard counts the question
	}
	if k == wouldWriteConfig {
		gitOutcome = GitOutcome{Refused: true, Verb: c.verb}
		return
	}
	if !c.find(s) {
		return
	}
	argv := c.argv
	if k == mayTrack && c.argc+3 <= len(s.argv) {
		s.argv[0], s.argv[1], s.argv[2] = c.argv[0], unsafe.StringData(optionC), unsafe.StringData(noTracking)
		for i := 1; i <= c.argc; i++ {
			s.argv[i+2] = c.argv[i]
		}
		argv = (*words)(unsafe.Pointer(&s.argv))
	}
	if k == harmless {
		execve(s, argv, c.envp)
		return
	}
	if !run(s, argv) {
		return
	}
	after, ok := lastRefusal(s)
	if ok && after == before {
		finish(s.git.status)
	}
	gitOutcome = GitOutcome{Ended: true, Verb: c.verb, Before: before, status: s.git.status}
}

// options reads git's own options, which come before the verb.
//
//go:nosplit
func (c *gitCall) options() {
	for i := 1; i < c.argc; i++ {
		a := text(c.argv[i])
		if len(a) == 0 || a[0] != '-' {
			c.verb = i
			return
		}
		switch a {
		case "-C":
			i++
			c.odd = c.odd || c.dir != nil
			c.dir = c.argv[i]
		case "--git-dir":
			i++
			c.gitDir = c.argv[i]
		case "-c", "--work-tree", "--namespace", "--config-env", "--super-prefix", "--attr-source":
			i++
		default:
			if v := after(c.argv[i], "--git-dir="); v != nil {
				c.gitDir = v
			}
		}
	}
}

// kind judges a call by its words alone.
//
//go:nosplit
func (c *gitCall) kind() kind {
	if c.verb == 0 {
		return harmless // git --version
	}
	refused := false
	switch text(c.argv[c.verb]) {
	case "status", "log", "diff", "show", "rev-parse", "cat-file", "ls-files", "ls-tree", "blame", "grep",
		"describe", "rev-list", "for-each-ref", "merge-base", "name-rev", "shortlog", "show-ref", "show-branch",
		"diff-tree", "diff-index", "diff-files", "check-ignore", "check-attr", "check-ref-format", "var", "version",
		"help", "hash-object", "count-objects", "whatchanged", "annotate", "cherry", "range-diff", "ls-remote",
		"archive", "patch-id", "stripspace", "interpret-trailers", "verify-commit", "verify-tag", "fsck":
		return harmless
	case "branch":
		refused = c.has('m', "--move", 5, "u") || c.has('M', "", 0, "u") || c.has('c', "--copy", 6, "u") ||
			c.has('C', "", 0, "u") || c.has('t', "--track", 3, "u") ||
			c.has('u', "--set-upstream-to", 4, "") || c.has(0, "--unset-upstream", 3, "")
	case "checkout":
		refused = c.has('t', "--track", 4, "bB")
	case "switch":
		refused = c.has('t', "--track", 4, "cC")
	case "worktree":
		refused = c.has(0, "--track", 4, "bB")
	case "push":
		refused = c.has('u', "--set-upstream", 5, "o")
		if !refused {
			return mayWrite
		}
	case "fetch", "pull":
		refused = c.has(0, "--set-upstream", 7, "")
		if !refused {
			return mayWrite
		}
	case "submodule":
		switch c.word() {
		case "add", "deinit", "set-url", "absorbgitdirs":
			return wouldWriteConfig
		}
		return mayWrite
	case "remote":
		switch c.word() {
		case "rm", "remove":
			return wouldWriteConfig
		}
		return mayWrite
	case "sparse-checkout":
		if c.word() == "disable" {
			return wouldWriteConfig
		}
		return mayWrite
	default:
		return mayWrite
	}
	if refused {
		return wouldWriteConfig
	}
	return mayTrack
}

// has tells whether an option is among the verb's: a short one alone or with
// others, or a long one of which at least least bytes are given. What follows a
// letter of valued is that option's value.
//
//go:nosplit
func (c *gitCall) has(short byte, long string, least int, valued string) bool {
	for i := c.verb + 1; i < c.argc; i++ {
		a := text(c.argv[i])
		if len(a) < 2 || a[0] != '-' {
			continue
		}
		if a == "--" {
			return false
		}
		if a[1] == '-' {
			n := 2
			for n < len(a) && a[n] != '=' {
				n++
			}
			if least > 0 && n >= least && n <= len(long) && a[:n] == long[:n] {
				return true
			}
			continue
		}
		for j := 1; j < len(a) && !holds(valued, a[j]); j++ {
			if a[j] == short {
				return true
			}
		}
	}
	return false
}

// word is the first word after the verb that is no option.
//
//go:nosplit
func (c *gitCall) word() string {
	for i := c.verb + 1; i < c.argc; i++ {
		if a := text(c.argv[i]); len(a) > 0 && a[0] != '-' {
			return a
		}
	}
	return ""
}

// configGuarded tells whether the guard keeps the config of the repository that
// the call is about. A git directory elsewhere, to which a file leads, is taken for
// one that it keeps.
//
//go:nosplit
func (c *gitCall) configGuarded(s *scratch) bool {
	if c.odd {
		return false
	}
	n, ok := 0, true
	if c.dir != nil {
		n, ok = put(&s.buf, n, text(c.dir), '/')
	}
	if c.gitDir != nil {
		dir := text(c.gitDir)
		if len(dir) > 0 && dir[0] == '/' {
			n = 0
		}
		if n, ok = put(&s.buf, n, dir, '/'); ok {
			_, ok = put(&s.buf, n, "config.worktree.lock", 0)
		}
		return ok && lock(&s.buf) == unix.EROFS
	}
	for range 64 {
		if !ok {
			return false
		}
		if _, ok := put(&s.buf, n, ".git/config.worktree.lock", 0); !ok {
			return false
		}
		switch lock(&s.buf) {
		case unix.ENOENT:
			n, ok = put(&s.buf, n, "..", '/')
		case unix.EROFS, unix.ENOTDIR:
			return true
		default:
			return false
		}
	}
	return false
}

// lock is the error that git would get when it begins to change a working tree's
// config, which the guard keeps as it keeps the repository's. Where there is none the
// lock is taken and given back.
//
//go:nosplit
func lock(name *[4096]byte) syscall.Errno {
	fd, e := open(&name[0], unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if e == 0 {
		do(unix.SYS_CLOSE, fd, 0, 0, 0)
		at := unix.AT_FDCWD
		do(unix.SYS_UNLINKAT, uintptr(at), uintptr(unsafe.Pointer(name)), 0, 0)
	}
	return e
}

// lastRefusal is the number of the last line of the guard's file, 0 where there
// is none yet; ok is false where there is no guard.
//
//go:nosplit
func lastRefusal(s *scratch) (number uint64, ok bool) {
	if _, ok := put(&s.buf, 0, refusalsFile, 0); !ok {
		return 0, false
	}
	fd, e := open(&s.buf[0], unix.O_RDONLY)
	if e != 0 {
		return 0, false
	}
	var current uint64
	digits := true // so far, in this line
	for {
		n, e := read(fd, &s.buf)
		if e != 0 || n == 0 {
			break
		}
		for _, b := range s.buf[:n] {
			switch {
			case b == '\n':
				current, digits = 0, true
			case digits && b >= '0' && b <= '9':
				current = current*10 + uint64(b-'0')
			case digits:
				number, digits = current, false
			}
		}
	}
	do(unix.SYS_CLOSE, fd, 0, 0, 0)
	return number, true
}

// find puts into s.path the first git on PATH that is another program than this.
//
//go:nosplit
func (c *gitCall) find(s *scratch) bool {
	search := c.getenv("PATH=")
	if search == nil || stat(unsafe.StringData(selfFile), &s.self) != 0 {
		return false
	}
	list := text(search)
	for from := 0; from <= len(list); {
		to := from
		for to < len(list) && list[to] != ':' {
			to++
		}
		dir := list[from:to]
		from = to + 1
		if len(dir) == 0 {
			dir = "."
		}
		n, ok := put(&s.path, 0, dir, '/')
		if ok {
			_, ok = put(&s.path, n, "git", 0)
		}
		if !ok || stat(&s.path[0], &s.st) != 0 {
			continue
		}
		if s.st.Mode&unix.S_IFMT == unix.S_IFREG && s.st.Mode&0o111 != 0 &&
			(s.st.Dev != s.self.Dev || s.st.Ino != s.self.Ino) {
			return true
		}
	}
	return false
}

// run runs git as a child to its end. Signals and the terminal work as without
// this process: both are in one process group; what is sent to this process alone
// is handed on, and it stops and ends as the child does. It returns false where
// nothing was run.
//
//go:nosplit
func run(s *scratch, argv *words) bool {
	// Everything is blocked and waited for. SIGCHLD comes only where it is not
	// ignored.
	all := ^uint64(0)
	do(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&s.git.oldMask)), 8)
	var action sigaction
	do(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&action)), uintptr(unsafe.Pointer(&s.git.oldAction)), 8)
	self, _ := sys(unix.SYS_GETPID, 0, 0, 0, 0)
	child, e := sys(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0)
	if e == 0 && child == 0 {
		// Who kills this process means git.
		do(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0)
		if parent, _ := sys(unix.SYS_GETPPID, 0, 0, 0, 0); parent == self {
			restore(s)
			execve(s, argv, s.call.envp)
			do(unix.SYS_WRITE, 2, uintptr(unsafe.Pointer(unsafe.StringData(cannotStart))), uintptr(len(cannotStart)), 0)
		}
		do(unix.SYS_EXIT_GROUP, 126, 0, 0, 0)
	}
	if e != 0 {
		restore(s)
		return false
	}
	for {
		sig, e := sys(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&s.git.info)), 0, 8)
		if e != 0 {
			continue
		}
		if syscall.Signal(sig) != unix.SIGCHLD {
			// The terminal's go to the whole group.
			if s.git.info.code <= 0 && uintptr(s.git.info.pid) != child {
				do(unix.SYS_KILL, child, sig, 0, 0)
			}
			continue
		}
		pid, e := sys(unix.SYS_WAIT4, child, uintptr(unsafe.Pointer(&s.git.status)), unix.WNOHANG|unix.WUNTRACED, 0)
		if e != 0 || pid != child {
			continue
		}
		if syscall.WaitStatus(s.git.status).Stopped() {
			do(unix.SYS_KILL, self, uintptr(unix.SIGSTOP), 0, 0)
			continue
		}
		restore(s)
		return true
	}
}

// restore undoes what run changed for this process.
//
//go:nosplit
func restore(s *scratch) {
	do(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&s.git.oldAction)), 0, 8)
	do(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&s.git.oldMask)), 0, 8)
}

// finish ends this process as git has ended.
//
//go:nosplit
func finish(status uint32) {
	w := syscall.WaitStatus(status)
	if w.Signaled() { //nolint:misspell // the standard library's spelling
		sig := uintptr(w.Signal())
		mask := uint64(1) << (sig - 1)
		var action sigaction
		do(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0) // git's core is enough
		do(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8)
		do(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&mask)), 0, 8)
		self, _ := sys(unix.SYS_GETPID, 0, 0, 0, 0)
		do(unix.SYS_KILL, self, sig, 0, 0)
		do(unix.SYS_EXIT_GROUP, 128+sig, 0, 0, 0)
	}
	do(unix.SYS_EXIT_GROUP, uintptr(w.ExitStatus()), 0, 0, 0)
}
