package gitindex

import (
	"bytes"
	"fmt"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/dotgit"
)

// Validate tells whether a host's git may read the index file data: Parse takes
// it, its modes are git's, and no entry leads a checkout to a place that git
// itself would refuse when it adds a path. Errors are ErrMalformed or
// ErrUnsafePath.
//
// Of a split index this is one half: what its nameless entries replace is in the
// shared index, which is to be validated as well (the two together by
// ValidateSplit).
func Validate(data []byte, hashLen int) error {
	var v validator
	p := parser{data: data, hashLen: hashLen, entry: v.entry, undo: v.undo, cached: cachedName}
	if err := p.parse(); err != nil {
		return err
	}
	return v.finish(p.sparse)
}

// validator looks at the entries of one index, in order.
type validator struct {
	// over has the lengths of those paths of stage 0, of entries before, with
	// which the current path begins, the shortest first.
	over []int
	// conflict is the one of them that is a directory of the last path, which is
	// of another stage; 0 for none.
	conflict int
	sparse   bool
}

func unsafePath(path []byte, format string, args ...any) error {
	return fmt.Errorf("%w: %s %s", ErrUnsafePath, quote(path), fmt.Sprintf(format, args...))
}

func (v *validator) entry(e *Entry) error {
	if !knownMode(e.Mode) {
		return malformed("entry %s has mode %o", quote(e.Path), e.Mode)
	}
	if e.Mode == ModeSparseDir {
		if !e.SkipWorktree || e.Stage != 0 || len(e.Path) == 0 {
			return malformed("sparse directory %s is to be checked out", quote(e.Path))
		}
		v.sparse = true
	}
	if len(e.Path) == 0 {
		return nil
	}
	// What the last path had as well was looked at with it, but not for links.
	from := 0
	if e.Mode != ModeSymlink {
		from = bytes.LastIndexByte(e.Path[:e.common], '/') + 1
	}
	if err := verifyPath(e.Path, from, e.Mode); err != nil {
		return err
	}
	return v.clash(e)
}

// clash refuses an entry below one that is no directory.
func (v *validator) clash(e *Entry) error {
	for len(v.over) > 0 && v.over[len(v.over)-1] > e.common {
		v.over = v.over[:len(v.over)-1]
	}
	if v.conflict >= e.common {
		v.conflict = 0
	}
	// Where an entry before the last of over is a directory of this path, it was
	// one of the last path as well.
	if n := len(v.over); n > 0 && v.conflict == 0 {
		if l := v.over[n-1]; l < len(e.Path) && (e.Path[l] == '/' || e.Path[l-1] == '/') {
			v.conflict = l
		}
	}
	if e.Stage != 0 {
		return nil
	}
	if v.conflict > 0 {
		return unsafePath(e.Path, "is below %s, which is no directory", quote(e.Path[:v.conflict]))
	}
	v.over = append(v.over, len(e.Path))
	return nil
}

func (v *validator) finish(sparse bool) error {
	if v.sparse && !sparse {
		return malformed("sparse directories without extension %q", "sdir")
	}
	return nil
}

func (v *validator) undo(path []byte, mode uint32) error {
	if !knownMode(mode) || mode == ModeSparseDir {
		return malformed("resolved conflict %s has mode %o", quote(path), mode)
	}
	return verifyPath(path, 0, mode)
}

func knownMode(mode uint32) bool {
	switch mode {
	case ModeFile, ModeExecutable, ModeSymlink, ModeGitlink, ModeSparseDir:
		return true
	}
	return false
}

// verifyPath looks at the components of path from the byte from on.
func verifyPath(path []byte, from int, mode uint32) error {
	rest := path[from:]
	if mode == ModeSparseDir {
		if !bytes.HasSuffix(rest, []byte("/")) {
			return unsafePath(path, "is a directory without a slash at its end")
		}
		rest = rest[:len(rest)-1]
	}
	for more := true; more; {
		var name []byte
		name, rest, more = bytes.Cut(rest, []byte("/"))
		switch {
		case len(name) == 0:
			return unsafePath(path, "has an empty component")
		case name[0] == '.' && (len(name) == 1 || len(name) == 2 && name[1] == '.'):
			return unsafePath(path, "has a component %s", name)
		case dotgit.Is(name):
			return unsafePath(path, "leads into a git directory")
		case mode == ModeSymlink && dotgit.IsGitmodules(name):
			return unsafePath(path, "makes .gitmodules a symbolic link")
		}
	}
	return nil
}

// cachedName looks at a name in some directory, which may end in a slash.
func cachedName(name []byte) error {
	name = bytes.TrimSuffix(name, []byte("/"))
	if len(name) == 0 || string(name) == "." || string(name) == ".." || bytes.IndexByte(name, '/') >= 0 {
		return unsafePath(name, "is no name in the untracked cache")
	}
	return nil
}
