package review_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

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
