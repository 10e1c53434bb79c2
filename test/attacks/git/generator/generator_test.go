package generator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// first is a workspace that others are copies of.
var first struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if first.dir != "" {
		_ = os.RemoveAll(first.dir)
	}
	os.Exit(code)
}

func workspace(t *testing.T) string {
	t.Helper()
	first.once.Do(func() {
		if first.dir, first.err = os.MkdirTemp("", "generator."); first.err != nil { //nolint:usetesting // outlives this test
			return
		}
		dir := filepath.Join(first.dir, "host")
		if first.err = os.Mkdir(dir, 0o755); first.err == nil {
			first.err = Setup(t.Context(), dir)
		}
	})
	if first.err != nil {
		t.Fatal(first.err)
	}
	dir := Place(t.TempDir(), "host")
	cmd := exec.CommandContext(t.Context(), "cp", "-a", first.dir, filepath.Dir(dir))
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(dir)), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copy a workspace: %v: %s", err, out)
	}
	return dir
}

func TestProgramsAreTheSameAgain(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(500) {
		p := Program(seed)
		if !reflect.DeepEqual(p, Program(seed)) {
			t.Fatalf("seed %d gives two programs", seed)
		}
		for _, op := range p {
			kinds[op.Kind]++
		}
	}
	for _, k := range kindsOnce() {
		if kinds[k] == 0 {
			t.Errorf("no program of 500 has %q", k)
		}
	}
}

func kindsOnce() []string {
	all := slices.Clone(kinds())
	slices.Sort(all)
	return slices.Compact(all)
}

// Every kind is known to who runs it.
func TestEveryOpIsKnown(t *testing.T) {
	m := NewMachine(Place(t.TempDir(), "view"), nil)
	defer m.Close()
	for _, k := range kindsOnce() {
		if strings.HasPrefix(k, "host") {
			continue
		}
		text := "f\n"
		if k == "race" {
			text = "write" // the op that it runs
		}
		err := m.Do(Op{Kind: k, Path: "f", To: "g", Text: text, With: &Op{Kind: "unlink", Path: "f"}})
		if err != nil && strings.Contains(err.Error(), "no such op") {
			t.Error(err)
		}
	}
	h := NewHost(workspace(t))
	for _, k := range append(hostKinds(), "status", "repair") {
		if _, err := h.Do(k); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
}

// Without a guard the first programs already do harm: the check can fail.
func TestUnguarded(t *testing.T) {
	fallen := 0
	for seed := range uint64(40) {
		dir := workspace(t)
		m := NewMachine(dir, nil)
		err := Drive(t.Context(), Options{View: NewLocal(m), Workspace: dir, HostDo: NewHost(dir).Do, First: seed, Count: 1})
		m.Close()
		var v *Violation
		if errors.As(err, &v) {
			fallen++
			if v.Seed != seed || len(v.Changes) == 0 {
				t.Errorf("a violation without a seed or a change: %v", v)
			}
		} else if err != nil {
			t.Error(err)
		}
	}
	if fallen < 20 {
		t.Errorf("%d of 40 programs were found to do harm without a guard", fallen)
	}
}

// A view that leads nowhere does no harm: what the host does by itself is none.
func TestHostAloneIsNoViolation(t *testing.T) {
	dir := workspace(t)
	m := NewMachine(filepath.Join(t.TempDir(), "nowhere"), nil)
	defer m.Close()
	err := Drive(t.Context(), Options{View: NewLocal(m), Workspace: dir, HostDo: NewHost(dir).Do, Count: 300, Repair: 50, Moves: true})
	if err != nil {
		t.Error(err)
	}
}

func TestRemote(t *testing.T) {
	dir := workspace(t)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	m := NewMachine(dir, nil)
	served := make(chan error, 1)
	go func() { served <- Serve(inR, outW, NewLocal(m), NewHost(dir)) }()
	r := NewRemote(inW, outR)
	if err := r.Do([]Op{{Kind: "write", Path: "new", Text: "text"}, {Kind: "rename", Path: "new", To: "d/moved"}}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "d/moved")); err != nil || string(data) != "text" {
		t.Errorf("%q, %v", data, err)
	}
	if err := r.Begin(Op{Kind: "append", Path: "loop", Text: "x"}); err != nil {
		t.Fatal(err)
	}
	wrote, err := r.Host("config")
	if err != nil || !strings.Contains(wrote[".git/config"], "[x]") {
		t.Errorf("%q, %v", wrote, err)
	}
	if err := r.End(); err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(dir, "loop")) {
		t.Error("the loop has not run")
	}
	if err := inW.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Snapshots see each kind of harm by itself.
