package policy

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
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
	id   fileID // of no file where it is not there
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

// root reports whether the directory p, or file, is one of the trees' roots, also
// where that is mounted elsewhere.
func (ts trees) root(p string, st *unix.Stat_t) bool {
	for _, t := range ts {
		if p == t.path || t.id == (fileID{dev: st.Dev, ino: st.Ino}) {
			return true
		}
	}
	return false
}

// errAgents means that a path leads through a place that an agent writes to.
var errAgents = errors.New("leads through a directory that agents write to")

// real follows every symbolic link of the absolute path p and refuses one whose
// way, not only its end, leads through the trees: a link there can be bent at any
// time.
func (ts trees) real(p string) (string, unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Lstat("/", &st); err != nil {
		return "", st, err
	}
	if ts.root("/", &st) {
		return "", st, errAgents
	}
	at, links := "/", 0
	for rest := strings.Split(p, "/"); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at) // no link, and looked at before
			if err := unix.Lstat(at, &st); err != nil {
				return "", st, err
			}
			continue
		}
		next := path.Join(at, name)
		err := unix.Lstat(next, &st)
		switch {
		case ts.root(next, &st): // whether it is there or not
			return "", st, errAgents
		case err != nil:
			return "", st, err
		case st.Mode&unix.S_IFMT != unix.S_IFLNK:
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", st, err
		}
		if links++; links > maxLinks {
			return "", st, unix.ELOOP
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, st, nil
}

// executable resolves the absolute path p, which must lead to a program that no
// agent can write or bend.
func (ts trees) executable(p string) (string, fileID, error) {
	real, st, err := ts.real(p)
	if err != nil {
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
		real, id, err := ts.executable(dir + "/" + name) // not cleaned: dots after a link are its target's
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

// Leads returns a function that tells whether a variable's value names a place
// that agents write to, alone, in a list, or somewhere in a text.
func (h *Host) Leads(ask *wire.Ask) func(value string) bool {
	ts := h.trees(ask)
	return func(value string) bool {
		for _, t := range ts {
			if strings.Contains(value+"/", t.path+"/") {
				return true
			}
		}
		for _, p := range filepath.SplitList(value) {
			if !path.IsAbs(p) {
				continue
			}
			if _, _, err := ts.real(p); errors.Is(err, errAgents) {
				return true
			}
		}
		return false
	}
}

func (h *Host) trees(ask *wire.Ask) trees {
	return openTrees(append(slices.Clone(h.Agents), ask.Domain.Workspace))
}

// CleanPath is the PATH list without what is not absolute and what leads to a
// place that agents write to.
func (h *Host) CleanPath(ask *wire.Ask) string {
	ts := h.trees(ask)
	var out []string
	for _, dir := range filepath.SplitList(h.Path) {
		if !path.IsAbs(dir) {
			continue
		}
		if _, _, err := ts.real(dir); err == nil {
			out = append(out, dir)
		}
	}
	return strings.Join(out, ":")
}

// locate maps the sandbox's working directory to the host's. Where it leads out
// of the workspace, the workspace itself stands in for it; / does where there is
// none.
func (v *View) locate(ask *wire.Ask) error {
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
		return fmt.Errorf("no working directory: %w", err)
	}
	return nil
}

// OpenDir opens the directory that v says, as long as it is the same one.
func (v *View) OpenDir(ask *wire.Ask) (*os.File, error) {
	open := openDir
	if v.DirNote != "" {
		open = openFallback
	}
	fd, err := open(ask)
	if err != nil {
		return nil, fmt.Errorf("the working directory %w", err)
	}
	if name, id, err := nameOf(fd); err != nil || name != v.Dir || id != v.dir {
		return nil, errors.Join(errors.New("the working directory has changed since it was looked at"), err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), v.Dir), nil
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
		if rel = strings.TrimLeft(below, "/"); rel == "" {
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
