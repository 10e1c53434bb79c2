package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
)

// TrustStore remembers which content of which file the developer has trusted.
// It is a JSON file of the developer's own, and holds no secrets.
type TrustStore struct {
	path string
	err  error // why there is no store
}

// TrustEntry is one trusted file.
type TrustEntry struct {
	Path   string    `json:"-"` // canonical
	SHA256 string    `json:"sha256"`
	When   time.Time `json:"trusted_at"`
}

type trustFile struct {
	Version int                   `json:"version"`
	Files   map[string]TrustEntry `json:"files"`
}

const trustVersion = 1

var errNoStore = errors.New("no home directory is known, so there is no trust store")

// trustStore finds the store by the user's own layer alone: neither the
// workspace's file nor --config can point it elsewhere.
func trustStore(o Options, user *layer) *TrustStore {
	v := builtin(o).with(user, false).get("general.data_root")
	s, _ := v.v.(string)
	if s == "" {
		return &TrustStore{err: errNoStore}
	}
	dir, err := hostPath(s, o.Home, noVarsHere)
	if err == nil {
		dir, err = Canonical(dir)
	}
	if err != nil {
		return &TrustStore{err: fmt.Errorf("find the trust store: %w", err)}
	}
	return &TrustStore{path: filepath.Join(dir, "trust.json")}
}

// OpenTrustStore reads the user's layer, which says where the store is.
func OpenTrustStore(o Options) (*TrustStore, error) {
	o.Workspace, o.File = "", ""
	ls, err := readLayers(o)
	if err != nil {
		return nil, err
	}
	s := trustStore(o, ls.user)
	return s, s.err
}

// Path is the store's file.
func (s *TrustStore) Path() string { return s.path }

// read returns the store's content; an absent one is empty. Everything odd is
// an error: who could have written it decides what the agent may do.
func (s *TrustStore) read() (*trustFile, error) {
	if s.err != nil {
		return nil, s.err
	}
	empty := &trustFile{Version: trustVersion, Files: map[string]TrustEntry{}}
	f, err := os.OpenFile(s.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return nil, fmt.Errorf("trust store: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("trust store: %w", err)
	}
	if err := s.checkOwner(fi); err != nil {
		return nil, err
	}
	const maxStore = 16 << 20
	data, err := io.ReadAll(io.LimitReader(f, maxStore+1))
	if err != nil {
		return nil, fmt.Errorf("trust store %s: %w", s.path, err)
	}
	if len(data) > maxStore {
		return nil, fmt.Errorf("trust store %s is larger than %d bytes: remove it and trust the files again", s.path, maxStore)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	out := &trustFile{}
	if err := dec.Decode(out); err != nil {
		return nil, fmt.Errorf("trust store %s is damaged: %w; remove it and trust the files again", s.path, err)
	}
	if out.Version != trustVersion {
		return nil, fmt.Errorf("trust store %s has version %d, this Lazaret knows %d: use the newer Lazaret, or remove it and trust the files again", s.path, out.Version, trustVersion)
	}
	if out.Files == nil {
		out.Files = empty.Files
	}
	return out, nil
}

func (s *TrustStore) checkOwner(fi fs.FileInfo) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.Mode().IsRegular():
		return fmt.Errorf("trust store %s is not a regular file: remove it", s.path)
	case !ok || int(st.Uid) != os.Geteuid():
		return fmt.Errorf("trust store %s belongs to another user: remove it and trust the files again", s.path)
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("trust store %s can be written by others (mode %04o): look at its content, then run: chmod 600 %s", s.path, fi.Mode().Perm(), s.path)
	}
	return nil
}

// state tells whether path is trusted with the content of that SHA-256.
func (s *TrustStore) state(path, sum string) (Trust, error) {
	t, err := s.read()
	if errors.Is(err, errNoStore) {
		return Untrusted, nil // nothing was ever trusted
	}
	if err != nil {
		return "", err
	}
	e, ok := t.Files[path]
	switch {
	case !ok:
		return Untrusted, nil
	case e.SHA256 == sum:
		return Trusted, nil
	}
	return Changed, nil
}

// List returns the trusted files, sorted by path.
func (s *TrustStore) List() ([]TrustEntry, error) {
	t, err := s.read()
	if err != nil {
		return nil, err
	}
	out := make([]TrustEntry, 0, len(t.Files))
	for path, e := range t.Files {
		e.Path = path
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b TrustEntry) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// Trust records the very content that in was made of.
func (s *TrustStore) Trust(in *Inspection, now time.Time) error {
	return s.change(func(t *trustFile) bool {
		t.Files[in.Path] = TrustEntry{SHA256: in.SHA256, When: now.UTC().Truncate(time.Second)}
		return true
	})
}

// Revoke forgets path, which is canonical; it reports whether it was trusted.
func (s *TrustStore) Revoke(path string) (bool, error) {
	found := false
	err := s.change(func(t *trustFile) bool {
		_, found = t.Files[path]
		delete(t.Files, path)
		return found
	})
	return found, err
}

// change reads, edits and replaces the store under a lock of its own, as two
// terminals may trust at once.
func (s *TrustStore) change(edit func(*trustFile) bool) error {
	if s.err != nil {
		return s.err
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("trust store: %w", err)
	}
	lock, err := os.OpenFile(s.path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("trust store: %w", err)
	}
	defer func() { _ = lock.Close() }() // drops the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s.lock: %w", s.path, err)
	}
	t, err := s.read()
	if err != nil {
		return err
	}
	if !edit(t) {
		return nil
	}
	data, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return fmt.Errorf("trust store: %w", err)
	}
	if err := atomicfile.Write(s.path, append(data, '\n'), 0o600, true); err != nil {
		return fmt.Errorf("trust store: %w", err)
	}
	return nil
}

// Inspection is what a file would do if it were trusted.
type Inspection struct {
	Path    string // canonical; where the store keeps it
	SHA256  string // of the content that was looked at
	Trust   Trust
	Loosens []*Error // in the order of the lines; empty = it only tightens
}

// TrustPath is the canonical path of the file that path means: a directory
// stands for the lazaret.toml in it. The file need not exist, and is itself
// never a link.
func TrustPath(path string) (string, error) {
	abs, err := absolute(path)
	if err != nil {
		return "", err
	}
	if fi, err := os.Lstat(abs); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		if fi, err = os.Stat(abs); err != nil || !fi.IsDir() {
			return "", fmt.Errorf("%s is a symbolic link: name the file itself", printable(path))
		}
	}
	if fi, err := os.Stat(abs); err == nil && fi.IsDir() {
		abs = filepath.Join(abs, WorkspaceFile)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", printable(path), err)
	}
	return filepath.Join(dir, filepath.Base(abs)), nil
}

// Inspect reads the file of path (see TrustPath) once and tells what it would
// loosen above the user's own configuration. A file with faults is an error.
func Inspect(o Options, path string) (*Inspection, error) {
	o.Workspace, o.File = "", ""
	ls, err := readLayers(o)
	if err != nil {
		return nil, err
	}
	file, err := TrustPath(path)
	if err != nil {
		return nil, err
	}
	l, err := readLayer(file, o.Home, true)
	if err != nil {
		return nil, err
	}
	state, err := trustStore(o, ls.user).state(file, l.sum)
	if err != nil {
		return nil, err
	}
	base := builtin(o).with(ls.user, false)
	return &Inspection{
		Path: file, SHA256: l.sum, Trust: state,
		Loosens: loosened(base, base.with(l, false), file),
	}, nil
}
