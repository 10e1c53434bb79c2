package shim

import (
	"crypto/ed25519"
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

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/sessionkey"
	"github.com/lazaret-dev/lazaret/internal/version"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

// sessionFD is the least number of the descriptor that carries a session's
// connection through execve, above those that an engine passes on.
const sessionFD = 64

// execVerb registers a Client Session and becomes runsc exec. The session is
// the connection, which runsc inherits: it ends when the last process of the
// exec on the host does, however that happens.
func (s *shim) execVerb() error {
	st, err := s.state()
	if errors.Is(err, fs.ErrNotExist) {
		return s.passThrough() // not a container of ours
	}
	if err != nil {
		return err
	}
	lease, err := containerstate.ReadLease(containerstate.Dir(s.env.RuntimeDir, st.ID))
	if err == nil && lease.Attached && !lease.Alive() {
		// The sandbox has ended: runsc refuses, and no coordinator need be started
		// to hear that.
		return s.exec(lowRuntime{path: st.Runsc}, s.missingFlags(st.RunscFlags)...)
	}
	session, key, err := s.execSession(&st)
	if err != nil {
		return err
	}
	terminal, env, err := s.execProcess(&st, session.ID, key)
	if err != nil {
		return err
	}
	start, err := s.startSpec(st.Domain, st.ControlDir, st.LogLevel)
	if err != nil {
		return err
	}
	err = coordinated(start, func(c *wire.Conn) error {
		req := wire.SessionRequest{
			Version: wire.Version, SessionID: session.ID, Kind: "exec", ContainerID: st.ID, Terminal: terminal,
			PublicKey: session.PublicKey, Owned: session.Owned,
		}
		if session.Owned {
			req.Kind = "run"
		}
		if err := c.Call(wire.PathSessions, req, &wire.Empty{}, callTimeout); err != nil {
			return err
		}
		_, err := c.Inherit(sessionFD)
		return err
	})
	if err != nil {
		return err
	}
	if terminal {
		if n := s.unknownTerminal(env); n != "" {
			_, _ = fmt.Fprintf(s.stderr, "%s: %s\n", program, oneLine(n))
		}
		s.installTerminfo(env, st.RunDir) // which exists while there is a coordinator
	}
	return s.exec(lowRuntime{path: st.Runsc}, s.missingFlags(st.RunscFlags)...)
}

// detachedWords refuses what runsc would change without a word: to detach, it
// starts itself once more without any argument that has "detach" in it, be it
// the flag, a path, the container's id or a word of the command.
func (s *shim) detachedWords() error {
	if !s.cmd.Detach {
		return nil
	}
	for _, w := range slices.Concat(s.cmd.Global, s.cmd.Flags, s.cmd.Args) {
		if w != "--detach" && strings.Contains(w, "detach") {
			return fmt.Errorf(`exec --detach: runsc drops every argument that contains "detach", such as %q: put the command into a --process file, and choose paths and container ids without that word`, w)
		}
	}
	return nil
}

// execProcess gives the process of an exec its environment, in its process file
// or by flags, and tells whether it has a terminal, and its environment then.
// A key is given by file only: a command line is everybody's to read.
func (s *shim) execProcess(st *containerstate.State, session string, key ed25519.PrivateKey) (terminal bool, env []string, err error) {
	own := []string{
		"LAZARET_PROFILE=" + st.Domain.Profile,
		"LAZARET_DOMAIN=" + st.Domain.Hash,
		"LAZARET_SANDBOX=" + st.ID,
		"LAZARET_SESSION_ID=" + session,
		"LAZARET_RUNTIME=" + shortVersion(),
	}
	if s.cmd.Process == "" {
		for _, e := range own {
			s.cmd.Flags = append(s.cmd.Flags, "--env="+e)
		}
		return false, nil, nil
	}
	if key != nil {
		own = append(own, sessionkey.EnvAnchor+"="+sessionkey.Encode(key))
	}
	data, mode, err := readProcessFile(s.cmd.Process)
	if err != nil {
		return false, nil, err
	}
	var before struct {
		Env []string `json:"env"`
	}
	if err := json.Unmarshal(data, &before); err != nil {
		return false, nil, fmt.Errorf("process file %s: %w", s.cmd.Process, err)
	}
	own = append(own, gitSettings(st.PathDirs, before.Env)...)
	out, err := spec.RewriteProcess(data, spec.ProcessPlan{Env: own, PathDirs: st.PathDirs, TerminfoDir: spec.RunPath + "/terminfo"})
	if err != nil {
		return false, nil, err
	}
	if err := atomicfile.Write(s.cmd.Process, out, mode, false); err != nil {
		return false, nil, err
	}
	var p struct {
		Terminal bool     `json:"terminal"`
		Env      []string `json:"env"`
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return false, nil, fmt.Errorf("process file %s: %w", s.cmd.Process, err)
	}
	return p.Terminal, p.Env, nil
}

// readProcessFile reads the engine's process file, which must be a plain file.
func readProcessFile(path string) (data []byte, mode fs.FileMode, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("process file: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	fi, err := f.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("process file: %w", err)
	}
	if !fi.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("process file %s is not a plain file", path)
	}
	data, err = io.ReadAll(io.LimitReader(f, spec.MaxSize+1))
	if err != nil {
		return nil, 0, fmt.Errorf("process file %s: %w", filepath.Clean(path), err)
	}
	return data, fi.Mode().Perm(), nil
}

// shortVersion is version and commit as one word, in the form of semver.org.
func shortVersion() string { return version.Version + "+" + version.Commit }
