package gitsentry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
)

// developer has the guard follow the configuration of a home of his own.
func (w *world) developer(o *Options) (home string) {
	w.t.Helper()
	home = filepath.Join(filepath.Dir(w.host), "home")
	if err := os.MkdirAll(home, 0o755); err != nil {
		w.t.Fatal(err)
	}
	o.Config = &gitconf.Options{Workspace: w.host, WorkTree: w.host, GitDirs: []string{filepath.Join(w.host, ".git")}, Home: home}
	return home
}

// eventually waits for what the guard does by itself.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// tells waits until the guard has told the developer of a place.
func (w *world) tells(text string) {
	w.t.Helper()
	w.eventually("a note of "+text, func() bool {
		for line := range strings.Lines(w.log.String()) {
			if strings.HasPrefix(line, "note ") && strings.Contains(line, text) {
				return true
			}
		}
		return false
	})
}

// hostHas fails unless the host's file has this text, "" for no file.
func (w *world) hostHas(name, want string) {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.host, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) || string(data) != want {
		w.t.Errorf("the host's %s is %q, want %q (%v)", name, data, want, err)
	}
}

// What the host's configuration comes to lead to while the sandbox lives cannot be
// changed from then on, whatever the sandbox has prepared.
func TestConfigChanges(t *testing.T) {
	type change func(w *world, home string)
	local := func(args ...string) change {
		return func(w *world, _ string) { w.git(w.host, append([]string{"config"}, args...)...) }
	}
	global := func(text string) change {
		return func(w *world, home string) {
			w.write(filepath.Join(home, ".gitconfig"), strings.ReplaceAll(text, "@", w.host))
		}
	}
	for _, tt := range []struct {
		name    string
		prepare func(w *world, home string)
		change  change
		place   string // the file that git would run or obey
		planted bool   // also where the sandbox has prepared something
	}{
		{name: "hooks", change: local("core.hooksPath", "later"), place: "later/pre-commit"},
		{name: "hooks, deep", change: local("core.hooksPath", "a1/b/later"), place: "a1/b/later/pre-commit", planted: true},
		{name: "husky", change: local("core.hooksPath", ".husky/_"), place: ".husky/pre-commit", planted: true},
		{name: "include", change: local("include.path", "../later.inc"), place: "later.inc", planted: true},
		{name: "include of an include", prepare: func(w *world, home string) {
			w.write(filepath.Join(home, "inc/one"), "")
			w.git(w.host, "config", "include.path", filepath.Join(home, "inc/one"))
		}, change: func(w *world, home string) {
			w.write(filepath.Join(home, "inc/one"), "[include]\n\tpath = "+w.host+"/later.inc\n")
		}, place: "later.inc"},
		{name: "include that was absent", prepare: func(w *world, home string) {
			w.git(w.host, "config", "include.path", filepath.Join(home, "no/such/file"))
		}, change: func(w *world, home string) {
			w.write(filepath.Join(home, "no/such/file"), "[core]\n\thooksPath = later\n")
		}, place: "later/pre-commit"},
		{name: "program", change: local("core.fsmonitor", "tools/watch --all"), place: "tools/watch", planted: true},
		{name: "filter of the user", change: global("[filter \"x\"]\n\tclean = sh tools/clean.sh\n"), place: "tools/clean.sh"},
		{name: "the user's", change: global("[core]\n\thooksPath = @/later\n"), place: "later/pre-commit"},
		{name: "the user's, XDG", change: func(w *world, home string) {
			w.write(filepath.Join(home, ".config/git/config"), "[core]\n\thooksPath = later\n")
		}, place: "later/pre-commit"},
		{name: "the user's, by rename", change: func(w *world, home string) {
			w.write(filepath.Join(home, "new"), "[core]\n\thooksPath = later\n")
			_ = os.Rename(filepath.Join(home, "new"), filepath.Join(home, ".gitconfig"))
		}, place: "later/pre-commit"},
		{name: "the user's, by link", prepare: func(w *world, home string) {
			w.write(filepath.Join(home, "dotfiles/gitconfig"), "")
			_ = os.Symlink("dotfiles/gitconfig", filepath.Join(home, ".gitconfig"))
		}, change: func(w *world, home string) {
			w.write(filepath.Join(home, "dotfiles/gitconfig"), "[core]\n\thooksPath = later\n")
		}, place: "later/pre-commit", planted: true},
		{name: "a hook by link", change: func(w *world, _ string) {
			_ = os.Symlink("../../tools/hook", filepath.Join(w.host, ".git/hooks/pre-commit"))
		}, place: "tools/hook"},
		{name: "worktree's own", change: func(w *world, _ string) {
			w.git(w.host, "config", "extensions.worktreeConfig", "true")
			w.git(w.host, "config", "--worktree", "core.hooksPath", "later")
		}, place: "later/pre-commit"},
		{name: "nested", prepare: func(w *world, _ string) { w.git(w.host, "init", "-q", "n/m") }, change: func(w *world, _ string) {
			w.git(filepath.Join(w.host, "n/m"), "config", "core.hooksPath", "later")
		}, place: "n/m/later/pre-commit", planted: true},
		{name: "nested, elsewhere", prepare: func(w *world, _ string) { w.git(w.host, "init", "-q", "n/m") }, change: func(w *world, _ string) {
			w.git(filepath.Join(w.host, "n/m"), "config", "core.hooksPath", "../../later")
		}, place: "later/pre-commit"},
		{
			name: "nested, the user's", prepare: func(w *world, _ string) { w.git(w.host, "init", "-q", "n/m") },
			change: global("[core]\n\thooksPath = later\n"), place: "n/m/later/pre-commit",
		},
		{name: "nested, moved by the sandbox", prepare: func(w *world, _ string) { w.git(w.host, "init", "-q", "n/m") }, change: func(w *world, _ string) {
			if err := os.Rename(filepath.Join(w.in, "n"), filepath.Join(w.in, "n2")); err != nil {
				w.t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			w.git(filepath.Join(w.host, "n2/m"), "config", "core.hooksPath", "later")
		}, place: "n2/m/later/pre-commit"},
		{name: "made by the host, elsewhere", change: func(w *world, _ string) {
			_ = os.Mkdir(filepath.Join(w.in, "later"), 0o755) // the sandbox has looked around
			w.git(w.host, "init", "-q", "made/inner")
			w.git(filepath.Join(w.host, "made/inner"), "config", "core.hooksPath", "../../later")
		}, place: "later/pre-commit"},
		{name: "bare", prepare: func(w *world, _ string) { w.git(w.host, "init", "-q", "--bare", "b.git") }, change: func(w *world, _ string) {
			w.git(filepath.Join(w.host, "b.git"), "config", "core.hooksPath", filepath.Join(w.host, "later"))
		}, place: "later/pre-commit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// What the sandbox has prepared: the file itself, open; its directory, open;
			// another name of it; a link in the way of it.
			for i, planted := range []string{"nothing", "a file", "a link to a file", "a link to a directory"} {
				if i > 0 && !tt.planted {
					break
				}
				t.Run(planted, func(t *testing.T) {
					w := newWorldOf(t, tt.prepare)
					home := w.home()
					place, dir := filepath.Join(w.in, tt.place), filepath.Dir(filepath.Join(w.in, tt.place))
					was := ""
					var held *os.File
					dirFD := -1
					switch planted {
					case "a file":
						was = "planted\n"
						_ = os.MkdirAll(dir, 0o755)
						w.write(filepath.Join(w.in, "twin"), was)
						if err := os.Link(filepath.Join(w.in, "twin"), place); err != nil {
							t.Fatal(err)
						}
						var err error
						if held, err = os.OpenFile(place, os.O_RDWR, 0); err != nil {
							t.Fatal(err)
						}
						dirFD = openDir(t, dir)
					case "a link to a file":
						_ = os.MkdirAll(dir, 0o755)
						w.write(filepath.Join(w.in, "mine/file"), "planted\n")
						was = "planted\n"
						if err := os.Symlink(relative(t, dir, filepath.Join(w.in, "mine/file")), place); err != nil {
							t.Fatal(err)
						}
					case "a link to a directory":
						if dir == w.in {
							t.Skip("there is none")
						}
						w.write(filepath.Join(w.in, "mine", filepath.Base(place)), "planted\n")
						was = "planted\n"
						_ = os.MkdirAll(filepath.Dir(dir), 0o755)
						if err := os.Symlink(relative(t, filepath.Dir(dir), filepath.Join(w.in, "mine")), dir); err != nil {
							t.Fatal(err)
						}
					}
					tt.change(w, home)
					first, _, _ := strings.Cut(tt.place, "/")
					w.tells(`leads to "` + first)
					// Now everything to change it.
					evil := func(what string, f func() error) {
						_ = f() // it may seem to succeed, on memory
						if data, _ := os.ReadFile(filepath.Join(w.host, tt.place)); string(data) != was {
							t.Errorf("%s: the host has %q, want %q", what, data, was)
						}
					}
					evil("write", func() error { _ = os.MkdirAll(dir, 0o755); return writeFile(place, "evil") })
					evil("append", func() error {
						f, err := os.OpenFile(place, os.O_WRONLY|os.O_APPEND, 0)
						if err == nil {
							_, err = f.WriteString("evil")
							_ = f.Close()
						}
						return err
					})
					if held != nil {
						evil("write by an open file", func() error { _, err := held.WriteAt([]byte("evil"), 0); return err })
						evil("truncate an open file", func() error { return held.Truncate(0) })
						evil("write by its twin", func() error { return writeFile(filepath.Join(w.in, "twin"), "evil") })
						evil("truncate its twin", func() error { return os.Truncate(filepath.Join(w.in, "twin"), 0) })
						evil("make in an open directory", func() error {
							_ = unix.Unlinkat(dirFD, filepath.Base(place), 0)
							fd, err := unix.Openat(dirFD, filepath.Base(place), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o755)
							if err == nil {
								_, err = unix.Write(fd, []byte("evil"))
								_ = unix.Close(fd)
							}
							return err
						})
						evil("rename in an open directory", func() error {
							_ = writeFile(filepath.Join(w.in, "evil"), "evil")
							return unix.Renameat(unix.AT_FDCWD, filepath.Join(w.in, "evil"), dirFD, filepath.Base(place))
						})
						_ = held.Close()
					}
					evil("write where the link leads", func() error { return writeFile(filepath.Join(w.in, "mine/file"), "evil") })
					evil("write in the linked directory", func() error {
						return writeFile(filepath.Join(w.in, "mine", filepath.Base(place)), "evil")
					})
					evil("rename over", func() error {
						_ = writeFile(filepath.Join(w.in, "evil"), "evil")
						return os.Rename(filepath.Join(w.in, "evil"), place)
					})
					for d := tt.place; d != "."; d = filepath.Dir(d) {
						evil("replace "+d, func() error {
							_ = os.RemoveAll(filepath.Join(w.in, "other"))
							_ = os.MkdirAll(filepath.Join(w.in, "other"), 0o755)
							if rel, _ := filepath.Rel(d, tt.place); rel != "." {
								w.write(filepath.Join(w.in, "other", rel), "evil")
							} else {
								_ = os.Remove(filepath.Join(w.in, "other"))
								w.write(filepath.Join(w.in, "other"), "evil")
							}
							_ = os.Rename(filepath.Join(w.in, d), filepath.Join(w.in, "gone"))
							_ = os.Rename(filepath.Join(w.in, "other"), filepath.Join(w.in, d))
							return syscall.Symlink("other", filepath.Join(w.in, d))
						})
					}
				})
			}
		})
	}
}

