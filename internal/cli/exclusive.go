package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// errInUse is in the chain of an error about a domain that somebody uses.
var errInUse = errors.New("the domain is in use")

// lockDomain keeps everybody else out of a domain: no sandbox of it lives, and
// none starts until release. It fails with errInUse otherwise.
func lockDomain(r resolved) (release func() error, err error) {
	a, dir := r.anchor, r.cfg.General.ControlDir
	socket := a.SocketPath(dir)
	lock, err := wire.TryLock(a.LockPath(dir))
	if errors.Is(err, wire.ErrLocked) {
		return nil, fmt.Errorf("%w by %s: wait for its end, or end it, and try again", errInUse, wire.LockHolder(a.LockPath(dir)))
	}
	if err != nil {
		return nil, err
	}
	claim, err := unused(r, socket)
	if err != nil {
		return nil, errors.Join(err, wire.RemoveNames(lock, socket))
	}
	return func() error {
		err := wire.RemoveNames(lock, socket)
		if claim != nil {
			err = errors.Join(err, claim.Close())
		}
		return err
	}, nil
}

// unused makes sure that nobody lives, and holds what a coordinator would claim.
func unused(r resolved, socket string) (claim *os.File, err error) {
	switch st, err := askStatus(socket); {
	case err == nil:
		return nil, fmt.Errorf("%w: %d containers and %d sessions live: end them and try again (lazaret status shows them)", errInUse, len(st.Containers), len(st.Sessions))
	case !errors.Is(err, wire.ErrNoCoordinator) && !wire.Cut(err):
		return nil, err
	}
	// A coordinator whose socket's name is gone still holds this.
	claim, err = os.OpenFile(filepath.Join(r.anchor.Root, "coordinator.pid"), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		claim, err = nil, nil
	}
	if err == nil && claim != nil {
		if err = unix.Flock(int(claim.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w: its coordinator is starting or ending: try again", errInUse)
		}
	}
	if err != nil {
		if claim != nil {
			_ = claim.Close() // the first error is the one to tell
		}
		return nil, err
	}
	// A sandbox outlives a coordinator that was killed.
	ids, err := containerstate.List(r.env.RuntimeDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return claim, fmt.Errorf("look for containers: %w", err)
	}
	for _, id := range ids {
		l, err := containerstate.ReadLease(containerstate.Dir(r.env.RuntimeDir, id))
		if err == nil && l.Domain == r.anchor.Hash && l.Alive() {
			if claim != nil {
				_ = claim.Close() // nothing was claimed
			}
			return nil, fmt.Errorf("%w: container %.12s lives, without its coordinator: end it and try again", errInUse, id)
		}
	}
	return claim, nil
}

// foreign reports whether something below dir is another uid's, as a rootless
// container that runs as somebody else than root leaves it.
func foreign(dir string) bool {
	found := false
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			found = true
		case unix.Lstat(path, &st) == nil && int(st.Uid) != os.Geteuid():
			found = true
		}
		if found {
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// outsideUserNamespace reports whether other uids of a rootless engine could be
// reached by going into its user namespace.
func outsideUserNamespace(r resolved) bool { return r.env.Rootless && os.Geteuid() != 0 }

// inUserNamespace does the same command again in podman's user namespace, where
// the subordinate uids are ours.
func inUserNamespace(c *cli.Context) error {
	podman, err := fixedpath.Look("podman")
	if err != nil {
		return fmt.Errorf("some of the files belong to other uids of podman's user namespace: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start lazaret in podman's user namespace: %w", err)
	}
	return passOn(c, podman, append([]string{"unshare", self}, os.Args[1:]...), "", os.Environ())
}

// passOn lets a program of the developer's have the terminal, and its exit
// status be ours. Signals of the terminal reach it by itself.
func passOn(c *cli.Context, program string, args []string, dir string, env []string) error {
	cmd := exec.CommandContext(context.WithoutCancel(c.Context), program, args...) //nolint:gosec // the user's own words, back to him
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.App.Reader, c.App.Writer, c.App.ErrWriter
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.Exited():
		return &exitError{code: exit.ExitCode()}
	}
	return fmt.Errorf("run %s: %w", program, err)
}
