package gitrepo

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
)

func TestStreamIsTheSameEachTime(t *testing.T) {
	size := Size{Files: 50, Dirs: 5, Commits: 4, Other: 10, Extra: map[string]string{"b": "2", "a": "1", "c": "3"}}
	var sums [2]string
	for i := range sums {
		h := sha256.New()
		if err := size.Stream(h); err != nil {
			t.Fatal(err)
		}
		sums[i] = fmt.Sprintf("%x", h.Sum(nil))
	}
	if sums[0] != sums[1] {
		t.Error("two streams differ")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestStreamTellsOfAFailedWrite(t *testing.T) {
	if err := (Size{Files: 1, Dirs: 1, Commits: 1}).Stream(full{}); err == nil {
		t.Error("no error")
	}
}
