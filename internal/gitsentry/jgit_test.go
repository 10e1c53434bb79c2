package gitsentry

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// JGit, of Debian's libjgit-java, works through the guard, and its work is the
// host's.
func TestJGit(t *testing.T) {
	jars := []string{"org.eclipse.jgit", "javaewah", "slf4j-api", "slf4j-nop", "jsch"}
	for i, name := range jars {
		jars[i] = "/usr/share/java/" + name + ".jar"
		if _, err := os.Stat(jars[i]); err != nil {
			t.Skip("needs Debian's libjgit-java: ", err)
		}
	}
	if _, err := exec.LookPath("javac"); err != nil {
		t.Skip("needs a JDK: ", err)
	}
	w := newWorld(t, nil)
	cmd := exec.CommandContext(t.Context(), "java", "-cp", strings.Join(jars, ":"), "-Duser.home=/nonexistent", "../../test/clients/jgit/Client.java", w.in)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, want := string(out), "log two\nlog one\ngc false\nclean true\n"; got != want {
		t.Errorf("JGit says\n%s", got)
	}
	if got := w.git(w.host, "log", "--format=%s"); got != "jgit topic\njgit one\ntwo\none\n" {
		t.Errorf("the host's log\n%s", got)
	}
	if got := w.git(w.host, "status", "--porcelain"); got != "" {
		t.Errorf("the host's status\n%s", got)
	}
	w.git(w.host, "rev-parse", "jgit-tag^{tag}", "stash@{0}")
	w.git(w.host, "fsck", "--strict")
	left, err := filepath.Glob(filepath.Join(w.host, ".git/*.lock*"))
	if err != nil || len(left) > 0 {
		t.Errorf("locks are left: %v, %v", left, err)
	}
}