func TestSnapshot(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"config", "echo >>.git/config", "changed: file .git/config"},
		{"config.worktree", "echo >.git/config.worktree", "new: file .git/config.worktree"},
		{"hook", "echo >.git/hooks/post-checkout", "new: file .git/hooks/post-checkout"},
		{"mode of a hook", "chmod 644 .git/hooks/pre-commit", "changed: file .git/hooks/pre-commit"},
		{"hooks gone", "rm -r .git/hooks", "gone: dir .git/hooks"},
		{"attributes", "rm .git/info/attributes", "gone: file .git/info/attributes"},
		{"alternates", "echo /x >.git/objects/info/alternates", "new: file .git/objects/info/alternates"},
		{"config of a module", "echo >>.git/modules/m/config", "changed: file .git/modules/m/config"},
		{"hook of a module", "echo >.git/modules/m/hooks/x", "new: file .git/modules/m/hooks/x"},
		{"new module", "mkdir .git/modules/n", "new: dir .git/modules/n"},
		{"worktree", "echo >.git/worktrees/w/config.worktree", "new: file .git/worktrees/w/config.worktree"},
		{"pointer", "echo >>m/.git", "changed: file m/.git"},
		{"nested", "mkdir -p d/e/.git", "new: name d/e/.git"},
		{"case", "mkdir d/.Git", "new: name d/.Git"},
		{"bare", "mkdir d/objects d/refs; touch d/HEAD", "new: shape d"},
		{"bare inside", "mkdir -p .git/refs/x/objects .git/refs/x/refs; touch .git/refs/x/HEAD", "new: shape .git/refs/x"},
		{"link in logs", "ln -s /x .git/logs/l", "new: link .git/logs/l"},
		{"HEAD as a link", "ln -sf refs/heads/main .git/HEAD", "new: link .git/HEAD"},
		{"FIFO", "mkfifo .git/refs/heads/f", "new: special .git/refs/heads/f"},
		{"sequencer", "mkdir .git/rebase-merge", "new: dir .git/rebase-merge"},
		{"mask", "mkdir -p d/.vscode && echo >d/.vscode/tasks.json", "new: file d/.vscode/tasks.json"},
		{"setuid", "chmod 4755 f", "new: special f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := workspace(t)
			before, err := Guarded(dir)
			if err != nil {
				t.Fatal(err)
			}
			sh(t, dir, c.script)
			after, err := Guarded(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(after.Diff(before), "\n"); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("what git does", func(t *testing.T) {
		dir := workspace(t)
		before, err := Guarded(dir)
		if err != nil {
			t.Fatal(err)
		}
		sh(t, dir, "git switch -qc b; echo x >f; git commit -qam x; git stash; git tag t; git gc -q; git notes add -m n; git switch -q main; git merge -q b; git worktree list")
		after, err := Guarded(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := after.Diff(before); len(got) > 0 {
			t.Errorf("everyday git changed %q", got)
		}
	})
}

func TestGitLike(t *testing.T) {
	for name, want := range map[string]bool{
		".git": true, ".GIT": true, ".gIt": true, "git~1": true, "GIT~12": true, ".git ": true, ".git...": true, ".git::$INDEX_ALLOCATION": true, ".g\u200cit": true, ".git:x": true,
		".gitignore": false, ".github": false, "git": false, "git~": true, "git~x": false, "x.git": false, "": false,
	} {
		if got := GitLike(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestIndex(t *testing.T) {
	paths := []string{".git/config", ".git/hooks/post-checkout", "a", "d/long/name/of/a/file", "d/long/name/of/another"}
	for version := 2; version <= 4; version++ {
		var entries []Entry
		for _, p := range paths {
			entries = append(entries, Entry{Mode: 0o100644, ID: [20]byte{1}, Path: p, SkipWorktree: p == "a"})
		}
		data, err := EncodeIndex(version, entries)
		if err != nil {
			t.Fatal(err)
		}
		if got := IndexPaths(data); !slices.Equal(got, paths) {
			t.Errorf("version %d: %q", version, got)
		}
		dir := workspace(t)
		if err := os.WriteFile(filepath.Join(dir, ".git/index"), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(sh(t, dir, "git ls-files")); !slices.Equal(got, paths) {
			t.Errorf("git reads version %d as %q", version, got)
		}
	}
	if got := IndexPaths([]byte("DIRC\x00\x00\x00\x02\xff\xff\xff\xff")); got != nil {
		t.Errorf("from nothing: %q", got)
	}
}

func sh(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-eu", "-c", script)
	cmd.Dir, cmd.Env = dir, gitEnv()
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, errOut.String())
	}
	return string(out)
}

// A file that is opened before and written after, by whoever it was passed to.
func TestPass(t *testing.T) {
	mine, theirs, err := Socketpair()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = Peer(theirs) // ends with the socket
	}()
	defer func() {
		_ = mine.Close()
		<-ended
		_ = theirs.Close()
	}()
	dir := t.TempDir()
	m := NewMachine(dir, mine)
	defer m.Close()
	for _, op := range []Op{
		{Kind: "write", Path: "f", Text: "before"},
		{Kind: "open", Path: "f", Slot: 1},
		{Kind: "rename", Path: "f", To: "g"},
		{Kind: "pass", Slot: 1, Text: "after!"},
	} {
		if err := m.Do(op); err != nil {
			t.Fatalf("%s: %v", op, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "g")); err != nil || string(data) != "after!" {
		t.Errorf("%q, %v", data, err)
	}
}

func FuzzIndexPaths(f *testing.F) {
	data, err := EncodeIndex(4, []Entry{{Path: "a/b"}, {Path: "a/c"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(_ *testing.T, data []byte) { IndexPaths(data) })
}

// Directories that hold repositories may be renamed, what is in a repository not.
func TestFollow(t *testing.T) {
	for _, c := range []struct {
		name, script string
		harmless     bool
	}{
		{"nested repository renamed", "mv n d/n2", true},
		{"submodule renamed", "mv m m2", true},
		{"both exchanged", "mv n n2; mv m n; mv n2 m", true},
		{"both away", "mv n d/e/n; mv m d/m", true},
		{"renamed and changed", "mv n n2; echo >>n2/.git/config", false},
		{"renamed and replaced", "mv n n2; mkdir -p n/.git", false},
		{".git renamed", "mv n/.git n/g", false},
		{".git moved", "mv n/.git d/.git", false},
		{".git put back", "mv n/.git d/.git && mkdir n2 && mv d/.git n2/.git", false},
		{"removed", "rm -rf n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := workspace(t)
			before, err := Guarded(dir)
			if err != nil {
				t.Fatal(err)
			}
			d := driver{Options: Options{Workspace: dir}, guarded: before}
			sh(t, dir, c.script)
			changes, err := d.check()
			if err != nil || (len(changes) == 0) != c.harmless {
				t.Errorf("%q, %v", changes, err)
			}
		})
	}
}
