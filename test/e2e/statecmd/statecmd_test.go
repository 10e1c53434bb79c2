// Package statecmd plays lazaret state and lazaret prune on what real sandboxes have
// changed.
package statecmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// diff is what lazaret state diff --json tells.
type diff struct {
	States []struct {
		Driver   string
		Packages []struct{ Manager, Name, Version, Change string }
		Files    []struct{ Path, Change, Type string }
		Notes    []string
	}
}

func stateDiff(t *testing.T, h *harness.Harness, ws string) diff {
	t.Helper()
	var d diff
	out := h.Run("lazaret", "state", "diff", "-w", ws, "--json").OK(t)
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(d.States) != 1 || len(d.States[0].Notes) > 0 {
		t.Fatalf("states: %s", out)
	}
	return d
}

func (d diff) packages() (names []string) {
	for _, p := range d.States[0].Packages {
		names = append(names, p.Change+" "+p.Manager+" "+p.Name)
	}
	return names
}

func (d diff) files() (names []string) {
	for _, f := range d.States[0].Files {
		names = append(names, f.Change+" "+f.Type+" "+f.Path)
	}
	return names
}

// Image is Debian with one source of packages: the directory repo of the workspace.
const image = "localhost/statecmd:1"

// makeRepo makes in a workspace a repository of apt's with a program "tool" and a
// library that it needs, and the image that installs from there.
const makeRepo = `
	mkdir repo && cd repo
	deb() {
		mkdir -p t/DEBIAN t/usr/share/doc/"$1" t/"$3"
		printf 'Package: %s\nVersion: 1.0-1\nArchitecture: all\nMaintainer: T <t@example.test>\nDescription: t\nSection: misc\nPriority: optional\n%s' "$1" "$2" >t/DEBIAN/control
		printf '#!/bin/sh\necho %s works\n' "$1" >t/"$3/$1"
		chmod 0755 t/"$3/$1"
		echo c >t/usr/share/doc/"$1"/copyright
		dpkg-deb --root-owner-group -Znone -b t "$1.deb" >/dev/null
		dpkg-deb -f "$1.deb" >>Packages
		printf 'Filename: ./%s.deb\nSize: %s\nSHA256: %s\n\n' "$1" "$(stat -c %s "$1.deb")" "$(sha256sum "$1.deb" | cut -d" " -f1)" >>Packages
		rm -r t
	}
	deb tool 'Depends: libtool-x1
' usr/bin
	deb libtool-x1 '' usr/lib/x86_64-linux-gnu
`

func makeImage(t *testing.T, h *harness.Harness, name, script string) {
	t.Helper()
	h.Podman("run", "--name=making", "--network=none", harness.Debian, "sh", "-ec",
		"rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*; echo 'deb [trusted=yes] file:/workspace/repo ./' >/etc/apt/sources.list;"+script).OK(t)
	h.Podman("commit", "-q", "making", name).OK(t)
	h.Podman("rm", "making").OK(t)
}

// installs is an agent's way to a package.
const installs = "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install tool >/dev/null && tool"

