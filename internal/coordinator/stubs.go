package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
)

// stub is a directory made in the workspace only because a mask needs a mount
// point. Dev and Ino are 0 between the note of the intent and the mkdir.
type stub struct {
	Path string `json:"path"` // relative to the workspace
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
}

// stubs is the journal of the domain's stubs, so that they are removed also
// after a SIGKILL. It is used under the coordinator's lock.
type stubs struct {
	journal   string
	Workspace string `json:"workspace"`
	Made      []stub `json:"made"`
	log       *slog.Logger
}

func openStubs(domainRoot string, log *slog.Logger) (*stubs, error) {
	s := &stubs{journal: filepath.Join(domainRoot, "stubs.json"), log: log}
	data, err := os.ReadFile(s.journal)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal of mount points: %w", err)
	}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read the journal of mount points %s: %w: look for empty directories in the workspace, then remove the file", s.journal, err)
	}
	return s, nil
}

func (s *stubs) save() error {
	if len(s.Made) == 0 {
		if err := os.Remove(s.journal); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clear the journal of mount points: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write the journal of mount points: %w", err)
	}
	return atomicfile.Write(s.journal, data, 0o600, true)
}

// make makes the missing ones of paths, relative to the workspace, with their
// missing parents. No step follows a symbolic link: the agent of an earlier
// session chose what lies in the workspace.
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
	s.Workspace = workspace
	for _, p := range paths {
		if !filepath.IsLocal(p) || p == "." {
			return fmt.Errorf("%q is not a path below the workspace", p)
		}
		parts := strings.Split(filepath.Clean(p), "/")
		for i := range parts {
			if err := s.makeOne(ws, filepath.Join(parts[:i+1]...)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *stubs) makeOne(ws int, rel string) error {
	if _, err := statBeneath(ws, rel); err == nil {
		return nil
	} else if !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s in the workspace: %w: it must be a directory, not a symbolic link or file", rel, err)
	}
	s.Made = append(s.Made, stub{Path: rel})
	if err := s.save(); err != nil {
		s.Made = s.Made[:len(s.Made)-1]
		return err
	}
	parent, err := openBeneath(ws, filepath.Dir(rel))
	if err != nil {
		return fmt.Errorf("%s in the workspace: %w", filepath.Dir(rel), err)
	}
	defer func() { _ = unix.Close(parent) }() // O_PATH has nothing to lose
	if err := unix.Mkdirat(parent, filepath.Base(rel), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		s.Made = s.Made[:len(s.Made)-1]
		return errors.Join(fmt.Errorf("make %s in the workspace as a mount point: %w", rel, err), s.save())
	}
	st, err := statBeneath(ws, rel)
	if err != nil {
		return fmt.Errorf("%s in the workspace: %w", rel, err)
	}
	made := &s.Made[len(s.Made)-1]
	made.Dev, made.Ino = st.Dev, st.Ino
	// A rootful engine makes it for the workspace's owner.
	var owner unix.Stat_t
	if unix.Fstat(parent, &owner) == nil && owner.Uid != st.Uid {
		if err := unix.Fchownat(parent, filepath.Base(rel), int(owner.Uid), int(owner.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			s.log.Warn("give the mount point to the workspace's owner", "path", rel, "error", err)
		}
	}
	return s.save()
}

// removeAll removes the stubs that are still ours and still empty, the deepest
// first; what somebody has put files into is his.
func (s *stubs) removeAll() {
	if len(s.Made) == 0 {
		return
	}
	ws, err := unix.Open(s.Workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		s.log.Warn("workspace is gone: its mount points with it", "workspace", s.Workspace, "error", err)
		s.Made = nil
		if err := s.save(); err != nil {
			s.log.Error("forget mount points", "error", err)
		}
		return
	}
	defer func() { _ = unix.Close(ws) }() // O_PATH has nothing to lose
	for i := len(s.Made) - 1; i >= 0; i-- {
		if err := s.removeOne(ws, s.Made[i]); err != nil {
			s.log.Warn("mount point stays", "path", s.Made[i].Path, "error", err)
		}
	}
	s.Made = nil
	if err := s.save(); err != nil {
		s.log.Error("forget mount points", "error", err)
	}
}

func (s *stubs) removeOne(ws int, m stub) error {
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
