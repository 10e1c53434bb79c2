package policy

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/wire"
)

// inSandbox is where a sandbox sees its workspace.
const inSandbox = "/workspace"

// maxLinks is the kernel's own bound for symbolic links in one path.
const maxLinks = 40

// fileID tells a file from any other, and from itself after a change.
type fileID struct {
	dev, ino uint64
	ctime    unix.Timespec // zero for a directory: files come and go in it
}

// trees are directories that agents write to.
type trees []tree

type tree struct {
	path string
	id   fileID // zero where it is not there
}

func openTrees(dirs []string) trees {
	var out trees
	for _, d := range dirs {
		if !path.IsAbs(d) {
			continue // "": the domain has no workspace
		}
		t := tree{path: path.Clean(d)}
		if real, err := filepath.EvalSymlinks(d); err == nil {
			t.path = real
		}
		var st unix.Stat_t
		if unix.Stat(t.path, &st) == nil {
			t.id = fileID{dev: st.Dev, ino: st.Ino}
		}
		out = append(out, t)
	}
	return out
}

// hold reports whether the absolute path p, whose directories are no symbolic
// links, is or lies in one of the trees, also where it is mounted elsewhere.
func (ts trees) hold(p string) bool {
	for dir := path.Clean(p); ; dir = path.Dir(dir) {
		var st unix.Stat_t
		err := unix.Lstat(dir, &st)
		for _, t := range ts {
			if dir == t.path || err == nil && t.id != (fileID{}) && t.id == (fileID{dev: st.Dev, ino: st.Ino}) {
				return true
			}
		}
		if dir == "/" {
			return false
		}
	}
}

// errAgents means that a path leads through a place that an agent writes to.
var errAgents = errors.New("leads through a directory that agents write to")

// real follows every symbolic link of the absolute path p and refuses one whose
// way, not only its end, leads through the trees: a link there can be bent at any
// time.
func (ts trees) real(p string) (string, error) {
	rest := strings.Split(path.Clean(p), "/")[1:]
	at := "/"
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, name)
		if ts.hold(next) {
			return "", errAgents
		}
		target, err := os.Readlink(next)
		if err != nil {
			if !errors.Is(err, unix.EINVAL) {
				return "", err
			}
			at = next // no symbolic link
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: %w", p, unix.ELOOP)
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

// executable resolves the absolute path p, which must lead to a program that no
// agent can write or bend.
func (ts trees) executable(p string) (string, fileID, error) {
	real, err := ts.real(p)
	if err != nil {
		return "", fileID{}, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(real, &st); err != nil {
		return "", fileID{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", fileID{}, errors.New("is no regular file")
	}
	if err := unix.Access(real, unix.X_OK); err != nil {
		return "", fileID{}, err
	}
	return real, fileID{dev: st.Dev, ino: st.Ino, ctime: st.Ctim}, nil
}

// find looks a command's program up: a name on the PATH list, of which only
// absolute entries that no agent writes to count, or an absolute path.
func (ts trees) find(list, name string) (string, fileID, error) {
	quoted := strconv.QuoteToASCII(name)
	switch {
	case name == "" || name == "." || name == "..":
		return "", fileID{}, fmt.Errorf("%s is no program's name", quoted)
	case path.IsAbs(name):
		real, id, err := ts.executable(name)
		if err != nil {
			return "", fileID{}, fmt.Errorf("program %s: %w", quoted, err)
		}
		return real, id, nil
	case strings.Contains(name, "/"):
		return "", fileID{}, fmt.Errorf("program %s: a relative path can lead into the workspace: name the program, or its absolute path", quoted)
	}
	skipped := false
	for _, dir := range filepath.SplitList(list) {
		if !path.IsAbs(dir) {
			continue
		}
		real, id, err := ts.executable(path.Join(dir, name))
		if err == nil {
			return real, id, nil
		}
		skipped = skipped || errors.Is(err, errAgents)
	}
	if skipped {
		return "", fileID{}, fmt.Errorf("program %s is on your PATH only where agents can write", quoted)
	}
	return "", fileID{}, fmt.Errorf("program %s is not on your PATH", quoted)
}

// shared tells why a program that no tree holds could still be an agent's to
// change; "" for none.
func (ts trees) shared(program string) string {
	var st unix.Stat_t
	if err := unix.Lstat(program, &st); err != nil {
		return "its program is out of reach"
	}
	switch {
	case st.Mode&0o002 != 0:
		return "everybody can write its program"
	case st.Nlink > 1 && int(st.Uid) == os.Geteuid() && st.Uid != 0:
		// Another name of the same file can lie in a workspace.
		return "its program has another name somewhere, and can be written there"
	}
	return ""
}

// CleanPath is the PATH list without what is not absolute and what leads to a
// place that agents write to.
func (h *Host) CleanPath(ask *wire.Ask) string {
	ts := openTrees(append(append([]string{}, h.Agents...), ask.Domain.Workspace))
	var out []string
	for _, dir := range filepath.SplitList(h.Path) {
		if !path.IsAbs(dir) {
			continue
		}
		if _, err := ts.real(dir); err == nil {
			out = append(out, dir)
		}
	}
	return strings.Join(out, ":")
}

// locate maps the sandbox's working directory to the host's. Where it leads out
// of the workspace, the workspace itself stands in for it; / does where there is
// none.
func (v *View) locate(ask *wire.Ask) {
	fd, err := openDir(ask)
	if err != nil {
		v.DirNote = "the working directory " + strconv.QuoteToASCII(ask.CWD) + " " + err.Error()
		fd, err = openFallback(ask)
	}
	if err == nil {
		v.Dir, v.dir, err = nameOf(fd)
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		v.Err = fmt.Errorf("no working directory: %w", err)
	}
}

func openDir(ask *wire.Ask) (int, error) {
	ws := ask.Domain.Workspace
	if ws == "" {
		return -1, errors.New("is none of the host's: the domain has no workspace")
	}
	rel := "."
	if cwd := ask.CWD; cwd != "" && cwd != inSandbox {
		below, found := strings.CutPrefix(cwd, inSandbox+"/")
		if !found {
			return -1, errors.New("is not in the workspace")
		}
		if rel = below; rel == "" {
			rel = "."
		}
	}
	root, err := openFallback(ask)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(root) }() // only looked at
	fd, err := unix.Openat2(root, rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
		return -1, errors.New("leads out of the workspace")
	case err != nil:
		return -1, fmt.Errorf("cannot be opened on the host: %w", err)
	}
	return fd, nil
}

func openFallback(ask *wire.Ask) (int, error) {
	dir := ask.Domain.Workspace
	if dir == "" {
		dir = "/"
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", dir, err)
	}
	return fd, nil
}

func nameOf(fd int) (string, fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fileID{}, err
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", fileID{}, err
	}
	return name, fileID{dev: st.Dev, ino: st.Ino}, nil
}
