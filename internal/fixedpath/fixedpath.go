// Package fixedpath owns the search for programs that Lazaret trusts with the
// host: in fixed directories, never along $PATH, which whoever starts an engine
// (or an env_file in a workspace) can set.
package fixedpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrNotFound is in the chain of Look's error when no directory has the program.
var ErrNotFound = errors.New("not found")

// ErrUnsafe is in the chain of an error about a program that others could
// replace or change.
var ErrUnsafe = errors.New("could be changed by other users")

// Dirs returns the directories that Look searches, first to last.
func Dirs() []string {
	return []string{
		"/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin",
		"/usr/libexec/lazaret",
	}
}

// Look finds a program. An absolute path is checked and returned as it is; a
// bare name is searched in Dirs, where the first regular executable wins. A
// program that others could change is an error and not passed over, so that
// none lower down is started in its place.
func Look(name string) (string, error) {
	return look(name, Dirs())
}

func look(name string, dirs []string) (string, error) {
	switch {
	case name == "" || name == "." || name == "..":
		return "", fmt.Errorf("program name %q: want a name or an absolute path", name)
	case filepath.IsAbs(name):
		return name, Check(name)
	case strings.ContainsRune(name, '/'):
		return "", fmt.Errorf("program %s: want a name or an absolute path, not a relative path", name)
	}
	for _, dir := range dirs {
		p := filepath.Join(dir, name)
		switch err := Check(p); {
		case err == nil:
			return p, nil
		case errors.Is(err, ErrUnsafe):
			return "", err
		}
	}
	return "", fmt.Errorf("program %s: %w in %s", name, ErrNotFound, strings.Join(dirs, ", "))
}

// Check tells whether path is an absolute path to a regular executable file
// (symbolic links are followed) that other users can neither write nor replace:
// the file is not writable by others, and no directory above it is unless it is
// sticky. Ownership is not looked at: in an engine's user namespace everything
// of the host's root belongs to the overflow id.
func Check(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("program %s: not an absolute path", path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("program %s: %w", path, ErrNotFound)
		}
		return fmt.Errorf("program %s: %w", path, err)
	}
	fi, err := os.Stat(real)
	if err != nil {
		return fmt.Errorf("program %s: %w", path, err)
	}
	switch {
	case !fi.Mode().IsRegular():
		return fmt.Errorf("program %s: not a regular file", path)
	case fi.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("program %s: not executable: chmod +x it", path)
	case fi.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("program %s %w: chmod o-w %s", path, ErrUnsafe, real)
	}
	// The way to a link can be bent as well as the way to its target.
	for _, p := range []string{filepath.Clean(path), real} {
		if err := checkDirs(filepath.Dir(p)); err != nil {
			return fmt.Errorf("program %s %w", path, err)
		}
		if p == real {
			break
		}
	}
	return nil
}

func checkDirs(dir string) error {
	for {
		fi, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("is out of reach: %w", err)
		}
		if fi.Mode().Perm()&0o002 != 0 && fi.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("%w: chmod o-w %s", ErrUnsafe, dir)
		}
		if dir == "/" {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}
