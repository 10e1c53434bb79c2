package gitindex_test

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
)

// entry is an entry to write as it is, wrong or not.
type entry struct {
	path     string
	mode     uint32 // 0: a plain file
	stage    int
	extended uint16 // flags of version 3
	strip    int    // version 4: bytes less from the last path, -1 for all of it
	says     int    // the length it says, 0 for the right one
	pad      string // "": as it has to be
}

// index is an index file to write.
type index struct {
	version, hashLen int
	count            int // 0: as many as there are
	entries          []entry
	exts             []ext
	checksum         string // "": the right one
}

type ext struct{ name, data string }

func be32(v int) string { return string(binary.BigEndian.AppendUint32(nil, uint32(v))) }

func (x index) bytes() []byte {
	data, _ := x.layout()
	return data
}

// layout also tells where each entry begins, and where they end.
func (x index) layout() ([]byte, []int) {
	if x.version == 0 {
		x.version = 2
	}
	if x.hashLen == 0 {
		x.hashLen = 20
	}
	if x.count == 0 {
		x.count = len(x.entries)
	}
	out := []byte("DIRC" + be32(x.version) + be32(x.count))
	var at []int
	last := ""
	for i, e := range x.entries {
		at = append(at, len(out))
		out = append(out, rawEntry(x.version, x.hashLen, i, e, last)...)
		last = e.path
	}
	at = append(at, len(out))
	for _, e := range x.exts {
		out = append(out, e.name+be32(len(e.data))+e.data...)
	}
	switch {
	case x.checksum != "":
		out = append(out, x.checksum...)
	default:
		out = append(out, sum(x.hashLen, out)...)
	}
	return out, at
}

func sum(hashLen int, data []byte) []byte {
	if hashLen == 32 {
		s := sha256.Sum256(data)
		return s[:]
	}
	s := sha1.Sum(data)
	return s[:]
}

func rawEntry(version, hashLen, i int, e entry, last string) []byte {
	if e.mode == 0 {
		e.mode = 0o100644
	}
	if e.says == 0 {
		e.says = min(len(e.path), 0xfff)
	}
	b := make([]byte, 40)
	binary.BigEndian.PutUint32(b[8:], uint32(i))
	binary.BigEndian.PutUint32(b[24:], e.mode)
	b = append(b, bytes.Repeat([]byte{byte(i) | 1}, hashLen)...)
	flags := uint16(e.stage<<12 | e.says)
	if e.extended != 0 {
		flags |= 0x4000
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	if e.extended != 0 {
		b = binary.BigEndian.AppendUint16(b, e.extended)
	}
	if version != 4 {
		b = append(b, e.path...)
		if e.pad == "" {
			e.pad = "\x00\x00\x00\x00\x00\x00\x00\x00"[:8-len(b)%8]
		}
		return append(b, e.pad...)
	}
	common := 0
	for e.strip == 0 && common < min(len(last), len(e.path)) && last[common] == e.path[common] {
		common++
	}
	if e.strip > 0 {
		return append(append(b, putVarint(e.strip)...), e.path+"\x00"...)
	}
	return append(append(b, putVarint(len(last)-common)...), e.path[common:]+"\x00"...)
}

func putVarint(v int) []byte {
	out := []byte{byte(v & 127)}
	for v >>= 7; v > 0; v >>= 7 {
		v--
		out = append([]byte{byte(v&127) | 128}, out...)
	}
	return out
}

// ewah is a compressed bitmap of size bits with these of them set.
func ewah(size int, set ...int) string {
	words := make([]uint64, (size+63)/64)
	for _, i := range set {
		words[i/64] |= 1 << (i % 64)
	}
	return ewahWords(size, append([]uint64{uint64(len(words)) << 33}, words...)...)
}

func ewahWords(size int, words ...uint64) string {
	out := be32(size) + be32(len(words))
	for _, w := range words {
		out += string(binary.BigEndian.AppendUint64(nil, w))
	}
	return out + be32(0)
}

// eoie is the extension that tells where the entries end, right for these
// extensions before it.
func eoie(hashLen, end int, before ...ext) ext {
	var headers []byte
	for _, e := range before {
		headers = append(headers, e.name+be32(len(e.data))...)
	}
	return ext{"EOIE", be32(end) + string(sum(hashLen, headers))}
}
