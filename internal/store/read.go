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
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Size() == 0 { // a start was killed here
		heads, herr := readHeads(root)
		if errors.Is(herr, fs.ErrNotExist) {
			heads, herr = map[string]audit.Head{}, nil
		}
		return audit.Page{Heads: heads, Entries: []audit.Entry{}}, herr
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
	p := audit.Page{Entries: []audit.Entry{}}
	switch {
	case err != nil:
	case v > schema:
		err = newer(v)
	case v > 0: // else nothing is in it yet
		p, err = page(db, root, chain, after)
	}
	if err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return p, errors.Join(err, db.Close())
}