// A package is installed, shown, kept in a snapshot, removed, restored, and thrown
// away, with both drivers.
func TestPackage(t *testing.T) {
	for _, driver := range []string{"overlay", "fuse-overlayfs"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			h := harness.New(t, harness.Options{Config: "[profiles.default]\nstate_driver = \"" + driver + "\"\n"})
			ws := h.Workspace()
			h.Sh(ws, makeRepo).OK(t)
			makeImage(t, h, image, "")
			state := func(args ...string) harness.Result {
				return h.Run("lazaret", append([]string{"state", args[0], "--workspace", ws}, args[1:]...)...)
			}
			state("diff").Fails(t, 1, "nothing is kept of profile default")
			h.Lazaret(ws, image, "sh", "-ec", installs).OK(t)
			d := stateDiff(t, h, ws)
			if got := d.packages(); !slices.Equal(got, []string{"added apt libtool-x1", "added apt tool"}) {
				t.Errorf("packages: %q", got)
			}
			if got := d.files(); len(got) > 0 {
				t.Errorf("files beside the packages: %q", got)
			}
			if d.States[0].Driver != driver {
				t.Errorf("driver %s", d.States[0].Driver)
			}
			if out := state("diff").OK(t); !strings.Contains(out, "+ tool 1.0-1 (apt)") || !strings.Contains(out, "(--all shows them)") {
				t.Errorf("diff: %s", out)
			}

			// Nothing happens to what is in use, or without consent.
			h.Detached(ws, "busy", image, "sleep", "1000")
			for _, args := range [][]string{{"reset", "--yes"}, {"snapshot"}, {"rebase", "--yes"}} {
				state(args...).Fails(t, 1, "the domain is in use")
			}
			state("diff").OK(t)
			h.Podman("rm", "-f", "-t", "0", "busy").OK(t)
			h.DomainEnds("default", ws)
			state("reset").Fails(t, 1, "use --yes")

			if out := state("snapshot", "with-tool").OK(t); !strings.Contains(out, "snapshot with-tool: ") {
				t.Errorf("snapshot: %s", out)
			}
			if out := state("list").OK(t); !strings.Contains(out, "with-tool") || !strings.Contains(out, "B  ") {
				t.Errorf("list: %s", out)
			}
			h.Lazaret(ws, image, "sh", "-ec", "apt-get -qq -y purge tool libtool-x1 >/dev/null; echo x >/etc/made; rm -r /usr/share/doc").OK(t)
			d = stateDiff(t, h, ws)
			if got := d.packages(); len(got) > 0 {
				t.Errorf("packages after the removal: %q", got)
			}
			if got := d.files(); !slices.Contains(got, "added file /etc/made") || !slices.Contains(got, "deleted directory /usr/share/doc") {
				t.Errorf("files after the removal: %q", got)
			}
			state("restore", "--yes", "with-tool").OK(t)
			h.Lazaret(ws, image, "sh", "-ec", "tool && dpkg -l tool && apt-get check && test ! -e /etc/made && test -d /usr/share/doc/tool").OK(t)
			if got := stateDiff(t, h, ws).files(); len(got) > 0 {
				t.Errorf("files after the restore: %q", got)
			}

			state("reset", "--yes").OK(t)
			h.Lazaret(ws, image, "sh", "-ec", "! command -v tool && test -d /usr/share/doc").OK(t)
			state("rm", "with-tool").OK(t)
			state("restore", "--yes", "with-tool").Fails(t, 1, "snapshot with-tool: there is none")

			// The workspace goes, and with it the domain, whoever owns what is in it.
			h.Lazaret(ws, image, "sh", "-ec", "mkdir -m 0 /opt/closed && chown -R 1000:1000 /opt/closed && chmod 0 /usr/local").OK(t)
			h.Sh(h.Dir, "rm -rf \"$1\"", ws).OK(t)
			if out := h.Run("lazaret", "prune", "--dry-run").OK(t); !strings.Contains(out, "workspace "+ws+" is gone") || !regexp.MustCompile(`[0-9.]+ [kM]?B`).MatchString(out) {
				t.Errorf("prune: %s", out)
			}
			h.Run("lazaret", "prune").Fails(t, 1, "use --yes")
			ask := h.Terminal("lazaret", "prune")
			ask.Expect("Remove what 1 of them keep?", time.Minute)
			ask.Send("yes\r")
			if code := ask.Wait(); code != 0 {
				t.Errorf("prune on a terminal: exit %d", code)
			}
			if left, err := os.ReadDir(filepath.Join(h.DataRoot(), "domains")); err != nil || len(left) > 0 {
				t.Errorf("left of the domain: %v, %v", left, err)
			}
			if out := h.Run("lazaret", "prune").OK(t); !strings.Contains(out, "nothing to remove") {
				t.Errorf("prune again: %s", out)
			}
		})
	}
}

