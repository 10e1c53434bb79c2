// Package review tests what a person is told of a session afterwards, and the
// commands by which he sees and ends what runs.
package review

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// The desk of lazaret run serves its domain alone.
const profiles = `
[general]
control_dir = "~"
[profiles.default]
image = "` + harness.Debian + `"
command = ["sh"]
[profiles.off]
image = "` + harness.Debian + `"
git = "off"
`

// reviewed are the findings of lazaret review as "change path".
func reviewed(t *testing.T, h *harness.Harness, ws, profile string) []string {
	t.Helper()
	r := h.Sh(ws, `lazaret review --json -p "$1"`, profile)
	if r.Code != 0 && r.Code != 3 {
		t.Fatalf("lazaret review: %+v", r)
	}
	var v struct {
		Reports []struct {
			Incomplete string
			Findings   []struct{ Path, Change, Kind, Why string }
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil {
		t.Fatalf("%q: %v", r.Stdout, err)
	}
	out := []string{}
	for _, rep := range v.Reports {
		if rep.Incomplete != "" {
			t.Errorf("incomplete: %s", rep.Incomplete)
		}
		for _, f := range rep.Findings {
			if f.Kind == "" || f.Why == "" {
				t.Errorf("no reason: %+v", f)
			}
			out = append(out, f.Change+" "+f.Path)
		}
	}
	if (len(out) > 0) != (r.Code == 3) {
		t.Errorf("exit %d with findings %q", r.Code, out)
	}
	return out
}

// honest is a session as it should be: code, commits, dependencies.
const honest = `
cd /workspace
git config --global safe.directory '*'; git config --global user.name a; git config --global user.email a@b
echo code >>src/two; mkdir -p src/new; echo code >src/new/x.go; echo node_modules >.gitignore
sed -i 's/"dependencies": {}/"dependencies": {"left-pad": "1.0.0"}/' package.json
mkdir -p node_modules/left-pad node_modules/.bin
echo '{"scripts":{"postinstall":"true"}}' >node_modules/left-pad/package.json
ln -s ../left-pad/cli.js node_modules/.bin/left-pad; echo all: >node_modules/left-pad/Makefile
git add -A && git commit -qm work && git switch -qc topic && git switch -q main && git merge -q topic && git tag v1 && git stash list
`

// attack is group A of the case log, and what no guard can tell from work.
const attack = `
cd /workspace
git config --global safe.directory '*'
mv .git .g2; mkdir .git; echo evil >>.git/config; echo evil >.git/config.worktree; echo /x >.git/commondir
mkdir -p .git/hooks; echo evil >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
echo /x >.git/objects/info/alternates; echo x >.git/info/attributes; echo x >.git/info/exclude; echo x >.git/info/grafts
mkdir -p .git/refs/replace .git/rebase-merge; echo 'exec evil' >.git/rebase-merge/git-rebase-todo
git update-index --skip-worktree README; git update-index --assume-unchanged src/two
git init -q sub; git -C sub config core.fsmonitor evil
mkdir -p docs/objects docs/refs; echo 'ref: refs/heads/x' >docs/HEAD; echo '[core]' >docs/config
mkdir -p .vscode pkg/.vscode .devcontainer .githooks .github/workflows .claude
echo '{}' >.vscode/tasks.json; echo '{}' >pkg/.vscode/tasks.json; echo '{}' >.devcontainer/devcontainer.json; echo '{}' >x.code-workspace
echo evil >.envrc; echo evil >.githooks/pre-commit; echo evil >.github/workflows/ci.yml; echo obey >CLAUDE.md; echo '{}' >.claude/settings.json
printf 'all:\n\tevil\n' >Makefile; echo '* filter=x' >.gitattributes
sed -i 's/"test": "true"/"test": "evil", "postinstall": "evil"/' package.json
ln -s ../outside out; echo evil >ls; chmod +x ls; cp /bin/true suid; chmod 4755 suid
exit 0
`

// left are the paths of attack's on the host, as they have to be reported, there
// or not.
const left = `set +e
for p in .git/config.worktree .git/commondir .git/objects/info/alternates .git/info/attributes .git/info/grafts .git/rebase-merge/git-rebase-todo sub/.git \
	.vscode/tasks.json pkg/.vscode/tasks.json; do test ! -e $p || echo $p; done
test -e docs/HEAD && test -e docs/objects && test -e docs/refs && echo docs/HEAD
grep -l evil .git/config .git/hooks/* 2>/dev/null
git ls-files -v | grep -v '^H' >/dev/null && echo .git/index
find . -perm -4000 ! -path './.git/*' | cut -c3-
true
`

func project(h *harness.Harness) string {
	ws := h.Workspace()
	h.Sh(ws, `printf 'all:\n' >Makefile; printf '{"name":"x","scripts":{"test": "true"},"dependencies": {}}\n' >package.json
		git add -A; git commit -qm project`)
	return ws
}

func TestSessions(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Config: profiles})
	for _, profile := range []string{"default", "off"} {
		ws := project(h)
		t.Run(profile, func(t *testing.T) {
			run := func(script string) harness.Result {
				t.Helper()
				return h.Sh(ws, `lazaret run "$1" -- sh -c "$2"`, profile, script)
			}
			if profile == "default" {
				r := run(honest)
				if r.OK(t); r.Stderr != "" {
					t.Errorf("an honest session ends with %q", r.Stderr)
				}
				if got := reviewed(t, h, ws, profile); len(got) > 0 {
					t.Errorf("an honest session: %q", got)
				}
			}
			r := run(attack)
			r.OK(t)
			if !strings.Contains(r.Stderr, "lazaret: look at what tools on this host run or obey") {
				t.Errorf("no summary: %q", r.Stderr)
			}
			h.DomainEnds(profile, ws)
			want := []string{
				"added .claude/settings.json", "added .devcontainer/devcontainer.json", "added .envrc", "added .gitattributes", "added .githooks/pre-commit",
				"added .github/workflows/ci.yml", "added CLAUDE.md", "changed Makefile", "added ls", "added out", "changed package.json", "added x.code-workspace",
			}
			got := reviewed(t, h, ws, profile)
			there := strings.Fields(h.Sh(ws, left).OK(t))
			t.Logf("review %q; on the host are %q", got, there)
			for _, w := range want {
				if !slices.Contains(got, w) {
					t.Errorf("%q is not named", w)
				}
			}
			for _, p := range there {
				name := strings.TrimSuffix(p, "HEAD")
				if !slices.ContainsFunc(got, func(g string) bool {
					_, at, _ := strings.Cut(g, " ")
					return strings.TrimSuffix(at, "/") == strings.TrimSuffix(name, "/")
				}) {
					t.Errorf("%s is on the host, and not named", p)
				}
			}
			if extra := len(got) - len(want) - len(there); extra > 0 {
				t.Errorf("%d more are named than are there: %q", extra, got)
			}
			if out := h.Sh(ws, "lazaret status").OK(t); !strings.Contains(out, "review  profile "+profile) {
				t.Errorf("status: %q", out)
			}
			h.Sh(ws, `lazaret review --accept -p "$1"`, profile).OK(t)
			if got := reviewed(t, h, ws, profile); len(got) > 0 {
				t.Errorf("after it was accepted: %q", got)
			}
			h.Sh(ws, `git update-index --no-skip-worktree README; git update-index --no-assume-unchanged src/two`)
		})
	}
}

