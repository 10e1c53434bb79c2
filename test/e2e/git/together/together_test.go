// Package together tests that the developer and the sandbox use one repository at
// the same time: nothing is broken, and no commit that either was told of is lost.
package together

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/git/sides"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// durationEnv is how long both sides work, as Go writes durations.
const durationEnv = "LAZARET_TOGETHER"

const defaultDuration = time.Minute

// repository has a remote that a third party pushes to; it is in the workspace, as
// host and sandbox see nothing else alike.
//
// No cruft packs, and repack with -A: git loses objects by itself where one repack
// drops a pack's unreachable ones that another process is about to refer to.
const repository = `
	git init -q -b main
	git config user.name Dev
	git config user.email dev@example.test
	git config gc.auto 0
	git config maintenance.auto false
	git config gc.cruftPacks false
	git config core.filesRefLockTimeout 5000
	git config remote.origin.url ./remote.git
	git config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'
	seq 1 100 >numbers
	echo /remote.git >.gitignore
	git add . && git commit -q -m 'Begin'
	git clone -q --bare . remote.git
	git -C remote.git config gc.auto 0
`

// worker is what each side does until the time is over. It prints each commit that
// git said was made, and the branch that must reach it. Commands that lose a race
// for a lock fail, and are not counted; git's own wording is kept for the log.
const worker = `
	me=$1 end=$(($(date +%s) + $2)) n=0
	export HOME=/tmp GIT_AUTHOR_NAME=$me GIT_AUTHOR_EMAIL=$me@example.test GIT_COMMITTER_NAME=$me GIT_COMMITTER_EMAIL=$me@example.test
	export LC_ALL=C GIT_TERMINAL_PROMPT=0
	while [ "$(date +%s)" -lt "$end" ]; do
		n=$((n + 1))
		# On the branch that both have checked out. git prints the name that it made.
		echo "$n" >"$me"
		if git add "$me" 2>>/tmp/"$me".log && said=$(git commit -m "$me $n" -- "$me" 2>>/tmp/"$me".log); then
			made=${said#*\[main }
			echo "main ${made%%]*}"
		fi
		# On a branch of its own, without the index.
		old=$(git rev-parse -q --verify "refs/heads/$me" || echo 0000000000000000000000000000000000000000)
		parent=
		[ "${old#0000000}" = "$old" ] && parent="-p $old"
		new=$(git commit-tree $parent -m "$me $n" 'main^{tree}') && git update-ref "refs/heads/$me" "$new" "$old" 2>>/tmp/"$me".log && echo "$me $new"
		case $((n % 8)) in
			1) git fetch -q origin 2>>/tmp/"$me".log && echo "did fetch" ;;
			3) git repack -q -A -d 2>>/tmp/"$me".log && echo "did repack" ;;
			5) git gc -q 2>>/tmp/"$me".log && echo "did gc" ;;
			6) git pack-refs --all 2>>/tmp/"$me".log && echo "did pack-refs" ;;
			7) git status >/dev/null 2>>/tmp/"$me".log && git log --stat -20 >/dev/null 2>>/tmp/"$me".log && echo "did read" ;;
		esac
	done
	exit 0
`

// pusher is the third party, on the host.
const pusher = `
	end=$(($(date +%s) + $2))
	export HOME=/tmp GIT_AUTHOR_NAME=Third GIT_AUTHOR_EMAIL=t@example.test GIT_COMMITTER_NAME=Third GIT_COMMITTER_EMAIL=t@example.test
	while [ "$(date +%s)" -lt "$end" ]; do
		cd "$3/remote.git"
		new=$(git commit-tree -p main -m more 'main^{tree}') && git update-ref refs/heads/main "$new"
		sleep 0.5
	done
`

