package gitconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/hostpath"
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

// maxTrails bounds one search: a crafted file must not keep a start busy.
const maxTrails = 20_000

var errTrails = fmt.Errorf("git configuration names more than %d paths: remove what is not needed", maxTrails)

// trace follows path, which is absolute, name by name, and notes what it has
// looked at. What is missing, or hidden from this user and so from his git, is
// followed by its name. A path that the kernel refuses ends early.
func (f *finder) trace(path string) (trail, error) {
	if f.trails++; f.trails > maxTrails {
		return trail{}, errTrails
	}
	var t trail
	end, err := hostpath.Follow(path, func(s *hostpath.Step) error {
		f.looked[s.Path] = stampOf(s.Info)
		if s.Target != "" {
			if rel, inside := f.rel(s.Path); inside && s.Last {
				t.links = append(t.links, rel)
			} else if inside {
				t.dirLinks = append(t.dirLinks, rel)
			}
			return nil
		}
		t.info = s.Info
		if s.Info != nil && os.SameFile(s.Info, f.root) {
			s.Path = f.Workspace // by another mount
		}
		if rel, inside := f.rel(s.Path); inside && !s.Last {
			t.ways = append(t.ways, rel)
		}
		return nil
	})
	if err != nil && !errors.Is(err, hostpath.ErrPath) {
		return trail{}, err
	}
	t.end = end
	_, t.inside = f.rel(end)
	return t, nil
}

// rel is path relative to the workspace. The workspace itself is not inside.
func (f *finder) rel(path string) (rel string, inside bool) {
	rel, inside = strings.CutPrefix(path, strings.TrimSuffix(f.Workspace, "/")+"/")
	return rel, inside && rel != ""
}
