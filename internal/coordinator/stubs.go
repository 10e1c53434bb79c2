package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// stub is a directory made in a workspace only because a mask needs a mount
// point. Dev and Ino are 0 between the note of the intent and the mkdir.
type stub struct {
	Workspace string `json:"workspace"` // host path
	Path      string `json:"path"`      // relative to the workspace
	Dev       uint64 `json:"dev"`
	Ino       uint64 `json:"ino"`
	// Users are the domains whose masks lie on it. Two profiles can have one
	// workspace, and the removal of a mount point takes the mount with it.
	Users []string `json:"users"`
}

// stubs is one domain's view of the journal of all stubs below a data root,
// which outlives a SIGKILL and a reboot. Calls are made under the coordinator's
// lock; other coordinators are kept out by a lock of the journal's own.
type stubs struct {
	domain  string // hash of our domain
	journal string
	alive   func(hash string) bool // whether a domain can still have sandboxes
	log     *slog.Logger

	made []stub // between lock and unlock
}

func newStubs(spec wire.StartSpec, log *slog.Logger) *stubs {
	domains := filepath.Dir(spec.Domain.Root)
	return &stubs{
		domain: spec.Domain.Hash, journal: filepath.Join(filepath.Dir(domains), "stubs.json"), log: log,
		alive: func(hash string) bool {
			// A killed coordinator's sandboxes go on. Its runtime directory stays
			// until another has adopted and outlived them, or until a reboot.
			if _, err := os.Lstat(domainDir(spec.RuntimeDir, hash)); err == nil {
				return true
			}
			return coordinatorLives(domain.Anchor{Hash: hash, Root: filepath.Join(domains, hash)})
		},
	}
}

// lock takes the journal and reads it. The holder does a handful of system
// calls on local files, so that the wait is short.
func (s *stubs) lock() (unlock func(), err error) {
	f, err := os.OpenFile(s.journal+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the journal of mount points: %w", err)
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the journal of mount points: %w", err), f.Close())
	}
	s.made = nil
	data, err := os.ReadFile(s.journal)
	if err == nil {
		err = json.Unmarshal(data, &s.made)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("read the journal of mount points %s: %w: look for empty directories in the workspaces, then remove the file", s.journal, err), f.Close())
	}
	return func() { _ = f.Close() }, nil // gives the lock back
}

