package domain

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

func TestWritten(t *testing.T) {
	root := filepath.Join(t.TempDir(), "data")
	if got, err := Written(root); err != nil || got != nil {
		t.Fatalf("of nothing: %q, %v", got, err)
	}
	var all sync.WaitGroup
	var want []string
	for i := range 8 {
		paths := []string{"/home/dev/bin", fmt.Sprintf("/srv/with \"quote\"\nand line %d", i)}
		want = append(want, paths[1])
		all.Go(func() {
			for range 3 {
				if err := RecordWritten(root, paths); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got, err := Written(root)
	want = append(want, "/home/dev/bin")
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}

// A list that cannot be read is an error, not an empty list.
func TestWrittenDamaged(t *testing.T) {
	for name, text := range map[string]string{"half": "\"/a\"\n\"/b", "relative": "\"a\"\n", "no quotes": "/a\n", "an empty line": "\"/a\"\n\n"} {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, writtenFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Written(root); err == nil {
			t.Errorf("%s: %q", name, got)
		}
		if err := RecordWritten(root, []string{"/c"}); err == nil {
			t.Errorf("%s: recorded", name)
		}
	}
}
