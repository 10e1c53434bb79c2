// Package workflow tests that git does in a guarded workspace exactly what it does
// in a plain one, and that what the guard refuses leaves nothing half done.
package workflow

import (
	_ "embed"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lazaret-dev/lazaret/test/e2e/git/sides"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

//go:embed testdata/everyday
var everyday string

//go:embed testdata/refused
var refused string

// repository is what the developer has before the sandbox starts.
const repository = `
	export GIT_AUTHOR_DATE='1690000000 +0000' GIT_COMMITTER_DATE='1690000000 +0000'
	git init -q -b main
	git config user.name Dev
	git config user.email dev@example.test
	git config gc.auto 0
	git config maintenance.auto false
	git config remote.origin.url /tmp/remote.git
	git config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'
	git config branch.main.remote origin
	git config branch.main.merge refs/heads/main
	printf 'one\ntwo\nthree\n' >words
	seq 1 40 >numbers
	mkdir src
	echo 'int a;' >src/a
	echo 'int b;' >src/b
	echo '*.o' >.gitignore
	echo '*.bin binary' >.gitattributes
	git add . && git commit -q -m 'Begin'
	git tag -a -m 'First' v1.0
	git switch -q -c topic
	printf 'one\ntopic line\nthree\n' >words
	git commit -q -a -m 'Topic'
	git switch -q main
	echo line >>src/a && git commit -q -a -m 'A line'
	printf 'one\nmain line\nthree\n' >words
	git commit -q -a -m 'Words of main'
	seq 0 40 >numbers && git commit -q -a -m 'Count from zero'
`

// environment is what every step has. Dates are the steps' own, so that two runs
// make the same objects.
const environment = `
	export HOME=/tmp/home LC_ALL=C TZ=UTC GIT_PAGER=cat GIT_EDITOR=true GIT_TERMINAL_PROMPT=0 GIT_CONFIG_NOSYSTEM=1
	if [ -n "$1" ]; then
		# After what Lazaret puts first.
		export PATH="${PATH%%:*}:$1/usr/bin:${PATH#*:}" GIT_EXEC_PATH="$1/usr/lib/git-core" GIT_TEMPLATE_DIR="$1/usr/share/git-core/templates"
	fi
	mkdir -p "$HOME"
	printf '[user]\nname = Agent\nemail = agent@example.test\n[init]\ndefaultBranch = main\n[advice]\nsetUpstreamFailure = true\n' >"$HOME/.gitconfig"
	n=0
	step() {
		n=$((n + 1))
		export GIT_AUTHOR_DATE="$((1700000000 + n * 60)) +0000" GIT_COMMITTER_DATE="$((1700000000 + n * 60)) +0000"
		code=0
		# Not bash -c: a program's start is what takes long under gVisor.
		(eval "$1") 2>&1 </dev/null || code=$?
	}
`

const playEveryday = environment + `
	while IFS= read -r line; do
		case $line in '' | '#'*) continue ;; esac
		# Each program's start takes long under gVisor: so no cat.
		printf '\f%s\n' "$line"
		step "$line"
		printf '\v%d' "$code"
	done
`

// playRefused tells of each step what changed in the git directory: as the guard
// should refuse the steps, it puts nothing back there.
const playRefused = environment + `
	[ -d /tmp/remote.git ] || { git init -q --bare /tmp/remote.git && git push -q origin main && git fetch -q; }
	# Objects may come: nothing refers to them. Hooks are the sandbox's own. The
	# index is written by who looks; status tells of it.
	saved() { rm -rf /tmp/saved && cp -a .git /tmp/saved; }
	saved
	while IFS= read -r line; do
		case $line in '' | '#'*) continue ;; esac
		step "$line" >/tmp/said
		printf '\f%s\n' "$line"
		sed 's/^/said: /' /tmp/said
		if ! { diff -r -q -x objects -x hooks -x index /tmp/saved .git && git status --porcelain; } >/tmp/changed || [ -s /tmp/changed ]; then
			sed 's/^/changed: /' /tmp/changed
			if [ "$2" = plain ]; then
				rm -rf .git && cp -a /tmp/saved .git && git reset -q --hard && git clean -q -f -d
			fi
			saved
		fi
		printf '\v%d' "$code"
	done
`

// step is what came of one line of a script.
type step struct {
	line string
	code int
	said string
}

func steps(t *testing.T, out string) []step {
	t.Helper()
	parts := strings.Split(out, "\f")
	if parts[0] != "" {
		t.Fatalf("before the first step: %q", parts[0])
	}
	var all []step
	for _, part := range parts[1:] {
		line, said, _ := strings.Cut(part, "\n")
		said, code, _ := strings.Cut(said, "\v")
		n, err := strconv.Atoi(code)
		if err != nil {
			t.Fatalf("%s: the step's exit code is %q", line, code)
		}
		all = append(all, step{line, n, said})
	}
	return all
}

// setting is one combination of what a developer may have.
type setting struct {
	name   string
	runsc  string
	image  string
	prefix string   // of the git to use; "" is the image's own
	args   []string // of podman run
}

// olderEnv adds Debian's runsc, of 2022, whose ptrace takes ten times as long.
const olderEnv = "LAZARET_EVERYDAY_OLDER"

func settings() []setting {
	all := []setting{
		{name: "trixie, keep-id", runsc: harness.SandboxCurrent, image: harness.Debian, args: []string{"--userns=keep-id"}},
		{name: "bookworm", runsc: harness.SandboxCurrent, image: harness.Tools, prefix: "/opt/git-bookworm"},
	}
	if os.Getenv(olderEnv) != "" {
		for _, s := range harness.Sandboxes() {
			if s.Path != harness.SandboxCurrent {
				all = append(all, setting{name: "bookworm, " + s.Name, runsc: s.Path, image: harness.Tools, prefix: "/opt/git-bookworm"})
			}
		}
	}
	return all
}

func each(t *testing.T, test func(t *testing.T, s setting, h *harness.Harness)) {
	t.Parallel()
	for _, s := range settings() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s, harness.New(t, harness.Options{Sandbox: s.runsc}))
		})
	}
}

