package gitsentry

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestContract is the table of the contract.
func TestContract(t *testing.T) {
	w := newWorld(t, nil)
	config := filepath.Join(w.in, ".git/config")
	before := w.read(filepath.Join(w.host, ".git/config"))
	other := filepath.Join(w.in, "other")
	w.write(other, "[core]\n\tfsmonitor = touch /tmp/canary\n")

	for _, flags := range []int{os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND} {
		f, err := os.OpenFile(config, flags, 0)
		if err == nil {
			_, err = f.WriteString("x")
			_ = f.Close()
		}
		wantErrno(t, "write .git/config", err, unix.EROFS)
	}
	wantErrno(t, "truncate .git/config", os.Truncate(config, 0), unix.EROFS)
	_, err := os.OpenFile(config, os.O_WRONLY|os.O_TRUNC, 0)
	wantErrno(t, "open .git/config with O_TRUNC", err, unix.EROFS)
	wantErrno(t, "chmod .git/config", os.Chmod(config, 0o777), unix.EROFS)
	wantErrno(t, "unlink .git/config", syscall.Unlink(config), unix.EBUSY)
	wantErrno(t, "rename .git/config away", syscall.Rename(config, other+"2"), unix.EBUSY)
	wantErrno(t, "rename over .git/config", syscall.Rename(other, config), unix.EBUSY, unix.EROFS)
	wantErrno(t, "exchange with .git/config", unix.Renameat2(unix.AT_FDCWD, other, unix.AT_FDCWD, config, unix.RENAME_EXCHANGE), unix.EBUSY)
	wantErrno(t, "link over .git/config", os.Link(other, config), unix.EEXIST, unix.EBUSY)
	wantErrno(t, "link .git/config out", os.Link(config, other+"3"), unix.EXDEV, unix.EPERM)
	wantErrno(t, "rename .git", syscall.Rename(filepath.Join(w.in, ".git"), filepath.Join(w.in, "g")), unix.EBUSY)
	wantErrno(t, "remove .git", syscall.Rmdir(filepath.Join(w.in, ".git")), unix.EBUSY)
	wantErrno(t, "rename hooks", syscall.Rename(filepath.Join(w.in, ".git/hooks"), filepath.Join(w.in, ".git/h")), unix.EBUSY)
	for _, name := range []string{"config.worktree", "config.worktree.lock", "commondir", "gitdir", "info/attributes", "info/grafts", "objects/info/alternates", "Config.Worktree"} {
		_, err := os.Create(filepath.Join(w.in, ".git", name))
		wantErrno(t, "create .git/"+name, err, unix.EROFS)
	}
	if got := w.read(filepath.Join(w.host, ".git/config")); got != before {
		t.Errorf("the host's config is now\n%s", got)
	}

	// The host's change shows at once.
	for i := range 20 {
		w.git(w.host, "config", "test.value", strings.Repeat("x", i+1))
		if got := strings.TrimSpace(w.git(w.in, "config", "test.value")); len(got) != i+1 {
			t.Fatalf("after the host's git config the sandbox reads %q", got)
		}
	}

	// Hooks are the sandbox's own.
	w.write(filepath.Join(w.host, ".git/hooks/post-merge"), "#!/bin/sh\n")
	hook := filepath.Join(w.in, ".git/hooks/pre-commit")
	w.write(hook, "#!/bin/sh\nexit 1\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	w.absent(".git/hooks/pre-commit")
	if _, err := w.tryGit(w.in, "commit", "--allow-empty", "-m", "x"); err == nil {
		t.Error("the sandbox's own hook did not run inside")
	}
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}

	// Work shows on the host.
	w.write(filepath.Join(w.in, "b"), "b\n")
	w.git(w.in, "add", "b")
	w.git(w.in, "commit", "-qm", "three")
	w.git(w.in, "tag", "v1")
	w.write(filepath.Join(w.in, "b"), "c\n")
	w.git(w.in, "stash")
	if got := w.git(w.host, "log", "--format=%s", "-1"); got != "three\n" {
		t.Errorf("the host's log begins with %q", got)
	}
	if got := w.git(w.host, "stash", "list"); !strings.Contains(got, "stash@{0}") {
		t.Errorf("the host's stash list: %q", got)
	}
	w.git(w.host, "rev-parse", "v1")
	w.git(w.host, "fsck", "--strict")
}

