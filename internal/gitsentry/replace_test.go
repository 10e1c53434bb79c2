package gitsentry

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A config's lock may become the config that is there, and no other; whoever holds
// it open has nothing of the host's.
func TestConfigLock(t *testing.T) {
	w := newWorld(t, nil)
	git, host := filepath.Join(w.in, ".git"), filepath.Join(w.host, ".git")
	before := w.read(filepath.Join(host, "config"))
	was := inode(t, filepath.Join(host, "config"))
	w.git(w.in, "branch", "short")
	if out := w.git(w.in, "branch", "-d", "short"); strings.Contains(out, "error") || strings.Contains(out, "warning") {
		t.Errorf("git branch -d: %s", out)
	}
	w.git(w.in, "config", "core.bare", "false") // is so already
	lock, config := filepath.Join(git, "config.lock"), filepath.Join(git, "config")
	for name, text := range map[string]string{
		"another": before + "[core]\n\tfsmonitor = evil\n", "empty": "", "shorter": before[:len(before)-1], "of the same length": strings.Repeat("x", len(before)),
	} {
		w.write(lock, text)
		w.absent(".git/config.lock")
		wantErrno(t, "a config that is "+name, syscall.Rename(lock, config), unix.EROFS)
		wantErrno(t, "exchange with one that is "+name, unix.Renameat2(unix.AT_FDCWD, lock, unix.AT_FDCWD, config, unix.RENAME_EXCHANGE), unix.EBUSY)
		wantErrno(t, "a config.worktree that is "+name, syscall.Rename(lock, filepath.Join(git, "config.worktree")), unix.EROFS)
	}
	w.write(lock, before)
	held, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if err := syscall.Rename(lock, config); err != nil {
		t.Fatal(err)
	}
	_, _ = held.WriteAt([]byte("[alias]\n\tx = !evil\n"), 0)
	w.write(lock, "target of a link")
	wantErrno(t, "a link in the lock's place", func() error {
		if err := os.Remove(lock); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(host, "config"), lock); err != nil {
			return err
		}
		return syscall.Rename(lock, config)
	}(), unix.EBUSY, unix.EXDEV, unix.EPERM)
	if got := w.read(filepath.Join(host, "config")); got != before || inode(t, filepath.Join(host, "config")) != was {
		t.Errorf("the host's config is now\n%s", got)
	}
	_ = os.Remove(lock)
	// The host's own lock is honoured.
	w.write(filepath.Join(host, "config.lock"), "host's")
	if _, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); !os.IsExist(err) {
		t.Errorf("took the host's lock: %v", err)
	}
	wantErrno(t, "the host's lock becomes the config", syscall.Rename(lock, config), unix.EBUSY, unix.EROFS)
}

// What an editor puts in a message's place becomes the message.
func TestMessageReplaced(t *testing.T) {
	w := newWorld(t, nil)
	git, host := filepath.Join(w.in, ".git"), filepath.Join(w.host, ".git")
	w.write(filepath.Join(w.in, "f"), "f")
	w.git(w.in, "add", "f")
	w.git(w.in, "-c", "alias.edited=!GIT_EDITOR='sed -i 1s/^/edited/' git commit -q", "edited")
	if got := w.git(w.host, "log", "-1", "--format=%s"); got != "edited\n" {
		t.Errorf("the host has the message %q", got)
	}
	held, err := os.Create(filepath.Join(git, "sedAbCdEf"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if _, err := held.WriteString("new\n"); err != nil {
		t.Fatal(err)
	}
	message := filepath.Join(git, "COMMIT_EDITMSG")
	if err := syscall.Rename(filepath.Join(git, "sedAbCdEf"), message); err != nil {
		t.Fatal(err)
	}
	w.absent(".git/sedAbCdEf")
	if got, inside := w.read(filepath.Join(host, "COMMIT_EDITMSG")), w.read(message); got != "new\n" || inside != got {
		t.Errorf("the host has %q, the sandbox %q", got, inside)
	}
	// Nothing else can be replaced so.
	for _, name := range []string{"HEAD", "ORIG_HEAD", "index", "packed-refs", "hooks/pre-commit", "refs/heads/main", "info/exclude", "config", "commondir", "x"} {
		w.write(filepath.Join(git, "mine"), "gitdir: /evil\n")
		err := syscall.Rename(filepath.Join(git, "mine"), filepath.Join(git, name))
		if name != "x" && err == nil {
			t.Errorf("replaced %s", name)
		}
		if data, _ := os.ReadFile(filepath.Join(host, name)); strings.Contains(string(data), "evil") {
			t.Errorf("the host has it as %s", name)
		}
	}
	for _, odd := range []func(string) error{
		func(p string) error { return os.Symlink("/etc/passwd", p) },
		func(p string) error { return syscall.Mkfifo(p, 0o666) },
		func(p string) error { return os.Mkdir(p, 0o755) },
	} {
		p := filepath.Join(git, "odd")
		if err := odd(p); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Rename(p, message); err == nil {
			t.Error("a message was replaced by what is no plain file")
		}
		_ = os.Remove(p)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}
