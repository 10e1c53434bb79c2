// Package snapshot keeps copies of a domain's changes beside them, and puts others in
// their place. A process that is killed at any moment, and a machine that goes down,
// leaves the old changes or the new ones, never a mixture: Recover finishes what was
// begun.
//
// Preconditions of all but List and Exists: the domain's lock is held, nothing of the
// domain runs or is mounted, and the files' owners can be made (podman's user
// namespace, or root).
//
// In the Domain Root:
//
//	snapshots/<name>/          a snapshot: the items, and snapshot.json
//	snapshots/.making/         one that is being made
//	state_swap/                an exchange
//	state_swap/new/            what will take the place of the changes
//	state_swap/old/            the changes that were
//	state_swap/step.json       there once it is decided; tells how far it is
//	state_trash-<number>/      is being removed
package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/tree"
)

const (
	dirName   = "snapshots"
	making    = ".making"
	swapName  = "state_swap"
	trashName = "state_trash-"
	infoName  = "snapshot.json"
	stepName  = "step.json"
	// recordName is the State Anchor's record, part of the changes.
	recordName = "state.json"
	// apartPrefix begins the State Anchor's directories for changes over another
	// release, or by users of another user namespace.
	apartPrefix = "apart-"
)

// ErrNone is in the chain of an error about a snapshot, or changes, that are not there.
var ErrNone = errors.New("there is none")

// Info describes a snapshot.
type Info struct {
	Name string    `json:"name"`
	Made time.Time `json:"made"`
	tree.Copied
}

