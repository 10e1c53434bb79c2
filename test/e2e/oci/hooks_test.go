package oci

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// The bundle's own hooks run as they would without Lazaret: in their moment, with
// exactly their environment, and with the container's state.
func TestTheUsersOwnHooks(t *testing.T) {
	each(t, harness.Options{}, func(t *testing.T, w *world) {
		ws, id := w.Workspace(), w.id("c")
		dir := filepath.Join(w.Dir, "hooks")
		w.WriteFile(dir+"/x", "")
		mine := func(moment string) []specs.Hook {
			h := hook(`{ env | sort; echo; cat; } >"` + dir + "/" + moment + `"`)
			h.Env = []string{"MOMENT=" + moment, "PATH=/usr/bin:/bin"}
			return []specs.Hook{h}
		}
		b := w.bundle("sleep 100", func(s *specs.Spec) {
			workspace(ws)(s)
			s.Hooks = &specs.Hooks{
				Prestart: mine("prestart"), CreateRuntime: mine("createRuntime"), //nolint:staticcheck // engines still use it
				CreateContainer: mine("createContainer"), StartContainer: mine("startContainer"),
				Poststart: mine("poststart"), Poststop: mine("poststop"),
			}
		})
		ran := func() []string {
			return strings.Fields(w.Run("ls", dir).OK(t))
		}
		var claimed struct{ Hooks []string }
		if err := json.Unmarshal([]byte(w.rt("features").OK(t)), &claimed); err != nil {
			t.Fatal(err)
		}

		w.create(b, id, "--network=none").OK(t)
		created := ran()
		for _, moment := range []string{"prestart", "createRuntime"} {
			if !slices.Contains(created, moment) {
				t.Errorf("after create these have run: %q", created)
			}
		}
		if slices.Contains(created, "poststart") {
			t.Errorf("after create these have run: %q", created)
		}
		pid := w.state(id).Pid
		w.rt("start", id).OK(t)
		if !slices.Contains(ran(), "poststart") {
			t.Errorf("after start these have run: %q", ran())
		}
		w.rt("delete", "--force", id).OK(t)
		all := ran()
		if !slices.Contains(all, "poststop") {
			t.Errorf("after delete these have run: %q", all)
		}
		for _, moment := range claimed.Hooks {
			if !slices.Contains(all, moment) {
				t.Errorf("features claims the hook %s, which has not run", moment)
			}
		}
		for _, moment := range all {
			if moment == "x" {
				continue
			}
			env, state, ok := strings.Cut(w.Run("cat", dir+"/"+moment).OK(t), "\n\n")
			// PWD, SHLVL and _ are the shell's own.
			vars := slices.DeleteFunc(strings.Split(env, "\n"), func(v string) bool {
				return strings.HasPrefix(v, "PWD=") || strings.HasPrefix(v, "SHLVL=") || strings.HasPrefix(v, "_=") || strings.HasPrefix(v, "OLDPWD=")
			})
			if !ok || !slices.Equal(vars, []string{"MOMENT=" + moment, "PATH=/usr/bin:/bin"}) {
				t.Errorf("%s has the environment %q", moment, env)
			}
			var st specs.State
			if err := json.Unmarshal([]byte(state), &st); err != nil || st.ID != id || st.Bundle != b {
				t.Errorf("%s: state %q, %v", moment, state, err)
			}
			if moment == "prestart" && st.Pid != pid {
				t.Errorf("%s: pid %d, want %d", moment, st.Pid, pid)
			}
		}
		w.nothingRuns()
	})
}
