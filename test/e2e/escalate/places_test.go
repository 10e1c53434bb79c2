package escalate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// The socket lies where socket_dir says, and answers in every user namespace that
// an engine makes; afterwards it is gone.
func TestSocketDirAndUserNamespaces(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Config: "[escalation]\ntimeout = \"2m\"\nsocket_dir = \"~/some where/sockets\"\n"})
	dir := filepath.Join(h.Home, "some where/sockets")
	bin := program(t, h, "testdesk", "./testdesk")
	for name, args := range map[string][]string{
		"root":      nil,
		"keep-id":   {"--userns=keep-id"},
		"uid":       {"--userns=keep-id:uid=1000,gid=1000"},
		"keep-root": {"--userns=keep-id", "--user=0"},
		"auto":      {"--userns=auto:size=2000"},
	} {
		ws := h.Workspace()
		h.Detached(ws, name, append(args, harness.Busybox, "sleep", "600")...)
		hash, err := harness.DomainHash("default", ws)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "lazaret-"+h.Inspect(name, ".Id"), "escalate.sock")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		d := open(t, h, bin, hash, wire.DeskConsole, "")
		done := background(t, h, "podman", "exec", name, "lazaret-escalate", "--", "whoever")
		select {
		case r := <-done:
			t.Errorf("%s: exit %d, %s", name, r.Code, r.Stderr)
		case e := <-d.events:
			if e.Ask == nil || e.Ask.Command != "whoever" {
				t.Fatalf("%s: asked %+v", name, e.Ask)
			}
			d.run(e.Ask, 9, "it\n", "")
			if r := wait(t, done); r.Exit(t, 9) != "it" {
				t.Errorf("%s: stdout %q", name, r.Stdout)
			}
		}
		d.cancel()
		h.Podman("rm", "-f", "-t", "0", name).OK(t)
		h.DomainEnds("default", ws)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if len(names) > 0 {
		t.Errorf("left in socket_dir: %s", strings.Join(names, ", "))
	}
}
