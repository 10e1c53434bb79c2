package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/sessionkey"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// startFile keeps, beside a domain's run directory, how its coordinator was
// started: whoever finds that one dead starts another, which puts things right
// and ends. It goes with everything else at the end.
const startFile = "start.json"

func writeStart(spec wire.StartSpec) error {
	spec.GitEnv = nil // may hold what is secret, and nobody starts a guard by this
	data, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("keep how the coordinator was started: %w", err)
	}
	// On memory: nothing to flush.
	return atomicfile.Write(filepath.Join(domainDir(spec.RuntimeDir, spec.Domain.Hash), startFile), data, 0o600, false)
}

func domainDir(runtimeDir, hash string) string { return filepath.Join(runtimeDir, "domains", hash) }

// sweep looks for domains whose coordinator was killed. A domain that is used
// again puts itself right; an ephemeral one never is, and another may not be for
// a long time.
func (c *Coordinator) sweep() {
	own, err := os.Executable()
	if err != nil {
		c.log.Error("look for killed coordinators", "error", err)
		return
	}
	c.sweepRoots()
	for hash := range c.strangers() {
		spec, known := c.startOf(hash)
		if !known {
			c.sweepNames(hash)
			continue
		}
		if coordinatorLives(spec.Domain) {
			continue
		}
		spec.Recover = true
		conn, err := wire.Ensure(spec, own)
		if err != nil {
			c.log.Warn("replace a killed coordinator", "domain", hash, "error", err)
			continue
		}
		c.log.Info("replaced a killed coordinator", "domain", hash, "pid", conn.PeerPID())
		_ = conn.Close() // it needs nothing from us
	}
}

// sweepContainers removes what containers left that have ended, and that no
// coordinator looks after any more.
func (c *Coordinator) sweepContainers(ctx context.Context) {
	ids, err := containerstate.List(c.spec.RuntimeDir)
	if err = errors.Join(err, removeUnfinished(c.spec.RuntimeDir), sessionkey.Sweep(c.spec.RuntimeDir)); err != nil {
		c.log.Error("look for dead containers", "error", err)
	}
	for _, id := range ids {
		if c.isDead(id) {
			c.log.Info("remove the state of a dead container", "container", id)
			c.reap(ctx, containerstate.Dir(c.spec.RuntimeDir, id))
			c.removeState(id)
		}
	}
}

// isDead reports whether a container has ended and its engine will not come back
// to it.
func (c *Coordinator) isDead(id string) bool {
	dir := containerstate.Dir(c.spec.RuntimeDir, id)
	lease, err := containerstate.ReadLease(dir)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) // what is left of a removal: claims come with their lease
	}
	if lease.Alive() {
		return false
	}
	if lease.Domain != c.spec.Domain.Hash {
		// Its own coordinator's to remove, while there is one or can be again.
		if _, err := os.Lstat(domainDir(c.spec.RuntimeDir, lease.Domain)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	c.mu.Lock()
	known := c.containers[id] != nil
	c.mu.Unlock()
	if known {
		return false
	}
	st, err := containerstate.ReadState(dir)
	return err != nil || !lease.Attached || !runtimeKnows(dir) || dropped(st)
}

// dropped reports whether the engine has removed the container's bundle.
func dropped(st containerstate.State) bool {
	if st.Bundle == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(st.Bundle, "config.json"))
	return errors.Is(err, fs.ErrNotExist)
}

// sweepRoots removes the Domain Roots of starts that were killed before they
// wrote what the root is for. Starts make roots under the domain's lock.
func (c *Coordinator) sweepRoots() {
	roots := filepath.Dir(c.spec.Domain.Root)
	for _, hash := range names(roots) {
		root := filepath.Join(roots, hash)
		if !domain.ValidHash(hash) || hash == c.spec.Domain.Hash || !domain.Unrecorded(root) {
			continue
		}
		lock, err := wire.TryLock(domain.Anchor{Hash: hash}.LockPath(c.spec.ControlDir))
		if err != nil {
			continue // a start is under way, or somebody took the name
		}
		if domain.Unrecorded(root) {
			if err := domain.RemoveUnrecorded(root); err != nil {
				c.log.Warn("remove the root of a start that was killed", "domain", hash, "error", err)
			}
		}
		if err := wire.RemoveNames(lock, domain.Anchor{Hash: hash}.SocketPath(c.spec.ControlDir)); err != nil {
			c.log.Warn("remove the names of a start that was killed", "domain", hash, "error", err)
		}
	}
}

// strangers are the hashes of other domains that have anything outside a Domain
// Root, or are ephemeral.
func (c *Coordinator) strangers() map[string]bool {
	found := map[string]bool{}
	for _, name := range names(filepath.Join(c.spec.RuntimeDir, "domains")) {
		found[name] = domain.ValidHash(name)
	}
	roots := filepath.Dir(c.spec.Domain.Root)
	for _, name := range names(roots) {
		if a, err := domain.ReadRecord(filepath.Join(roots, name)); err == nil && a.Ephemeral {
			found[name] = true
		}
	}
	for _, name := range names(c.spec.ControlDir) {
		hash, isOurs := strings.CutPrefix(name, "lazaret_coord_")
		hash, ext, _ := strings.Cut(hash, ".")
		if isOurs && domain.ValidHash(hash) && (ext == "lock" || ext == "sock") && mine(filepath.Join(c.spec.ControlDir, name)) {
			found[hash] = true
		}
	}
	for hash, valid := range found {
		if !valid || hash == c.spec.Domain.Hash {
			delete(found, hash)
		}
	}
	return found
}

func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // not made yet, or not ours to see
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func mine(path string) bool {
	fi, err := os.Lstat(path)
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// startOf is how the coordinator of another domain is started.
func (c *Coordinator) startOf(hash string) (wire.StartSpec, bool) {
	var spec wire.StartSpec
	if data, err := os.ReadFile(filepath.Join(domainDir(c.spec.RuntimeDir, hash), startFile)); err == nil {
		if json.Unmarshal(data, &spec) == nil && spec.Validate() == nil && spec.Domain.Hash == hash && spec.RuntimeDir == c.spec.RuntimeDir {
			return spec, true
		}
	}
	// Killed before it wrote that, or before the machine went down.
	a, err := domain.ReadRecord(filepath.Join(filepath.Dir(c.spec.Domain.Root), hash))
	if err != nil || a.Hash != hash {
		return wire.StartSpec{}, false
	}
	spec = c.spec
	spec.Domain = a
	return spec, true
}

// coordinatorLives reports whether the process that claimed the Domain Root
// still runs. In doubt it does: then nothing is swept.
func coordinatorLives(a domain.Anchor) bool {
	path := filepath.Join(a.Root, claimFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		// Being claimed right now, or killed in between.
		fi, err := os.Stat(path)
		return err != nil || time.Since(fi.ModTime()) < time.Second
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.HasSuffix(string(cmdline), "\x00"+a.Hash+"\x00")
}

// sweepNames removes a lock and socket that belong to no domain here: a start
// was killed before it made the Domain Root, or the domain was another place's.
func (c *Coordinator) sweepNames(hash string) {
	a := domain.Anchor{Hash: hash}
	lock, err := wire.TryLockThere(a.LockPath(c.spec.ControlDir))
	if err != nil {
		return // gone, in use, or taken by somebody: not ours to judge
	}
	if err := wire.RemoveNames(lock, a.SocketPath(c.spec.ControlDir)); err != nil {
		c.log.Warn("remove the names of a dead domain", "domain", hash, "error", err)
	}
}
