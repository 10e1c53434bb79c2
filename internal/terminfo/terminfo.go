// Package terminfo owns the way a terminal's description gets from the host into
// a sandbox: it finds the compiled entry for TERM where the host's libraries and
// the terminals themselves keep it, and installs a copy in a directory that the
// sandbox names in TERMINFO_DIRS.
//
// Only directory trees are read. Hashed databases (terminfo.cdb, the BSDs'
// terminfo.db) are not: entries that are only there are not found.
package terminfo

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotFound is returned where the host has no entry for a terminal, and where
// TERM is no name of one. The caller says so and falls back to what the image has.
var ErrNotFound = errors.New("no terminfo entry")

// Fallback is the terminal that nearly every emulator passes for. Install adds its
// entry where the host has it, for a user who then says TERM=xterm-256color.
const Fallback = "xterm-256color"

const maxEntry = 64 << 10 // ncurses itself stops at 32 KiB

// Entry is a compiled terminal description.
type Entry struct {
	Name string // as TERM gives it
	Path string // the host's file; "TERMINFO" for one that stood in the variable itself
	data []byte
}

// Find looks for the entry of term: where ncurses looks (TERMINFO, ~/.terminfo,
// TERMINFO_DIRS, the system's directories), then where terminals and package
// managers install theirs. Files that are no valid entry are passed over.
// home may be empty. term may be anybody's: it never becomes a path unchecked.
func Find(term string, env func(string) string, home string) (Entry, error) {
	if !validName(term) {
		return Entry{}, fmt.Errorf("%w for TERM=%q, which is no name of a terminal", ErrNotFound, clip(term))
	}
	value := env("TERMINFO")
	if data, ok := inline(value); ok && describes(data, term, "") {
		return Entry{term, "TERMINFO", data}, nil
	}
	dirs := searchPath(env, home)
	for _, dir := range dirs {
		for _, name := range fileNames(term) {
			for _, sub := range []string{name[:1], fmt.Sprintf("%02x", name[0])} {
				file := filepath.Join(dir, sub, name)
				if data, err := readEntry(file); err == nil && describes(data, term, name) {
					return Entry{term, file, data}, nil
				}
			}
		}
	}
	return Entry{}, fmt.Errorf("%w for TERM=%s in %d directories of this host; install the terminal's terminfo package, or set TERM=%s",
		ErrNotFound, term, len(dirs), Fallback)
}

// Install copies the entry of term into dst, an existing directory, in both of
// ncurses' layouts: x/xterm and 78/xterm. The Fallback's is added, if the host
// has it. Files and directories are readable by everybody, appear whole or not at
// all, and no symbolic link at or in dst is followed. The error is for term
// alone: it wraps ErrNotFound, or tells what of dst could not be written.
func Install(dst, term string, env func(string) string, home string) error {
	root, err := openDir(unix.AT_FDCWD, dst)
	if err != nil {
		return fmt.Errorf("terminfo directory %s: %w", dst, err)
	}
	defer func() { _ = unix.Close(root) }()
	entry, err := Find(term, env, home)
	if err == nil {
		err = entry.install(root)
	}
	if term != Fallback {
		if entry, ferr := Find(Fallback, env, home); ferr == nil {
			_ = entry.install(root) // a convenience: term's own outcome is what counts
		}
	}
	if err != nil {
		return fmt.Errorf("terminfo directory %s: %w", dst, err)
	}
	return nil
}

func (e Entry) install(root int) error {
	for _, sub := range []string{e.Name[:1], fmt.Sprintf("%02x", e.Name[0])} {
		if err := e.installIn(root, sub); err != nil {
			return fmt.Errorf("write %s/%s: %w", sub, e.Name, err)
		}
	}
	return nil
}

func (e Entry) installIn(root int, sub string) (err error) {
	if err := unix.Mkdirat(root, sub, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := openDir(root, sub)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	if err := unix.Fchmod(dir, 0o755); err != nil { // whatever the umask
		return err
	}
	temp, fd, err := createTemp(dir, e.Name)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(dir, temp, 0)
		}
	}()
	_, err = f.Write(e.data)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return unix.Renameat(dir, temp, dir, e.Name)
}

// createTemp makes a new file with a leading dot, which no terminal's name has.
func createTemp(dir int, name string) (temp string, fd int, err error) {
	for i := range 1000 { // others may be at it, or have been killed
		temp = fmt.Sprintf(".%s.%d.%d", name, os.Getpid(), i)
		fd, err = unix.Openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return temp, fd, err
}

func openDir(at int, name string) (int, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	return fd, nil
}

// readEntry reads a file that may be an entry. Links are followed, as
// distributions make entries of them; anything but a small regular file is not read.
func readEntry(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO must not hold us up
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxEntry {
		return nil, fmt.Errorf("%s is not a small regular file", name)
	}
	return io.ReadAll(io.LimitReader(f, maxEntry))
}

// describes tells whether data, filed under the name file, is a compiled entry
// for term. A file of term's own name counts whatever it calls itself, as with
// ncurses: Debian's rxvt knows itself as rxvt-color only.
func describes(data []byte, term, file string) bool {
	names, err := parseNames(data)
	return err == nil && (file == term || slices.Contains(names, term))
}

// validName is stricter than ncurses: no slash, no leading dot, nothing that needs
// quoting anywhere, and short.
func validName(term string) bool {
	if term == "" || len(term) > 64 {
		return false
	}
	for i, c := range []byte(term) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && strings.IndexByte("+._-", c) >= 0:
		default:
			return false
		}
	}
	return true
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// fileNames are the names under which term's entry may be filed. Debian files
// ncurses' own entry for Ghostty, an alias of which is xterm-ghostty, by its
// first name only.
func fileNames(term string) []string {
	names := []string{term}
	if short, ok := strings.CutPrefix(term, "xterm-"); ok && short != "" && validName(short) {
		names = append(names, short)
	}
	return names
}

// inline decodes an entry that stands in TERMINFO itself, as ncurses 6.1 takes
// it, and as Kitty (terminfo_type direct) gives it.
func inline(value string) ([]byte, bool) {
	if len(value) > 2*maxEntry {
		return nil, false
	}
	if text, ok := strings.CutPrefix(value, "hex:"); ok {
		data, err := hex.DecodeString(text)
		return data, err == nil
	}
	if text, ok := strings.CutPrefix(value, "b64:"); ok {
		text = strings.TrimRight(text, "=")
		for _, enc := range []*base64.Encoding{base64.RawURLEncoding, base64.RawStdEncoding} {
			if data, err := enc.DecodeString(text); err == nil {
				return data, true
			}
		}
	}
	return nil, false
}
