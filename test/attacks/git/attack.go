package git

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/attacks/git/generator"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// Technique is one way to make the host run, change or tell something. Scripts in
// the sandbox run in /workspace as root with every capability, for 20 seconds at
// most; those of the host in the workspace as the user. All of them have
//
//	$P  the payload, a command that makes the canary $C on the host
//	$V  a file of the user's outside the workspace, which must stay as it is
//	$A  the attack program (sandbox only); $GO a file that appears there when the
//	    host has acted
//
// and the functions of prelude.
type Technique struct {
	Name  string
	Setup string // of the host, before the sandbox
	Hold  string // in the sandbox's background from the beginning
	Try   string // in the sandbox: before, during and after the host's commands
	Host  string // of the host, between its commands and the sandbox's last try
	After string // in the sandbox, after Host only
	Check string // of the host, in the end: the attack succeeded unless it exits with 0
	Naive bool   // naive mounts must fall to it
}

// Group is techniques that do not disturb each other: they share a workspace and a
// sandbox.
type Group struct {
	Name       string
	Setup      string // of the host, in the directory above, once the workspace "ws" is there
	Workspace  string // relative to that directory; "" is ws
	Global     string // the user's ~/.gitconfig, further lines
	Techniques []Technique
	Each       bool // one technique after the other, with a short list of commands after each; only Try is played
	Broken     bool // git need not be sound in the end: the host or the agent may break the repository
}

// Target is what is attacked.
type Target struct {
	Options harness.Options
	// Args are podman's from "run" on, up to the image, for a workspace.
	Args  func(h *harness.Harness, workspace string) []string
	Naive bool // no guard: harm is what is expected
}

// Lazaret is the product.
func Lazaret(opts harness.Options) Target {
	return Target{Options: opts, Args: func(_ *harness.Harness, workspace string) []string {
		return []string{"run", "--runtime=lazaret", "-v", workspace + ":/workspace"}
	}}
}

// Naive is podman with the mounts that are thought to guard a repository.
func Naive(runtime string) Target {
	return Target{Naive: true, Options: harness.Options{Bare: true, KeepMess: true}, Args: func(_ *harness.Harness, workspace string) []string {
		args := []string{"--runtime=" + runtime}
		if filepath.Base(runtime) == "runsc" {
			args = append(args, "--runtime-flag=ignore-cgroups")
		}
		args = append(args, "run", "-v", workspace+":/workspace")
		if fi, err := os.Lstat(filepath.Join(workspace, ".git")); err == nil && fi.IsDir() {
			args = append(args, "-v", filepath.Join(workspace, ".git/config")+":/workspace/.git/config:ro", "--tmpfs=/workspace/.git/hooks")
		}
		return append(args, "--tmpfs=/workspace/.vscode")
	}}
}

// Outcome is what a group came to.
type Outcome struct {
	Fell    map[string]string // technique → how
	Changes []string          // of what is guarded, while the host did nothing
	Trouble []string          // commands of the host that hung, an unsound repository
}

// prelude are functions for the scripts. The payload runs through core.fsmonitor,
// which every status asks.
const prelude = `
cfg() { printf '[core]\n\tfsmonitor = %s #\n' "$P"; }
full() { printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n'; cfg; }
hook() { printf '#!/bin/sh\n%s\nexit 0\n' "$P"; }
# A git directory whose config has the payload.
mkgit() { mkdir -p "$1" "$1/objects" "$1/refs" "$1/refs/heads"; echo 'ref: refs/heads/main' >"$1/HEAD"; full >"$1/config"; }
put() { cat >"$1" && chmod 755 "$1"; }
`

// workspaceSetup begins the workspace of every group.
const workspaceSetup = `
	git init -q -b main ws && cd ws
	printf 'one\n' >README && mkdir src && echo two >src/two && echo '*.o' >.gitignore && git add . && git commit -qm one
	git switch -qc other && echo other >src/other && git add . && git commit -qm other
	git switch -q main && echo three >>README && git commit -qam two
	git clone -q --bare . ../up.git && git remote add origin "$PWD/../up.git" && git fetch -q origin && git branch -qu origin/main
	rm -rf .git/hooks && mkdir .git/hooks && printf '#!/bin/sh\nexit 0\n' >.git/hooks/pre-commit && chmod 755 .git/hooks/pre-commit
	git -C ../up.git update-ref refs/heads/fresh main
`

