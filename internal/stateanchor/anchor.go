package stateanchor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/mountinfo"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/snapshot"
)

// ErrBusy is in the chain of an error about changes that are mounted elsewhere.
var ErrBusy = errors.New("these changes are in use by another process")

// Options say what to mount.
type Options struct {
	Root   string   // the Domain Root
	Paths  []string // clean state paths; see CheckPaths
	Driver string   // DriverAuto, or one that must be used
	// Image is the containers' image, but for its Release.
	Image Image
	// Workspace is the domain's; one that has come to its path since is told of.
	Workspace string
	// IDMap describes the containers' user namespace, "" for the engine's own.
	IDMap string
}

// Bind is a mounted state path.
type Bind struct {
	Source      string // on the host
	Destination string // in the container, without symbolic links of the image's
}

// Anchor is the mounted state of one domain.
type Anchor struct {
	Record Record
	Binds  []Bind
	Notes  []string // what the developer should know

	root     string
	overlays []overlay
}

// apartPrefix begins the names of the directories, each laid out like a Domain
// Root, for the changes of containers that do not fit those in the Domain Root:
// of another release, or with a user namespace of their own, in which files belong
// to others.
const apartPrefix = "apart-"

// Open mounts the state paths over the image and returns once all are there; else
// none is. What was mounted in the Domain Root before is unmounted: preconditions
// are that nothing uses the domain, and that its coordinator calls.
func Open(ctx context.Context, o Options) (_ *Anchor, err error) {
	if err := CheckPaths(o.Paths); err != nil {
		return nil, err
	}
	if o.Root, err = filepath.EvalSymlinks(o.Root); err != nil {
		return nil, fmt.Errorf("open the state: %w", err)
	}
	if err := Clean(o.Root); err != nil {
		return nil, err
	}
	if err := snapshot.Finish(ctx, o.Root); err != nil {
		return nil, err
	}
	a := &Anchor{}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	tree, err := OpenTree(o.Root, o.Image, o.Driver)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tree.Close()) }() // the overlays keep their own hold of it
	old, fresh, err := a.choose(&o, tree)
	if err != nil {
		return nil, err
	}
	if a.Record, err = o.settle(ctx, old, fresh); err != nil {
		return nil, err
	}
	a.Record.Image, a.Record.Other = o.Image, nil
	if now := identity(o.Workspace); now != "" {
		if was := a.Record.Workspace; was != "" && was != now {
			a.Notes = append(a.Notes, fmt.Sprintf("%s is another directory than the one for which this domain's changes were made: lazaret state reset starts anew", o.Workspace))
		}
		a.Record.Workspace = now
	}
	if fresh || !reflect.DeepEqual(a.Record, old) {
		if err := WriteRecord(o.Root, a.Record); err != nil {
			return nil, err
		}
	}
	for _, p := range o.Paths {
		if err := a.mount(o.Root, p, tree); err != nil { //nolint:contextcheck // what serves it outlives the request
			if !fresh {
				err = fmt.Errorf("%w: the changes were made with %s, which must do it again; lazaret state reset starts anew", err, a.Record.Driver)
			}
			return nil, fmt.Errorf("state path %s: %w", p, err)
		}
	}
	return a, nil
}

// identity tells a directory from a later one at its path: by inode and time of
// birth, as devices change their numbers. "" where the file system keeps none.
func identity(dir string) string {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME, &st) != nil || st.Mask&unix.STATX_BTIME == 0 {
		return ""
	}
	return fmt.Sprintf("%d@%d.%09d", st.Ino, st.Btime.Sec, st.Btime.Nsec)
}

