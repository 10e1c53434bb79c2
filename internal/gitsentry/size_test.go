package gitsentry

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A hundred thousand refs, and loose ones beside them, are read, packed and shown on
// the host.
func TestManyRefs(t *testing.T) {
	const packed, loose = 100_000, 2_000 // a loose one is some ten requests
	w := bareWorld(t)
	w.git(w.host, "init", "-q", "-b", "main", ".")
	w.git(w.host, "commit", "-q", "--allow-empty", "-m", "one")
	oid := strings.TrimSpace(w.git(w.host, "rev-parse", "HEAD"))
	var b strings.Builder
	b.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for i := range packed {
		fmt.Fprintf(&b, "%s refs/tags/p%06d\n", oid, i)
	}
	w.write(filepath.Join(w.host, ".git/packed-refs"), b.String())
	for i := range loose {
		dir := filepath.Join(w.host, fmt.Sprintf(".git/refs/heads/d%03d", i/1000))
		if i%1000 == 0 {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeFile(filepath.Join(dir, fmt.Sprintf("l%06d", i)), oid+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	w.start(nil)
	step := func(what string, f func()) {
		began := time.Now()
		f()
		t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
	}
	const all = packed + loose + 1
	count := func(dir string) int { return strings.Count(w.git(dir, "for-each-ref", "--format=x"), "x\n") }
	step("list on the host", func() { count(w.host) })
	step("list", func() {
		if got := count(w.in); got != all {
			t.Errorf("the sandbox sees %d refs", got)
		}
	})
	step("commit", func() { w.git(w.in, "commit", "-q", "--allow-empty", "-m", "two") })
	step("delete one of the packed, which writes them all", func() { w.git(w.in, "tag", "-d", "p000000") })
	step("pack", func() { w.git(w.in, "pack-refs", "--all") })
	if got := count(w.host); got != all-1 {
		t.Errorf("the host sees %d refs", got)
	}
	left, err := filepath.Glob(filepath.Join(w.host, ".git/refs/heads/d*/*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%d loose refs are left, %v", len(left), err)
	}
	w.git(w.host, "fsck", "--strict")
}

// A pack of ten gigabytes is read where it is, by offset and by mapping.
func TestLargePack(t *testing.T) {
	const size = 10 << 30
	w := newWorld(t, nil)
	name := ".git/objects/pack/pack-0123456789012345678901234567890123456789.pack"
	w.write(filepath.Join(w.host, name), "")
	f, err := os.OpenFile(filepath.Join(w.host, name), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	offsets := []int64{0, 1<<31 - 3, 1<<31 + 100, 1<<32 - 3, 1<<32 + 12345, 7 << 30, size - 6}
	if err := f.Truncate(size); err != nil {
		t.Skip("no sparse file of 10 GB here: ", err)
	}
	for i, off := range offsets {
		if _, err := f.WriteAt(fmt.Appendf(nil, "at%03d\n", i), off); err != nil {
			t.Fatal(err)
		}
	}
	in, err := os.Open(filepath.Join(w.in, name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	if fi, err := in.Stat(); err != nil || fi.Size() != size {
		t.Errorf("its size is %d, %v", fi.Size(), err)
	}
	page := int64(os.Getpagesize())
	for i, off := range offsets {
		want := fmt.Appendf(nil, "at%03d\n", i)
		got := make([]byte, len(want))
		if _, err := in.ReadAt(got, off); err != nil || !bytes.Equal(got, want) {
			t.Errorf("read at %d: %q, %v", off, got, err)
		}
		base := off / page * page
		m, err := unix.Mmap(int(in.Fd()), base, int(off-base)+len(want), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Errorf("map at %d: %v", off, err)
			continue
		}
		if got := m[off-base:]; !bytes.Equal(got, want) {
			t.Errorf("mapped at %d: %q", off, got)
		}
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	}
	// The sandbox writes one as large: past four gigabytes it is all there.
	mine := ".git/objects/pack/tmp_pack_x"
	out, err := os.Create(filepath.Join(w.in, mine))
	if err != nil {
		t.Fatal(err)
	}
	for i, off := range offsets {
		if _, err := out.WriteAt(fmt.Appendf(nil, "at%03d\n", i), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	back, err := os.Open(filepath.Join(w.host, mine))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = back.Close() }()
	for i, off := range offsets {
		got := make([]byte, 6)
		if _, err := back.ReadAt(got, off); err != nil || string(got) != fmt.Sprintf("at%03d\n", i) {
			t.Errorf("on the host at %d: %q, %v", off, got, err)
		}
	}
}
