package network

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// Whatever network podman is asked for, the sandbox has the profile's, its own
// loopback, or is refused. The profile's mode is the default one.
func TestModes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name("ok.test", "A "+good)
	w.name("evil.test", "A "+bad)
	p := w.place(harness.SandboxCurrent, "[profiles.filt]\nstate_paths = []\n[profiles.filt.network]\nallow = [\"ok.test\"]\n"+
		"[profiles.loose]\nstate_paths = []\n[profiles.loose.network]\nmode = \"open\"\n")
	p.WriteFile(filepath.Join(p.ws, "probes"), "tcp\tok.test:22\thi\ntcp\tevil.test:22\thi\ntcp\t"+bad+":22\thi\n")
	// One that lives meanwhile, so that the network is there, and to be joined.
	p.sandbox("other", filt)
	loose := "--annotation=dev.lazaret.profile=loose"
	const (
		filtered = "filtered"
		nothing  = "nothing"
		all      = "all"
	)
	for _, c := range []struct {
		name, want string // else the refusal's words
		args       []string
	}{
		{"default", filtered, []string{filt}},
		{"slirp4netns", filtered, []string{filt, "--network=slirp4netns:allow_host_loopback=true"}},
		{"bridge", filtered, []string{filt, "--network=bridge"}},
		{"a published port", "published ports refused", []string{filt, "--publish=127.0.0.1:18080:80"}},
		{"none", nothing, []string{filt, "--network=none"}},
		{"keep-id", filtered, []string{filt, "--userns=keep-id"}},
		{"keep-id and none", nothing, []string{filt, "--userns=keep-id", "--network=none"}},
		{"keep-id and bridge", filtered, []string{filt, "--userns=keep-id", "--network=bridge"}},
		{"auto", filtered, []string{filt, "--userns=auto:size=2000"}},
		{"nomap", filtered, []string{filt, "--userns=nomap"}},
		{"another name server", filtered, []string{filt, "--dns=" + resolver}},
		{"host", "host network refused", []string{filt, "--network=host"}},
		{"the host's by path", "host network refused", []string{filt, "--network=ns:/proc/self/ns/net"}},
		{"another container's", "network of another container refused", []string{filt, "--network=container:other"}},
		{"another flag for runsc", "take that flag away", []string{filt}},
		{"open", all, []string{loose}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var global []string
			if c.name == "another flag for runsc" {
				global = []string{"--runtime-flag=network=none"}
			}
			args := append(append(global, p.LazaretArgs(p.ws)...), c.args...)
			r := p.Podman(append(args, harness.Busybox, "/workspace/probe", "all", "/workspace/probes")...)
			switch c.want {
			case filtered, nothing, all:
			default:
				r.Fails(t, 126, c.want)
				return
			}
			got := strings.Split(r.OK(t), "\n")
			if len(got) != 3 {
				t.Fatalf("%d outcomes: %q", len(got), got)
			}
			for i, reached := range []bool{c.want != nothing, c.want == all, c.want == all} {
				if strings.HasPrefix(got[i], "line ") != reached {
					t.Errorf("probe %d: %q, reached should be %v", i, got[i], reached)
				}
			}
			if c.want == filtered && (!strings.Contains(got[1], "no such host") || !strings.Contains(got[2], "refused")) {
				t.Errorf("not refused in words: %q", got)
			}
		})
	}
}
