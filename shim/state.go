package shim

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/imageinfo"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

// planState is what the profile keeps of the container's files, nil and empty in a
// domain without a workspace. What a mount of the user's covers is his.
func (s *shim) planState(r *request) (*wire.State, []wire.Persist, error) {
	if r.anchor.Workspace == "" {
		return nil, nil, nil
	}
	var persist []wire.Persist
	for _, p := range r.profile.Persist {
		if r.covered(p) {
			continue
		}
		if i := slices.IndexFunc(r.profile.StatePaths, func(sp string) bool { return inOrSame(sp, p) }); i >= 0 {
			return nil, nil, fmt.Errorf("persist %s of profile %q holds the state path %s: name the directories in it that are to be kept for the whole profile", p, r.profile.Name, r.profile.StatePaths[i])
		}
		uid, gid, err := r.owner()
		if err != nil {
			return nil, nil, fmt.Errorf("persist %s: %w", p, err)
		}
		persist = append(persist, wire.Persist{Path: p, UID: uid, GID: gid})
	}
	if len(r.profile.StatePaths) == 0 {
		return nil, persist, nil
	}
	image, err := r.imageOf()
	if err != nil {
		return nil, nil, err
	}
	st := &wire.State{
		Paths: r.profile.StatePaths, Driver: r.profile.StateDriver, RootFS: r.inBundle(r.doc.RootPath()), Tree: image.Tree,
		ImageName: image.Name, ImageID: image.ImageID, ImageDigest: image.Digest, IDMap: idMap(r.doc.UIDMappings()),
	}
	for _, m := range r.doc.AskedMounts() {
		if !isBind(m) || spec.IsOwn(m) {
			continue
		}
		fi, err := os.Stat(r.inBundle(m.Source))
		if err != nil {
			continue // told before, or the runtime's to tell
		}
		st.Targets = append(st.Targets, wire.Target{Path: path.Clean("/" + m.Destination), Dir: fi.IsDir(), Own: engineFile(m)})
	}
	for _, p := range persist {
		st.Targets = append(st.Targets, wire.Target{Path: p.Path, Dir: true})
	}
	st.Targets = append(st.Targets, wire.Target{Path: spec.ClientPath, Own: true})
	return st, persist, nil
}

// engineFile tells the files that engines make for each container.
func engineFile(m specs.Mount) bool {
	return slices.Contains([]string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}, path.Clean(m.Destination))
}

// covered reports whether a mount of the user's holds a path of the container.
func (r *request) covered(p string) bool {
	return slices.ContainsFunc(r.doc.AskedMounts(), func(m specs.Mount) bool {
		return !spec.IsOwn(m) && inOrSame(p, path.Clean("/"+m.Destination))
	})
}

// inOrSame tells whether p is dir or below it, both clean and absolute.
func inOrSame(p, dir string) bool { return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/") }

// imageOf is what the engine tells of the container's image; of engines other than
// podman nothing is known, and their layers tell images apart.
func (r *request) imageOf() (imageinfo.Info, error) {
	if r.image.ImageID != "" {
		return r.image, nil
	}
	info, err := imageinfo.FromBundle(r.bundle, os.Getenv)
	if err != nil && !errors.Is(err, imageinfo.ErrUnknown) {
		return imageinfo.Info{}, fmt.Errorf("find the container's image: %w", err)
	}
	return info, nil
}

// idMap is a container's user namespace as text, "" for none of its own.
func idMap(all []specs.LinuxIDMapping) string {
	var parts []string
	for _, m := range all {
		parts = append(parts, fmt.Sprintf("%d:%d:%d", m.ContainerID, m.HostID, m.Size))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// owner is who the container's process is, in the engine's user namespace.
func (r *request) owner() (uid, gid int, err error) {
	uid, err = mapID(r.doc.UIDMappings(), r.doc.UID())
	if err == nil {
		gid, err = mapID(r.doc.GIDMappings(), r.doc.GID())
	}
	return uid, gid, err
}

func mapID(all []specs.LinuxIDMapping, id uint32) (int, error) {
	if len(all) == 0 {
		return int(id), nil
	}
	for _, m := range all {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return int(m.HostID + (id - m.ContainerID)), nil
		}
	}
	return 0, fmt.Errorf("user or group %d of the container has no id in its user namespace", id)
}

// stateVisible checks that the kept directories are mounted in our mount namespace
// too; see visible.
func stateVisible(kept []wire.Bind) error {
	for _, b := range kept {
		var in, above unix.Stat_t
		err := unix.Stat(b.Source, &in)
		if err == nil {
			err = unix.Stat(filepath.Dir(b.Source), &above)
		}
		if err == nil && in.Dev == above.Dev {
			err = errors.New("it is not mounted here: the engine has changed its mount namespace since the domain began")
		}
		if err != nil {
			return fmt.Errorf("kept directory %s at %s: %w: end the domain's containers and try again", b.Destination, b.Source, err)
		}
	}
	return nil
}
