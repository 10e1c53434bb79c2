// Package store owns a domain's state.db: who may open it, the versions of its
// schema, and the one worker that writes the audit's records. A coordinator has it
// open while it lives; a command may for a moment, under the domain's lock.
package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// File is the store in a Domain Root.
const File = "state.db"

const (
	queueLen  = 4096
	batchLen  = 512
	batchSize = 8 << 20 // bytes of payload
	// lull is how long records that nobody waits for may be collected.
	lull = 200 * time.Millisecond
	// LockWait bounds the wait for whoever has the file.
	LockWait = 3 * time.Second

	// Of the egress chain only so many records are kept; the oldest are dropped
	// together, so that this is told seldom.
	keepEgress = 50_000
	dropEgress = 5_000
)

// ErrClosed means that the store was closed before.
var ErrClosed = errors.New("the store is closed")

// ErrFull means that the disk does not keep up.
var ErrFull = errors.New("the disk does not keep up with what is to be recorded")

// Options configure a store. Root is the Domain Root.
type Options struct {
	Root string
	Log  *slog.Logger

	keep, drop int    // of egress records; 0 for the defaults
	step       func() // called before every step of a migration, for tests
}

type job struct {
	chain string
	event audit.Event
	done  func(error)
	later bool // done may wait for a lull
	flush bool // there is no event: what came before is to be on the disk
}

// Store writes records on a worker of its own. Its methods may be called at the
// same time, and before the file is open.
type Store struct {
	o      Options
	jobs   chan job
	over   chan struct{} // closed when the worker has ended
	opened chan struct{} // closed when db and openErr are set

	db       *bbolt.DB
	heads    *headFile
	openErr  error
	closeErr error
	lost     map[string]*atomic.Int64 // by chain: events that nobody waited for, and that were not written

	// sending is held for reading by whoever sends to jobs.
	sending sync.RWMutex
	closed  bool
}

// Open begins to open the store, and makes it where there is none. What is
// appended meanwhile waits; Ready tells what came of it.
func Open(o Options) *Store {
	if o.keep == 0 {
		o.keep, o.drop = keepEgress, dropEgress
	}
	s := &Store{o: o, jobs: make(chan job, queueLen), over: make(chan struct{}), opened: make(chan struct{}), lost: map[string]*atomic.Int64{}}
	for _, chain := range audit.Chains() {
		s.lost[chain] = new(atomic.Int64)
	}
	go s.work()
	return s
}

// Ready waits until the store is open, and returns why it is not.
func (s *Store) Ready() error {
	<-s.opened
	return s.openErr
}

// Append records an event in the main chain. It does not wait: done, where it is
// not nil, is called from another goroutine once the record is on the disk, with
// nil, or with why it is not. The order of calls is that of the records.
func (s *Store) Append(e audit.Event, done func(error)) {
	s.append(job{chain: audit.Main, event: e, done: done, later: done == nil})
}

// Later is Append for an event that need not be on the disk before the next that is
// waited for; that comes within a fifth of a second.
func (s *Store) Later(e audit.Event, done func(error)) {
	s.append(job{chain: audit.Main, event: e, done: done, later: true})
}

// AppendEgress records a decision of the network. One that comes while the disk
// does not keep up is counted, and the count recorded later.
func (s *Store) AppendEgress(e audit.Event) {
	if s.Behind() {
		s.lost[audit.Egress].Add(1)
		return
	}
	s.append(job{chain: audit.Egress, event: e, later: true})
}

// Behind reports whether the disk does not keep up: nobody should begin then what
// needs further records, for which there is still room.
func (s *Store) Behind() bool { return len(s.jobs) > queueLen/4 }

func (s *Store) append(j job) {
	if j.event.Time.IsZero() {
		j.event.Time = time.Now()
	}
	if len(j.event.Payload) == 0 {
		j.event.Payload = audit.Payload(nil)
	}
	s.sending.RLock()
	defer s.sending.RUnlock()
	err := j.event.Check()
	if err == nil && s.closed {
		err = ErrClosed
	}
	if err == nil {
		select {
		case s.jobs <- j:
			return
		default:
			err = ErrFull
		}
	}
	s.failed([]job{j}, err)
}

// flush waits until what was appended before is on the disk. It does not where the
// store is closed or the disk does not keep up.
func (s *Store) flush() {
	written := make(chan struct{})
	s.sending.RLock()
	sent := false
	if !s.closed {
		select {
		case s.jobs <- job{flush: true, done: func(error) { close(written) }}: // what cannot be written is told by a record later
			sent = true
		default:
		}
	}
	s.sending.RUnlock()
	if sent {
		<-written
	}
}

