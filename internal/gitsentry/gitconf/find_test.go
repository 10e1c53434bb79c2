package gitconf

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// host is a home, a workspace in it with a repository, and a machine's config.
type host struct {
	t                 *testing.T
	home, ws, etc     string
	workTree, gitDirs string // of the repository, ws and ws/.git by itself
	env               map[string]string
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, home: dir + "/home", ws: dir + "/home/ws", etc: dir + "/etc", env: map[string]string{}}
	h.workTree, h.gitDirs = h.ws, h.ws+"/.git"
	for _, d := range []string{h.ws, h.etc} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.git("init", "-q")
	h.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "one")
	return h
}

func (h *host) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	h.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = h.ws
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.home, "GIT_CONFIG_SYSTEM=" + h.etc + "/gitconfig", "LC_ALL=C"}
	for k, v := range h.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}

func (h *host) git(args ...string) {
	h.t.Helper()
	if out, err := h.command(args...).CombinedOutput(); err != nil {
		h.t.Fatalf("git %q: %v: %s", args, err, out)
	}
}

// write makes a file; a relative path is in the workspace.
func (h *host) write(path, text string) {
	h.t.Helper()
	if !filepath.IsAbs(path) {
		path = h.ws + "/" + path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // hooks are executable
		h.t.Fatal(err)
	}
}

