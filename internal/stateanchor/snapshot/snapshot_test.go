package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/stateanchor/tree"
	"github.com/lazaret-dev/lazaret/test/overlay"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// change makes changes that all say one word.
func change(t *testing.T, root, word string) {
	t.Helper()
	for _, name := range []string{"usr_changes/bin/x", "etc_changes/x", "var_lib_changes/deep/er/x", "usr_work/work/x", "state.json"} {
		write(t, filepath.Join(root, name), word)
	}
}

// state is what the changes say, "" for none; it fails the test for a mixture.
func state(t *testing.T, root string) string {
	t.Helper()
	var words []string
	for _, name := range []string{"usr_changes/bin/x", "etc_changes/x", "var_lib_changes/deep/er/x", "state.json"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		words = append(words, string(data))
	}
	if len(slices.Compact(slices.Clone(words))) != 1 {
		t.Fatalf("a mixture: %q", words)
	}
	return words[0]
}

// entries lists what is in a Domain Root beside the changes.
func entries(t *testing.T, root string) string {
	t.Helper()
	all, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		if part, kept := item(e.Name()); !part || !kept {
			names = append(names, e.Name())
		}
	}
	return strings.Join(names, " ")
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "domain.json"), "{}")
	ctx := t.Context()
	if _, err := Make(ctx, root, "a", nil); !errors.Is(err, ErrNone) {
		t.Errorf("of nothing: %v", err)
	}
	change(t, root, "one")
	var last tree.Stats
	i, err := Make(ctx, root, "a", func(s tree.Stats) { last = s })
	if err != nil || i.Files != 6 || last.Files != 6 {
		t.Fatalf("%+v, %+v, %v", i, last, err)
	}
	if _, err := Make(ctx, root, "a", nil); err == nil || !strings.Contains(err.Error(), "state rm a") {
		t.Errorf("twice: %v", err)
	}
	change(t, root, "two")
	if _, err := SetAside(ctx, root, "b"); err != nil {
		t.Fatal(err)
	}
	if state(t, root) != "" || state(t, Path(root, "b")) != "two" || state(t, Path(root, "a")) != "one" {
		t.Error("after setting aside")
	}
	if _, err := os.Lstat(filepath.Join(Path(root, "b"), "usr_work")); err == nil {
		t.Error("the driver's own is in the snapshot")
	}
	for range 2 {
		if err := Restore(ctx, root, "a", nil); err != nil || state(t, root) != "one" {
			t.Error(err)
		}
	}
	all, err := List(root)
	if err != nil || len(all) != 2 || all[0].Name != "a" || all[1].Name != "b" || all[1].Bytes == 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := TakeBack(ctx, root, "b"); err != nil || state(t, root) != "two" {
		t.Error(err)
	}
	if _, err := Get(root, "b"); !errors.Is(err, ErrNone) {
		t.Errorf("taken back: %v", err)
	}
	for what, err := range map[string]error{
		"restore": Restore(ctx, root, "none", nil), "remove": Remove(ctx, root, "none"), "take": TakeBack(ctx, root, "none"),
		"path": Restore(ctx, root, "../a", nil), "path to remove": Remove(ctx, root, "../domain.json"), "dots": Remove(ctx, root, ".."),
	} {
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := Remove(ctx, root, "a"); err != nil {
		t.Error(err)
	}
	if err := Reset(ctx, root); err != nil || state(t, root) != "" {
		t.Error(err)
	}
	if got := entries(t, root); got != "domain.json snapshots" {
		t.Errorf("left: %s", got)
	}
	for _, name := range []string{"", ".", "..", ".making", "a/b", "-a", "a b", "a\n", strings.Repeat("a", 65)} {
		if CheckName(name) == nil {
			t.Errorf("name %q", name)
		}
	}
}

