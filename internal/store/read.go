package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/lazaret-dev/lazaret/internal/audit"
)

// ReadPage reads the part of a chain that comes after a sequence number, from the
// store of a domain without a coordinator. It keeps the file for that long only,
// and writes nothing. Nothing was recorded where there is no store.
func ReadPage(root, chain string, after uint64) (audit.Page, error) {
	path := filepath.Join(root, File)
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && unborn(root) {
		return empty(root)
	}
	db, err := openFile(path, true)
	if err != nil {
		return audit.Page{}, err
	}
	var v int
	err = guarded(root, func() error {
		return db.View(func(tx *bbolt.Tx) (err error) {
			v, err = schemaOf(tx)
			return err
		})
	})
	var p audit.Page
	switch {
	case err != nil:
	case v > schema:
		err = newer(v)
	case v > 0:
		p, err = page(db, root, chain, after)
	default: // a start was killed before it had put anything in
		p, err = empty(root)
	}
	if err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return p, errors.Join(err, db.Close())
}

// empty is the page of a store without records.
func empty(root string) (audit.Page, error) {
	heads, err := readHeads(root)
	if errors.Is(err, fs.ErrNotExist) {
		heads, err = map[string]audit.Head{}, nil
	}
	return audit.Page{Heads: heads, Entries: []audit.Entry{}}, err
}
