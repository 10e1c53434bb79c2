// Package clients tests that programs which read and write git repositories by
// their own code do the same in a guarded workspace as in a plain one.
package clients

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lazaret-dev/lazaret/test/e2e/git/sides"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

//go:embed testdata
var programs embed.FS

// repository has loose and packed objects and references, and a conflict-free
// second branch.
const repository = `
	export GIT_AUTHOR_DATE='1690000000 +0000' GIT_COMMITTER_DATE='1690000000 +0000'
	git init -q -b main
	git config user.name Dev
	git config user.email dev@example.test
	git config gc.auto 0
	seq 1 40 >numbers
	printf 'one\ntwo\nthree\n' >words
	mkdir src && echo 'int a;' >src/a
	echo '*.o' >.gitignore
	git add . && git commit -q -m 'Begin'
	git branch packed && git repack -q -a -d && git pack-refs --all
	echo four >>words && git commit -q -a -m 'Four'
`

func TestClientsReadAndCommit(t *testing.T) {
	t.Parallel()
	h := harness.New(t, harness.Options{})
	tools := filepath.Join(h.Dir, "clients")
	h.Run("mkdir", tools).OK(t)
	for _, name := range []string{"isomorphic.cjs", "libgit2.py"} {
		data, err := programs.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		h.WriteFile(filepath.Join(tools, name), string(data))
	}
	built := filepath.Join(t.TempDir(), "gogit")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", built, ".")
	build.Dir = "../../../clients/gogit"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the go-git client: %v: %s", err, out)
	}
	program, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	h.WriteFile(filepath.Join(tools, "gogit"), string(program))
	h.Run("chmod", "0755", filepath.Join(tools, "gogit")).OK(t)

	for _, c := range []struct {
		name, tag string
		command   []string
	}{
		{"go-git", "gogit", []string{"/clients/gogit"}},
		{"isomorphic-git", "isomorphic", []string{"node", "/clients/isomorphic.cjs"}},
		{"libgit2", "libgit2", []string{"python3", "/clients/libgit2.py"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain, lazaret := sides.Both(t, h, c.tag, repository)
			var results []harness.Result
			for _, s := range []sides.Side{plain, lazaret} {
				args := []string{"-v", tools + ":/clients:ro", "--env=NODE_PATH=/opt/node/node_modules", "--env=HOME=/tmp", harness.Tools}
				results = append(results, s.Run(append(args, c.command...)...))
			}
			want, got := results[0].OK(t), results[1].OK(t)
			if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); d != "" {
				t.Errorf("-plain +lazaret:\n%s", d)
			}
			state := lazaret.State(t)
			sides.Compare(t, c.name, plain.State(t), state)
			if !strings.Contains(state["references"], "refs/tags/"+c.tag) {
				t.Errorf("the host has no tag of the client's:\n%s", state["references"])
			}
		})
	}
}
