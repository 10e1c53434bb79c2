package early

import (
	"strings"
	"syscall"
	"testing"
)

// callOf is a call as the kernel would hand it over.
func callOf(t *testing.T, args, env []string) *call {
	t.Helper()
	list := func(all []string) *words {
		var out words
		for i, s := range all {
			p, err := syscall.BytePtrFromString(s)
			if err != nil {
				t.Fatal(err)
			}
			out[i] = p
		}
		return &out
	}
	return &call{argc: len(args), argv: list(args), envp: list(env)}
}

func gitCallOf(t *testing.T, args, env []string) *gitCall {
	t.Helper()
	c := callOf(t, args, env)
	g := &gitCall{call: c, gitDir: c.getenv("GIT_DIR=")}
	g.options()
	return g
}

func TestKind(t *testing.T) {
	tests := []struct {
		args string
		want kind
	}{
		{"", harmless},
		{"--version", harmless},
		{"--no-pager log -p", harmless},
		{"-c a.b=c -C dir --git-dir x status", harmless},
		{"-C status commit", mayWrite},
		{"commit -m status", mayWrite},
		{"statusx", mayWrite},
		{"config a.b c", mayWrite},
		{"remote add x y", mayWrite},
		{"remote -v rm x", wouldWriteConfig},
		{"remote remove x", wouldWriteConfig},
		{"push", mayWrite},
		{"push -u origin x", wouldWriteConfig},
		{"push -fu origin x", wouldWriteConfig},
		{"push --set-up origin x", wouldWriteConfig},
		{"push -o u origin x", mayWrite},
		{"push -ou origin x", mayWrite},
		{"push origin -- -u", mayWrite},
		{"push --set-upstream-to origin x", mayWrite},
		{"pull --set-upstream origin x", wouldWriteConfig},
		{"fetch -u origin x", mayWrite},
		{"branch x", mayTrack},
		{"branch -D x", mayTrack},
		{"branch --merged", mayTrack},
		{"branch --contains x", mayTrack},
		{"branch -m y", wouldWriteConfig},
		{"branch -M x y", wouldWriteConfig},
		{"branch --move x y", wouldWriteConfig},
		{"branch --copy x y", wouldWriteConfig},
		{"branch -ft x origin/x", wouldWriteConfig},
		{"branch -um x", wouldWriteConfig},
		{"branch --set-upstream-to=o/x", wouldWriteConfig},
		{"branch --unset-upstream x", wouldWriteConfig},
		{"branch --sort=x", mayTrack},
		{"branch --show-current", mayTrack},
		{"checkout x", mayTrack},
		{"checkout -btrack", mayTrack},
		{"checkout --no-track -b x y", mayTrack},
		{"checkout --track=direct -b x y", wouldWriteConfig},
		{"switch -t origin/x", wouldWriteConfig},
		{"worktree add --track -b x ../y origin/x", wouldWriteConfig},
		{"worktree add ../y", mayTrack},
		{"submodule add URL", wouldWriteConfig},
		{"submodule --quiet add URL", wouldWriteConfig},
		{"submodule update --init", mayWrite},
		{"sparse-checkout disable", wouldWriteConfig},
		{"sparse-checkout set a", mayWrite},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			if got := gitCallOf(t, append([]string{"git"}, strings.Fields(tt.args)...), nil).kind(); got != tt.want {
				t.Errorf("kind %d, want %d", got, tt.want)
			}
		})
	}
}

func FuzzGitCall(f *testing.F) {
	f.Add("git\x00-C\x00x\x00push\x00-fu", "PATH=/bin\x00GIT_DIR=x")
	f.Add("git\x00-C", "")
	f.Add("git\x00--git-dir", "A")
	f.Fuzz(func(t *testing.T, args, env string) {
		list := strings.Split(args, "\x00")
		list[0] = "git"
		c := gitCallOf(t, list, strings.Split(env, "\x00"))
		if c.verb >= len(list) {
			t.Errorf("verb %d of %d words", c.verb, len(list))
		}
		c.kind()
		c.word()
	})
}
