package stateanchor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/mountinfo"
)

const (
	// fuseStart bounds the wait for a mount of fuse-overlayfs, fuseEnd that for its
	// end after the unmount, by when it has written everything.
	fuseStart = 10 * time.Second
	fuseEnd   = 5 * time.Second
	// probeDir in the Domain Root is where a driver is tried.
	probeDir = "state_probe"
	// source is how our mounts are called in mountinfo.
	source = "lazaret-state"
	// maxWords bounds what is kept of fuse-overlayfs's complaints, in bytes.
	maxWords = 4 << 10
)

// overlay is one mounted state path.
type overlay struct {
	point string
	lock  *os.File    // the flock on its changes
	fuse  *fuseServer // nil with the kernel's driver
}

// mountOverlay mounts lower with its changes at point.
func mountOverlay(driver string, lower, changes, work *os.File, point string) (*fuseServer, error) {
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", fdPath(lower), fdPath(changes), fdPath(work))
	if driver == DriverFUSE {
		return mountFUSE(lower, changes, work, point)
	}
	// userxattr, by root too: the changes then look the same whoever made them.
	// No index: it would take a rebuilt image for a wrong one.
	err := unix.Mount(source, point, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options+",userxattr,index=off")
	if err != nil {
		return nil, fmt.Errorf("mount the kernel's overlay at %s: %w", point, err)
	}
	return nil, nil
}

// fuseServer is a running fuse-overlayfs.
type fuseServer struct {
	process *os.Process
	done    chan struct{} // closed once it has ended
	words   *tail
}

// mountFUSE starts fuse-overlayfs, which ends with this process, and returns once
// it serves.
func mountFUSE(lower, changes, work *os.File, point string) (*fuseServer, error) {
	if strings.ContainsRune(changes.Name(), ':') {
		return nil, fmt.Errorf("%s has a colon in it, which fuse-overlayfs does not take: choose another data_root", changes.Name())
	}
	program, err := fixedpath.Look(DriverFUSE)
	if err != nil {
		return nil, fmt.Errorf("%w: install fuse-overlayfs", err)
	}
	// Descriptors in the place of paths, in which commas and colons would part.
	// Nothing is held back in memory: a kill loses nothing that was written.
	cmd := exec.CommandContext(context.Background(), program, "-f", "-o", "lowerdir=/proc/self/fd/3,upperdir=/proc/self/fd/4,workdir=/proc/self/fd/5,writeback=0", point) // it lives as long as the mount
	cmd.ExtraFiles = []*os.File{lower, changes, work}
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	words := &tail{}
	cmd.Stdout, cmd.Stderr = words, words
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	s := &fuseServer{done: make(chan struct{}), words: words}
	started := make(chan error, 1)
	go func() {
		defer close(s.done)
		// PDEATHSIG comes at the end of the thread that forked, so this one waits.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		s.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // its end is what counts
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	for deadline := time.Now().Add(fuseStart); ; time.Sleep(time.Millisecond) {
		m, found, err := mountinfo.At(point)
		if err == nil && found && strings.HasPrefix(m.FSType, "fuse") {
			return s, nil
		}
		if err == nil && s.ended() {
			err = fmt.Errorf("fuse-overlayfs ended: %s", words)
		}
		if err == nil && time.Now().After(deadline) {
			err = fmt.Errorf("fuse-overlayfs does not serve %s after %s", point, fuseStart)
		}
		if err != nil {
			s.kill()
			return nil, err
		}
	}
}

func (s *fuseServer) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *fuseServer) kill() {
	_ = s.process.Kill() // it may have ended
	<-s.done
}

// finish waits for the end of a server that was unmounted.
func (s *fuseServer) finish() {
	select {
	case <-s.done:
	case <-time.After(fuseEnd):
		s.kill() // something still has the mount open; it gets ENOTCONN
	}
}

// tail keeps the beginning of what a program says.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p[:min(len(p), maxWords-len(t.b))]...)
	return len(p), nil
}

func (t *tail) String() string {
	return strings.Join(strings.Fields(string(t.b)), " ")
}

// unmount takes all mounts off point, a path without symbolic links. What still
// has one open keeps it to itself.
func unmount(point string) error {
	for {
		m, found, err := mountinfo.At(point)
		if err != nil || !found {
			return err
		}
		if m.FSType != "overlay" && m.FSType != "fuse.fuse-overlayfs" {
			return fmt.Errorf("a file system of type %s is mounted at %s, which is Lazaret's: unmount it", m.FSType, point)
		}
		err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
}

// chooseDriver tries the kernel's driver in the Domain Root, then fuse-overlayfs.
func chooseDriver(ctx context.Context, root, want string) (string, error) {
	drivers := []string{want}
	if want == "" || want == DriverAuto {
		drivers = []string{DriverOverlay, DriverFUSE}
	}
	var errs []error
	for _, d := range drivers {
		err := probe(ctx, root, d)
		if err == nil {
			return d, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", d, err))
	}
	return "", fmt.Errorf("no overlay can be had in %s: %w", root, errors.Join(errs...))
}

// probe mounts an overlay and does with it what a file system without extended
// attributes, or one below another overlay, would get wrong.
func probe(ctx context.Context, root, driver string) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir := filepath.Join(root, probeDir)
	defer func() { err = errors.Join(err, removeProbe(root)) }()
	var open [3]*os.File
	for i, name := range []string{"lower", "changes", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
		if open[i], err = openDir(filepath.Join(dir, name)); err != nil {
			return err
		}
		defer func() { _ = open[i].Close() }() // only looked up by
	}
	merged := filepath.Join(dir, "merged")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "lower/d"), 0o700), os.Mkdir(filepath.Join(dir, "lower/d/f"), 0o700), os.Mkdir(merged, 0o700)); err != nil {
		return err
	}
	server, err := mountOverlay(driver, open[0], open[1], open[2], merged) //nolint:contextcheck // what serves a mount ends with it
	if err != nil {
		return err
	}
	d := filepath.Join(merged, "d")
	err = errors.Join(os.RemoveAll(d), os.Mkdir(d, 0o700))
	left, rerr := os.ReadDir(d)
	if err = errors.Join(err, rerr); err == nil && len(left) > 0 {
		err = errors.New("a directory that was removed and made again shows its old content: the file system keeps no extended attributes")
	}
	err = errors.Join(err, unmount(merged))
	if server != nil {
		server.finish()
	}
	return err
}

func removeProbe(root string) error {
	dir := filepath.Join(root, probeDir)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := unmount(filepath.Join(dir, "merged")); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
