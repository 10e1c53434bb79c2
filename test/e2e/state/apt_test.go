package state

import (
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// The real thing, from the distribution's mirror: installed in one container,
// there in the next, in order for the package manager, over a rebuilt image too.
func TestPackagesSurvive(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]harness.Options{"overlay": {}, "fuse-overlayfs": fuse()} {
		t.Run(name, func(t *testing.T) {
			h := harness.New(t, opts)
			ws := h.Workspace()
			// Images with a package of their own, in two versions.
			build := func(from, to, version string) {
				commit(t, h, from, to, `mkdir -p /tmp/p/DEBIAN /tmp/p/usr/share/mine; echo `+version+` >/tmp/p/usr/share/mine/version
					printf 'Package: mine\nVersion: `+version+`\nArchitecture: all\nMaintainer: x\nDescription: x\n' >/tmp/p/DEBIAN/control
					dpkg-deb -b /tmp/p /tmp/mine.deb >/dev/null; dpkg -i /tmp/mine.deb; rm -r /tmp/p /tmp/mine.deb`)
			}
			build(harness.Debian, "localhost/one", "1.0")
			build("localhost/one", "localhost/newer", "2.0")
			run := func(image, script string) harness.Result { return h.Lazaret(ws, image, "bash", "-ec", script) }
			run("localhost/one", `export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; apt-get -qq -y --no-install-recommends install jq ripgrep`).OK(t)
			check := `
				test "$(echo '{"a":1}' | jq .a)" = 1; rg --version >/dev/null
				dpkg -l jq ripgrep libjq1 | grep -c '^ii' | grep -qx 3
				apt-get -qq check; dpkg --audit; dpkg -V jq ripgrep`
			if got := run("localhost/one", check).OK(t); got != "" {
				t.Errorf("check: %s", got)
			}
			r := run("localhost/newer", check+"; cat /usr/share/mine/version")
			if r.OK(t) != "2.0" {
				t.Errorf("over the newer image: %q", r.Stdout)
			}
			run("localhost/newer", `export DEBIAN_FRONTEND=noninteractive; apt-get -qq -y upgrade; apt-get -qq -y install --reinstall --no-install-recommends ripgrep; apt-get -qq -y remove jq; apt-get -qq check`).OK(t)
			run("localhost/newer", `! command -v jq; rg --version >/dev/null; apt-get -qq check; ! dpkg -s jq | grep -q '^Status: install ok installed'`).OK(t)
		})
	}
}
