package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Copied says what Copy did.
type Copied struct {
	Stats
	// Shared reports that the files' data is shared with the original until one of
	// both is written to (FICLONE, ioctl_ficlone(2)).
	Shared bool `json:"shared"`
}

// Copy copies a tree to a path that is not there yet, on the same file system, with
// all that an overlay's layer has: owners, modes, times, extended attributes, hard
// links, holes, devices 0:0. Data is shared where the file system can. progress, if
// not nil, is called after each entry. When it fails, what it has made is left for
// the caller to remove.
//
// It never makes hard links to the original: an overlay writes into the files of its
// upper layer, and would write into the copy.
func Copy(ctx context.Context, from, to string, progress func(Stats)) (Copied, error) {
	c := &copier{ctx: ctx, links: map[inode]string{}, clone: true, progress: progress}
	if err := c.all(from, to); err != nil {
		return Copied{}, fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return Copied{c.stats, c.clone && c.data}, nil
}

type copier struct {
	ctx      context.Context //nolint:containedctx // of one call of Copy
	root     int             // of the copy
	links    map[inode]string
	clone    bool // no file system has refused yet
	data     bool // a file with data was cloned
	stats    Stats
	progress func(Stats)
}

func (c *copier) all(from, to string) error {
	src, err := openRoot(from)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(src) }() // only read
	if err := unix.Mkdir(to, 0o700); err != nil {
		return err
	}
	dst, err := openRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dst) }() // Syncfs tells
	c.root = dst
	if err := c.dir(src, dst, "", 0); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(src, &st); err != nil {
		return err
	}
	return c.meta(procPath(src), dst, ".", &st)
}

// dir copies what is in a directory.
func (c *copier) dir(src, dst int, rel string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: directories are nested deeper than %d", show(rel), maxDepth)
	}
	all, err := names(src)
	if err != nil {
		return fmt.Errorf("%s: %w", show(rel), err)
	}
	for _, name := range all {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := c.entry(src, dst, name, path.Join(rel, name), depth); err != nil {
			return err
		}
		c.stats.Files++
		if c.progress != nil {
			c.progress(c.stats)
		}
	}
	return nil
}

func (c *copier) entry(src, dst int, name, rel string, depth int) error {
	fail := func(err error) error { return fmt.Errorf("%q: %w", show(rel), err) }
	in, err := openAt(src, name, unix.O_PATH)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = unix.Close(in) }() // a handle only
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil {
		return fail(err)
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		return c.subdir(src, dst, name, rel, depth, in, &st)
	}
	key := inode{st.Dev, st.Ino}
	if first, found := c.links[key]; found && st.Nlink > 1 {
		err := unix.Linkat(c.root, first, dst, name, 0)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EMLINK) { // whiteouts can have very many names
			return fail(err)
		}
	}
	switch kind {
	case unix.S_IFREG:
		err = c.file(src, dst, name)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		var n int
		if n, err = unix.Readlinkat(in, "", target); err == nil {
			err = unix.Symlinkat(string(target[:n]), dst, name)
		}
	default: // FIFOs, sockets, devices: 0:0 is every user namespace's to make
		err = unix.Mknodat(dst, name, kind|0o600, int(st.Rdev)) //nolint:gosec // as the kernel gave it
	}
	if err != nil {
		return fail(err)
	}
	if st.Nlink > 1 {
		c.links[key] = rel
	}
	if err := c.meta(procPath(in), dst, name, &st); err != nil {
		return fail(err)
	}
	return nil
}

func (c *copier) subdir(src, dst int, name, rel string, depth int, in int, st *unix.Stat_t) error {
	fail := func(err error) error { return fmt.Errorf("%q: %w", show(rel), err) }
	from, err := openAt(src, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = unix.Close(from) }() // only read
	if err := unix.Mkdirat(dst, name, 0o700); err != nil {
		return fail(err)
	}
	to, err := openAt(dst, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = unix.Close(to) }() // Syncfs tells
	if err := c.dir(from, to, rel, depth+1); err != nil {
		return err
	}
	// Last, as its times change with what is put into it.
	if err := c.meta(procPath(in), dst, name, st); err != nil {
		return fail(err)
	}
	return nil
}

func procPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// meta gives an entry of the copy what is not its content. original leads to the
// original itself.
func (c *copier) meta(original string, dst int, name string, st *unix.Stat_t) error {
	if err := unix.Fchownat(dst, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("owner %d:%d: %w", st.Uid, st.Gid, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		// After the owner, whose change takes set-id bits away.
		if err := unix.Fchmodat(dst, name, st.Mode&0o7777, 0); err != nil {
			return fmt.Errorf("mode: %w", err)
		}
	}
	out, err := openAt(dst, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(out) }() // a handle only
	if err := copyAttrs(original, procPath(out)); err != nil {
		return err
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(dst, name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("times: %w", err)
	}
	var made unix.Stat_t
	if err := unix.Fstat(out, &made); err != nil {
		return err
	}
	c.stats.Bytes += made.Blocks * 512
	return nil
}

// maxAttrs is how large the kernel lets names and values be, in bytes.
const maxAttrs = 64 << 10

// copyAttrs copies extended attributes. Those of security modules other than
// capabilities are the system's to give; what it gave the copy stays.
func copyAttrs(from, to string) error {
	n, err := unix.Listxattr(from, nil) // most files have none
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil
	}
	var list []byte
	if err == nil {
		list = make([]byte, maxAttrs)
		n, err = unix.Listxattr(from, list)
	}
	if err != nil {
		return fmt.Errorf("attributes: %w", err)
	}
	var value []byte
	for attr := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if attr == "" || strings.HasPrefix(attr, "security.") && attr != "security.capability" {
			continue
		}
		if value == nil {
			value = make([]byte, maxAttrs)
		}
		n, err := unix.Getxattr(from, attr, value)
		if errors.Is(err, unix.ENODATA) {
			continue // hidden from us
		}
		if err == nil {
			err = unix.Setxattr(to, attr, value[:n], 0)
		}
		if err != nil {
			return fmt.Errorf("attribute %q: %w", attr, err)
		}
	}
	return nil
}

// file copies a regular file's data.
func (c *copier) file(src, dst int, name string) (err error) {
	in, err := openAt(src, name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(in) }() // only read
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("it was replaced while it was copied: end what uses the domain")
	}
	out, err := unix.Openat(dst, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(out)) }()
	if st.Size == 0 {
		return nil
	}
	if c.clone {
		switch err := unix.IoctlFileClone(out, in); {
		case err == nil:
			c.data = true
			return nil
		case !refused(err):
			return err
		}
		c.clone = false
	}
	if err := unix.Ftruncate(out, st.Size); err != nil {
		return err
	}
	for at := int64(0); at < st.Size; {
		begin, err := unix.Seek(in, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole to the end
		}
		if err != nil {
			return err
		}
		if at, err = unix.Seek(in, begin, unix.SEEK_HOLE); err != nil {
			return err
		}
		if err := c.piece(in, out, begin, at); err != nil {
			return err
		}
	}
	return nil
}

// refused tells the ways in which a file system says that it cannot do such a thing.
func refused(err error) bool {
	for _, no := range []error{unix.EOPNOTSUPP, unix.ENOTTY, unix.EXDEV, unix.EINVAL, unix.ENOSYS, unix.EPERM} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// piece copies the bytes from begin to end.
func (c *copier) piece(in, out int, begin, end int64) error {
	const chunk = 8 << 20
	for begin < end {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		from, to := begin, begin
		n, err := unix.CopyFileRange(in, &from, out, &to, int(min(end-begin, chunk)), 0)
		if err != nil && refused(err) || err == nil && n == 0 {
			return c.plain(in, out, begin, end)
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		begin += int64(max(n, 0))
	}
	return nil
}

func (c *copier) plain(in, out int, begin, end int64) error {
	buf := make([]byte, 256<<10)
	for begin < end {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Pread(in, buf[:min(int64(len(buf)), end-begin)], begin)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		for done := 0; done < n; {
			m, err := unix.Pwrite(out, buf[done:n], begin+int64(done))
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
			done += max(m, 0)
		}
		begin += int64(n)
	}
	return nil
}
