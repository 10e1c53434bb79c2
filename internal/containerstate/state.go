// Package containerstate owns the small files that one container leaves for
// later calls of the runtime, which get next to no environment of their own:
// <runtime dir>/containers/<id>/state.json and call from the shim, lease.json from
// the coordinator.
package containerstate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/domain"
)

// Version of both files' layout.
const Version = 1

// ValidID reports whether id is a container id as runc takes it, and so a safe
// name of one directory.
func ValidID(id string) bool {
	if id == "" || id == "." || id == ".." || len(id) > 255 {
		return false
	}
	for _, r := range id {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case r == '_', r == '+', r == '.', r == '-':
		default:
			return false
		}
	}
	return true
}

// State is what the shim resolved at create.
type State struct {
	Version    int           `json:"version"`
	ID         string        `json:"id"`
	Domain     domain.Anchor `json:"domain"`
	ControlDir string        `json:"control_dir"`
	LogLevel   string        `json:"log_level"`
	Runsc      string        `json:"runsc"`              // absolute path
	RunscRoot  string        `json:"runsc_root"`         // the engine's --root, "" for runsc's default
	RunscFlags []string      `json:"runsc_flags"`        // global flags that Lazaret adds to every call
	HideNet    bool          `json:"hide_net"`           // start needs /proc/sys/net covered
	LateNet    bool          `json:"late_net,omitempty"` // start replaces the engine's network
	RunDir     string        `json:"run_dir"`            // shown at /run/lazaret
	// PathDirs come first in PATH of what is executed in the container.
	PathDirs []string `json:"path_dirs,omitempty"`
	Bundle   string   `json:"bundle"`
	// Escalation is true where the container has an Escalation Socket.
	Escalation bool     `json:"escalation,omitempty"`
	Notes      []string `json:"notes,omitempty"`
}

// Lease is what the coordinator knows of the processes behind a container.
type Lease struct {
	Version   int    `json:"version"`
	Domain    string `json:"domain"` // its hash
	Attached  bool   `json:"attached"`
	PID       int    `json:"pid"`        // the sandbox's, or before that the creating process's
	StartTime uint64 `json:"start_time"` // of that pid, clock ticks after boot (proc(5) stat, field 22)
	PIDFile   string `json:"pid_file"`   // where the runtime writes the sandbox's pid at the end of create
}

// Dir is the container's directory below runtimeDir. id must be valid.
func Dir(runtimeDir, id string) string { return filepath.Join(runtimeDir, "containers", id) }

// WriteState makes dir if needed and replaces its state.json. Where later calls
// need no more than that, its call file tells the runtime and its flags: for
// internal/early, which reads no JSON.
func WriteState(dir string, s State) error {
	if err := write(dir, "state.json", s); err != nil || s.HideNet || s.LateNet {
		return err
	}
	call := append([]string{s.Runsc}, s.RunscFlags...)
	if strings.Contains(strings.Join(call, ""), "\x00") {
		return nil // no program could take it
	}
	return atomicfile.Write(filepath.Join(dir, "call"), []byte(strings.Join(call, "\x00")+"\x00"), 0o600, false)
}

// WriteLease replaces dir's lease.json; the directory must exist.
func WriteLease(dir string, l Lease) error { return write(dir, "lease.json", l) }

func write(dir, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep the container's state: %w", err)
	}
	// On memory: nothing to flush.
	return atomicfile.Write(filepath.Join(dir, name), data, 0o600, false)
}

// ReadState reads dir's state.json; fs.ErrNotExist when there is none.
func ReadState(dir string) (State, error) {
	var s State
	if err := read(dir, "state.json", &s); err != nil {
		return State{}, err
	}
	if s.Version != Version || !filepath.IsAbs(s.Runsc) || !domain.ValidHash(s.Domain.Hash) {
		return State{}, fmt.Errorf("%s/state.json is damaged or of another version: remove the container and create it again", dir)
	}
	return s, nil
}

// ReadLease reads dir's lease.json; fs.ErrNotExist when there is none.
func ReadLease(dir string) (Lease, error) {
	var l Lease
	if err := read(dir, "lease.json", &l); err != nil {
		return Lease{}, err
	}
	if l.Version != Version {
		return Lease{}, fmt.Errorf("%s/lease.json is of another version", dir)
	}
	return l, nil
}

func read(dir, name string, v any) error {
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}

// List names the container ids that have a directory below runtimeDir.
func List(runtimeDir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(runtimeDir, "containers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && ValidID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// Alive reports whether the lease's process still runs.
func (l Lease) Alive() bool {
	t, err := proc.StartTime(l.PID)
	return err == nil && t == l.StartTime
}
