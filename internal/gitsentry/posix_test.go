package gitsentry

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// beyond lists what the guard does not offer, with the reason.
func beyond() map[string]string {
	return map[string]string{
		"XAttr":      "no extended attributes: they could be meant for the host",
		"XAttrLarge": "as XAttr",
		// It fails on ext4 too.
		"FcntlFlockLocksFile": "wants record locks of one process to exclude each other",
	}
}

// The tests of go-fuse on a guard, which is another process: a file system that its
// own process uses locks up.
func TestPosix(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range slices.Sorted(maps.Keys(posixtest.All)) {
		t.Run(name, func(t *testing.T) {
			if why := beyond()[name]; why != "" {
				t.Skip(why)
			}
			dir := w.in + "/" + name
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			posixtest.All[name](t, dir)
		})
	}
}
