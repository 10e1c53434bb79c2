package gitsentry

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitindex"
)

const (
	maxIndex = 512 << 20 // bytes; five million entries
	// stageIdle is how long an index that is written in place has to rest before
	// it is looked at.
	stageIdle = 20 * time.Millisecond
	// stageGiveUp ends the wait for the rest of it.
	stageGiveUp = 10 * time.Second
	// tempPrefix begins the names under which checked indexes are written.
	tempPrefix = "next-index-lazaret-"
)

var errIndex = errors.New("index refused")

// publishFile checks the bytes of a's file and gives them, and nothing that is
// written to that file later, the name of an index.
func (f *guard) publishFile(a, b *spot, oldName, newName string) error {
	fd, err := openat(a.dir.fd, oldName, unix.O_RDONLY)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), oldName)
	defer func() { _ = src.Close() }() // only read
	var st unix.Statx_t
	if err := statx(fd, "", &st); err != nil {
		return err
	}
	if st.Size > maxIndex {
		return fmt.Errorf("%w: larger than %d bytes", errIndex, maxIndex)
	}
	data := make([]byte, st.Size)
	n, err := src.ReadAt(data, 0)
	if err != nil || n != len(data) {
		return fmt.Errorf("%w: it changed while it was read", errIndex)
	}
	if err := f.checkIndex(b, data); err != nil {
		return err
	}
	if err := f.writeIndex(b, newName, data, &st); err != nil {
		return err
	}
	return unix.Unlinkat(a.dir.fd, oldName, 0)
}

// checkIndex tells whether the host's git may read data as an index of the git
// directory that has b.
func (f *guard) checkIndex(b *spot, data []byte) error {
	size, err := f.hashLen(b)
	if err != nil {
		return err
	}
	base, err := gitindex.Base(data, size)
	if err != nil {
		return fmt.Errorf("%w: %w", errIndex, err)
	}
	if base == nil {
		if err := gitindex.Validate(data, size); err != nil {
			return fmt.Errorf("%w: %w", errIndex, err)
		}
		return nil
	}
	shared, err := readAt(b.dir.fd, "sharedindex."+hex.EncodeToString(base), maxIndex)
	if err != nil {
		return fmt.Errorf("%w: its shared index: %w", errIndex, err)
	}
	if err := gitindex.ValidateSplit(data, shared, size); err != nil {
		return fmt.Errorf("%w: %w", errIndex, err)
	}
	return nil
}

// hashLen is the length of object names in the git directory that has b.
func (f *guard) hashLen(b *spot) (int, error) {
	dir := b.dir.fd
	name := "config"
	if _, own, ok := strings.Cut(b.zone.sub, "worktrees/"); ok && !strings.Contains(own, "/") {
		name = "../../config"
	}
	data, err := readAt(dir, name, gitconf.MaxFile)
	if errors.Is(err, unix.ENOENT) {
		return 20, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%w: read the repository's config: %w", errIndex, err)
	}
	vars, err := gitconf.Parse(data)
	if err != nil {
		return 0, fmt.Errorf("%w: the repository's config: %w", errIndex, err)
	}
	size := 20
	for _, v := range vars {
		if v.Name() == "extensions.objectformat" {
			size = 20
			if v.Value == "sha256" {
				size = 32
			}
		}
	}
	return size, nil
}

func readAt(dir int, name string, limit int64) ([]byte, error) {
	fd, err := openat(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }() // only read
	fi, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > limit {
		return nil, fmt.Errorf("%s: not a plain file of at most %d bytes", name, limit)
	}
	var out bytes.Buffer
	out.Grow(int(fi.Size()))
	if _, err := out.ReadFrom(file); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// writeIndex puts data in the place of b's file, with the time, mode and owner of st:
// git compares an index's time with those of the files in it.
func (f *guard) writeIndex(b *spot, name string, data []byte, st *unix.Statx_t) (err error) {
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // it does not fail
	tmp := tempPrefix + hex.EncodeToString(salt[:]) + ".lock"
	fd, err := unix.Openat(b.dir.fd, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), tmp)
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(b.dir.fd, tmp, 0)
		}
	}()
	_, err = out.Write(data)
	if err == nil {
		err = unix.Fchown(fd, int(st.Uid), int(st.Gid))
	}
	if err == nil {
		err = unix.Fchmod(fd, uint32(st.Mode)&0o777)
	}
	if err == nil {
		err = utimes(fd, [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: st.Mtime.Sec, Nsec: int64(st.Mtime.Nsec)}})
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return unix.Renameat(b.dir.fd, tmp, b.dir.fd, name)
}

