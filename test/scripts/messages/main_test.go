package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../../.."

func TestDocumentIsCurrent(t *testing.T) {
	want, err := document(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(root + "/docs/messages.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/messages.md is not current: go run ./test/scripts/messages > docs/messages.md\n%s", diff)
	}
	for _, topic := range topics() {
		if _, err := os.Stat(filepath.Join(root, "docs", topic.more)); err != nil {
			t.Error(err)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct{ name, text, says, helps string }{
		{"advice", "nftables: %w: install nft", "nftables: %w", "install nft"},
		{"of two parts", "%s is damaged: %w: remove it; the next start makes one", "%s is damaged: %w", "remove it; the next start makes one"},
		{"a wrap that begins like advice", "claim the domain: open %s: %w", "claim the domain: open %s: %w", ""},
		{"advice behind such a wrap", "state: open %s: %w: another hangs; end it and try again", "state: open %s: %w: another hangs", "end it and try again"},
		{"a command", "%d still live: lazaret status", "%d still live", "lazaret status"},
		{"none", "read %s: %w", "read %s: %w", ""},
		{"a word that only begins so", "it failed: settings are wrong", "it failed: settings are wrong", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if says, helps := split(c.text); says != c.says || helps != c.helps {
				t.Errorf("got %q, %q", says, helps)
			}
		})
	}
}

// foreign are other programs' messages, and symptoms: what is no text of the product.
func foreign() map[string]bool {
	return map[string]bool{
		`default OCI runtime "lazaret" not found`: true,
		"Read-only file system":                   true,
		"Input/output error":                      true,
		"Transport endpoint is not connected":     true,
		"/dev/fuse":                               true,
		"Permission denied":                       true,
		"graphDriverName: vfs":                    true,
		".git":                                    true,
		"podman cp":                               true,
		"npm error … self-signed certificate":     true,
		"podman info":                             true,
		"sudo":                                    true,
		"tty":                                     true,
		"lazaret-escalate":                        true,
		"podman run":                              true,
		"npm install":                             true,
		"apt-get":                                 true,
		"EPERM":                                   true,
	}
}

// What troubleshooting.md quotes as a message of Lazaret's is one.
func TestTroubleshootingQuotesWhatIsSaid(t *testing.T) {
	doc, err := os.ReadFile(root + "/docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, dir := range roots() {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			sources.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	quoted, used := 0, map[string]bool{}
	for line := range strings.Lines(string(doc)) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		symptom, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(symptom, -1) {
			quoted++
			if foreign()[m[1]] {
				used[m[1]] = true
				continue
			}
			for part := range strings.SplitSeq(m[1], "…") {
				if part = strings.TrimSpace(part); !strings.Contains(sources.String(), part) {
					t.Errorf("troubleshooting.md has an entry for %q, and no source says %q: correct it, or list it in foreign", m[1], part)
				}
			}
		}
	}
	if quoted == 0 {
		t.Error("no entry quotes anything")
	}
}

// Links between documents lead to files and headings that there are.
func TestLinks(t *testing.T) {
	files, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	texts := map[string]string{}
	for _, f := range append(files, root+"/README.md") {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Clean(f)] = string(data)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for f, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			path, heading, _ := strings.Cut(m[1], "#")
			to := f
			if path != "" {
				to = filepath.Join(filepath.Dir(f), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s: %v", f, m[1], err)
			} else if heading != "" && !headings(texts[to])[heading] {
				t.Errorf("%s: %s: no such heading", f, m[1])
			}
		}
	}
}

// headings are the names by which links reach a text's headings.
func headings(text string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			title = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			names[strings.ReplaceAll(title, " ", "-")] = true
		}
	}
	return names
}
