package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ExecError tells that a container's command cannot be started. Its text is
// runc's, by which engines choose their exit code: podman 4 and 5 search it for
// "executable file not found in", "no such file or directory" (127) and
// "permission denied" (126), docker likewise and for the command's name.
type ExecError struct {
	Name   string // process.args[0]
	Reason string
	code   int
}

func (e *ExecError) Error() string { return fmt.Sprintf("exec: %q: %s", e.Name, e.Reason) }

// ExitCode is what a shell would exit with: 127 where there is no such command,
// 126 where it cannot be executed.
func (e *ExecError) ExitCode() int { return e.code }

func errMissing(name, full string) error {
	return &ExecError{name, "stat " + full + ": no such file or directory", 127}
}

func errNotOnPath(name string) error {
	return &ExecError{name, "executable file not found in $PATH", 127}
}

func errDenied(name, why string) error {
	return &ExecError{name, "permission denied (" + why + ")", 126}
}

// LookExecutable tells, before the container starts, whether its command exists:
// runsc finds out only at start, and in words that engines do not know. The
// container's files are the root file system, root.path of the bundle, the kept
// directories (Plan.State) and the bind mounts; symbolic links are resolved inside of them and never lead out.
//
// It returns an *ExecError where the command is definitely missing or not
// executable by anybody, and nil where it was found or cannot be judged from
// outside: on a tmpfs, an overlay or another kind of mount, or unreadable.
func LookExecutable(d *Document, bundle string, kept []Bind) error {
	args := d.Args()
	if len(args) == 0 {
		return nil // runsc has words for that
	}
	name := args[0]
	v := newView(d, bundle, kept)
	if v == nil {
		return nil
	}
	defer v.close(0)
	if strings.Contains(name, "/") {
		full := name
		if !path.IsAbs(name) {
			full = path.Join("/", d.Cwd(), name)
		}
		switch verdict := v.look(full); verdict {
		case missing:
			return errMissing(name, name)
		case notDirectory:
			return &ExecError{name, "stat " + name + ": not a directory", 126}
		case isDirectory:
			return errDenied(name, "it is a directory")
		case notExecutable:
			return errDenied(name, "it is not executable")
		}
		return nil
	}
	if name == "" || !v.onPath(d, name) {
		return errNotOnPath(name)
	}
	return nil
}

// HasProgram tells whether a program is on the container's PATH before it starts,
// as far as that can be judged from outside; see LookExecutable.
func HasProgram(d *Document, bundle string, kept []Bind, name string) bool {
	v := newView(d, bundle, kept)
	if v == nil {
		return true
	}
	defer v.close(0)
	return v.onPath(d, name)
}

func (v *view) onPath(d *Document, name string) bool {
	list, ok := d.Getenv("PATH")
	if !ok {
		list = standardPath
	}
	for _, dir := range strings.Split(list, ":") {
		if !path.IsAbs(dir) {
			continue // runsc skips these too
		}
		if verdict := v.look(path.Join(dir, name)); verdict == found || verdict == unknown {
			return true
		}
	}
	return false
}

type verdict int

const (
	unknown verdict = iota
	found
	missing
	notDirectory
	isDirectory
	notExecutable
)

// view is the container's file tree as it will be at its start: what is mounted
// where, by canonical path. Later mounts hide earlier ones at and below them.
type view struct {
	mounts map[string]int // a descriptor (O_PATH) of the host, or opaque
	fds    []int
	kept   []string // mount points of the kept directories
}

const (
	opaque = -1
	made   = -2 // a directory that the runtime makes on the way to a mount point
)

const pathFlags = unix.O_PATH | unix.O_CLOEXEC

