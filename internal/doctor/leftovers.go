package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/domain"
)

// LeftoverDirs says where Leftovers looks.
type LeftoverDirs struct {
	Root    string // put before the others
	UID     int    // whose things are ours
	Runtime string // <XDG_RUNTIME_DIR>/lazaret
	Control string // [general] control_dir
	Data    string // [general] data_root
}

// halfMade is how long a container's directory may lack a process: between the
// runtime's first step and the coordinator's.
const halfMade = time.Minute

// Leftovers finds what a killed coordinator, engine or machine has left, and
// names of ours that another user has taken: one check for each kind.
func Leftovers(d LeftoverDirs) []Check {
	domains, domainsErr := readDomains(d.Root + d.Data)
	control, live := d.control(domains)
	return []Check{control, d.runDirs(live), d.containers(), d.domains(domains, domainsErr, live)}
}

// readDomains maps the hash of each Domain Root to its record; a root without a
// readable record gives an Anchor with only Hash and Root.
func readDomains(data string) (map[string]domain.Anchor, error) {
	dir := filepath.Join(data, "domains")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[string]domain.Anchor{}
	for _, e := range entries {
		if !e.IsDir() || !domain.ValidHash(e.Name()) {
			continue
		}
		root := filepath.Join(dir, e.Name())
		var a domain.Anchor
		record, err := os.ReadFile(filepath.Join(root, "domain.json"))
		if err != nil || json.Unmarshal(record, &a) != nil || a.Hash != e.Name() {
			a = domain.Anchor{Hash: e.Name()}
		}
		a.Root = root
		found[a.Hash] = a
	}
	return found, nil
}

// control looks at sockets and locks; live has the hashes whose coordinator answers.
func (d LeftoverDirs) control(domains map[string]domain.Anchor) (c Check, live map[string]bool) {
	const name = "control files"
	dir := d.Root + d.Control
	live = map[string]bool{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fail(name, "mkdir -m 1777 "+dir, "directory of the control sockets: %v", err), live
	}
	if fi, err := os.Stat(dir); err == nil && fi.Mode().Perm()&0o002 != 0 && fi.Mode()&fs.ModeSticky == 0 {
		return fail(name, "sudo chmod +t "+dir, "%s is open to all without the sticky bit: anybody can replace a control socket", dir), live
	}
	var squatted, stale []string
	for _, e := range entries { // sorted: a domain's .lock comes before its .sock
		rest, isOurs := strings.CutPrefix(e.Name(), "lazaret_coord_")
		hash, ext, _ := strings.Cut(rest, ".")
		if !isOurs || !domain.ValidHash(hash) || ext != "sock" && ext != "lock" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		fi, err := os.Lstat(path)
		if err != nil {
			continue // gone meanwhile
		}
		st, known := fi.Sys().(*syscall.Stat_t)
		if !known || int(st.Uid) != d.UID {
			if _, ours := domains[hash]; ours {
				squatted = append(squatted, path)
			}
			continue // another user's domain
		}
		switch {
		case ext == "sock" && fi.Mode().Type() == fs.ModeSocket:
			if answers(path) {
				live[hash] = true
			} else {
				stale = append(stale, path)
			}
		case ext == "lock" && fi.Mode().IsRegular():
			if free(path) && !answers(strings.TrimSuffix(path, ".lock")+".sock") {
				stale = append(stale, path)
			}
		default:
			squatted = append(squatted, path) // ours, but not what we make
		}
	}
	switch {
	case len(squatted) > 0:
		return fail(name, "sudo rm -r "+strings.Join(squatted, " "), "%s: not made by Lazaret, but under the name of a domain of yours; or set control_dir in [general]", strings.Join(squatted, ", ")), live
	case len(stale) > 0:
		return warn(name, "rm "+strings.Join(stale, " "), "%s: left by a coordinator that was killed; the next start in the same domain takes them over", strings.Join(stale, ", ")), live
	}
	return ok(name, "%d coordinators answer in %s, nothing is left over", len(live), dir), live
}

// answers tells whether somebody listens on a socket.
func answers(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		// A full queue belongs to somebody alive.
		return errors.Is(err, unix.EAGAIN)
	}
	_ = c.Close() // nothing was sent
	return true
}

// free tells whether nobody holds the flock(2) on path.
func free(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }() // lets go of the lock too
	// A starter that meets this lock of a moment waits and tries again.
	return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) == nil
}

