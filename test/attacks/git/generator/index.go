package generator

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's object names
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Entry is one path of a git index.
type Entry struct {
	Mode         uint32
	ID           [sha1.Size]byte // blob or commit
	Path         string
	SkipWorktree bool
}

// EncodeIndex makes an index of version 2, 3 or 4 whose paths are what the caller
// wants, valid or not. Extensions are appended as they are.
func EncodeIndex(version int, entries []Entry, extensions ...[]byte) ([]byte, error) {
	if version < 2 || version > 4 {
		return nil, fmt.Errorf("encode an index: no version %d", version)
	}
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	var b bytes.Buffer
	b.WriteString("DIRC")
	put32 := func(n uint32) { b.Write(binary.BigEndian.AppendUint32(nil, n)) }
	put32(uint32(version))
	put32(uint32(len(entries)))
	previous := ""
	for _, e := range entries {
		start := b.Len()
		for range 6 { // times, device, inode
			put32(0)
		}
		put32(e.Mode)
		put32(0) // uid
		put32(0) // gid
		put32(0) // size
		b.Write(e.ID[:])
		flags := uint16(min(len(e.Path), 0xfff))
		extended := version > 2 && e.SkipWorktree
		if extended {
			flags |= 0x4000
		}
		b.Write(binary.BigEndian.AppendUint16(nil, flags))
		if extended {
			b.Write([]byte{0x40, 0})
		}
		if version == 4 {
			common := 0
			for common < len(previous) && common < len(e.Path) && previous[common] == e.Path[common] {
				common++
			}
			strip := len(previous) - common
			if strip > 0x7f {
				return nil, errors.New("encode an index: a path too long for this encoder")
			}
			b.WriteByte(byte(strip))
			b.WriteString(e.Path[common:])
			b.WriteByte(0)
			previous = e.Path
			continue
		}
		b.WriteString(e.Path)
		for pad := 8 - (b.Len()-start)%8; pad > 0; pad-- {
			b.WriteByte(0)
		}
	}
	for _, ext := range extensions {
		b.Write(ext)
	}
	sum := sha1.Sum(b.Bytes()) //nolint:gosec // the format's
	b.Write(sum[:])
	return b.Bytes(), nil
}

// Extension is an index extension with its four-letter name.
func Extension(name string, data []byte) []byte {
	ext := append([]byte(name), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(ext[4:], uint32(len(data)))
	return append(ext, data...)
}

// IndexPaths lists the paths of an index, so far as it can be read. What git would
// refuse is no danger; it is left out.
func IndexPaths(data []byte) []string {
	if len(data) < 12 || string(data[:4]) != "DIRC" {
		return nil
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	var paths []string
	at, previous := 12, ""
	for range count {
		if at+62 > len(data) {
			return paths
		}
		start := at
		flags := binary.BigEndian.Uint16(data[at+60:])
		at += 62
		if version > 2 && flags&0x4000 != 0 {
			at += 2
		}
		prefix := ""
		if version == 4 {
			strip, n := offsetVarint(data[min(at, len(data)):])
			at += n
			if strip > len(previous) {
				return paths
			}
			prefix = previous[:len(previous)-strip]
		}
		if at > len(data) {
			return paths
		}
		end := bytes.IndexByte(data[at:], 0)
		if end < 0 {
			return paths
		}
		path := prefix + string(data[at:at+end])
		paths = append(paths, path)
		previous = path
		at += end + 1
		if version != 4 {
			at = start + (at-1-start+8)/8*8
		}
	}
	return paths
}

// offsetVarint is git's variable-width number, as in packs.
func offsetVarint(data []byte) (value, n int) {
	for i, c := range data {
		if i > 0 {
			value++
		}
		value = value<<7 | int(c&0x7f)
		if c&0x80 == 0 || i == 4 {
			return value, i + 1
		}
	}
	return 0, len(data)
}
