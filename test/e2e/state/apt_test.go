package state

import (
	"os"
	"testing"
	"time"

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

// Everything is killed while a package of some thousand files is unpacked: what was
// installed before is whole, and the package manager can go on.
func TestKilledInTheMiddleOfAnInstall(t *testing.T) {
	t.Parallel()
	drivers := map[string]harness.Options{"overlay": {}}
	if os.Getenv("STATE_FILES") != "" { // the long run; TestKilled is for both always
		drivers["fuse-overlayfs"] = fuse()
	}
	for name, opts := range drivers {
		t.Run(name, func(t *testing.T) {
			opts.KeepMess = true // what podman gave up on is nobody's to delete
			h := harness.New(t, opts)
			ws := h.Workspace()
			const install = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq -y --no-install-recommends install "
			run := func(script string) harness.Result { return h.Lazaret(ws, harness.Debian, "bash", "-ec", script) }
			run("apt-get -qq update; " + install + "jq; apt-get -qq -y --no-install-recommends --download-only install vim-runtime").OK(t)
			h.Detached(ws, "box", harness.Debian, "bash", "-c", install+"vim-runtime; sleep 600")
			h.Eventually("files are unpacked", 4*time.Minute, func() bool {
				return h.Podman("exec", "box", "sh", "-c", "test $(ls -a /usr/share/vim/vim*/syntax | wc -l) -gt 50").Code == 0
			})
			h.KillEverything()
			h.Podman("rm", "-f", "-t", "0", "box") // whose conmon was killed: podman 4.3 may give up on it
			whole := `test "$(echo '{"a":1}' | jq .a)" = 1; dpkg -V jq libjq1`
			run(whole + `; test "$(dpkg-query -W -f '${db:Status-Status}' vim-runtime)" != installed`).OK(t)
			run("dpkg --configure -a || :; " + install + "-f vim-runtime; apt-get -qq check; dpkg --audit; dpkg -V vim-runtime; " + whole).OK(t)
		})
	}
}
