package store

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/lazaret-dev/lazaret/internal/audit"
)

// reader is the pager of a store that nobody has open.
func reader(root string) audit.Pager {
	return func(chain string, after uint64) (audit.Page, error) { return ReadPage(root, chain, after) }
}

// closedStore has n records in each chain.
func closedStore(t testing.TB, n int) string {
	t.Helper()
	root := t.TempDir()
	log, _ := logged(t)
	s := Open(Options{Root: root, Log: log})
	fill(t, s, n)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return root
}

type kv struct{ k, v []byte }

// replace puts records in the place of a chain.
func replace(t *testing.T, db *bbolt.DB, chain string, all []kv) {
	t.Helper()
	if err := db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket([]byte(chain)); err != nil {
			return err
		}
		b, err := tx.CreateBucket([]byte(chain))
		if err != nil {
			return err
		}
		for _, r := range all {
			if err := b.Put(r.k, r.v); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Every change of a byte, removal, exchange, copy and truncation of kept records is
// found, and the first bad one is named.
func TestEveryChangeIsFound(t *testing.T) {
	t.Parallel()
	const n = 5
	root := closedStore(t, n)
	db, err := bbolt.Open(filepath.Join(root, File), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	pager := func(chain string, after uint64) (audit.Page, error) { return page(db, root, chain, after) }
	tried := 0
	for _, chain := range audit.Chains() {
		var whole []kv
		if err := db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(chain)).ForEach(func(k, v []byte) error {
				whole = append(whole, kv{bytes.Clone(k), bytes.Clone(v)})
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		if len(whole) != n {
			t.Fatalf("%s has %d records", chain, len(whole))
		}
		try := func(what string, first uint64, all []kv) {
			t.Helper()
			tried++
			replace(t, db, chain, all)
			_, err := audit.Verify(pager)
			var bad *audit.BadError
			if !errors.As(err, &bad) || bad.Chain != chain || bad.Seq > first {
				t.Errorf("%s: %s: got %v, want record %d at the latest", chain, what, err, first)
			}
		}
		for i := range whole {
			for at := range whole[i].v {
				for _, flip := range []byte{1, 0x80} {
					all := slices.Clone(whole)
					v := bytes.Clone(whole[i].v)
					v[at] ^= flip
					all[i] = kv{whole[i].k, v}
					try(fmt.Sprintf("record %d, byte %d", i+1, at), uint64(i+1), all)
				}
			}
			for at := range whole[i].k {
				all := slices.Clone(whole)
				k := bytes.Clone(whole[i].k)
				k[at] ^= 0x40
				all[i] = kv{k, whole[i].v}
				last := uint64(n + 1)
				if chain == audit.Egress && i == 0 {
					last = math.MaxUint64 // it looks like one whose beginning was dropped
				}
				try(fmt.Sprintf("key of %d, byte %d", i+1, at), last, all)
			}
			try(fmt.Sprintf("record %d removed", i+1), n, slices.Delete(slices.Clone(whole), i, i+1))
			try(fmt.Sprintf("cut before %d", i+1), uint64(i+1), whole[:i])
			try(fmt.Sprintf("record %d shortened", i+1), uint64(i+1), slices.Concat(whole[:i], []kv{{whole[i].k, whole[i].v[:len(whole[i].v)-1]}}, whole[i+1:]))
			for j := range i {
				all := slices.Clone(whole)
				all[i].v, all[j].v = whole[j].v, whole[i].v
				try(fmt.Sprintf("records %d and %d exchanged", j+1, i+1), uint64(j+1), all)
				all = slices.Clone(whole)
				all[i].v = whole[j].v
				try(fmt.Sprintf("record %d in the place of %d", j+1, i+1), uint64(i+1), all)
				// Everything after j moved down, to look complete.
				all = nil
				for k, r := range slices.Delete(slices.Clone(whole), j, j+1) {
					all = append(all, kv{key(uint64(k + 1)), r.v})
				}
				try(fmt.Sprintf("record %d removed, the others renumbered", j+1), n, all)
			}
		}
		replace(t, db, chain, whole)
		if _, err := audit.Verify(pager); err != nil {
			t.Fatalf("put right again: %v", err)
		}
	}
	if tried < 4000 {
		t.Errorf("only %d changes were tried", tried)
	}
	if err := os.Remove(filepath.Join(root, HeadFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Verify(pager); err == nil {
		t.Error("a missing head is not found")
	}
}

// Keys that are no numbers are told, and nobody reads on for ever because of them.
func TestOddKeys(t *testing.T) {
	t.Parallel()
	for _, odd := range [][]byte{append(key(1), 0), {0, 0, 1}, {9}} {
		root := t.TempDir()
		s := openTest(t, root)
		for range 3 { // a page each
			s.Append(audit.Event{Kind: audit.EscalationAsked, Payload: audit.Payload(map[string]string{"command": strings.Repeat("x", 200<<10)})}, nil)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(filepath.Join(root, File), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(audit.Main)).Put(odd, []byte("x")) }); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		records, damaged := 0, 0
		if err := reader(root).Each(audit.Main, 0, func(_ map[string]audit.Head, entries []audit.Entry) error {
			for _, e := range entries {
				if e.Damage == "" {
					records++
				} else {
					damaged++
				}
			}
			if records > 3 {
				return errors.New("begins anew")
			}
			return nil
		}); err != nil || records != 3 || damaged != 1 {
			t.Errorf("key %x: %d records and %d damaged, %v", odd, records, damaged, err)
		}
		if _, err := audit.Verify(reader(root)); err == nil {
			t.Errorf("key %x is not found", odd)
		}
	}
}

// Whatever is changed in the file itself, what is read is what was written, or it
// is told.
func TestDamagedFileIsTold(t *testing.T) {
	t.Parallel()
	root := closedStore(t, 20)
	path := filepath.Join(root, File)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := audit.Verify(reader(root))
	if err != nil {
		t.Fatal(err)
	}
	step := 61
	if os.Getenv("LAZARET_KILLS") != "" {
		step = 1
	}
	silent := 0
	for at := 0; at < len(whole); at += step {
		data := bytes.Clone(whole)
		data[at] ^= 0x55
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := audit.Verify(reader(root))
		if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("byte %d: read %v, want %v", at, got, want)
		}
		if err == nil {
			silent++ // of a free page, or one that is not used any more
		}
	}
	t.Logf("%d of %d changes do not matter", silent, len(whole)/step)
}

// What is missing when the store is opened again stays to be seen.
func TestTruncationIsRecorded(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, root string){
		"end cut off": func(t *testing.T, root string) {
			db, err := bbolt.Open(filepath.Join(root, File), 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(audit.Main)).Delete(key(5)) }); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"store removed": func(t *testing.T, root string) {
			if err := os.Remove(filepath.Join(root, File)); err != nil {
				t.Fatal(err)
			}
		},
		"head removed": func(t *testing.T, root string) {
			if err := os.Remove(filepath.Join(root, HeadFile)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := closedStore(t, 5)
			harm(t, root)
			if _, err := audit.Verify(reader(root)); err == nil {
				t.Error("is not found")
			}
			s := openTest(t, root)
			fill(t, s, 10)
			if _, err := audit.Verify(s.Page); err == nil {
				t.Error("is not found after the store was used again")
			}
		})
	}
}