func duration(t *testing.T) time.Duration {
	t.Helper()
	v := os.Getenv(durationEnv)
	if v == "" {
		return defaultDuration
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 5*time.Second {
		t.Fatalf("%s=%q is not a duration of 5s or more", durationEnv, v)
	}
	return d
}

func TestHostAndSandboxTogether(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	_, lazaret := sides.Both(t, h, "ws", repository)
	lazaret.Start(t, "sandbox", harness.Debian)
	length := duration(t)
	ctx, cancel := context.WithTimeout(t.Context(), length+5*time.Minute)
	defer cancel()
	seconds := fmt.Sprintf("%.0f", length.Seconds())
	onHost := func(script string, args ...string) func() harness.Result {
		return func() harness.Result {
			cmd := h.Command(ctx, "bash", append([]string{"-c", script, "bash"}, args...)...)
			cmd.Dir = lazaret.Workspace
			return harness.Do(cmd)
		}
	}
	var mu sync.Mutex // guards claims
	claims := map[string][]string{}
	var all sync.WaitGroup
	for name, run := range map[string]func() harness.Result{
		"host":  onHost(worker, "host", seconds),
		"third": onHost(pusher, "third", seconds, lazaret.Workspace),
		"sandbox": func() harness.Result {
			return lazaret.Exec("sandbox", "bash", "-c", worker, "bash", "sandbox", seconds)
		},
	} {
		all.Go(func() {
			r := run()
			if r.Code != 0 {
				t.Errorf("%s: exit %d: %s", name, r.Code, r.Stderr)
			}
			mu.Lock()
			defer mu.Unlock()
			claims[name] = strings.Split(strings.TrimSpace(r.Stdout), "\n")
		})
	}
	all.Wait()

	git := func(args ...string) string {
		return h.Run("git", append([]string{"-C", lazaret.Workspace}, args...)...).OK(t)
	}
	if out := h.Run("git", "-C", lazaret.Workspace, "fsck", "--strict", "--full", "--no-dangling"); out.Code != 0 {
		t.Errorf("git fsck: exit %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	reach := map[string]map[string]bool{}
	for _, branch := range []string{"main", "host", "sandbox"} {
		reach[branch] = map[string]bool{}
		for hash := range strings.FieldsSeq(git("rev-list", "refs/heads/"+branch)) {
			reach[branch][hash] = true
		}
	}
	for _, side := range []string{"host", "sandbox"} {
		done := map[string]int{}
		for _, claim := range claims[side] {
			branch, what, ok := strings.Cut(claim, " ")
			if !ok {
				t.Errorf("%s said %q", side, claim)
				continue
			}
			if branch == "did" {
				done[what]++
				continue
			}
			done["commit on "+branch]++
			hash := h.Run("git", "-C", lazaret.Workspace, "rev-parse", "-q", "--verify", what+"^{commit}").Stdout
			if hash = strings.TrimSpace(hash); !reach[branch][hash] {
				t.Errorf("%s was told of commit %s on %s; it is lost", side, what, branch)
			}
		}
		t.Logf("%s: %v", side, done)
		for _, need := range []string{"commit on main", "commit on " + side} {
			if done[need] == 0 {
				t.Errorf("%s never succeeded with: %s", side, need)
			}
		}
	}
	// Against each other a fetch, repack or gc may lose each race for a lock:
	// with the other side silent it has to succeed.
	alone := func(side string, run func(script string) harness.Result) {
		for _, command := range []string{"fetch -q origin", "repack -q -A -d", "gc -q", "pack-refs --all"} {
			if r := run("git " + command); r.Code != 0 {
				t.Errorf("%s alone: git %s: exit %d: %s", side, command, r.Code, r.Stderr)
			}
		}
	}
	alone("host", func(script string) harness.Result { return onHost(script)() })
	alone("sandbox", func(script string) harness.Result {
		return lazaret.Exec("sandbox", "bash", "-c", script)
	})
	if locks := lazaret.Locks(t); len(locks) > 0 {
		t.Errorf("locks are left: %q", locks)
	}
	h.Podman("rm", "-f", "-t", "0", "sandbox").OK(t)
}
