package escalate

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"github.com/lazaret-dev/lazaret/internal/sessionkey"
)

// Session is the Client Session that a process belongs to.
type Session struct {
	ID  string
	Key ed25519.PrivateKey
}

// maxAncestors bounds the way up.
const maxAncestors = 64

// FindSession reads the session from the process's own environment, got by getenv;
// where somebody has taken it out, from that of its nearest ancestor which has it,
// below procDir. Agents give what they run a chosen environment.
func FindSession(getenv func(string) string, procDir string) (Session, error) {
	if text := getenv(sessionkey.EnvAnchor); text != "" {
		return parseSession(getenv(sessionkey.EnvID), text)
	}
	pid, unreadable := os.Getppid(), error(nil)
	for range maxAncestors {
		if pid <= 0 {
			break
		}
		dir := filepath.Join(procDir, strconv.Itoa(pid))
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			unreadable = err
		}
		if text := variable(env, sessionkey.EnvAnchor); text != "" {
			return parseSession(variable(env, sessionkey.EnvID), text)
		}
		if pid, err = parent(dir); err != nil {
			break
		}
	}
	err := fmt.Errorf("the environment has no %s, and no ancestor's has: this process belongs to no session of Lazaret's; hand the variables %s and %s on", sessionkey.EnvAnchor, sessionkey.EnvID, sessionkey.EnvAnchor)
	if unreadable != nil {
		err = fmt.Errorf("%w (%w)", err, unreadable)
	}
	return Session{}, err
}

func parseSession(id, anchor string) (Session, error) {
	if !sessionkey.ValidID(id) {
		return Session{}, fmt.Errorf("%s is %.64q, not a session's id", sessionkey.EnvID, id)
	}
	key, err := sessionkey.Parse(anchor)
	if err != nil {
		return Session{}, fmt.Errorf("%s: %w", sessionkey.EnvAnchor, err)
	}
	return Session{ID: id, Key: key}, nil
}

func variable(environ []byte, name string) string {
	for e := range bytes.SplitSeq(environ, []byte{0}) {
		if v, ok := strings.CutPrefix(string(e), name+"="); ok {
			return v
		}
	}
	return ""
}

// parent reads the pid of the parent.
func parent(dir string) (int, error) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, err
	}
	s, err := proc.ParseStat(data)
	return s.Parent, err
}