// hostRun runs a command for a while at most. It prints those that hang, and gives
// up at the second one.
const hostRun = `
	round=$1 log=$2 prompt=$3 hung=0 limit=20
	run() {
		echo "\$ $*" >>"$log"
		rc=0; timeout -k 1 "$limit" "$@" </dev/null >>"$log" 2>&1 || rc=$?
		case $rc in 124 | 137)
			echo "hung: $*"; hung=$((hung + 1)); [ $hung -lt 2 ] || exit 0 ;;
		esac
	}
	export GIT_EDITOR=true GIT_MERGE_AUTOEDIT=no
	# Hundreds of commands: one that hangs is told by its directory.
	limit=300
	[ -z "$prompt" ] || run bash -c '
		. /usr/lib/git-core/git-sh-prompt 2>/dev/null
		GIT_PS1_SHOWDIRTYSTATE=1 GIT_PS1_SHOWSTASHSTATE=1 GIT_PS1_SHOWUNTRACKEDFILES=1 GIT_PS1_SHOWUPSTREAM=auto
		find . -type d -print0 | while IFS= read -r -d "" d; do
			cd "$1/$d" 2>/dev/null || continue
			timeout 20 git status --porcelain || [ $? -ne 124 ] || { echo "in $d"; exit 124; }
			case $d in ./.git/*) ;; *) __git_ps1 ;; esac
		done' bash "$PWD"
	limit=20
`

// hostCommands are what the developer does every day, each with a time limit.
const hostCommands = `
	run git status
	run git config lazaret.touched "$round"
	run git checkout -- .
	run git restore --staged --worktree .
	run git diff
	run git diff --cached
	run git log --stat -5
	run git blame README
	echo "edit $round" >>src/two 2>/dev/null
	run git add -A
	run git commit -m "host $round"
	run git checkout other
	run git checkout main
	echo "stashed $round" >>src/two 2>/dev/null
	run git stash
	run git stash pop
	run git commit -am "popped $round"
	run git merge --no-edit other
	run git rebase --continue
	run git am --continue
	run git switch -c "topic$round" HEAD~1
	echo "topic $round" >src/two 2>/dev/null
	run git commit -am "topic $round"
	run git rebase main
	echo "both $round" >src/two 2>/dev/null
	run git add src/two
	run git rebase --continue
	run git rebase --abort
	run git checkout -f main
	run git cherry-pick --continue
	run git revert --no-edit HEAD
	run git bisect log
	run git bisect reset
	run git rerere
	run git tag "t$round"
	run git fetch --all
	run git pull --no-rebase
	run git push origin "HEAD:refs/heads/p$round"
	run git gc
	run git submodule update --init --recursive
	run git clean -n
	run git worktree list
	run git worktree prune
	run git reset --hard
`

// shortCommands are those that check most out.
const shortCommands = `
	run git status
	run git checkout -- .
	run git restore --staged --worktree .
	run git diff
	run git stash
	run git stash pop
	run git rebase --continue
	run git add -A
	run git commit -m "host $round"
	run git checkout other
	run git checkout -f main
	run git fetch --all
`

// resetCommands bring back a sound index and HEAD between techniques that are
// played one by one.
const resetCommands = `
	[ ! -L .git/HEAD ] && [ ! -p .git/HEAD ] || { rm -f .git/HEAD; echo 'ref: refs/heads/main' >.git/HEAD; }
	for d in objects refs; do [ ! -L .git/$d ] || { rm -f .git/$d; mv .git/?2 .git/$d; }; done
	rm -rf .git/index .git/index.lock
	run git reset --hard
	run git clean -fdxq
`

// attack plays a group against a target.
type attack struct {
	*harness.Harness
	t      *testing.T
	target Target
	group  Group
	base   string // holds the workspace and what belongs to the host beside it
	ws     string
	out    string // canaries, victims
	script string // scripts and the agent, mounted into the sandbox
}

