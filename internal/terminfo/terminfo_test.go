package terminfo

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// compile makes an entry: the names, one flag, one number, one string.
func compile(names string, long bool) []byte {
	text := append([]byte(names), 0)
	data := make([]byte, headerSize)
	magic := uint16(magicShort)
	if long {
		magic = magicLong
	}
	for i, v := range []uint16{magic, uint16(len(text)), 1, 1, 1, 3} {
		binary.LittleEndian.PutUint16(data[2*i:], v)
	}
	data = append(append(data, text...), 1)
	if len(data)%2 == 1 {
		data = append(data, 0)
	}
	data = append(data, 80, 0)
	if long {
		data = append(data, 0, 0)
	}
	return append(append(data, 0, 0), "\x1bc\x00"...)
}

func put(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

// Names that no machine has, so that the host's own entries do not interfere.
const term = "lztest-term"

func TestFind(t *testing.T) {
	entry := compile(term+"|lzalias|a test terminal", false)
	tests := []struct {
		name  string
		term  string
		where string // below the temporary directory, which is also HOME
		data  []byte
		env   map[string]string // $D is the temporary directory
	}{
		{name: "TERMINFO", where: "ti/l/" + term, env: map[string]string{"TERMINFO": "$D/ti"}},
		{name: "TERMINFO by hexadecimal letter", where: "ti/6c/" + term, env: map[string]string{"TERMINFO": "$D/ti"}},
		{name: "numbers of 32 bits", where: "ti/l/" + term, data: compile(term, true), env: map[string]string{"TERMINFO": "$D/ti"}},
		{name: "home", where: ".terminfo/l/" + term},
		{name: "the second of TERMINFO_DIRS", where: "b/l/" + term, env: map[string]string{"TERMINFO_DIRS": "$D/a:$D/b"}},
		{name: "TERMINFO_DIRS with empty elements", where: "b/l/" + term, env: map[string]string{"TERMINFO_DIRS": "::$D/b:"}},
		{name: "an alias with a file of its own", term: "lzalias", where: ".terminfo/l/lzalias"},
		{
			name: "an alias filed by the first name only", term: "xterm-lztest", where: ".terminfo/l/lztest",
			data: compile("lztest|xterm-lztest|test", false),
		},
		{name: "Kitty's folder", where: "kitty/terminfo/l/" + term, env: map[string]string{"KITTY_INSTALLATION_DIR": "$D/kitty"}},
		{name: "Ghostty's folder", where: "share/terminfo/l/" + term, env: map[string]string{"GHOSTTY_RESOURCES_DIR": "$D/share/ghostty"}},
		{name: "a data directory", where: "data/terminfo/l/" + term, env: map[string]string{"XDG_DATA_DIRS": "relative:$D/data"}},
		{name: "Kitty's own installer", where: ".local/kitty.app/share/terminfo/l/" + term},
		{name: "a Nix profile", where: ".nix-profile/share/terminfo/l/" + term},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.term == "" {
				tt.term = term
			}
			if tt.data == nil {
				tt.data = entry
			}
			vars := map[string]string{}
			for k, v := range tt.env {
				vars[k] = strings.ReplaceAll(v, "$D", dir)
			}
			if _, err := Find(tt.term, env(vars), dir); !errors.Is(err, ErrNotFound) {
				t.Fatalf("found before it was there: %v", err)
			}
			put(t, dir, tt.where, tt.data)
			got, err := Find(tt.term, env(vars), dir)
			if err != nil {
				t.Fatal(err)
			}
			if got.Path != filepath.Join(dir, tt.where) || got.Name != tt.term || string(got.data) != string(tt.data) {
				t.Errorf("got %s at %s", got.Name, got.Path)
			}
		})
	}
}

