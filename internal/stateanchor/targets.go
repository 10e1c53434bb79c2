package stateanchor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Target is a place in the container for a mount to lie on.
type Target struct {
	Path string // clean and absolute
	Dir  bool   // a directory, else a file
	Own  bool   // the engine's or Lazaret's: whatever the agent left there goes
}

// MakeTargets makes the targets that are missing in the kept directories, and
// writes down that they are nobody's changes. A runtime would make them too, but
// what an earlier session left in their place would keep the container from its
// start. A place that only the container's own file tree can tell, behind a
// symbolic link that leads out of the kept directory, is left to the runtime.
func (a *Anchor) MakeTargets(all []Target) error {
	made := len(a.Record.Targets)
	for _, b := range a.Binds {
		var root *os.Root
		for _, t := range all {
			if !under(t.Path, b.Destination) || t.Path == b.Destination {
				continue
			}
			if root == nil {
				var err error
				if root, err = os.OpenRoot(b.Source); err != nil {
					return fmt.Errorf("make mount targets: %w", err)
				}
				defer func() { _ = root.Close() }() // only looked up by
			}
			isNew, err := makeTarget(root, strings.TrimPrefix(t.Path, strings.TrimSuffix(b.Destination, "/")+"/"), t)
			if err != nil {
				return err
			}
			if isNew && !slices.Contains(a.Record.Targets, t.Path) {
				a.Record.Targets = append(a.Record.Targets, t.Path)
			}
		}
	}
	if len(a.Record.Targets) == made {
		return nil
	}
	return WriteRecord(a.root, a.Record)
}

// makeTarget works within root, out of which no link leads.
func makeTarget(root *os.Root, name string, t Target) (isNew bool, err error) {
	switch fi, err := root.Lstat(name); {
	case err == nil && fi.IsDir() == t.Dir && fi.Mode().Type()&fs.ModeSymlink == 0:
		return false, nil
	case err == nil && fi.Mode().Type() == fs.ModeSymlink && !t.Own:
		return false, nil // leads somewhere; the runtime follows it within the container
	case err == nil && !t.Own:
		return false, fmt.Errorf("%s, where this container has a mount, is %s that an earlier session left: remove it in a container without that mount, or mount elsewhere", t.Path, kindOf(fi))
	case err == nil:
		if err := root.RemoveAll(name); err != nil {
			return false, fmt.Errorf("clear %s for a mount: %w", t.Path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return false, nil // a file, or a link out of here, on the way
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return false, nil // likewise
	}
	if t.Dir {
		err = root.Mkdir(name, 0o755)
	} else {
		var f *os.File
		if f, err = root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
			err = f.Close()
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil // another container's, just now
	}
	if err != nil {
		return false, fmt.Errorf("make %s for a mount: %w", t.Path, err)
	}
	return true, nil
}

func kindOf(fi fs.FileInfo) string {
	switch {
	case fi.IsDir():
		return "a directory"
	case fi.Mode().IsRegular():
		return "a file"
	}
	return "something"
}

// CheckPersist refuses a path that cannot be a persist folder.
func CheckPersist(p string) error {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.ContainsAny(p, "\x00\n\r"):
		return fmt.Errorf("persist %q is not a clean absolute path below the root", p)
	case len(Name(p)) > maxName:
		return fmt.Errorf("persist %.40q… is too long: its name has %d bytes of at most %d", p, len(Name(p)), maxName)
	}
	for _, sys := range []string{"/proc", "/sys", "/dev", "/run", "/workspace"} {
		if under(p, sys) || under(sys, p) {
			return fmt.Errorf("persist %s: %s belongs to the sandbox or to the workspace", p, sys)
		}
	}
	return nil
}

// MakePersist returns the host directory of a profile's persist folder, which all
// of its domains share: made, private to its owner, where it is not there yet.
// What the agent puts into it is never looked at.
func MakePersist(dataRoot, profile, p string, uid, gid int) (string, error) {
	if profile == "domains" {
		return "", fmt.Errorf("profile %q would keep its folders among the Domain Roots: rename it", profile)
	}
	dir := filepath.Join(dataRoot, profile)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(dir, Name(p))
	fi, err := os.Lstat(name)
	if err == nil && fi.IsDir() {
		return name, nil
	}
	if err == nil {
		return "", fmt.Errorf("%s is not a directory: move it away", name)
	}
	unfinished, err := os.MkdirTemp(dir, "."+Name(p)+".new-*") // private
	if err != nil {
		return "", err
	}
	if err = os.Lchown(unfinished, uid, gid); err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, unfinished, unix.AT_FDCWD, name, unix.RENAME_NOREPLACE)
	}
	if errors.Is(err, unix.EEXIST) {
		return name, os.Remove(unfinished) // another container's, just now
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("make %s: %w", name, err), os.Remove(unfinished))
	}
	return name, nil
}
