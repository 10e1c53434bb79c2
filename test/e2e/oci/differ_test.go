package oci

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

const settle = time.Minute

// same is what must be equal of two calls: all but what tells the one container
// from the other.
func (w *world) same(r harness.Result, bundle, root, id string) string {
	w.t.Helper()
	text := strings.NewReplacer(bundle, "BUNDLE", root, "ROOT", id, "ID").Replace(r.Stdout)
	for _, p := range []struct{ from, to string }{
		{`"pid": \d+`, `"pid": N`},
		{`"pid":\d+`, `"pid":N`},
		{`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`, "TIME"},
		{`"annotations": \{[^}]*\}`, "ANNOTATIONS"},
		{`(?m)(^0 +\d.*\n)+`, "PROCESSES\n"}, // of ps
		{`(?m)^\[1(,\d+)*\]$`, "[1 …]"},      // with or without a sleep of the script
		{`"(usage|usage_in_usermode|usage_in_kernelmode|total|user|kernel|Usage|max|failcnt|rss|percpu)":[^,}]*`, `"$1":N`},
		{`"percpu":\[[^]]*\]`, `"percpu":N`},
		{`"pids":\{"current":\d+\}`, `"pids":N`},
		{`[ \t]+`, " "},
	} {
		text = regexp.MustCompile(p.from).ReplaceAllString(text, p.to)
	}
	return text
}

