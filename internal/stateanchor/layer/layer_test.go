package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/test/overlay"
)

func style(driver string) Style {
	if driver == overlay.Fuse {
		return Fuse
	}
	return Kernel
}

// seen is a tree as a manifest, one line an entry.
func seen(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(path, root) + " " + fi.Mode().String()
		switch {
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(data)
		case fi.Mode().Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " " + to
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// read is the same of a stack.
func read(t *testing.T, d *Dir, at string) (all []string) {
	t.Helper()
	names, err := d.Names()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		st, err := d.Lookup(name)
		if err != nil {
			t.Fatalf("%s/%s is listed, but: %v", at, name, err)
		}
		mode := fs.FileMode(st.Mode & 0o777)
		if st.Mode&unix.S_ISUID != 0 {
			mode |= fs.ModeSetuid
		}
		line := at + "/" + name + " "
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			all = append(all, line+(mode|fs.ModeDir).String())
			sub, err := d.Sub(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, read(t, sub, at+"/"+name)...)
			if err := sub.Close(); err != nil {
				t.Fatal(err)
			}
		case unix.S_IFLNK:
			to, err := d.Readlink(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, line+(mode|fs.ModeSymlink).String()+" "+to)
		case unix.S_IFIFO:
			if _, err := d.ReadFile(name, 10); err == nil {
				t.Error("a FIFO was read")
			}
			all = append(all, line+(mode|fs.ModeNamedPipe).String())
		default:
			data, err := d.ReadFile(name, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, line+mode.String()+" "+string(data))
		}
	}
	slices.Sort(all)
	return all
}

// put writes a file, but no FIFO that is in its place.
func put(p, text string) {
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return
	}
	_, _ = f.WriteString(text)
	_ = f.Close()
}

// play does n random things in a tree, as an agent would.
func play(t *testing.T, rnd *rand.Rand, root string, n int) {
	t.Helper()
	place := func() string {
		p := root
		for range 1 + rnd.IntN(3) {
			p = filepath.Join(p, string(rune('a'+rnd.IntN(5))))
		}
		return p
	}
	for i := range n {
		p := place()
		if fi, err := os.Lstat(filepath.Dir(p)); err != nil || !fi.IsDir() {
			continue // os.RemoveAll would wait for a FIFO there
		}
		// Most names are taken by something else: what fails does not matter.
		switch rnd.IntN(9) {
		case 0, 1:
			_ = os.MkdirAll(p, 0o755)
		case 2, 3:
			put(p, fmt.Sprint(i))
		case 4:
			_ = os.RemoveAll(p)
		case 5:
			_ = os.Rename(p, place())
		case 6:
			_ = os.Symlink("../"+filepath.Base(place()), p)
		case 7:
			if os.RemoveAll(p) == nil {
				_ = os.Mkdir(p, 0o700)
			}
		case 8:
			switch rnd.IntN(3) {
			case 0:
				_ = unix.Mkfifo(p, 0o600)
			case 1:
				_ = os.Link(p, place())
			case 2:
				put(p, "")
			}
		}
	}
}

// What a stack of layers shows is what its driver shows when it is mounted.
func TestLikeMounted(t *testing.T) {
	if !overlay.Inside(t) {
		return
	}
	for _, driver := range []string{overlay.Kernel, overlay.Fuse} {
		t.Run(driver, func(t *testing.T) {
			for seed := range uint64(12) {
				rnd := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
				lower := t.TempDir()
				play(t, rnd, lower, 150)
				o := overlay.New(t, driver, lower)
				play(t, rnd, o.Merged, 150)
				// What it says while it goes on can differ from what it has kept.
				o.Unmount()
				o.Mount()
				want := seen(t, o.Merged)
				o.Unmount()
				d, err := Open(Layer{o.Upper, style(driver)}, Layer{lower, Kernel})
				if err != nil {
					t.Fatal(err)
				}
				got := read(t, d, "")
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}

// Marks by name, as fuse-overlayfs without devices and images have them, and by
// attribute, as newer kernels have them.
func TestMarks(t *testing.T) {
	t.Parallel()
	lower, upper := t.TempDir(), t.TempDir()
	write := func(root string, files ...string) {
		for _, f := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, f)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, f), []byte(f), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(lower, "gone", "kept", "opaque/old", "replaced/old", "sub/f")
	write(upper, ".wh.gone", "opaque/.wh..wh..opq", "opaque/new", "replaced/new", ".wh.replaced", ".wh.never")
	for _, c := range []struct {
		style Style
		want  string
	}{
		{Fuse, "/kept /opaque /opaque/new /replaced /replaced/new /sub /sub/f"},
		// To the kernel's driver these are an agent's files.
		{Kernel, "/.wh.gone /.wh.never /.wh.replaced /gone /kept /opaque /opaque/.wh..wh..opq /opaque/new /opaque/old /replaced /replaced/new /replaced/old /sub /sub/f"},
	} {
		d, err := Open(Layer{upper, c.style}, Layer{lower, Kernel})
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, line := range read(t, d, "") {
			path, _, _ := strings.Cut(line, " ")
			paths = append(paths, path)
		}
		if got := strings.Join(paths, " "); got != c.want {
			t.Errorf("style %d: got %s\nwant %s", c.style, got, c.want)
		}
		own, err := d.Own()
		if c.style == Fuse && (err != nil || !slices.Equal(own.Hidden, []string{"gone", "never"}) || !slices.Equal(own.Names, []string{"opaque", "replaced"})) {
			t.Errorf("own: %+v, %v", own, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(upper, "replaced/new"), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(filepath.Join(upper, "replaced/new"), "user.overlay.whiteout", []byte("y"), 0); err != nil {
		t.Skipf("no attributes here: %v", err)
	}
	d, err := Open(Layer{upper, Kernel}, Layer{lower, Kernel})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	sub, err := d.Walk("/replaced/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Close() }()
	if names, err := sub.Names(); err != nil || !slices.Equal(names, []string{"old"}) {
		t.Errorf("with an attribute: %q, %v", names, err)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{"usr/lib", "var/state/x"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"lib": "usr/lib", "var/lib": "/var/state", "up": "../../../usr", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(Layer{dir, Kernel})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	for path, want := range map[string]string{
		"/usr": "/usr", "/lib/x/y": "/usr/lib/x/y", "/var/lib/x": "/var/state/x", "/up/lib": "/usr/lib",
		"/": "/", "/no/such/../thing": "/no/thing", "/var/lib/../lib": "/var/state",
	} {
		if got, err := d.Resolve(path); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", path, got, err, want)
		}
	}
	if _, err := d.Resolve("/loop/x"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("loop: %v", err)
	}
}

// An agent's link leads nowhere, and its FIFO keeps nobody waiting.
func TestTraps(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"dir": outside, "file": filepath.Join(outside, "secret")} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(Layer{dir, Kernel})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	for _, path := range []string{"dir", "dir/x", "fifo", "fifo/x"} {
		if _, err := d.Walk(path); !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("walk %s: %v", path, err)
		}
	}
	for _, name := range []string{"file", "fifo", "dir", "..", "a/b", "", "."} {
		if data, err := d.ReadFile(name, 100); err == nil {
			t.Errorf("read %q: %q", name, data)
		}
	}
	if _, err := d.Walk("../x"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("walk out: %v", err)
	}
}
