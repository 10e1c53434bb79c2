// Package hostpath owns following a path on the host name by name, as the kernel
// would, so that each step of the way can be judged.
package hostpath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The kernel's own bounds on one path.
const (
	maxPath  = 4096
	maxLinks = 40
)

// ErrPath marks a path that the kernel refuses, for its length or its links.
var ErrPath = errors.New("it is too long, or has a loop of links")

// Step is one name of a path.
type Step struct {
	// Path is the name and the way to it, without links. visit may change it where
	// it knows the directory by another path.
	Path string
	// Info is what is there, nil for nothing or nothing that this user can see,
	// for which Err is the reason.
	Info fs.FileInfo
	Err  error
	// Target is where a symbolic link leads, by its words; "" for all else.
	Target string
	// Last is false while names follow.
	Last bool
}

// Follow tells visit of each name of path, which is absolute, and returns where
// it ends, without links. What is missing is followed by its name. visit's error
// ends the way; one that the kernel would not go is ErrPath and ends there.
func Follow(path string, visit func(*Step) error) (end string, err error) {
	cur, rest, links := "/", path, 0
	for rest != "" {
		if len(rest) > maxPath {
			return cur, ErrPath
		}
		var name string
		if name, rest, _ = strings.Cut(rest, "/"); name == "" || name == "." {
			continue
		}
		s := Step{Path: filepath.Join(cur, name), Last: strings.Trim(rest, "/") == ""}
		if s.Info, s.Err = os.Lstat(s.Path); s.Err != nil {
			s.Info = nil
		} else if s.Info.Mode()&fs.ModeSymlink != 0 {
			s.Target, s.Err = os.Readlink(s.Path)
		}
		if err := visit(&s); err != nil {
			return s.Path, err
		}
		if s.Info == nil || s.Info.Mode()&fs.ModeSymlink == 0 {
			cur = s.Path
			continue
		}
		if links++; links > maxLinks || s.Err != nil {
			return s.Path, ErrPath
		}
		if filepath.IsAbs(s.Target) {
			cur = "/"
		}
		rest = s.Target + "/" + rest
	}
	return cur, nil
}
