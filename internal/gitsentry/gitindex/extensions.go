package gitindex

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
)

// maxDepth bounds the trees of directories in extensions, which git reads by
// recursion: no path has more components.
const maxDepth = maxPath/2 + 1

// link is the extension that makes an index a split one.
type link struct {
	base              []byte // the checksum of the shared index
	deleted, replaced bitmap
}

func (p *parser) extensions() error {
	headers := p.newHash()
	p.seen = map[string]bool{}
	at, eoie := p.end, -1
	for at < len(p.data) {
		b := p.data[at:]
		if eoie >= 0 || len(b) < 8 {
			return malformed("%d bytes behind the extensions", len(b))
		}
		size := binary.BigEndian.Uint32(b[4:])
		c := &cursor{b: b[8:]}
		c.b = c.take(uint64(size))
		if c.bad {
			return malformed("extension %q is cut off", b[:4])
		}
		name := string(b[:4])
		known, err := p.extension(name, c, headers.Sum)
		if err != nil {
			return err
		}
		if known {
			if c.bad || len(c.b) > 0 {
				return malformed("extension %q", name)
			}
			if p.seen[name] {
				return malformed("two extensions %q", name)
			}
			p.seen[name] = true
		}
		if name == "EOIE" {
			eoie = at
		}
		_, _ = headers.Write(b[:8]) // never fails
		at += 8 + int(size)
	}

	// git looks for EOIE at its place, not in the row of extensions, and reads
	// entries where EOIE and IEOT tell. Neither may hide in something else's data.
	for _, hashLen := range []int{20, p.hashLen} {
		if i := len(p.data) - 12 - hashLen; i >= 0 && i != eoie && string(p.data[i:i+4]) == "EOIE" {
			return malformed("extension %q inside of something else", "EOIE")
		}
	}
	switch {
	case p.link == nil || len(bytes.Trim(p.link.base, "\x00")) == 0:
		if p.bare > 0 {
			return malformed("%d entries without a path", p.bare)
		}
	case p.sparse:
		return malformed("both split and sparse")
	case !p.link.deleted.present:
		return malformed("extension %q without bitmaps", "link")
	case uint64(p.bare) != p.link.replaced.ones: //nolint:gosec // never negative
		return malformed("%d entries without a path replace %d of the shared index", p.bare, p.link.replaced.ones)
	}
	return nil
}

// extension reads the extension that fills c, if it is a known one. sum is the
// checksum of the headers before it.
func (p *parser) extension(name string, c *cursor, sum func([]byte) []byte) (known bool, err error) {
	switch name {
	case "TREE":
		p.tree(c)
	case "REUC":
		err = p.resolveUndo(c)
	case "link":
		p.link = &link{base: c.take(uint64(p.hashLen))} //nolint:gosec // 20 or 32
		if len(c.b) > 0 {
			p.link.deleted, p.link.replaced = c.bitmap(), c.bitmap()
		}
	case "sdir":
		p.sparse = true
	case "UNTR":
		err = p.untracked(c)
	case "FSMN":
		p.fsmonitor(c)
	case "IEOT":
		p.offsets(c)
	case "EOIE":
		c.expect(int(c.u32()) == p.end && bytes.Equal(c.take(uint64(p.hashLen)), sum(nil))) //nolint:gosec // 20 or 32
	default:
		if name[0] < 'A' || name[0] > 'Z' {
			return false, malformed("unknown extension %q, which must not be ignored", name)
		}
		return false, nil
	}
	return true, err
}

// mostEntries is the number of entries in the whole index, or more if that is up
// to the shared index.
func (p *parser) mostEntries() uint64 {
	if p.seen["link"] {
		return math.MaxInt32 / 2
	}
	return uint64(p.count) //nolint:gosec // never negative
}