// failed tells that jobs are not recorded. That is recorded as soon as it can be.
func (s *Store) failed(batch []job, err error) {
	s.o.Log.Error("write records", "count", len(batch), "first", batch[0].event.Kind, "error", err)
	for _, j := range batch {
		if j.done != nil {
			go j.done(err)
		} else {
			s.lost[j.chain].Add(1)
		}
	}
}

// Close ends the store after all that was appended before.
func (s *Store) Close() error {
	s.sending.Lock()
	if !s.closed {
		s.closed = true
		close(s.jobs)
	}
	s.sending.Unlock()
	<-s.over
	return s.closeErr
}

func (s *Store) work() {
	defer close(s.over)
	s.db, s.heads, s.openErr = open(s.o)
	close(s.opened)
	if s.openErr != nil {
		s.o.Log.Error("open the store", "error", s.openErr)
	}
	defer func() {
		if s.openErr == nil {
			s.closeErr = errors.Join(s.heads.close(), s.db.Close())
		}
	}()
	for j := range s.jobs {
		batch := s.collect(j)
		err := s.openErr
		if err == nil && slices.ContainsFunc(batch, func(j job) bool { return !j.flush }) {
			err = s.write(batch)
		}
		if err != nil {
			s.failed(batch, err)
			continue
		}
		for _, j := range batch {
			if j.done != nil {
				j.done(nil)
			}
		}
	}
}

// collect takes what waits already; where nobody waits for any of it, also what
// comes in a lull.
func (s *Store) collect(j job) []job {
	batch, size := []job{j}, len(j.event.Payload)
	awaited := !j.later
	var timer <-chan time.Time
	for len(batch) < batchLen && size < batchSize {
		var next job
		var ok bool
		select {
		case next, ok = <-s.jobs:
		default:
			if awaited {
				return batch
			}
			if timer == nil {
				timer = time.After(lull)
			}
			select {
			case next, ok = <-s.jobs:
			case <-timer:
				return batch
			}
		}
		if !ok {
			return batch
		}
		batch, size = append(batch, next), size+len(next.event.Payload)
		awaited = awaited || !next.later
	}
	return batch
}

// write puts a batch on the disk, all or nothing.
func (s *Store) write(batch []job) error {
	lost := map[string]int64{}
	heads := map[string]audit.Head{}
	err := guarded(s.o.Root, func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			for _, chain := range audit.Chains() {
				h, err := lastOf(tx, chain)
				if err != nil {
					return err
				}
				heads[chain] = h
			}
			for _, j := range batch {
				if j.flush {
					continue
				}
				if err := put(tx, j.chain, heads, j.event); err != nil {
					return err
				}
			}
			for chain, kind := range map[string]string{audit.Main: audit.ChainLost, audit.Egress: audit.EgressLost} {
				if lost[chain] = s.lost[chain].Swap(0); lost[chain] == 0 {
					continue
				}
				if err := put(tx, chain, heads, audit.Event{Time: time.Now(), Kind: kind, Payload: audit.Payload(map[string]int64{"count": lost[chain]})}); err != nil {
					return err
				}
			}
			return s.retain(tx, heads)
		})
	})
	if err != nil {
		for chain, n := range lost {
			s.lost[chain].Add(n)
		}
		return fmt.Errorf("write %s: %w", filepath.Join(s.o.Root, File), err)
	}
	if err := s.heads.write(heads); err != nil {
		s.o.Log.Error("keep the chains' heads", "error", err) // they may be behind
	}
	return nil
}

func put(tx *bbolt.Tx, chain string, heads map[string]audit.Head, e audit.Event) error {
	h := heads[chain]
	r, err := audit.New(h.Seq, h.Hash, e)
	if err != nil {
		return fmt.Errorf("record %s: %w", e.Kind, err)
	}
	b := tx.Bucket([]byte(chain))
	b.FillPercent = 1 // only ever appended to
	if err := b.Put(key(r.Seq), r.Encode()); err != nil {
		return err
	}
	heads[chain] = audit.Head{Seq: r.Seq, Hash: r.Hash}
	return nil
}

