package domain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
)

// writtenFile in data_root lists what sandboxes were given to write to beside
// their workspaces: a path in Go's quotes on each line.
const writtenFile = "written-to"

// RecordWritten adds host paths to those that agents have written to. They stay:
// what an agent has left there outlives its sandbox. Their file is on the disk
// when RecordWritten returns.
func RecordWritten(dataRoot string, paths []string) (err error) {
	if len(paths) == 0 {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("record what the sandbox may write to: %w", err) }
	unlock, err := atomicfile.LockDir(dataRoot)
	if err != nil {
		return fail(err)
	}
	defer unlock()
	all, err := Written(dataRoot)
	if err != nil {
		return fail(err)
	}
	before := len(all)
	for _, p := range paths {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	if len(all) == before {
		return nil
	}
	var text strings.Builder
	for _, p := range all {
		text.WriteString(strconv.Quote(p) + "\n")
	}
	if err := atomicfile.Write(filepath.Join(dataRoot, writtenFile), []byte(text.String()), 0o600, true); err != nil {
		return fail(err)
	}
	return nil
}

// Written lists what RecordWritten has recorded below dataRoot; nil where that is
// nothing.
func Written(dataRoot string) ([]string, error) {
	path := filepath.Join(dataRoot, writtenFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		p, err := strconv.Unquote(strings.TrimSpace(line))
		if err != nil || !filepath.IsAbs(p) {
			return nil, fmt.Errorf("%s: %.64q is not an absolute path in quotes: mend or remove the line", path, line)
		}
		all = append(all, p)
	}
	return all, nil
}
