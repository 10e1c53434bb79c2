package review_test

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/review"
)

// bound runs f as somebody whom the modes of files bind, as they do not bind root.
func bound(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		defer close(done)      // also when f has ended the test
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var none [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A directory that the agent has made one that cannot be listed hides nothing: it is
// told, and what is in it stays to be told once it can be listed again.
func TestShutDirectory(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]os.FileMode{"entered only": 0o311, "closed": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTree(t, map[string]string{".vscode/settings.json": "{}", "pkg/x.go": "x"})
			tr.sh("mkdir -m 0311 before")
			chmod := func(name string, mode os.FileMode) {
				t.Helper()
				if err := os.Chmod(tr.path(name), mode); err != nil {
					t.Error(err)
				}
			}
			t.Cleanup(func() { chmod(".vscode", 0o755); chmod("pkg", 0o755); chmod("before", 0o755) })
			bound(t, func() {
				tr.begin()
				tr.wants()
				tr.write(".vscode/settings.json", "evil")
				tr.write("pkg/.envrc", "evil")
				chmod(".vscode", mode)
				chmod("pkg", mode)
				tr.wants("added .vscode (mode)", "added pkg (mode)")
				if err := review.End(t.Context(), tr.file, tr.options()); err == nil || !strings.Contains(err.Error(), ".vscode") {
					t.Errorf("the end of a session that hides something: %v", err)
				}
				tr.wants("added .vscode (mode)", "added pkg (mode)")
				tr.begin() // another session
				tr.wants("added .vscode (mode)", "added pkg (mode)")
				_ = review.End(t.Context(), tr.file, tr.options()) // as before
				chmod(".vscode", 0o755)
				chmod("pkg", 0o755)
				tr.wants("changed .vscode/settings.json (editor)", "added pkg/.envrc (shell)")
				tr.begin()
				tr.end()
				tr.wants("changed .vscode/settings.json (editor)", "added pkg/.envrc (shell)")
			})
		})
	}
}

// What the coordinator has seen is not forgotten where the developer cannot see it.
func TestShutAfterwards(t *testing.T) {
	t.Parallel()
	tr := newTree(t, map[string]string{".vscode/settings.json": "{}"})
	tr.begin()
	tr.write(".vscode/settings.json", "evil")
	if err := os.Chmod(tr.path(".vscode"), 0o311); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(tr.path(".vscode"), 0o755) })
	tr.end() // as root, whom no mode binds
	bound(t, func() { tr.wants("added .vscode (mode)") })
	tr.wants("changed .vscode/settings.json (editor)")
}

// Another user's directory that nobody else may enter is none: a data base's.
func TestOthersDirectoryIsQuiet(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a directory away")
	}
	tr := newTree(t, nil)
	tr.begin()
	tr.sh("mkdir -m 0700 data; chown 12345 data")
	bound(t, func() {
		r := tr.look()
		if len(r.Findings) > 0 || !slices.Equal(r.Unread, []string{"data"}) {
			t.Errorf("%+v", r)
		}
		tr.end()
	})
}