// Without room nothing is half made, and a reset makes room.
func TestFullDisk(t *testing.T) {
	if !overlay.Inside(t) {
		return
	}
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	ctx := t.Context()
	change(t, root, "one")
	write(t, filepath.Join(root, "usr_changes/large"), strings.Repeat("x", 400<<10))
	if _, err := Make(ctx, root, "a", nil); err != nil {
		t.Fatal(err)
	}
	before := entries(t, root)
	_, making := Make(ctx, root, "b", nil)
	for what, err := range map[string]error{"snapshot": making, "restore": Restore(ctx, root, "a", nil)} {
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := Recover(ctx, root); err != nil || state(t, root) != "one" || entries(t, root) != before {
		t.Errorf("after both: %v, %s", err, entries(t, root))
	}
	fill, err := os.Create(filepath.Join(root, "fill"))
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := Reset(ctx, root); err != nil || state(t, root) != "" || state(t, Path(root, "a")) != "one" {
		t.Errorf("reset: %v", err)
	}
	if got := entries(t, root); got != "fill snapshots" {
		t.Errorf("left: %s", got)
	}
}

const killEnv = "LAZARET_TEST_SNAPSHOT"

// TestWork is what TestKilled kills: exchanges without an end.
func TestWork(t *testing.T) {
	if os.Getenv(killEnv) == "" {
		t.Skip("only for TestKilled")
	}
	root := "." // TestKilled starts it there
	ctx := context.WithoutCancel(t.Context())
	fmt.Println("working")
	for n := 0; ; n++ {
		for _, err := range []error{
			Restore(ctx, root, "a", nil), Reset(ctx, root), Restore(ctx, root, "b", nil), Restore(ctx, root, "a", nil),
			func() error { _, err := SetAside(ctx, root, "aside"); return err }(), TakeBack(ctx, root, "aside"),
			func() error { _, err := Make(ctx, root, "copy", nil); return err }(), Remove(ctx, root, "copy"),
		} {
			if err != nil && n > 0 { // the first round begins anywhere
				t.Fatal(err)
			}
		}
	}
}

// A kill at any moment leaves one state or the other, and every snapshot whole.
func TestKilled(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, word := range []string{"a", "b"} {
		change(t, root, word)
		if _, err := Make(t.Context(), root, word, nil); err != nil {
			t.Fatal(err)
		}
	}
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)) //nolint:gosec // a test's
	seen := map[string]int{}
	for range 25 {
		kill(t, rnd, root)
		if err := Recover(t.Context(), root); err != nil {
			t.Fatal(err)
		}
		seen[state(t, root)]++
		if got := entries(t, root); got != "snapshots" && got != "snapshots usr_work" {
			t.Fatalf("left: %s", got)
		}
		all, err := List(root)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, i := range all {
			names = append(names, i.Name)
			word := state(t, Path(root, i.Name))
			if word == "" || len(i.Name) == 1 && word != i.Name {
				t.Fatalf("snapshot %s says %q", i.Name, word)
			}
		}
		if !slices.Contains(names, "a") || !slices.Contains(names, "b") {
			t.Fatalf("snapshots: %q", names)
		}
		// Nothing is lost: what was set aside is there, or in its place again.
		for _, extra := range []string{"aside", "copy"} {
			if slices.Contains(names, extra) {
				if err := Remove(t.Context(), root, extra); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := Restore(t.Context(), root, "b", nil); err != nil || state(t, root) != "b" {
			t.Fatal(err)
		}
	}
	t.Logf("states after a kill: %v", seen)
}

func kill(t *testing.T, rnd *rand.Rand, root string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestWork$") //nolint:gosec // this very test
	cmd.Env, cmd.Dir = append(os.Environ(), killEnv+"=1"), root
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "working\n" {
		t.Fatalf("%q, %v", line, err)
	}
	time.Sleep(time.Duration(rnd.IntN(120)) * time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal("it has ended by itself")
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.String() != "signal: killed" {
		t.Fatalf("ended: %v", err)
	}
}
