package gitconf

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// corpus holds the corners of the syntax: taken and refused.
func corpus() map[string]string {
	return map[string]string{
		"empty":                       "",
		"plain":                       "[core]\n\thooksPath = .githooks\n",
		"no newline at the end":       "[core]\nhooksPath = x",
		"no value":                    "[core]\nbare\nfsmonitor =\n",
		"no value before comment":     "[core]\nbare # c\n",
		"key before sections":         "k = v\n[a]\nb = c\n",
		"same line as section":        "[a] b = c\n[d]e=f",
		"two keys in one line":        "[a] b c = d\n",
		"case":                        "[CoRe \"SuB\"]\nHooksPATH = X\n",
		"old subsection":              "[CORE.Sub.More]\nKey = 1\n",
		"mixed subsection":            "[core.Sub \"X.Y\"]\nkey = 1\n",
		"empty subsection":            "[core \"\"]\nkey = 1\n",
		"empty section":               "[]\nkey = 1\n",
		"dot section":                 "[.]\nkey = 1\n",
		"only subsection":             "[ \"x\"]\nkey = 1\n",
		"subsection escapes":          "[a \"q\\\"b\\\\s\\n\\t\"]\nk = v\n",
		"subsection newline":          "[a \"b\nc\"]\nk = v\n",
		"subsection escaped newline":  "[a \"b\\\nc\"]\nk = v\n",
		"blanks before subsection":    "[a \t  \"b\"]\nk = v\n",
		"newline before subsection":   "[a \n\"b\"]\nk = v\n",
		"blank after subsection":      "[a \"b\" ]\nk = v\n",
		"blank in section":            "[a ]\nk = v\n",
		"open section":                "[a",
		"section with newline":        "[a\n]\nk = v\n",
		"underscore in section":       "[a_b]\nk = v\n",
		"underscore in key":           "[a]\nk_x = v\n",
		"digit first in key":          "[a]\n1k = v\n",
		"digit and dash in key":       "[a]\nk1-x = v\n",
		"dash first in key":           "[a]\n-k = v\n",
		"comments":                    "# x\n; y\n[a] # z\n; [b]\nk = v # c\nl = v;c\n m = \"#\" ; \"\n",
		"comment with backslash":      "[a]\nk = v # c \\\nl = w\n",
		"comment without newline":     "[a]\nk = v # c",
		"quotes":                      "[a]\nk = \" x \"y\" # \"\n",
		"quotes with blanks first":    "[a]\nk = \"\"   x\n",
		"open quotes":                 "[a]\nk = \"x\nl = y\n",
		"open quotes at the end":      "[a]\nk = \"x",
		"quotes over continuation":    "[a]\nk = \"x \\\n y\"\n",
		"escapes":                     "[a]\nk = \\t\\b\\n\\\\\\\"z\n",
		"unknown escape":              "[a]\nk = \\x\n",
		"escaped blank":               "[a]\nk = x\\ y\n",
		"escape of CR":                "[a]\nk = x\\\ry\n",
		"continuation":                "[a]\nk = x \\\n   y\\\nz\nl = m\n",
		"continuation to comment":     "[a]\nk = x \\\n # y\n",
		"continuation to the end":     "[a]\nk = x \\",
		"continuation of nothing":     "[a]\nk = \\\n\n",
		"blanks within":               "[a]\nk = x  y   z   \n",
		"tab within":                  "[a]\nk = x\ty \t z\n",
		"CR LF":                       "[a]\r\nk = v\r\nl = w \\\r\n x\r\nm\r\n",
		"CR at the end of file":       "[a]\nk = v\r",
		"CR alone":                    "[a]\rk = v\rx\r\n",
		"CR CR LF":                    "[a]\nk = v\r\r\n",
		"CR in quotes":                "[a]\nk = \"v\r\"\n",
		"CR between key and equals":   "[a]\nk \r= v\n",
		"vertical tab":                "[a]\nk = v\v\f\n",
		"vertical tab first":          "[a]\n\vk = v\n",
		"BOM":                         "\xef\xbb\xbf[a]\nk = v\n",
		"half BOM":                    "\xef\xbb[a]\nk = v\n",
		"two BOMs":                    "\xef\xbb\xbf\xef\xbb\xbf[a]\nk = v\n",
		"BOM alone":                   "\xef\xbb\xbf",
		"BOM later":                   "[a]\n\xef\xbb\xbfk = v\n",
		"high bytes":                  "[a \"\xff\"]\nk = \xe9\n",
		"high byte in key":            "[a]\nk\xe9 = v\n",
		"NUL in value":                "[a]\nk = v\x00w\n",
		"NUL makes another key":       "[core \"hookspath\x00x\"]\nz = .githooks\n",
		"NUL in key":                  "[a]\nk\x00 = v\n",
		"NUL first":                   "\x00[a]\nk = v\n",
		"equals in value":             "[a]\nk = v = w == x\n",
		"equals without blanks":       "[a]\nk=v\n",
		"equals first":                "[a]\n= v\n",
		"brackets in value":           "[a]\nk = [b]\n",
		"value of quotes":             "[a]\nk = \"\"\n",
		"subsection with bracket":     "[a \"]\"]\nk = v\n",
		"subsection with comment":     "[a \"#;\"]\nk = v\n",
		"sections without variables":  "[a]\n[b]\n",
		"blank lines":                 "\n\n \t\n[a]\n\n k = v\n\n",
		"dots in subsection":          "[a \".b.\"]\nk = v\n",
		"garbage":                     "hello world\n",
		"key with colon":              "[a]\nk : v\n",
		"quotes around the whole key": "[a]\n\"k\" = v\n",
	}
}

