package gitsentry

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A git that does not look at inode numbers finds that the host has packed its refs
// anew, though within the same second and in the same size: what the host has
// committed is not lost.
func TestHostsRefsPackedTwiceInASecond(t *testing.T) {
	w := newWorld(t, nil)
	host := func(args ...string) string { return strings.TrimSpace(w.git(w.host, args...)) }
	before := host("rev-parse", "main")
	packed := filepath.Join(w.host, ".git/packed-refs")
	moment := time.Now().Truncate(time.Second)
	pack := func() os.FileInfo {
		t.Helper()
		host("pack-refs", "--all")
		if err := os.Chtimes(packed, moment, moment); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(packed)
		if err != nil {
			t.Fatal(err)
		}
		return fi
	}
	first := pack()

	cmd := exec.CommandContext(t.Context(), "git", "-C", w.in, "-c", "core.checkStat=minimal", "-c", "safe.directory=*", "update-ref", "--stdin")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	transact := func(change string) (answer string) {
		t.Helper()
		if _, err := io.WriteString(in, "start\n"+change+"\nprepare\ncommit\n"); err != nil {
			return err.Error()
		}
		for range 3 {
			line, err := said.ReadString('\n')
			if err != nil {
				return answer
			}
			answer += line
		}
		return answer
	}
	const all = "start: ok\nprepare: ok\ncommit: ok\n"
	if got := transact("verify refs/heads/main " + before); got != all {
		t.Fatalf("before: %q", got)
	}
	host("commit", "-q", "--allow-empty", "-m", "the host's")
	theirs := host("rev-parse", "main")
	mine := host("commit-tree", "-p", before, "-m", "the sandbox's", before+"^{tree}")
	if second := pack(); second.Size() != first.Size() || !second.ModTime().Equal(first.ModTime()) {
		t.Fatalf("of %d bytes and %s, then of %d and %s", first.Size(), first.ModTime(), second.Size(), second.ModTime())
	}
	if got := transact("update refs/heads/main " + mine + " " + before); got == all {
		t.Error("the sandbox's git has not seen what the host has packed")
	}
	_ = in.Close()
	_ = cmd.Wait() // refused, and so failed
	if got := host("rev-parse", "main"); got != theirs {
		t.Errorf("main is %s, the host's commit %s lost", got, theirs)
	}
}