// CheckName refuses what is no name of a snapshot.
func CheckName(name string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`).MatchString(name) {
		return fmt.Errorf("snapshot name %q: want 1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit", name)
	}
	return nil
}

// item tells what in a Domain Root is part of the changes. What the drivers keep for
// themselves goes with them, but into no snapshot.
func item(name string) (part, kept bool) {
	switch {
	case name == recordName, strings.HasSuffix(name, "_changes"), strings.HasPrefix(name, apartPrefix):
		return true, true
	case strings.HasSuffix(name, "_changes.new"), strings.HasSuffix(name, "_work"), strings.HasPrefix(name, "."+recordName+".tmp-"):
		return true, false
	}
	return false, false
}

// items lists the parts of the changes in a directory, sorted; none where it is missing.
func items(dir string, all bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if part, kept := item(e.Name()); part && (kept || all) {
			found = append(found, e.Name())
		}
	}
	return found, nil
}

// Exists reports whether a Domain Root has changes.
func Exists(root string) (bool, error) {
	all, err := items(root, false)
	return len(all) > 0, err
}

// Size measures the changes.
func Size(ctx context.Context, root string) (tree.Stats, error) {
	all, err := items(root, false)
	if err != nil {
		return tree.Stats{}, fmt.Errorf("measure the changes: %w", err)
	}
	return measure(ctx, root, all)
}

func measure(ctx context.Context, dir string, all []string) (sum tree.Stats, err error) {
	for _, name := range all {
		if name == recordName {
			continue
		}
		s, err := tree.Measure(ctx, filepath.Join(dir, name))
		if err != nil {
			return sum, err
		}
		sum.Files += s.Files
		sum.Bytes += s.Bytes
	}
	return sum, nil
}

// Path is a snapshot's directory.
func Path(root, name string) string { return filepath.Join(root, dirName, name) }

// List lists the snapshots, the oldest first.
func List(root string) ([]Info, error) {
	dir := filepath.Join(root, dirName)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var all []Info
	for _, e := range entries {
		if CheckName(e.Name()) != nil {
			continue
		}
		i, err := Get(root, e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Info) int {
		if c := a.Made.Compare(b.Made); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all, nil
}

// Get describes one snapshot; ErrNone is in the error's chain where there is none.
func Get(root, name string) (i Info, err error) {
	if err := CheckName(name); err != nil {
		return i, err
	}
	path := filepath.Join(Path(root, name), infoName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return i, fmt.Errorf("snapshot %s: %w: lazaret state list shows what there is", name, ErrNone)
	}
	if err != nil {
		return i, fmt.Errorf("snapshot %s: %w", name, err)
	}
	if err := json.Unmarshal(data, &i); err != nil {
		return i, fmt.Errorf("snapshot %s: %s is damaged: %w", name, path, err)
	}
	i.Name = name
	return i, nil
}

func writeInfo(dir string, i Info) error {
	data, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return fmt.Errorf("describe the snapshot: %w", err)
	}
	return atomicfile.Write(filepath.Join(dir, infoName), append(data, '\n'), 0o600, true)
}

// Make copies the changes; the snapshot is there complete, or not at all. progress may
// be nil.
func Make(ctx context.Context, root, name string, progress func(tree.Stats)) (i Info, err error) {
	defer wrap(&err, "make snapshot %s", name)
	if err := free(root, name); err != nil {
		return i, err
	}
	if err := Recover(ctx, root); err != nil {
		return i, err
	}
	if has, err := Exists(root); err != nil || !has {
		return i, errors.Join(err, noChanges(has))
	}
	tmp := filepath.Join(root, dirName, making)
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return i, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, discard(context.WithoutCancel(ctx), root, tmp))
		}
	}()
	i = Info{Name: name, Made: time.Now().Round(time.Second)}
	if i.Copied, err = copyItems(ctx, root, tmp, progress); err != nil {
		return i, err
	}
	if err := writeInfo(tmp, i); err != nil {
		return i, err
	}
	if err := flush(root); err != nil {
		return i, err
	}
	if err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, Path(root, name), unix.RENAME_NOREPLACE); err != nil {
		return i, err
	}
	return i, syncDirs(filepath.Join(root, dirName))
}

func wrap(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf(format+": %w", append(args, *err)...)
	}
}

// free refuses a name that is taken or none.
func free(root, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := os.Lstat(Path(root, name)); err == nil {
		return fmt.Errorf("a snapshot of this name is there already: lazaret state rm %s removes it", name)
	}
	return nil
}

func noChanges(has bool) error {
	if has {
		return nil
	}
	return fmt.Errorf("changes: %w yet", ErrNone)
}

// copyItems copies the changes of one directory into another.
func copyItems(ctx context.Context, from, to string, progress func(tree.Stats)) (sum tree.Copied, err error) {
	all, err := items(from, false)
	if err != nil {
		return sum, err
	}
	for _, name := range all {
		if name == recordName {
			data, err := os.ReadFile(filepath.Join(from, name))
			if err == nil {
				err = atomicfile.Write(filepath.Join(to, name), data, 0o600, false)
			}
			if err != nil {
				return sum, err
			}
			continue
		}
		before := sum.Stats
		one, err := tree.Copy(ctx, filepath.Join(from, name), filepath.Join(to, name), func(s tree.Stats) {
			if progress != nil {
				progress(tree.Stats{Files: before.Files + s.Files, Bytes: before.Bytes + s.Bytes})
			}
		})
		if err != nil {
			return sum, err
		}
		sum.Files += one.Files
		sum.Bytes += one.Bytes
		sum.Shared = sum.Shared || one.Shared
	}
	return sum, nil
}

// syncDirs writes the names in directories to the disk: renames keep their order
// over a power cut. One that is missing is none.
func syncDirs(dirs ...string) error {
	for _, d := range dirs {
		f, err := os.Open(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = f.Sync()
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// flush writes a Domain Root's file system to the disk, with the copies in it.
func flush(root string) error {
	f, err := os.Open(root)
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(f.Fd()))
	return errors.Join(err, f.Close())
}

// Remove removes a snapshot.
func Remove(ctx context.Context, root, name string) (err error) {
	defer wrap(&err, "remove snapshot %s", name)
	if _, err := Get(root, name); errors.Is(err, ErrNone) {
		return err
	}
	if err := CheckName(name); err != nil {
		return err
	}
	if err := Recover(ctx, root); err != nil {
		return err
	}
	return discard(ctx, root, Path(root, name))
}

// discard takes something away in one step, and then removes it.
func discard(ctx context.Context, root, path string) error {
	if err := throw(root, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return sweep(ctx, root)
}

// throw moves something where sweep removes it.
func throw(root, path string) error {
	for n := 0; ; n++ {
		err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, filepath.Join(root, fmt.Sprintf("%s%d", trashName, n)), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// sweep removes what was thrown away.
func sweep(ctx context.Context, root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), trashName) {
			if err := tree.Remove(ctx, filepath.Join(root, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Restore puts a copy of a snapshot in the place of the changes, which are lost.
func Restore(ctx context.Context, root, name string, progress func(tree.Stats)) (err error) {
	defer wrap(&err, "restore snapshot %s", name)
	if _, err := Get(root, name); err != nil {
		return err
	}
	if err := Recover(ctx, root); err != nil {
		return err
	}
	fresh := filepath.Join(root, swapName, "new")
	if err := os.MkdirAll(fresh, 0o700); err != nil {
		return err
	}
	if _, err := copyItems(ctx, Path(root, name), fresh, progress); err != nil {
		return errors.Join(err, discard(context.WithoutCancel(ctx), root, filepath.Join(root, swapName)))
	}
	if err := flush(root); err != nil {
		return err
	}
	return exchange(ctx, root, step{})
}

// Reset takes the changes away.
func Reset(ctx context.Context, root string) (err error) {
	defer wrap(&err, "reset the changes")
	reset := func() error {
		if err := Recover(ctx, root); err != nil {
			return err
		}
		return exchange(ctx, root, step{})
	}
	err = reset()
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		if err = makeRoom(ctx, root); err == nil {
			err = reset()
		}
	}
	return err
}

// makeRoom takes the changes away where there is no room to write down that it is
// decided. The record goes first: without it nothing uses what a kill leaves of them.
func makeRoom(ctx context.Context, root string) error {
	for _, dir := range []string{root, filepath.Join(root, swapName, "old")} {
		all, err := items(dir, true)
		if err != nil {
			return err
		}
		slices.SortStableFunc(all, func(a, b string) int {
			return cmp.Compare(strings.Count(b, recordName), strings.Count(a, recordName))
		})
		for _, name := range all {
			if err := throw(root, filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return sweep(ctx, root)
}

// SetAside makes the changes a snapshot without a copy; none stay.
func SetAside(ctx context.Context, root, name string) (i Info, err error) {
	defer wrap(&err, "set the changes aside as snapshot %s", name)
	if err := free(root, name); err != nil {
		return i, err
	}
	if err := Recover(ctx, root); err != nil {
		return i, err
	}
	has, err := Exists(root)
	if err != nil || !has {
		return i, errors.Join(err, noChanges(has))
	}
	i = Info{Name: name, Made: time.Now().Round(time.Second)}
	if i.Stats, err = Size(ctx, root); err != nil {
		return i, err
	}
	return i, exchange(ctx, root, step{Keep: &i})
}

// TakeBack puts a snapshot itself in the place of the changes, which are lost; the
// snapshot is none any more.
func TakeBack(ctx context.Context, root, name string) (err error) {
	defer wrap(&err, "take snapshot %s back", name)
	if _, err := Get(root, name); err != nil {
		return err
	}
	if err := Recover(ctx, root); err != nil {
		return err
	}
	return exchange(ctx, root, step{From: name})
}

// step is how far an exchange is.
type step struct {
	// Cleared: what was is in old. Else it may partly be in its place.
	Cleared bool `json:"cleared"`
	// Keep makes a snapshot of what was.
	Keep *Info `json:"keep,omitempty"`
	// From is the snapshot that is taken back.
	From string `json:"from,omitempty"`
}

func (s step) write(root string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(root, swapName, stepName), data, 0o600, true)
}

// exchange puts what is in state_swap/new in the place of the changes.
func exchange(ctx context.Context, root string, s step) error {
	swap := filepath.Join(root, swapName)
	for _, d := range []string{"new", "old"} {
		if err := os.MkdirAll(filepath.Join(swap, d), 0o700); err != nil {
			return err
		}
	}
	if err := syncDirs(root, swap); err != nil {
		return err
	}
	if err := s.write(root); err != nil { // from here on there is no way back
		return err
	}
	if err := finish(context.WithoutCancel(ctx), root, s); err != nil {
		return err
	}
	if err := sweep(ctx, root); err != nil && ctx.Err() == nil {
		return err
	}
	return nil // what is left of it goes next time
}

// finish does what is left of an exchange. It can be stopped anywhere and done again.
func finish(ctx context.Context, root string, s step) error {
	swap := filepath.Join(root, swapName)
	fresh, old := filepath.Join(swap, "new"), filepath.Join(swap, "old")
	if s.From != "" {
		if err := moveItems(Path(root, s.From), fresh, false); err != nil {
			return err
		}
	}
	if !s.Cleared {
		if err := moveItems(root, old, true); err != nil {
			return err
		}
		s.Cleared = true
		if err := errors.Join(syncDirs(old, root), s.write(root)); err != nil {
			return err
		}
	}
	if err := moveItems(fresh, root, false); err != nil {
		return err
	}
	if err := syncDirs(root, fresh); err != nil {
		return err
	}
	if s.Keep != nil {
		if err := keep(ctx, root, old, *s.Keep); err != nil {
			return err
		}
	}
	if s.From != "" {
		// Its description is all that is left of it.
		if err := os.RemoveAll(Path(root, s.From)); err != nil {
			return err
		}
	}
	if err := syncDirs(filepath.Join(root, dirName), swap); err != nil {
		return err
	}
	return throw(root, swap)
}

// keep makes a snapshot of what was.
func keep(ctx context.Context, root, old string, i Info) error {
	if _, err := os.Lstat(old); errors.Is(err, fs.ErrNotExist) {
		return nil // done before
	}
	if err := os.MkdirAll(filepath.Join(root, dirName), 0o700); err != nil {
		return err
	}
	if err := writeInfo(old, i); err != nil {
		return err
	}
	entries, err := os.ReadDir(old)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if part, kept := item(e.Name()); part && !kept {
			if err := tree.Remove(ctx, filepath.Join(old, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Rename(old, Path(root, i.Name))
}

// moveItems moves the parts of the changes from one directory to another.
func moveItems(from, to string, all bool) error {
	parts, err := items(from, all)
	if err != nil {
		return err
	}
	for _, name := range parts {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// Recover finishes or takes back what a killed process has begun.
func Recover(ctx context.Context, root string) error {
	if err := Finish(ctx, root); err != nil {
		return err
	}
	for _, left := range []string{filepath.Join(root, swapName), filepath.Join(root, dirName, making)} {
		if err := discard(ctx, root, left); err != nil {
			return fmt.Errorf("remove what was interrupted: %w", err)
		}
	}
	return nil
}

// Finish is the part of Recover without which the changes must not be used. It costs
// one look-up where nothing was interrupted, and never long work.
func Finish(ctx context.Context, root string) error {
	swap := filepath.Join(root, swapName)
	s, decided, err := readStep(swap)
	if err == nil && decided {
		err = finish(ctx, root, s)
	}
	if err != nil {
		return fmt.Errorf("finish an exchange of the changes that was interrupted: %w", err)
	}
	return nil
}

// Interrupted reports whether an exchange waits for Finish.
func Interrupted(root string) bool {
	_, err := os.Lstat(filepath.Join(root, swapName, stepName))
	return err == nil
}

func readStep(swap string) (s step, decided bool, err error) {
	data, err := os.ReadFile(filepath.Join(swap, stepName))
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, false, err
	}
	if s.From != "" {
		err = CheckName(s.From)
	}
	if s.Keep != nil {
		err = errors.Join(err, CheckName(s.Keep.Name))
	}
	return s, true, err
}
