package gitsentry

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/test/attacks/git/generator"
)

// craftIndex is an index of version 2 with one file at name.
func craftIndex(name string, oid []byte) []byte {
	data, err := generator.EncodeIndex(2, []generator.Entry{{Mode: 0o100644, ID: [20]byte(oid), Path: name}})
	if err != nil {
		panic(err)
	}
	return data
}

// TestCraftedIndex: an index through which the host's git would write its own
// config never gets there, by whatever way.
func TestCraftedIndex(t *testing.T) {
	w := newWorld(t, nil)
	w.write(filepath.Join(w.in, "p"), "[core]\n\tfsmonitor = touch canary\n")
	oid := decode(t, strings.TrimSpace(w.git(w.in, "hash-object", "-w", "p")))
	git := filepath.Join(w.in, ".git")
	before := w.read(filepath.Join(w.host, ".git/index"))
	for _, name := range []string{".git/config", ".GIT/hooks/post-checkout", "a/../.git/config", "git~1/config", ".git"} {
		data := string(craftIndex(name, oid))
		ways := map[string]func() error{
			"rename of index.lock": func() error {
				if err := writeFile(filepath.Join(git, "index.lock"), data); err != nil {
					return err
				}
				defer func() { _ = os.Remove(filepath.Join(git, "index.lock")) }()
				return syscall.Rename(filepath.Join(git, "index.lock"), filepath.Join(git, "index"))
			},
			"rename of another name": func() error {
				if err := writeFile(filepath.Join(git, "ORIG_HEAD"), data); err != nil {
					return err
				}
				return syscall.Rename(filepath.Join(git, "ORIG_HEAD"), filepath.Join(git, "index"))
			},
			"rename from outside": func() error {
				if err := writeFile(filepath.Join(w.in, "i"), data); err != nil {
					return err
				}
				return syscall.Rename(filepath.Join(w.in, "i"), filepath.Join(git, "index"))
			},
			"write in place": func() error { return writeFile(filepath.Join(git, "index"), data) },
			"shared index": func() error {
				if err := writeFile(filepath.Join(git, "sharedindex_x"), data); err != nil {
					return err
				}
				return syscall.Rename(filepath.Join(git, "sharedindex_x"), filepath.Join(git, "sharedindex."+strings.Repeat("a", 40)))
			},
			"link": func() error {
				if err := writeFile(filepath.Join(git, "index.lock"), data); err != nil {
					return err
				}
				defer func() { _ = os.Remove(filepath.Join(git, "index.lock")) }()
				if err := os.Remove(filepath.Join(git, "index")); err != nil {
					return err
				}
				defer func() { _ = os.WriteFile(filepath.Join(w.host, ".git/index"), []byte(before), 0o644) }() //nolint:forbidigo // the host's
				return os.Link(filepath.Join(git, "index.lock"), filepath.Join(git, "index"))
			},
		}
		for how, try := range ways {
			err := try()
			time.Sleep(2 * stageIdle)
			if got := w.read(filepath.Join(w.host, ".git/index")); got != before {
				t.Fatalf("%s of an index with %s changed the host's (%v)", how, name, err)
			}
			if how != "write in place" && err == nil {
				t.Errorf("%s of an index with %s succeeded", how, name)
			}
		}
	}
	w.absent(".git/sharedindex." + strings.Repeat("a", 40))
	w.git(w.host, "checkout", "--", ".")
	w.absent("canary")
}