func TestFindInTheVariableItself(t *testing.T) {
	entry := compile(term, false)
	for name, value := range map[string]string{
		"hexadecimal": "hex:" + hex.EncodeToString(entry),
		"base64":      "b64:" + base64.StdEncoding.EncodeToString(entry),
		"base64url":   "b64:" + base64.RawURLEncoding.EncodeToString(entry),
	} {
		got, err := Find(term, env(map[string]string{"TERMINFO": value}), "")
		if err != nil || string(got.data) != string(entry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, value := range []string{"hex:zz", "b64:!!", "hex:", "hex:" + strings.Repeat("00", maxEntry+1), "b64:" + base64.StdEncoding.EncodeToString([]byte("no entry at all"))} {
		if _, err := Find(term, env(map[string]string{"TERMINFO": value}), ""); !errors.Is(err, ErrNotFound) {
			t.Errorf("%.20s: %v", value, err)
		}
	}
}

func TestFindOrder(t *testing.T) {
	dir := t.TempDir()
	vars := env(map[string]string{"TERMINFO": dir + "/a", "TERMINFO_DIRS": dir + "/c"})
	for _, where := range []string{"c/l/" + term, ".terminfo/l/" + term, "a/l/" + term} {
		put(t, dir, where, compile(term, false))
		got, err := Find(term, vars, dir)
		if err != nil || got.Path != filepath.Join(dir, where) {
			t.Errorf("%s is not preferred: %s, %v", where, got.Path, err)
		}
	}
	// A broken file does not end the search.
	put(t, dir, "a/l/"+term, []byte("broken"))
	if got, err := Find(term, vars, dir); err != nil || got.Path != filepath.Join(dir, ".terminfo/l", term) {
		t.Errorf("a broken entry: %s, %v", got.Path, err)
	}
}

// TERM comes from the container's environment, so from anybody.
func TestFindHostileNames(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "secret", compile("x|..|../secret", false))
	for _, name := range []string{
		"", "../secret", "..", ".", "/etc/passwd", "a/b", ".hidden", "-x", "+x", "a b", "a\x00b", "a\nb", "a|b", "a:b", "ä",
		strings.Repeat("x", 65), "xterm-/../../secret", "a\\b", "$HOME", "%2e%2e",
	} {
		if _, err := Find(name, env(map[string]string{"TERMINFO": dir + "/ti"}), dir); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", name, err)
		} else if strings.ContainsAny(err.Error(), "\x00\n") {
			t.Errorf("%q is repeated raw", name)
		}
		if err := Install(t.TempDir(), name, env(nil), dir); !errors.Is(err, ErrNotFound) {
			t.Errorf("install %q: %v", name, err)
		}
	}
}