func key(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// retain drops the oldest egress records, and tells so in the main chain.
func (s *Store) retain(tx *bbolt.Tx, heads map[string]audit.Head) error {
	b := tx.Bucket([]byte(audit.Egress))
	c := b.Cursor()
	k, _ := c.First()
	if len(k) != 8 {
		return nil // none, or damaged
	}
	first := binary.BigEndian.Uint64(k)
	if heads[audit.Egress].Seq < first || heads[audit.Egress].Seq-first < uint64(s.o.keep+s.o.drop) { //nolint:gosec // small
		return nil
	}
	end := heads[audit.Egress].Seq - uint64(s.o.keep) //nolint:gosec // checked
	d := audit.Dropped{Chain: audit.Egress, First: first}
	for k, v := c.First(); k != nil && bytes.Compare(k, key(end)) <= 0; k, v = c.First() {
		r, err := audit.Decode(v)
		if err != nil {
			return nil //nolint:nilerr // damaged ones are for verify to find: they stay
		}
		d.Last = audit.Head{Seq: r.Seq, Hash: r.Hash}
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return put(tx, audit.Main, heads, audit.Event{Time: time.Now(), Kind: audit.EgressDropped, Payload: audit.Payload(d)})
}

// lastOf is the end of a chain.
func lastOf(tx *bbolt.Tx, chain string) (h audit.Head, err error) {
	b := tx.Bucket([]byte(chain))
	if b == nil {
		return h, fmt.Errorf("bucket %s is missing: the store is damaged; %s", chain, aside)
	}
	k, v := b.Cursor().Last()
	if k == nil {
		return h, nil
	}
	r, err := audit.Decode(v)
	if err != nil {
		return h, fmt.Errorf("last record of the %s chain %w; %s", chain, err, aside)
	}
	return audit.Head{Seq: r.Seq, Hash: r.Hash}, nil
}

const aside = "keep it for a look and move it out of the Domain Root, for a new one to be made"

// Page reads the part of a chain that comes after a sequence number, of all that was
// appended before.
func (s *Store) Page(chain string, after uint64) (audit.Page, error) {
	if err := s.Ready(); err != nil {
		return audit.Page{}, err
	}
	s.flush()
	return page(s.db, s.o.Root, chain, after)
}

func page(db *bbolt.DB, root, chain string, after uint64) (p audit.Page, err error) {
	p.Entries = []audit.Entry{}
	if p.Heads, err = readHeads(root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	err = guarded(root, func() error {
		return db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(chain))
			if b == nil {
				return fmt.Errorf("there is no chain %.64q", chain)
			}
			size := 0
			c := b.Cursor()
			for k, v := c.Seek(key(after + 1)); k != nil; k, v = c.Next() {
				if size += len(v); size > audit.PageBytes && len(p.Entries) > 0 {
					p.More = true
					break
				}
				p.Entries = append(p.Entries, entry(k, v))
			}
			letGo(db, tx)
			return nil
		})
	})
	return p, err
}

// letGo takes the file's pages out of this process's memory, of which a coordinator
// is to need little. They stay in the kernel's cache. The mapping is that of an open
// transaction, so that it stays where it is.
func letGo(db *bbolt.DB, tx *bbolt.Tx) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, db.Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED) //nolint:gosec // a size; where it fails nothing is lost
}

func entry(k, v []byte) audit.Entry {
	var number [8]byte
	copy(number[:], k)
	seq := binary.BigEndian.Uint64(number[:]) // of another key, what it stands among
	if len(k) != len(number) {
		return audit.Entry{Record: audit.Record{Seq: seq}, Damage: fmt.Sprintf("its key %.64x is not a number", k)}
	}
	r, err := audit.Decode(v)
	if err == nil && r.Seq != seq {
		err = fmt.Errorf("it is number %d by itself", r.Seq)
	}
	if err != nil {
		return audit.Entry{Record: audit.Record{Seq: seq}, Damage: err.Error()}
	}
	return audit.Entry{Record: r}
}

// guarded turns what bbolt does on a damaged file, a panic or a bad access to the
// mapped file, into an error.
func guarded(root string, f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s is damaged (%v); %s", filepath.Join(root, File), p, aside)
		}
	}()
	return f()
}

// open opens the file and brings it to the current schema.
func open(o Options) (db *bbolt.DB, heads *headFile, err error) {
	path := filepath.Join(o.Root, File)
	if heads, err = openHeads(o.Root); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, heads.close())
			if db != nil {
				err = errors.Join(err, db.Close())
			}
		}
	}()
	if unborn(o.Root) {
		if err = os.Truncate(path, 0); err != nil { // bbolt makes an empty one anew
			return nil, heads, fmt.Errorf("open %s: %w", path, err)
		}
	}
	if db, err = openFile(path, false); err != nil {
		return nil, heads, err
	}
	err = guarded(o.Root, func() error {
		from, err := migrate(db, o)
		if err != nil {
			return err
		}
		return compare(db, o, heads, heads.made && from > 0)
	})
	if err != nil {
		return db, heads, fmt.Errorf("open %s: %w", path, err)
	}
	return db, heads, nil
}

