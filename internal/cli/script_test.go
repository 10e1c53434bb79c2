package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
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
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"doctorjson": doctorJSON},
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
