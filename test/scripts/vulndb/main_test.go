package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConvert(t *testing.T) {
	t.Parallel()
	const a = `{"id":"GO-2024-0001","modified":"2024-05-01T00:00:00Z","affected":[{"package":{"name":"example.test/b"}},{"package":{"name":"example.test/b"}}]}`
	const b = `{"id":"GO-2024-0002","modified":"2024-04-01T00:00:00Z","affected":[{"package":{"name":"example.test/b"}},{"package":{"name":"example.test/a"}}]}`
	tests := []struct {
		name    string
		files   map[string]string
		modules string // index/modules.json, whole
		err     string
	}{
		{
			name:  "modules in order, an entry once in each",
			files: map[string]string{"GO-2024-0001.json": a, "GO-2024-0002.json": b, "README": "x"},
			modules: `[{"path":"example.test/a","vulns":[{"id":"GO-2024-0002","modified":"2024-04-01T00:00:00Z"}]},` +
				`{"path":"example.test/b","vulns":[{"id":"GO-2024-0001","modified":"2024-05-01T00:00:00Z"},{"id":"GO-2024-0002","modified":"2024-04-01T00:00:00Z"}]}]`,
		},
		{name: "an empty folder would look clean", files: nil, err: "no OSV entries"},
		{name: "broken entry", files: map[string]string{"GO-2024-0001.json": a[:40]}, err: "GO-2024-0001.json"},
		{name: "entry under another's name", files: map[string]string{"GO-2024-0003.json": a}, err: `holds entry "GO-2024-0001"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			from, to := t.TempDir(), t.TempDir()
			for name, data := range tt.files {
				if err := os.WriteFile(filepath.Join(from, name), []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := convert(from, to)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(to, "index/modules.json"))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.modules {
				t.Errorf("modules.json:\n%s\nwant:\n%s", got, tt.modules)
			}
			if got, err := os.ReadFile(filepath.Join(to, "index/db.json")); err != nil || string(got) != `{"modified":"2024-05-01T00:00:00Z"}` {
				t.Errorf("db.json: %s, %v", got, err)
			}
			if got, err := os.ReadFile(filepath.Join(to, "ID/GO-2024-0002.json")); err != nil || string(got) != b {
				t.Errorf("entry: %s, %v", got, err)
			}
		})
	}
}