// settle decides the driver, and which paths have changes.
func (o Options) settle(ctx context.Context, old Record, fresh bool) (r Record, err error) {
	if fresh {
		for _, p := range o.Paths {
			changes, _, _ := Layout(o.Root, p)
			if _, err := os.Lstat(changes); err == nil {
				return r, fmt.Errorf("%s has changes but %s is missing, and nobody knows what they were made over: lazaret state reset starts anew", changes, filepath.Join(o.Root, RecordFile))
			}
		}
		r = Record{IDMap: o.IDMap, Paths: slices.Clone(o.Paths)}
		r.Driver, err = chooseDriver(ctx, o.Root, o.Driver)
		return r, err
	}
	r = old
	if o.Driver != "" && o.Driver != DriverAuto && o.Driver != r.Driver {
		return r, fmt.Errorf("state_driver is %q but this domain's changes were made with %q: set state_driver to that, or start anew by lazaret state reset", o.Driver, r.Driver)
	}
	if r.IDMap != o.IDMap {
		return r, fmt.Errorf("the changes in %s belong to users of another user namespace (%q, this container has %q): lazaret state reset starts anew", o.Root, r.IDMap, o.IDMap)
	}
	r.Paths = slices.Clone(old.Paths)
	for _, p := range o.Paths {
		if !slices.Contains(r.Paths, p) {
			r.Paths = append(r.Paths, p)
		}
	}
	if err := CheckPaths(r.Paths); err != nil {
		return r, fmt.Errorf("%w; the profile had other state_paths before, whose changes are kept: name those again, or start anew by lazaret state reset", err)
	}
	return r, nil
}

// choose finds the changes that fit the image and the user namespace, and makes
// o.Root their directory: the Domain Root, unless its changes were made over
// another release. It fills in the image's release and packages.
func (a *Anchor) choose(o *Options, tree *Tree) (old Record, fresh bool, err error) {
	if o.Image.Release, err = tree.Release(); err != nil {
		return old, false, err
	}
	domainRoot := o.Root
	a.root = domainRoot
	old, err = ReadRecord(domainRoot)
	fresh = errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return old, false, err
	}
	fits := fresh || old.Image.Key() == o.Image.Key() || old.Image.Release.Same(o.Image.Release)
	if !fits && o.IDMap == "" {
		used, err := old.used(domainRoot)
		if err != nil {
			return old, false, err
		}
		if fits = !used; used {
			a.Notes = append(a.Notes, fmt.Sprintf("image %s is %s, but what is kept of this domain was made over %s, which is %s: it is not in this container, and what changes here is kept apart; lazaret state rebase brings it over", o.Image, o.Image.Release, old.Image, old.Image.Release))
			other := o.Image
			if note := old; note.Other == nil || note.Other.Key() != other.Key() {
				note.Other = &other
				if err := WriteRecord(domainRoot, note); err != nil {
					return old, false, err
				}
			}
		}
	}
	if !fits || o.IDMap != "" {
		kind := o.Image.Release.ID + "\n" + o.Image.Release.VersionID + "\n" + o.Image.Release.Codename
		if !o.Image.Release.Same(o.Image.Release) {
			kind = o.Image.Key() // nobody knows what fits it
		}
		sum := sha256.Sum256([]byte(o.IDMap + "\n" + kind))
		o.Root = filepath.Join(domainRoot, apartPrefix+hex.EncodeToString(sum[:6]))
		a.root = o.Root
		if err := os.Mkdir(o.Root, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return old, false, err
		}
		old, err = ReadRecord(o.Root)
		if fresh = errors.Is(err, fs.ErrNotExist); err != nil && !fresh {
			return old, false, err
		}
	}
	return old, fresh, a.compare(o, old, tree, fresh)
}

// compare tells what is new of an image over which the changes may lie.
func (a *Anchor) compare(o *Options, old Record, tree *Tree, fresh bool) (err error) {
	same := !fresh && old.Image.Key() == o.Image.Key()
	if same && old.Image.Packages != "" {
		o.Image.Packages = old.Image.Packages
		return nil
	}
	if o.Image.Packages, err = tree.packages(); err != nil || fresh || same {
		return err
	}
	note := fmt.Sprintf("the image is now %s; the changes made over %s are kept", o.Image, old.Image)
	if old.Image.Packages != o.Image.Packages && old.hasPackages(o.Root) {
		note += "; its packages have changed and the kept package database does not tell: lazaret state rebase brings both together"
	}
	a.Notes = append(a.Notes, note)
	return nil
}

