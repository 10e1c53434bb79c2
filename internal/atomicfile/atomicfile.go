// Package atomicfile replaces files so that a reader, or a crash at any
// moment, sees either the old content or the new one, never a part.
package atomicfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces path with data through a temporary file in the same directory
// and rename(2). The file has exactly mode, whatever the umask. With sync the
// content and the directory are flushed to the disk before Write returns;
// without it a crash of the machine (not of the process) can lose the update.
// A symbolic link at path is replaced, not followed.
func Write(path string, data []byte, mode fs.FileMode, sync bool) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()           // the first error is the one to tell
			_ = os.Remove(f.Name()) // nothing half-written stays behind
		}
	}()
	if _, err = f.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err = f.Chmod(mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if sync {
		if err = f.Sync(); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	if err = f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if sync {
		if d, derr := os.Open(dir); derr == nil {
			_ = d.Sync() // some file systems refuse it on directories
			_ = d.Close()
		}
	}
	return nil
}