// TestNestedRepositories: what the sandbox makes stays its own.
func TestNestedRepositories(t *testing.T) {
	w := newWorld(t, nil)
	w.git(w.in, "init", "-q", "n")
	w.git(filepath.Join(w.in, "n"), "config", "core.fsmonitor", "touch "+filepath.Join(w.host, "canary"))
	w.write(filepath.Join(w.in, "n/f"), "f")
	w.git(filepath.Join(w.in, "n"), "-c", "core.fsmonitor=false", "commit", "-q", "--allow-empty", "-m", "n")
	w.git(w.in, "-c", "core.fsmonitor=false", "add", "n")
	w.git(w.in, "clone", "-q", ".", "c")
	w.git(w.in, "init", "-q", "--bare", "b")
	w.git(w.in, "clone", "-q", "--mirror", ".", "m")
	for _, p := range []string{"n/.git", "c/.git"} {
		w.absent(p)
	}
	for _, p := range []string{"b", "m"} {
		if shaped(openDir(t, filepath.Join(w.host, p)), ".") {
			t.Errorf("%s is a git directory on the host", p)
		}
		w.git(filepath.Join(w.in, p), "rev-parse", "--git-dir")
	}
	_ = os.Remove(filepath.Join(w.host, "canary")) // the sandbox's own git is not ours here
	for _, args := range [][]string{{"status"}, {"diff"}, {"add", "-A"}, {"status", "--ignored"}} {
		w.git(w.host, args...)
	}
	w.git(filepath.Join(w.host, "n"), "status")
	w.absent("canary")
	// It survives a restart of the guard, and moves with its directory.
	if err := os.Rename(filepath.Join(w.host, "c"), filepath.Join(w.host, "d")); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.start(nil)
	if got := w.git(filepath.Join(w.in, "d"), "log", "--format=%s", "-1"); got != "two\n" {
		t.Errorf("after a restart the clone's log begins with %q", got)
	}
	for _, p := range []string{"n", "d", "b", "m"} {
		if err := os.RemoveAll(filepath.Join(w.in, p)); err != nil {
			t.Errorf("remove %s: %v", p, err)
		}
	}
	left, err := os.ReadDir(w.o.ShadowDir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the shadow: %v, %v", left, err)
	}
}

// TestBareShapes: no order of steps makes a git directory on the host.
func TestBareShapes(t *testing.T) {
	w := newWorld(t, nil)
	steps := []string{"HEAD", "objects", "refs", "commondir", "config"}
	place := map[string]func(string) error{
		"HEAD":      func(p string) error { return writeFile(p, "ref: refs/heads/main\n") },
		"commondir": func(p string) error { return writeFile(p, "../other\n") },
		"config":    func(p string) error { return writeFile(p, "[core]\n") },
		"objects":   func(p string) error { return os.Mkdir(p, 0o755) },
		"refs":      func(p string) error { return os.Mkdir(p, 0o755) },
	}
	byRename := func(make func(string) error) func(string) error {
		return func(p string) error {
			tmp := filepath.Join(w.in, "tmp")
			if err := make(tmp); err != nil {
				return err
			}
			if err := os.Rename(tmp, p); err != nil {
				return os.RemoveAll(tmp)
			}
			return nil
		}
	}
	bySymlink := func(func(string) error) func(string) error {
		return func(p string) error { return os.Symlink("../sub", p) }
	}
	n := 0
	for _, how := range []func(func(string) error) func(string) error{nil, byRename, bySymlink} {
		for perm := range permutations(steps) {
			n++
			for _, where := range []string{"x", ".git/refs/heads/x", ".git/logs/x", ".git/objects/pack", ".git/modules/x"} {
				if n%7 != 0 && where != "x" {
					continue // each is a mkdir away from the same rule
				}
				dir := filepath.Join(w.in, where)
				_ = os.MkdirAll(dir, 0o755) // some places do not take one
				for _, s := range perm {
					do := place[s]
					if how != nil {
						do = how(do)
					}
					_ = do(filepath.Join(dir, s)) // may be refused
				}
				if fd, err := unix.Open(filepath.Join(w.host, where), unix.O_PATH, 0); err == nil {
					if shaped(fd, ".") {
						t.Fatalf("%s is a git directory on the host after %v", where, perm)
					}
					_ = unix.Close(fd)
				}
				if where == "x" {
					if err := os.RemoveAll(dir); err != nil {
						t.Fatalf("remove what %v made: %v", perm, err)
					}
				}
			}
		}
	}
}

