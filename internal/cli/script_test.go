package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/gitbranch"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/shadowkey"
	"github.com/lazaret-dev/lazaret/internal/stateanchor"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"lazaret": func() { os.Exit(Main(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// TestScript runs what a user would type; each script has a home and a runtime
// directory of its own, and a lazaret-runtime to register in $WORK/bin.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			for dir, mode := range map[string]os.FileMode{"home": 0o755, "run": 0o700, "bin": 0o755} {
				if err := os.MkdirAll(filepath.Join(env.WorkDir, dir), mode); err != nil {
					return err
				}
			}
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("XDG_RUNTIME_DIR", filepath.Join(env.WorkDir, "run"))
			for _, v := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "CONTAINERS_CONF"} {
				env.Setenv(v, "")
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "bin", "lazaret-runtime"), []byte("#!/bin/sh\n"), 0o755) //nolint:gosec // a program
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"doctorjson": doctorJSON, "prepare": prepareBranch, "hide": hideRepo, "use": useDomain, "keep": keepState, "record": recordDomain,
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// doctorJSON checks the shape of what doctor --json has just printed.
func doctorJSON(ts *testscript.TestScript, _ bool, _ []string) {
	var r struct {
		Checks []struct {
			Name, Status, Detail string
			Fix                  *string
		}
		Warnings, Failures *int
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &r))
	if r.Warnings == nil || r.Failures == nil {
		ts.Fatalf("no counts")
	}
	count := map[string]int{}
	var names []string
	for _, c := range r.Checks {
		if !slices.Contains([]string{"ok", "warn", "fail"}, c.Status) {
			ts.Fatalf("check %s has status %q", c.Name, c.Status)
		}
		if c.Detail == "" || (c.Status == "ok") != (c.Fix == nil) {
			ts.Fatalf("check %s, %s: detail %q, fix %v", c.Name, c.Status, c.Detail, c.Fix)
		}
		count[c.Status]++
		names = append(names, c.Name)
	}
	if count["warn"] != *r.Warnings || count["fail"] != *r.Failures {
		ts.Fatalf("counts %v, said %d and %d", count, *r.Warnings, *r.Failures)
	}
	for _, want := range []string{
		"kernel", "user namespaces", "subordinate ids", "newuidmap", "runtime dir", "cgroups", "podman", "conmon",
		"registration", "lazaret programs", "runsc", "platform", "runc", "uplink", "network", "overlay",
		"/dev/fuse", "/dev/net/tun", "control files", "containers", "domains", "configuration",
	} {
		if !slices.Contains(names, want) {
			ts.Fatalf("no check %q among %q", want, names)
		}
	}
}

// keepState makes a domain in which an agent has changed something: keep WORKSPACE.
func keepState(ts *testscript.TestScript, _ bool, args []string) {
	a := scriptDomain(ts, args[0])
	image := filepath.Join(ts.Getenv("WORK"), "image")
	etc, _, _ := stateanchor.Layout(a.Root, "/etc")
	lib, _, _ := stateanchor.Layout(a.Root, "/var/lib")
	for path, text := range map[string]string{
		image + "/etc/passwd": "root", image + "/etc/gone": "", image + "/var/lib/dpkg/status": "Package: base\nStatus: install ok installed\nVersion: 1\n",
		etc + "/passwd": "evil", etc + "/evil\x1b[2J": "x",
		lib + "/dpkg/status": "Package: base\nStatus: install ok installed\nVersion: 1\n\nPackage: tool\nStatus: install ok installed\nVersion: 1.0\n",
	} {
		ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))  //nolint:gosec // a test's
		ts.Check(os.WriteFile(path, []byte(text), 0o644)) //nolint:gosec // a test's
	}
	ts.Check(unix.Mknod(etc+"/gone", unix.S_IFCHR, 0))
	ts.Check(domain.WriteRecord(a))
	ts.Check(stateanchor.WriteRecord(a.Root, stateanchor.Record{
		Driver: stateanchor.DriverOverlay, Paths: []string{"/etc", "/var/lib"}, Image: stateanchor.Image{Name: "test", Layers: []string{image}},
	}))
}

// recordDomain makes a domain that a sandbox was in: record PROFILE WORKSPACE.
func recordDomain(ts *testscript.TestScript, _ bool, args []string) {
	ws, err := domain.Canonical(ts.MkAbs(args[1]))
	ts.Check(err)
	a := domain.New(args[0], ws, filepath.Join(ts.Getenv("WORK"), "data"))
	ts.Check(os.MkdirAll(a.Root, 0o700))
	ts.Check(domain.WriteRecord(a))
}

// scriptDomain is the domain of a workspace where a script's data_root is $WORK/data.
func scriptDomain(ts *testscript.TestScript, workspace string) domain.Anchor {
	ws, err := domain.Canonical(ts.MkAbs(workspace))
	ts.Check(err)
	return domain.New("default", ws, filepath.Join(ts.Getenv("WORK"), "data"))
}

// prepareBranch does what the first container of a workspace does, and sets
// $WT to the agent's worktree.
func prepareBranch(ts *testscript.TestScript, _ bool, args []string) {
	a := scriptDomain(ts, args[0])
	ts.Check(os.MkdirAll(a.Root, 0o700))
	ts.Check(domain.WriteRecord(a))
	wt, err := gitbranch.Prepare(context.Background(), gitbranch.Options{Domain: a, Home: ts.Getenv("HOME")})
	ts.Check(err)
	ts.Setenv("WT", wt.Path)
}

// hideRepo puts a directory's .git to where the guard keeps one that was born in
// a sandbox: hide WORKSPACE DIRECTORY.
func hideRepo(ts *testscript.TestScript, _ bool, args []string) {
	a, dir := scriptDomain(ts, args[0]), ts.MkAbs(args[1])
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	ts.Check(err)
	key, err := shadowkey.OfDir(fd)
	ts.Check(err)
	ts.Check(unix.Close(fd))
	to := filepath.Join(a.Root, "git", "shadow", key)
	ts.Check(os.MkdirAll(to, 0o700))
	ts.Check(os.Rename(filepath.Join(dir, ".git"), filepath.Join(to, "_.git")))
	var paths []string
	ts.Check(filepath.WalkDir(filepath.Join(to, "_.git"), func(p string, _ fs.DirEntry, err error) error {
		paths = append(paths, p)
		return err
	}))
	for _, p := range slices.Backward(paths[1:]) {
		ts.Check(os.Rename(p, filepath.Join(filepath.Dir(p), "_"+filepath.Base(p))))
	}
}

// useDomain holds a workspace's domain as a coordinator does whose socket's name
// is gone, until it is called again: use WORKSPACE.
func useDomain(ts *testscript.TestScript, neg bool, args []string) {
	path := filepath.Join(scriptDomain(ts, args[0]).Root, "coordinator.pid")
	if neg {
		ts.Check(os.Remove(path)) // another one is free
		return
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	ts.Check(err)
	ts.Check(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB))
	ts.Defer(func() { _ = unix.Close(fd) })
}
