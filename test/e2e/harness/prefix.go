package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// prefixEnv names an installation of this checkout that was made for the tests
// (test/scripts/with-prefix.sh); without it the harness makes one.
const prefixEnv = "LAZARET_TEST_PREFIX"

// prefix is the installation of this process's tests, made once.
var prefix struct {
	once sync.Once
	dir  string
	made bool // by us, so ours to remove
	err  error
}

func makePrefix() (dir string, made bool, err error) {
	if dir := os.Getenv(prefixEnv); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "bin/lazaret")); err != nil {
			return "", false, fmt.Errorf("%s=%s holds no installation: %w", prefixEnv, dir, err)
		}
		return dir, false, nil
	}
	repo, err := repository()
	if err != nil {
		return "", false, err
	}
	dir, err = os.MkdirTemp("/var/tmp", "lazaret-prefix.")
	if err != nil {
		return "", false, err
	}
	// The test user must be able to run what is in it.
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", "-s", "-C", repo, "install", "DESTDIR=", "PREFIX="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", false, errors.Join(fmt.Errorf("make install: %w: %s", err, out), os.RemoveAll(dir))
	}
	return dir, true, nil
}

// Prefix is the installation that the tests run: Prefix/bin/lazaret and so on.
func Prefix(t testing.TB) string {
	t.Helper()
	prefix.once.Do(func() { prefix.dir, prefix.made, prefix.err = makePrefix() })
	if prefix.err != nil {
		t.Fatal(prefix.err)
	}
	return prefix.dir
}

// Main is what a package's TestMain returns to os.Exit. It removes the
// installation that the tests made and fails the run when one of our programs
// outlives them.
func Main(m *testing.M) int {
	flag.Parse()
	code := m.Run()
	// An installation that others share is with-prefix.sh's to check and remove.
	if !prefix.made {
		return code
	}
	dir := prefix.dir
	deadline := time.Now().Add(settleTime)
	left := running(dir)
	for len(left) > 0 && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
		left = running(dir)
	}
	if len(left) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: left running after the last test:\n\t%s\n", strings.Join(left, "\n\t"))
		code = max(code, 1)
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}