// TestMasks: present or not, at any depth, and without a trace on the host.
func TestMasks(t *testing.T) {
	w := bareWorld(t)
	w.git(w.host, "init", "-q", "-b", "main", ".")
	w.write(filepath.Join(w.host, ".vscode/settings.json"), "committed\n")
	w.write(filepath.Join(w.host, "pkg/.idea/x"), "x\n")
	w.git(w.host, "add", "-A")
	w.git(w.host, "-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "one")
	w.git(w.host, "switch", "-qc", "b")
	w.write(filepath.Join(w.host, ".vscode/settings.json"), "branch b\n")
	w.git(w.host, "-c", "user.name=n", "-c", "user.email=e", "commit", "-qam", "b")
	w.git(w.host, "switch", "-q", "main")
	w.write(filepath.Join(w.host, ".vscode/settings.json"), "secret and not committed\n")
	w.write(filepath.Join(w.host, ".vscode/secret.json"), "untracked\n")
	w.start(func(o *Options) { o.Masks = append(o.Masks, ".env", "ci/private") })

	if got := w.read(filepath.Join(w.in, ".vscode/settings.json")); got != "committed\n" {
		t.Errorf("the sandbox reads %q", got)
	}
	if _, err := os.Lstat(filepath.Join(w.in, ".vscode/secret.json")); err == nil {
		t.Error("an untracked file shows below a mask")
	}
	if got := w.git(w.in, "status", "--porcelain"); got != "" {
		t.Errorf("git in the sandbox sees changes:\n%s", got)
	}
	w.git(w.in, "checkout", "-q", "b")
	if got := w.read(filepath.Join(w.in, ".vscode/settings.json")); got != "branch b\n" {
		t.Errorf("after a checkout the sandbox reads %q", got)
	}
	if got := w.git(w.in, "status", "--porcelain"); got != "" {
		t.Errorf("after a checkout git in the sandbox sees changes:\n%s", got)
	}
	w.git(w.in, "checkout", "-q", "main")
	for _, p := range []string{".vscode/tasks.json", "deep/er/.vscode/tasks.json", "pkg/.idea/y", ".env", "ci/private", "sub/.env"} {
		w.write(filepath.Join(w.in, p), "evil")
		w.absent(p)
		if got := w.read(filepath.Join(w.in, p)); got != "evil" {
			t.Errorf("the sandbox reads %q of its own %s", got, p)
		}
	}
	if got := w.read(filepath.Join(w.host, ".vscode/settings.json")); got != "secret and not committed\n" {
		t.Errorf("the host's file is %q now", got)
	}
	// A directory that is moved over a mask, or away from under it.
	w.write(filepath.Join(w.in, "t/tasks.json"), "evil")
	wantErrno(t, "rename onto a mask", syscall.Rename(filepath.Join(w.in, "t"), filepath.Join(w.in, "sub/.vscode")), unix.EXDEV)
	wantErrno(t, "rename a mask's parent", syscall.Rename(filepath.Join(w.in, "ci"), filepath.Join(w.in, "ci2")), unix.EBUSY)
	w.absent("deep/er/.vscode")
}

// TestReadOnly paths hold whether they are there or not.
func TestReadOnly(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.ReadOnly = append(o.ReadOnly, "sub/deep", "ci/x/y") })
	for what, err := range map[string]error{
		"create lazaret.toml": writeFile(filepath.Join(w.in, "lazaret.toml"), "x"),
		"write below":         writeFile(filepath.Join(w.in, "sub/deep/f"), "x"),
		"create below":        writeFile(filepath.Join(w.in, "sub/deep/g"), "x"),
		"remove below":        os.Remove(filepath.Join(w.in, "sub/deep/f")),
		"link onto":           os.Symlink("a", filepath.Join(w.in, "lazaret.toml")),
		"rename onto":         syscall.Rename(filepath.Join(w.in, "a"), filepath.Join(w.in, "lazaret.toml")),
	} {
		wantErrno(t, what, err, unix.EROFS)
	}
	wantErrno(t, "rename the parent", syscall.Rename(filepath.Join(w.in, "sub"), filepath.Join(w.in, "s")), unix.EBUSY)
	wantErrno(t, "a link for a parent that is not there", os.Symlink("/tmp", filepath.Join(w.in, "ci")), unix.EPERM)
	wantErrno(t, "a file for a parent that is not there", writeFile(filepath.Join(w.in, "ci"), ""), unix.EPERM)
	if err := os.MkdirAll(filepath.Join(w.in, "ci/x"), 0o755); err != nil {
		t.Error(err)
	}
	wantErrno(t, "make it", os.Mkdir(filepath.Join(w.in, "ci/x/y"), 0o755), unix.EROFS)
	wantErrno(t, "move its parent", syscall.Rename(filepath.Join(w.in, "ci/x"), filepath.Join(w.in, "z")), unix.EBUSY)
}