// TestIndexHeldOpen: what is written to index.lock after it became the index is
// nobody's.
func TestIndexHeldOpen(t *testing.T) {
	w := newWorld(t, nil)
	w.write(filepath.Join(w.in, "p"), "payload")
	oid := decode(t, strings.TrimSpace(w.git(w.in, "hash-object", "-w", "p")))
	git := filepath.Join(w.in, ".git")
	good := craftIndex("p", oid)
	f, err := os.OpenFile(filepath.Join(git, "index.lock"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Write(good); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, len(good), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(git, "index.lock"), filepath.Join(git, "index")); err != nil {
		t.Fatal(err)
	}
	evil := craftIndex(".git/config", oid)
	_, _ = f.WriteAt(evil, 0) // goes nowhere
	copy(m, evil)
	_ = unix.Msync(m, unix.MS_SYNC)
	_ = unix.Munmap(m)
	if got := w.read(filepath.Join(w.host, ".git/index")); got != string(good) {
		t.Error("the host's index changed after it was checked")
	}
	if got := w.git(w.in, "ls-files"); got != "p\n" {
		t.Errorf("the sandbox lists %q", got)
	}
}

// TestIndexInPlace: clients that overwrite the index work.
func TestIndexInPlace(t *testing.T) {
	w := newWorld(t, nil)
	w.write(filepath.Join(w.in, "p"), "payload")
	oid := decode(t, strings.TrimSpace(w.git(w.in, "hash-object", "-w", "p")))
	data := string(craftIndex("p", oid))
	if err := writeFile(filepath.Join(w.in, ".git/index"), data); err != nil {
		t.Fatal(err)
	}
	if got := w.read(filepath.Join(w.in, ".git/index")); got != data {
		t.Error("the sandbox does not read what it wrote")
	}
	for end := time.Now().Add(30 * time.Second); w.read(filepath.Join(w.host, ".git/index")) != data; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the host has not got the index")
		}
	}
	if got := w.git(w.in, "ls-files"); got != "p\n" {
		t.Errorf("the sandbox lists %q", got)
	}
	// So does whoever has it open.
	fd, err := os.OpenFile(filepath.Join(w.in, ".git/index"), os.O_RDWR|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fd.Close() }()
	if _, err := fd.WriteString(data); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * stageIdle)
	buf := make([]byte, len(data))
	if n, err := fd.ReadAt(buf, 0); string(buf[:n]) != data {
		t.Errorf("an open index reads otherwise after it was published: %v", err)
	}
	// One that is written in the guard's last moment is not lost.
	w.write(filepath.Join(w.in, "q"), "q")
	oid = decode(t, strings.TrimSpace(w.git(w.in, "hash-object", "-w", "q")))
	data = string(craftIndex("q", oid))
	if err := writeFile(filepath.Join(w.in, ".git/index"), data); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if got := w.read(filepath.Join(w.host, ".git/index")); got != data {
		t.Error("what was written last is lost")
	}
}

// TestStateStaysInside: what makes the host's git run commands later.
func TestStateStaysInside(t *testing.T) {
	w := newWorld(t, nil)
	git := filepath.Join(w.in, ".git")
	for _, name := range []string{"rebase-merge/git-rebase-todo", "rebase-apply/next", "sequencer/todo", "BISECT_NAMES", "MERGE_RR", "rr-cache/x/preimage", "worktrees/x/commondir", "modules/x/config", "unknown"} {
		w.write(filepath.Join(git, name), "exec touch canary\n")
		top, _, _ := strings.Cut(name, "/")
		w.absent(filepath.Join(".git", top))
		if got := w.read(filepath.Join(git, name)); got != "exec touch canary\n" {
			t.Errorf("the sandbox reads %q of its own %s", got, name)
		}
	}
	for _, name := range []string{"HEAD", "refs/heads/l", "logs/HEAD.x", "objects/aa", "packed-refs", "FETCH_HEAD"} {
		p := filepath.Join(git, name)
		if err := os.Symlink("../a", p+".l"); err == nil {
			if fi, lerr := os.Lstat(filepath.Join(w.host, ".git", name+".l")); lerr == nil {
				t.Errorf("a link is on the host: %s", fi.Mode())
			}
		}
		_ = os.Remove(p)
		if err := os.Symlink("../../a", p); err == nil {
			t.Errorf("%s can be a symbolic link", name)
		}
	}
	for _, name := range []string{"refs/replace/x", "objects/evil", "objects/pack/HEAD", "objects/info/x", "refs/heads/.git/config", "logs/.GIT/config"} {
		if err := os.MkdirAll(filepath.Join(git, filepath.Dir(name)), 0o755); err != nil {
			continue
		}
		if err := writeFile(filepath.Join(git, name), "x"); err == nil {
			t.Errorf("%s can be made", name)
		}
		w.absent(filepath.Join(".git", name))
	}
}

// TestRebaseInside: a rebase that stops lives in the sandbox, and ends there.
func TestRebaseInside(t *testing.T) {
	w := newWorld(t, nil)
	w.git(w.in, "switch", "-qc", "topic", "HEAD~1")
	w.write(filepath.Join(w.in, "a"), "topic\n")
	w.git(w.in, "commit", "-qam", "topic")
	if out, err := w.tryGit(w.in, "rebase", "main"); err == nil {
		t.Fatalf("no conflict: %s", out)
	}
	w.absent(".git/rebase-merge")
	if out := w.git(w.in, "status"); !strings.Contains(out, "rebase in progress") {
		t.Errorf("the sandbox does not know of its rebase:\n%s", out)
	}
	w.stop()
	w.start(nil)
	w.write(filepath.Join(w.in, "a"), "both\n")
	w.git(w.in, "add", "a")
	w.git(w.in, "rebase", "--continue")
	if got := w.git(w.host, "log", "--format=%s", "topic"); got != "topic\ntwo\none\n" {
		t.Errorf("the host's topic:\n%s", got)
	}
}

