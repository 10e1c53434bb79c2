package review

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/BurntSushi/toml"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitindex"
)

// maxParts bounds how many parts of a file are kept each by itself.
const maxParts = 1000

// digest names content; half of SHA-256 is more than enough to tell one from
// another.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// whole are the parts of a file that is not what its name says: a tool may read it
// more kindly than we do.
func whole(data []byte) map[string]string {
	return map[string]string{"as a whole": digest(data)}
}

// few keeps the record small: above maxParts they count as one.
func few(parts map[string]string) map[string]string {
	if len(parts) <= maxParts {
		return parts
	}
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(parts)) {
		_, _ = fmt.Fprintf(h, "%q %q\n", k, parts[k]) // never fails
	}
	return map[string]string{fmt.Sprintf("%d parts", len(parts)): hex.EncodeToString(h.Sum(nil)[:16])}
}

// jsonParts takes keys of a JSON object; what is a table of names counts by name.
func jsonParts(data []byte, keys ...string) map[string]string {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &all); err != nil {
		return whole(data)
	}
	parts := map[string]string{}
	for _, key := range keys {
		raw, there := all[key]
		if !there {
			continue
		}
		var names map[string]json.RawMessage
		if json.Unmarshal(raw, &names) != nil {
			parts[key] = digest(compact(raw))
			continue
		}
		for name, value := range names {
			parts[key+"."+name] = digest(compact(value))
		}
	}
	return few(parts)
}

// compact takes the spaces out, which package managers write anew.
func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func packageJSON(data []byte) map[string]string {
	return jsonParts(data, "scripts", "bin", "packageManager", "devEngines", "husky", "lint-staged", "simple-git-hooks", "pre-commit", "pre-push",
		"gitHooks", "git-hooks", "ghooks", "config", "pnpm", "volta", "trustedDependencies", "lavamoat", "nx", "wireit", "eslintConfig", "prettier",
		"stylelint", "babel", "jest", "ava", "mocha", "nyc", "c8", "tap", "release", "release-it", "commitlint", "gypfile", "binary")
}

func composerJSON(data []byte) map[string]string {
	return jsonParts(data, "scripts", "config", "bin", "repositories", "extra")
}

// denoJSON may have comments: then all of it counts.
func denoJSON(data []byte) map[string]string {
	return jsonParts(data, "tasks", "lint", "lock", "nodeModulesDir", "importMap")
}

// tomlParts takes tables and values out of a TOML file, by the path to each. What is
// a table counts by its names.
func tomlParts(data []byte, paths ...[]string) (parts map[string]string) {
	if endless(data) {
		return whole(data)
	}
	defer func() {
		if recover() != nil { // a fault of the library's
			parts = whole(data)
		}
	}()
	var all map[string]any
	if err := toml.Unmarshal(data, &all); err != nil {
		return whole(data)
	}
	parts = map[string]string{}
	for _, path := range paths {
		v, there := any(all), true
		name := ""
		for _, key := range path {
			t, is := v.(map[string]any)
			if !is {
				there = false
				break
			}
			if v, there = t[key]; !there {
				break
			}
			name += "." + key
		}
		if !there {
			continue
		}
		name = name[1:]
		table, is := v.(map[string]any)
		if !is {
			parts[name] = digest(canonical(v))
			continue
		}
		for key, value := range table {
			parts[name+"."+key] = digest(canonical(value))
		}
	}
	return few(parts)
}

// maxNested bounds the brackets that are open in a TOML file, and the dots of a line.
const maxNested = 100

// endless tells of TOML that could be nested deeper than the library, which calls
// itself, has a stack for: that would end this process. It takes more for such than
// is, as brackets in strings and comments count.
func endless(data []byte) bool {
	open, dots := 0, 0
	for _, c := range data {
		switch c {
		case '\n', '\r':
			dots = 0
		case '.':
			dots++
		case '[', '{':
			open++
		case ']', '}':
			open = max(open-1, 0)
		}
		if open > maxNested || dots > maxNested {
			return true
		}
	}
	return false
}

// canonical is a value as text: the same for the same.
func canonical(v any) []byte {
	data, err := json.Marshal(v) // sorts tables; infinite numbers and such have no JSON
	if err != nil {
		return fmt.Appendf(nil, "%#v", v)
	}
	return data
}

func pyproject(data []byte) map[string]string {
	paths := [][]string{{"build-system"}, {"project", "scripts"}, {"project", "gui-scripts"}, {"project", "entry-points"}}
	for _, tool := range []string{
		"hatch", "setuptools", "pdm", "poe", "taskipy", "tox", "nox", "pixi", "mypy", "pylint", "pytest", "cibuildwheel",
		"scikit-build", "meson-python", "maturin", "invoke", "uv", "flit", "django-stubs", "commitizen", "semantic_release", "bumpversion",
	} {
		paths = append(paths, []string{"tool", tool})
	}
	paths = append(paths, []string{"tool", "poetry", "build"}, []string{"tool", "poetry", "scripts"}, []string{"tool", "poetry", "plugins"}, []string{"tool", "poetry", "source"})
	return tomlParts(data, paths...)
}

func cargoTOML(data []byte) map[string]string {
	return tomlParts(data, []string{"package", "build"}, []string{"package", "links"}, []string{"package", "metadata"}, []string{"workspace", "metadata"},
		[]string{"lib", "proc-macro"}, []string{"lib", "path"}, []string{"patch"}, []string{"replace"}, []string{"cargo-features"})
}

// hiddenPaths are the entries of an index that git leaves alone, by what hides
// them: git status does not show their changes. shared reads the file that a split
// index has beside it.
func hiddenPaths(data []byte, shared func(name string) ([]byte, error)) map[string]string {
	parts := map[string]string{}
	note := func(e gitindex.Entry) error {
		name := string(e.Path)
		if name == "" {
			name = fmt.Sprintf("%x", e.OID) // replaces an entry of the shared index
		}
		switch {
		case e.AssumeValid:
			parts["assume-unchanged "+name] = "1"
		case e.SkipWorktree:
			parts["skip-worktree "+name] = "1"
		}
		return nil
	}
	err := errors.New("no object names of a known length")
	for _, hashLen := range []int{20, 32} {
		clear(parts)
		if err = gitindex.Parse(data, hashLen, note); err != nil {
			continue
		}
		base, berr := gitindex.Base(data, hashLen)
		if berr == nil && base != nil {
			var below []byte
			if below, berr = shared("sharedindex." + hex.EncodeToString(base)); berr == nil {
				berr = gitindex.Parse(below, hashLen, note)
			}
		}
		err = berr
		break
	}
	if err != nil {
		parts["cannot be read"] = digest(data)
	}
	return few(parts)
}

// replacements are the refs of packed-refs by which git shows another object than
// the one asked for.
func replacements(data []byte) map[string]string {
	parts := map[string]string{}
	for line := range bytes.Lines(data) {
		oid, ref, found := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if found && bytes.HasPrefix(ref, []byte("refs/replace/")) {
			parts[string(ref)] = string(oid[:min(len(oid), 64)])
		}
	}
	return few(parts)
}