// offsets reads blocks of entries that git reads at the same time.
func (p *parser) offsets(c *cursor) {
	c.expect(c.u32() == 1 && len(c.b) > 0)
	i := uint64(0)
	for len(c.b) > 0 && !c.bad {
		offset, n := c.u32(), uint64(c.u32())
		c.expect(n > 0 && n <= uint64(len(p.starts))-i && p.starts[i] == offset)
		i += n
	}
	c.expect(i == uint64(len(p.starts)))
}

// tree reads the names of trees for directories, depth first.
func (p *parser) tree(c *cursor) {
	type level struct {
		left   uint64 // directories to come
		last   []byte // the one before
		byName bool   // so far in the order of trees, or
		byLen  bool   // the shortest first: either excludes doubles
	}
	levels := []level{{left: 1, byName: true, byLen: true}}
	for len(levels) > 0 && !c.bad {
		l := &levels[len(levels)-1]
		if l.left == 0 {
			levels = levels[:len(levels)-1]
			continue
		}
		l.left--
		name := c.text(0)
		c.expect((len(name) == 0) == (len(levels) == 1) && bytes.IndexByte(name, '/') < 0)
		if l.last != nil {
			order := bytes.Compare(l.last, name)
			l.byLen = l.byLen && (len(l.last) < len(name) || len(l.last) == len(name) && order < 0)
			l.byName = l.byName && treeLess(l.last, name)
			c.expect(l.byLen || l.byName)
		}
		l.last = name
		entries := c.text(' ')
		below, ok := number(c.text('\n'), 10)
		c.expect(ok && below <= uint64(len(c.b)))
		if string(entries) != "-1" { // the tree's name is known
			n, ok := number(entries, 10)
			c.expect(ok && n <= p.mostEntries())
			c.take(uint64(p.hashLen)) //nolint:gosec // 20 or 32
		}
		levels = append(levels, level{left: below, byName: true, byLen: true})
		c.expect(len(levels) <= maxDepth)
	}
}

// treeLess compares as git sorts the directories of a tree: with a slash behind.
func treeLess(a, b []byte) bool {
	n := min(len(a), len(b))
	if order := bytes.Compare(a[:n], b[:n]); order != 0 {
		return order < 0
	}
	return len(a) < len(b) && b[n] > '/' || len(a) > len(b) && a[n] < '/'
}