// TestSubmodules: their git directories are guarded wherever they are.
func TestSubmodules(t *testing.T) {
	w := bareWorld(t)
	lib := filepath.Join(filepath.Dir(w.host), "lib")
	for _, d := range []string{lib, w.host} {
		_ = os.MkdirAll(d, 0o755)
		w.git(d, "init", "-q", "-b", "main", ".")
		w.write(filepath.Join(d, "f"), "f\n")
		w.git(d, "add", "-A")
		w.git(d, "commit", "-qm", "one")
	}
	w.git(w.host, "-c", "protocol.file.allow=always", "submodule", "add", "-q", lib, "vendor/a")
	w.git(w.host, "commit", "-qam", "sub")
	w.start(nil)
	check := func(name string) {
		t.Helper()
		m := filepath.Join(".git/modules", name)
		wantErrno(t, "write a submodule's config", writeFile(filepath.Join(w.in, m, "config"), "x"), unix.EROFS)
		w.write(filepath.Join(w.in, m, "hooks/post-checkout"), "#!/bin/sh\n")
		w.absent(filepath.Join(m, "hooks/post-checkout"))
		wantErrno(t, "write a submodule's pointer", writeFile(filepath.Join(w.in, name, ".git"), "gitdir: ../../evil\n"), unix.EROFS)
		wantErrno(t, "remove a submodule's pointer", os.Remove(filepath.Join(w.in, name, ".git")), unix.EBUSY)
		wantErrno(t, "move a submodule's git directory", syscall.Rename(filepath.Join(w.in, m), filepath.Join(w.in, m+"x")), unix.EBUSY)
		w.write(filepath.Join(w.in, name, "g"), "g")
		w.git(filepath.Join(w.in, name), "add", "g")
		w.git(filepath.Join(w.in, name), "commit", "-qm", "inside")
		if got := w.git(filepath.Join(w.host, name), "log", "-1", "--format=%s"); got != "inside\n" {
			t.Errorf("the host sees %q in the submodule", got)
		}
	}
	check("vendor/a")
	w.git(w.host, "-c", "protocol.file.allow=always", "submodule", "add", "-q", lib, "later/b") // while the sandbox lives
	check("later/b")
}

