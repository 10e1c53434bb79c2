// Package domain owns the Domain Anchor: the pairing of a profile with a
// canonical workspace path, the hash that names it, and the paths made from it.
package domain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
)

// HashLen is the number of hex digits of a domain hash.
const HashLen = 12

// ErrBroad marks a workspace that holds far more than one project.
var ErrBroad = errors.New("workspace is too broad")

// Anchor is one domain. The zero value is not valid; use New or Ephemeral.
type Anchor struct {
	Profile   string `json:"profile"`
	Workspace string `json:"workspace,omitempty"` // canonical host path, "" when ephemeral
	Hash      string `json:"hash"`
	Root      string `json:"root"` // the Domain Root
	Ephemeral bool   `json:"ephemeral,omitempty"`
}

// Hash is the first 12 hex digits of SHA-256 of "<profile>:<canonical workspace path>".
func Hash(profile, workspace string) string {
	sum := sha256.Sum256([]byte(profile + ":" + workspace))
	return hex.EncodeToString(sum[:])[:HashLen]
}

// ValidHash reports whether s has the form of a domain hash.
func ValidHash(s string) bool {
	return len(s) == HashLen && strings.Trim(s, "0123456789abcdef") == ""
}

// Canonical resolves every symbolic link of path, which must lead to an
// existing directory: two spellings of one directory give one domain.
func Canonical(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("workspace %q: %w", path, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", lookError(path, abs, err)
	}
	fi, err := os.Stat(real)
	if err != nil {
		return "", lookError(path, abs, err)
	}
	if !fi.IsDir() {
		return "", fmt.Errorf("workspace %q is not a directory: mount the project's directory at /workspace", path)
	}
	if strings.ContainsAny(real, "\x00\n\r") {
		return "", fmt.Errorf("workspace %q: line breaks in the path are not supported: rename the directory", path)
	}
	return real, nil
}

// lookError tells why a workspace cannot be looked at, in the user's own words for it
// unless another place on the way is at fault.
func lookError(path, abs string, err error) error {
	var at *fs.PathError
	if !errors.As(err, &at) {
		return fmt.Errorf("workspace %q: %w", path, err)
	}
	where := ""
	if at.Path != abs {
		where = " at " + strconv.Quote(at.Path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("workspace %q: %w%s: make the directory, or name another one", path, at.Err, where)
	}
	return fmt.Errorf("workspace %q: %w%s", path, at.Err, where)
}

// New makes the anchor of a profile and a canonical workspace (see Canonical).
func New(profile, workspace, dataRoot string) Anchor {
	h := Hash(profile, workspace)
	return Anchor{Profile: profile, Workspace: workspace, Hash: h, Root: root(dataRoot, h)}
}

// Ephemeral makes the anchor of a container without a workspace. Its key is the
// container id, which never starts with "/": no workspace has the same hash text.
func Ephemeral(profile, containerID, dataRoot string) Anchor {
	h := Hash(profile, containerID)
	return Anchor{Profile: profile, Hash: h, Root: root(dataRoot, h), Ephemeral: true}
}

func root(dataRoot, hash string) string { return filepath.Join(dataRoot, "domains", hash) }

// CheckBroad refuses the file system's root, the home directory, and every
// directory that contains it. home may be "".
func CheckBroad(workspace, home string) error {
	if workspace == "/" {
		return fmt.Errorf("%w: / is the whole host: mount a project's directory, or set allow_broad_workspace = true in the profile", ErrBroad)
	}
	if home == "" {
		return nil
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	if home != "/" && (home == workspace || strings.HasPrefix(home, workspace+"/")) {
		return fmt.Errorf("%w: %s holds the home directory with its keys and settings: mount a project's directory, or set allow_broad_workspace = true in the profile", ErrBroad, workspace)
	}
	return nil
}

// Own are Lazaret's own directories, canonical or as configured; "" for none.
type Own struct {
	DataRoot   string
	RuntimeDir string
	ConfigDir  string // of the user's configuration
	ControlDir string
}

// CheckOwn refuses a workspace in which the agent could write what guards it:
// one that is or lies in a directory of Lazaret's own, and, unless broad is
// allowed, one that contains one. A workspace below control_dir, which is /tmp
// for most, sees no name of ours.
func CheckOwn(workspace string, own Own, broad bool) error {
	for _, d := range []struct {
		name, path string
		inside     bool // refuse what lies in it
	}{
		{"data_root", own.DataRoot, true},
		{"runtime directory", own.RuntimeDir, true},
		{"configuration", own.ConfigDir, true},
		{"control_dir", own.ControlDir, false},
	} {
		if d.path == "" {
			continue
		}
		if real, err := filepath.EvalSymlinks(d.path); err == nil {
			d.path = real
		}
		switch {
		case workspace == d.path, d.inside && contains(d.path, workspace):
			return fmt.Errorf("workspace %s is in Lazaret's own %s %s: mount a project's directory", workspace, d.name, d.path)
		case !broad && contains(workspace, d.path):
			return fmt.Errorf("%w: %s holds Lazaret's own %s %s: mount a project's directory", ErrBroad, workspace, d.name, d.path)
		}
	}
	return nil
}

// contains reports whether p lies below dir.
func contains(dir, p string) bool {
	return p != dir && (dir == "/" || strings.HasPrefix(p, dir+"/"))
}

// LockPath and SocketPath are the two names of the domain that everybody can
// derive; controlDir is "/tmp" unless configured.
func (a Anchor) LockPath(controlDir string) string {
	return filepath.Join(controlDir, "lazaret_coord_"+a.Hash+".lock")
}

// SocketPath is the control socket's name, see LockPath.
func (a Anchor) SocketPath(controlDir string) string {
	return filepath.Join(controlDir, "lazaret_coord_"+a.Hash+".sock")
}

// WriteRecord keeps in the Domain Root which domain it belongs to, for people
// and for clean-up.
func WriteRecord(a Anchor) error {
	data, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return fmt.Errorf("record the domain: %w", err)
	}
	path := filepath.Join(a.Root, "domain.json")
	data = append(data, '\n')
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return atomicfile.Write(path, data, 0o600, !a.Ephemeral) // an ephemeral domain outlives no crash
}

// ReadRecord reads what WriteRecord kept in a Domain Root.
func ReadRecord(root string) (Anchor, error) {
	path := filepath.Join(root, "domain.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return Anchor{}, err
	}
	var a Anchor
	if err := json.Unmarshal(data, &a); err != nil {
		return Anchor{}, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if !ValidHash(a.Hash) || a.Root != root {
		return Anchor{}, fmt.Errorf("%s is another domain's", path)
	}
	return a, nil
}

// Unrecorded reports whether root has no record: a start was killed before it
// wrote one, or the removal of an ephemeral root after it took that away.
func Unrecorded(root string) bool {
	_, err := os.Lstat(filepath.Join(root, "domain.json"))
	return errors.Is(err, fs.ErrNotExist)
}

// RemoveUnrecorded removes a root without a record that holds nothing but what
// such a kill leaves; one with anything else in it stays as it is. The domain's
// lock must be held.
func RemoveUnrecorded(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("remove %s: %w", root, err)
	}
	for _, e := range entries {
		if n := e.Name(); n != "coordinator.log" && n != "coordinator.pid" && !strings.HasPrefix(n, ".domain.json.tmp-") {
			return fmt.Errorf("%s has no domain.json but %s: look at it, and remove it by hand", root, n)
		}
	}
	return os.RemoveAll(root)
}
