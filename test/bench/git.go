package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
	"github.com/lazaret-dev/lazaret/test/gitrepo"
)

const (
	defaultGitTurns = 5
	gitTime         = 15 * time.Minute // for one command, on a busy machine

	aimStatus = 1.05
	aimCommit = 1.15
	aimRead   = 1.10
	aimTools  = 1.10
)

// work is something that people do in a workspace: bash, in its root. Only run is
// timed, by the sandbox's own clock, so that podman's start of it does not count.
type work struct {
	name         string
	prepare, run string
	aim          float64
}

// works are in an order in which none needs what a later one leaves. T is the turn.
func works(goRoot string) []work {
	all := []work{
		{"status", ``, `git status`, aimStatus},
		{"add, commit", `for i in {1..20}; do echo $T >>top01/sub001/added$i; done`, `git add -A && git commit -q -m $T`, aimCommit},
		{"log", ``, `git log`, aimRead},
		{"log --stat", ``, `git log --stat`, aimRead},
		{"cat-file --batch-all-objects --batch-check", ``, `git cat-file --batch-all-objects --batch-check`, aimRead},
		{"cat-file --batch-all-objects --batch", ``, `git cat-file --batch-all-objects --batch`, aimRead},
		{"clone to /tmp", `rm -rf /tmp/clone`, `git clone -q /workspace /tmp/clone`, aimRead},
		{"checkout there and back", ``, `git checkout -q other && git checkout -q main`, aimCommit},
		{"rg", ``, `rg -c 'x[aeiou]z' . || [ $? = 1 ]`, aimTools},
		{"tar", ``, `tar -cf - --exclude=./.git . | cat`, aimTools},
		{
			"npm ci", `rm -rf npm && mkdir npm && cp /opt/node/package*.json npm/; [ -e /tmp/cache ] || cp -a /opt/node/cache /tmp/cache`,
			`cd npm && npm ci --offline --cache /tmp/cache --ignore-scripts --no-fund --no-audit`, aimTools,
		},
	}
	if goRoot != "" {
		all = append(all, work{
			"go build", `cd module; export HOME=/tmp; [ -e /tmp/.cache ] || /opt/go/bin/go build -mod=vendor -o bin/ ./...; sed -i "s/Turn = .*/Turn = $T/" p*/p.go`,
			`/opt/go/bin/go build -mod=vendor -o bin/ ./...`, aimTools,
		})
	}
	return all
}

// goRoot is a Go installation that the test user can read; "" for none.
func goRoot() string {
	for _, dir := range []string{"/usr/local/go", "/usr/lib/go"} {
		if _, err := os.Stat(filepath.Join(dir, "bin/go")); err == nil {
			return dir
		}
	}
	return ""
}

// module is a small Go program of 40 packages with a vendored dependency of ten.
func module() map[string]string {
	files := map[string]string{
		".gitignore":                "/npm/\n/module/bin/\n",
		"module/go.mod":             "module example.test/m\n\ngo 1.19\n\nrequire example.test/dep v1.0.0\n",
		"module/vendor/modules.txt": "# example.test/dep v1.0.0\n## explicit; go 1.19\n",
	}
	program, values := "package main\n\nimport (\n\t\"fmt\"\n", ""
	for i := range 40 {
		files[fmt.Sprintf("module/p%02d/p.go", i)] = fmt.Sprintf(
			"package p%02[1]d\n\nimport (\n\t\"strings\"\n\n\t\"example.test/dep/d%[2]d\"\n)\n\nconst Turn = 0\n\nfunc Value() string { return strings.Repeat(d%[2]d.Name, Turn%%3) }\n", i, i%10)
		program += fmt.Sprintf("\t\"example.test/m/p%02d\"\n", i)
		values += fmt.Sprintf("\tfmt.Println(p%02d.Value())\n", i)
	}
	for i := range 10 {
		files[fmt.Sprintf("module/vendor/example.test/dep/d%d/d.go", i)] = fmt.Sprintf("package d%d\n\nconst Name = \"%d\"\n", i, i)
		files["module/vendor/modules.txt"] += fmt.Sprintf("example.test/dep/d%d\n", i)
	}
	files["module/main.go"] = program + ")\n\nfunc main() {\n" + values + "}\n"
	return files
}

// gitBench measures work in a workspace of 20,000 files.
type gitBench struct {
	*bench
	goRoot string
	sides  []gitSide
}

type gitSide struct {
	name      string
	args      []string
	workspace string
}

func newGitBench(b *bench) *gitBench {
	g := &gitBench{bench: b, goRoot: goRoot()}
	first := filepath.Join(b.Dir, "files")
	g.repository(first)
	second := filepath.Join(b.Dir, "guarded")
	g.do("cp", "-a", first, second)
	b.Track(second)
	// git's index tells files by inode and change time: refresh the copy's.
	for _, dir := range []string{first, second} {
		g.do("git", "-C", dir, "status")
	}
	g.sides = []gitSide{{"plain", plainNone, first}, {"lazaret", lazaret, second}}
	return g
}