// resolveUndo reads conflicts that were resolved, and can be brought back.
func (p *parser) resolveUndo(c *cursor) error {
	for len(c.b) > 0 && !c.bad {
		path := c.text(0)
		c.expect(len(path) <= maxPath)
		var modes [3]uint32
		for i := range modes {
			mode, ok := number(c.text(0), 8)
			c.expect(ok && mode <= math.MaxUint16)
			modes[i] = uint32(mode & math.MaxUint16)
		}
		for _, mode := range modes {
			if mode == 0 {
				continue
			}
			c.take(uint64(p.hashLen)) //nolint:gosec // 20 or 32
			if p.undo != nil && !c.bad {
				if err := p.undo(path, mode); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ondiskStat is the length of what stat(2) said in the untracked cache.
const ondiskStat = 36

// untracked reads what git knows of untracked files.
func (p *parser) untracked(c *cursor) error {
	c.expect(len(c.b) > 1 && c.b[len(c.b)-1] == 0)
	c.take(c.varint())                             // where it holds
	c.take(uint64(2*ondiskStat + 4 + 2*p.hashLen)) //nolint:gosec // 20 or 32
	c.text(0)                                      // .gitignore
	dirs := c.varint()
	c.expect(dirs <= uint64(len(c.b)))
	if c.bad || dirs == 0 {
		return nil
	}
	left := []uint64{1} // directories to come on each level
	n := uint64(0)
	for len(left) > 0 && !c.bad {
		l := &left[len(left)-1]
		if *l == 0 {
			left = left[:len(left)-1]
			continue
		}
		*l--
		n++
		files, below := c.varint(), c.varint()
		c.expect(n <= dirs && files <= uint64(len(c.b)) && below <= uint64(len(c.b)))
		for i := uint64(0); i <= files && !c.bad; i++ {
			name := c.text(0)
			if i == 0 && len(left) == 1 { // the worktree itself
				c.expect(len(name) == 0)
				continue
			}
			if p.cached != nil && !c.bad {
				if err := p.cached(name); err != nil {
					return err
				}
			}
		}
		left = append(left, below)
		c.expect(len(left) <= maxDepth)
	}
	c.expect(n == dirs)
	valid, checkOnly, hashed := c.bitmap(), c.bitmap(), c.bitmap()
	c.expect(max(valid.end, checkOnly.end, hashed.end) <= dirs)
	c.take(valid.ones * ondiskStat)
	c.take(hashed.ones * uint64(p.hashLen)) //nolint:gosec // 20 or 32
	c.take(1)                               // the NUL behind it
	return nil
}

// fsmonitor reads which entries a file system monitor vouched for.
func (p *parser) fsmonitor(c *cursor) {
	switch c.u32() {
	case 1:
		c.take(8)
	case 2:
		c.text(0)
	default:
		c.bad = true
	}
	size := c.u32()
	c.expect(uint64(size) == uint64(len(c.b)))
	c.expect(c.bitmap().size <= p.mostEntries())
}

// bitmap is what matters of a compressed bitmap (EWAH).
type bitmap struct {
	present bool
	raw     []byte
	size    uint64 // in bits
	end     uint64 // one more than the number of the last bit set
	ones    uint64 // how many are set
}

// cursor takes a file apart from its beginning. Once something is missing it is
// bad, and all that is read is empty.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) expect(ok bool) {
	if !ok {
		c.bad = true
		c.b = nil
	}
}

func (c *cursor) take(n uint64) []byte {
	c.expect(n <= uint64(len(c.b)))
	if c.bad {
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) u32() uint32 {
	b := c.take(4)
	if c.bad {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func (c *cursor) varint() uint64 {
	v, size := varint(c.b)
	c.expect(size > 0)
	c.take(uint64(size)) //nolint:gosec // never negative
	return v
}

// text reads up to end, which is not part of it.
func (c *cursor) text(end byte) []byte {
	i := bytes.IndexByte(c.b, end)
	c.expect(i >= 0)
	if c.bad {
		return nil
	}
	b := c.b[:i:i]
	c.b = c.b[i+1:]
	return b
}

func (c *cursor) bitmap() bitmap {
	m := bitmap{present: true, size: uint64(c.u32())}
	words := uint64(c.u32())
	raw := c.take(words * 8)
	m.raw = raw
	// The number of the last marker word, at which git would append.
	c.expect(uint64(c.u32()) < words)
	most := (m.size + 63) / 64
	for pos := uint64(0); len(raw) > 0 && !c.bad; {
		// A marker: a bit, how many words are filled with it, how many as they
		// are follow.
		marker := binary.BigEndian.Uint64(raw)
		raw = raw[8:]
		run, literals := marker>>1&math.MaxUint32, marker>>33
		pos += run
		if marker&1 != 0 && run > 0 {
			m.ones += 64 * run
			m.end = 64 * pos
		}
		c.expect(literals <= uint64(len(raw)/8) && pos+literals <= most)
		for range literals {
			if c.bad {
				break
			}
			if word := binary.BigEndian.Uint64(raw); word != 0 {
				m.ones += uint64(bits.OnesCount64(word))  //nolint:gosec // 0 to 64
				m.end = 64*pos + uint64(bits.Len64(word)) //nolint:gosec // 0 to 64
			}
			raw = raw[8:]
			pos++
		}
	}
	c.expect(m.end <= m.size)
	return m
}

// number reads all of b, in at most ten digits.
func number(b []byte, base uint64) (uint64, bool) {
	var v uint64
	for _, c := range b {
		d := uint64(c) - '0'
		if d >= base {
			return 0, false
		}
		v = v*base + d
	}
	return v, len(b) > 0 && len(b) <= 10
}
