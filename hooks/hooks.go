// Package hooks owns the OCI hooks prestart and poststop: each reads the
// container's state on standard input and makes one call to the coordinator.
package hooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// callTimeout is within the time that the runtime gives the hook.
const callTimeout = 10 * time.Second

// teardownWait bounds the wait for a coordinator that ends; a start in the
// domain at the same moment can keep its lock's name alive.
const teardownWait = 2 * time.Second

// maxState bounds the state on standard input, in bytes.
const maxState = 1 << 20

// State is what a hook needs of the OCI state (runtime-spec, runtime.md).
type State struct {
	ID  string `json:"id"`
	PID int    `json:"pid"`
}

// ReadState decodes one OCI state object. Fields that are not needed pass.
func ReadState(r io.Reader) (State, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxState+1))
	if err != nil {
		return State{}, fmt.Errorf("read container state: %w", err)
	}
	if len(data) > maxState {
		return State{}, fmt.Errorf("container state is larger than %d bytes", maxState)
	}
	var s State
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&s); err != nil {
		return State{}, fmt.Errorf("container state is not valid JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return State{}, errors.New("container state has data after the object")
	}
	if !containerstate.ValidID(s.ID) {
		return State{}, fmt.Errorf("container state has no valid id: %.64q", s.ID)
	}
	return s, nil
}

// Run runs the hook called name. The environment, which the shim wrote into the
// hook, says where the coordinator and the container's own files are.
func Run(name string, stdin io.Reader, getenv func(string) string) error {
	s, err := ReadState(stdin)
	if err != nil {
		return err
	}
	socket, dir := getenv("LAZARET_CONTROL_SOCKET"), getenv("LAZARET_STATE_DIR")
	if !filepath.IsAbs(socket) || !filepath.IsAbs(dir) || filepath.Base(dir) != s.ID {
		return fmt.Errorf("environment of the hook is wrong: LAZARET_CONTROL_SOCKET=%q LAZARET_STATE_DIR=%q for container %s: create the container through lazaret-runtime", socket, dir, s.ID)
	}
	switch name {
	case "prestart":
		if s.PID <= 1 {
			return fmt.Errorf("container %s has no sandbox process (pid %d)", s.ID, s.PID)
		}
		if getenv("LAZARET_LOOPBACK") == "1" {
			if err := loopbackUp(s.PID); err != nil {
				return err
			}
		}
		return call(socket, wire.PathAttach, wire.AttachRequest{Version: wire.Version, ContainerID: s.ID, PID: s.PID}, &wire.Empty{})
	case "poststop":
		return release(socket, dir, s.ID)
	}
	return fmt.Errorf("unknown hook %q: it must be prestart or poststop", name)
}

// release counts the container out and, where it was the domain's last, waits
// for the end of the coordinator: once the engine says that a container is
// gone, nothing of it is left.
func release(socket, dir, id string) error {
	end := wire.WatchTeardown(strings.TrimSuffix(socket, ".sock") + ".lock")
	var res wire.ReleaseResponse
	err := call(socket, wire.PathRelease, wire.ReleaseRequest{Version: wire.Version, ContainerID: id}, &res)
	switch {
	case errors.Is(err, wire.ErrNoCoordinator) || wire.Cut(err):
		// It saw the sandbox end and is going or gone, or was killed: what it
		// would have removed is removed here.
		end.Wait(teardownWait, true)
		return os.RemoveAll(dir)
	case err == nil && !res.InUse:
		end.Wait(teardownWait, false)
	}
	return err
}

func call(socket, path string, req, res any) error {
	c, err := wire.Dial(socket, callTimeout)
	if err != nil {
		return err
	}
	return errors.Join(c.Call(path, req, res, callTimeout), c.Close())
}