// Bare runsc and Lazaret, called alike on equal bundles, answer alike.
func TestSameAsBareRunsc(t *testing.T) {
	each(t, harness.Options{}, func(t *testing.T, w *world) {
		const script = `trap 'echo got usr1' USR1; trap 'echo got hup' HUP; trap 'echo got term; exit 3' TERM; echo ready; while :; do sleep 0.05; done`
		ours, theirs := w.bundle(script, nil), w.bundle(script, nil)
		outOf := map[string]string{ours: filepath.Join(w.Dir, "out-ours"), theirs: filepath.Join(w.Dir, "out-theirs")}
		process := filepath.Join(w.Dir, "process.json")
		w.WriteFile(process, `{"args":["sh","-c","echo $B; exit 12"],"cwd":"/tmp","env":["PATH=/bin","B=from the file"],"user":{"uid":0,"gid":0}}`)
		w.WriteFile(process+".bad", `{"args":`)
		steps := []struct {
			name string
			args []string
			// what Lazaret answers itself, and so in its own words
			own bool
		}{
			{name: "state of what is not there", args: []string{"state", "ID"}},
			{name: "kill of what is not there", args: []string{"kill", "ID", "KILL"}},
			{name: "delete of what is not there", args: []string{"delete", "ID"}},
			{name: "forced delete of what is not there", args: []string{"delete", "--force", "ID"}},
			{name: "start of what is not there", args: []string{"start", "ID"}},
			{name: "exec into what is not there", args: []string{"exec", "ID", "true"}},
			{name: "ps of what is not there", args: []string{"ps", "--format", "json", "ID"}},
			{name: "pause of what is not there", args: []string{"pause", "ID"}},
			{name: "an empty list", args: []string{"list"}},
			{name: "create", args: []string{"create", "--bundle", "BUNDLE", "--pid-file", "BUNDLE/pid", "ID"}},
			{name: "state when created", args: []string{"state", "ID"}},
			{name: "list", args: []string{"list", "--format=json"}},
			{name: "quiet list", args: []string{"list", "--quiet"}},
			{name: "exec before start", args: []string{"exec", "ID", "true"}},
			{name: "start", args: []string{"start", "ID"}},
			{name: "start twice", args: []string{"start", "ID"}},
			{name: "state when running", args: []string{"state", "ID"}},
			{name: "exec", args: []string{"exec", "ID", "echo", "a b", "", "c"}},
			{name: "exec with settings", args: []string{"exec", "--env", "B=c d", "--cwd", "/tmp", "--user", "7:8", "ID", "sh", "-c", "echo $A $B; id -u; id -g; echo $PWD"}},
			{name: "exec of a shell that fails", args: []string{"exec", "ID", "sh", "-c", "echo out; exit 37"}},
			{name: "exec of a killed command", args: []string{"exec", "ID", "sh", "-c", "kill -9 $$"}},
			{name: "exec of no such command", args: []string{"exec", "ID", "/no/such"}},
			{name: "exec of a directory", args: []string{"exec", "ID", "/bin"}},
			{name: "exec of nothing", args: []string{"exec", "ID"}},
			{name: "exec by a process file", args: []string{"exec", "--process", process, "ID"}},
			{name: "exec by no process file", args: []string{"exec", "--process", process + ".no", "ID"}, own: true},
			{name: "exec by a broken process file", args: []string{"exec", "--process", process + ".bad", "ID"}, own: true},
			{name: "detached exec", args: []string{"exec", "--detach", "--pid-file", "BUNDLE/exec.pid", "ID", "true"}},
			{name: "ps as a table's head", args: []string{"ps", "ID"}},
			{name: "ps as JSON", args: []string{"ps", "--format", "json", "ID"}},
			{name: "stats", args: []string{"events", "--stats", "ID"}},
			{name: "pause", args: []string{"pause", "ID"}},
			{name: "state when paused", args: []string{"state", "ID"}},
			{name: "resume", args: []string{"resume", "ID"}},
			{name: "resume twice", args: []string{"resume", "ID"}},
			{name: "delete while it runs", args: []string{"delete", "ID"}},
			{name: "a signal by name", args: []string{"kill", "ID", "SIGUSR1"}},
			{name: "a signal by number", args: []string{"kill", "ID", "1"}},
			{name: "a signal to all", args: []string{"kill", "--all", "ID", "CONT"}},
			{name: "no such signal", args: []string{"kill", "ID", "NOSUCH"}},
			{name: "a wrong number", args: []string{"kill", "ID", "4711"}},
			{name: "an unknown flag", args: []string{"state", "--nonsense", "ID"}},
			{name: "two ids", args: []string{"state", "ID", "d"}},
			{name: "no id", args: []string{"state"}},
			{name: "kill, by default with TERM", args: []string{"kill", "ID"}},
			{name: "WAIT"},
			{name: "state when stopped", args: []string{"state", "ID"}},
			{name: "kill of what has stopped", args: []string{"kill", "ID", "KILL"}},
			{name: "kill of it again", args: []string{"kill", "ID", "KILL"}},
			{name: "exec into what has stopped", args: []string{"exec", "ID", "true"}},
			{name: "delete", args: []string{"delete", "ID"}},
			{name: "delete twice", args: []string{"delete", "ID"}},
			{name: "delete by force, once more", args: []string{"delete", "--force", "ID"}},
			{name: "run", args: []string{"run", "--bundle", "BUNDLE-run", "ID-run"}},
		}
		run := w.bundle("echo out; echo err >&2; exit 7", nil)
		runTheirs := w.bundle("echo out; echo err >&2; exit 7", nil)
		call := func(name string, args []string, bundle, run, id string, f func(...string) harness.Result) harness.Result {
			args = append([]string{"--network=none"}, slices.Clone(args)...)
			for i := range args {
				args[i] = strings.NewReplacer("BUNDLE-run", run, "BUNDLE", bundle, "ID", id).Replace(args[i])
			}
			if name == "create" {
				// The container keeps what create was given.
				return f(append([]string{"/bin/sh", "-c", `out=$1; shift; exec "$@" >"$out" 2>&1 </dev/null`, "sh", outOf[bundle]}, args...)...)
			}
			return f(args...)
		}
		direct := func(prefix ...string) func(...string) harness.Result {
			return func(args ...string) harness.Result {
				if len(args) > 5 && args[0] == "/bin/sh" {
					return w.engine(append(append(append([]string{}, args[:5]...), prefix...), args[5:]...)...)
				}
				return w.engine(append(append([]string{}, prefix...), args...)...)
			}
		}
		// Of another name: Debian's runsc has its sockets by the id alone.
		bareArgv := []string{w.Sandbox, "--root", w.root + "b"}
		if !w.rootful {
			bareArgv = append(bareArgv, "--ignore-cgroups")
		}
		lazaret, bare := direct(w.program("lazaret-runtime"), "--root", w.root), direct(bareArgv...)
		for _, s := range steps {
			if s.name == "WAIT" {
				w.wait(w.id("c"), "stopped")
				w.Eventually("bare runsc's stops", settle, func() bool { return strings.Contains(w.bare("state", w.id("d")).Stdout, `"stopped"`) })
				continue
			}
			got := call(s.name, s.args, ours, run, w.id("c"), lazaret)
			want := call(s.name, s.args, theirs, runTheirs, w.id("d"), bare)
			if s.own {
				if got.Code != 1 || want.Code == 0 || strings.Count(got.Stderr, "\n") != 1 {
					t.Errorf("%s: exit %d, bare %d: %s", s.name, got.Code, want.Code, got.Stderr)
				}
				continue
			}
			if s.name == "create" && (got.Code != 0 || want.Code != 0) {
				t.Fatalf("create: exit %d: %s\nbare %d: %s", got.Code, w.Run("cat", outOf[ours]).Stdout, want.Code, w.Run("cat", outOf[theirs]).Stdout)
			}
			if got.Code != want.Code {
				t.Errorf("%s: exit %d (%s), bare %d (%s)", s.name, got.Code, got.Stderr, want.Code, want.Stderr)
			}
			if g, b := w.same(got, ours, w.root, w.id("c")), w.same(want, theirs, w.root+"b", w.id("d")); g != b {
				t.Errorf("%s: stdout\n%s\nbare\n%s", s.name, g, b)
			}
			// The next signal must not come before the last was seen: two that wait come
			// in the order of their numbers.
			if said := map[string]string{"start": "ready\n", "a signal by name": "got usr1", "a signal by number": "got hup"}[s.name]; said != "" {
				for _, out := range outOf {
					w.Eventually("the container says "+said, settle, func() bool { return strings.Contains(w.Run("cat", out).Stdout, said) })
				}
			}
		}
		if got, want := w.Run("cat", outOf[ours]).OK(t), w.Run("cat", outOf[theirs]).OK(t); got != want || !strings.Contains(got, "got usr1\ngot hup\ngot term") {
			t.Errorf("the container saw %q, bare %q", got, want)
		}
	})
}
