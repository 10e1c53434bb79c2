package gitindex_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitindex"
)

func files(paths ...string) []entry {
	var out []entry
	for _, p := range paths {
		out = append(out, entry{path: p})
	}
	return out
}

func TestUnsafePaths(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string][]entry{
		"a configuration":             files(".git/config"),
		"a hook in capitals":          files(".GIT/hooks/post-checkout"),
		"upwards":                     files("a/../.git/x"),
		"only upwards":                files("a/../b"),
		"upwards at once":             files("../x"),
		"upwards at the end":          files("a/.."),
		"here":                        files("./a"),
		"here in the middle":          files("a/./b"),
		"here alone":                  files("."),
		"short name":                  files("git~1/hooks/x"),
		"a stream":                    files(".git::$INDEX_ALLOCATION/config"),
		"dots and blanks":             files(".git . ./config"),
		"ignorable code points":       files(".g\u200cit/config"),
		"absolute":                    files("/etc/passwd"),
		"empty component":             files("a//b"),
		"slash at the end":            files("a/"),
		"only a slash":                files("/"),
		"behind a backslash":          files(`a\.git\config`),
		"before a backslash":          files(`.git\config`),
		"a submodule's":               files("mod/ule/.git/config"),
		"just .git":                   files(".git"),
		".git as a link":              {{path: "x/.git", mode: 0o120000}},
		".git as a submodule":         {{path: ".git", mode: 0o160000}},
		"in two halves":               files(".g", ".git/config"),
		"in three halves":             files("a", "a/.gi", "a/.git", "a/.git/x"),
		"behind a good one":           files("a/b", "a/b/.git"),
		"from a long one":             files("a/.gitx/b", "a/.git~/b", "b/.git"),
		"link to modules":             {{path: ".gitmodules", mode: 0o120000}},
		"link to modules, capitals":   {{path: "a/.GITmodules", mode: 0o120000}},
		"link to modules, short":      {{path: "gitmod~1", mode: 0o120000}},
		"link below modules":          {{path: ".gitmodules/x", mode: 0o120000}},
		"link in a shared directory":  {{path: ".gitmodules/w"}, {path: ".gitmodules/x", mode: 0o120000}},
		"link in a conflict":          {{path: ".gitmodules", stage: 1}, {path: ".gitmodules", stage: 2, mode: 0o120000}},
		"file and directory":          files("a", "a/b"),
		"link and directory":          {{path: "a", mode: 0o120000}, {path: "a/config"}},
		"submodule and directory":     {{path: "a", mode: 0o160000}, {path: "a/config"}},
		"file and far directory":      files("a", "a b", "a!", "a,", "a-", "a-/x", "a-b", "a.", "a/b/c"),
		"file deep in":                files("x/a", "x/a-b/c", "x/a/b"),
		"file and directory, twice":   files("a", "a.a", "a.a/b"),
		"with a conflict between":     {{path: "a"}, {path: "a/b", stage: 2}, {path: "a/b/c", stage: 1}, {path: "a/c"}},
		"with conflicts around":       {{path: "a"}, {path: "a/b", stage: 2}, {path: "a/b-", stage: 3}, {path: "a/b/c"}},
		"sparse .git":                 {{path: ".git/", mode: 0o040000, extended: 0x4000}},
		"sparse deep .git":            {{path: "a/.git/b/", mode: 0o040000, extended: 0x4000}},
		"sparse without a slash":      {{path: "a", mode: 0o040000, extended: 0x4000}},
		"sparse root":                 {{path: "/", mode: 0o040000, extended: 0x4000}},
		"sparse with two slashes":     {{path: "a//", mode: 0o040000, extended: 0x4000}},
		"sparse directory and file":   {{path: "a/", mode: 0o040000, extended: 0x4000}, {path: "a/b"}},
		"file and sparse directory":   {{path: "a"}, {path: "a/", mode: 0o040000, extended: 0x4000}},
		"sparse and a conflict below": {{path: "a/", mode: 0o040000, extended: 0x4000}, {path: "a/b", stage: 2}, {path: "a/c"}},
	} {
		for _, version := range []int{2, 3, 4} {
			for _, hashLen := range []int{20, 32} {
				if version == 2 && strings.Contains(name, "sparse") {
					continue // needs the flags of version 3
				}
				x := index{version: version, hashLen: hashLen, entries: entries}
				if strings.Contains(name, "sparse") {
					x.exts = []ext{{"sdir", ""}}
				}
				data := x.bytes()
				if err := gitindex.Validate(data, hashLen); !errors.Is(err, gitindex.ErrUnsafePath) {
					t.Errorf("%s, version %d, hash %d: Validate: %v", name, version, hashLen, err)
				}
				// It is the path that is wrong, nothing else.
				if _, err := list(data, hashLen); err != nil {
					t.Errorf("%s, version %d, hash %d: Parse: %v", name, version, hashLen, err)
				}
			}
		}
	}
}