// refusedIndex answers a failed publication.
func (f *guard) refusedIndex(where string, err error) fuse.Status {
	if errors.Is(err, errIndex) {
		f.log.Warn("index refused", "path", where, "error", err)
		return f.refuse("publish", where, unix.EPERM)
	}
	return status(err)
}

// sweepTemporary removes what a guard that was killed has left.
func (f *guard) sweepTemporary() {
	for _, n := range []*node{f.workspace, f.gitDir} {
		if n == nil {
			continue
		}
		dir := "."
		if n == f.workspace {
			dir = ".git"
		}
		fd, err := openat(n.top.fd, dir, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue
		}
		d := os.NewFile(uintptr(fd), dir)
		names, _ := d.Readdirnames(-1)
		for _, name := range names {
			if strings.HasPrefix(name, tempPrefix) {
				_ = unix.Unlinkat(fd, name, 0)
			}
		}
		_ = d.Close()
	}
}

// stages are indexes that are written in place, as some clients do: what is
// written is kept here, and becomes the host's once it is whole and checked.
type stages struct {
	mu   sync.Mutex
	open map[*node]*stage
}

type stage struct {
	data  []byte
	since time.Time
	timer *time.Timer
}

// staging returns n's stage, begun with what the host has. It needs stages.mu.
func (f *guard) staging(n *node) (*stage, error) {
	if s := f.stages.open[n]; s != nil {
		return s, nil
	}
	h, err := f.openIO(n, false)
	if err != nil {
		return nil, err
	}
	defer h.done()
	var st unix.Statx_t
	if err := statx(h.fd, "", &st); err != nil {
		return nil, err
	}
	if st.Size > maxIndex {
		return nil, unix.EFBIG
	}
	data := make([]byte, st.Size)
	for off := 0; off < len(data); {
		c, err := unix.Pread(h.fd, data[off:], int64(off))
		if err != nil {
			return nil, err
		}
		if c == 0 {
			data = data[:off]
			break
		}
		off += c
	}
	if f.stages.open == nil {
		f.stages.open = map[*node]*stage{}
	}
	s := &stage{data: data, since: time.Now()}
	f.stages.open[n] = s
	n.staged.Store(true)
	return s, nil
}

func (f *guard) changeStaged(n *node, change func(s *stage) error) fuse.Status {
	f.stages.mu.Lock()
	defer f.stages.mu.Unlock()
	s, err := f.staging(n)
	if err != nil {
		return status(err)
	}
	if err := change(s); err != nil {
		return status(err)
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(stageIdle, func() { f.settle(n) })
	} else {
		s.timer.Reset(stageIdle)
	}
	return fuse.OK
}

func (f *guard) writeStaged(n *node, off uint64, data []byte) (uint32, fuse.Status) {
	st := f.changeStaged(n, func(s *stage) error {
		end := off + uint64(len(data))
		if end > maxIndex {
			return unix.EFBIG
		}
		if end > uint64(len(s.data)) {
			s.data = append(s.data, make([]byte, end-uint64(len(s.data)))...)
		}
		copy(s.data[off:], data)
		return nil
	})
	return uint32(len(data)), st //nolint:gosec // at most MaxWrite
}

