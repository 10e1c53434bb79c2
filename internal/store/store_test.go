package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/audit"
)

// logged collects what a store logs.
func logged(t testing.TB) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

func openTest(t testing.TB, root string) *Store {
	t.Helper()
	log, _ := logged(t)
	s := Open(Options{Root: root, Log: log})
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	return s
}

func event(kind string, n int) audit.Event {
	return audit.Event{Kind: kind, Verdict: "approved", Session: "s1", Container: "c1", Payload: audit.Payload(map[string]any{"n": n, "text": "a < b & c"})}
}

// fill appends n events to each chain, and waits until they are there.
func fill(t testing.TB, s *Store, n int) {
	t.Helper()
	for i := range n {
		s.AppendEgress(event(audit.EgressDecision, i))
		done := make(chan error, 1)
		s.Append(event(audit.EscalationAsked, i), func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecordsComeBackInOrder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := openTest(t, root)
	fill(t, s, 5)
	read := func(chain string, after uint64) (audit.Page, error) { return ReadPage(root, chain, after) }
	for i, pager := range []audit.Pager{s.Page, read} {
		name := []string{"live", "closed"}[i]
		if name == "closed" {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for _, chain := range audit.Chains() {
			var got []string
			if err := pager.Each(chain, 1, func(_ map[string]audit.Head, entries []audit.Entry) error {
				for _, e := range entries {
					got = append(got, fmt.Sprint(e.Seq, e.Damage, " ", strings.Contains(string(e.Payload), fmt.Sprintf(`"n":%d,`, e.Seq-1))))
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if want := "[2 true 3 true 4 true 5 true]"; fmt.Sprint(got) != want {
				t.Errorf("%s %s: got %v, want %v", name, chain, got, want)
			}
		}
		if v, err := audit.Verify(pager); err != nil || v.Counts[audit.Main] != 5 || v.Heads[audit.Egress].Seq != 5 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{File, HeadFile} {
		if fi, err := os.Stat(filepath.Join(root, name)); err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
}

// Who asks sees all that has happened before, also what nobody waits for.
func TestPageHasAllThatWasAppended(t *testing.T) {
	s := openTest(t, t.TempDir())
	for i := range 50 {
		s.Append(event(audit.NetworkChanged, i), nil)
		p, err := s.Page(audit.Main, 0)
		if err != nil || len(p.Entries) != i+1 {
			t.Fatalf("%d of %d records, %v", len(p.Entries), i+1, err)
		}
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	root := closedStore(t, 1)
	db, err := bbolt.Open(filepath.Join(root, File), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(meta)).Put([]byte(schemaKey), []byte("7")) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		t.Fatal(err)
	}
	log, _ := logged(t)
	s := Open(Options{Root: root, Log: log})
	done := make(chan error, 1)
	s.Append(event(audit.EscalationAsked, 1), func(err error) { done <- err })
	_, readErr := ReadPage(root, audit.Main, 0)
	for name, err := range map[string]error{"open": s.Ready(), "record": <-done, "read": readErr} {
		if err == nil || !strings.Contains(err.Error(), "schema 7") || !strings.Contains(err.Error(), "newer Lazaret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile(filepath.Join(root, File)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the store was written to: %v", err)
	}
}

func TestWhoHasItIsNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := openTest(t, root)
	fill(t, s, 1)
	log, _ := logged(t)
	second := Open(Options{Root: root, Log: log})
	_, readErr := ReadPage(root, audit.Main, 0)
	for name, err := range map[string]error{"open": second.Ready(), "read": readErr} {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_ = second.Close() // never open
	fill(t, s, 1)
}

func TestFilesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{File, HeadFile} {
		root := closedStore(t, 1)
		path := filepath.Join(root, name)
		elsewhere := filepath.Join(t.TempDir(), "x")
		if err := os.Rename(path, elsewhere); err != nil {
			t.Fatal(err)
		}
		for what, link := range map[string]func(string, string) error{"symbolic link": os.Symlink, "hard link": os.Link} {
			if err := link(elsewhere, path); err != nil {
				t.Fatal(err)
			}
			log, _ := logged(t)
			s := Open(Options{Root: root, Log: log})
			if err := s.Ready(); err == nil {
				t.Errorf("%s as %s was opened", what, name)
			}
			_ = s.Close()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestOldEgressIsDropped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	log, _ := logged(t)
	s := Open(Options{Root: root, Log: log, keep: 20, drop: 5})
	for range 30 { // batches of their own
		for i := range 4 {
			s.AppendEgress(event(audit.EgressDecision, i))
		}
		done := make(chan error, 1)
		s.Append(event(audit.SessionStarted, 0), func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	v, err := audit.Verify(s.Page)
	if err != nil || v.Heads[audit.Egress].Seq != 120 || v.Counts[audit.Egress] < 20 || v.Counts[audit.Egress] > 29 {
		t.Fatalf("%+v, %v", v, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// One more of the oldest, which the main chain does not tell.
	db, err := bbolt.Open(filepath.Join(root, File), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(audit.Egress))
		k, _ := b.Cursor().First()
		return b.Delete(k)
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Verify(reader(root)); err == nil {
		t.Error("a record that was removed as if by rule is not found")
	}
}

// On a full disk a record that is waited for fails with the reason; afterwards the
// store goes on, and tells what it could not keep.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	root := t.TempDir()
	if err := unix.Mount("lazaret-test", root, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	s := openTest(t, root)
	fill(t, s, 3)
	filler, err := os.Create(filepath.Join(root, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = filler.Write(block)
	}
	if err := filler.Close(); err != nil {
		t.Fatal(err)
	}
	big := audit.Event{Kind: audit.EscalationAsked, Payload: audit.Payload(map[string]string{"command": strings.Repeat("x", 60<<10)})}
	done := make(chan error, 1)
	record := func() error {
		s.Append(big, func(err error) { done <- err })
		return <-done
	}
	for range 40 { // pages that are free are used up
		if err = record(); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC", err)
	}
	for err = nil; err == nil; err = record() { // and none of the event that nobody waits for
		s.Append(big, nil)
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	if err := record(); err != nil {
		t.Fatalf("after there is room again: %v", err)
	}
	if _, err := audit.Verify(s.Page); err != nil {
		t.Error(err)
	}
	told := false
	if err := audit.Pager(s.Page).Each(audit.Main, 0, func(_ map[string]audit.Head, entries []audit.Entry) error {
		for _, e := range entries {
			told = told || e.Kind == audit.ChainLost
		}
		return nil
	}); err != nil || !told {
		t.Errorf("what was lost is told: %v, %v", told, err)
	}
}

// A store that a full disk, or a SIGKILL, has kept from being made whole is no damaged
// one: nothing was in it.
func TestUnbornStore(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), File)
	db, err := bbolt.Open(made, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	for pages := 0; pages*os.Getpagesize() <= len(whole); pages++ {
		root := t.TempDir()
		heads, err := openHeads(root)
		if err == nil {
			err = heads.close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, File), whole[:pages*os.Getpagesize()], 0o600); err != nil {
			t.Fatal(err)
		}
		if v, err := audit.Verify(reader(root)); err != nil || len(v.Counts) > 0 {
			t.Errorf("%d pages, read: %+v, %v", pages, v, err)
		}
		s := openTest(t, root)
		fill(t, s, 2)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if v, err := audit.Verify(reader(root)); err != nil || v.Counts[audit.Main] != 2 {
			t.Errorf("%d pages: %+v, %v", pages, v, err)
		}
		// One that had records and has lost them is not taken for such a one.
		if err := os.Truncate(filepath.Join(root, File), int64(pages*os.Getpagesize())); err != nil {
			t.Fatal(err)
		}
		if _, err := audit.Verify(reader(root)); err == nil {
			t.Errorf("%d pages are left of a store, and verify finds nothing", pages)
		}
		log, _ := logged(t)
		s = Open(Options{Root: root, Log: log})
		if err := s.Ready(); err == nil {
			if _, err := audit.Verify(s.Page); err == nil {
				t.Errorf("%d pages are left of a store, and nothing is recorded of that", pages)
			}
		}
		_ = s.Close()
	}
}

// However little room a disk has when a store is made, it is made once there is some.
func TestBornOnAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	failed := 0
	for pages := 1; pages < 16; pages++ {
		root := t.TempDir()
		size := func(n int) string { return fmt.Sprintf("size=%d,mode=0700", n*os.Getpagesize()) }
		if err := unix.Mount("lazaret-test", root, "tmpfs", 0, size(pages)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
		log, _ := logged(t)
		s := Open(Options{Root: root, Log: log})
		if err := errors.Join(s.Ready(), s.Close()); err != nil {
			failed++
		}
		if _, err := audit.Verify(reader(root)); err != nil {
			t.Errorf("%d pages, read: %v", pages, err)
		}
		if err := unix.Mount("", root, "", unix.MS_REMOUNT, size(512)); err != nil {
			t.Fatal(err)
		}
		s = openTest(t, root)
		fill(t, s, 2)
		if _, err := audit.Verify(s.Page); err != nil {
			t.Errorf("%d pages: %v", pages, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if failed < 3 {
		t.Errorf("only %d were not made at once", failed)
	}
}

// Whoever has read all of a store does not keep it in his memory.
func TestReadingKeepsNothingMapped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := openTest(t, root)
	big := audit.Event{Kind: audit.EscalationAsked, Payload: audit.Payload(map[string]string{"command": strings.Repeat("x", 16<<10)})}
	for range 1000 {
		s.Append(big, nil)
	}
	done := make(chan error, 1)
	s.Append(big, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if v, err := audit.Verify(s.Page); err != nil || v.Counts[audit.Main] != 1001 {
		t.Fatalf("%+v, %v", v, err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, of, found := strings.Cut(string(smaps), filepath.Join(root, File))
	_, rss, hasRSS := strings.Cut(of, "\nRss:")
	var kb int
	if _, err := fmt.Sscan(rss, &kb); err != nil || !found || !hasRSS || kb > 1024 {
		t.Errorf("%d kB of the file are in memory, %v", kb, err)
	}
}

const many = 100_000

// manyRecords has as many in the main chain.
func manyRecords(b *testing.B) *Store {
	b.Helper()
	log, _ := logged(b)
	s := Open(Options{Root: b.TempDir(), Log: log})
	b.Cleanup(func() { _ = s.Close() })
	window := make(chan struct{}, queueLen/2)
	for i := range many {
		window <- struct{}{}
		s.Append(event(audit.EscalationDecided, i), func(err error) {
			if err != nil {
				b.Error(err)
			}
			<-window
		})
	}
	for range cap(window) {
		window <- struct{}{}
	}
	return s
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkVerifyMany reads, decodes and judges 100,000 records. live-MB is what is
// held while that goes on.
func BenchmarkVerifyMany(b *testing.B) {
	s := manyRecords(b)
	base := heap()
	var most uint64
	for b.Loop() {
		pages := 0
		v, err := audit.Verify(func(chain string, after uint64) (audit.Page, error) {
			if pages++; pages%40 == 0 {
				most = max(most, heap())
			}
			return s.Page(chain, after)
		})
		if err != nil || v.Counts[audit.Main] != many {
			b.Fatalf("%+v, %v", v, err)
		}
	}
	b.ReportMetric(float64(int64(most)-int64(base))/1e6, "live-MB") //nolint:gosec // small
}

// BenchmarkListMany reads 100,000 records from a store that nobody has open, as the
// command does.
func BenchmarkListMany(b *testing.B) {
	s := manyRecords(b)
	root := s.o.Root
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := 0
		if err := reader(root).Each(audit.Main, 0, func(_ map[string]audit.Head, entries []audit.Entry) error {
			n += len(entries)
			return nil
		}); err != nil || n != many {
			b.Fatalf("%d, %v", n, err)
		}
	}
}

// BenchmarkRecord is one record that is waited for, alone.
func BenchmarkRecord(b *testing.B) {
	log, _ := logged(b)
	s := Open(Options{Root: b.TempDir(), Log: log})
	b.Cleanup(func() { _ = s.Close() })
	done := make(chan error, 1)
	for b.Loop() {
		s.Append(event(audit.EscalationDecided, 1), func(err error) { done <- err })
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen is a start in a domain that has a store.
func BenchmarkOpen(b *testing.B) {
	root := closedStore(b, 10)
	log, _ := logged(b)
	for b.Loop() {
		s := Open(Options{Root: root, Log: log})
		if err := errors.Join(s.Ready(), s.Close()); err != nil {
			b.Fatal(err)
		}
	}
}
