package runtimetools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

const (
	toolsModule = "github.com/opencontainers/runtime-tools"
	imageTree   = "/var/cache/lazaret-test/busybox-1.tar" // of test/scripts/setup.sh
	programTime = 90 * time.Second
	leastOnBare = 5000 // assertions that bare runsc passed when this was written: about 6,000
	// Control groups that the programs make: named by container id, or as they chose.
	theirGroups = `^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|testdir)$`
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// intended lists assertions that hold on bare runsc and not through the shim,
// with the reason why that is wanted: program, then a part of the complaint.
func intended() map[string]map[string]string {
	return map[string]map[string]string{}
}

// suite is a folder with the programs, what they read, and both runtimes.
type suite struct {
	dir        string
	bare, shim string // scripts, as the programs take a single word
}

func TestWhatRunscPassesTheShimPasses(t *testing.T) {
	if testing.Short() {
		t.Skip("the validation programs need runsc and root")
	}
	s := newSuite(t)
	var cgroup sync.Mutex // held by programs of cgroups, which all use one and the same
	var mu sync.Mutex     // guards sum
	var sum struct{ programs, bare, shim int }
	names := s.build(t)
	t.Run("programs", func(t *testing.T) {
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if strings.HasPrefix(name, "linux_cgroups") {
					cgroup.Lock()
					defer cgroup.Unlock()
				}
				var bare, shim outcome
				var faults []string
				// Some programs race with the container's end: believe a fault that repeats.
				for range 3 {
					bare, shim = s.run(t, name, s.bare), s.run(t, name, s.shim)
					if faults = unexpected(name, worse(bare, shim)); len(faults) == 0 {
						break
					}
				}
				if len(faults) > 0 {
					t.Errorf("bare runsc is better:\n\t%s\nstderr through the shim: %s", strings.Join(faults, "\n\t"), shim.stderr)
				}
				mu.Lock()
				defer mu.Unlock()
				sum.programs, sum.bare, sum.shim = sum.programs+1, sum.bare+bare.held(), sum.shim+shim.held()
			})
		}
	})
	fmt.Printf("OCI validation: %d programs, %d assertions hold on bare runsc, %d through lazaret-runtime\n", sum.programs, sum.bare, sum.shim)
	// With -run narrowed there are fewer.
	if sum.programs == len(names) && sum.bare < leastOnBare {
		t.Errorf("only %d assertions hold on bare runsc: the programs do not run as they should here", sum.bare)
	}
}

func unexpected(program string, faults []string) []string {
	var list []string
	for _, fault := range faults {
		known := false
		for part := range intended()[program] {
			known = known || strings.Contains(fault, part)
		}
		if !known {
			list = append(list, fault)
		}
	}
	return list
}

func newSuite(t *testing.T) suite {
	t.Helper()
	for _, need := range []string{harness.SandboxCurrent, imageTree} {
		if _, err := os.Stat(need); err != nil {
			t.Fatalf("run test/scripts/setup.sh first: %v", err)
		}
	}
	// Short, as sandboxes keep their sockets below it.
	dir, err := os.MkdirTemp("/var/tmp", "oci.") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	s := suite{dir: dir, bare: filepath.Join(dir, "bare.sh"), shim: filepath.Join(dir, "shim.sh")}
	before := cgroups(t)
	t.Cleanup(func() { s.remove(t, before) })

	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	write("home/.config/lazaret/config.toml", fmt.Sprintf(
		// The programs ask for the host's namespaces; a filtered profile refuses that.
		"[general]\ncontrol_dir = %q\n[runtime]\nsandbox = %q\n[profiles.default.network]\nmode = \"open\"\n", dir, harness.SandboxCurrent))
	write("tmp/.keep", "")
	write("bare.sh", fmt.Sprintf("#!/bin/sh\nexec %s --root %s/bare \"$@\"\n", harness.SandboxCurrent, dir))
	// root: a runtime gets no more environment from an engine than this.
	write("shim.sh", fmt.Sprintf("#!/bin/sh\nexec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=%[2]s/home %[1]s/bin/lazaret-runtime --root %[2]s/shim \"$@\"\n",
		harness.Prefix(t), dir))
	out, err := asRoot(t.Context(), "chown", "-R", "0:0", filepath.Join(dir, "home")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tree, err := exec.CommandContext(t.Context(), "gzip", "-1c", imageTree).Output()
	if err != nil {
		t.Fatal(err)
	}
	write("rootfs-"+runtime.GOARCH+".tar.gz", string(tree))
	return s
}

// build compiles the programs into the suite's folder and returns their names.
func (s suite) build(t *testing.T) []string {
	t.Helper()
	bin := filepath.Join(s.dir, "bin") + "/"
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin,
		toolsModule+"/cmd/runtimetest", toolsModule+"/validation/...")
	cmd.Dir = "programs"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the validation programs: %v: %s", err, out)
	}
	if err := os.Rename(bin+"runtimetest", filepath.Join(s.dir, "runtimetest")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(bin)
	if err != nil || len(entries) == 0 {
		t.Fatalf("no program was built: %v", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// run runs one program as root. The programs read their root tree and the
// program for the container from the working directory.
func (s suite) run(t *testing.T, name, oci string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTime)
	defer cancel()
	cmd := asRoot(ctx, "env", "RUNTIME="+oci, "TMPDIR="+s.dir+"/tmp", filepath.Join(s.dir, "bin", name))
	cmd.Dir = s.dir
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		t.Fatal(err)
	}
	o := parse(stdout.String())
	o.code, o.stderr = cmd.ProcessState.ExitCode(), stderr.String()
	return o
}

// remove ends what the programs left, on bare runsc as well, and removes the folder.
func (s suite) remove(t *testing.T, before map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) //nolint:usetesting // the test's own has ended by now
	defer cancel()
	for _, oci := range []string{s.shim, s.bare} {
		out, err := asRoot(ctx, oci, "list", "-quiet").Output()
		if err != nil {
			t.Logf("list what is left: %v", err)
		}
		for _, id := range strings.Fields(string(out)) {
			if out, err := asRoot(ctx, oci, "delete", "--force", id).CombinedOutput(); err != nil {
				t.Logf("delete %s: %v: %s", id, err, out)
			}
		}
	}
	theirs := regexp.MustCompile(theirGroups)
	for path := range cgroups(t) {
		if !before[path] && theirs.MatchString(filepath.Base(path)) {
			if out, err := asRoot(ctx, "find", path, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").CombinedOutput(); err != nil {
				t.Logf("%v: %s", err, out)
			}
		}
	}
	for _, root := range []string{"bare", "shim"} {
		// runsc keeps an empty network namespace for all its sandboxes; two that
		// start at once mount it twice.
		out, err := asRoot(ctx, "sh", "-c", `while umount "$1" 2>/dev/null; do :; done`, "sh", filepath.Join(s.dir, root, "null-netns")).CombinedOutput()
		if err != nil {
			t.Logf("unmount: %v: %s", err, out)
		}
	}
	if out, err := asRoot(ctx, "rm", "-rf", "--one-file-system", s.dir).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// cgroups lists the groups just below each hierarchy's root.
func cgroups(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			if fi, err := os.Stat(p); err == nil && fi.IsDir() {
				found[p] = true
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	return found
}

func asRoot(ctx context.Context, name string, args ...string) *exec.Cmd {
	if os.Geteuid() == 0 {
		return exec.CommandContext(ctx, name, args...)
	}
	return exec.CommandContext(ctx, "sudo", append([]string{"-n", name}, args...)...)
}
