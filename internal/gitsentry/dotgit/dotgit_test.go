package dotgit_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/dotgit"
)

func TestIs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		".git": true, ".GIT": true, ".giT": true,
		".git ": true, ".git.": true, ".git. . .": true, ".GIT...": true,
		".git:": true, ".git::$INDEX_ALLOCATION": true, ".git . :x:$DATA": true, ".git:x y": true,
		"git~1": true, "GIT~1": true, "git~1. ": true, "Git~1:$DATA": true,
		`.git\config`: true, `a\.git`: true, `a\.GIT. \b`: true, `\git~1`: true, `a\b\git~1\c`: true, `.git\`: true,
		".g\u200cit": true, "\u200d.git": true, ".git\ufeff": true, "\u202a.\u202bG\u202ci\u202dt\u202e": true,
		".gi\u206at": true, ".git\u206f": true, ".\u200eg\u200fit": true,
		".git\xff": true, ".git\ufeff\xe2\x80": true, ".git\uffffa": true, // for HFS+ git stops reading there
		".g\u00adit": true, ".git\ufe0f": true, ".g\u2060it": true, ".g\u034fit": true, // ext4 with casefold
		".g\u0131t": true, ".g\u0130t": true, // a Turkish i

		"": false, ".": false, "..": false, "git": false, ".gi": false, ".gitt": false, "..git": false, " .git": false,
		".gitignore": false, ".gitmodules": false, ".git-x": false, ".git .x": false, ".gitx:": false, ".git_": false,
		"git~2": false, "git~10": false, "git~": false, "git~1x": false, "agit~1": false, "git1": false,
		`\`: false, `a\b`: false, `.gi\t`: false, `a\.gitx\b`: false, ":.git": false, "x:.git": false,
		"\u200c": false, ".g\u00ebit": false, ".g\xe2\x80it": false, ".gi\xfft": false, ".git\ufffd": false,
		".git\u00e9": false, "\uff0egit": false, ".\uff47it": false,
	} {
		if got := dotgit.Is(name); got != want {
			t.Errorf("Is(%q) = %t, want %t", name, got, want)
		}
		if got := dotgit.Is([]byte(name)); got != want {
			t.Errorf("Is([]byte(%q)) = %t, want %t", name, got, want)
		}
		if dotgit.IsGitmodules(name) && name != ".gitmodules" {
			t.Errorf("IsGitmodules(%q) = true", name)
		}
	}
}

func TestIsGitmodules(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		".gitmodules": true, ".GitModules": true, ".gitmodules ": true, ".gitmodules. .": true, ".gitmodules::$DATA": true,
		"gitmod~1": true, "GITMOD~4": true, "gitmod~2 .": true, "gitmod~1:x": true,
		"gi7eba~1": true, "GI7EBA~9": true, "gi7eb~10": true, "gi7e~123": true, "g~123456": true, "~1234567": true, "gi7eba~1 .:": true,
		`a\.gitmodules`: true, `a\gitmod~1`: true, `.gitmodules\a`: true,
		".git\u200cmodules": true, "\ufeff.GITMODULES\u200d": true, ".gitmodule\u017f": true, ".gitmodules\xff": true,

		"": false, ".git": false, ".gitmodule": false, ".gitmodulesx": false, "gitmodules": false, ".gitmodules .x": false,
		"gitmod~5": false, "gitmod~0": false, "gitmod~": false, "gitmod~12": false, "gi7eba~0": false, "gi7eba~10": false,
		"gi7ebb~1": false, "gi7eb~1": false, "gi7eb~01": false, "gi7eb~1x": false, "~0123456": false, "~123456": false,
		"gi7eba1~": false, "gi7eba~1x": false, "gi7eba\xff1": false,
	} {
		if got := dotgit.IsGitmodules(name); got != want {
			t.Errorf("IsGitmodules(%q) = %t, want %t", name, got, want)
		}
		if got := dotgit.IsGitmodules([]byte(name)); got != want {
			t.Errorf("IsGitmodules([]byte(%q)) = %t, want %t", name, got, want)
		}
	}
}

// Everything that git refuses has to be refused. Where Is goes beyond git, the
// reason is one of those that the test can see.
func TestAgreesWithGit(t *testing.T) {
	t.Parallel()
	var names []string
	for _, stem := range []string{".git", "git~1", "git~2", ".gitmodules", "gitmod~1", "gitmod~4", "gitmod~5", "gi7eba~1", "gi7eb~10", "gi7e~0123", "~1234567", ".gitignore", "x"} {
		for _, head := range []string{"", " ", ".", "x", `\`, `x\`, `.git\`, "\u200c", "\ufeff", "\xff", ":"} {
			for _, tail := range []string{"", " ", ".", ". .", ":", "::$INDEX_ALLOCATION", " :x", "x", ".x", "~1", `\`, `\x`, `.\x`, "\u200c", "\u206f", "\u2070", "\xff", "\xe2\x80", "\uffff", "\u00ad", "\u00e9", "\U0001f600"} {
				names = append(names, head+stem+tail, head+strings.ToUpper(stem)+tail)
			}
		}
	}
	for r := rune(0x2000); r < 0x2080; r++ {
		names = append(names, ".g"+string(r)+"it", ".gitm"+string(r)+"odules")
	}
	slices.Sort(names)
	names = slices.Compact(names)

	// HFS+ and NTFS are both on, as git's fsck has it for every host.
	refusedFile, refusedLink := refusedByGit(t, names, "100644"), refusedByGit(t, names, "120000")
	refused, accepted := 0, 0
	for _, name := range names {
		is := dotgit.Is(name)
		if refusedFile[name] {
			refused++
		} else {
			accepted++
		}
		if is != refusedFile[name] && (!is || !beyondGit(name)) {
			t.Errorf("Is(%q) = %t, git refuses: %t", name, is, refusedFile[name])
		}
		bad := is || dotgit.IsGitmodules(name)
		// git looks for .gitmodules behind a backslash, not before one.
		if bad != refusedLink[name] && (!bad || !beyondGit(name) && !strings.Contains(name, `\`)) {
			t.Errorf("symbolic link %q: refused %t, git refuses: %t", name, bad, refusedLink[name])
		}
	}
	if refused < 100 || accepted < 100 {
		t.Errorf("git refused %d names and accepted %d: this compares nothing", refused, accepted)
	}
}

// beyondGit tells whether name has what only Is takes seriously: a code point that
// ext4 ignores and HFS+ does not, or a backslash as its first byte, which git skips.
func beyondGit(name string) bool {
	return strings.HasPrefix(name, `\`) || strings.ContainsFunc(name, func(r rune) bool {
		return r == 0xad || r == 0x200b || 0x2060 <= r && r <= 0x2069
	})
}

// refusedByGit asks git which of names it would not take into an index.
func refusedByGit(t *testing.T, names []string, mode string) map[string]bool {
	t.Helper()
	dir := t.TempDir()
	git := func(stdin []byte, args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "core.protectNTFS=true", "-c", "core.protectHFS=true"}, args...)...)
		cmd.Stdin = bytes.NewReader(stdin)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %s: %v: %s", args, err, stderr.Bytes())
		}
		return out
	}
	git(nil, "init", "-q")
	var in bytes.Buffer
	for _, name := range names {
		fmt.Fprintf(&in, "%s %040d\t%s\x00", mode, 1, name)
	}
	git(in.Bytes(), "update-index", "-z", "--index-info") // ignores, with a message, what it refuses
	refused := map[string]bool{}
	for _, name := range names {
		refused[name] = true
	}
	for name := range strings.SplitSeq(string(git(nil, "ls-files", "-z", "--cached")), "\x00") {
		delete(refused, name)
	}
	return refused
}

func FuzzIs(f *testing.F) {
	for _, seed := range []string{".git", "git~1", `a\.git. :x`, ".g\u200cit", ".gitmodules", "gi7eba~1", "\xff", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		is, mod := dotgit.Is(name), dotgit.IsGitmodules(name)
		if is != dotgit.Is([]byte(name)) || mod != dotgit.IsGitmodules([]byte(name)) {
			t.Errorf("%q: text and bytes differ", name)
		}
		// What means the same to a file system has the same answer.
		if is && (!dotgit.Is("\u200c"+name) && !strings.ContainsAny(name, `\~:. `)) {
			t.Errorf("%q is one, but not behind an ignorable code point", name)
		}
		if is && !dotgit.Is(`x\`+name) && !strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f }) {
			t.Errorf("%q is one, but not behind a backslash", name)
		}
		if is && utf8.ValidString(name) && !dotgit.Is(strings.ToUpper(name)) {
			t.Errorf("%q is one, but not in upper case", name)
		}
	})
}
