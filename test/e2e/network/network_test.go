// Package network tests that a sandbox with a filtered network reaches what its
// profile lists, and nothing else, in a world of the test's own.
package network

import (
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// each runs a test once for every runsc, each in a world of its own.
func each(t *testing.T, test func(t *testing.T, sandbox string)) {
	t.Parallel()
	for _, s := range harness.Sandboxes() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			test(t, s.Path)
		})
	}
}

func TestListedIsReachedAndNothingElse(t *testing.T) {
	each(t, func(t *testing.T, sandbox string) {
		w := newWorld(t)
		w.name("ok.test", "A "+good)
		w.name("port.test", "A "+good2)
		w.name("evil.test", "A "+bad)
		p := w.place(sandbox, profile("filt", "filtered", []string{"ok.test", "port.test:9999", "203.0.113.20:8080"}, nil))
		p.sandbox("c", "--annotation=dev.lazaret.profile=filt")
		p.reaches("c", "http ok.test /x", "raw", good+":80", `GET /x HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n`)
	})
}
