// Package dropin owns the containers.conf drop-in that registers Lazaret with
// podman: its template, and the checksum that tells our text from one that a
// person has edited since.
package dropin

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"
)

// FileName is the drop-in's name below a containers.conf.d directory.
const FileName = "50-lazaret.conf"

// RuntimeName is what users give to --runtime.
const RuntimeName = "lazaret"

const checksumMark = "# lazaret-checksum: "

//go:embed 50-lazaret.conf.tmpl
var text string

// Values are what the template is filled with.
type Values struct {
	RuntimePath string   // absolute path of lazaret-runtime
	JSON        []string // runtimes that answer in JSON
	NoCgroups   []string // runtimes that can do without cgroups
	// Append adds to what podman has already instead of replacing it
	// (containers.conf(5), "append"). podman before 4.8 cannot read such a file.
	Append bool
}

// Render fills the template. It fails for a path that TOML cannot hold as it is.
func Render(v Values) ([]byte, error) {
	path, err := quote(v.RuntimePath)
	if err != nil {
		return nil, fmt.Errorf("path of lazaret-runtime: %w", err)
	}
	json, err := list(v.JSON, v.Append)
	if err != nil {
		return nil, fmt.Errorf("runtime_supports_json: %w", err)
	}
	nocgroups, err := list(v.NoCgroups, v.Append)
	if err != nil {
		return nil, fmt.Errorf("runtime_supports_nocgroup: %w", err)
	}
	t, err := template.New(FileName).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("template of %s: %w", FileName, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, map[string]string{
		"Checksum": "", "Runtime": path, "JSON": json, "NoCgroups": nocgroups,
	}); err != nil {
		return nil, fmt.Errorf("template of %s: %w", FileName, err)
	}
	// The checksum covers everything but itself.
	sum := checksum(b.String())
	return []byte(strings.Replace(b.String(), checksumMark, checksumMark+sum, 1)), nil
}

// Origin tells who wrote a file of our name.
type Origin int

// The origins.
const (
	Foreign Origin = iota // no checksum line: not from lazaret init
	Edited                // ours once, changed by hand since
	Intact                // exactly as lazaret init wrote it
)

// Inspect tells the origin of content.
func Inspect(content []byte) Origin {
	before, rest, found := strings.Cut(string(content), checksumMark)
	if !found || (before != "" && !strings.HasSuffix(before, "\n")) {
		return Foreign
	}
	sum, after, _ := strings.Cut(rest, "\n")
	if sum == checksum(before+checksumMark+"\n"+after) {
		return Intact
	}
	return Edited
}

func checksum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func list(names []string, add bool) (string, error) {
	items := make([]string, 0, len(names)+1)
	for _, n := range names {
		q, err := quote(n)
		if err != nil {
			return "", err
		}
		items = append(items, q)
	}
	if add {
		items = append(items, "{append=true}")
	}
	return strings.Join(items, ", "), nil
}

// quote writes s as a TOML basic string.
func quote(s string) (string, error) {
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return "", fmt.Errorf("%q is empty or has characters that a TOML file cannot hold as they are", s)
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`, nil
}