// runDirs looks for domains that are in use by what a coordinator made on memory,
// but have none that answers.
func (d LeftoverDirs) runDirs(live map[string]bool) Check {
	const name = "coordinators"
	dir := filepath.Join(d.Root+d.Runtime, "domains")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return warn(name, "ls -la "+dir, "%v", err)
	}
	users := d.users()
	var orphans, dead []string
	for _, e := range entries {
		hash := e.Name()
		lock := filepath.Join(d.Root+d.Control, "lazaret_coord_"+hash+".lock")
		if _, err := os.Lstat(lock); !domain.ValidHash(hash) || live[hash] || err == nil && !free(lock) {
			continue // its own coordinator lives or is being started
		}
		if users[hash] > 0 {
			orphans = append(orphans, hash)
		} else {
			dead = append(dead, filepath.Join(dir, hash))
		}
	}
	switch {
	case len(orphans) > 0:
		return warn(name, "podman run --rm --runtime=lazaret IMAGE true", "%s: their sandboxes run, but their coordinator was killed; the next start of any sandbox replaces it", strings.Join(orphans, ", "))
	case len(dead) > 0:
		return warn(name, "rm -r "+strings.Join(dead, " "), "%s: left by a coordinator that was killed; the next start of any sandbox removes it", strings.Join(dead, ", "))
	}
	return ok(name, "%d domains in use, none without one", len(entries))
}

// users counts the living containers of each domain.
func (d LeftoverDirs) users() map[string]int {
	ids, err := containerstate.List(d.Root + d.Runtime)
	if err != nil {
		return nil // the check of the containers tells
	}
	users := map[string]int{}
	for _, id := range ids {
		if lease, err := containerstate.ReadLease(containerstate.Dir(d.Root+d.Runtime, id)); err == nil && lease.Alive() {
			users[lease.Domain]++
		}
	}
	return users
}

func (d LeftoverDirs) containers() Check {
	const name = "containers"
	ids, err := containerstate.List(d.Root + d.Runtime)
	if err != nil {
		return warn(name, "ls -la "+filepath.Join(d.Root+d.Runtime, "containers"), "%v", err)
	}
	var dead []string
	for _, id := range ids {
		if dir := containerstate.Dir(d.Root+d.Runtime, id); isDead(dir) {
			dead = append(dead, dir)
		}
	}
	if len(dead) > 0 {
		return warn(name, "rm -r "+strings.Join(dead, " "), "%d directories of containers that no longer run: %s", len(dead), strings.Join(dead, ", "))
	}
	return ok(name, "%d known, none left over", len(ids))
}

func isDead(dir string) bool {
	lease, err := containerstate.ReadLease(dir)
	if err != nil {
		fi, serr := os.Stat(dir)
		return serr == nil && errors.Is(err, fs.ErrNotExist) && time.Since(fi.ModTime()) > halfMade
	}
	start, err := proc.StartTime(lease.PID)
	if errors.Is(err, fs.ErrNotExist) {
		// With /proc mounted hidepid=2 (proc(5)) it may only be hidden.
		return errors.Is(unix.Kill(lease.PID, 0), unix.ESRCH)
	}
	return errors.Is(err, os.ErrProcessDone) || err == nil && start != lease.StartTime
}

func (d LeftoverDirs) domains(domains map[string]domain.Anchor, err error, live map[string]bool) Check {
	const name = "domains"
	if err != nil {
		return warn(name, "ls -la "+filepath.Join(d.Root+d.Data, "domains"), "%v", err)
	}
	var why []string
	for _, hash := range slices.Sorted(maps.Keys(domains)) {
		a := domains[hash]
		if live[hash] {
			continue
		}
		switch _, err := os.Stat(a.Workspace); {
		case a.Ephemeral:
			why = append(why, fmt.Sprintf("%s (its container is gone)", hash))
		case a.Workspace != "" && errors.Is(err, fs.ErrNotExist):
			why = append(why, fmt.Sprintf("%s (workspace %s is gone)", hash, a.Workspace))
		default:
		}
	}
	if len(why) > 0 {
		return warn(name, "lazaret prune", "no longer of use: %s; keep what belongs to a disk that is only not mounted now", strings.Join(why, ", "))
	}
	return ok(name, "%d kept in %s", len(domains), d.Root+d.Data)
}
