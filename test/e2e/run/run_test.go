// Package run runs lazaret run as a person does: in terminals, by keys, with
// requests of the agent's answered in between.
package run

import (
	"os"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const profiles = `
[profiles.default]
image = "` + harness.Busybox + `"
command = ["sh"]
env = { FROM_PROFILE = "yes" }
pass_env = ["FROM_HOST"]
`

// The exit status, the profile's environment and image, and pipes in the place of
// a terminal.
func TestPipes(t *testing.T) {
	harness.Each(t, harness.Options{Config: profiles}, func(t *testing.T, h *harness.Harness) {
		ws := h.Workspace()
		for _, c := range []struct {
			script, out string
			code        int
		}{
			{`cd "$1" && echo in | FROM_HOST=here lazaret run -- sh -c 'cat; echo $FROM_PROFILE $FROM_HOST; pwd'`, "in\nyes here\n/workspace", 0},
			{`cd "$1" && lazaret run default -- sh -c 'exit 37'`, "", 37},
			{`cd "$1" && echo 'echo by the profile' | lazaret run`, "by the profile", 0},
			{`cd "$1" && lazaret run -- nosuch`, "", 127},
			{`cd "$1" && lazaret run nosuch`, "", 1},
			{`cd "$1" && lazaret run --image localhost/nosuch:1`, "", 1},
		} {
			r := h.Sh(ws, c.script, ws)
			if r.Code != c.code || strings.TrimSpace(r.Stdout) != c.out {
				t.Errorf("%s: exit %d, want %d: %q, stderr %q", c.script, r.Code, c.code, r.Stdout, r.Stderr)
			}
		}
		h.DomainEnds("default", ws)
	})
}