// gitEnv is an environment in which git reads nothing of this machine.
func gitEnv(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
}

// list is what git makes of a file: one "name\nvalue" each, "name" without value.
func list(t *testing.T, file string) ([]string, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", "config", "--file", file, "--no-includes", "--list", "-z")
	cmd.Env = gitEnv(filepath.Dir(file))
	out, err := cmd.Output()
	if err != nil {
		return nil, false
	}
	vars := strings.Split(string(out), "\x00")
	vars = vars[:len(vars)-1]
	for i, v := range vars {
		// [a ""] and [a] are one to us; git's list tells them apart.
		name, value, hasValue := strings.Cut(v, "\n")
		if section, key, ok := strings.Cut(name, ".."); ok && !strings.ContainsAny(section+key, "\".") {
			name = strings.TrimPrefix(section+"."+key, ".")
		}
		if vars[i] = name; hasValue {
			vars[i] += "\n" + value
		}
	}
	return vars, true
}

func ours(data []byte) ([]string, bool) {
	vars, err := Parse(data)
	if err != nil {
		return nil, false
	}
	lines := []string{}
	for _, v := range vars {
		line := v.Name()
		if v.HasValue {
			line += "\n" + v.Value
		}
		lines = append(lines, line)
	}
	return lines, true
}

// sameAsGit compares a parse to git's own. Before 2.45 git turned blanks within
// a value into spaces.
func sameAsGit(t *testing.T, data []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	want, wantOK := list(t, file)
	got, gotOK := ours(data)
	if gotOK != wantOK {
		t.Fatalf("%q: taken %v, by git %v", data, gotOK, wantOK)
	}
	blanks := strings.NewReplacer("\t", " ", "\r", " ")
	for i := range got {
		got[i] = blanks.Replace(got[i])
	}
	for i := range want {
		want[i] = blanks.Replace(want[i])
	}
	if diff := cmp.Diff(want, got); wantOK && diff != "" {
		t.Fatalf("%q: git's and ours differ:\n%s", data, diff)
	}
}

func TestParseAsGit(t *testing.T) {
	for name, data := range corpus() {
		t.Run(name, func(t *testing.T) { sameAsGit(t, []byte(data)) })
	}
}

// Files put together from pieces of the syntax, by a fixed seed.
func TestParseGeneratedAsGit(t *testing.T) {
	pieces := []string{
		"[core]", "[a \"B.c\"]", "[X.Y]", "[", "]", "\"", "\\", "\\\n", "\\n", "\\\"", "\n", "\n", "\r\n", "\r", " ", "\t",
		"=", " = ", "#", ";", "key", "K-1", "x", ".", "\x00", "\xff", "\v", "\n[core]\n", "\nhooksPath = .h\n", "\npath = \"a b\" c\n", "_",
	}
	rnd := rand.New(rand.NewPCG(20, 26)) //nolint:gosec // a test that can be run again
	taken := 0
	for range 200 {
		var data bytes.Buffer
		for range 1 + rnd.IntN(14) {
			data.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		sameAsGit(t, data.Bytes())
		if _, ok := ours(data.Bytes()); ok {
			taken++
		}
	}
	if taken < 20 {
		t.Errorf("only %d of 200 files were taken: the generator makes rubbish", taken)
	}
}

func TestParse(t *testing.T) {
	got, err := Parse([]byte("[A \"B.C\"]\nK = v\n[D]\nE\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Var{
		{Section: "a", Subsection: "B.C", Key: "k", Value: "v", HasValue: true},
		{Section: "d", Key: "e"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseError(t *testing.T) {
	for data, want := range map[string]string{
		"[a]\nb = c\n[d\n":                  "line 3: ",
		"[a]\r\nb = \"c\r\n":                "line 2: ",
		"x\ny\n_\n":                         "line 3: ",
		strings.Repeat("\n", MaxFile) + "x": "larger than 1048576 bytes",
	} {
		_, err := Parse([]byte(data))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %s…", data, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, data := range corpus() {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		vars, err := Parse(data)
		if err != nil && vars != nil {
			t.Fatal("variables beside an error")
		}
		total := 0
		for _, v := range vars {
			total += len(v.Value) + 1
			// With a NUL, what the section says in its quotes can be the key.
			spelt := strings.TrimLeft(v.Key, "abcdefghijklmnopqrstuvwxyz0123456789-")
			if spelt != "" && !bytes.ContainsRune(data, 0) || strings.ContainsRune(v.Name()+v.Value, 0) {
				t.Fatalf("%q", v.Name())
			}
		}
		if total > len(data) {
			t.Fatalf("%d bytes of variables from %d", total, len(data))
		}
	})
}
