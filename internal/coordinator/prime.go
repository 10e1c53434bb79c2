package coordinator

import (
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	// primeNames and primeTime bound how much of a workspace is listed ahead.
	primeNames = 100_000
	primeTime  = 20 * time.Second
	// primeBuffer holds many names, as the kernel asks the guard for as much as the
	// reader takes.
	primeBuffer = 256 << 10
)

// prime lists the directories below dir, which is in the guard's mount, until all
// are, enough is, or done is closed. The kernel then knows the names and
// attributes in them: hundreds come with one request (FUSE_READDIRPLUS), where the
// sandbox's first look at each, as git status has it, would be a request of its
// own. Nothing is opened but directories, and no link is followed.
//
// The guard cannot do this by itself: a process that waits for the file system
// that it serves cannot be ended.
func prime(dir string, done <-chan struct{}) error {
	deadline := time.Now().Add(primeTime)
	buf := make([]byte, primeBuffer)
	names := 0
	for queue := []string{"."}; len(queue) > 0; queue = queue[1:] {
		below, n, err := primeOne(dir, queue[0], buf)
		if errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) {
			return err // the guard is gone; other directories just may not be read, or not any more
		}
		queue = append(queue, below...)
		select {
		case <-done:
			return nil
		default:
		}
		if names += n; names >= primeNames || time.Now().After(deadline) {
			return nil
		}
	}
	return nil
}

// primeOne lists one directory, a path below top, and returns those in it.
func primeOne(top, rel string, buf []byte) (below []string, names int, err error) {
	fd, err := unix.Open(filepath.Join(top, rel), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = unix.Close(fd) }() // only read
	for {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return below, names, err
		}
		for rest := buf[:n]; len(rest) > 0; {
			var e fuse.DirEntry
			rest = rest[e.Parse(rest):]
			names++
			// In a git directory the kernel keeps nothing.
			if e.Mode == unix.S_IFDIR && e.Name != "." && e.Name != ".." && e.Name != ".git" {
				below = append(below, filepath.Join(rel, e.Name))
			}
		}
	}
}