func (f *guard) truncateStaged(n *node, size uint64) fuse.Status {
	return f.changeStaged(n, func(s *stage) error {
		if size > maxIndex {
			return unix.EFBIG
		}
		if size <= uint64(len(s.data)) {
			s.data = s.data[:size]
		} else {
			s.data = append(s.data, make([]byte, size-uint64(len(s.data)))...)
		}
		return nil
	})
}

func (f *guard) readStaged(n *node, off uint64, size int) ([]byte, bool) {
	f.stages.mu.Lock()
	defer f.stages.mu.Unlock()
	s := f.stages.open[n]
	if s == nil {
		return nil, false
	}
	if off >= uint64(len(s.data)) {
		return nil, true
	}
	return bytes.Clone(s.data[off:min(uint64(len(s.data)), off+uint64(size))]), true //nolint:gosec // a buffer's length
}

// shown shows the size of what is being written, or of what is shown at the end of a
// config, and a time by which git finds each change of what it reads once and then
// trusts: with core.checkStat=minimal it compares seconds and size alone, and two
// versions of packed-refs within a second are of one size. A git that packs on top of
// the first would lose what the host has packed in the second.
func (f *guard) shown(n *node, a *fuse.Attr) {
	const days = 1 << 22 // in seconds: always in the past
	if n.told.Load() && a.Mtime > days {
		h := fnv.New32a()
		_ = binary.Write(h, binary.LittleEndian, []uint64{a.Ino, a.Mtime, uint64(a.Mtimensec), a.Ctime, uint64(a.Ctimensec)}) // cannot fail
		a.Mtime -= uint64(h.Sum32() % days)
	}
	if f.hasSuffix(n) {
		a.Size += uint64(len(f.o.ConfigSuffix))
	}
	if !n.staged.Load() {
		return
	}
	f.stages.mu.Lock()
	defer f.stages.mu.Unlock()
	if s := f.stages.open[n]; s != nil {
		a.Size = uint64(len(s.data))
	}
}

// settleAll makes what was written last the host's, when the guard ends.
func (f *guard) settleAll() {
	f.stages.mu.Lock()
	open := slices.Collect(maps.Keys(f.stages.open))
	f.stages.mu.Unlock()
	for _, n := range open {
		f.settle(n)
	}
}

// settle makes a whole index the host's, or waits for more of it.
func (f *guard) settle(n *node) {
	f.names.Lock()
	defer f.names.Unlock()
	f.stages.mu.Lock()
	defer f.stages.mu.Unlock()
	s := f.stages.open[n]
	if s == nil {
		return
	}
	err := f.publishStaged(n, s)
	if errors.Is(err, gitindex.ErrMalformed) && time.Since(s.since) < stageGiveUp {
		s.timer.Reset(10 * stageIdle) // the rest of it may follow
		return
	}
	if err != nil {
		f.refusedIndex(f.seenName(n), err)
	}
	delete(f.stages.open, n)
	n.staged.Store(false)
	go f.srv.InodeNotify(n.id, 0, 0)
}

func (f *guard) publishStaged(n *node, s *stage) error {
	n.at.Lock()
	parent, name := n.parent, n.name
	n.at.Unlock()
	b, err := f.find(parent, name, true)
	if err != nil {
		return err
	}
	defer b.done()
	var st unix.Statx_t
	if err := statx(b.dir.fd, name, &st); err != nil {
		return err
	}
	if b.place != onHost || b.class != index || !n.key.is(&st) {
		return unix.ESTALE // another index is there by now
	}
	if err := f.checkIndex(&b, s.data); err != nil {
		return err
	}
	st.Mtime = unix.StatxTimestamp{Sec: time.Now().Unix(), Nsec: uint32(time.Now().Nanosecond())} //nolint:gosec // below 1e9
	if err := f.writeIndex(&b, name, s.data, &st); err != nil {
		return err
	}
	// Whoever has it open reads on what he wrote, not what was there before.
	var now unix.Statx_t
	if err := statx(b.dir.fd, name, &now); err != nil {
		return err
	}
	f.nodes.rebind(n, &now)
	return nil
}
