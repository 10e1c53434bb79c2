package gitsentry

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's choice
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitindex"
	"github.com/lazaret-dev/lazaret/internal/hostgit"
)

// maxMasked bounds the tracked files that are shown under one mask.
const maxMasked = 2000

// blob is a tracked file.
type blob struct {
	rel  string // below the workspace
	mode uint32
	oid  []byte
}

// beginMask makes what shows in the place of a masked name: nothing of the host's
// own, but what git tracks, as it is committed. Else git in the sandbox would take
// those files for deleted. A name that the host does not have stays absent.
func (f *guard) beginMask(dir *node, at spot, name string) error {
	s := f.shadows
	s.seed.Lock()
	defer s.seed.Unlock()
	key := dir.key.dirKey()
	if _, ok := s.has(key, name); ok {
		return nil
	}
	var st unix.Statx_t
	if err := statx(at.dir.fd, name, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	rel := join(at.zone.rel, name)
	tracked, err := f.trackedUnder(rel)
	if err != nil {
		// The mask holds all the same; git in the sandbox sees less.
		f.log.Warn("tracked files below a mask cannot be shown", "path", rel, "error", err)
	}
	if !isDir && len(tracked) == 0 {
		return nil
	}
	dest, err := s.topPath(key, name, onMemory)
	if err != nil {
		return err
	}
	if isDir {
		if err := os.MkdirAll(dest, 0o755); err != nil { //nolint:gosec // any uid of the sandbox reads it
			return fmt.Errorf("make a mask: %w", err)
		}
		_ = os.Chown(dest, int(st.Uid), int(st.Gid)) // else it is ours, which is as good
	}
	for _, b := range tracked {
		if err := f.showTracked(b, rel, dest); err != nil {
			f.log.Warn("a tracked file below a mask cannot be shown", "path", b.rel, "error", err)
		}
	}
	s.note(key.String(), name, onMemory)
	return nil
}

// trackedUnder lists what the workspace's index has at rel or below it.
func (f *guard) trackedUnder(rel string) ([]blob, error) {
	dir, size, err := f.repository()
	if err != nil || dir < 0 {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }() // O_PATH
	data, err := readAt(dir, "index", maxIndex)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []blob
	err = gitindex.Parse(data, size, func(e gitindex.Entry) error {
		p := string(e.Path)
		if e.Stage != 0 || !under(p, rel) || len(out) >= maxMasked || e.Mode == gitindex.ModeGitlink || e.Mode == gitindex.ModeSparseDir || hasDotGit(p) || path.Clean(p) != p {
			return nil
		}
		out = append(out, blob{p, e.Mode, bytes.Clone(e.OID)})
		return nil
	})
	return out, err
}

// repository opens the directory that has the workspace's index, -1 for none.
func (f *guard) repository() (dir, hashLen int, err error) {
	top, rel := f.workspace.top, ".git"
	if f.gitDir != nil {
		top, rel = f.gitDir.top, "."
		if f.o.WorktreeName != "" {
			rel = "worktrees/" + f.o.WorktreeName
		}
	}
	fd, err := unix.Openat(top.fd, rel, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return -1, 0, nil
	}
	if err != nil {
		return -1, 0, err
	}
	at := spot{dir: newFile(fd)}
	if f.o.WorktreeName != "" {
		at.zone.sub = "worktrees/" + f.o.WorktreeName
	}
	size, err := f.hashLen(&at)
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, size, nil
}

// showTracked writes one tracked file below dest, which stands for rel.
func (f *guard) showTracked(b blob, rel, dest string) error {
	data, err := f.content(b)
	if err != nil {
		return err
	}
	file := dest
	if below := strings.TrimPrefix(b.rel[len(rel):], "/"); below != "" {
		for part := range strings.SplitSeq(path.Dir(below), "/") {
			if part == "." {
				break
			}
			file = filepath.Join(file, marked+part)
			if err := os.Mkdir(file, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // as git makes it
				return err
			}
		}
		file = filepath.Join(file, marked+path.Base(below))
	}
	if b.mode == gitindex.ModeSymlink {
		return os.Symlink(string(data), file)
	}
	mode := uint32(0o644)
	if b.mode == gitindex.ModeExecutable {
		mode = 0o755
	}
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), file)
	_, err = out.Write(data)
	return errors.Join(err, out.Close())
}

// content is a tracked file as it is committed: the host's own where that is the
// same, else out of the object store.
func (f *guard) content(b blob) ([]byte, error) {
	if data, err := readAt(f.workspace.top.fd, b.rel, seedFile); err == nil {
		var h hash.Hash
		if h = sha1.New(); len(b.oid) == sha256.Size { //nolint:gosec // git's choice
			h = sha256.New()
		}
		_, _ = fmt.Fprintf(h, "blob %d\x00", len(data)) // a hash takes everything
		_, _ = h.Write(data)
		if bytes.Equal(h.Sum(nil), b.oid) {
			return data, nil
		}
	}
	git, err := hostgit.New("", "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	dir := filepath.Join(f.o.Workspace, ".git")
	if f.o.GitDir != "" {
		dir = f.o.GitDir
	}
	r, err := git.AnyOwner().Open(ctx, dir, dir, "") // a rootful engine's guard is not the developer
	if err != nil {
		return nil, err
	}
	out, err := r.Output(ctx, "cat-file", "blob", hex.EncodeToString(b.oid))
	if err != nil {
		return nil, fmt.Errorf("read %s from git: %w", b.rel, err)
	}
	if len(out) > seedFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", b.rel, seedFile)
	}
	return out, nil
}
