package stateanchor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/mountinfo"
)

const (
	// imageDir and emptyDir in the Domain Root: where the image's layers are
	// mounted while overlays are made of them, and what lies below a state path
	// that the image lacks.
	imageDir = "state_image"
	emptyDir = "state_empty"
	// maxRelease bounds os-release, in bytes.
	maxRelease = 64 << 10
)

// Layers finds the directories in which the files of a container's image are,
// the uppermost first, so that they outlive the container: those below its root
// file system where that is an overlay, else tree, the image's own copy, where the
// engine keeps one ("" for none), else the root file system itself. The
// container's own layer is never among them.
func Layers(rootfs, tree string) ([]string, error) {
	real, err := filepath.EvalSymlinks(rootfs)
	if err != nil {
		return nil, fmt.Errorf("find the image's layers: %w", err)
	}
	m, mounted, err := mountinfo.At(real)
	if err != nil {
		return nil, err
	}
	var lower []string
	switch {
	case mounted && m.FSType == "overlay":
		lower = lowerDirs(m.Options)
	case mounted && m.FSType == "fuse.fuse-overlayfs":
		// Its options are not told; engines keep them beside the mount.
		data, err := os.ReadFile(filepath.Join(filepath.Dir(real), "lower"))
		if err != nil {
			return nil, fmt.Errorf("find the image's layers: %w", err)
		}
		lower = strings.Split(strings.TrimSpace(string(data)), ":")
	case tree != "":
		return []string{tree}, nil
	default:
		return []string{real}, nil
	}
	if len(lower) == 0 {
		return nil, fmt.Errorf("find the image's layers: the overlay at %s tells no lower directory", real)
	}
	for i, d := range lower {
		if !filepath.IsAbs(d) { // from the engine's own directory: …/<id>/merged
			d = filepath.Join(filepath.Dir(filepath.Dir(real)), d)
		}
		if lower[i], err = filepath.EvalSymlinks(d); err != nil {
			return nil, fmt.Errorf("find the image's layers: %w", err)
		}
	}
	// docker puts a layer of each container's own between, with empty files where it
	// mounts its own (hosts, resolv.conf): moby's overlay2, <id>-init beside <id>.
	if len(lower) > 1 && lower[0] == filepath.Join(filepath.Dir(real)+"-init", "diff") {
		lower = lower[1:]
	}
	return lower, nil
}

// Tree is an image's files, read-only.
type Tree struct {
	root  *os.File // O_PATH
	point string   // where it is mounted; "" for a single layer
}

// OpenTree makes an image's files visible in a Domain Root, by a mount where it
// has several layers. driver is that of the domain. The tree must be closed;
// Clean takes away what a killed process left of it.
func OpenTree(root string, image Image, driver string) (*Tree, error) {
	layers := image.Layers
	switch len(layers) {
	case 0:
		return nil, errors.New("open the image: it has no layers")
	case 1:
		f, err := openDir(layers[0])
		if err != nil {
			return nil, fmt.Errorf("open the image: %w", err)
		}
		return &Tree{root: f}, nil
	}
	point := filepath.Join(root, imageDir)
	if err := os.MkdirAll(point, 0o700); err != nil {
		return nil, fmt.Errorf("open the image: %w", err)
	}
	err := mountLayers(point, layers)
	if err != nil && driver == DriverFUSE {
		return nil, fmt.Errorf("open the image of %d layers: the kernel does not join them (%w): build it as one layer (podman build --squash-all)", len(layers), err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the image: %w", err)
	}
	t := &Tree{point: point}
	if t.root, err = openDir(point); err != nil {
		return nil, errors.Join(fmt.Errorf("open the image: %w", err), t.Close())
	}
	return t, nil
}

// mountLayers joins directories, the uppermost first, at point.
func mountLayers(point string, layers []string) error {
	var dirs []string
	for _, l := range layers {
		f, err := openDir(l)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only looked up by
		dirs = append(dirs, fdPath(f))
	}
	options := "index=off,lowerdir=" + strings.Join(dirs, ":")
	if inUserNamespace() {
		options += ",userxattr" // as the engine's layers have it there
	}
	if err := unix.Mount("lazaret-image", point, "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount %d layers at %s: %w", len(layers), point, err)
	}
	return nil
}

// Open opens a directory of the image for reading or, with unix.O_PATH, as a
// handle. Symbolic links are followed within the image; name is absolute in it.
func (t *Tree) Open(name string, flags int) (*os.File, error) {
	fd, err := openat2(int(t.root.Fd()), name, flags)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Path is where the image's files are on this host, while the tree is open.
func (t *Tree) Path() (string, error) { return os.Readlink(fdPath(t.root)) }

// where is the canonical path in the image of something opened in it.
func (t *Tree) where(f *os.File) (string, error) {
	base, err := t.Path()
	if err != nil {
		return "", err
	}
	full, err := os.Readlink(fdPath(f))
	if err != nil {
		return "", err
	}
	rel, ok := strings.CutPrefix(full, strings.TrimSuffix(base, "/"))
	if !ok || rel == "" {
		return "", fmt.Errorf("%s is not in the image at %s", full, base)
	}
	return rel, nil
}

// Close lets go of the tree and unmounts it; overlays made of it stay.
func (t *Tree) Close() error {
	var errs []error
	if t.root != nil {
		errs = append(errs, t.root.Close())
	}
	if t.point != "" {
		if err := unix.Unmount(t.point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", t.point, err))
		} else {
			errs = append(errs, os.Remove(t.point))
		}
	}
	return errors.Join(errs...)
}

// Release reads the distribution's release; zero where the image tells none.
func (t *Tree) Release() (Release, error) {
	for _, name := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		f, err := t.Open(name, unix.O_RDONLY|unix.O_NONBLOCK)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Release{}, fmt.Errorf("read the image's release: %w", err)
		}
		data, err := io.ReadAll(io.LimitReader(f, maxRelease))
		_ = f.Close() // only read
		if err != nil {
			return Release{}, fmt.Errorf("read the image's release: %w", err)
		}
		return parseRelease(string(data)), nil
	}
	return Release{}, nil
}

func parseRelease(data string) (r Release) {
	for line := range strings.Lines(data) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		value = strings.Trim(value, `"'`)
		if len(value) > 128 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			continue
		}
		switch key {
		case "ID":
			r.ID = value
		case "VERSION_ID":
			r.VersionID = value
		case "VERSION_CODENAME":
			r.Codename = value
		case "PRETTY_NAME":
			r.Name = value
		}
	}
	return r
}

// openDir opens a directory as a handle.
func openDir(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openat2 opens a name as if root were the file system's root.
func openat2(root int, name string, flags int) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC), //nolint:gosec // flags are small and positive
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(root, name, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// fdPath names an open file for the kernel, whatever characters its path has.
func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// inUserNamespace reports whether the kernel takes us for an ordinary user: not
// all of the host's ids are mapped here.
func inUserNamespace() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || strings.Join(strings.Fields(string(data)), " ") != "0 0 4294967295"
}
