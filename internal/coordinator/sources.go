package coordinator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// sourcesDir has what of the workspace single containers mount beside all of it,
// each in <container>/<number>. A path below the guard's mount would be resolved
// by the runtime once more, on the host: an agent of the same domain that had put
// a symbolic link there meanwhile would lead it anywhere.
func (c *Coordinator) sourcesDir() string { return filepath.Join(filepath.Dir(c.runDir), "sources") }

// mountSources mounts files and directories of the workspace, as the guard shows
// them, and returns where, by the path relative to the workspace.
func (c *Coordinator) mountSources(id string, rels []string) (map[string]string, error) {
	root, err := unix.Open(c.shownDir(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the guard's mount: %w", err)
	}
	defer func() { _ = unix.Close(root) }() // O_PATH
	at := map[string]string{}
	for i, rel := range rels {
		if at[rel] != "" {
			continue
		}
		if rel == "." {
			at[rel] = c.shownDir()
			continue
		}
		if at[rel], err = mountBelow(root, rel, filepath.Join(c.sourcesDir(), id), strconv.Itoa(i)); err != nil {
			return nil, fmt.Errorf("mount %s of the workspace: %w", rel, err)
		}
	}
	return at, nil
}

// mountBelow binds what is at rel below root, without following any link, to a
// new name in dir, which is ours.
func mountBelow(root int, rel, dir, name string) (string, error) {
	fd, err := unix.Openat2(root, rel, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ELOOP) {
		return "", fmt.Errorf("a symbolic link has come in its way since the engine looked: %w: look who changes it, and try again", err)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }() // O_PATH
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	target := filepath.Join(dir, name)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.MkdirAll(target, 0o700)
	} else if err = os.MkdirAll(dir, 0o700); err == nil {
		err = unix.Mknod(target, unix.S_IFREG|0o600, 0)
	}
	if err == nil {
		err = unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), target, "", unix.MS_BIND, "")
	}
	return target, err
}

// removeSources takes away what mountSources made for one container, or for all
// of them where id is "".
func (c *Coordinator) removeSources(id string) error { return removeSources(c.sourcesDir(), id) }

func removeSources(dir, id string) error {
	ids := []string{id}
	var errs []error
	if id == "" {
		all, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		ids = nil
		for _, e := range all {
			ids = append(ids, e.Name())
		}
	}
	for _, id := range ids {
		p := filepath.Join(dir, id)
		entries, err := os.ReadDir(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, err)
		for _, e := range entries {
			errs = append(errs, removeMountpoint(filepath.Join(p, e.Name())))
		}
		errs = append(errs, unix.Rmdir(p))
	}
	if id != "" {
		return errors.Join(errs...) // another container may be about to use dir
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