// Play plays one group in a place of the target's. It fails the test only when the
// attack itself could not be played. Groups may follow each other in one place.
func Play(t *testing.T, h *harness.Harness, target Target, group Group) Outcome {
	t.Helper()
	dir := filepath.Join(h.Dir, group.Name)
	a := &attack{Harness: h, t: t, target: target, group: group}
	a.base, a.out, a.script = filepath.Join(dir, "w"), filepath.Join(dir, "out"), filepath.Join(dir, "attack")
	a.prepare()
	if !target.Naive {
		h.Track(a.ws)
	}
	var o Outcome
	box := a.start()

	if group.Each {
		a.oneByOne(box, &o)
	} else {
		a.together(box, &o)
	}
	box.end()
	// A file that the sandbox had open for writing can only now be executed.
	o.Trouble = append(o.Trouble, a.host(hostCommands, "3", "prompt")...)

	if !target.Naive && !group.Broken {
		if r := a.Sh(a.ws, "timeout 30 git fsck --strict"); r.Code != 0 {
			o.Trouble = append(o.Trouble, "git fsck: "+r.Stdout+r.Stderr)
		}
	}
	o.Fell = a.fell()
	if t.Failed() || testing.Verbose() {
		a.showLog(box)
	}
	return o
}

// together plays all techniques before, during and after the host's commands.
func (a *attack) together(box *box, o *Outcome) {
	a.t.Helper()
	box.do("hold")
	a.quietly(box, "attempt", o)
	box.do("during & loop=$!")
	o.Trouble = append(o.Trouble, a.host("run git config lazaret.touched 1\n"+shortCommands+"run git gc\n", "1", "")...)
	box.do("touch $GO; kill $loop; wait $loop 2>/dev/null")
	for _, tech := range a.group.Techniques {
		if tech.Host != "" {
			a.hostScript(tech, tech.Host).OK(a.t)
		}
	}
	a.quietly(box, "attempt; after; sleep 0.3", o)
	o.Trouble = append(o.Trouble, a.host(shortCommands, "2", "")...)
}

// oneByOne plays each technique by itself.
func (a *attack) oneByOne(box *box, o *Outcome) {
	a.t.Helper()
	box.do("touch $GO")
	for i, tech := range a.group.Techniques {
		a.quietly(box, fmt.Sprintf("each 20 %02d.try", i), o)
		for _, line := range a.host(shortCommands+resetCommands, strconv.Itoa(i), "") {
			o.Trouble = append(o.Trouble, tech.Name+": "+line)
		}
	}
}

// quietly runs a command in the sandbox while the host does nothing: no guarded
// byte may change.
func (a *attack) quietly(box *box, command string, o *Outcome) {
	a.t.Helper()
	if a.target.Naive {
		box.do(command)
		return
	}
	before := a.guarded()
	box.do(command)
	o.Changes = append(o.Changes, a.guarded().Harm(before)...)
}

func (a *attack) prepare() {
	a.t.Helper()
	a.WriteFile(filepath.Join(a.Home, ".gitconfig"), "[user]\n\tname = Dev\n\temail = dev@example.test\n[protocol \"file\"]\n\tallow = always\n"+
		"[advice]\n\tdetachedHead = false\n[init]\n\tdefaultBranch = main\n"+a.expand(a.group.Global))
	for _, dir := range []string{a.base, a.out} {
		a.WriteFile(filepath.Join(dir, ".keep"), "")
	}
	a.Sh(a.base, workspaceSetup).OK(a.t)
	a.ws = filepath.Join(a.base, "ws")
	if a.group.Setup != "" {
		a.Sh(a.base, a.expand(a.group.Setup)).OK(a.t)
	}
	if a.group.Workspace != "" {
		a.ws = filepath.Join(a.base, a.group.Workspace)
	}
	hold, try, after := "", "", ""
	for i, tech := range a.group.Techniques {
		a.WriteFile(a.victim(tech), "the user's\n")
		if tech.Setup != "" {
			a.hostScript(tech, tech.Setup).OK(a.t)
		}
		for _, s := range []struct {
			kind, text string
			list       *string
		}{{"hold", tech.Hold, &hold}, {"try", tech.Try, &try}, {"after", tech.After, &after}} {
			if s.text == "" {
				continue
			}
			name := fmt.Sprintf("%02d.%s", i, s.kind)
			a.WriteFile(filepath.Join(a.script, name), a.variables(tech)+"cd /workspace\n"+s.text+"\n")
			*s.list += " " + name
		}
	}
	a.WriteFile(filepath.Join(a.script, "all"), fmt.Sprintf(`
		export A=/attack/agent GO=/tmp/go
		each() { limit=$1; shift; for f; do echo "== $f"; timeout "$limit" sh "/attack/$f" </dev/null 2>&1; done >>/tmp/attack.log; }
		hold() { for f in %s; do sh "/attack/$f" </dev/null >>/tmp/attack.log 2>&1 & done; sleep 0.2; }
		attempt() { each 20 %s; }
		during() { while :; do attempt; sleep 0.2; done; }
		after() { each 20 %s; }
	`, hold, try, after))
	agent := filepath.Join(a.script, "agent")
	a.WriteFile(agent, string(agentProgram(a.t)))
	if err := os.Chmod(agent, 0o755); err != nil {
		a.t.Fatal(err)
	}
}