// do runs a command of the user's that may take longer than the harness allows.
func (g *gitBench) do(name string, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), gitTime)
	defer cancel()
	return harness.Do(g.Command(ctx, name, args...)).OK(g.t)
}

func (g *gitBench) repository(dir string) {
	g.do("git", "init", "-q", "-b", "main", dir)
	g.Sh(dir, `git config user.name Dev; git config user.email dev@example.test; git config gc.auto 0; git config maintenance.auto false`).OK(g.t)
	size := gitrepo.Large()
	size.Extra = module()
	ctx, cancel := context.WithTimeout(context.Background(), gitTime)
	defer cancel()
	cmd := g.Command(ctx, "git", "-C", dir, "fast-import", "--quiet", "--done")
	r, w := io.Pipe()
	cmd.Stdin = r
	go func() { w.CloseWithError(size.Stream(w)) }()
	if out, err := cmd.CombinedOutput(); err != nil {
		g.t.Fatalf("git fast-import: %v: %s", err, out)
	}
	g.do("git", "-C", dir, "repack", "-q", "-a", "-d")
	g.do("git", "-C", dir, "checkout", "-q", "main")
}

func (g *gitBench) run(s gitSide, args ...string) []string {
	run := slices.Concat(s.args, []string{"run", "--network=none", "-v", s.workspace + ":/workspace", "-w", "/workspace"})
	if g.goRoot != "" {
		run = append(run, "-v", g.goRoot+":/opt/go:ro")
	}
	return append(run, args...)
}

// timed is the bash program that prints how long w took, in microseconds.
func timed(w work, turn int) string {
	return fmt.Sprintf(`set -e; export GIT_PAGER=cat LC_ALL=C HOME=/tmp GOTOOLCHAIN=local GOFLAGS=-buildvcs=false T=%d
%s
begin=${EPOCHREALTIME/./}
{ %s ; } >/dev/null
end=${EPOCHREALTIME/./}
echo $((end - begin))`, turn+1, w.prepare, w.run)
}

func (g *gitBench) took(printed string) time.Duration {
	us, err := strconv.Atoi(strings.TrimSpace(printed))
	if err != nil {
		g.t.Fatalf("time taken: %v", err)
	}
	return time.Duration(us) * time.Microsecond
}

// pair is one work on both sides.
type pair struct {
	name    string
	plain   series
	guarded series
	aim     float64
}

// cold is the first status in a sandbox whose domain has just begun.
func (g *gitBench) cold() pair {
	w := works("")[0]
	things := make([]func() time.Duration, len(g.sides))
	for i, s := range g.sides {
		things[i] = func() time.Duration {
			took := g.took(g.do("podman", g.run(s, "--rm", harness.Tools, "bash", "-c", timed(w, 0))...))
			g.Eventually("the coordinator has ended", 20*time.Second, func() bool { return g.Domain("default", s.workspace).PID == 0 })
			return took
		}
	}
	all := g.alternate([]string{"plain", "lazaret"}, things)
	return pair{"status, first in a domain", all[0], all[1], aimStatus}
}

// warm takes the works in turns in two sandboxes that stay up; only those whose
// names match.
func (g *gitBench) warm(only *regexp.Regexp, each func(pair)) {
	for _, s := range g.sides {
		g.do("podman", g.run(s, "-d", "--name=git-"+s.name, harness.Tools, "sleep", "100000")...)
	}
	for _, w := range works(g.goRoot) {
		if !only.MatchString(w.name) {
			continue
		}
		things := make([]func() time.Duration, len(g.sides))
		for i, s := range g.sides {
			turn := -1
			things[i] = func() time.Duration {
				turn++
				return g.took(g.do("podman", slices.Concat(s.args, []string{"exec", "git-" + s.name, "bash", "-c", timed(w, turn)})...))
			}
		}
		all := g.alternate([]string{"plain", "lazaret"}, things)
		each(pair{w.name, all[0], all[1], w.aim})
	}
}

// guardMemory is what the guard of the workspace keeps resident, in bytes, and how
// much of that is its own; false where no guard runs.
func (g *gitBench) guardMemory() (resident, private int, ok bool) {
	coordinator := g.Domain("default", g.sides[1].workspace).PID
	out, err := exec.CommandContext(g.t.Context(), "pgrep", "-P", strconv.Itoa(coordinator), "-f", "coordinator guard").Output()
	pid, _, _ := strings.Cut(string(out), "\n")
	if err != nil || pid == "" {
		return 0, 0, false
	}
	resident, private = g.residentMemory(pid)
	return resident, private, true
}
