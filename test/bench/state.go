package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

const (
	defaultStateTurns = 5
	// Of the kernel's driver; the start in milliseconds.
	aimState  = 1.10
	aimMounts = 15.0
	// packageFiles are in the package that is installed.
	packageFiles = 2000
)

// stateSide is a container that stays up, with or without kept directories.
type stateSide struct {
	name    string
	runtime []string
	args    []string
}

// runState measures what kept directories cost: a package of some thousand files
// that goes into /usr, a program that reads from there, and the start.
func runState(t *testing.T, turns int) {
	b := &bench{Harness: harness.New(t, harness.Options{Config: "[profiles.fuse]\nstate_driver = \"fuse-overlayfs\"\n[profiles.none]\nstate_paths = []\n"}), t: t, turns: turns}
	ws := b.Workspace()
	profile := func(name string) []string { return []string{"-e", "LAZARET_PROFILE=" + name} }
	sides := []stateSide{
		{"plain", plainNone, nil},
		// The root accessed as kept directories are: the host is asked at each look-up.
		{"shared", append(slices.Clone(plainNone), "--runtime-flag=file-access=shared"), nil},
		{"default", lazaret, profile("default")},
		{"fuse", lazaret, profile("fuse")},
	}
	for _, s := range sides {
		b.Podman(append(b.podmanRun(s.runtime, ws, append([]string{"-d", "--name=" + s.name}, s.args...)...), harness.Debian, "sleep", "100000")...).OK(t)
		b.in(s, fmt.Sprintf(`mkdir -p /tmp/p/DEBIAN; for i in $(seq 0 39); do mkdir -p /tmp/p/usr/lib/many/$i; done
			for i in $(seq %d); do echo $i >/tmp/p/usr/lib/many/$((i %% 40))/$i; done
			printf 'Package: many\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n' >/tmp/p/DEBIAN/control
			dpkg-deb -b /tmp/p /tmp/many.deb >/dev/null; rm -r /tmp/p`, packageFiles), "true")
	}
	row, flush := table(t)
	row("%s\nkept directories; %d turns; milliseconds: median [quartiles]; ratios: median of the turns' own [quartiles]\n", b.machine(), turns)
	row("in the sandbox\tplain runsc, ms\tshared root, ms\tto plain\toverlay, ms\tto plain\taim\tfuse-overlayfs, ms\tto plain")
	for _, w := range []struct {
		name         string
		cold         bool // the host's caches are dropped before
		prepare, run string
	}{
		{name: "python3 -c pass, nothing of the host's cached", cold: true, run: "python3 -c pass"},
		{name: fmt.Sprintf("dpkg -i, %d files", packageFiles), prepare: "dpkg --purge many >/dev/null 2>&1", run: "dpkg -i --force-unsafe-io /tmp/many.deb"},
		{name: "tar -x of them", prepare: "rm -rf /usr/lib/tree; mkdir /usr/lib/tree", run: "dpkg-deb --fsys-tarfile /tmp/many.deb | tar -x -C /usr/lib/tree"},
		{name: "find and read them", run: "find /usr/lib/many -type f -exec cat {} +"},
	} {
		things := make([]func() time.Duration, len(sides))
		for i, s := range sides {
			things[i] = func() time.Duration {
				if w.cold {
					b.DropCaches()
				}
				return b.in(s, w.prepare, w.run)
			}
		}
		all := b.alternate([]string{"plain", "shared", "overlay", "fuse"}, things)
		row("  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", w.name, all[0].ms(), all[1].ms(), all[1].ratio(all[0]), all[2].ms(), all[2].ratio(all[0]), atMost(all[2].ratio(all[0]).median, aimState), all[3].ms(), all[3].ratio(all[0]))
		flush()
	}
	for _, s := range sides {
		b.Podman("rm", "-f", "-t", "0", s.name).OK(t)
	}
	start := func(name string) func() time.Duration {
		return func() time.Duration {
			r := b.Podman(append(b.podmanRun(lazaret, ws, append([]string{"--rm"}, profile(name)...)...), harness.Debian, "true")...)
			r.OK(t)
			b.DomainEnds(name, ws)
			return r.Took
		}
	}
	all := b.alternate([]string{"none", "default"}, []func() time.Duration{start("none"), start("default")})
	more := all[1].difference(all[0])
	row("\nstart to exit of true\twithout, ms\tfour overlays, ms\tmore, ms\taim")
	row("  first in the domain\t%s\t%s\t%s\t%s", all[0].ms(), all[1].ms(), more, atMost(more.median, aimMounts))
	flush()
}

// in runs bash in a container that is up, and returns what run took by the
// sandbox's clock.
func (b *bench) in(s stateSide, prepare, run string) time.Duration {
	out := b.Podman(append(slices.Clone(s.runtime), "exec", s.name, "bash", "-c", "set -e\n"+prepare+"\nbegin=${EPOCHREALTIME/./}\n{ "+run+" ; } >/dev/null\nend=${EPOCHREALTIME/./}\necho $((end - begin))")...).OK(b.t)
	us, err := strconv.Atoi(out[strings.LastIndexByte(out, '\n')+1:])
	if err != nil {
		b.t.Fatalf("time taken: %v", err)
	}
	return time.Duration(us) * time.Microsecond
}
