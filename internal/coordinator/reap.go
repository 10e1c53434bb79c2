package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
)

// reapTime bounds one call of the low-level runtime.
const reapTime = 10 * time.Second

// orphanEnd bounds the wait for the end of a process that was killed.
const orphanEnd = 2 * time.Second

// reap removes what is left of a container whose create was killed, or which
// its engine has forgotten: nobody else will ever end its processes.
func (c *Coordinator) reap(ctx context.Context, stateDir string) {
	st, err := containerstate.ReadState(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return // the runtime was never started
	}
	if err == nil {
		_, err = runsc(ctx, st, "delete", "--force", st.ID)
		err = errors.Join(err, endOrphans(st), removeRuntimeFiles(st))
	}
	if err != nil {
		c.log.Error("remove what is left of a container", "container", st.ID, "error", err)
	}
}

// neverStarted asks the runtime whether the container was created and no more.
func neverStarted(ctx context.Context, st containerstate.State) bool {
	out, err := runsc(ctx, st, "state", st.ID)
	var state struct {
		Status string `json:"status"`
	}
	return err == nil && json.Unmarshal(out, &state) == nil && state.Status == "created"
}

// runsc runs a verb on a container as the engine would.
func runsc(ctx context.Context, st containerstate.State, verb string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, reapTime)
	defer cancel()
	argv := slices.Clone(st.RunscFlags)
	if st.RunscRoot != "" {
		argv = append(argv, "--root="+st.RunscRoot)
	}
	argv = append(append(argv, verb), args...)
	cmd := exec.CommandContext(ctx, st.Runsc, argv...)
	cmd.Dir = "/"
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("runsc %s: %w: %.300s", verb, err, oneLine(stderr.Bytes()))
	}
	return out, nil
}

func oneLine(b []byte) []byte {
	return bytes.ReplaceAll(bytes.TrimSpace(b), []byte("\n"), []byte("; "))
}

// endOrphans ends the container's processes that the runtime does not know of:
// it writes down the sandbox only once that is complete, and a create that is
// killed before leaves sandbox and gofer running. Both bear the container's id
// as their last argument, and are the runtime's own program.
func endOrphans(st containerstate.State) error {
	want, err := os.Stat(st.Runsc)
	if err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !isOrphan(pid, st, want) {
			continue
		}
		p, err := proc.Open(pid)
		if err != nil {
			continue // ended meanwhile
		}
		// Looked at again, as the pid may have come to mean another process before
		// it was opened.
		if isOrphan(pid, st, want) {
			if err := p.Signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("end orphan %d: %w", pid, err))
			}
			// SIGKILL is only sent: who is told that nothing is left finds nothing.
			p.WaitUntil(time.Now().Add(orphanEnd))
			continue
		}
		p.Close()
	}
	return errors.Join(errs...)
}

// isRuntimeProcess reports whether pid is runsc's sandbox or gofer of a container.
func isOrphan(pid int, st containerstate.State, program fs.FileInfo) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	argv := bytes.Split(bytes.TrimSuffix(data, []byte{0}), []byte{0})
	name, last := string(argv[0]), string(argv[len(argv)-1])
	if (name != "runsc-sandbox" && name != "runsc-gofer") || last != st.ID || !sameBundle(argv, st.Bundle) {
		return false
	}
	exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && os.SameFile(exe, program)
}

// sameBundle reports whether the arguments of runsc-sandbox or runsc-gofer name
// the bundle: two engines can have a container of one id.
func sameBundle(argv [][]byte, bundle string) bool {
	for i, a := range argv {
		value, ok := bytes.CutPrefix(a, []byte("--bundle="))
		if !ok && string(a) == "--bundle" && i+1 < len(argv) {
			value, ok = argv[i+1], true
		}
		if ok {
			// One that was given relative to a directory that we do not know.
			return filepath.Clean(string(value)) == bundle || !filepath.IsAbs(string(value)) && filepath.Base(string(value)) == filepath.Base(bundle)
		}
	}
	return true
}

// removeRuntimeFiles removes the files by which runsc knows a sandbox of its
// own: delete leaves the lock of a container that was never written down.
func removeRuntimeFiles(st containerstate.State) error {
	root, name := runscRoot(st), runtimeFile(st)
	lock, err := os.OpenFile(name+".lock", os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the runtime's files: %w", err)
	}
	defer func() { _ = lock.Close() }() // only locked
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("remove the runtime's files: %s: %w", lock.Name(), err)
	}
	var errs []error
	for _, path := range []string{filepath.Join(root, "runsc-"+st.ID+".sock"), name + ".state", name + ".lock"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// runtimeKnows reports whether runsc has the container of a state directory
// still written down.
func runtimeKnows(stateDir string) bool {
	st, err := containerstate.ReadState(stateDir)
	if err != nil {
		return false
	}
	_, err = os.Lstat(runtimeFile(st) + ".state")
	return err == nil
}

// runtimeFile is runsc's name of a container that is a sandbox of its own,
// without what it ends in.
func runtimeFile(st containerstate.State) string {
	return filepath.Join(runscRoot(st), st.ID+"_sandbox:"+st.ID)
}

func runscRoot(st containerstate.State) string {
	if st.RunscRoot != "" {
		return st.RunscRoot
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "runsc")
	}
	return "/var/run/runsc"
}
