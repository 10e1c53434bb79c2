package gitconf

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// trail is the way that the kernel takes to a path.
type trail struct {
	end    string      // where it ends, on the host, without links
	info   fs.FileInfo // what is there, nil for nothing or nothing that this user can see
	inside bool        // end is in the workspace, and not its root
	// Of the workspace, relative to it: the links that stand for the end, those
	// that stand for directories, and the directories, there or not.
	links, dirLinks, ways []string
}

// Bounds on one search: a crafted file must not keep a start busy.
const (
	maxTrails = 20_000
	maxPath   = 4096 // as the kernel
	maxLinks  = 40   // as the kernel
)

// trace follows path, which is absolute, name by name. What is missing, or
// hidden from this user and so from his git, is followed by its name. A path
// that the kernel refuses, for its length or a loop of links, ends early.
func (f *finder) trace(path string) (trail, error) {
	if f.trails++; f.trails > maxTrails {
		return trail{}, fmt.Errorf("git configuration names more than %d paths: remove what is not needed", maxTrails)
	}
	var t trail
	cur, rest, links := "/", path, 0
	for rest != "" && len(rest) <= maxPath {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			cur = filepath.Dir(cur)
			t.info, _ = os.Lstat(cur) // nil: hidden or missing
			continue
		}
		next := filepath.Join(cur, name)
		info, err := os.Lstat(next)
		last := strings.Trim(rest, "/") == ""
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(next)
			if links++; links > maxLinks || err != nil {
				cur = next
				break
			}
			if rel, inside := f.rel(next); inside && last {
				t.links = append(t.links, rel)
			} else if inside {
				t.dirLinks = append(t.dirLinks, rel)
			}
			if filepath.IsAbs(target) {
				cur = "/"
			}
			rest = target + "/" + rest
			continue
		}
		cur, t.info = next, info
		if err != nil {
			t.info = nil
		} else if os.SameFile(info, f.root) {
			cur = f.Workspace // by another mount
		}
		if rel, inside := f.rel(cur); inside && !last {
			t.ways = append(t.ways, rel)
		}
	}
	t.end = cur
	_, t.inside = f.rel(cur)
	return t, nil
}

// rel is path relative to the workspace. The workspace itself is not inside.
func (f *finder) rel(path string) (rel string, inside bool) {
	rel, inside = strings.CutPrefix(path, strings.TrimSuffix(f.Workspace, "/")+"/")
	return rel, inside && rel != ""
}