// Submodules of submodules are guarded too, those of the start and those that the
// host adds, down to what their own configuration leads to.
func TestSubmodulesDeep(t *testing.T) {
	w := bareWorld(t)
	up := filepath.Dir(w.host)
	allow := func(dir string, args ...string) {
		t.Helper()
		w.git(dir, append([]string{"-c", "protocol.file.allow=always"}, args...)...)
	}
	below := ""
	for _, name := range []string{"c", "b", "a"} {
		d := filepath.Join(up, name)
		w.git(up, "init", "-q", "-b", "main", name)
		w.write(filepath.Join(d, "f"), name)
		if below != "" {
			allow(d, "submodule", "add", "-q", filepath.Join(up, below), "in/"+below)
		}
		w.git(d, "add", "-A")
		w.git(d, "commit", "-qm", name)
		below = name
	}
	w.git(w.host, "init", "-q", "-b", "main", ".")
	allow(w.host, "submodule", "add", "-q", filepath.Join(up, "a"), "x/a")
	allow(w.host, "submodule", "update", "-q", "--init", "--recursive")
	w.git(w.host, "commit", "-qm", "one")
	w.developer(&w.o)
	deep, deepGit := "x/a/in/b/in/c", ".git/modules/x/a/modules/in/b/modules/in/c"
	w.git(filepath.Join(w.host, deep), "config", "core.hooksPath", "hk")
	w.start(nil)
	check := func(tree, git string) {
		t.Helper()
		for _, name := range []string{"config", "config.worktree", "commondir", "objects/info/alternates", "info/attributes", "config.worktree.lock"} {
			wantErrno(t, "write "+git+"/"+name, writeFile(filepath.Join(w.in, git, name), "x"), unix.EROFS)
		}
		for _, dir := range []string{git, filepath.Dir(git)} {
			if err := syscall.Rename(filepath.Join(w.in, dir), filepath.Join(w.in, dir+"x")); err == nil {
				t.Errorf("moved %s", dir)
			}
		}
		w.write(filepath.Join(w.in, git, "hooks/post-checkout"), "evil")
		w.absent(filepath.Join(git, "hooks/post-checkout"))
		wantErrno(t, "the pointer of "+tree, writeFile(filepath.Join(w.in, tree, ".git"), "gitdir: /evil\n"), unix.EROFS)
		_ = os.MkdirAll(filepath.Join(w.in, tree, "hk"), 0o755)
		_ = writeFile(filepath.Join(w.in, tree, "hk/pre-commit"), "evil")
		w.absent(filepath.Join(tree, "hk/pre-commit"))
		w.write(filepath.Join(w.in, tree, "g"), "g")
		w.git(filepath.Join(w.in, tree), "add", "g")
		w.git(filepath.Join(w.in, tree), "commit", "-qnm", "inside")
		if got := w.git(filepath.Join(w.host, tree), "log", "-1", "--format=%s"); got != "inside\n" {
			t.Errorf("the host sees %q in %s", got, tree)
		}
	}
	check(deep, deepGit)
	// A worktree's own configuration says where the tree is, once somebody has asked
	// for it.
	w.git(filepath.Join(w.host, "x/a"), "config", "extensions.worktreeConfig", "true")
	w.git(filepath.Join(w.host, "x/a"), "config", "--worktree", "core.hooksPath", "hk")
	w.tells(`"x/a/hk"`)
	check("x/a", ".git/modules/x/a")
	// While the sandbox lives.
	allow(w.host, "submodule", "add", "-q", filepath.Join(up, "a"), "later/a")
	allow(w.host, "submodule", "update", "-q", "--init", "--recursive")
	w.git(filepath.Join(w.host, "later/a/in/b/in/c"), "config", "core.hooksPath", "hk")
	w.eventually("the new submodule shows", func() bool {
		_, err := os.Stat(filepath.Join(w.in, "later/a/in/b/in/c/f"))
		return err == nil
	})
	check("later/a/in/b/in/c", ".git/modules/later/a/modules/in/b/modules/in/c")
}

// A workspace that is a submodule whose own configuration is in config.worktree.
func TestSubmoduleWorktreeConfig(t *testing.T) {
	w := bareWorld(t)
	up := filepath.Dir(w.host)
	main, lib := filepath.Join(up, "main"), filepath.Join(up, "lib")
	for _, d := range []string{main, lib} {
		w.git(up, "init", "-q", "-b", "main", d)
		w.write(filepath.Join(d, "f"), "f")
		w.git(d, "add", "-A")
		w.git(d, "commit", "-qm", "one")
	}
	w.git(main, "-c", "protocol.file.allow=always", "submodule", "add", "-q", lib, "ws")
	git := filepath.Join(main, ".git/modules/ws")
	w.git(up, "--git-dir="+git, "config", "extensions.worktreeConfig", "true")
	w.git(up, "--git-dir="+git, "config", "--worktree", "core.worktree", "../../../ws")
	w.git(up, "--git-dir="+git, "config", "--unset", "core.worktree")
	w.host = filepath.Join(main, "ws")
	w.start(func(o *Options) {
		o.Workspace, o.GitDir, o.ConfigSuffix = w.host, git, "\n[core]\n\tworktree = "+w.in+"\n"
	})
	g := filepath.Join(w.o.Mountpoint, GitDirName)
	if got := w.git(w.in, "--git-dir="+g, "rev-parse", "--show-toplevel"); got != w.in+"\n" {
		t.Errorf("git in the sandbox takes %q for the tree", got)
	}
	w.write(filepath.Join(w.in, "g"), "g")
	w.git(w.in, "--git-dir="+g, "add", "g")
	w.git(w.in, "--git-dir="+g, "commit", "-qm", "inside")
	if got := w.git(w.host, "log", "-1", "--format=%s"); got != "inside\n" {
		t.Errorf("the host sees %q", got)
	}
	wantErrno(t, "write config.worktree", writeFile(filepath.Join(g, "config.worktree"), "x"), unix.EROFS)
}

