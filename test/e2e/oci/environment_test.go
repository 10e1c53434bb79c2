package oci

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// Every later verb works with the little that an engine's clean-up gives.
func TestNearEmptyEnvironment(t *testing.T) {
	each(t, harness.Options{}, func(t *testing.T, w *world) {
		var bare []string
		if !w.rootful {
			bare = []string{"XDG_RUNTIME_DIR=" + w.Runtime} // which is this test's own, and no login's
		}
		call := func(env []string, args ...string) harness.Result {
			argv := append([]string{"env", "-i"}, env...)
			argv = append(argv, w.program("lazaret-runtime"), "--root", w.root)
			return w.engine(append(argv, args...)...)
		}
		ws, id := w.Workspace(), w.id("c")
		for name, env := range map[string][]string{
			"no more than that":    bare,
			"another user's home":  append([]string{"HOME=/root/no"}, bare...),
			"a home that is not":   append([]string{"HOME=relative"}, bare...),
			"an empty home":        append([]string{"HOME=", "PATH="}, bare...),
			"somebody else's name": append([]string{"USER=root", "LOGNAME=root", "HOME=/"}, bare...),
		} {
			b := w.bundle("sleep 100", workspace(ws))
			w.create(b, id, "--network=none").OK(t)
			call(env, "state", id).OK(t)
			call(env, "start", id).OK(t)
			if got := call(env, "exec", id, "cat", "/workspace/README").OK(t); got != "one" {
				t.Errorf("%s: exec %q", name, got)
			}
			call(env, "kill", id, "KILL").OK(t)
			w.wait(id, specs.StateStopped)
			w.deletes(func() harness.Result { return call(env, "delete", id) })
			call(env, "delete", "--force", id).OK(t)
			w.nothingRuns()
		}
	})
}

// Nothing that Lazaret starts by itself is found along PATH, whose directories an
// env_file in the workspace can name.
func TestHostilePath(t *testing.T) {
	each(t, harness.Options{}, func(t *testing.T, w *world) {
		ws, id := w.Workspace(), w.id("c")
		marker := filepath.Join(w.Dir, "marker")
		for _, name := range []string{"runsc", "runsc-sandbox", "lazaret", "lazaret-hook", "lazaret-coordinator", "lazaret-escalate", "newuidmap", "sh", "infocmp", "systemd-run", "git"} {
			w.WriteFile(filepath.Join(ws, name), "#!/bin/sh\necho "+name+" >>"+marker+"\nexit 1\n")
			w.Run("chmod", "0755", filepath.Join(ws, name)).OK(t)
		}
		b := w.bundle("sleep 100", workspace(ws))
		env := []string{"env", "PATH=" + ws + ":.", w.program("lazaret-runtime"), "--root", w.root}
		w.engine(append([]string{"/bin/sh", "-c", `cd "$0" && exec "$@" </dev/null >/dev/null 2>&1`, ws}, append(env, "--network=none", "create", "--bundle", b, id)...)...).OK(t)
		w.engine(append(env, "start", id)...).OK(t)
		w.engine(append(env, "exec", id, "true")...).OK(t)
		w.engine(append(env, "delete", "--force", id)...).OK(t)
		if r := w.Run("cat", marker); r.Code == 0 {
			t.Errorf("these were found along PATH: %s", r.Stdout)
		}
		w.nothingRuns()
	})
}

// buildah hands the base image's variables on, and nobody can tell them from the
// user's.
func TestBuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.Options{Filtered: true, Config: "[profiles.loose.network]\nmode = \"open\"\n"})
	build := func(text string) harness.Result {
		w.WriteFile(filepath.Join(w.Dir, "build/Containerfile"), text)
		return w.Podman("build", "--runtime="+w.program("lazaret-runtime"), "--network=none", "--no-cache", "-t", "localhost/built", filepath.Join(w.Dir, "build"))
	}
	r := build("FROM " + harness.Busybox + "\nRUN echo built >/made && id -u >>/made\n")
	r.OK(t)
	if got := w.Podman("run", "--rm", "--network=none", "--runtime=lazaret", "localhost/built", "cat", "/made").OK(t); got != "built\n0" {
		t.Errorf("the image has %q", got)
	}
	r = build("FROM " + harness.Busybox + "\nRUN exit 7\n")
	if r.Code == 0 || !strings.Contains(r.Stderr, "7") {
		t.Errorf("a step that fails: exit %d, %s", r.Code, r.Stderr)
	}
	r = build("FROM " + harness.Busybox + "\nENV LAZARET_PROFILE=loose\nRUN true\n")
	if r.Code == 0 || !strings.Contains(r.Stderr, "dev.lazaret.profile") {
		t.Errorf("an image that names its profile: exit %d, %s", r.Code, r.Stderr)
	}
}
