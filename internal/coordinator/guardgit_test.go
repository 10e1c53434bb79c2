package coordinator

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/gitsentry"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// git runs on a repository with nobody's configuration but home's.
func git(t *testing.T, home, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1"}
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		cmd.Env = append(cmd.Env, "GIT_"+who+"_NAME=a", "GIT_"+who+"_EMAIL=a@example.org")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return string(out)
}

func TestFindGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	home, main := dir+"/home", dir+"/main"
	for _, d := range []string{home, main + "/part", dir + "/bare"} {
		must(t, os.MkdirAll(d, 0o700))
	}
	git(t, home, main, "init", "-q")
	git(t, home, main, "commit", "-q", "--allow-empty", "-m", "one")
	git(t, home, main, "worktree", "add", "-q", dir+"/linked")
	git(t, home, main, "config", "core.hooksPath", "part/hooks")
	must(t, os.WriteFile(home+"/.gitconfig", []byte("[include]\n\tpath = "+main+"/part/more.conf\n"), 0o600))
	must(t, os.MkdirAll(dir+"/linked2", 0o700))
	must(t, os.WriteFile(dir+"/linked2/.git", []byte("gitdir: "+main+"/.git/worktrees/linked\n"), 0o600))
	tests := []struct {
		name, ws             string
		env                  []string
		memory, readOnly     []string
		gitDir, worktreeName string
		bind                 string
		fails                string
	}{
		{name: "none", ws: dir + "/bare"},
		{name: "a repository", ws: main, memory: []string{"part/hooks"}, readOnly: []string{"part/more.conf"}},
		{name: "a part of one", ws: main + "/part", memory: []string{"hooks"}, readOnly: []string{"more.conf"}},
		{name: "a linked worktree", ws: dir + "/linked", memory: []string{"part/hooks"}, gitDir: main + "/.git", worktreeName: "linked", bind: main + "/.git"},
		{name: "a forged one", ws: dir + "/linked2", fails: "not to this one"},
		{name: "an editor in the workspace", ws: dir + "/bare", env: []string{"GIT_EDITOR=" + dir + "/bare/bin/edit --wait"}, readOnly: []string{"bin/edit"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &Coordinator{spec: wire.StartSpec{Home: home, RealUID: os.Getuid(), GitEnv: tt.env, Domain: domain.New("p", tt.ws, dir), RuntimeDir: dir}, runDir: dir + "/run"}
			must(t, os.MkdirAll(c.runDir, 0o700))
			o := c.guardOptions(&wire.PrepareRequest{Git: "sentry"})
			binds, err := c.findGit(t.Context(), &o)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %+v, %v", o, err)
				}
				return
			}
			must(t, err)
			if err := o.Validate(); err != nil {
				t.Error(err)
			}
			places, err := gitconf.Find(*o.Config)
			must(t, err)
			if !slices.Equal(places.Hooks, tt.memory) || !slices.Equal(slices.Concat(places.Files, places.Programs), tt.readOnly) || o.GitDir != tt.gitDir || o.WorktreeName != tt.worktreeName {
				t.Errorf("got %+v", o)
			}
			tells := git(t, home, dir, "config", "--file", c.runDir+"/gitconfig", "--name-only", "--get-regexp", ".", "guarded")
			told := "includeif.gitdir:/workspace/.path"
			if tt.bind != "" {
				told += "\nincludeif.gitdir:" + tt.bind + "/.path"
			}
			if strings.TrimSpace(tells) != told {
				t.Errorf("git is told %q, want %q", tells, told)
			}
			want := []wire.Bind{{Source: filepath.Join(o.Mountpoint, gitsentry.GitDirName), Destination: tt.bind}}
			if tt.bind == "" {
				want = nil
			}
			if !slices.Equal(binds, want) {
				t.Errorf("binds %+v, want %+v", binds, want)
			}
		})
	}
}

func TestGuardOfALinkedWorktree(t *testing.T) {
	needsMounts(t)
	f := newFixture(t)
	main := filepath.Join(filepath.Dir(f.ws), "main")
	must(t, os.Mkdir(main, 0o700))
	git(t, f.spec.Home, main, "init", "-q")
	git(t, f.spec.Home, main, "commit", "-q", "--allow-empty", "-m", "one")
	git(t, f.spec.Home, main, "worktree", "add", "-q", f.ws)
	_ = f.ensure().Close()
	pid := f.pid()
	res, err := f.guardPrepare("c1", nil)
	must(t, err)
	i := slices.IndexFunc(res.Binds, func(b wire.Bind) bool { return b.Destination == main+"/.git" && !b.ReadOnly })
	if i < 0 {
		t.Fatalf("binds %+v", res.Binds)
	}
	if head, err := os.ReadFile(filepath.Join(res.Binds[i].Source, "HEAD")); err != nil || !strings.HasPrefix(string(head), "ref:") {
		t.Errorf("HEAD through the guard: %q, %v", head, err)
	}
	if err := os.WriteFile(filepath.Join(res.Binds[i].Source, "config"), nil, 0o600); err == nil {
		t.Error("config was written")
	}
	must(t, f.release("c1"))
	f.gone(pid)
}

// What a directory's name has in it stands for itself.
func TestTellGit(t *testing.T) {
	c := &Coordinator{runDir: t.TempDir()}
	repo := filepath.Join(t.TempDir(), `a [b]*? "c" \\d#;e`)
	must(t, os.MkdirAll(repo, 0o700))
	git(t, t.TempDir(), repo, "init", "-q")
	other := filepath.Join(filepath.Dir(repo), "a b")
	must(t, os.MkdirAll(other, 0o700))
	git(t, t.TempDir(), other, "init", "-q")
	author := map[string]string{"name": `D. "Q" \ ; # Developer`, "email": "dev@example.test"}
	must(t, c.tellGit(author, repo, "", "/with\na newline"))
	for dir, want := range map[string]string{repo: "minimal", other: "default"} {
		got := git(t, t.TempDir(), dir, "-c", "include.path="+filepath.Join(c.runDir, "gitconfig"), "config", "--default", "default", "core.checkStat")
		if strings.TrimSpace(got) != want {
			t.Errorf("in %s core.checkStat is %q, want %q", dir, got, want)
		}
	}
	// Commits in the repository and its linked worktrees are the developer's, unless
	// told otherwise; those of repositories below are not.
	below := filepath.Join(repo, "below")
	must(t, os.MkdirAll(below, 0o700))
	git(t, t.TempDir(), below, "init", "-q")
	linked := filepath.Join(filepath.Dir(repo), "linked")
	git(t, t.TempDir(), repo, "commit", "-q", "--allow-empty", "-m", "one")
	git(t, t.TempDir(), repo, "worktree", "add", "-q", linked)
	include := "include.path=" + filepath.Join(c.runDir, "gitconfig")
	for dir, want := range map[string]string{repo: author["name"], linked: author["name"], below: "nobody", other: "nobody"} {
		if got := git(t, t.TempDir(), dir, "-c", include, "config", "--default", "nobody", "user.name"); strings.TrimSpace(got) != want {
			t.Errorf("in %s user.name is %q, want %q", dir, got, want)
		}
	}
	if got := git(t, t.TempDir(), repo, "-c", include, "-c", "user.email=mine", "config", "user.email"); strings.TrimSpace(got) != "mine" {
		t.Errorf("told otherwise: %q", got)
	}
}