// A lock file's second name is another way to write the lock, and nothing else.
func TestLockTwins(t *testing.T) {
	w := newWorld(t, nil)
	const hex = ".0123456789abcdef0123456789abcdef"
	git := filepath.Join(w.in, ".git")
	evil := craftIndex(".git/config", make([]byte, 20))
	for _, name := range []string{"HEAD", "config", "index", "packed-refs", "description"} {
		for _, twin := range []string{name + hex, name + ".lock" + hex, "index.lock" + hex} {
			if err := os.Link(filepath.Join(git, name), filepath.Join(git, twin)); err == nil {
				t.Errorf("linked %s to %s", name, twin)
			}
		}
	}
	w.write(filepath.Join(git, "config.lock"+hex), "x")
	w.absent(".git/config.lock" + hex)
	if err := os.WriteFile(filepath.Join(git, "index.lock"), []byte(w.read(filepath.Join(w.host, ".git/index"))), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(git, "index.lock"), filepath.Join(git, "index.lock"+hex)); err != nil {
		t.Fatal(err)
	}
	wantErrno(t, "link to another directory", os.Link(filepath.Join(git, "index.lock"), filepath.Join(git, "refs/index.lock"+hex)), unix.EPERM)
	held, err := os.OpenFile(filepath.Join(git, "index.lock"+hex), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(git, "index.lock"), filepath.Join(git, "index")); err != nil {
		t.Fatal(err)
	}
	_, _ = held.WriteAt(evil, 0)
	_ = held.Close()
	_ = writeFile(filepath.Join(git, "index.lock"+hex), string(evil))
	if got := w.git(w.host, "ls-files"); got != "a\nsub/deep/f\n" {
		t.Errorf("the host's index has %q", got)
	}
	_ = os.Rename(filepath.Join(git, "index.lock"+hex), filepath.Join(git, "index"))
	if got := w.git(w.host, "ls-files"); got != "a\nsub/deep/f\n" {
		t.Errorf("by its lock's second name the host's index has %q", got)
	}
}

// TestLinkedWorktree: the workspace is one, and only its own part can be written.
func TestLinkedWorktree(t *testing.T) {
	w := bareWorld(t)
	main := filepath.Join(filepath.Dir(w.host), "main")
	_ = os.MkdirAll(main, 0o755)
	w.git(main, "init", "-q", "-b", "main", ".")
	w.write(filepath.Join(main, "a"), "a\n")
	w.git(main, "add", "-A")
	w.git(main, "commit", "-qm", "one")
	_ = os.Remove(w.host)
	w.git(main, "worktree", "add", "-q", "-b", "wt", w.host)
	w.git(main, "worktree", "add", "-q", "-b", "other", w.host+"2")
	w.start(func(o *Options) { o.GitDir, o.WorktreeName = filepath.Join(main, ".git"), "ws" })
	g := filepath.Join(w.o.Mountpoint, GitDirName)
	git := func(args ...string) (string, error) {
		return w.tryGit(w.in, append([]string{"--git-dir=" + filepath.Join(g, "worktrees/ws"), "--work-tree=" + w.in}, args...)...)
	}
	w.write(filepath.Join(w.in, "b"), "b\n")
	for _, args := range [][]string{{"add", "b"}, {"commit", "-qm", "two"}, {"status"}, {"stash"}, {"branch", "new"}, {"tag", "t"}} {
		if out, err := git(args...); err != nil {
			t.Errorf("git %v: %v\n%s", args, err, out)
		}
	}
	if got := w.git(w.host, "log", "-1", "--format=%s"); got != "two\n" {
		t.Errorf("the host sees %q", got)
	}
	for _, name := range []string{"HEAD", "index", "config", "worktrees/ws2/HEAD", "worktrees/ws2/index", "worktrees/ws/commondir", "worktrees/ws/gitdir", "worktrees/ws/config.worktree", "worktrees/ws2/config.worktree"} {
		wantErrno(t, "write "+name, writeFile(filepath.Join(g, name), "x"), unix.EROFS)
	}
	wantErrno(t, "write the pointer", writeFile(filepath.Join(w.in, ".git"), "gitdir: /workspace/evil\n"), unix.EROFS)
	wantErrno(t, "remove the pointer", os.Remove(filepath.Join(w.in, ".git")), unix.EBUSY)
	wantErrno(t, "replace the pointer", syscall.Rename(filepath.Join(w.in, "b"), filepath.Join(w.in, ".git")), unix.EBUSY, unix.EXDEV)
	w.git(main, "fsck", "--strict")
}

