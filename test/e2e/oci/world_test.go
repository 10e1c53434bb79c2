// Package oci calls lazaret-runtime directly, as engines do, on bundles made here.
package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// world is a place of the harness in which the runtime is called as an engine
// calls it: by root, or as root of podman's user namespace.
type world struct {
	*harness.Harness
	t       *testing.T
	rootful bool
	root    string // for Lazaret's --root
	bundles int
}

// each runs a test rootless and by root, with every runsc of the machine.
func each(t *testing.T, opts harness.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	for _, s := range harness.Sandboxes() {
		for _, rootful := range []bool{false, true} {
			name := s.Name + "-rootless"
			if rootful {
				name = s.Name + "-rootful"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := opts
				o.Sandbox, o.Rootful = s.Path, rootful
				test(t, newWorld(t, o))
			})
		}
	}
}

func newWorld(t *testing.T, o harness.Options) *world {
	t.Helper()
	w := &world{Harness: harness.New(t, o), t: t, rootful: o.Rootful}
	w.root = filepath.Join(w.Runtime, "r") // short: runsc keeps sockets there
	t.Cleanup(func() {
		if t.Failed() {
			return // the harness ends what is there
		}
		// runsc keeps one empty network namespace mounted below each root.
		w.engine("sh", "-c", `for r; do umount "$r/null-netns" 2>/dev/null; rm -rf "$r"; done`, "sh", w.root, w.root+"b").OK(t)
	})
	return w
}

// engine runs a command where an engine runs its runtime.
func (w *world) engine(args ...string) harness.Result {
	w.t.Helper()
	if !w.rootful {
		args = append([]string{"podman", "unshare"}, args...)
	}
	return w.Run(args[0], args[1:]...)
}

func (w *world) program(name string) string { return filepath.Join(w.Prefix, "bin", name) }

// rt is one call of lazaret-runtime.
func (w *world) rt(args ...string) harness.Result {
	w.t.Helper()
	return w.engine(append([]string{w.program("lazaret-runtime"), "--root", w.root}, args...)...)
}

// create is rt's create of a container whose output goes to a file, as it holds
// what it was given for as long as it runs.
func (w *world) create(bundle, id string, flags ...string) harness.Result {
	w.t.Helper()
	argv := []string{"sh", "-c", `"$@" </dev/null >"$0" 2>&1 || { rc=$?; cat "$0" >&2; exit $rc; }`, w.output(bundle), w.program("lazaret-runtime"), "--root", w.root}
	argv = append(argv, flags...)
	return w.engine(append(argv, "create", "--bundle", bundle, id)...)
}

// output is the file that has a container's output.
func (w *world) output(bundle string) string { return bundle + ".out" }

// bare is the same call of runsc, with the flags that Lazaret adds by itself.
func (w *world) bare(args ...string) harness.Result {
	w.t.Helper()
	argv := []string{w.Sandbox, "--root", w.root + "b"}
	if !w.rootful {
		argv = append(argv, "--ignore-cgroups")
	}
	return w.engine(append(argv, args...)...)
}

// bundle makes a bundle that runs a shell script, with no network but lo.
func (w *world) bundle(script string, change func(*specs.Spec)) string {
	w.t.Helper()
	dir := filepath.Join(w.Dir, "b"+strconv.Itoa(w.bundles))
	w.bundles++
	w.Sh("/", `
		mkdir -p "$1/rootfs/bin" "$1/rootfs/proc" "$1/rootfs/tmp" "$1/rootfs/run" "$1/rootfs/usr/local/bin"
		cp /bin/busybox "$1/rootfs/bin/busybox"
		for a in sh cat echo env id kill ls mkdir mount mv ps readlink rm sleep stty touch true tty find grep; do ln -s busybox "$1/rootfs/bin/$a"; done
	`, dir).OK(w.t)
	caps := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL"}
	s := &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			Args: []string{"sh", "-c", script}, Cwd: "/", Env: []string{"PATH=/bin", "A=b"},
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
		},
		Root: &specs.Root{Path: "rootfs"},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
		}},
	}
	if change != nil {
		change(s)
	}
	data, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.WriteFile(filepath.Join(dir, "config.json"), string(data))
	return dir
}

// workspace is a mount of a workspace, to be added to a bundle.
func workspace(ws string) func(*specs.Spec) {
	return func(s *specs.Spec) {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/workspace", Type: "bind", Source: ws, Options: []string{"rbind", "rw"}})
	}
}

// id is a container id of this place's own: the domain of a container without a
// workspace has its control socket, which is everybody's directory, by it.
func (w *world) id(name string) string {
	return name + strings.TrimPrefix(filepath.Base(w.Dir), "lazaret-e2e")
}

// state is the container's OCI state.
func (w *world) state(id string) specs.State {
	w.t.Helper()
	var st specs.State
	if err := json.Unmarshal([]byte(w.rt("state", id).OK(w.t)), &st); err != nil {
		w.t.Fatal(err)
	}
	return st
}

// wait polls until a container has the status.
func (w *world) wait(id string, status specs.ContainerState) {
	w.t.Helper()
	w.Eventually(fmt.Sprintf("%s is %s", id, status), settle, func() bool {
		r := w.rt("state", id)
		return r.Code == 0 && strings.Contains(r.Stdout, `"status": "`+string(status)+`"`)
	})
}

// deletes deletes a container that is stopped: runsc asks the sandbox anew with each
// verb, and can find it stopped once and not yet the next time.
func (w *world) deletes(once func() harness.Result) {
	w.t.Helper()
	w.Eventually("the stopped container can be deleted", settle, func() bool { return once().Code == 0 })
}

// hashOf is the hash of a workspace's domain with the default profile.
func (w *world) hashOf(ws string) string {
	w.t.Helper()
	hash, err := harness.DomainHash("default", ws)
	if err != nil {
		w.t.Fatal(err)
	}
	return hash
}