// An image of another release: what the agent had installed comes along, and nothing
// is lost where that fails.
func TestRebase(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	ws := h.Workspace()
	h.Sh(ws, makeRepo).OK(t)
	makeImage(t, h, image, "")
	h.Lazaret(ws, image, "sh", "-ec", installs).OK(t)
	old := h.Podman("image", "inspect", "--format", "{{.Id}}", image).OK(t)
	makeImage(t, h, image, "sed -i 's/VERSION_ID=.*/VERSION_ID=\"99\"/; s/VERSION_CODENAME=.*/VERSION_CODENAME=next/' /usr/lib/os-release; : >/usr/share/next")
	h.Lazaret(ws, image, "sh", "-ec", "! command -v tool; test -e /usr/share/next").OK(t)

	// Without the repository the installation fails.
	h.Sh(ws, "mv repo hidden").OK(t)
	r := h.Run("lazaret", "state", "rebase", "-w", ws, "--yes")
	r.Exit(t, 1)
	if !strings.Contains(r.Stderr, "the old changes are back as they were") {
		t.Errorf("a rebase that fails: %s", r.Stderr)
	}
	h.Sh(ws, "mv hidden repo").OK(t)
	if got := stateDiff(t, h, ws).packages(); !slices.Equal(got, []string{"added apt libtool-x1", "added apt tool"}) {
		t.Errorf("packages after a rebase that failed: %q", got)
	}

	// The old image is gone, and only the new one is there to compare with.
	h.Podman("rmi", old).OK(t)
	h.Run("lazaret", "state", "diff", "-w", ws).Fails(t, 1, "no longer in podman's storage: --image names another one")
	if out := h.Run("lazaret", "state", "diff", "-w", ws, "--image", image).OK(t); !strings.Contains(out, "+ tool 1.0-1 (apt)") {
		t.Errorf("diff against the new image: %s", out)
	}

	out := h.Run("lazaret", "state", "rebase", "-w", ws, "--yes", "--keep").OK(t)
	if !strings.Contains(out, "apt: tool\n") {
		t.Errorf("rebase: %s", out)
	}
	h.Lazaret(ws, image, "sh", "-ec", "tool; test -e /usr/share/next; apt-get check; apt-mark showauto | grep -qx libtool-x1").OK(t)
	if out := h.Run("lazaret", "state", "list", "-w", ws).OK(t); !strings.Contains(out, "before-rebase") {
		t.Errorf("after the rebase: %s", out)
	}
	h.Run("lazaret", "state", "rebase", "-w", ws, "--yes").Fails(t, 1, "an earlier rebase", "lazaret state rm before-rebase")
	h.Run("lazaret", "state", "rm", "-w", ws, "before-rebase").OK(t)
	// Once more, with nothing that is not brought over.
	h.Run("lazaret", "state", "rebase", "-w", ws, "--yes", "--skip", "tool").OK(t)
	if r := h.Run("lazaret", "state", "list", "-w", ws); r.OK(t) != "" || !strings.Contains(r.Stderr, "no snapshots") {
		t.Errorf("after another rebase: %s%s", r.Stdout, r.Stderr)
	}
	h.Lazaret(ws, image, "sh", "-ec", "! command -v tool").OK(t)
}

// Rootful there is no user namespace to enter, and nothing else differs.
func TestRootful(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Rootful: true})
	ws := h.Workspace()
	state := func(args ...string) string {
		return h.Run("lazaret", append([]string{"state", args[0], "--workspace", ws}, args[1:]...)...).OK(t)
	}
	h.Lazaret(ws, harness.Busybox, "sh", "-ec", "mkdir -m 0 /opt/closed; echo x >/usr/made; chown 1000 /usr/made").OK(t)
	if out := state("diff"); !strings.Contains(out, "+ /usr/made") || !strings.Contains(out, "+ /opt/closed/") {
		t.Errorf("diff: %s", out)
	}
	state("snapshot", "one")
	state("reset", "--yes")
	h.Lazaret(ws, harness.Busybox, "sh", "-ec", "! test -e /usr/made; echo y >/usr/later").OK(t)
	state("restore", "--yes", "one")
	h.Lazaret(ws, harness.Busybox, "sh", "-ec", "! test -e /usr/later; test $(stat -c %u /usr/made) = 1000; test $(stat -c %a /opt/closed) = 0").OK(t)
	h.Sh(h.Home, "rm -rf \"$1\"", ws).OK(t)
	if out := h.Run("lazaret", "prune", "--yes").OK(t); !strings.Contains(out, "removed ") {
		t.Errorf("prune: %s", out)
	}
}