func relative(t *testing.T, from, to string) string {
	t.Helper()
	rel, err := filepath.Rel(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return rel
}

// newWorldOf is a world of a developer with a home, prepared before the guard.
func newWorldOf(t *testing.T, prepare func(w *world, home string)) *world {
	t.Helper()
	w := bareWorld(t)
	w.git(w.host, "init", "-q", "-b", "main", ".")
	w.write(filepath.Join(w.host, "a"), "one\n")
	home := w.developer(&w.o)
	if prepare != nil {
		prepare(w, home)
	}
	w.start(nil)
	return w
}

func (w *world) home() string { return w.o.Config.Home }

// A repository of the host's in the workspace is found at the start, and when the
// host makes one.
func TestNestedConfig(t *testing.T) {
	w := newWorldOf(t, func(w *world, _ string) {
		w.git(w.host, "init", "-q", "n/m")
		w.git(filepath.Join(w.host, "n/m"), "config", "core.hooksPath", ".hooks")
		w.git(w.host, "init", "-q", "sep", "--separate-git-dir", filepath.Join(filepath.Dir(w.host), "sep.git"))
		w.git(filepath.Join(w.host, "sep"), "config", "core.hooksPath", "../sep-hooks")
		w.git(w.host, "init", "-q", "--bare", "deep/down/b.git")
		w.git(filepath.Join(w.host, "deep/down/b.git"), "config", "core.hooksPath", filepath.Join(w.host, "bare-hooks"))
		w.write(filepath.Join(w.host, "odd/.git/HEAD"), "ref: refs/heads/main\n")
		w.write(filepath.Join(w.host, "odd/.git/config"), "[core\n")
	})
	for _, p := range []string{"n/m/.hooks/pre-commit", "sep-hooks/pre-commit", "bare-hooks/update"} {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(w.in, p)), 0o755)
		_ = writeFile(filepath.Join(w.in, p), "evil")
		w.hostHas(p, "")
	}
	// What is not understood is read-only, and nothing else is.
	w.tells("odd")
	wantErrno(t, "write beside a config that git refuses", writeFile(filepath.Join(w.in, "odd/x"), "x"), unix.EROFS)
	w.write(filepath.Join(w.in, "free"), "x")
	// The host makes one while the sandbox lives, and the sandbox is at once there.
	_ = os.MkdirAll(filepath.Join(w.in, "fresh"), 0o755)
	w.git(w.host, "init", "-q", "tmp")
	w.git(filepath.Join(w.host, "tmp"), "config", "core.hooksPath", "hk")
	if err := os.Rename(filepath.Join(w.host, "tmp"), filepath.Join(w.host, "fresh/r")); err != nil {
		t.Fatal(err)
	}
	w.eventually("the new repository", func() bool {
		_, err := os.Stat(filepath.Join(w.in, "fresh/r"))
		return err == nil
	})
	_ = os.Mkdir(filepath.Join(w.in, "fresh/r/hk"), 0o755)
	_ = writeFile(filepath.Join(w.in, "fresh/r/hk/pre-commit"), "evil")
	w.hostHas("fresh/r/hk/pre-commit", "")
}

