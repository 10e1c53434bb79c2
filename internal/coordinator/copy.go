package coordinator

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// copyProgram puts an executable copy of src at dst by rename. A copy, not a
// link: the runtime directory is another file system, and an upgrade must not
// change a program under a running sandbox. It keeps src's time of modification,
// so that the program looks the same in all of a domain's containers.
func copyProgram(src, dst string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return fmt.Errorf("%w: reinstall Lazaret", err)
	}
	defer func() { _ = in.Close() }() // only read
	tmp := dst + ".new"
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755) //nolint:gosec // run by any uid of the sandbox
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	fi, statErr := in.Stat()
	if err = errors.Join(err, statErr, out.Chmod(0o755), out.Close()); err == nil {
		err = os.Chtimes(tmp, time.Time{}, fi.ModTime())
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, dst)
}

// linkProgram gives src a second name, by rename.
func linkProgram(src, dst string) error {
	tmp := dst + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // of a predecessor that was killed
	}
	if err := os.Link(src, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, dst)
}