// newView is nil where the root file system cannot be opened, which runsc will
// report, or is not what runsc will use.
func newView(d *Document, bundle string, kept []Bind) *view {
	for name := range d.notes {
		// These hints replace the root or mounts by images and memory.
		if strings.HasPrefix(name, "dev.gvisor.spec.") || strings.HasPrefix(name, "dev.gvisor.tar.") {
			return nil
		}
	}
	root := d.RootPath()
	if !filepath.IsAbs(root) {
		root = filepath.Join(bundle, root)
	}
	v := &view{mounts: make(map[string]int)}
	fd, err := v.open(unix.AT_FDCWD, root, pathFlags|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	v.mounts["/"] = fd
	for _, b := range kept {
		if coveredByMount(d, b.Destination) {
			continue
		}
		if fd, err = v.open(unix.AT_FDCWD, b.Source, pathFlags|unix.O_DIRECTORY); err != nil {
			fd = opaque
		}
		v.mounts[b.Destination] = fd
		v.kept = append(v.kept, b.Destination)
	}
	for _, m := range d.AskedMounts() {
		dest := path.Clean("/" + m.Destination)
		at, _, err := v.resolve(dest, true)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			at = dest // unseen: the text is all there is
		}
		fd := opaque
		if isBind(m) && !under(at, "/proc") && !under(at, "/sys") && !under(at, "/dev") {
			source := m.Source
			if !filepath.IsAbs(source) {
				source = filepath.Join(bundle, source)
			}
			if host, err := v.open(unix.AT_FDCWD, source, pathFlags); err == nil {
				fd = host
			}
		}
		for hidden := range v.mounts {
			if under(hidden, at) {
				delete(v.mounts, hidden)
			}
		}
		v.mounts[at] = fd
	}
	return v
}

func (v *view) open(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil {
			v.fds = append(v.fds, fd)
		}
		return fd, err
	}
}

// close gives back all descriptors but the first keep.
func (v *view) close(keep int) {
	for _, fd := range v.fds[keep:] {
		_ = unix.Close(fd)
	}
	v.fds = v.fds[:keep]
}

func (v *view) look(full string) verdict {
	if len(full) >= unix.PathMax {
		return unknown
	}
	defer v.close(len(v.fds))
	_, fd, err := v.resolve(full, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing
	case errors.Is(err, unix.ENOTDIR):
		return notDirectory
	case err != nil:
		return unknown
	}
	if fd == made {
		return isDirectory
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return unknown
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return isDirectory
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0:
		return notExecutable
	}
	return found
}

var errOpaque = errors.New("on a mount that cannot be seen from outside")

// resolve walks an absolute path as the kernel would in the container, one name
// at a time and never through a link of the host's. It returns the path without
// links, and a descriptor of what is there. With partial, names that do not exist
// keep their text, with fs.ErrNotExist: that is where a runtime makes mount points.
func (v *view) resolve(full string, partial bool) (clean string, fd int, err error) {
	root, err := v.at("/")
	if err != nil {
		return "", 0, err
	}
	type step struct {
		name string
		fd   int
	}
	var steps []step // from the root down to where we are
	here := func() (string, int) {
		if len(steps) == 0 {
			return "/", root
		}
		last := steps[len(steps)-1]
		return last.name, last.fd
	}
	todo := strings.Split(full, "/")
	links := 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(steps) > 0 {
				steps = steps[:len(steps)-1]
			}
			continue
		}
		dir, dirFD := here()
		next := path.Join(dir, name)
		fd, err := v.at(next)
		if errors.Is(err, fs.ErrNotExist) && dirFD != made { // no mount there
			fd, err = v.open(dirFD, name, pathFlags|unix.O_NOFOLLOW)
		}
		if errors.Is(err, fs.ErrNotExist) && v.leadsToMount(next) {
			steps = append(steps, step{next, made})
			continue
		}
		if err != nil {
			if partial && errors.Is(err, fs.ErrNotExist) {
				return path.Join(append([]string{next}, todo...)...), 0, err
			}
			return "", 0, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return "", 0, err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			steps = append(steps, step{next, fd})
			continue
		}
		if links++; links > 40 {
			return "", 0, unix.ELOOP
		}
		target, err := readlink(fd)
		if err != nil {
			return "", 0, err
		}
		if path.IsAbs(target) {
			steps = nil
		}
		todo = slices.Concat(strings.Split(target, "/"), todo)
	}
	clean, fd = here()
	return clean, fd, nil
}

// at is what is mounted exactly there.
func (v *view) at(name string) (int, error) {
	fd, ok := v.mounts[name]
	switch {
	case !ok:
		return 0, fs.ErrNotExist
	case fd == opaque:
		return 0, errOpaque
	}
	return fd, nil
}

func (v *view) leadsToMount(name string) bool {
	for mounted := range v.mounts {
		if under(mounted, name) {
			return true
		}
	}
	return false
}

// readlink reads the link that fd, opened with O_PATH and O_NOFOLLOW, refers to.
func readlink(fd int) (string, error) {
	buf := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	if n == len(buf) || n == 0 {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}
