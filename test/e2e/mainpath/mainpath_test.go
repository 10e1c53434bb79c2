// Package mainpath runs podman run --runtime=lazaret end to end.
package mainpath

import (
	"os"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

func TestRun(t *testing.T) {
	t.Parallel()
	for _, s := range harness.Sandboxes() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			h := harness.New(t, harness.Options{Sandbox: s.Path})
			ws := h.Workspace()
			got := h.Lazaret(ws, harness.Busybox, "cat", "/workspace/README").OK(t)
			if got != "one" {
				t.Errorf("stdout %q, want one", got)
			}
			h.Lazaret(ws, harness.Busybox, "sh", "-c", "exit 37").Exit(t, 37)
		})
	}
}

func TestRunRootful(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Rootful: true})
	ws := h.Workspace()
	if got := h.Lazaret(ws, harness.Busybox, "cat", "/workspace/README").OK(t); got != "one" {
		t.Errorf("stdout %q, want one", got)
	}
}