// While the developer's configuration cannot be understood nothing changes; then
// everything goes on.
func TestConfigBroken(t *testing.T) {
	w := newWorldOf(t, nil)
	file := filepath.Join(w.in, "a")
	w.write(file, "two\n")
	held, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"[core\n", "[core]\n\thooksPath = .\n"} {
		w.write(filepath.Join(w.home(), ".gitconfig"), bad)
		w.eventually("the workspace becomes read-only", func() bool { return errors.Is(writeFile(filepath.Join(w.in, "new"), "x"), unix.EROFS) })
		_, err := held.WriteAt([]byte("evil"), 0)
		wantErrno(t, "write to an open file", err, unix.EROFS)
		wantErrno(t, "remove", os.Remove(file), unix.EROFS)
		wantErrno(t, "chmod", os.Chmod(file, 0o777), unix.EROFS)
		w.git(w.in, "status")
		w.write(filepath.Join(w.home(), ".gitconfig"), "[core]\n")
		w.eventually("the workspace is writable again", func() bool { return writeFile(filepath.Join(w.in, "new"), "x") == nil })
		w.write(file, "two\n")
	}
	w.tells("understood again")
}

// A name that a command has only by chance does not become read-only when the
// sandbox makes it.
func TestConfigWords(t *testing.T) {
	w := newWorldOf(t, func(w *world, home string) {
		w.write(filepath.Join(home, ".gitconfig"), "[alias]\n\tx = !make build\n\ty = !sh ./run.sh\n")
	})
	for i := range 3 {
		w.write(filepath.Join(w.in, "build"), fmt.Sprint(i))
		w.write(filepath.Join(w.home(), ".gitconfig"), fmt.Sprintf("[alias]\n\tx = !make build\n\ty = !sh ./run.sh\n[core]\n\thooksPath = hk%d\n", i))
		w.tells(fmt.Sprintf("hk%d", i))
	}
	w.hostHas("build", "2")
	wantErrno(t, "a script of an alias", writeFile(filepath.Join(w.in, "run.sh"), "evil"), unix.EROFS)
}

