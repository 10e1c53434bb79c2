// Package posix tests that a guarded workspace behaves as a file system where the
// same sandbox's plain bind does, with pjdfstest: in gVisor, and with runc, where
// nothing stands between the tests and the guard.
package posix

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/git/sides"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// sourceEnv is a checkout of pjdfstest, which no package has; groupsEnv narrows its
// groups of tests.
const (
	sourceEnv = "LAZARET_PJDFSTEST"
	groupsEnv = "LAZARET_PJDFSTEST_GROUPS"
)

const everyGroup = "chmod chown ftruncate link mkdir mkfifo mknod open rename rmdir symlink truncate unlink utimensat"

// features are what configure finds on Linux.
const features = "-D_GNU_SOURCE -DHAVE_SYS_SYSMACROS_H -DHAVE_FCHMODAT -DHAVE_FCHOWNAT -DHAVE_FSTATAT -DHAVE_LINKAT " +
	"-DHAVE_MKDIRAT -DHAVE_MKFIFOAT -DHAVE_MKNODAT -DHAVE_OPENAT -DHAVE_POSIX_FALLOCATE -DHAVE_RENAMEAT -DHAVE_SYMLINKAT -DHAVE_UNLINKAT " +
	"-DHAVE_UTIMENSAT -DHAVE_STRUCT_STAT_ST_ATIM -DHAVE_STRUCT_STAT_ST_CTIM -DHAVE_STRUCT_STAT_ST_MTIM"

// intended lists assertions that a plain bind passes and the guard does not, with
// the reason: the test's file, then its number or * for all.
func intended() map[string]string {
	return map[string]string{
		"chmod/00.t 113": "set-id bits are left out: they would be of use on the host only",
	}
}

// play runs a group in a directory of the workspace and leaves the programs' words,
// with a line before each file's.
const play = `
	mkdir /workspace/under && cd /workspace/under
	for file in /pjdfstest/tests/$1/*.t; do
		echo "@ ${file#/pjdfstest/tests/}"
		timeout 600 sh "$file" 2>/dev/null </dev/null
	done
	rm -rf /workspace/under
`

var (
	assertion = regexp.MustCompile(`^(not ok|ok) (\d+)`)
	plan      = regexp.MustCompile(`^1\.\.(\d+)`)
)

// passed reads what holds: "group/file number".
func passed(out string) map[string]bool {
	ok := map[string]bool{}
	file := ""
	for line := range strings.Lines(out) {
		if name, is := strings.CutPrefix(line, "@ "); is {
			file = strings.TrimSpace(name)
		} else if m := assertion.FindStringSubmatch(line); m != nil && m[1] == "ok" {
			ok[file+" "+m[2]] = true
		} else if m := plan.FindStringSubmatch(line); m != nil {
			ok[file+" plan "+m[1]] = true
		}
	}
	return ok
}

func TestPjdfstest(t *testing.T) {
	source := os.Getenv(sourceEnv)
	if source == "" {
		t.Skipf("%s names no checkout of pjdfstest", sourceEnv)
	}
	groups := os.Getenv(groupsEnv)
	if groups == "" {
		groups = everyGroup
	}
	for name, sandbox := range map[string]string{"runsc": harness.SandboxCurrent, "runc": harness.SandboxRunc} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pjdfstest(t, harness.New(t, harness.Options{Sandbox: sandbox}), source, groups)
		})
	}
}

func pjdfstest(t *testing.T, h *harness.Harness, source, groups string) {
	t.Helper()
	dir := filepath.Join(h.Dir, "pjdfstest")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.h"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-static", "-O1", "-w", "-I", dir, "-o", filepath.Join(dir, "pjdfstest")}, strings.Fields(features)...)
	for _, c := range [][]string{
		append(append([]string{"cc"}, args...), filepath.Join(source, "pjdfstest.c"), "-lpthread"),
		{"cp", "-a", filepath.Join(source, "tests"), dir},
	} {
		if out, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", c, err, out)
		}
	}
	plain, lazaret := sides.Both(t, h, "ws", `git init -q -b main`)
	both := []sides.Side{plain, lazaret}
	for _, s := range both {
		s.Start(t, s.Name, "-v", dir+":/pjdfstest:ro", harness.Debian)
	}
	held := 0
	for group := range strings.FieldsSeq(groups) {
		t.Run(group, func(t *testing.T) {
			out := make([]harness.Result, len(both))
			var all sync.WaitGroup
			for i, s := range both {
				all.Go(func() { out[i] = s.Exec(s.Name, "sh", "-c", play, "sh", group) })
			}
			all.Wait()
			was, is := passed(out[0].OK(t)), passed(out[1].OK(t))
			held += len(was)
			compare(t, was, is)
		})
	}
	if held < 50 {
		t.Errorf("%d assertions hold without the guard: pjdfstest does not run as it should here", held)
	}
}

// compare fails the test for what holds without the guard only.
func compare(t *testing.T, plain, guarded map[string]bool) {
	t.Helper()
	var worse []string
	for name := range plain {
		file, _, _ := strings.Cut(name, " ")
		if !guarded[name] && intended()[name] == "" && intended()[file+" *"] == "" {
			worse = append(worse, name)
		}
	}
	slices.Sort(worse)
	t.Logf("%d assertions hold on a plain bind, %d in a guarded workspace", len(plain), len(guarded))
	if len(worse) > 0 {
		t.Errorf("%d hold on a plain bind only:\n\t%s", len(worse), strings.Join(worse, "\n\t"))
	}
}
