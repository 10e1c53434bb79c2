package shim

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
)

// early gives the place a runtime with the entry that make build sets; see
// internal/early.
func (p *place) early() {
	p.t.Helper()
	dir := filepath.Join(build(p.t), "early")
	if _, err := os.Stat(dir); err != nil {
		cmd := exec.CommandContext(p.t.Context(), "go", "build", "-ldflags=-E _lazaret_entry", "-o", dir+"/lazaret-runtime", "github.com/lazaret-dev/lazaret/cmd/lazaret-runtime")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			p.t.Fatalf("build: %v: %s", err, out)
		}
		p.must(os.Chmod(dir, 0o755)) //nolint:gosec // another uid runs what is in it
	}
	p.must(os.Remove(p.bin + "/lazaret-runtime"))
	p.must(os.Link(dir+"/lazaret-runtime", p.bin+"/lazaret-runtime"))
}

// TestEarlyIsTheSame: with and without the entry runsc sees the same.
func TestEarlyIsTheSame(t *testing.T) {
	calls := []string{
		"state c1", "start c1", "kill c1 9", "kill --all c1 SIGKILL", "delete c1", "delete --force c1",
		"state unknown", "start unknown", "delete -f c1", "delete --force -- c1", "kill c1", "--root /r state c1", "--log=/x kill c1 9",
		"state ../containers/c1", "state", "ps c1", "pause c1", "--ignore-cgroups=false state c1", "state c1 c1",
	}
	run := func(p *place, call string) outcome {
		o := p.run(strings.Fields(call)...)
		o.pid = 0
		if o.rec != nil {
			o.rec.PID, o.rec.Env = 0, nil // other places, but see below
		}
		return o
	}
	slow, fast := newPlace(t), newPlace(t)
	fast.early()
	for _, p := range []*place{slow, fast} {
		p.state("c1", func(s *containerstate.State) { s.RunscFlags = []string{"--ignore-cgroups", "--overlay2=none"} })
	}
	for _, call := range calls {
		want, got := run(slow, call), run(fast, call)
		want.err = strings.ReplaceAll(want.err, slow.dir, fast.dir)
		if want.rec != nil && got.rec != nil {
			want.rec.Cwd = strings.ReplaceAll(want.rec.Cwd, slow.dir, fast.dir)
			got.rec.FDs, want.rec.FDs = nil, nil // numbers of pipes
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v %+v, without it\n%+v %+v", call, got, got.rec, want, want.rec)
		}
	}
	o := fast.run("state", "c1")
	if o.rec == nil || o.rec.PID != o.pid || !reflect.DeepEqual(o.rec.Env, fast.env()) || len(o.rec.FDs) != 3 {
		t.Errorf("%+v", o.rec)
	}
}

// TestEarlyReads: which call files are followed. The slow way does not read
// them and finds no state here.
func TestEarlyReads(t *testing.T) {
	p := newPlace(t)
	p.early()
	dir := p.state("c1", nil)
	p.must(os.Remove(dir + "/state.json"))
	good := p.low + "\x00--ignore-cgroups\x00"
	tests := []struct {
		name, text string
		followed   bool
	}{
		{"as it is written", good, true},
		{"no flags", p.low + "\x00", true},
		{"an empty flag", p.low + "\x00\x00", true},
		{"empty", "", false},
		{"not ended", strings.TrimSuffix(good, "\x00"), false},
		{"a relative path", "runsc\x00", false},
		{"too long", p.low + "\x00" + strings.Repeat("x", 4096) + "\x00", false},
		{"longer than is read, cut between words", p.low + "\x00" + strings.Repeat("--y\x00", 2000), false},
		{"too many", p.low + "\x00" + strings.Repeat("\x00", 600), false},
		{"a program that is not there", "/nonexistent/runsc\x00", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p.write(dir+"/call", tt.text)
			p.own(dir)
			flags := strings.Split(strings.TrimSuffix(tt.text, "\x00"), "\x00")[1:]
			o := p.run("state", "c1")
			if o.rec == nil {
				t.Fatalf("exit %d: %s", o.code, o.err)
			}
			want := []string{"runsc", "state", "c1"}
			if tt.followed {
				want = append(append([]string{"runsc"}, flags...), "state", "c1")
			}
			if !reflect.DeepEqual(o.rec.Args, want) {
				t.Errorf("argv %q, want %q", o.rec.Args, want)
			}
		})
	}
	plain := func(name string, o outcome) {
		if o.rec == nil || len(o.rec.Args) != 3 {
			t.Errorf("%s: exit %d, %+v, %s", name, o.code, o.rec, o.err)
		}
	}
	p.must(os.Rename(dir+"/call", dir+"/real"))
	p.write(dir+"/real", good)
	p.must(os.Symlink("real", dir+"/call"))
	plain("a symbolic link", p.run("state", "c1"))
	p.must(os.Rename(dir+"/real", dir+"/call"))
	if o := p.run("state", "c1"); o.rec == nil || len(o.rec.Args) != 4 {
		t.Fatalf("not followed: %+v", o.rec)
	}
	for _, xdg := range []string{"", "XDG_RUNTIME_DIR=", "XDG_RUNTIME_DIR=xdg", "XDG_RUNTIME_DIR=/" + strings.Repeat("x", 4095)} {
		cmd := p.command("state", "c1")
		cmd.Env = []string{"HOME=" + p.home, xdg}
		cmd.Dir = p.dir
		plain(xdg, p.finish(cmd))
	}
	if os.Geteuid() == 0 {
		p.must(os.Chown(p.xdg, 0, 0))
		p.must(os.Chmod(p.xdg, 0o755)) //nolint:gosec // the point
		plain("another user's directory", p.run("state", "c1"))
	}
}