func (s *stubs) save() error {
	if len(s.made) == 0 {
		if err := os.Remove(s.journal); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clear the journal of mount points: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(s.made)
	if err != nil {
		return fmt.Errorf("write the journal of mount points: %w", err)
	}
	return atomicfile.Write(s.journal, data, 0o600, true)
}

// make makes the missing ones of paths, relative to the workspace, with their
// missing parents, and notes that we use those that some domain has made. No
// step follows a symbolic link: the agent of an earlier session chose what lies
// in the workspace.
func (s *stubs) make(workspace string, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	if workspace == "" {
		return errors.New("there is no workspace to mask")
	}
	ws, err := unix.Open(workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open workspace %s: %w", workspace, err)
	}
	defer func() { _ = unix.Close(ws) }() // O_PATH has nothing to lose
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for _, p := range paths {
		if !filepath.IsLocal(p) || p == "." {
			return fmt.Errorf("%q is not a path below the workspace", p)
		}
		parts := strings.Split(filepath.Clean(p), "/")
		for i := range parts {
			if err := s.makeOne(ws, workspace, filepath.Join(parts[:i+1]...)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *stubs) makeOne(ws int, workspace, rel string) error {
	st, err := statBeneath(ws, rel)
	if err == nil {
		return s.use(st)
	}
	if !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s in the workspace: %w: it must be a directory, not a symbolic link or file", rel, err)
	}
	s.made = append(s.made, stub{Workspace: workspace, Path: rel, Users: []string{s.domain}})
	if err := s.save(); err != nil {
		return err
	}
	parent, err := openBeneath(ws, filepath.Dir(rel))
	if err != nil {
		return fmt.Errorf("%s in the workspace: %w", filepath.Dir(rel), err)
	}
	defer func() { _ = unix.Close(parent) }() // O_PATH has nothing to lose
	if err := unix.Mkdirat(parent, filepath.Base(rel), 0o755); err != nil {
		s.made = s.made[:len(s.made)-1]
		if errors.Is(err, unix.EEXIST) {
			return s.save() // somebody's own, made this moment
		}
		return errors.Join(fmt.Errorf("make %s in the workspace as a mount point: %w", rel, err), s.save())
	}
	dir, err := openBeneath(ws, rel)
	if err != nil {
		return fmt.Errorf("%s in the workspace: %w", rel, err)
	}
	defer func() { _ = unix.Close(dir) }() // O_PATH has nothing to lose
	var owner unix.Stat_t
	if err := errors.Join(unix.Fstat(dir, &st), unix.Fstat(parent, &owner)); err != nil {
		return fmt.Errorf("%s in the workspace: %w", rel, err)
	}
	made := &s.made[len(s.made)-1]
	made.Dev, made.Ino = st.Dev, st.Ino
	if owner.Uid != st.Uid {
		// A rootful engine makes it for the workspace's owner. By descriptor: the
		// name can be another's by now.
		if err := unix.Fchownat(dir, "", int(owner.Uid), int(owner.Gid), unix.AT_EMPTY_PATH); err != nil {
			s.log.Warn("give the mount point to the workspace's owner", "path", rel, "error", err)
		}
	}
	return s.save()
}

// use notes that our masks lie on a directory, if it is a stub: one that is
// not in the journal is the user's own and stays.
func (s *stubs) use(st unix.Stat_t) error {
	for i := range s.made {
		m := &s.made[i]
		if m.Ino == st.Ino && m.Dev == st.Dev && !slices.Contains(m.Users, s.domain) {
			m.Users = append(m.Users, s.domain)
			return s.save()
		}
	}
	return nil
}

// removeAll takes us and every domain that is over out of the journal,
// and removes the stubs that nobody uses any more, if they are still the same and
// still empty: what somebody has put files into is his. The deepest go first.
func (s *stubs) removeAll() {
	if _, err := os.Lstat(s.journal); errors.Is(err, fs.ErrNotExist) {
		return
	}
	unlock, err := s.lock()
	if err != nil {
		s.log.Error("remove mount points", "error", err)
		return
	}
	defer unlock()
	var kept []stub
	for _, m := range slices.Backward(s.made) {
		m.Users = slices.DeleteFunc(m.Users, func(hash string) bool { return hash == s.domain || !s.alive(hash) })
		if len(m.Users) > 0 {
			kept = append(kept, m)
			continue
		}
		if err := removeStub(m); err != nil {
			s.log.Warn("mount point stays", "workspace", m.Workspace, "path", m.Path, "error", err)
		}
	}
	slices.Reverse(kept)
	s.made = kept
	if err := s.save(); err != nil {
		s.log.Error("forget mount points", "error", err)
	}
}

func removeStub(m stub) error {
	ws, err := unix.Open(m.Workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // the workspace is gone, and its mount points with it
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(ws) }() // O_PATH has nothing to lose
	st, err := statBeneath(ws, m.Path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if m.Ino != 0 && (st.Ino != m.Ino || st.Dev != m.Dev) {
		return errors.New("it is another directory now")
	}
	parent, err := openBeneath(ws, filepath.Dir(m.Path))
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(parent) }() // O_PATH has nothing to lose
	return unix.Unlinkat(parent, filepath.Base(m.Path), unix.AT_REMOVEDIR)
}

// openBeneath opens a directory below root without leaving it and without
// following any symbolic link (openat2(2)).
func openBeneath(root int, rel string) (int, error) {
	return unix.Openat2(root, rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

func statBeneath(root int, rel string) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := openBeneath(root, rel)
	if err != nil {
		return st, err
	}
	defer func() { _ = unix.Close(fd) }() // O_PATH has nothing to lose
	return st, unix.Fstat(fd, &st)
}
