// Package state plays what the State Anchor promises on real podman and runsc:
// what the agent changes in the system directories is there in the next container
// of its domain, whatever ends in which order, and nowhere else.
package state

import (
	"os"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// drivers runs a test with each driver of the overlays.
func drivers(t *testing.T, test func(t *testing.T, h *harness.Harness, driver string)) {
	t.Parallel()
	for _, d := range []string{"overlay", "fuse-overlayfs"} {
		t.Run(d, func(t *testing.T) {
			t.Parallel()
			test(t, harness.New(t, harness.Options{Config: "[profiles.default]\nstate_driver = \"" + d + "\"\n"}), d)
		})
	}
}

func TestChangesAreThereInTheNextContainer(t *testing.T) {
	drivers(t, func(t *testing.T, h *harness.Harness, _ string) {
		ws, other := h.Workspace(), h.Workspace()
		h.Lazaret(ws, harness.Busybox, "sh", "-c", "echo kept >/usr/local/bin/x && chmod 4755 /usr/local/bin/x && mkdir -p /opt/a /var/lib/b && rm /usr/bin/env && : >/root/y").OK(t)
		h.Lazaret(ws, harness.Busybox, "sh", "-c", "cat /usr/local/bin/x && test -u /usr/local/bin/x && test -d /opt/a && test -d /var/lib/b && ! test -L /usr/bin/env && ! test -e /root/y").OK(t)
		h.Lazaret(other, harness.Busybox, "sh", "-c", "! test -e /usr/local/bin/x && test -L /usr/bin/env").OK(t)
		h.Lazaret("", harness.Busybox, "sh", "-c", "! test -e /usr/local/bin/x && test -L /usr/bin/env").OK(t)
	})
}