func (h *host) link(target, path string) {
	h.t.Helper()
	if !filepath.IsAbs(path) {
		path = h.ws + "/" + path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) options() Options {
	o := Options{
		Workspace: h.ws, WorkTree: h.workTree, GitDirs: []string{h.gitDirs}, Home: h.home,
		System: []string{h.etc + "/gitconfig"},
	}
	for k, v := range h.env {
		o.Env = append(o.Env, k+"="+v)
	}
	return o
}

func (h *host) find() (Places, error) { return Find(h.options()) }

// What a developer's git on the host runs out of the workspace is named, before
// there is such a file and after. Each case is proved by git running it.
func TestFindNamesWhatGitRuns(t *testing.T) {
	const local = ".git/config"
	commit := []string{"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"}
	tests := []struct {
		name  string
		setup func(h *host)
		plant string   // what an agent would write, in the workspace
		git   []string // what the developer then calls
	}{
		{"hooks path, local", func(h *host) { h.git("config", "core.hooksPath", ".githooks") }, ".githooks/pre-commit", commit},
		{"hooks path, local, there", func(h *host) {
			h.git("config", "core.hooksPath", ".githooks")
			h.write(".githooks/README", "")
		}, ".githooks/pre-commit", commit},
		{"hooks path, global", func(h *host) { h.git("config", "--global", "core.hooksPath", "tools/./hooks//") }, "tools/hooks/pre-commit", commit},
		{"hooks path, system", func(h *host) { h.git("config", "--system", "core.hooksPath", "a/../hooks"); h.write("a/x", "") }, "hooks/pre-commit", commit},
		{"hooks path, xdg", func(h *host) { h.write(h.home+"/.config/git/config", "[core]hooksPath=hk") }, "hk/pre-commit", commit},
		{"hooks path, absolute", func(h *host) { h.git("config", "core.hooksPath", h.ws+"/hk") }, "hk/pre-commit", commit},
		{"hooks path, home", func(h *host) { h.git("config", "core.hooksPath", "~/ws/hk") }, "hk/pre-commit", commit},
		{"hooks path, worktree config", func(h *host) {
			h.git("config", "extensions.worktreeConfig", "true")
			h.git("config", "--worktree", "core.hooksPath", "hk")
		}, "hk/pre-commit", commit},
		{"hooks path, environment", func(h *host) {
			h.env["GIT_CONFIG_COUNT"], h.env["GIT_CONFIG_KEY_0"], h.env["GIT_CONFIG_VALUE_0"] = "1", "Core.HooksPath", "hk"
		}, "hk/pre-commit", commit},
		{"hooks path, global by environment", func(h *host) {
			h.env["GIT_CONFIG_GLOBAL"] = h.etc + "/mine"
			h.write(h.etc+"/mine", "[core]\nhooksPath = hk\n")
		}, "hk/pre-commit", commit},
		{"hooks path, NUL", func(h *host) {
			h.write(local, "[core]\nbare = false\n[core \"hookspath\x00\"]\nx = hk\n")
		}, "hk/pre-commit", commit},
		{"hooks path, link", func(h *host) { h.link("tools/hooks", ".githooks"); h.git("config", "core.hooksPath", ".githooks") }, "tools/hooks/pre-commit", commit},
		{"hooks path, link of links", func(h *host) {
			h.link("b", "a")
			h.link(h.ws+"/c/d", "b")
			h.link("e", "c")
			h.git("config", "core.hooksPath", "a")
		}, "e/d/pre-commit", commit},
		{"hooks path outside, link in", func(h *host) { h.link(h.ws+"/in", h.home+"/hk"); h.git("config", "core.hooksPath", "~/hk") }, "in/pre-commit", commit},
		{"husky", func(h *host) {
			h.git("config", "core.hooksPath", ".husky/_")
			h.write(".husky/_/pre-commit", "#!/bin/sh\nsh -e \"$(dirname \"$(dirname \"$0\")\")/${0##*/}\"\n")
		}, ".husky/pre-commit", commit},
		{"hooks linked", func(h *host) { h.link("../.githooks", ".git/hooks") }, ".githooks/pre-commit", commit},
		{"hook linked", func(h *host) { h.link("../../tools/check.sh", ".git/hooks/pre-commit") }, "tools/check.sh", commit},
		{"hook linked, outside", func(h *host) {
			h.link(h.ws+"/tools/check.sh", h.home+"/hk/pre-commit")
			h.git("config", "--global", "core.hooksPath", "~/hk")
		}, "tools/check.sh", commit},
		{"template", func(h *host) { h.git("config", "--global", "init.templateDir", "~/ws/tpl") }, "tpl/hooks/post-checkout", []string{"clone", "-q", ".", "../copy"}},
		{"fsmonitor", func(h *host) { h.git("config", "core.fsmonitor", "tools/fsm") }, "tools/fsm", []string{"status"}},
		{"fsmonitor, quoted", func(h *host) { h.git("config", "core.fsmonitor", "'my tools/fsm' --x") }, "my tools/fsm", []string{"status"}},
		{"fsmonitor, bare name of a script", func(h *host) { h.git("config", "core.fsmonitor", "sh fsm") }, "fsm", []string{"status"}},
		{"fsmonitor, root of the worktree", func(h *host) {
			h.git("config", "core.fsmonitor", `"$(git rev-parse --show-toplevel)"/tools/fsm`)
		}, "tools/fsm", []string{"status"}},
		{"fsmonitor, home", func(h *host) { h.git("config", "core.fsmonitor", `"$HOME"/ws/fsm`) }, "fsm", []string{"status"}},
		{"fsmonitor, by include", func(h *host) {
			h.git("config", "include.path", "../conf/git.inc")
			h.write("conf/git.inc", "[include]\npath = more/x.inc\n")
			h.write("conf/more/x.inc", "[core]\nfsmonitor = t/fsm\n")
		}, "t/fsm", []string{"status"}},
		{"fsmonitor, by conditional include", func(h *host) {
			h.git("config", "--global", "includeIf.gitdir:~/ws/.path", "~/ws/x.inc")
			h.write("x.inc", "[core]\nfsmonitor = t/fsm\n")
		}, "t/fsm", []string{"status"}},
		{"editor", func(h *host) { h.git("config", "core.editor", "./ed") }, "ed", []string{"-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty"}},
		{"editor, environment", func(h *host) { h.env["GIT_EDITOR"] = "./ed" }, "ed", []string{"-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty"}},
		{"sequence editor", func(h *host) { h.git("config", "sequence.editor", "t/seq") }, "t/seq", []string{"-c", "user.name=a", "-c", "user.email=a@b", "rebase", "-i", "--root"}},
		{"external diff", func(h *host) {
			h.git("config", "diff.external", "bin/d")
			h.write("f", "1")
			h.git("add", "f")
			h.write("f", "2")
		}, "bin/d", []string{"diff"}},
		{"textconv", func(h *host) {
			h.git("config", "diff.x.textconv", "perl conv.pl")
			h.write(".gitattributes", "f diff=x\n")
			h.write("f", "1")
			h.git("add", "f")
			h.write("f", "2")
		}, "conv.pl", []string{"diff"}},
		{"clean filter", func(h *host) {
			h.git("config", "filter.x.clean", "bin/clean %f")
			h.write(".gitattributes", "f filter=x\n")
			h.write("f", "1")
		}, "bin/clean", []string{"add", "f"}},
		{"merge driver", func(h *host) {
			h.git("config", "merge.x.driver", "bin/m %O %A %B")
			h.write(".gitattributes", "* merge=x\n")
			for _, branch := range []string{"left", "right"} {
				h.git("checkout", "-q", "-b", branch, "master")
				h.write("f", branch)
				h.git("add", "f")
				h.git(commit...)
			}
		}, "bin/m", []string{"-c", "user.name=a", "-c", "user.email=a@b", "merge", "left"}},
		{"alias", func(h *host) { h.git("config", "alias.x", "!sh -c 'bin/tool \"$1\"' -") }, "bin/tool", []string{"x"}},
		{"alias with options", func(h *host) { h.git("config", "alias.x", "-c core.fsmonitor=bin/tool status") }, "bin/tool", []string{"x"}},
		{"signing program", func(h *host) {
			h.git("config", "gpg.program", h.ws+"/my gpg")
			h.git("config", "commit.gpgSign", "true")
		}, "my gpg", commit},
		{"ssh", func(h *host) { h.git("config", "core.sshCommand", "bin/ssh -v") }, "bin/ssh", []string{"ls-remote", "git@localhost:x"}},
		{"credential helper", func(h *host) { h.git("config", "credential.https://x.helper", "!f() { bin/cred; }; f") }, "bin/cred", []string{"credential", "fill"}},
		{"ext remote", func(h *host) {
			h.git("config", "protocol.ext.allow", "always")
			h.git("config", "remote.o.url", "ext::bin/remote")
		}, "bin/remote", []string{"ls-remote", "o"}},
		{"ext rewrite", func(h *host) {
			h.git("config", "protocol.ext.allow", "always")
			h.git("config", "url.ext::bin/remote .insteadOf", "https://")
		}, "bin/remote", []string{"ls-remote", "https://x"}},
		{"trailer", func(h *host) { h.git("config", "trailer.x.command", "bin/trailer") }, "bin/trailer", []string{"interpret-trailers"}},
		{"mergetool", func(h *host) { h.git("config", "difftool.x.cmd", "bin/dt"); h.write("f", "1"); h.git("add", "f") }, "bin/dt", []string{"difftool", "--cached", "-y", "-t", "x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.git("branch", "-M", "master")
			tt.setup(h)
			for _, when := range []string{"before", "after"} {
				places, err := h.find()
				if err != nil {
					t.Fatal(err)
				}
				covered := slices.Contains(places.Programs, tt.plant) || slices.Contains(places.Hooks, filepath.Dir(tt.plant))
				if !covered {
					t.Errorf("%s is not named %s it is there: %+v", tt.plant, when, places)
				}
				for dir := filepath.Dir(tt.plant); dir != "."; dir = filepath.Dir(dir) {
					if !slices.Contains(places.Ways, dir) && !slices.Contains(places.Hooks, dir) {
						t.Errorf("%s, on the way to %s, is not named: %q", dir, tt.plant, places.Ways)
					}
				}
				mark := h.home + "/mark"
				if tt.name == "textconv" {
					h.write(tt.plant, "open(F, '>', '"+mark+"');")
				} else {
					h.write(tt.plant, "#!/bin/sh\n: >"+mark+"\n")
				}
			}
			cmd := h.command(tt.git...)
			cmd.Stdin = strings.NewReader("protocol=https\nhost=x\n\n")
			out, _ := cmd.CombinedOutput()
			if _, err := os.Stat(h.home + "/mark"); err != nil {
				t.Errorf("the case proves nothing, git does not run %s: %s", tt.plant, out)
			}
		})
	}
}

func TestFind(t *testing.T) {
	tests := []struct {
		name  string
		setup func(h *host)
		want  Places
	}{
		{"nothing", func(*host) {}, Places{}},
		{"hooks outside", func(h *host) { h.git("config", "core.hooksPath", "../hooks") }, Places{}},
		{"hooks nowhere", func(h *host) { h.git("config", "core.hooksPath", "/dev/null") }, Places{}},
		{"hooks of the git directory", func(h *host) { h.git("config", "core.hooksPath", h.ws+"/.git/hooks") }, Places{
			Hooks: []string{".git/hooks"}, Ways: []string{".git"},
		}},
		{"link to hooks", func(h *host) { h.link("tools/hooks", ".githooks"); h.git("config", "core.hooksPath", ".githooks") }, Places{
			Hooks: []string{".githooks", "tools/hooks"}, Ways: []string{"tools"},
		}},
		{"link out", func(h *host) { h.link("../hk", "in"); h.git("config", "core.hooksPath", "in") }, Places{Hooks: []string{"in"}}},
		{"link on the way", func(h *host) { h.link("b", "a"); h.git("config", "core.hooksPath", "a/x/hooks") }, Places{
			Files: []string{"a"}, Hooks: []string{"b/x/hooks"}, Ways: []string{"b", "b/x"},
		}},
		{"link that leads to itself", func(h *host) { h.link("a", "a"); h.git("config", "commit.template", "a") }, Places{Files: []string{"a"}}},
		{"dots", func(h *host) { h.git("config", "core.hooksPath", "sub/../hooks") }, Places{Hooks: []string{"hooks"}, Ways: []string{"sub"}}},
		{"files", func(h *host) {
			h.git("config", "core.attributesFile", "conf/attributes")
			h.git("config", "core.excludesFile", "~/ws/ignore")
			h.git("config", "blame.ignoreRevsFile", ".git-blame-ignore-revs")
			h.git("config", "commit.template", h.ws+"/.gitmessage")
			h.git("config", "mailmap.file", "../ws/mailmap")
			h.git("config", "gpg.ssh.allowedSignersFile", "signers")
			h.git("config", "http.sslCAInfo", "./ca.pem")
			h.git("config", "some.thing", "./absent.pem")
			h.write("ca.pem", "")
		}, Places{
			Files: []string{".git-blame-ignore-revs", ".gitmessage", "ca.pem", "conf/attributes", "ignore", "mailmap", "signers"},
			Ways:  []string{"conf"},
		}},
		{"absent includes", func(h *host) {
			h.git("config", "include.path", "../a.inc")
			h.git("config", "includeIf.onbranch:never.path", "b.inc")
			h.git("config", "--global", "include.path", "ws/c.inc")
		}, Places{Files: []string{".git/b.inc", "a.inc", "c.inc"}, Ways: []string{".git"}}},
		{"ordinary", func(h *host) {
			h.write(".git/config", `[core]
	repositoryformatversion = 0
	fsmonitor = true
[remote "origin"]
	url = ../origin.git
	fetch = +refs/heads/*:refs/remotes/origin/*
[branch "master"]
	remote = origin
	merge = refs/heads/master
[filter "lfs"]
	clean = git-lfs clean -- %f
	process = git-lfs filter-process
	required = true
[credential "https://github.com"]
	helper = !/usr/bin/gh auth git-credential
[alias]
	lg = log --oneline -- src/lib
	lint = !make lint src/lib
[core]
	pager = delta --features decorations | less -R
	editor = code --wait
[http]
	proxy = http://proxy:3128
`)
			h.write("src/lib/x.go", "")
			h.write("master/origin", "")
		}, Places{}},
		{"home is the workspace", func(h *host) {
			h.home = h.ws
			h.link("dot/gitconfig", ".gitconfig")
			h.write("dot/gitconfig", "[core]hooksPath=~/hk\n")
		}, Places{
			Files: []string{".config/git/attributes", ".config/git/config", ".config/git/ignore", ".gitconfig", "dot/gitconfig"},
			Hooks: []string{"hk"}, Ways: []string{".config", ".config/git", "dot"},
		}},
		{"dotfiles", func(h *host) { h.link("ws/gitconfig", h.home+"/.gitconfig") }, Places{Files: []string{"gitconfig"}}},
		{"git directory with links", func(h *host) {
			h.link("../conf/config", ".git/config")
			h.write("conf/config", "[core]\nhooksPath = hk\n")
		}, Places{Files: []string{".git/config", "conf/config"}, Hooks: []string{"hk"}, Ways: []string{".git", "conf"}}},
		{"bare", func(h *host) {
			h.workTree = ""
			h.git("config", "core.hooksPath", "hk")
		}, Places{Hooks: []string{".git/hk"}, Ways: []string{".git"}}},
		{"nested repository", func(h *host) {
			h.git("init", "-q", "sub")
			h.workTree, h.gitDirs = h.ws+"/sub", h.ws+"/sub/.git"
			h.write("sub/.git/config", "[core]\nhooksPath = ../hk\n[commit]\ntemplate = msg\n")
		}, Places{Files: []string{"sub/msg"}, Hooks: []string{"hk"}, Ways: []string{"sub"}}},
		{"includes in a loop", func(h *host) {
			h.git("config", "include.path", "../a.inc")
			h.write("a.inc", "[includeIf \"onbranch:b\"]\npath = ./b.inc\n[core]hooksPath=hk\n")
			h.write("b.inc", "[include]\npath = ../ws/a.inc\n")
		}, Places{Files: []string{"a.inc", "b.inc"}, Hooks: []string{"hk"}, Ways: []string{".git"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			tt.setup(h)
			got, err := h.find()
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range slices.Concat(got.Hooks, got.Files, got.Programs) {
				if got.Why[path] == (Source{}) {
					t.Errorf("nothing says why %s", path)
				}
			}
			got.Why, got.Free, got.Looked = nil, nil, nil
			if diff := cmp.Diff(fmt.Sprintf("%+v", tt.want), fmt.Sprintf("%+v", got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFindWhy(t *testing.T) {
	h := newHost(t)
	h.git("config", "--global", "core.hooksPath", ".githooks")
	places, err := h.find()
	if err != nil {
		t.Fatal(err)
	}
	want := "git configuration " + h.home + "/.gitconfig: core.hookspath"
	if got := places.Why[".githooks"].String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFindError(t *testing.T) {
	tests := []struct {
		name  string
		setup func(h *host)
		want  string
	}{
		{"malformed", func(h *host) { h.write(".git/config", "[core\n") }, "/ws/.git/config: line 1: not git's configuration syntax"},
		{"malformed include", func(h *host) { h.git("config", "include.path", "../x"); h.write("x", "]") }, "/ws/x: line 1"},
		{"malformed under a condition", func(h *host) { h.git("config", "includeIf.onbranch:x.path", "../x"); h.write("x", "]") }, "/ws/x: line 1"},
		{"too large", func(h *host) { h.write(h.home+"/.gitconfig", strings.Repeat("\n", MaxFile+1)) }, "/.gitconfig: larger than"},
		{"directory", func(h *host) { h.write(h.home+"/.gitconfig/x", "") }, "/.gitconfig: not a regular file"},
		{"pipe", func(h *host) {
			h.git("config", "include.path", "../pipe")
			if err := syscall.Mkfifo(h.ws+"/pipe", 0o600); err != nil {
				h.t.Fatal(err)
			}
		}, "/ws/pipe: not a regular file"},
		{"loop of links", func(h *host) { h.link(".gitconfig", h.home+"/.gitconfig") }, "too many levels of symbolic links"},
		{"deep", func(h *host) {
			h.git("config", "include.path", "../0")
			for i := range 12 {
				h.write(fmt.Sprint(i), fmt.Sprintf("[include]path=%d\n", i+1))
			}
		}, "more than 10 includes deep"},
		{"unknown user", func(h *host) { h.git("config", "core.hooksPath", "~nobody-of-that-name/x") }, "core.hookspath: \"~nobody-of-that-name/x\": user"},
		{"prefix", func(h *host) { h.git("config", "include.path", "%(prefix)/x") }, "where git is installed"},
		{"hooks in the root", func(h *host) { h.git("config", "core.hooksPath", ".") }, "core.hookspath: hooks in "},
		{"hooks in the git directory", func(h *host) { h.git("config", "core.hooksPath", ".git") }, "core.hookspath: hooks in "},
		{"hooks above a nested repository", func(h *host) {
			h.write("a/b/.git/config", "[core]hooksPath=..")
			h.workTree, h.gitDirs = h.ws+"/a/b", h.ws+"/a/b/.git"
		}, "core.hookspath: hooks in "},
		{"too many hooks", func(h *host) {
			h.git("config", "core.hooksPath", "hk")
			for i := range 1001 {
				h.write(fmt.Sprint("hk/", i), "")
			}
		}, "more than 1000 files"},
		{"too many paths", func(h *host) { h.write(".git/config", "[core]\npager = "+strings.Repeat("a/ ", maxTrails)) }, "more than 20000 paths"},
		{"environment count", func(h *host) { h.env["GIT_CONFIG_COUNT"] = "many" }, "GIT_CONFIG_COUNT"},
		{"environment key", func(h *host) { h.env["GIT_CONFIG_COUNT"] = "1" }, "GIT_CONFIG_KEY_0"},
		{"relative include from the environment", func(h *host) {
			h.env["GIT_CONFIG_COUNT"], h.env["GIT_CONFIG_KEY_0"], h.env["GIT_CONFIG_VALUE_0"] = "1", "include.path", "x"
		}, "relative path"},
		{"no home", func(h *host) { h.home = "" }, "set HOME"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			tt.setup(h)
			_, err := h.find()
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
}

func TestFindUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	h := newHost(t)
	h.write(h.home+"/.gitconfig", "")
	if err := os.Chmod(h.home+"/.gitconfig", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := h.find(); err == nil || !strings.Contains(err.Error(), "/.gitconfig: permission denied") {
		t.Errorf("got %v", err)
	}
}

// Every file that git says a variable came from was read.
func TestFindReadsWhatGitReads(t *testing.T) {
	h := newHost(t)
	h.write(h.etc+"/gitconfig", "[a]b=1\n[include]path=sys.inc\n")
	h.write(h.etc+"/sys.inc", "[a]b=2\n")
	h.write(h.home+"/.gitconfig", "[a]b=3\n[includeIf \"gitdir:~/ws/\"]path=ws/in.inc\n")
	h.write(h.home+"/.config/git/config", "[a]b=4\n[include]path=~/tilde.inc\n")
	h.write(h.home+"/tilde.inc", "[a]b=5\n")
	h.link("conf/real.inc", "in.inc")
	h.write("conf/real.inc", "[a]b=6\n[include]path=beside.inc\n")
	h.write("beside.inc", "[a]b=7\n")
	h.git("config", "extensions.worktreeConfig", "true")
	h.git("config", "--worktree", "a.b", "8")
	h.git("config", "include.path", "../conf/../dot.inc")
	h.write("dot.inc", "[a]b=9\n")

	out, err := h.command("config", "--list", "--show-origin", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFinder(h.options())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.configs(); err != nil {
		t.Fatal(err)
	}
	origins := map[string]bool{}
	for i, field := range bytes.Split(out, []byte{0}) {
		if i%2 != 0 || len(field) == 0 {
			continue
		}
		path := strings.TrimPrefix(string(field), "file:")
		if !filepath.IsAbs(path) {
			path = h.ws + "/" + path
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		origins[filepath.Join(dir, filepath.Base(path))] = true
	}
	if len(origins) != 10 {
		t.Errorf("git read %d files: %v", len(origins), sorted(origins))
	}
	for path := range origins {
		if !f.read[path] {
			t.Errorf("%s was not read", path)
		}
	}
}

// The way to the workspace may be a link.
func TestFindByAnotherName(t *testing.T) {
	h := newHost(t)
	h.link("ws", h.home+"/alias")
	h.git("config", "core.hooksPath", h.home+"/alias/hk")
	places, err := h.find()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"hk"}, places.Hooks); diff != "" {
		t.Error(diff)
	}
}