// TestCut: the host takes .git away, and the sandbox gets no other in its place.
func TestCut(t *testing.T) {
	w := newWorld(t, nil)
	git := filepath.Join(w.in, ".git")
	head, err := os.Open(filepath.Join(git, "HEAD"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = head.Close() }()
	if err := os.Rename(filepath.Join(w.host, ".git"), filepath.Join(w.host, "away")); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		if _, err := os.Lstat(git); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the sandbox still sees .git")
		}
		time.Sleep(time.Millisecond)
	}
	if err := os.Mkdir(git, 0o755); err == nil {
		t.Error("the sandbox could make another .git")
	}
	if err := os.Symlink("sub", git); err == nil {
		t.Error("the sandbox could make a link called .git")
	}
	wantErrno(t, "change the config where it is now", writeFile(filepath.Join(w.in, "away/config"), "x"), unix.EROFS, unix.EIO)
	wantErrno(t, "make a hook where it is now", writeFile(filepath.Join(w.in, "away/commondir"), "x"), unix.EROFS, unix.EIO)
	if err := os.Rename(filepath.Join(w.host, "away"), filepath.Join(w.host, ".git")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(git); err == nil {
		t.Error("the sandbox is not cut off")
	}
	w.absent(".git/commondir")
}

// TestRefusals are told.
func TestRefusals(t *testing.T) {
	w := newWorld(t, nil)
	list := filepath.Join(w.o.Mountpoint, InfoName, "refusals")
	if got := w.read(list); got != "" {
		t.Errorf("before anything was refused: %q", got)
	}
	out, err := w.tryGit(w.in, "config", "x.y", "z")
	if err == nil || !strings.Contains(out, "Read-only file system") {
		t.Errorf("git config: %v, %s", err, out)
	}
	if got := w.read(list); got != "1 EROFS rename \".git/config\"\n" {
		t.Errorf("refusals: %q", got)
	}
	_ = os.Remove(filepath.Join(w.in, ".git/config"))
	if got := w.read(list); !strings.HasSuffix(got, "2 EBUSY unlink \".git/config\"\n") {
		t.Errorf("refusals: %q", got)
	}
}

