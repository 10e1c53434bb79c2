package tree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/test/overlay"
)

// manifest has everything that a copy must keep, one line an entry.
func manifest(t *testing.T, root string) []string {
	t.Helper()
	firsts := map[uint64]string{}
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		rel := strings.TrimPrefix(path, root)
		line := fmt.Sprintf("%q %o %d:%d %d.%09d dev %d", rel, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec, st.Rdev)
		if !d.IsDir() {
			line += fmt.Sprintf(" size %d links %d", st.Size, st.Nlink)
			if first, found := firsts[st.Ino]; found {
				line += " like " + first
			} else {
				firsts[st.Ino] = rel
			}
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x blocks %d", sha256.Sum256(data), st.Blocks)
		case unix.S_IFLNK:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " to " + to
		}
		list := make([]byte, 4096)
		n, err := unix.Llistxattr(path, list)
		if err != nil {
			return err
		}
		attrs := strings.Split(strings.TrimRight(string(list[:n]), "\x00"), "\x00")
		slices.Sort(attrs)
		for _, a := range attrs {
			value := make([]byte, 4096)
			if n, err := unix.Lgetxattr(path, a, value); err == nil {
				line += fmt.Sprintf(" %s=%q", a, value[:n])
			}
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fill makes everything that a layer can hold.
func fill(t *testing.T, root string) {
	t.Helper()
	do := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(root, name) }
	do(
		os.MkdirAll(at("a/b/c"), 0o755), os.MkdirAll(at("opaque"), 0o700), os.Mkdir(at("secret"), 0o000),
		os.WriteFile(at("a/plain"), []byte(strings.Repeat("text", 5000)), 0o640), os.WriteFile(at("empty"), nil, 0o444),
		os.WriteFile(at("suid"), []byte("#!"), 0o755), os.Chmod(at("suid"), 0o4755|os.ModeSetuid),
		os.Link(at("a/plain"), at("a/b/other name")), os.Link(at("a/plain"), at("z")),
		os.Symlink("/etc/passwd", at("link")), os.Symlink("loop", at("loop")),
		unix.Mkfifo(at("fifo"), 0o620), unix.Mknod(at("gone"), unix.S_IFCHR, 0), os.Link(at("gone"), at("a/gone too")),
		unix.Mknod(at("sock"), unix.S_IFSOCK|0o700, 0),
		os.WriteFile(at("a/\x1b[2Jodd\n\xff"), []byte("x"), 0o600),
		unix.Setxattr(at("opaque"), "user.overlay.opaque", []byte("y"), 0),
		unix.Setxattr(at("a/plain"), "user.mine", []byte("a\x00b"), 0),
		// Version 2 of a file capability: CAP_NET_RAW, effective.
		unix.Setxattr(at("suid"), "security.capability", []byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0),
	)
	// A hole, data in the middle, a hole.
	f, err := os.Create(at("sparse"))
	do(err)
	_, err = f.WriteAt([]byte("middle"), 8<<20)
	do(err, f.Truncate(20<<20), f.Close())
	if overlay.ManyIDs() {
		do(os.Lchown(at("a/plain"), 1000, 33), os.Lchown(at("link"), 5, 6), os.Lchown(at("a/b"), 1000, 1000), os.Lchown(at("gone"), 7, 7))
	}
	for i, name := range []string{"a/plain", "link", "gone", "a/b", "a", "fifo", "."} {
		ts := []unix.Timespec{{Sec: int64(1000 + i), Nsec: 123456789}, {Sec: int64(2000 + i), Nsec: 987654321}}
		do(unix.UtimesNanoAt(unix.AT_FDCWD, at(name), ts, unix.AT_SYMLINK_NOFOLLOW))
	}
}

// A copy has everything, and does not change with the original.
func TestCopy(t *testing.T) {
	if !overlay.Inside(t) {
		return
	}
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.Mkdir(from, 0o751); err != nil {
		t.Fatal(err)
	}
	fill(t, from)
	want := manifest(t, from)
	calls := 0
	got, err := Copy(t.Context(), from, to, func(Stats) { calls++ })
	if err != nil {
		t.Fatal(err)
	}
	if copied := manifest(t, to); !slices.Equal(copied, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(copied, "\n"), strings.Join(want, "\n"))
	}
	if got.Files != len(want)-1 || calls != got.Files || got.Bytes <= 0 || got.Bytes > 10<<20 {
		t.Errorf("%+v, %d calls, %d entries", got, calls, len(want)-1)
	}
	if can := shares(t, dir); got.Shared != can {
		t.Errorf("shared: %v, but the file system can: %v", got.Shared, can)
	}
	// Overlays write in place.
	f, err := os.OpenFile(filepath.Join(from, "a/plain"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("overwritten"); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if copied := manifest(t, to); !slices.Equal(copied, want) {
		t.Error("the copy has changed with the original")
	}
	if _, err := Copy(t.Context(), from, to, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Copy(ctx, from, to+"2", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	s, err := Measure(t.Context(), to)
	if err != nil || s.Files != got.Files {
		t.Errorf("measured %+v, copied %+v, %v", s, got, err)
	}
	for _, d := range []string{from, to, to + "2", dir + "/none", filepath.Join(dir, "from")} {
		if err := Remove(t.Context(), d); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// shares reports whether the file system can share the data of two files.
func shares(t *testing.T, dir string) bool {
	t.Helper()
	a, err := os.CreateTemp(dir, "share")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.CreateTemp(dir, "share")
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.WriteString("data")
	if err := errors.Join(err, a.Sync()); err != nil {
		t.Fatal(err)
	}
	can := unix.IoctlFileClone(int(b.Fd()), int(a.Fd())) == nil
	if err := errors.Join(a.Close(), b.Close(), os.Remove(a.Name()), os.Remove(b.Name())); err != nil {
		t.Fatal(err)
	}
	t.Logf("the file system can share data: %v", can)
	return can
}

// deep makes a directory chain of n levels with a file at the end.
func deep(t *testing.T, dir string, n int) {
	t.Helper()
	at, err := openRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := openAt(at, "d", unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at)
		at = next
	}
	fd, err := unix.Openat(at, "lazaret-1", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = unix.Close(fd), unix.Close(at)
}

// However deep a tree is it can be removed, and what it links to stays.
func TestRemove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	root := filepath.Join(dir, "root")
	for _, d := range []string{outside, root, root + "/lazaret-2/full", root + "/closed/in"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(outside+"/kept", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(outside, root+"/link"), os.Symlink(outside, root+"/closed/in/link"), os.Chmod(root+"/closed/in", 0), os.Chmod(root+"/closed", 0)); err != nil {
		t.Fatal(err)
	}
	deep(t, root, 2500)
	if _, err := Copy(t.Context(), root, root+"2", nil); err == nil || !strings.Contains(err.Error(), "nested deeper") {
		t.Errorf("copy of a deep tree: %v", err)
	}
	if _, err := Measure(t.Context(), root); err != nil {
		t.Error(err)
	}
	for _, d := range []string{root, root + "2"} {
		if err := Remove(t.Context(), d); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(os.Symlink(outside, root), Remove(t.Context(), root)); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(outside + "/kept"); err != nil {
		t.Error(err)
	}
}

// What is mounted in a tree is not removed with it.
func TestRemoveMounted(t *testing.T) {
	if !overlay.Inside(t) {
		return
	}
	dir := t.TempDir()
	root, other := filepath.Join(dir, "root"), filepath.Join(dir, "other")
	if err := errors.Join(os.MkdirAll(root+"/a/b", 0o700), os.Mkdir(other, 0o700), unix.Mount("tmpfs", root+"/a/b", "tmpfs", 0, ""), os.WriteFile(root+"/a/b/kept", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), root); err == nil {
		t.Error("removed")
	}
	if _, err := os.Stat(root + "/a/b/kept"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(unix.Unmount(root+"/a/b", 0), Remove(t.Context(), root)); err != nil {
		t.Error(err)
	}
}
