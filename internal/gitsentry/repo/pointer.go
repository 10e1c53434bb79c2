package repo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// maxPointer is how many bytes a file that leads to a git directory may have.
const maxPointer = 4096

// parsePointer returns the path in a .git file. It is stricter than git: one
// line of text, so that all who read it read the same.
func parsePointer(data []byte) (string, error) {
	text, ok := bytes.CutPrefix(data, []byte("gitdir: "))
	if !ok {
		return "", errors.New(`does not begin with "gitdir: "`)
	}
	return line(text)
}

// line takes one line of text with nothing that a terminal would obey.
func line(data []byte) (string, error) {
	data = bytes.TrimSuffix(data, []byte("\n"))
	data = bytes.TrimSuffix(data, []byte("\r"))
	text := string(data)
	switch {
	case len(data) > maxPointer:
		return "", fmt.Errorf("larger than %d bytes", maxPointer)
	case text == "":
		return "", errors.New("names no path")
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return "", errors.New("is not one line of text")
	}
	return text, nil
}

func readLine(name string) (string, error) {
	data, err := readSmall(name)
	var text string
	if err == nil {
		text, err = line(data)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: run git worktree repair in the main worktree", name, err)
	}
	return text, nil
}

func readSmall(name string) ([]byte, error) { return readFile(name, maxPointer) }

// readFile reads a regular file of at most limit bytes, and no link.
func readFile(name string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer file.Close() //nolint:errcheck // only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is not a regular file (%s)", info.Mode().Type()&fs.ModeType)
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	return data, err
}