// used reports whether anything was changed: files, or directories other than the
// way to a mount target.
func (r Record) used(root string) (bool, error) {
	errUsed := errors.New("used")
	for _, p := range r.Paths {
		changes, _, _ := Layout(root, p)
		err := filepath.WalkDir(changes, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			in := p + strings.TrimPrefix(name, changes)
			if in == p || slices.ContainsFunc(r.Targets, func(t string) bool { return d.IsDir() && under(t, in) }) {
				return nil
			}
			if fi, err := d.Info(); err == nil && slices.Contains(r.Targets, in) && fi.Mode().IsRegular() && fi.Size() == 0 {
				return nil
			}
			return errUsed
		})
		switch {
		case errors.Is(err, errUsed):
			return true, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return false, fmt.Errorf("look for changes: %w", err)
		}
	}
	return false, nil
}

// databases are where package managers write down what is installed.
func databases() []string {
	return []string{"/var/lib/dpkg/status", "/lib/apk/db/installed", "/usr/lib/apk/db/installed", "/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite"}
}

// hasPackages reports whether the changes have a package database of their own.
func (r Record) hasPackages(root string) bool {
	for _, p := range r.Paths {
		changes, _, _ := Layout(root, p)
		for _, db := range databases() {
			if _, err := os.Lstat(filepath.Join(changes, db[min(len(p), len(db)):])); under(db, p) && err == nil {
				return true
			}
		}
	}
	return false
}