func TestFindPassesOverWhatIsNoEntry(t *testing.T) {
	good := compile(term, false)
	tests := []struct {
		name string
		make func(t *testing.T, file string)
	}{
		{"a script", func(t *testing.T, file string) { put(t, "/", file, []byte("#!/bin/sh\n"+term)) }},
		{"an empty file", func(t *testing.T, file string) { put(t, "/", file, nil) }},
		{"a cut-off entry", func(t *testing.T, file string) { put(t, "/", file, good[:len(good)-1]) }},
		{"a large file", func(t *testing.T, file string) {
			put(t, "/", file, good)
			if err := os.Truncate(file, maxEntry+1); err != nil {
				t.Fatal(err)
			}
		}},
		{"a directory", func(t *testing.T, file string) {
			if err := os.MkdirAll(file, 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		{"a FIFO", func(t *testing.T, file string) {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(file, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"a hashed database in the directory's place", func(t *testing.T, file string) {
			put(t, "/", filepath.Dir(filepath.Dir(file)), []byte("\x00\x06\x15\x61"))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.make(t, filepath.Join(dir, "ti/l", term))
			if _, err := Find(term, env(map[string]string{"TERMINFO": dir + "/ti"}), ""); !errors.Is(err, ErrNotFound) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// xterm-NAME may be filed as NAME, but only an entry that says so is it.
func TestFindShortNameOfAnotherTerminal(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, ".terminfo/l/lztest", compile("lztest|xterm-lztest2", false))
	if e, err := Find("xterm-lztest", env(nil), dir); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %s, %v", e.Path, err)
	}
}

func TestInstall(t *testing.T) {
	home, dst := t.TempDir(), t.TempDir()
	entry := compile(term+"|lzalias|test", false)
	put(t, home, "real/entry", entry)
	if err := os.MkdirAll(filepath.Join(home, ".terminfo/l"), 0o755); err != nil {
		t.Fatal(err)
	}
	// Distributions link aliases, across directories too.
	if err := os.Symlink("../../real/entry", filepath.Join(home, ".terminfo/l/lzalias")); err != nil {
		t.Fatal(err)
	}
	put(t, home, ".terminfo/x/"+Fallback, compile(Fallback, false))
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for range 2 { // twice: over what is there
		if err := Install(dst, "lzalias", env(nil), home); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]byte{
		"l/lzalias": entry, "6c/lzalias": entry,
		"x/" + Fallback: compile(Fallback, false), "78/" + Fallback: compile(Fallback, false),
	} {
		full := filepath.Join(dst, name)
		got, err := os.ReadFile(full)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		info, err := os.Lstat(full)
		if err != nil || info.Mode() != 0o644 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
		if info, err = os.Stat(filepath.Dir(full)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("folder of %s: mode %v, %v", name, info.Mode(), err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dst, "*/.*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestInstallWithoutAnEntry(t *testing.T) {
	home, dst := t.TempDir(), t.TempDir()
	put(t, home, ".terminfo/x/"+Fallback, compile(Fallback, false))
	err := Install(dst, term, env(nil), home)
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), term) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dst, "x", Fallback)); err != nil {
		t.Error("the fallback is missing:", err)
	}
}

// Links in dst lead nowhere, whoever put them there.
func TestInstallFollowsNoLinks(t *testing.T) {
	home, outside := t.TempDir(), t.TempDir()
	put(t, home, ".terminfo/l/"+term, compile(term, false))
	victim := filepath.Join(outside, "victim")
	put(t, "/", victim, []byte("precious"))

	t.Run("the file is a link", func(t *testing.T) {
		dst := t.TempDir()
		if err := os.Mkdir(filepath.Join(dst, "l"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, filepath.Join(dst, "l", term)); err != nil {
			t.Fatal(err)
		}
		if err := Install(dst, term, env(nil), home); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(filepath.Join(dst, "l", term)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the link is still there: %v", err)
		}
	})
	t.Run("the folder is a link", func(t *testing.T) {
		dst := t.TempDir()
		if err := os.Symlink(outside, filepath.Join(dst, "l")); err != nil {
			t.Fatal(err)
		}
		if err := Install(dst, term, env(nil), home); err == nil {
			t.Error("written through it")
		}
	})
	t.Run("dst is a link", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "dst")
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
		if err := Install(link, term, env(nil), home); err == nil {
			t.Error("written through it")
		}
	})
	if got, err := os.ReadFile(victim); err != nil || string(got) != "precious" {
		t.Errorf("the victim became %q, %v", got, err)
	}
	if all, err := os.ReadDir(outside); err != nil || len(all) != 1 {
		t.Errorf("outside: %v, %v", all, err)
	}
}

// Every entry of this machine parses, and ncurses reads what Install wrote.
func TestAgainstTheHost(t *testing.T) {
	seen := 0
	for _, dir := range systemDirs() {
		files, err := filepath.Glob(filepath.Join(dir, "?", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := readEntry(file)
			if err != nil {
				continue // a dangling link
			}
			seen++
			names, err := parseNames(data)
			if err != nil || len(names) == 0 {
				t.Errorf("%s: %q, %v", file, names, err)
			}
		}
	}
	if seen == 0 {
		t.Skip("this machine has no terminfo directory")
	}
	infocmp, err := exec.LookPath("infocmp")
	if err != nil {
		t.Skip("no infocmp")
	}
	home, dst := t.TempDir(), t.TempDir()
	put(t, home, ".terminfo/l/"+term, compile(term+"|test", true))
	if err := Install(dst, term, env(nil), home); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), infocmp, "-1", term)
	cmd.Env = []string{"TERMINFO_DIRS=" + dst + ":"}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), term+"|test") {
		t.Errorf("infocmp: %v\n%s", err, out)
	}
}

func TestParseNames(t *testing.T) {
	edit := func(at int, value uint16) []byte {
		data := compile(term, false)
		binary.LittleEndian.PutUint16(data[2*at:], value)
		return data
	}
	for name, data := range map[string][]byte{
		"nothing": nil, "half a header": compile(term, false)[:11], "wrong magic": edit(0, 0o433),
		"no names": edit(1, 0), "negative names": edit(1, 0xffff), "names beyond the end": edit(1, 0x7fff),
		"negative flags": edit(2, 0xffff), "negative numbers": edit(3, 0x8000), "too many numbers": edit(3, 0x7fff),
		"negative strings": edit(4, 0xfffe), "too many strings": edit(4, 100), "negative table": edit(5, 0xffff), "long table": edit(5, 100),
		"names without an end": edit(1, 5),
	} {
		if names, err := parseNames(data); err == nil {
			t.Errorf("%s: %q", name, names)
		}
	}
}

func FuzzParseNames(f *testing.F) {
	f.Add(compile(term+"|a|b c", false))
	f.Add(compile("x", true))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		names, err := parseNames(data)
		if err == nil && (len(names) == 0 || strings.ContainsRune(strings.Join(names, ""), 0)) {
			t.Errorf("names %q", names)
		}
	})
}

func FuzzFind(f *testing.F) {
	for _, s := range []string{"xterm", "../x", "x\x00", "xterm-"} {
		f.Add(s, "b64:")
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		e, err := Find(name, env(map[string]string{"TERMINFO": value}), "")
		if err == nil && (e.Name != name || strings.ContainsAny(name, "/\x00") || !describes(e.data, name, name)) {
			t.Errorf("found %+v for %q", e, name)
		}
	})
}
