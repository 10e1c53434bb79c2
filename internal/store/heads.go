package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lazaret-dev/lazaret/internal/audit"
)

// HeadFile in a Domain Root keeps where the chains have come to, so that a store
// that has lost its end is found.
const HeadFile = "state.head"

// headLen is the length of the file: it is written at once and within one sector,
// and needs no new room on a full disk.
const headLen = 512

type headFile struct {
	f    *os.File
	made bool // just now
}

// openHeads opens the file, and makes it where there is none: before the store, so
// that no store with records was ever without it.
func openHeads(root string) (*headFile, error) {
	path := filepath.Join(root, HeadFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	h := &headFile{f: f}
	err = onlyOurs(f)
	var fi fs.FileInfo
	if err == nil {
		fi, err = f.Stat()
	}
	if err == nil && fi.Size() == 0 {
		h.made = true
		if err = h.write(map[string]audit.Head{}); err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), f.Close())
	}
	return h, nil
}

// write is not flushed: after a fall of the machine the file may be behind, which
// is no fault, as a chain may have grown since.
func (h *headFile) write(heads map[string]audit.Head) error {
	data, err := json.Marshal(heads)
	if err != nil {
		return err
	}
	line := bytes.Repeat([]byte(" "), headLen)
	line[headLen-1] = '\n'
	if copy(line, data) > headLen-1 {
		return fmt.Errorf("%s would have more than %d bytes", h.f.Name(), headLen)
	}
	_, err = h.f.WriteAt(line, 0)
	return err
}

func (h *headFile) close() error { return errors.Join(h.f.Sync(), h.f.Close()) }

// readHeads reads the file. fs.ErrNotExist where there is none.
func readHeads(root string) (map[string]audit.Head, error) {
	path := filepath.Join(root, HeadFile)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	data := make([]byte, headLen+1)
	n, err := f.ReadAt(data, 0)
	var heads map[string]audit.Head
	if n == headLen {
		err = json.Unmarshal(data[:n], &heads)
	}
	if n != headLen || err != nil {
		return nil, fmt.Errorf("%s is damaged (%d bytes): %w; %s", path, n, err, aside)
	}
	return heads, nil
}
