package gitindex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"math"
)

// Base returns the checksum that names the shared index which belongs to the
// index file data, nil for an index that is not split.
func Base(data []byte, hashLen int) ([]byte, error) {
	p := parser{data: data, hashLen: hashLen}
	if err := p.parse(); err != nil {
		return nil, err
	}
	if p.link == nil || len(bytes.Trim(p.link.base, "\x00")) == 0 {
		return nil, nil
	}
	return p.link.base, nil
}

// ValidateSplit validates the split index data together with its shared index:
// each by itself, and the index that git makes of both.
func ValidateSplit(data, shared []byte, hashLen int) error {
	if err := Validate(shared, hashLen); err != nil {
		return err
	}
	if err := Validate(data, hashLen); err != nil {
		return err
	}
	top, below := parser{data: data, hashLen: hashLen}, parser{data: shared, hashLen: hashLen}
	if err := top.parse(); err != nil {
		return err
	}
	if err := below.parse(); err != nil {
		return err
	}
	switch {
	case top.link == nil:
		return malformed("not split")
	case below.link != nil:
		return malformed("the shared index is split itself")
	case !bytes.Equal(shared[len(shared)-hashLen:], top.link.base):
		return malformed("the shared index is another one")
	case max(top.link.deleted.end, top.link.replaced.end) > uint64(below.count): //nolint:gosec // never negative
		return malformed("it changes more entries than the shared index has")
	}

	taken := 0
	replacing, stop := iter.Pull(top.named(false, &taken))
	defer stop()
	nextAdded, stop := iter.Pull(top.named(true, &taken))
	defer stop()
	added, ok := nextAdded()

	var v validator
	var last []byte
	lastStage := -1
	emit := func(e *Entry) error {
		order := bytes.Compare(last, e.Path)
		if order > 0 || order == 0 && (lastStage == 0 || lastStage >= e.Stage) {
			return malformed("%s is out of order in the merged index", quote(e.Path))
		}
		e.common = commonPrefix(last, e.Path)
		last, lastStage = append(last[:0], e.Path...), e.Stage
		return v.entry(e)
	}
	deleted, replaced := top.link.deleted.reader(), top.link.replaced.reader()
	below.entry = func(e *Entry) error {
		del, repl := deleted.next(), replaced.next()
		if repl {
			with, ok := replacing()
			if del || !ok {
				return malformed("%s is both deleted and replaced", quote(e.Path))
			}
			path := e.Path
			*e = *with
			e.Path = path
		}
		if del {
			return nil
		}
		for ok {
			order := bytes.Compare(added.Path, e.Path)
			if order == 0 && (added.Stage == 0 || added.Stage == e.Stage) {
				return nil // added takes its place
			}
			if order > 0 || order == 0 && added.Stage > e.Stage {
				break
			}
			if err := emit(added); err != nil {
				return err
			}
			added, ok = nextAdded()
		}
		return emit(e)
	}
	if err := below.entries(); err != nil {
		return err
	}
	for ok {
		if err := emit(added); err != nil {
			return err
		}
		added, ok = nextAdded()
	}
	if taken != top.count {
		return malformed("%d of %d entries have no place in the merged index", top.count-taken, top.count)
	}
	return nil
}

// named yields those entries that have a path, or those that have none, and
// counts them. An entry is good until the next one.
func (p *parser) named(named bool, taken *int) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		again := *p
		again.entry = func(e *Entry) error {
			if (len(e.Path) > 0) == named {
				*taken++
				if !yield(e) {
					return errStop
				}
			}
			return nil
		}
		_ = again.entries() // the count tells whether it came to the end
	}
}

var errStop = errors.New("the reader has enough")

// bitReader gives the bits of a bitmap one after the other, then zeros.
type bitReader struct {
	raw      []byte
	run      uint64 // bits that are all
	bit      bool
	literals uint64 // words to come before the next marker
	word     uint64
	left     int // bits in word
}

func (m bitmap) reader() *bitReader { return &bitReader{raw: m.raw} }

func (r *bitReader) next() bool {
	for r.run == 0 && r.left == 0 {
		if len(r.raw) == 0 {
			return false
		}
		word := binary.BigEndian.Uint64(r.raw)
		r.raw = r.raw[8:]
		if r.literals > 0 {
			r.literals--
			r.word, r.left = word, 64
		} else {
			r.bit, r.run, r.literals = word&1 != 0, 64*(word>>1&math.MaxUint32), word>>33
		}
	}
	if r.run > 0 {
		r.run--
		return r.bit
	}
	bit := r.word&1 != 0
	r.word >>= 1
	r.left--
	return bit
}