// play runs one of the scripts on some sides at once, each in a sandbox of its own,
// and returns their steps.
func play(t *testing.T, s setting, script, lines string, on ...sides.Side) [][]step {
	t.Helper()
	out := make([]harness.Result, len(on))
	var all sync.WaitGroup
	for i, side := range on {
		side.Start(t, side.Name, append(append([]string{"--tmpfs=/tmp"}, s.args...), s.image)...)
		// The script is the container's to read, and nothing that git sees.
		side.Exec(side.Name, "bash", "-c", `printf %s "$1" >/tmp/lines; printf %s "$2" >/tmp/play`, "bash", lines, script).OK(t)
		all.Go(func() {
			out[i] = side.Exec(side.Name, "bash", "-c", `bash /tmp/play "$1" "$2" </tmp/lines`, "bash", s.prefix, side.Name)
		})
	}
	all.Wait()
	want := 0
	for line := range strings.Lines(lines) {
		if line != "\n" && !strings.HasPrefix(line, "#") {
			want++
		}
	}
	played := make([][]step, len(on))
	for i, side := range on {
		if played[i] = steps(t, out[i].OK(t)); len(played[i]) != want {
			t.Fatalf("%s: %d steps were played, want %d", side.Name, len(played[i]), want)
		}
	}
	return played
}

// Every step of the everyday workflow says the same and exits the same, and the
// host has the same afterwards.
func TestEveryday(t *testing.T) {
	each(t, func(t *testing.T, s setting, h *harness.Harness) {
		plain, lazaret := sides.Both(t, h, "ws", repository)
		both := play(t, s, playEveryday, everyday, plain, lazaret)
		want, got := both[0], both[1]
		good := 0
		for i := range want {
			if want[i].code == 0 {
				good++
			}
			if want[i].code != got[i].code {
				t.Errorf("step %d, %s: exit %d, want %d", i+1, want[i].line, got[i].code, want[i].code)
			}
			if d := cmp.Diff(strings.Split(want[i].said, "\n"), strings.Split(got[i].said, "\n")); d != "" {
				t.Errorf("step %d, %s (-plain +lazaret):\n%s", i+1, want[i].line, d)
			}
		}
		// A workflow that fails on both sides would compare nothing.
		if good*10 < len(want)*8 {
			t.Errorf("only %d of %d steps succeed with plain runsc", good, len(want))
		}
		sides.Compare(t, "afterwards", plain.State(t), lazaret.State(t))
		if locks := lazaret.Locks(t); len(locks) > 0 {
			t.Errorf("locks are left: %q", locks)
		}
	})
}

// What changes git's configuration works with plain runsc and is refused by the
// guard: the exit code tells, nothing is half done, and the host has what it had.
func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, s setting, h *harness.Harness) {
		plain, lazaret := sides.Both(t, h, "ws", repository)
		for _, p := range play(t, s, playRefused, refused, plain)[0] {
			if p.code != 0 || !strings.Contains(p.said, "changed: ") {
				t.Errorf("plain, %s: exit %d, so the guard has nothing to refuse:\n%s", p.line, p.code, p.said)
			}
		}
		// The remote's branches come in the script's first lines.
		side, quiet := lazaret, `git init -q --bare /tmp/remote.git && git push -q origin main && git fetch -q`
		side.Name = "before"
		side.Start(t, side.Name, append(append([]string{}, s.args...), s.image)...)
		side.Exec(side.Name, "bash", "-c", "export HOME=/tmp; "+quiet).OK(t)
		before := lazaret.State(t)
		for _, p := range play(t, s, playRefused, refused, lazaret)[0] {
			if p.code == 0 {
				t.Errorf("%s: exit 0, want a failure:\n%s", p.line, p.said)
			}
			if strings.Contains(p.said, "changed: ") {
				t.Errorf("%s: half done:\n%s", p.line, p.said)
			}
			if !strings.Contains(p.said, "said: lazaret: ") {
				t.Errorf("%s: Lazaret does not say why:\n%s", p.line, p.said)
			}
		}
		sides.Compare(t, fmt.Sprintf("after %d refused commands", strings.Count(refused, "\ngit")), before, lazaret.State(t))
		if locks := lazaret.Locks(t); len(locks) > 0 {
			t.Errorf("locks are left: %q", locks)
		}
	})
}
