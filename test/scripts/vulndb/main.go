// Command vulndb lays out a folder of OSV entries as the file tree that
// govulncheck reads with -db file://….
//
// The format is the Go vulnerability database's v1 schema: index/db.json,
// index/modules.json (module path to entry ids) and ID/<id>.json. The indexes'
// optional "fixed" versions are left out: govulncheck then reads each entry of a
// module and judges by the entry's own ranges.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

type entry struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Affected []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
	} `json:"affected"`
}

type indexVuln struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
}

type indexModule struct {
	Path  string      `json:"path"`
	Vulns []indexVuln `json:"vulns"`
}

func main() {
	from := flag.String("from", "", "folder of OSV entries (GO-*.json)")
	to := flag.String("to", "", "folder to write the database to")
	flag.Parse()
	n, err := convert(*from, *to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulndb:", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "vulndb: %d entries\n", n)
}

// convert writes the database and returns how many entries it has. An empty
// source is an error: with it govulncheck would find nothing and call it clean.
func convert(from, to string) (int, error) {
	if from == "" || to == "" {
		return 0, errors.New("both -from and -to are needed")
	}
	files, err := filepath.Glob(filepath.Join(from, "GO-*.json"))
	if err != nil {
		return 0, err
	}
	if len(files) == 0 {
		return 0, fmt.Errorf("no OSV entries in %s", from)
	}
	for _, dir := range []string{"ID", "index"} {
		if err := os.MkdirAll(filepath.Join(to, dir), 0o755); err != nil {
			return 0, err
		}
	}
	modules := map[string]*indexModule{}
	var newest time.Time
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		var e entry
		if err := json.Unmarshal(data, &e); err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		if e.ID+".json" != filepath.Base(file) {
			return 0, fmt.Errorf("%s: holds entry %q", file, e.ID)
		}
		if e.Modified.After(newest) {
			newest = e.Modified
		}
		for _, a := range e.Affected {
			m := modules[a.Package.Name]
			if m == nil {
				m = &indexModule{Path: a.Package.Name}
				modules[a.Package.Name] = m
			}
			v := indexVuln{ID: e.ID, Modified: e.Modified}
			if !slices.Contains(m.Vulns, v) {
				m.Vulns = append(m.Vulns, v)
			}
		}
		if err := os.WriteFile(filepath.Join(to, "ID", filepath.Base(file)), data, 0o644); err != nil {
			return 0, err
		}
	}
	index := make([]*indexModule, 0, len(modules))
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		index = append(index, modules[path])
	}
	if err := writeJSON(filepath.Join(to, "index/modules.json"), index); err != nil {
		return 0, err
	}
	err = writeJSON(filepath.Join(to, "index/db.json"), map[string]time.Time{"modified": newest})
	return len(files), err
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