// packages is a sum over the image's package databases, never "".
func (t *Tree) packages() (string, error) {
	h := sha256.New()
	for _, db := range databases() {
		f, err := t.Open(db, unix.O_RDONLY|unix.O_NONBLOCK)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("read the image's packages: %w", err)
		}
		_, err = io.Copy(h, f)
		_ = f.Close() // only read
		if err != nil {
			return "", fmt.Errorf("read the image's packages: %s: %w", db, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// mount mounts one state path.
func (a *Anchor) mount(root, p string, tree *Tree) error {
	changes, work, merged := Layout(root, p)
	lower, dest, err := lowerOf(root, p, tree)
	if err != nil {
		return err
	}
	defer func() { _ = lower.Close() }() // only looked up by
	for _, b := range a.Binds {
		if under(dest, b.Destination) {
			return nil // the image leads this path into another one, which keeps it
		}
		if under(b.Destination, dest) {
			return fmt.Errorf("the image has it at %s, which holds %s: keep the outer one", dest, b.Destination)
		}
	}
	if sys := reserved(dest); sys != "" {
		return fmt.Errorf("the image has it at %s, and %s belongs to the sandbox or to the workspace", dest, sys)
	}
	if err := makeChanges(changes, lower); err != nil {
		return err
	}
	for _, d := range []string{work, merged} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	lock, err := lockDir(changes)
	if err != nil {
		return err
	}
	a.overlays = append(a.overlays, overlay{point: merged, lock: lock})
	workDir, err := openDir(work)
	if err != nil {
		return err
	}
	defer func() { _ = workDir.Close() }() // only looked up by
	server, err := mountOverlay(a.Record.Driver, lower, lock, workDir, merged)
	if err != nil {
		return err
	}
	a.overlays[len(a.overlays)-1].fuse = server
	a.Binds = append(a.Binds, Bind{Source: merged, Destination: dest})
	return nil
}

// lowerOf is the image's directory of a state path, and where in the image that
// is: links are followed within the image. One that the image lacks is empty.
func lowerOf(root, p string, tree *Tree) (lower *os.File, dest string, err error) {
	lower, err = tree.Open(p, unix.O_PATH|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		empty := filepath.Join(root, emptyDir)
		if err := os.Mkdir(empty, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // any user of the sandbox may look into it
			return nil, "", err
		}
		lower, err = openDir(empty)
		return lower, p, err
	case errors.Is(err, unix.ENOTDIR):
		return nil, "", errors.New("it is not a directory in the image: take it out of state_paths")
	case err != nil:
		return nil, "", fmt.Errorf("look for it in the image: %w", err)
	}
	if dest, err = tree.where(lower); err != nil {
		return nil, "", errors.Join(err, lower.Close())
	}
	return lower, dest, nil
}

// makeChanges makes the directory of the changes, with owner and mode of the
// image's: the merged directory shows these. It is there complete, or not at all.
func makeChanges(changes string, lower *os.File) error {
	if fi, err := os.Lstat(changes); err == nil {
		if !fi.IsDir() {
			return fmt.Errorf("%s is not a directory: lazaret state reset starts anew", changes)
		}
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(lower.Fd()), &st); err != nil {
		return fmt.Errorf("look at the image's directory: %w", err)
	}
	unfinished := changes + ".new"
	if err := os.RemoveAll(unfinished); err != nil { // a killed start's
		return err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	if err := os.Lchown(unfinished, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Chmod(unfinished, st.Mode&0o7777); err != nil {
		return fmt.Errorf("chmod %s: %w", unfinished, err)
	}
	return os.Rename(unfinished, changes)
}

// lockDir opens a directory of changes for the one mount that it may have.
func lockDir(changes string) (*os.File, error) {
	fd, err := unix.Open(changes, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: changes, Err: err}
	}
	f := os.NewFile(uintptr(fd), changes)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s is locked (%w): end what runs in this domain first", ErrBusy, changes, err), f.Close())
	}
	return f, nil
}

// Alive reports whether all overlays still serve.
func (a *Anchor) Alive() bool {
	return !slices.ContainsFunc(a.overlays, func(o overlay) bool { return o.fuse != nil && o.fuse.ended() })
}

// Watch calls f, each time from a goroutine of its own, when what serves a path of
// the container ends, for whatever reason; words are what it said. The kernel's
// overlays do not end by themselves.
func (a *Anchor) Watch(f func(path, words string)) {
	for _, o := range a.overlays {
		if o.fuse == nil {
			continue
		}
		i := slices.IndexFunc(a.Binds, func(b Bind) bool { return b.Source == o.point })
		path := a.Binds[i].Destination // each overlay of an open anchor has one
		go func() {
			<-o.fuse.done
			f(path, o.fuse.words.String())
		}()
	}
}

// Close unmounts everything, the last first, and gives the changes free.
func (a *Anchor) Close() error {
	var errs []error
	for _, o := range slices.Backward(a.overlays) {
		errs = append(errs, unmount(o.point))
		if o.fuse != nil {
			o.fuse.finish()
		}
		errs = append(errs, os.Remove(o.point), o.lock.Close())
	}
	a.overlays = nil
	return errors.Join(errs...)
}

// Abandon leaves the mounts to sandboxes that live on, and Clean to take them away
// after those; overlays of fuse-overlayfs end, and each access to them fails.
func (a *Anchor) Abandon() error {
	var errs []error
	for _, o := range a.overlays {
		if o.fuse != nil {
			o.fuse.kill()
		}
		errs = append(errs, o.lock.Close())
	}
	a.overlays = nil
	return errors.Join(errs...)
}

// Clean unmounts what a killed process has left mounted in a Domain Root, in this
// mount namespace. Nothing may use the domain.
func Clean(root string) error {
	points, err := Mounted(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range slices.Backward(points) {
		errs = append(errs, unmount(p))
	}
	for _, p := range points {
		if filepath.Base(filepath.Dir(p)) == probeDir {
			errs = append(errs, os.RemoveAll(filepath.Dir(p)))
		}
	}
	return errors.Join(errs...)
}

// Mounted are the mount points of the State Anchor's in a Domain Root, in this
// mount namespace, without symbolic links.
func Mounted(root string) ([]string, error) {
	root, err := filepath.EvalSymlinks(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for mounts: %w", err)
	}
	all, err := mountinfo.All()
	if err != nil {
		return nil, err
	}
	var points []string
	for _, m := range all {
		rel, err := filepath.Rel(root, m.Point)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if own(rel) && !slices.Contains(points, m.Point) {
			points = append(points, m.Point)
		}
	}
	return points, nil
}

// own tells the names of our mount points in a Domain Root.
func own(rel string) bool {
	if first, rest, ok := strings.Cut(rel, "/"); ok && strings.HasPrefix(first, apartPrefix) {
		rel = rest
	}
	merged, err := filepath.Match("*_merged", rel)
	return err == nil && merged || rel == imageDir || rel == filepath.Join(probeDir, "merged")
}
