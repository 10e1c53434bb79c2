// Package posix tests that a guarded workspace behaves as a file system where the
// same sandbox's plain bind does, with pjdfstest.
package posix

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

// intended lists assertions that plain runsc passes and the guard does not, with
// the reason: the test's file, then its number or * for all.
func intended() map[string]string {
	return map[string]string{}
}

// play runs the groups in a directory of the workspace and leaves the programs'
// words, with a line before each file's.
const play = `
	mkdir /workspace/under && cd /workspace/under
	for group in $1; do
		for file in /pjdfstest/tests/$group/*.t; do
			echo "@ ${file#/pjdfstest/tests/}"
			timeout 120 bash "$file" 2>/dev/null </dev/null
			rm -rf /workspace/under/* 2>/dev/null
		done
	done
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
	h := harness.New(t, harness.Options{})
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
	var results []map[string]bool
	for _, s := range []sides.Side{plain, lazaret} {
		s.Start(t, s.Name, "-v", dir+":/pjdfstest:ro", harness.Debian)
		results = append(results, passed(s.Exec(s.Name, "bash", "-c", play, "bash", groups).OK(t)))
	}
	var worse []string
	for name := range results[0] {
		file, _, _ := strings.Cut(name, " ")
		if !results[1][name] && intended()[name] == "" && intended()[file+" *"] == "" {
			worse = append(worse, name)
		}
	}
	slices.Sort(worse)
	t.Logf("%d assertions hold on plain runsc, %d in a guarded workspace", len(results[0]), len(results[1]))
	if len(results[0]) < 100 {
		t.Error("too few: pjdfstest does not run as it should here")
	}
	if len(worse) > 0 {
		t.Errorf("%d hold on plain runsc only:\n\t%s", len(worse), strings.Join(worse, "\n\t"))
	}
}
