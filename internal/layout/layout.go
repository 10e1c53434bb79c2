// Package layout owns where Lazaret's own programs lie beside each other.
package layout

import (
	"fmt"
	"os"
	"path/filepath"
)

// Helper returns the absolute path of a program of the same installation:
// <prefix>/libexec/lazaret/NAME for a caller in <prefix>/bin, or NAME in the
// caller's own directory (a build tree, or a caller that is a helper itself).
// The caller's place is asked from the kernel, never from PATH or argv[0].
func Helper(name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	return helper(filepath.Dir(exe), name)
}

func helper(dir, name string) (string, error) {
	candidates := []string{
		filepath.Join(filepath.Dir(dir), "libexec", "lazaret", name),
		filepath.Join(dir, name),
		filepath.Join(filepath.Dir(filepath.Dir(dir)), "bin", name), // from libexec/lazaret to bin
	}
	for _, p := range candidates {
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed beside %s (looked for %s and %s): reinstall Lazaret", name, dir, candidates[0], candidates[1])
}
