// Package gitindex owns what a git index file may say. It reads the whole file,
// which a sandbox wrote, more strictly than git does, and tells whether a git on
// the host can be trusted with it: git itself checks neither bounds nor paths
// when it reads an index.
package gitindex

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's choice; the checksum is against accidents
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math"
)

var (
	// ErrMalformed is the error for what is no index, or not one that git writes.
	ErrMalformed = errors.New("malformed git index")
	// ErrUnsafePath is the error for entries through which git on the host would
	// write to a place that it has to leave alone.
	ErrUnsafePath = errors.New("unsafe path in git index")
)

// Modes of entries.
const (
	ModeFile       = 0o100644
	ModeExecutable = 0o100755
	ModeSymlink    = 0o120000
	ModeGitlink    = 0o160000
	ModeSparseDir  = 0o040000
)

// maxPath is the longest path, in bytes, that can be checked out at all: Linux'
// PATH_MAX. It bounds what a compressed index can be blown up to.
const maxPath = 4095

// Entry is one entry of an index.
type Entry struct {
	// Path is relative to the worktree; a sparse directory's ends in a slash. It
	// is empty for an entry of a split index that replaces one of the shared index.
	Path []byte
	// OID names the object; its length is the repository's hash length.
	OID   []byte
	Mode  uint32
	Stage int // 0, or 1 to 3 in a conflict

	Mtime, MtimeNsec uint32 // seconds since 1970, and the rest in nanoseconds
	Size             uint32 // in bytes, modulo 2^32

	AssumeValid, SkipWorktree, IntentToAdd bool

	common int // bytes at the beginning of Path that the last path had as well
}

// Parse reads the index file data of a repository whose object names have
// hashLen bytes, 20 or 32, and calls f for each entry in the file's order. An
// Entry's Path and OID are f's only until it returns. f's error ends Parse and
// is returned as it is; what else is wrong comes as ErrMalformed, perhaps after
// f saw all entries. Parse looks neither at modes nor at what paths mean.
func Parse(data []byte, hashLen int, f func(Entry) error) error {
	p := parser{data: data, hashLen: hashLen, entry: func(e *Entry) error { return f(*e) }}
	return p.parse()
}

