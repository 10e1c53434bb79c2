package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// MountTargets looks where Lazaret's own mounts would come to lie. An image can
// have symbolic links on the way, by which the runtime would make mount points
// in a directory that the user has mounted, or put Lazaret's files over it: that
// is refused. The client's place is only left out then, as the sandbox is whole
// without it. What an earlier session left in a kept directory is looked at
// likewise, for every mount that is to lie there. What cannot be judged from
// outside is taken as it is written.
func MountTargets(d *Document, bundle string, kept []Bind) (client bool, err error) {
	v := newView(d, bundle, kept)
	if v == nil {
		return true, nil
	}
	defer v.close(0)
	for _, p := range []string{WorkspacePath, RunPath} {
		if to, astray := v.astray(p); astray {
			return false, fmt.Errorf("image refused: a symbolic link in it leads %s to %s, which lies in what is mounted at %s: use another image", p, to, v.mountOf(to))
		}
	}
	for _, m := range d.AskedMounts() {
		p := destination(m.Destination)
		on := slices.IndexFunc(v.kept, func(k string) bool { return p != k && under(p, k) })
		if on < 0 || isOwn(m) {
			continue
		}
		to, _, err := v.resolve(p, true)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || to == p || v.mountOf(path.Dir(p)) != v.kept[on] {
			continue
		}
		if other := v.mountOf(path.Dir(to)); other != "/" && !slices.Contains(v.kept, other) {
			return false, fmt.Errorf("mount at %s refused: a symbolic link of the image, or one that an earlier session left, leads it to %s, which lies in what is mounted at %s: mount it there, or remove the link in a container without that mount", p, to, other)
		}
	}
	return v.clientFits(), nil
}

// astray reports whether a mount at p would land on another mount.
func (v *view) astray(p string) (to string, yes bool) {
	to, _, err := v.resolve(p, true)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	on := v.mountOf(to)
	if to == p || on == "/" || slices.Contains(v.kept, on) {
		return to, false
	}
	return to, true
}

// clientFits reports whether the client can be mounted at its place: a file is
// there or can be made there, and nothing of somebody's is covered by it.
func (v *view) clientFits() bool {
	if _, astray := v.astray(ClientPath); astray {
		return false
	}
	switch v.look(ClientPath) {
	case notDirectory, isDirectory:
		return false // of an image, or left by an earlier session
	case missing:
		_, fd, err := v.resolve(path.Dir(ClientPath), true)
		var st unix.Stat_t
		return err != nil || fd == made || unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	return true
}

// mountOf is the mount point that a canonical path is on.
func (v *view) mountOf(p string) string {
	for ; p != "/"; p = path.Dir(p) {
		if _, ok := v.mounts[p]; ok {
			return p
		}
	}
	return "/"
}