func TestSafe(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("l", 4095)
	for name, x := range map[string]index{
		"nothing":                   {},
		"names":                     {entries: files("...", ".gitignore", ".gitmodules", "a", "a b", "a-b", "ab", "b/.gitx", "b/git~2", "c\\d", "\xff")},
		"a longest path":            {entries: files("k", long, long[:4094]+"m")},
		"0xfff is not said":         {entries: files(long[:4094], long)},
		"stages":                    {entries: []entry{{path: "a", stage: 1}, {path: "a", stage: 3}, {path: "a/b", stage: 2}, {path: "a/c"}}},
		"a conflict below a file":   {entries: []entry{{path: "a"}, {path: "a/b", stage: 2}, {path: "b"}, {path: "b.x"}}},
		"all modes":                 {entries: []entry{{path: "a", mode: 0o100755}, {path: "b", mode: 0o120000}, {path: "c", mode: 0o160000}}},
		"flags":                     {version: 3, entries: []entry{{path: "a", extended: 0x2000}, {path: "b", extended: 0x6000}}},
		"sparse":                    {version: 3, entries: []entry{{path: "a-b"}, {path: "a/", mode: 0o040000, extended: 0x4000}, {path: "a0"}}, exts: []ext{{"sdir", ""}}},
		"sparse, version 4":         {version: 4, entries: []entry{{path: "a/"[:2], mode: 0o040000, extended: 0x4000}, {path: "a0"}}, exts: []ext{{"sdir", ""}}},
		"no checksum":               {entries: files("a"), checksum: strings.Repeat("\x00", 20)},
		"unknown optional":          {entries: files("a"), exts: []ext{{"ABCD", "x"}, {"ABCD", ""}, {"Z\x00\x00\x00", "EOIE"}}},
		"split without a base":      {entries: files("a"), exts: []ext{{"link", strings.Repeat("\x00", 20)}}},
		"end of entries, no blocks": {exts: []ext{eoie(20, 12)}},
		"trees as git sorts them":   {entries: files("a/x", "bb/x"), exts: []ext{{"TREE", "\x00-1 2\na\x001 0\n" + strings.Repeat("x", 20) + "bb\x00-1 0\n"}}},
		"trees as trees are sorted": {exts: []ext{{"TREE", "\x00-1 3\naaa-b\x00-1 0\naaa\x00-1 0\nb\x00-1 0\n"}}},
		"a former conflict":         {exts: []ext{{"REUC", "a/b\x00100644\x000\x00120000\x00" + strings.Repeat("x", 40)}}},
	} {
		if err := gitindex.Validate(x.bytes(), max(x.hashLen, 20)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	null, base := strings.Repeat("\x00", 20), strings.Repeat("B", 20)
	a := files("a")
	for name, x := range map[string]index{
		"version 1":                     {version: 1},
		"version 5":                     {version: 5},
		"another checksum":              {checksum: null[:19] + "\x01"},
		"more entries than there are":   {entries: a, count: 2},
		"very many":                     {entries: a, count: -1},
		"fewer":                         {entries: files("a", "b"), count: 1},
		"out of order":                  {entries: files("b", "a")},
		"bytes are not signed":          {entries: files("\xff", "a")},
		"twice":                         {entries: files("a", "a")},
		"stages out of order":           {entries: []entry{{path: "a", stage: 2}, {path: "a", stage: 1}}},
		"a stage twice":                 {entries: []entry{{path: "a", stage: 2}, {path: "a", stage: 2}}},
		"merged and not":                {entries: []entry{{path: "a"}, {path: "a", stage: 2}}},
		"too long a path":               {entries: files(strings.Repeat("l", 4096))},
		"NUL in a path":                 {entries: []entry{{path: "a\x00/.git", says: 7}}},
		"NUL in a path, hidden":         {entries: []entry{{path: "a\x00/.git", says: 1}}},
		"shorter than it says":          {entries: []entry{{path: "abc", says: 4}}},
		"longer than it says":           {entries: []entry{{path: "abcd", says: 2}}},
		"too long to be said":           {entries: []entry{{path: "abc", says: 0xfff}}},
		"no padding":                    {entries: []entry{{path: "abc", pad: "\x00"}, {path: "b"}}},
		"padding with something":        {entries: []entry{{path: "a", pad: "\x00x"}}, count: 1},
		"padding with something, right": {entries: []entry{{path: "abc", pad: "\x00\x00\x00\x00\x00\x00x"}}},
		"extended in version 2":         {entries: []entry{{path: "a", extended: 0x4000}}},
		"unknown flag":                  {version: 3, entries: []entry{{path: "a", extended: 0x8000}}},
		"unknown flag, too":             {version: 3, entries: []entry{{path: "a", extended: 0x4001}}},
		"strips more than there is":     {version: 4, entries: []entry{{path: "a"}, {path: "b", strip: 2}}},
		"strips of nothing":             {version: 4, entries: []entry{{path: "a", strip: 1}}},
		"strips 2^30":                   {version: 4, entries: []entry{{path: "a"}, {path: "b", strip: 1 << 30}}},
		"strips 2^31-1":                 {version: 4, entries: []entry{{path: "a"}, {path: "b", strip: 1<<31 - 1}}},
		"says less than it keeps":       {version: 4, entries: []entry{{path: "abc"}, {path: "abcd", says: 2}}},

		"mode 0":                   {entries: []entry{{path: "a", mode: 1}}},
		"group may write":          {entries: []entry{{path: "a", mode: 0o100664}}},
		"setuid":                   {entries: []entry{{path: "a", mode: 0o104755}}},
		"a device":                 {entries: []entry{{path: "a", mode: 0o060644}}},
		"link with bits":           {entries: []entry{{path: "a", mode: 0o120777}}},
		"high bits":                {entries: []entry{{path: "a", mode: 1<<16 | 0o100644}}},
		"sparse without sdir":      {version: 3, entries: []entry{{path: "a/", mode: 0o040000, extended: 0x4000}}},
		"directory to check out":   {version: 3, entries: []entry{{path: "a/", mode: 0o040000}}, exts: []ext{{"sdir", ""}}},
		"sparse conflict":          {version: 3, entries: []entry{{path: "a/", stage: 1, mode: 0o040000, extended: 0x4000}}, exts: []ext{{"sdir", ""}}},
		"nameless":                 {entries: files("")},
		"nameless in the middle":   {entries: files("a", "", "b")},
		"nameless without a base":  {entries: files(""), exts: []ext{{"link", null + ewah(1) + ewah(1, 0)}}},
		"nameless at the end":      {entries: files("a", ""), exts: []ext{{"link", base + ewah(1) + ewah(1, 0)}}},
		"more replaced than given": {entries: files("", "a"), exts: []ext{{"link", base + ewah(2) + ewah(2, 0, 1)}}},
		"fewer replaced":           {entries: files("", "", "a"), exts: []ext{{"link", base + ewah(2) + ewah(2, 1)}}},
		"nameless directory":       {version: 3, entries: []entry{{mode: 0o040000, extended: 0x4000}}, exts: []ext{{"link", base + ewah(2) + ewah(2, 1)}}},

		"unknown required":         {exts: []ext{{"abcd", ""}}},
		"unknown, no letter":       {exts: []ext{{"\x00BCD", ""}}},
		"sdir with something":      {exts: []ext{{"sdir", "x"}}},
		"sdir twice":               {exts: []ext{{"sdir", ""}, {"sdir", ""}}},
		"link twice":               {exts: []ext{{"link", null}, {"link", null}}},
		"link too short":           {exts: []ext{{"link", null[1:]}}},
		"link without bitmaps":     {exts: []ext{{"link", base}}},
		"link with one bitmap":     {exts: []ext{{"link", base + ewah(1)}}},
		"link with three":          {exts: []ext{{"link", base + ewah(1) + ewah(1) + ewah(1)}}},
		"split and sparse":         {exts: []ext{{"link", base + ewah(1) + ewah(1)}, {"sdir", ""}}},
		"bitmap beyond its words":  {exts: []ext{{"link", base + ewahWords(1<<20, 2<<33, 0) + ewah(1)}}},
		"bitmap beyond its size":   {exts: []ext{{"link", base + ewahWords(64, 2<<33, 0, 1) + ewah(1)}}},
		"bitmap runs too far":      {exts: []ext{{"link", base + ewahWords(64, 1<<33|0xffffffff<<1|1, 0) + ewah(1)}}},
		"bitmap with a bit over":   {exts: []ext{{"link", base + ewahWords(5, 1<<33, 1<<5) + ewah(1)}}},
		"bitmap without words":     {exts: []ext{{"link", base + ewahWords(0) + ewah(1)}}},
		"bitmap's last marker":     {exts: []ext{{"link", base + ewah(1)[:20+4] + be32(7) + ewah(1)}}},
		"bitmap of many words":     {exts: []ext{{"link", base + be32(1) + be32(-1) + ewah(1)}}},
		"trees end early":          {exts: []ext{{"TREE", "\x00-1 1\n"}}},
		"trees with more":          {exts: []ext{{"TREE", "\x00-1 0\nx"}}},
		"tree of nothing":          {exts: []ext{{"TREE", ""}}},
		"root with a name":         {exts: []ext{{"TREE", "a\x00-1 0\n"}}},
		"tree without a name":      {exts: []ext{{"TREE", "\x00-1 1\n\x00-1 0\n"}}},
		"tree's name with a slash": {exts: []ext{{"TREE", "\x00-1 1\na/b\x00-1 0\n"}}},
		"tree of too many":         {entries: a, exts: []ext{{"TREE", "\x002 0\n" + null}}},
		"tree of -2":               {entries: a, exts: []ext{{"TREE", "\x00-2 0\n"}}},
		"tree of 2^32":             {entries: a, exts: []ext{{"TREE", "\x00-1 4294967296\n"}}},
		"tree of 2^64":             {entries: a, exts: []ext{{"TREE", "\x00-1 18446744073709551616\n"}}},
		"a tree twice":             {exts: []ext{{"TREE", "\x00-1 2\na\x00-1 0\na\x00-1 0\n"}}},
		"trees in disorder":        {exts: []ext{{"TREE", "\x00-1 3\nb\x00-1 0\naa\x00-1 0\nb\x00-1 0\n"}}},
		"trees too deep":           {exts: []ext{{"TREE", "\x00-1 1\n" + strings.Repeat("a\x00-1 1\n", 3000) + "a\x00-1 0\n"}}},
		"former conflict cut off":  {exts: []ext{{"REUC", "a\x00100644\x000\x000\x00" + null[1:]}}},
		"former conflict, mode":    {exts: []ext{{"REUC", "a\x00100664\x000\x000\x00" + null}}},
		"former conflict, octal":   {exts: []ext{{"REUC", "a\x00100648\x000\x000\x00" + null}}},
		"fsmonitor version 3":      {exts: []ext{{"FSMN", be32(3) + "x\x00" + be32(20) + ewah(0)}}},
		"fsmonitor of too many":    {entries: a, exts: []ext{{"FSMN", be32(2) + "x\x00" + be32(len(ewah(9))) + ewah(9)}}},
		"fsmonitor says more":      {entries: a, exts: []ext{{"FSMN", be32(2) + "x\x00" + be32(1+len(ewah(1))) + ewah(1)}}},
		"fsmonitor without end":    {exts: []ext{{"FSMN", be32(2) + "x"}}},
		"untracked, more dirs":     {exts: []ext{untracked(1, dir("", 1), dir("x", 0))}},
		"untracked, fewer dirs":    {exts: []ext{untracked(2, dir("", 0))}},
		"untracked, bit beyond":    {exts: []ext{{"UNTR", strings.Replace(untracked(1, dir("", 0)).data, ewah(1), ewah(9, 8), 1)}}},
		"untracked, name of root":  {exts: []ext{untracked(1, dir("x", 0))}},
		"untracked, many files":    {exts: []ext{untracked(1, string(putVarint(1<<30))+"\x00\x00")}},
		"untracked, too deep":      {exts: []ext{untracked(4001, dir("", 1)+strings.Repeat(dir("x", 1), 3999)+dir("x", 0))}},
		"blocks: version":          {entries: a, exts: []ext{{"IEOT", be32(2) + be32(12) + be32(1)}}},
		"blocks: none":             {entries: a, exts: []ext{{"IEOT", be32(1)}}},
		"blocks: fewer":            {entries: files("a", "b"), exts: []ext{{"IEOT", be32(1) + be32(12) + be32(1)}}},
		"blocks: more":             {entries: a, exts: []ext{{"IEOT", be32(1) + be32(12) + be32(2)}}},
		"blocks: of nothing":       {entries: a, exts: []ext{{"IEOT", be32(1) + be32(12) + be32(0) + be32(12) + be32(1)}}},
		"blocks: elsewhere":        {entries: a, exts: []ext{{"IEOT", be32(1) + be32(13) + be32(1)}}},
		"blocks: depends":          {version: 4, entries: files("a", "ab"), exts: []ext{{"IEOT", be32(1) + be32(12) + be32(1) + be32(12+66) + be32(1)}}},
		"end of entries elsewhere": {entries: a, exts: []ext{eoie(20, 12)}},
		"end of entries, hash":     {exts: []ext{{"ABCD", ""}, eoie(20, 12)}},
		"end of entries first":     {exts: []ext{eoie(20, 12), {"ABCD", ""}}},
		"end of entries, short":    {exts: []ext{{"EOIE", be32(12)}}},
		"end of entries, inside":   {exts: []ext{{"ABCD", "EOIE" + be32(24) + be32(12) + null}}},
	} {
		data := x.bytes()
		if err := gitindex.Validate(data, 20); !errors.Is(err, gitindex.ErrMalformed) {
			t.Errorf("%s: Validate: %v", name, err)
		}
	}
	for name, data := range map[string][]byte{
		"nothing":           nil,
		"only a header":     []byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00"),
		"another signature": bytes.Replace(index{checksum: null}.bytes(), []byte("DIRC"), []byte("DIRX"), 1),
		"extension too big": []byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00ABCD\xff\xff\xff\xff" + null),
		"part of one":       []byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00ABCD\x00\x00\x00" + null),
		"zeros":             make([]byte, 100),
	} {
		if err := gitindex.Validate(data, 20); !errors.Is(err, gitindex.ErrMalformed) {
			t.Errorf("%s: Validate: %v", name, err)
		}
	}
	for _, hashLen := range []int{-1, 0, 19, 64} {
		if err := gitindex.Validate(index{}.bytes(), hashLen); !errors.Is(err, gitindex.ErrMalformed) {
			t.Errorf("hash of %d bytes: Validate: %v", hashLen, err)
		}
	}
}

// dir is a directory of the untracked cache with below others in it.
func dir(name string, below int, files ...string) string {
	out := string(putVarint(len(files))) + string(putVarint(below)) + name + "\x00"
	for _, f := range files {
		out += f + "\x00"
	}
	return out
}

func untracked(n int, dirs ...string) ext {
	return ext{"UNTR", "\x05where" + strings.Repeat("s", 2*36+4+2*20) + ".gitignore\x00" + string(putVarint(n)) +
		strings.Join(dirs, "") + ewah(1) + ewah(1) + ewah(1) + "\x00"}
}

func TestPathsInExtensions(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("x", 20)
	for name, x := range map[string]ext{
		"former conflict in .git":        {"REUC", ".git/config\x000\x00100644\x000\x00" + id},
		"former conflict upwards":        {"REUC", "../x\x000\x00100644\x000\x00" + id},
		"former conflict of no name":     {"REUC", "\x000\x00100644\x000\x00" + id},
		"former link for modules":        {"REUC", ".gitmodules\x00100644\x000\x00120000\x00" + id + id},
		"untracked upwards":              untracked(2, dir("", 1), dir("..", 0)),
		"untracked file upwards":         untracked(1, dir("", 0, "a", "../")),
		"untracked in another directory": untracked(1, dir("", 0, "a/b")),
		"untracked without a name":       untracked(2, dir("", 1), dir("", 0)),
	} {
		if err := gitindex.Validate(index{exts: []ext{x}}.bytes(), 20); !errors.Is(err, gitindex.ErrUnsafePath) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := gitindex.Validate(index{exts: []ext{untracked(3, dir("", 1, "a", "b/"), dir("c", 1), dir("d", 0, "e"))}}.bytes(), 20); err != nil {
		t.Errorf("untracked cache: %v", err)
	}
}

// An entry can hide where git looks only when it reads with several threads:
// this shows that it does, and that Validate sees it.
func TestHiddenEntries(t *testing.T) {
	t.Parallel()
	const hashLen = 20 // with another git does not find its own EOIE
	r := &repo{t: t, dir: t.TempDir(), hashLen: hashLen}
	r.git("init", "-q")
	visible := files("a", "b")
	_, at := index{entries: visible}.layout()
	// ZZZZ is ignored; its data has an entry, a table that leads there and the
	// extension that leads to the table.
	hidden := rawEntry(2, hashLen, 0, entry{path: ".git/hooks/post-checkout", mode: 0o100755}, "")
	start := at[2] + 8 // of ZZZZ's data
	table := ext{"IEOT", be32(1) + be32(at[0]) + be32(1) + be32(start) + be32(1)}
	inner := eoie(hashLen, start+len(hidden), table)
	data := index{entries: visible, exts: []ext{{
		"ZZZZ",
		string(hidden) + table.name + be32(len(table.data)) + table.data + inner.name + be32(len(inner.data)) + inner.data,
	}}}.bytes()
	if err := os.WriteFile(filepath.Join(r.dir, ".git/index"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := string(r.git("-c", "index.threads=1", "ls-files")); out != "a\nb\n" {
		t.Errorf("git without threads reads %q", out)
	}
	if out := string(r.git("-c", "index.threads=4", "ls-files")); !strings.Contains(out, ".git/hooks/post-checkout") {
		t.Errorf("git with threads reads %q: the test's trick is none", out)
	}
	if _, err := list(data, hashLen); !errors.Is(err, gitindex.ErrMalformed) {
		t.Errorf("Parse: %v", err)
	}
	if err := gitindex.Validate(data, hashLen); !errors.Is(err, gitindex.ErrMalformed) {
		t.Errorf("Validate: %v", err)
	}
}

// Reading an index, git looks at no path: the attacks are real.
func TestGitReadsAttacks(t *testing.T) {
	t.Parallel()
	r := &repo{t: t, dir: t.TempDir(), hashLen: 20}
	r.git("init", "-q")
	for _, paths := range [][]string{{".g", ".git/config"}, {"a/../.git/x"}, {"/etc/passwd"}, {"git~1/hooks/x"}} {
		data := index{version: 4, entries: files(paths...)}.bytes()
		if err := os.WriteFile(filepath.Join(r.dir, ".git/index"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if out := string(r.git("ls-files", "-z")); out != strings.Join(paths, "\x00")+"\x00" {
			t.Errorf("git reads %q, not %q", out, paths)
		}
		if err := gitindex.Validate(data, 20); !errors.Is(err, gitindex.ErrUnsafePath) {
			t.Errorf("%q: %v", paths, err)
		}
	}
}

func TestValidateSplit(t *testing.T) {
	t.Parallel()
	shared := index{entries: []entry{{path: ".gitmodules"}, {path: "a"}, {path: "b/c"}, {path: "d", stage: 1}, {path: "d", stage: 2}, {path: "e"}}}.bytes()
	base := string(shared[len(shared)-20:])
	split := func(deleted, replaced []int, entries ...entry) []byte {
		return index{entries: entries, exts: []ext{{"link", base + ewah(6, deleted...) + ewah(6, replaced...)}}}.bytes()
	}
	is := func(set ...int) []int { return set }
	for name, test := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":                    {split(nil, nil), nil},
		"all deleted":                {split(is(0, 1, 2, 3, 4, 5), nil), nil},
		"all replaced":               {split(nil, is(0, 1, 2, 3, 4, 5), entry{}, entry{mode: 0o120000}, entry{}, entry{stage: 1}, entry{stage: 2}, entry{mode: 0o160000}), nil},
		"added":                      {split(nil, nil, files("0", "aa", "b/d", "z")...), nil},
		"added in its place":         {split(nil, nil, files("a", "e")...), nil},
		"resolved":                   {split(nil, nil, files("d")...), nil},
		"a file instead":             {split(is(2), nil, files("b")...), nil},
		"replaced and added":         {split(is(1), is(2), entry{}, entry{path: "a/b"}), nil},
		"another side":               {split(nil, nil, entry{path: "d", stage: 3}), nil},
		".gitmodules becomes a link": {split(nil, is(0), entry{mode: 0o120000}), gitindex.ErrUnsafePath},
		"file over a directory":      {split(nil, nil, files("b")...), gitindex.ErrUnsafePath},
		"directory over a file":      {split(nil, nil, files("a/b")...), gitindex.ErrUnsafePath},
		"directory over a link":      {split(nil, is(1), entry{mode: 0o120000}, entry{path: "a/config"}), gitindex.ErrUnsafePath},
		"added .git":                 {split(nil, nil, files(".git/config")...), gitindex.ErrUnsafePath},
		"deleted and replaced":       {split(is(1), is(1), entry{}), gitindex.ErrMalformed},
		"a side of what is merged":   {split(nil, nil, entry{path: "e", stage: 2}), gitindex.ErrMalformed},
		"replaced to another stage":  {split(nil, is(3), entry{stage: 3}), gitindex.ErrMalformed},
		"beyond the shared index":    {index{exts: []ext{{"link", base + ewah(7, 6) + ewah(6)}}}.bytes(), gitindex.ErrMalformed},
		"another shared index":       {index{exts: []ext{{"link", strings.Repeat("x", 20) + ewah(6) + ewah(6)}}}.bytes(), gitindex.ErrMalformed},
		"not split":                  {index{}.bytes(), gitindex.ErrMalformed},
	} {
		err := gitindex.ValidateSplit(test.data, shared, 20)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	nested := split(nil, nil)
	if err := gitindex.ValidateSplit(index{exts: []ext{{"link", string(nested[len(nested)-20:]) + ewah(0) + ewah(0)}}}.bytes(), nested, 20); !errors.Is(err, gitindex.ErrMalformed) {
		t.Errorf("a shared index that is split: %v", err)
	}
	if err := gitindex.ValidateSplit(split(nil, nil), shared[:len(shared)-1], 20); !errors.Is(err, gitindex.ErrMalformed) {
		t.Errorf("a shared index that is cut off: %v", err)
	}
	if got, err := gitindex.Base(split(nil, nil), 20); err != nil || string(got) != base {
		t.Errorf("Base = %x, %v", got, err)
	}
	if got, err := gitindex.Base(shared, 20); err != nil || got != nil {
		t.Errorf("Base of no split index = %x, %v", got, err)
	}
}

// samples have something of everything.
func samples() map[string]index {
	entries := []entry{{path: "a"}, {path: "a-b"}, {path: "b/c", stage: 1}, {path: "b/c", stage: 2}, {path: "b/cd", mode: 0o120000}, {path: "d", mode: 0o160000}}
	_, at2 := index{entries: entries}.layout()
	blocks := ext{"IEOT", be32(1) + be32(at2[0]) + be32(2) + be32(at2[2]) + be32(4)}
	tree := ext{"TREE", "\x00-1 1\nb\x002 0\n" + strings.Repeat("x", 20)}
	undo := ext{"REUC", "a\x00100644\x000\x00100755\x00" + strings.Repeat("x", 40)}
	seen := untracked(2, dir("", 1, "x", "y/"), dir("z", 0))
	monitor := ext{"FSMN", be32(2) + "token\x00" + be32(len(ewah(6, 2))) + ewah(6, 2)}
	all := []ext{blocks, tree, undo, seen, monitor}
	return map[string]index{
		"version 2": {entries: entries, exts: append(all[:5:5], eoie(20, at2[6], all...))},
		"version 3": {version: 3, entries: []entry{{path: "a", extended: 0x2000}, {path: "b/", mode: 0o040000, extended: 0x4000}}, exts: []ext{{"sdir", ""}}},
		"version 4": {version: 4, entries: entries, exts: all[1:]},
		"split":     {entries: append(files("", ""), entries...), exts: []ext{{"link", strings.Repeat("B", 20) + ewah(70, 3) + ewahWords(130, 0<<1|1<<33, 1, 1<<33, 2)}}},
	}
}

func TestTruncated(t *testing.T) {
	t.Parallel()
	for name, x := range samples() {
		data := x.bytes()
		if err := gitindex.Validate(data, 20); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for n := range data {
			cut := append([]byte{}, data[:n]...)
			if err := gitindex.Validate(cut, 20); !errors.Is(err, gitindex.ErrMalformed) {
				t.Errorf("%s, %d of %d bytes: %v", name, n, len(data), err)
			}
			// Nor with the checksum of what is left, but for where an extension ends.
			if n < 20 {
				continue
			}
			err := gitindex.Validate(append(cut, sum(20, cut)...), 20)
			if err == nil && !endsExtension(x, n) || err != nil && !errors.Is(err, gitindex.ErrMalformed) {
				t.Errorf("%s, %d of %d bytes and a checksum: %v", name, n, len(data), err)
			}
		}
	}
}

// endsExtension tells whether x without some of its last extensions is n bytes.
func endsExtension(x index, n int) bool {
	for i := range len(x.exts) + 1 {
		y := x
		y.exts = x.exts[:i]
		if len(y.bytes())-20 == n {
			return true
		}
	}
	return false
}

func TestFlippedBits(t *testing.T) {
	t.Parallel()
	for name, x := range samples() {
		data := x.bytes()
		accepted := 0
		for i := range 8 * len(data) {
			data[i/8] ^= 1 << (i % 8)
			if err := gitindex.Validate(data, 20); !errors.Is(err, gitindex.ErrMalformed) {
				t.Errorf("%s, bit %d: %v", name, i, err)
			}
			body := len(data) - 20
			err := gitindex.Validate(append(data[:body:body], make([]byte, 20)...), 20)
			if err == nil {
				accepted++ // a time, say
			} else if !errors.Is(err, gitindex.ErrMalformed) && !errors.Is(err, gitindex.ErrUnsafePath) {
				t.Errorf("%s, bit %d, no checksum: %v", name, i, err)
			}
			data[i/8] ^= 1 << (i % 8)
		}
		if accepted == 0 {
			t.Errorf("%s: not one flip was taken without a checksum: something else refuses all", name)
		}
	}
}

// What Validate takes and git reads is the same list.
func TestReadsAsGitDoes(t *testing.T) {
	t.Parallel()
	r := &repo{t: t, dir: t.TempDir(), hashLen: 20}
	r.git("init", "-q")
	for _, c := range []string{"index.threads=4", "core.sparseCheckout=true", "core.sparseCheckoutCone=true", "index.sparse=true"} {
		key, value, _ := strings.Cut(c, "=")
		r.git("config", key, value)
	}
	r.write(".git/info/sparse-checkout", "/*\n!/*/\n") // keeps git from expanding
	rng := rand.New(rand.NewPCG(1, 2))
	compared := 0
	for name, x := range samples() {
		if name == "split" {
			continue
		}
		x.checksum = strings.Repeat("\x00", 20)
		clean, at := x.layout()
		for range 5000 {
			data := append([]byte{}, clean...)
			for range 1 + rng.IntN(3) {
				i := rng.IntN(len(data) - 20)
				if rng.IntN(3) > 0 { // mostly what says where and how long things are
					start := at[rng.IntN(len(at)-1)]
					i = start + 60 + rng.IntN(8)
				}
				data[i] = byte(rng.IntN(256))
				if rng.IntN(2) > 0 {
					data[i] = clean[rng.IntN(len(clean))]
				}
			}
			if bytes.Equal(data, clean) || gitindex.Validate(data, 20) != nil {
				continue
			}
			if compared++; compared%40 != 0 { // a sample: each costs a process
				continue
			}
			if err := os.WriteFile(filepath.Join(r.dir, ".git/index"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			want, err := r.try("ls-files", "--stage", "--sparse", "-z")
			if err != nil {
				t.Errorf("%s: Validate takes %q, git does not: %v", name, data, err)
				continue
			}
			if got, err := list(data, 20); err != nil || got != string(want) {
				t.Errorf("%s: Parse reads %q, %v; git %q", name, got, err, want)
			}
		}
	}
	if compared < 200 {
		t.Errorf("only %d mutants were taken", compared)
	}
	t.Logf("%d mutants taken", compared)
}

func TestParse(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	calls := 0
	err := gitindex.Parse(index{version: 3, entries: []entry{{path: "a", extended: 0x6000, stage: 2}, {path: "b"}}}.bytes(), 20, func(e gitindex.Entry) error {
		calls++
		if string(e.Path) != "a" || e.Stage != 2 || !e.SkipWorktree || !e.IntentToAdd || e.AssumeValid || e.Mode != gitindex.ModeFile || len(e.OID) != 20 {
			t.Errorf("entry %+v", e)
		}
		return stop
	})
	if err != stop || calls != 1 { //nolint:errorlint // as it is
		t.Errorf("Parse: %v after %d calls", err, calls)
	}
	long := strings.Repeat("long", 1000)
	if err := gitindex.Validate(index{entries: files(long + "/.git")}.bytes(), 20); err == nil || len(err.Error()) > 300 {
		t.Errorf("the message is too long: %v", err)
	}
	if err := gitindex.Validate(index{entries: files("\x1b[2J/.git")}.bytes(), 20); err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("the message is not quoted: %v", err)
	}
}

// A compressed index must not cost more memory than its size allows for: here
// 80 MB of paths are in 1.4 MB. Not parallel: it looks at the whole process.
func TestBounded(t *testing.T) {
	x := index{version: 4}
	dir := strings.Repeat("d/", 2000)
	for i := range 20000 {
		x.entries = append(x.entries, entry{path: fmt.Sprintf("%s%05d", dir, i)})
	}
	data := x.bytes()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := gitindex.Validate(data, 20); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(len(data)) {
		t.Errorf("%d bytes allocated for an index of %d", n, len(data))
	}
}

func FuzzValidate(f *testing.F) {
	for _, x := range samples() {
		f.Add(x.bytes(), false)
	}
	for _, x := range []index{
		{},
		{hashLen: 32, entries: files("a", "b/c")},
		{version: 4, entries: files(".g", ".git/config")},
		{exts: []ext{{"ABCD", "EOIE"}}},
		{version: 4, hashLen: 32, entries: files("a", "ab", "ac"), exts: []ext{eoie(32, 12)}},
	} {
		f.Add(x.bytes(), x.hashLen == 32)
	}
	f.Fuzz(func(t *testing.T, data []byte, sha256 bool) {
		hashLen := 20
		if sha256 {
			hashLen = 32
		}
		// Without a checksum, which a fuzzer does not find.
		if len(data) > hashLen {
			data = append(data[:len(data)-hashLen:len(data)-hashLen], make([]byte, hashLen)...)
		}
		before := bytes.Clone(data)
		err := gitindex.Validate(data, hashLen)
		if err != nil && !errors.Is(err, gitindex.ErrMalformed) && !errors.Is(err, gitindex.ErrUnsafePath) {
			t.Errorf("another error: %v", err)
		}
		_ = gitindex.ValidateSplit(data, data, hashLen)
		if !bytes.Equal(data, before) {
			t.Error("the data was changed")
		}
		if err != nil {
			return
		}
		stage0 := map[string]bool{}
		if err := gitindex.Parse(data, hashLen, func(e gitindex.Entry) error {
			p := string(e.Path)
			if p == "" {
				return nil
			}
			clean := strings.TrimSuffix(p, "/")
			if strings.ContainsRune(p, 0) || path.IsAbs(p) || path.Clean(clean) != clean || strings.HasPrefix(clean+"/", "../") ||
				clean != p && e.Mode != gitindex.ModeSparseDir || strings.Contains("/"+strings.ToLower(clean)+"/", "/.git/") {
				t.Errorf("path %q", p)
			}
			if e.Stage == 0 {
				for dir := path.Dir(clean); dir != "."; dir = path.Dir(dir) {
					if stage0[dir] {
						t.Errorf("path %q below %q", p, dir)
					}
				}
				if stage0[clean] {
					t.Errorf("path %q twice", p)
				}
				stage0[clean] = true
			}
			return nil
		}); err != nil {
			t.Errorf("Validate takes what Parse does not: %v", err)
		}
	})
}

func bigIndex(n int) []byte {
	x := index{}
	for i := range n {
		x.entries = append(x.entries, entry{path: fmt.Sprintf("src/package-%04d/lib/module-%03d/file-%05d.go", i/200, i/20%10, i)})
	}
	return x.bytes()
}

func BenchmarkValidate20k(b *testing.B) {
	data := bigIndex(20000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := gitindex.Validate(data, 20); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate1M(b *testing.B) {
	data := bigIndex(1000000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := gitindex.Validate(data, 20); err != nil {
			b.Fatal(err)
		}
	}
}