// expand replaces what a group's own scripts know of the place.
func (a *attack) expand(script string) string {
	return strings.NewReplacer("@WS@", filepath.Join(a.base, "ws"), "@OUT@", a.out).Replace(script)
}

func (a *attack) canary(tech Technique) string { return filepath.Join(a.out, "canary-"+tech.Name) }
func (a *attack) victim(tech Technique) string { return filepath.Join(a.out, "victim-"+tech.Name) }

func (a *attack) variables(tech Technique) string {
	return fmt.Sprintf("C='%s' P='touch %[1]s' V='%s'\n%s", a.canary(tech), a.victim(tech), prelude)
}

// hostScript runs a technique's script of the host's; one that fails is told by
// its exit code.
func (a *attack) hostScript(tech Technique, script string) harness.Result {
	a.t.Helper()
	dir := a.ws
	if _, err := os.Stat(dir); err != nil {
		dir = a.base
	}
	return a.Sh(dir, a.variables(tech)+script)
}

// host runs commands of the developer's, and returns what troubled him.
func (a *attack) host(commands, round, prompt string) []string {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	r := harness.Do(a.Command(ctx, "/bin/sh", "-c", "cd \"$0\" || exit 3\n"+hostRun+commands, a.ws, round, filepath.Join(a.out, "host.log"), prompt))
	if r.Code != 0 {
		a.t.Errorf("the host's commands: exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	return slices.Collect(strings.Lines(r.Stdout))
}

// guarded is the snapshot of everything beside and in the workspace.
func (a *attack) guarded() generator.Snapshot {
	a.t.Helper()
	s, err := generator.Guarded(a.base)
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// fell tells which techniques succeeded, and by what that is seen.
func (a *attack) fell() map[string]string {
	a.t.Helper()
	fell := map[string]string{}
	planted := a.planted()
	for _, tech := range a.group.Techniques {
		var how []string
		if _, err := os.Lstat(a.canary(tech)); err == nil {
			how = append(how, "its payload ran")
		}
		if data, err := os.ReadFile(a.victim(tech)); err != nil || string(data) != "the user's\n" {
			how = append(how, "a file outside the workspace was changed")
		}
		for _, file := range planted[a.canary(tech)] {
			how = append(how, "planted in "+file)
		}
		if tech.Check != "" {
			if r := a.hostScript(tech, "set +e\n"+tech.Check); r.Code != 0 {
				how = append(how, "its check failed: "+strings.TrimSpace(r.Stdout+r.Stderr))
			}
		}
		if len(how) > 0 {
			fell[tech.Name] = strings.Join(how, "; ")
		}
	}
	return fell
}

// planted finds guarded files of the host that name a canary.
func (a *attack) planted() map[string][]string {
	found := map[string][]string{}
	for key := range a.guarded() {
		rel, ok := strings.CutPrefix(key, "file ")
		if !ok {
			continue
		}
		data, err := os.ReadFile(filepath.Join(a.base, rel))
		if err != nil {
			continue
		}
		for _, tech := range a.group.Techniques {
			rest := string(data)
			for {
				_, after, ok := strings.Cut(rest, a.canary(tech))
				if !ok {
					break
				}
				// One technique's name may begin another's.
				if after == "" || !strings.ContainsAny(after[:1], "-abcdefghijklmnopqrstuvwxyz0123456789") {
					found[a.canary(tech)] = append(found[a.canary(tech)], rel)
					break
				}
				rest = after
			}
		}
	}
	return found
}

// box is the sandbox with a shell that takes commands.
type box struct {
	a    *attack
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	err  *strings.Builder
	stop context.CancelFunc
	n    int
	log  string
}

// start starts the sandbox.
func (a *attack) start() *box {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	args := append(a.target.Args(a.Harness, a.ws), "-i", "--rm", "--network=none", "--cap-add=all", "-v", a.script+":/attack:ro", harness.Busybox, "sh")
	b := &box{a: a, cmd: a.Command(ctx, "podman", args...), err: &strings.Builder{}, stop: cancel}
	b.cmd.Stderr = b.err
	in, err := b.cmd.StdinPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	b.in, b.out = in, bufio.NewScanner(out)
	b.out.Buffer(nil, 1<<20)
	if err := b.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		cancel()
		_ = b.cmd.Wait() // ended or killed
	})
	b.do(". /attack/all")
	return b
}

// do runs a command in the sandbox's shell and returns what it printed.
func (b *box) do(command string) string {
	b.a.t.Helper()
	b.n++
	mark := "done " + strconv.Itoa(b.n)
	if _, err := fmt.Fprintf(b.in, "%s\necho; echo '%s'\n", command, mark); err != nil {
		b.a.t.Fatalf("the sandbox has ended: %v: %s", err, b.err)
	}
	var said strings.Builder
	for b.out.Scan() {
		if b.out.Text() == mark {
			return strings.TrimSpace(said.String())
		}
		said.WriteString(b.out.Text() + "\n")
	}
	b.a.t.Fatalf("the sandbox ended at %q: %s%s", command, said.String(), b.err)
	return ""
}

// end ends the sandbox and waits for it.
func (b *box) end() {
	b.a.t.Helper()
	b.log = b.do("cat /tmp/attack.log")
	_ = b.in.Close() // its end is what Wait tells
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.cmd.Wait() // the exit code is that of the last attack
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		b.a.t.Errorf("the sandbox does not end")
	}
	b.stop()
}