// parser reads one index file. Its callbacks may be nil.
type parser struct {
	data    []byte
	hashLen int

	entry  func(e *Entry) error
	undo   func(path []byte, mode uint32) error // resolve-undo: a conflict's former sides
	cached func(name []byte) error              // untracked cache: a name in some directory

	version uint32
	count   int
	bare    int      // entries without a name; they come first
	starts  []uint32 // where each entry can be read without the one before, else 0
	end     int      // of the entries

	seen   map[string]bool // known extensions
	link   *link
	sparse bool
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

func (p *parser) newHash() hash.Hash {
	if p.hashLen == sha256.Size {
		return sha256.New()
	}
	return sha1.New() //nolint:gosec // see the import
}

const headerLen = 12

func (p *parser) parse() error {
	if p.hashLen != sha1.Size && p.hashLen != sha256.Size {
		return malformed("object names of %d bytes", p.hashLen)
	}
	if len(p.data) < headerLen+p.hashLen || uint64(len(p.data)) > math.MaxUint32 {
		return malformed("size of %d bytes", len(p.data))
	}
	body, sum := p.data[:len(p.data)-p.hashLen], p.data[len(p.data)-p.hashLen:]
	p.data = body
	if string(body[:4]) != "DIRC" {
		return malformed("signature %q", body[:4])
	}
	if p.version = binary.BigEndian.Uint32(body[4:]); p.version < 2 || p.version > 4 {
		return malformed("version %d", p.version)
	}
	// All zero: index.skipHash.
	if len(bytes.Trim(sum, "\x00")) > 0 {
		h := p.newHash()
		_, _ = h.Write(body) // never fails
		if !bytes.Equal(h.Sum(nil), sum) {
			return malformed("checksum does not match")
		}
	}
	count := binary.BigEndian.Uint32(body[8:])
	if int64(count)*int64(p.fixedLen()) > int64(len(body)) {
		return malformed("%d entries in %d bytes", count, len(body))
	}
	p.count = int(count)
	if err := p.entries(); err != nil {
		return err
	}
	return p.extensions()
}

// statLen is the length of what an entry begins with: what stat(2) said, mode
// included.
const statLen = 40

// fixedLen is the length of an entry up to its flags, those included.
func (p *parser) fixedLen() int { return statLen + p.hashLen + 2 }

const (
	flagAssumeValid = 0x8000
	flagExtended    = 0x4000
	maskName        = 0x0fff

	extSkipWorktree = 0x4000
	extIntentToAdd  = 0x2000
)

func (p *parser) entries() error {
	p.starts, p.bare = make([]uint32, p.count), 0
	var e Entry
	var path []byte // of version 4, reused
	if p.version == 4 {
		path = make([]byte, 0, maxPath)
	}
	at := headerLen
	for i := range p.count {
		b := p.data[at:]
		if len(b) < p.fixedLen() {
			return malformed("entry %d is cut off", i)
		}
		last, lastStage := e.Path, e.Stage
		flags := binary.BigEndian.Uint16(b[statLen+p.hashLen:])
		n := p.fixedLen()
		var extended uint16
		if flags&flagExtended != 0 {
			if p.version == 2 || len(b) < n+2 {
				return malformed("entry %d has extended flags in version %d", i, p.version)
			}
			extended = binary.BigEndian.Uint16(b[n:])
			n += 2
			if extended&^(extSkipWorktree|extIntentToAdd) != 0 {
				return malformed("entry %d has unknown flags %#x", i, extended)
			}
		}
		e = Entry{
			Mtime:        binary.BigEndian.Uint32(b[8:]),
			MtimeNsec:    binary.BigEndian.Uint32(b[12:]),
			Mode:         binary.BigEndian.Uint32(b[24:]),
			Size:         binary.BigEndian.Uint32(b[36:]),
			OID:          b[statLen : statLen+p.hashLen : statLen+p.hashLen],
			Stage:        int(flags >> 12 & 3),
			AssumeValid:  flags&flagAssumeValid != 0,
			SkipWorktree: extended&extSkipWorktree != 0,
			IntentToAdd:  extended&extIntentToAdd != 0,
		}

		kept := 0 // bytes of the last path
		if p.version == 4 {
			strip, size := varint(b[n:])
			if size == 0 || strip > uint64(len(last)) {
				return malformed("entry %d takes too much from the path before it", i)
			}
			kept = len(last) - int(strip) //nolint:gosec // not more than len(last)
			n += size
		}
		size := bytes.IndexByte(b[n:min(len(b), n+maxPath+1)], 0)
		if size < 0 || kept+size > maxPath {
			return malformed("entry %d has no path, or one of more than %d bytes", i, maxPath)
		}
		if int(flags&maskName) != min(kept+size, maskName) {
			return malformed("entry %d has a path of another length than it says", i)
		}
		tail := b[n : n+size]
		e.common = kept + commonPrefix(last[kept:], tail)
		order := bytes.Compare(last[kept:], tail)
		if p.version == 4 {
			path = append(path[:kept], tail...)
			e.Path = path
		} else {
			e.Path = tail[:size:size]
		}

		// The end: in version 4 one NUL, else one to eight.
		end := n + size + 1
		if p.version != 4 {
			end = (n + size + 8) &^ 7
			if end > len(b) || len(bytes.Trim(b[n+size:end], "\x00")) > 0 {
				return malformed("entry %d is not padded with NUL", i)
			}
		}
		if kept == 0 {
			p.starts[i] = uint32(at)
		}
		at += end

		switch {
		case len(e.Path) == 0 && i == p.bare:
			p.bare++
		case len(e.Path) == 0:
			return malformed("entry %d has no path", i)
		case i == p.bare: // the first with a path
		case order > 0 || order == 0 && (e.Stage <= lastStage || lastStage == 0):
			return malformed("entry %d, %s, is out of order", i, quote(e.Path))
		}
		if p.entry != nil {
			if err := p.entry(&e); err != nil {
				return err
			}
		}
	}
	p.end = at
	return nil
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+8 <= n && binary.NativeEndian.Uint64(a[i:]) == binary.NativeEndian.Uint64(b[i:]) {
		i += 8
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// varint reads the number at the beginning of b. size is 0 if there is none, or
// one that needs more than 56 bits.
func varint(b []byte) (v uint64, size int) {
	for i, c := range b {
		if i == 8 {
			break
		}
		v = v<<7 | uint64(c&0x7f)
		if c < 0x80 {
			return v, i + 1
		}
		v++
	}
	return 0, 0
}

// quote makes a path fit for a message.
func quote(path []byte) string {
	const most = 120
	if len(path) > most {
		return fmt.Sprintf("%q…", path[:most])
	}
	return fmt.Sprintf("%q", path)
}