// Status, sessions, logs and stop see and end what runs, with a coordinator and
// without one; what a killed one had begun to watch is still told.
func TestCommands(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{Config: profiles})
	ws := project(h)
	if r := h.Sh(ws, "lazaret sessions; lazaret stop; lazaret stop --all; lazaret logs; lazaret review"); r.Code != 0 || r.Stdout != "" ||
		strings.Count(r.Stderr, "\n") != 5 {
		t.Errorf("with nothing: %+v", r)
	}
	h.Sh(ws, "lazaret run -d -- sleep 300").OK(t)
	h.Eventually("its session is listed", 30*time.Second, func() bool {
		return strings.Contains(h.Sh(ws, "lazaret sessions").Stdout, "lives")
	})
	if out := h.Sh(ws, "lazaret logs").OK(t); !strings.Contains(out, "coordinator started") || strings.Contains(out, "{\"time\"") {
		t.Errorf("logs: %q", out)
	}
	if out := h.Sh(ws, "lazaret status").OK(t); !strings.Contains(out, "disk") || !strings.Contains(out, ws) {
		t.Errorf("status: %q", out)
	}
	if out := h.Sh(ws, "cd src && lazaret stop").OK(t); !strings.Contains(out, "stopped domain") {
		t.Errorf("stop: %q", out)
	}
	h.DomainEnds("default", ws)
	if out := h.Podman("ps", "-aq").OK(t); out != "" {
		t.Errorf("left: %q", out)
	}

	h.Sh(ws, "lazaret run -d -- sh -c 'echo evil >/workspace/.envrc; sleep 300'").OK(t)
	h.Eventually("the agent has written", 30*time.Second, func() bool { return h.Sh(ws, "test -s .envrc").Code == 0 })
	var v struct{ Domains []struct{ PID int } }
	if err := json.Unmarshal([]byte(h.Sh(ws, "lazaret status --json").OK(t)), &v); err != nil || len(v.Domains) != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	if err := syscall.Kill(v.Domains[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := reviewed(t, h, ws, "default"); !slices.Equal(got, []string{"added .envrc"}) {
		t.Errorf("after a SIGKILL: %q", got)
	}
	if out := h.Sh(ws, "lazaret stop --all").OK(t); !strings.Contains(out, "stopped domain") {
		t.Errorf("stop --all: %q", out)
	}
	h.Sh(ws, "lazaret run -- true").OK(t)
	h.DomainEnds("default", ws)
	if got := reviewed(t, h, ws, "default"); !slices.Equal(got, []string{"added .envrc"}) {
		t.Errorf("after the next session: %q", got)
	}
	h.Sh(ws, "rm .envrc").OK(t)
	if got := reviewed(t, h, ws, "default"); len(got) > 0 {
		t.Errorf("when it is as it was: %q", got)
	}
}
