package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
)

// MountTargets looks where Lazaret's own mounts would come to lie. An image can
// have symbolic links on the way, by which the runtime would make mount points
// in a directory that the user has mounted, or put Lazaret's files over it: that
// is refused. The client's place is only left out then, as the sandbox is whole
// without it. What cannot be judged from outside is taken as it is written.
func MountTargets(d *Document, bundle string) (client bool, err error) {
	v := newView(d, bundle)
	if v == nil {
		return true, nil
	}
	defer v.close(0)
	for _, p := range []string{WorkspacePath, RunPath} {
		if to, astray := v.astray(p); astray {
			return false, fmt.Errorf("image refused: a symbolic link in it leads %s to %s, which lies in what is mounted at %s: use another image", p, to, v.mountOf(to))
		}
	}
	_, astray := v.astray(ClientPath)
	return !astray, nil
}

// astray reports whether a mount at p would land on another mount.
func (v *view) astray(p string) (to string, yes bool) {
	to, _, err := v.resolve(p, true)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if to == p || v.mountOf(to) == "/" {
		return to, false
	}
	return to, true
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
