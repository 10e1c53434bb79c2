package review_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/review"
)

// What an agent nests without end ends neither the coordinator nor the command.
func TestDeepNesting(t *testing.T) {
	t.Parallel()
	const n = 2 << 20 // half of what is read of a file
	tr := newTree(t, map[string]string{"pyproject.toml": "", "Cargo.toml": "", "package.json": "{}"})
	tr.begin()
	tr.write("package.json", `{"scripts":`+strings.Repeat(`[`, n)+strings.Repeat("]", n-20)+`}`)
	tr.write("pyproject.toml", "[tool.uv]\na = "+strings.Repeat("[", n-20)+strings.Repeat("]", n-20))
	tr.write("Cargo.toml", "[package]\nbuild = "+strings.Repeat("{a=", n/2)+"1"+strings.Repeat("}", n/2))
	tr.write("sub/pyproject.toml", "[tool.uv]\na"+strings.Repeat(".a", n-20)+" = 1")
	tr.write("sub/Cargo.toml", "[package.metadata"+strings.Repeat(".a", n-20)+"]\n")
	if got := found(tr.look()); len(got) != 5 {
		t.Errorf("found %.2000q", got)
	}
}

// One directory is not looked at for longer, nor kept in more memory, than all may
// take.
func TestOneLargeDirectory(t *testing.T) {
	t.Parallel()
	tr := newTree(t, nil)
	for _, dir := range []string{"d", ".git/hooks", ".git/refs/replace"} {
		t.Run(dir, func(t *testing.T) {
			if err := os.MkdirAll(tr.path(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			for i := range 300 {
				if err := os.WriteFile(tr.path(fmt.Sprintf("%s/%d.mk", dir, i)), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			snap, err := review.Take(&soon{Context: t.Context(), left: 100}, review.Options{Tree: tr.dir})
			if err != nil || snap.Incomplete == "" || len(snap.Facts) > 150 {
				t.Errorf("%d facts, %v", len(snap.Facts), err)
			}
			if err := os.RemoveAll(tr.path(dir)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What an agent can have kept of its names is bounded.
func TestKeptIsBounded(t *testing.T) {
	t.Parallel()
	tr := newTree(t, nil)
	var script strings.Builder
	script.WriteString(`{"scripts":{"x":""`)
	for i := range 900 {
		fmt.Fprintf(&script, `,"%d %s":""`, i, strings.Repeat("n", 4000))
	}
	script.WriteString("}}")
	for i := range 20 {
		tr.write(fmt.Sprintf("p%d/package.json", i), script.String())
	}
	snap, err := review.Take(t.Context(), review.Options{Tree: tr.dir})
	if err != nil || snap.Incomplete == "" {
		t.Fatalf("%+v, %v", snap.Incomplete, err)
	}
	kept := 0
	for _, f := range snap.Facts {
		for k := range f.Parts {
			kept += len(k)
		}
	}
	if kept > 40<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
}

// Directories that wait do not fill memory by how deep they lie.
func TestManyDeepDirectories(t *testing.T) { //nolint:paralleltest // measures memory
	tr := newTree(t, nil)
	at, err := unix.Open(tr.dir, unix.O_PATH, 0)
	for i := 0; err == nil && i < 15; i++ {
		name := strings.Repeat("d", 250)
		if err = unix.Mkdirat(at, name, 0o755); err == nil {
			below, operr := unix.Openat(at, name, unix.O_PATH, 0)
			err = errors.Join(operr, unix.Close(at))
			at = below
		}
	}
	const many = 10_000
	for i := 0; err == nil && i < many; i++ {
		err = unix.Mkdirat(at, fmt.Sprint(i), 0o755)
	}
	if err := errors.Join(err, unix.Close(at)); err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	most, calls := uint64(0), 0
	if _, err := review.Take(asked{t.Context(), func() {
		if calls++; calls == many+50 { // all of them wait
			most = heap()
		}
	}}, review.Options{Tree: tr.dir}); err != nil {
		t.Fatal(err)
	}
	if most == 0 || most > before+16<<20 {
		t.Errorf("%d bytes more are in use, after %d looks at the time", int64(most)-int64(before), calls) //nolint:gosec // small
	}
}

// asked is a context that tells when somebody looks whether its time is over.
type asked struct {
	context.Context
	tell func()
}

func (a asked) Err() error {
	a.tell()
	return nil
}

// soon is a context whose time is over once somebody has looked so often.
type soon struct {
	context.Context
	left int
}

func (s *soon) Err() error {
	if s.left--; s.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}