// TestBranchOnly: in branch mode other branches cannot be written.
func TestBranchOnly(t *testing.T) {
	for p, want := range map[string]class{
		"refs/heads/lazaret/agent-x": real, "refs/heads/lazaret/agent-x.lock": real, "refs/heads/lazaret": real,
		"logs/refs/heads/lazaret/agent-x": real, "refs/heads/main": readOnly, "refs/heads/main.lock": readOnly,
		"refs/heads/lazaret/agent-y": readOnly, "logs/refs/heads/main": readOnly, "packed-refs": readOnly, "packed-refs.new": readOnly, "packed-refs.lock": real,
		"HEAD": readOnly, "index": readOnly, "index.lock": readOnly, "MERGE_HEAD": readOnly, "worktrees/w/HEAD": real, "worktrees/w/index": index,
		"worktrees/w/config.worktree": readOnly, "worktrees/v/HEAD": trees, "refs/tags/t": real, "refs/remotes/o/m": real,
		"refs/stash": shadow, "logs/refs/stash": shadow, "objects/aa/" + strings.Repeat("b", 38): real, "logs/HEAD": readOnly, "worktrees/w/logs/HEAD": real,
		"refs/heads/lazaret/agent-x/y": readOnly,
	} {
		if got := branchRule(p, "w", "lazaret/agent-x"); got != want {
			t.Errorf("%s: %d, want %d", p, got, want)
		}
	}
}

// TestKilled: after the guard's end nothing of the workspace shows.
func TestKilled(t *testing.T) {
	w := newWorld(t, nil)
	f, err := os.OpenFile(filepath.Join(w.in, "a"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := w.guard.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = w.guard.Wait()
	w.guard = nil
	defer func() { _ = unix.Unmount(w.o.Mountpoint, unix.MNT_DETACH) }()
	_, err = os.Stat(filepath.Join(w.in, ".git"))
	wantErrno(t, "stat after the guard's end", err, unix.ENOTCONN)
	wantErrno(t, "write after the guard's end", writeFile(filepath.Join(w.in, "x"), "x"), unix.ENOTCONN)
	_, err = f.WriteString("x")
	wantErrno(t, "write to an open file after the guard's end", err, unix.ENOTCONN, unix.EIO)
}

// TestOff: .git is read-only as a whole.
func TestOff(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Git = "off" })
	for _, name := range []string{"HEAD", "refs/heads/x", "config", "new"} {
		wantErrno(t, "write "+name, writeFile(filepath.Join(w.in, ".git", name), "x"), unix.EROFS)
	}
	if got := w.git(w.in, "log", "-1", "--format=%s"); got != "two\n" {
		t.Errorf("log: %q", got)
	}
	if out, err := w.tryGit(w.in, "commit", "--allow-empty", "-m", "x"); err == nil {
		t.Errorf("a commit succeeded: %s", out)
	}
}

// TestLocks are honoured both ways.
func TestLocks(t *testing.T) {
	w := newWorld(t, nil)
	for _, dirs := range [][2]string{{w.host, w.in}, {w.in, w.host}} {
		lock := filepath.Join(dirs[0], ".git/index.lock")
		if err := writeFile(lock, ""); err != nil {
			t.Fatal(err)
		}
		w.write(filepath.Join(dirs[1], "n"), "n")
		if out, err := w.tryGit(dirs[1], "add", "n"); err == nil || !strings.Contains(out, "index.lock") {
			t.Errorf("git add under the other side's lock: %v %s", err, out)
		}
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		w.git(dirs[1], "add", "n")
		w.git(dirs[1], "rm", "-qf", "n")
	}
}

func decode(t *testing.T, s string) []byte {
	t.Helper()
	out, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestConcurrentCommits: host and sandbox commit at once, and nothing is lost.
func TestConcurrentCommits(t *testing.T) {
	w := newWorld(t, nil)
	const each = 25
	commit := func(dir, who string, done chan<- int) {
		made := 0
		for range 20 * each {
			cmd := exec.CommandContext(t.Context(), "git", "-C", dir, "commit", "-q", "--allow-empty", "-m", who)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@example.com", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@example.com"}
			if cmd.Run() == nil {
				made++
			}
			if made == each {
				break
			}
		}
		done <- made
	}
	a, b := make(chan int, 1), make(chan int, 1)
	go commit(w.host, "host", a)
	go commit(w.in, "inside", b)
	made := <-a + <-b
	if made == 0 {
		t.Fatal("nobody could commit")
	}
	if got := strings.Count(w.git(w.host, "log", "--format=%h"), "\n"); got != made+2 {
		t.Errorf("%d commits in the log, %d were made", got, made+2)
	}
	w.git(w.host, "fsck", "--strict")
}