// showLog puts what the sandbox's attacks and the host's commands said into the
// test's log.
func (a *attack) showLog(b *box) {
	log := b.log
	// The same refusals again and again, while the host acts.
	lines := strings.Split(log, "\n")
	if len(lines) > 400 {
		lines = slices.Concat(lines[:300], []string{"…"}, lines[len(lines)-100:])
	}
	a.t.Logf("in the sandbox:\n%s", strings.Join(lines, "\n"))
	if os.Getenv("LAZARET_ATTACK_LOG") == "" {
		return
	}
	if data, err := os.ReadFile(filepath.Join(a.out, "host.log")); err == nil {
		a.t.Logf("on the host:\n%s", data)
	}
}

// agentBuild is the attack program, built once.
var agentBuild struct {
	once    sync.Once
	program []byte
	err     error
}

func agentProgram(t testing.TB) []byte {
	t.Helper()
	agentBuild.once.Do(func() {
		dir, err := os.MkdirTemp("", "attack.") //nolint:usetesting // outlives this test
		if err != nil {
			agentBuild.err = err
			return
		}
		defer func() { _ = os.RemoveAll(dir) }()
		out := filepath.Join(dir, "agent")
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", "build", "-o", out, "github.com/lazaret-dev/lazaret/test/attacks/git/agent")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			agentBuild.err = fmt.Errorf("build the attack program: %w: %s", err, text)
			return
		}
		agentBuild.program, agentBuild.err = os.ReadFile(out)
	})
	if agentBuild.err != nil {
		t.Fatal(agentBuild.err)
	}
	return agentBuild.program
}

// Report says, sorted, how techniques succeeded.
func (o Outcome) Report() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(o.Fell)) {
		fmt.Fprintf(&b, "\t%s: %s\n", name, o.Fell[name])
	}
	return b.String()
}
