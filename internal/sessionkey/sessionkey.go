// Package sessionkey owns Session Anchors as text and files: how the private half
// of a Client Session's key pair reaches the process of that session.
package sessionkey

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
)

// Variables of a session's process. No name has KEY, TOKEN or SECRET in it: agents
// take variables of such names out of what they run.
const (
	EnvID     = "LAZARET_SESSION_ID"
	EnvAnchor = "LAZARET_SESSION_ANCHOR"
)

// ErrNone means that nobody has left a Session Anchor for that id.
var ErrNone = errors.New("no session anchor was left")

// ownedMark follows the key of a session that has a terminal of its own.
const ownedMark = " owned"

// maxAge is for how long one that nobody took may lie: a start may have to fetch
// its image first.
const maxAge = time.Hour

// New makes a Session Anchor.
func New() (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a session anchor: %w", err)
	}
	return key, nil
}

// Public is the half that the coordinator gets.
func Public(key ed25519.PrivateKey) ed25519.PublicKey {
	return ed25519.PublicKey(key[ed25519.PrivateKeySize-ed25519.PublicKeySize:])
}

// Encode is the private half as text, without the padding that programs which split
// variables at each "=" would lose.
func Encode(key ed25519.PrivateKey) string {
	return base64.RawStdEncoding.EncodeToString(key.Seed())
}

// Parse reads what Encode wrote.
func Parse(text string) (ed25519.PrivateKey, error) {
	seed, err := base64.RawStdEncoding.Strict().DecodeString(text)
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("session anchor is not the base64 of %d bytes", ed25519.SeedSize)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// ValidID reports whether id is a session's: a UUID as it is usually written, and
// so a safe name of a file.
func ValidID(id string) bool {
	u, err := uuid.Parse(id)
	return err == nil && u.String() == id
}

func dir(runtimeDir string) string { return filepath.Join(runtimeDir, "sessions") }

// Leave offers key to the runtime that is about to be called for the session id,
// by a file below runtimeDir, Lazaret's own, that only this user reads: engines
// hand their environment on to no runtime, and a command line is everybody's to
// read. owned says that the session's own terminal answers for it, else it is
// anybody's console. Whoever leaves it calls Forget in the end.
func Leave(runtimeDir, id string, key ed25519.PrivateKey, owned bool) error {
	if !ValidID(id) {
		return fmt.Errorf("leave a session anchor: %q is not a session's id", id)
	}
	if err := os.MkdirAll(dir(runtimeDir), 0o700); err != nil {
		return fmt.Errorf("leave a session anchor: %w", err)
	}
	text := Encode(key)
	if owned {
		text += ownedMark
	}
	// On memory: nothing to flush.
	return atomicfile.Write(filepath.Join(dir(runtimeDir), id), []byte(text), 0o600, false)
}

// Forget removes what nobody took.
func Forget(runtimeDir, id string) error {
	if err := os.Remove(filepath.Join(dir(runtimeDir), id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a session anchor: %w", err)
	}
	return nil
}

// Take reads and removes what was left for id; ErrNone where nothing was.
func Take(runtimeDir, id string) (key ed25519.PrivateKey, owned bool, err error) {
	text, err := take(runtimeDir, id)
	if err != nil {
		return nil, false, err
	}
	text, owned = strings.CutSuffix(text, ownedMark)
	key, err = Parse(text)
	return key, owned, err
}

func take(runtimeDir, id string) (string, error) {
	if !ValidID(id) {
		return "", ErrNone
	}
	path := filepath.Join(dir(runtimeDir), id)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return "", ErrNone
	}
	if err != nil {
		return "", fmt.Errorf("read session anchor %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }() // only read
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("read session anchor %s: %w", path, err)
	}
	if st.Mode != unix.S_IFREG|0o600 || int(st.Uid) != os.Geteuid() {
		return "", fmt.Errorf("session anchor %s is not a file of yours that nobody else reads: remove it", path)
	}
	// Removed first: one of two that come at the same time has it.
	if err := os.Remove(path); err != nil {
		return "", fmt.Errorf("take session anchor: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, 128))
	if err != nil {
		return "", fmt.Errorf("read session anchor %s: %w", path, err)
	}
	return string(data), nil
}

// Sweep removes what was left by processes that were killed before they could.
func Sweep(runtimeDir string) error {
	entries, err := os.ReadDir(dir(runtimeDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, e := range entries {
		fi, serr := e.Info()
		if serr == nil && time.Since(fi.ModTime()) > maxAge {
			errs = append(errs, os.Remove(filepath.Join(dir(runtimeDir), e.Name())))
		}
	}
	return errors.Join(append(errs, err)...)
}