// bornPages is what bbolt writes of a new file before anything is put into it.
const bornPages = 4

// unborn tells that a full disk or a SIGKILL has left a file that was never a whole
// store. One with less than it begins with, of which no record is known, had none.
func unborn(root string) bool {
	fi, err := os.Lstat(filepath.Join(root, File))
	if err != nil || !fi.Mode().IsRegular() || fi.Size() >= int64(bornPages*os.Getpagesize()) {
		return false
	}
	known, err := readHeads(root)
	for _, h := range known {
		if h.Seq > 0 {
			return false
		}
	}
	return err == nil || fi.Size() == 0
}

// Remove removes a closed store.
func Remove(root string) error {
	for _, name := range []string{File, HeadFile} {
		if err := os.Remove(filepath.Join(root, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// openFile opens the file, in which nobody else may write meanwhile.
func openFile(path string, readOnly bool) (db *bbolt.DB, err error) {
	err = guarded(filepath.Dir(path), func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: LockWait, ReadOnly: readOnly, FreelistType: bbolt.FreelistMapType, NoStatistics: true,
			OpenFile: func(name string, flag int, mode fs.FileMode) (*os.File, error) {
				f, err := os.OpenFile(name, flag|syscall.O_NOFOLLOW, mode)
				if err != nil {
					return nil, err
				}
				if err := onlyOurs(f); err != nil {
					return nil, errors.Join(err, f.Close())
				}
				return f, nil
			},
		})
		return err
	})
	if errors.Is(err, bbolt.ErrTimeout) { //nolint:staticcheck // the one that Open returns
		return nil, fmt.Errorf("open %s: %s has it and did not let go within %s: wait for its end, or end it, and try again", path, wire.LockHolder(path), LockWait)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

// onlyOurs refuses a file that others can reach.
func onlyOurs(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Nlink > 1 {
		return errors.New("it is not a plain file of your own with one name: remove it")
	}
	if st.Mode&0o077 != 0 {
		return f.Chmod(0o600)
	}
	return nil
}

// compare looks whether the chains have come as far as was known, and tells in the
// main chain where they have not: what is lost stays to be seen. headless says that
// the store was there and the file with its heads was not.
func compare(db *bbolt.DB, o Options, heads *headFile, headless bool) error {
	known, err := readHeads(o.Root)
	if err != nil {
		return err
	}
	now := map[string]audit.Head{}
	var broken []audit.Event
	err = db.View(func(tx *bbolt.Tx) error {
		for _, chain := range audit.Chains() {
			h, err := lastOf(tx, chain)
			if err != nil {
				return err
			}
			now[chain] = h
			want := known[chain]
			var found audit.Head // at the same place
			if r, err := audit.Decode(tx.Bucket([]byte(chain)).Get(key(want.Seq))); err == nil {
				found = audit.Head{Seq: r.Seq, Hash: r.Hash}
			}
			if want != found || headless && h.Seq > 0 {
				broken = append(broken, audit.Event{Time: time.Now(), Kind: audit.ChainBroken, Payload: audit.Payload(brokenChain{chain, want, h})})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(broken) > 0 {
		o.Log.Error("records of the audit are missing", "known", known, "found", now)
		err = db.Update(func(tx *bbolt.Tx) error {
			for _, e := range broken {
				if err := put(tx, audit.Main, now, e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return heads.write(now)
}

type brokenChain struct {
	Chain string     `json:"chain"`
	Known audit.Head `json:"known"` // had been come to
	Found audit.Head `json:"found"`
}

// meta is the bucket of what is known of the store itself.
const meta = "meta"

// schemaKey in it has the version, as JSON.
const schemaKey = "schema"

func schemaOf(tx *bbolt.Tx) (int, error) {
	b := tx.Bucket([]byte(meta))
	if b == nil {
		return 0, nil
	}
	var n int
	if err := json.Unmarshal(b.Get([]byte(schemaKey)), &n); err != nil || n < 1 {
		return 0, fmt.Errorf("its schema's version %.32q is not a number; %s", b.Get([]byte(schemaKey)), aside)
	}
	return n, nil
}
