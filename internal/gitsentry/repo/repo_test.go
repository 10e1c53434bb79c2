package repo

import (
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

type host struct {
	t   *testing.T
	dir string // the home; repository main, all else as the tests make it
}

func newHost(t *testing.T) host {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := host{t, dir}
	h.repository("main")
	return h
}

func (h host) git(args ...string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = h.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_ALLOW_PROTOCOL=file",
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("git %q: %v: %s", args, err, out)
	}
}

func (h host) repository(name string) {
	h.t.Helper()
	h.git("init", "-q", name)
	h.git("-C", name, "commit", "-q", "--allow-empty", "-m", "one")
}

func (h host) path(name string) string { return filepath.Join(h.dir, name) }

func (h host) read(name string) string {
	h.t.Helper()
	text, err := os.ReadFile(h.path(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

func (h host) write(name, text string) {
	h.t.Helper()
	h.mkdir(filepath.Dir(name))
	if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) mkdir(name string) {
	h.t.Helper()
	if err := os.MkdirAll(h.path(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) link(target, name string) {
	h.t.Helper()
	h.mkdir(filepath.Dir(name))
	if err := os.Symlink(target, h.path(name)); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) move(from, to string) {
	h.t.Helper()
	if err := os.Rename(h.path(from), h.path(to)); err != nil {
		h.t.Fatal(err)
	}
}

// The workspace is always HOME/ws; @ stands for HOME.
func TestDiscover(t *testing.T) {
	tests := []struct {
		name  string
		setup func(h host)
		want  Repo
	}{
		{"nothing", func(h host) { h.mkdir("ws") }, Repo{}},
		{"repository", func(h host) { h.repository("ws") }, Repo{
			Kind: Dir, GitDir: "@/ws/.git", CommonDir: "@/ws/.git", SeenAt: "/workspace/.git", CommonSeenAt: "/workspace/.git",
		}},
		{"bare", func(h host) { h.git("init", "-q", "--bare", "ws") }, Repo{
			Kind: Bare, GitDir: "@/ws", CommonDir: "@/ws", SeenAt: "/workspace", CommonSeenAt: "/workspace",
		}},
		{"below a repository", func(h host) { h.git("init", "-q", "."); h.mkdir("ws") }, Repo{Ancestor: "@"}},
		{"below a worktree", func(h host) { h.write(".git", "gitdir: x\n"); h.mkdir("ws") }, Repo{Ancestor: "@"}},
		{"below a bare repository", func(h host) { h.git("init", "-q", "--bare", "."); h.mkdir("ws") }, Repo{Ancestor: "@"}},
		{"worktree", func(h host) { h.git("-C", "main", "worktree", "add", "-q", "../ws") }, Repo{
			Kind: Worktree, GitDir: "@/main/.git/worktrees/ws", CommonDir: "@/main/.git", WorktreeName: "ws",
			PointerText: "@/main/.git/worktrees/ws", SeenAt: "@/main/.git/worktrees/ws", CommonSeenAt: "@/main/.git",
		}},
		{"worktree of another name", func(h host) {
			h.git("-C", "main", "worktree", "add", "-q", "../other")
			h.git("-C", "main", "worktree", "move", "../other", "../ws")
		}, Repo{
			Kind: Worktree, GitDir: "@/main/.git/worktrees/other", CommonDir: "@/main/.git", WorktreeName: "other",
			PointerText: "@/main/.git/worktrees/other", SeenAt: "@/main/.git/worktrees/other", CommonSeenAt: "@/main/.git",
		}},
		// As git 2.48 writes with worktree.useRelativePaths.
		{"worktree by relative paths", func(h host) {
			h.git("-C", "main", "worktree", "add", "-q", "../ws")
			h.write("ws/.git", "gitdir: ../main/.git/worktrees/ws\n")
			h.write("main/.git/worktrees/ws/gitdir", "../../../../ws/.git\n")
		}, Repo{
			Kind: Worktree, GitDir: "@/main/.git/worktrees/ws", CommonDir: "@/main/.git", WorktreeName: "ws",
			PointerText: "../main/.git/worktrees/ws", SeenAt: "/main/.git/worktrees/ws", CommonSeenAt: "/main/.git",
		}},
		{"worktree of a bare repository", func(h host) {
			h.git("clone", "-q", "--bare", "main", "bare.git")
			h.git("-C", "bare.git", "worktree", "add", "-q", "../ws")
		}, Repo{
			Kind: Worktree, GitDir: "@/bare.git/worktrees/ws", CommonDir: "@/bare.git", WorktreeName: "ws",
			PointerText: "@/bare.git/worktrees/ws", SeenAt: "@/bare.git/worktrees/ws", CommonSeenAt: "@/bare.git",
		}},
		{"worktree through a link of the host", func(h host) {
			h.link("main", "alias")
			h.git("-C", "main", "worktree", "add", "-q", "../ws")
			h.write("ws/.git", "gitdir: "+h.path("alias/.git/worktrees/ws\r\n"))
		}, Repo{
			Kind: Worktree, GitDir: "@/main/.git/worktrees/ws", CommonDir: "@/main/.git", WorktreeName: "ws",
			PointerText: "@/alias/.git/worktrees/ws", SeenAt: "@/alias/.git/worktrees/ws", CommonSeenAt: "@/alias/.git",
		}},
		{"submodule", func(h host) {
			h.repository("lib")
			h.git("init", "-q", ".")
			h.git("submodule", "--quiet", "add", h.path("lib"), "ws")
		}, Repo{
			Kind: Submodule, GitDir: "@/.git/modules/ws", CommonDir: "@/.git/modules/ws",
			PointerText: "../.git/modules/ws", SeenAt: "/.git/modules/ws", CommonSeenAt: "/.git/modules/ws", WorkTreeSeenAt: "/ws",
		}},
		{"submodule with a name of two parts and a worktree config", func(h host) {
			h.repository("lib")
			h.git("init", "-q", ".")
			h.git("submodule", "--quiet", "add", "--name", "a/b", h.path("lib"), "ws")
			h.git("-C", "ws", "sparse-checkout", "init")
		}, Repo{
			Kind: Submodule, GitDir: "@/.git/modules/a/b", CommonDir: "@/.git/modules/a/b",
			PointerText: "../.git/modules/a/b", SeenAt: "/.git/modules/a/b", CommonSeenAt: "/.git/modules/a/b", WorkTreeSeenAt: "/ws",
		}},
		{"separate", func(h host) {
			h.git("init", "-q", "--separate-git-dir", h.path("real"), "ws")
			h.git("-C", "ws", "config", "core.worktree", h.path("ws"))
		}, Repo{
			Kind: Separate, GitDir: "@/real", CommonDir: "@/real",
			PointerText: "@/real", SeenAt: "@/real", CommonSeenAt: "@/real", WorkTreeSeenAt: "@/ws",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			tt.setup(h)
			got, err := Discover(h.path("ws"), os.Getuid())
			if err != nil {
				t.Fatal(err)
			}
			// The test's own home may lie in a repository.
			if tt.want.Ancestor == "" && !strings.HasPrefix(got.Ancestor, h.dir) {
				got.Ancestor = ""
			}
			for _, field := range []*string{&tt.want.GitDir, &tt.want.CommonDir, &tt.want.PointerText, &tt.want.SeenAt, &tt.want.CommonSeenAt, &tt.want.WorkTreeSeenAt, &tt.want.Ancestor} {
				*field = strings.Replace(*field, "@", h.dir, 1)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDiscoverRefuses(t *testing.T) {
	worktree := func(h host) { h.git("-C", "main", "worktree", "add", "-q", "../ws") }
	separate := func(h host) {
		h.git("init", "-q", "--separate-git-dir", h.path("real"), "ws")
		h.git("-C", "ws", "config", "core.worktree", h.path("ws"))
	}
	foreign := func(h host, name string) {
		if os.Getuid() != 0 {
			h.t.Skip("only root gives files away")
		}
		if err := os.Chown(h.path(name), 4242, 4242); err != nil {
			h.t.Fatal(err)
		}
	}
	tests := []struct {
		name  string
		setup func(h host)
		want  string // in the error, which also says what to do
		fix   string
	}{
		{"no workspace", func(host) {}, "no such file", "workspace"},
		{"link to a repository", func(h host) { h.mkdir("ws"); h.link("../main/.git", "ws/.git") }, "is a symbolic link", "git config core.worktree"},
		{"link to nothing", func(h host) { h.mkdir("ws"); h.link("nowhere", "ws/.git") }, "is a symbolic link", "replace"},
		{"pipe", func(h host) {
			h.mkdir("ws")
			if err := syscall.Mkfifo(h.path("ws/.git"), 0o600); err != nil {
				h.t.Fatal(err)
			}
		}, "neither a directory nor a file", "remove"},
		{"pointer of another user", func(h host) { worktree(h); foreign(h, "ws/.git") }, "ws/.git belongs to another user", "chown"},
		{"borrowing directory", func(h host) { h.repository("ws"); h.write("ws/.git/commondir", h.path("main/.git")) }, "borrows", "git worktree add"},
		{"empty", func(h host) { h.write("ws/.git", "") }, "does not begin", "remove"},
		{"large", func(h host) { h.write("ws/.git", "gitdir: /"+strings.Repeat("x", 5000)) }, "larger than 4096 bytes", ""},
		{"two lines", func(h host) { worktree(h); h.write("ws/.git", h.read("ws/.git")+"x\n") }, "not one line", "remove"},
		{"gone", func(h host) { h.write("ws/.git", "gitdir: ../gone\n") }, "ws/../gone: no such file", "restore"},
		{"no git directory", func(h host) { h.write("ws/.git", "gitdir: /etc\n") }, "/etc, which is no git directory", "restore"},
		{"a file", func(h host) { h.write("ws/.git", "gitdir: /etc/passwd\n") }, "/etc/passwd, which is no git directory", "restore"},
		{"a proc link", func(h host) { worktree(h); h.write("ws/.git", "gitdir: /proc/self/cwd\n") }, "no git directory", "restore"},
		{"another repository", func(h host) { h.write("ws/.git", "gitdir: ../main/.git\n") }, "does not say whose", "config core.worktree"},
		{"another repository that says so", func(h host) {
			h.repository("b")
			h.git("-C", "b", "config", "core.worktree", h.path("b"))
			h.write("ws/.git", "gitdir: ../b/.git\n")
		}, "says that it belongs to", "config core.worktree"},
		{"another worktree", func(h host) {
			h.git("-C", "main", "worktree", "add", "-q", "../other")
			h.write("ws/.git", h.read("other/.git"))
		}, "belongs to the worktree", "git worktree repair"},
		{"another worktree by hard link", func(h host) {
			h.git("-C", "main", "worktree", "add", "-q", "../other")
			h.mkdir("ws")
			if err := os.Link(h.path("other/.git"), h.path("ws/.git")); err != nil {
				h.t.Fatal(err)
			}
		}, "belongs to the worktree", "git worktree repair"},
		{"copied worktree", func(h host) {
			worktree(h)
			h.git("-C", "main", "worktree", "move", "../ws", "../moved")
			h.write("ws/.git", h.read("moved/.git"))
		}, "belongs to the worktree", "git worktree repair"},
		{"another submodule", func(h host) {
			h.repository("lib")
			h.git("init", "-q", ".")
			h.git("submodule", "--quiet", "add", h.path("lib"), "sub")
			h.write("ws/.git", h.read("sub/.git"))
		}, "says that it belongs to", "config core.worktree"},
		{"separate, unsaid", func(h host) { h.git("init", "-q", "--separate-git-dir", h.path("real"), "ws") }, "does not say whose", "config core.worktree"},
		{"separate, worktree config without the extension", func(h host) {
			h.git("init", "-q", "--separate-git-dir", h.path("real"), "ws")
			h.write("real/config.worktree", "[core]worktree="+h.path("ws"))
		}, "does not say whose", "config core.worktree"},
		{"separate, by an include that git does not follow here", func(h host) {
			h.git("init", "-q", "--separate-git-dir", h.path("real"), "ws")
			h.write("real/inc", "[core]worktree="+h.path("ws"))
			h.git("-C", "ws", "config", "include.path", "inc")
		}, "does not say whose", "config core.worktree"},
		{"separate, malformed", func(h host) { separate(h); h.write("real/config", "[") }, "real/config: line 1", "make it readable"},
		{"separate, of another user", func(h host) { separate(h); foreign(h, "real") }, "real, which belongs to another user", "clone"},
		{"worktree of another user", func(h host) { worktree(h); foreign(h, "main/.git/worktrees/ws") }, "worktrees/ws, which belongs to another user", "clone"},
		{"worktree of another user's repository", func(h host) { worktree(h); foreign(h, "main/.git") }, "main/.git, which belongs to another user", "clone"},
		{"in the workspace", func(h host) { separate(h); h.move("real", "ws/real"); h.write("ws/.git", "gitdir: real\n") }, "through the workspace", "name the git directory itself"},
		{"by a link in the workspace", func(h host) { separate(h); h.link("../real", "ws/link"); h.write("ws/.git", "gitdir: link\n") }, "through the workspace", "name the git directory itself"},
		{"by a directory of the workspace and back", func(h host) { separate(h); h.mkdir("ws/d"); h.write("ws/.git", "gitdir: d/../../real\n") }, "through the workspace", "name the git directory itself"},
		{"by a link outside to one within", func(h host) {
			separate(h)
			h.link(h.path("real"), "ws/link")
			h.link("ws/link", "out")
			h.write("ws/.git", "gitdir: ../out\n")
		}, "through the workspace", "name the git directory itself"},
		{"by a loop", func(h host) { h.link("loop", "loop"); h.write("ws/.git", "gitdir: ../loop\n") }, "cannot be followed", "restore"},
		// What an agent could build: a whole git directory that agrees.
		{"a planted one", func(h host) {
			h.git("init", "-q", "--separate-git-dir", h.path("ws/x"), "ws")
			h.git("-C", "ws", "config", "core.worktree", h.path("ws"))
		}, "through the workspace", "name the git directory itself"},
		{"a common directory in the workspace", func(h host) {
			worktree(h)
			h.repository("ws/evil")
			h.write("main/.git/worktrees/ws/commondir", "../../../../ws/evil/.git\n")
		}, "through the workspace", "outside of the workspace"},
		{"a common directory that does not know it", func(h host) {
			worktree(h)
			h.repository("b")
			h.write("main/.git/worktrees/ws/commondir", h.path("b/.git")+"\n")
		}, "is not a worktree of", "git worktree repair"},
		{"a common directory with one of its own", func(h host) { worktree(h); h.write("main/.git/commondir", "../../b") }, "borrows itself", "git worktree repair"},
		{"a common directory by a longer way", func(h host) {
			worktree(h)
			h.link("main", "alias")
			h.write("main/.git/worktrees/ws/commondir", h.path("alias/.git"))
		}, "seen from the sandbox", "git worktree repair"},
		{"worktree without back pointer", func(h host) {
			worktree(h)
			if err := os.Remove(h.path("main/.git/worktrees/ws/gitdir")); err != nil {
				h.t.Fatal(err)
			}
		}, "worktrees/ws/gitdir: no such file", "git worktree repair"},
		{"back pointer by a link", func(h host) {
			worktree(h)
			h.move("main/.git/worktrees/ws/gitdir", "g")
			h.link(h.path("g"), "main/.git/worktrees/ws/gitdir")
		}, "symbolic link", "git worktree repair"},
		{"a place that the sandbox has", func(h host) {
			h.git("init", "-q", "--separate-git-dir", h.path("usr"), "ws")
			h.git("-C", "ws", "config", "core.worktree", h.path("ws"))
			h.write("ws/.git", "gitdir: ../usr\n")
		}, "leads to /usr, which is taken", "use an absolute path"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			tt.setup(h)
			got, err := Discover(h.path("ws"), os.Getuid())
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.fix) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want …%s…%s…", err, tt.want, tt.fix)
			}
			if got != (Repo{}) {
				t.Errorf("a repository beside an error: %+v", got)
			}
		})
	}
}

// The remedy that is named for a separate git directory is one.
func TestRemedy(t *testing.T) {
	h := newHost(t)
	h.git("init", "-q", "--separate-git-dir", h.path("real"), "ws")
	_, err := Discover(h.path("ws"), os.Getuid())
	if err == nil {
		t.Fatal("want an error")
	}
	_, remedy, _ := strings.Cut(err.Error(), "run git ")
	remedy, _, _ = strings.Cut(remedy, ",")
	h.git(strings.Fields(remedy)...)
	if _, err := Discover(h.path("ws"), os.Getuid()); err != nil {
		t.Error(err)
	}
}

func TestReserved(t *testing.T) {
	for at, want := range map[string]bool{
		"/": true, "/usr": true, "/usr/lib/x": true, "/usr/src/x/.git": false, "/workspace": true, "/workspace/x": true, "/workspaces/x": false,
		"/proc/1": true, "/run": true, "/run/media/u/x/.git": false, "/run/lazaret/x": true, "/main.git": false, "/home": true, "/home/u/x/.git": false,
	} {
		if got := reserved(at); got != want {
			t.Errorf("%s: %v", at, got)
		}
	}
}

func TestParsePointer(t *testing.T) {
	for data, want := range map[string]string{
		"gitdir: /a/b\n":               "/a/b",
		"gitdir: ../a b":               "../a b",
		"gitdir: x\r\n":                "x",
		"gitdir:  x ":                  " x ",
		"gitdir: ":                     "",
		"gitdir: \n":                   "",
		"gitdir:/a\n":                  "",
		"GITDIR: /a\n":                 "",
		" gitdir: /a\n":                "",
		"gitdir: a\n\n":                "",
		"gitdir: a\nb":                 "",
		"gitdir: a\x00b":               "",
		"gitdir: a\x1b[2Kb\n":          "",
		"gitdir: a\u009bb\n":           "",
		"gitdir: \xff\n":               "",
		"\xef\xbb\xbfgitdir: a":        "",
		"ref: refs/heads/master\n":     "",
		"gitdir: a\r\r\n":              "",
		"# comment\ngitdir: /a\n":      "",
		strings.Repeat("gitdir: ", 99): strings.Repeat("gitdir: ", 98),
	} {
		got, err := parsePointer([]byte(data))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", data, got, err)
		}
	}
}

func FuzzParsePointer(f *testing.F) {
	for _, data := range []string{"gitdir: /a/.git/worktrees/b\n", "gitdir: ../x\r\n", "gitdir: \x00", "gitdir: a\nb", ""} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := parsePointer(data)
		if (err == nil) != (text != "") {
			t.Fatalf("%q, %v", text, err)
		}
		if err != nil {
			return
		}
		if len(text) > maxPointer || strings.ContainsFunc(text, unicode.IsControl) {
			t.Fatalf("%q", text)
		}
		if rest := strings.Replace(string(data), "gitdir: "+text, "", 1); strings.Trim(rest, "\r\n") != "" || len(rest) > 2 {
			t.Fatalf("%q leaves %q", text, rest)
		}
		if at := seen(Mount, text); !path.IsAbs(at) || path.Clean(at) != at {
			t.Fatalf("%q is seen at %q", text, at)
		}
	})
}