// A start of a guard whose configuration cannot be understood fails.
func TestConfigRefused(t *testing.T) {
	w := bareWorld(t)
	w.git(w.host, "init", "-q", ".")
	w.developer(&w.o)
	w.git(w.host, "config", "core.hooksPath", ".")
	if f, err := newGuard(w.o, nil); err == nil {
		f.close()
		t.Error("hooks in the root of the repository were accepted")
	}
}

// What is kept of a directory goes with it, and not when it is only moved.
func TestShadowsOfRemoved(t *testing.T) {
	w := newWorldOf(t, nil)
	shadows := func() int {
		names, err := os.ReadDir(w.o.ShadowDir)
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	for _, p := range []string{"gone/deep", "moved", "away", "kept"} {
		_ = os.MkdirAll(filepath.Join(w.in, p), 0o755)
		w.git(filepath.Join(w.in, p), "init", "-q")
	}
	before := shadows()
	_ = os.RemoveAll(filepath.Join(w.host, "gone"))
	w.eventually("the shadow of a removed directory goes", func() bool { return shadows() == before-1 })
	_ = os.Rename(filepath.Join(w.host, "moved"), filepath.Join(w.host, "kept/moved"))
	outside := filepath.Join(filepath.Dir(w.host), "outside")
	_ = os.Rename(filepath.Join(w.host, "away"), outside)
	w.stop()
	// Two starts later, and weeks, only what is missing has gone.
	w.start(nil)
	w.eventually("a mark", func() bool {
		marks, _ := filepath.Glob(filepath.Join(w.o.ShadowDir, "*", missing))
		return len(marks) == 1
	})
	w.git(filepath.Join(w.in, "kept/moved"), "rev-parse", "--git-dir")
	w.stop()
	// Back in time, it is as it was.
	_ = os.Rename(outside, filepath.Join(w.host, "away"))
	w.start(nil)
	w.git(filepath.Join(w.in, "away"), "rev-parse", "--git-dir")
	w.eventually("no mark", func() bool {
		marks, _ := filepath.Glob(filepath.Join(w.o.ShadowDir, "*", missing))
		return len(marks) == 0
	})
	w.stop()
	_ = os.Rename(filepath.Join(w.host, "away"), outside)
	w.start(nil)
	w.stop()
	marks, _ := filepath.Glob(filepath.Join(w.o.ShadowDir, "*", missing))
	if len(marks) != 1 {
		t.Fatalf("marks %v", marks)
	}
	old := time.Now().Add(-keptMissing - time.Hour)
	if err := os.Chtimes(marks[0], old, old); err != nil {
		t.Fatal(err)
	}
	w.start(nil)
	w.eventually("what is missing for long goes", func() bool {
		_, err := os.Stat(filepath.Dir(marks[0]))
		return err != nil
	})
	w.git(filepath.Join(w.in, "kept/moved"), "rev-parse", "--git-dir")
}