// TestHostChangesShow: what the kernel keeps is forgotten when the host changes it.
func TestHostChangesShow(t *testing.T) {
	w := newWorld(t, nil)
	soon := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s does not show in the sandbox", what)
			}
		}
	}
	at := func(root, name string) string { return filepath.Join(root, name) }
	reads := func(name, want string) func() bool {
		return func() bool { data, err := os.ReadFile(at(w.in, name)); return err == nil && string(data) == want }
	}
	lists := func(dir, name string, want bool) func() bool {
		return func() bool {
			es, err := os.ReadDir(at(w.in, dir))
			return err == nil && want == slices.ContainsFunc(es, func(e os.DirEntry) bool { return e.Name() == name })
		}
	}
	soon("the start", reads("a", "two\n"))
	if _, err := os.Stat(at(w.in, "sub/new")); err == nil {
		t.Fatal("sub/new is there")
	}
	soon("the list", lists("sub", "new", false))
	w.write(at(w.host, "sub/new"), "n")
	soon("a new file", reads("sub/new", "n"))
	soon("a new name", lists("sub", "new", true))
	w.write(at(w.host, "sub/new"), "changed in place")
	soon("a change", reads("sub/new", "changed in place"))
	w.write(at(w.host, "t"), "replaced")
	if err := os.Rename(at(w.host, "t"), at(w.host, "sub/new")); err != nil {
		t.Fatal(err)
	}
	soon("a replaced file", reads("sub/new", "replaced"))
	if err := os.Rename(at(w.host, "sub"), at(w.host, "moved")); err != nil {
		t.Fatal(err)
	}
	soon("a moved directory", reads("moved/new", "replaced"))
	soon("its old name's end", func() bool { _, err := os.Stat(at(w.in, "sub")); return err != nil })
	w.write(at(w.in, "moved/mine"), "mine")
	if got := w.read(at(w.host, "moved/mine")); got != "mine" {
		t.Errorf("written after a move: %q", got)
	}
	if err := os.RemoveAll(at(w.host, "moved")); err != nil {
		t.Fatal(err)
	}
	soon("a removed directory", lists(".", "moved", false))
	// Also one of very many, of which the kernel has seen no more than the names.
	for i := range 600 {
		w.write(at(w.host, fmt.Sprintf("many/%03d", i)), "")
	}
	soon("many files", lists("many", "599", true))
	for _, name := range []string{"000", "300", "599"} {
		if err := os.Remove(at(w.host, "many/"+name)); err != nil {
			t.Fatal(err)
		}
		soon("the end of one of many, "+name+",", lists("many", name, false))
	}
	// Loose objects, on either side.
	w.write(at(w.host, ".git/objects/ab/x"), "")
	soon("a directory of objects", lists(".git/objects/ab", "x", true))
	w.write(at(w.host, ".git/objects/ab/y"), "")
	soon("an object", lists(".git/objects/ab", "y", true))
	if err := os.Remove(at(w.host, ".git/objects/ab/x")); err != nil {
		t.Fatal(err)
	}
	soon("an object's end", lists(".git/objects/ab", "x", false))
	for _, there := range []bool{true, false} {
		name := "tmp_obj_x"
		err := writeFile(at(w.in, ".git/objects/ab/"+name), "x")
		if !there {
			err = os.Remove(at(w.in, ".git/objects/ab/"+name))
		}
		if err != nil || !lists(".git/objects/ab", name, there)() {
			t.Errorf("an object of the sandbox's own, there %v: %v", there, err)
		}
	}
	// An open file lives on.
	f, err := os.Open(at(w.in, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := os.Remove(at(w.host, "a")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, err := f.ReadAt(buf, 0); string(buf[:n]) != "two\n" {
		t.Errorf("an open file whose name the host has removed: %q, %v", buf[:n], err)
	}
}

func openDir(t *testing.T, name string) int {
	t.Helper()
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func writeFile(name, data string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func permutations(s []string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		var walk func(k int) bool
		p := slices.Clone(s)
		walk = func(k int) bool {
			if k == len(p) {
				return yield(p)
			}
			for i := k; i < len(p); i++ {
				p[k], p[i] = p[i], p[k]
				if !walk(k + 1) {
					return false
				}
				p[k], p[i] = p[i], p[k]
			}
			return true
		}
		walk(0)
	}
}

// What is mounted in the sandbox on a directory that it has just made stays.
func TestMountOnNewDirectory(t *testing.T) {
	w := bareWorld(t)
	w.start(nil)
	if _, err := os.ReadDir(w.in); err != nil { // it is watched now
		t.Fatal(err)
	}
	for i := range 200 {
		dir := filepath.Join(w.in, fmt.Sprint("d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond)
	lost := 0
	for i := range 200 {
		if err := unix.Unmount(filepath.Join(w.in, fmt.Sprint("d", i)), 0); err != nil {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of 200 mounts are gone", lost)
	}
}
