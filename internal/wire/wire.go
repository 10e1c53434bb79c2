// Package wire owns the control protocol between Lazaret's programs and a
// domain's Session Coordinator: its messages, its client, and the hold-to-bind
// rule by which the first comer starts the coordinator. docs/control-protocol.md
// describes it for people with curl.
//
// The client speaks HTTP/1.0 by hand: the runtime shim is started five times
// for one container, and net/http alone would double its start-up time.
package wire

import (
	"fmt"
	"time"

	"github.com/lazaret-dev/lazaret/internal/domain"
)

// Version is the protocol's version; a coordinator refuses any other.
const Version = 1

// MaxBody bounds the body of every request and answer, in bytes.
const MaxBody = 1 << 20

// Paths of the protocol.
const (
	PathStatus   = "/v1/status"
	PathPrepare  = "/v1/prepare"
	PathAttach   = "/v1/attach"
	PathRelease  = "/v1/release"
	PathSessions = "/v1/sessions"
)

// Error codes that a client acts upon.
const (
	CodeClosing        = "closing"         // the coordinator is going away: start over
	CodeUnknown        = "unknown"         // no such container here
	CodeRefused        = "refused"         // a guard cannot be put up
	CodeBadRequest     = "bad_request"     // malformed or out of bounds
	CodeInternal       = "internal"        // the coordinator failed
	CodeBadVersion     = "bad_version"     // another protocol version
	CodeDomainMismatch = "domain_mismatch" // the socket belongs to another domain
)

// Error is the body of every answer that is not 200.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// PrepareRequest announces a container that is about to be created. Whoever
// sends it must be the process that becomes the runtime's create (execve keeps
// the pid): when that process ends and no sandbox has come of it, the container
// is forgotten.
type PrepareRequest struct {
	Version     int           `json:"version"`
	Domain      domain.Anchor `json:"domain"`
	ContainerID string        `json:"container_id"`
	PIDFile     string        `json:"pid_file"`        // where the runtime writes the sandbox's pid, absolute
	StateDir    string        `json:"state_dir"`       // <runtime dir>/containers/<id>
	Notes       []string      `json:"notes,omitempty"` // what is not enforced, for status and log
	Run         bool          `json:"run,omitempty"`   // lazaret run starts it: it is stopped after its last use

	// How the domain's workspace is guarded; empty where it has none. All
	// containers that live at one time ask for the same.
	Git      string   `json:"git,omitempty"`       // "sentry", "branch" or "off"
	Masks    []string `json:"masks,omitempty"`     // names, covered at any depth, or paths relative to the workspace
	ReadOnly []string `json:"read_only,omitempty"` // paths relative to the workspace, there or not
	// Sources are the files and directories of the workspace that this container
	// mounts, relative to it; "." is the workspace.
	Sources []string `json:"sources,omitempty"`

	// State and Persist are what is kept of the container's files; both are empty in
	// a domain without a workspace.
	State   *State    `json:"state,omitempty"`
	Persist []Persist `json:"persist,omitempty"`

	Escalation *Escalation `json:"escalation,omitempty"` // nil: the container gets no Escalation Socket

	// Network is nil where the network is not filtered.
	Network *Network `json:"network,omitempty"`
}

// Escalation asks for an Escalation Socket.
type Escalation struct {
	SocketDir   string        `json:"socket_dir,omitempty"` // absolute; "" leaves the choice to the coordinator
	AutoApprove [][]string    `json:"auto_approve,omitempty"`
	Timeout     time.Duration `json:"timeout"` // how long a request waits for an answer, in nanoseconds
	// Session is the container's own process's.
	Session Session `json:"session"`
}

// Session is one Client Session's identity.
type Session struct {
	ID        string `json:"id"`         // a UUID
	PublicKey []byte `json:"public_key"` // of its Session Anchor, Ed25519
	// Owned is true where a lazaret run has begun the session: its terminal alone
	// answers for it, whether it has opened its desk or not.
	Owned bool `json:"owned,omitempty"`
}

// State asks for overlays over directories of the container's image.
type State struct {
	Paths  []string `json:"paths"`            // clean, absolute in the container
	Driver string   `json:"driver,omitempty"` // of package stateanchor
	RootFS string   `json:"rootfs"`           // the container's root file system
	Tree   string   `json:"tree,omitempty"`   // all of the image's files, where the engine has them in one directory
	// Image is what the engine tells of the image, as far as it does.
	ImageName   string `json:"image_name,omitempty"`
	ImageID     string `json:"image_id,omitempty"`
	ImageDigest string `json:"image_digest,omitempty"`
	IDMap       string `json:"id_map,omitempty"` // the container's user namespace, "" for none of its own
	// Targets are where mounts of the container will lie in the state paths.
	Targets []Target `json:"targets,omitempty"`
}

// Target is a place for a mount.
type Target struct {
	Path string `json:"path"` // clean, absolute in the container
	Dir  bool   `json:"dir,omitempty"`
	Own  bool   `json:"own,omitempty"` // the engine's or Lazaret's: nothing that the agent put there counts
}

// Persist is a directory that the profile's domains share.
type Persist struct {
	Path string `json:"path"` // clean, absolute in the container
	UID  int    `json:"uid"`  // its owner, in the engine's user namespace
	GID  int    `json:"gid"`
}

// PrepareResponse is the plan that the rewrite follows.
type PrepareResponse struct {
	RunDir string `json:"run_dir"` // host directory to show read-only at /run/lazaret
	// GuardDir is the host directory in which the guard shows the workspace; ""
	// where the domain has none. Sources says where each one asked for is shown.
	GuardDir string            `json:"guard_dir,omitempty"`
	Sources  map[string]string `json:"sources,omitempty"`
	Binds    []Bind            `json:"binds,omitempty"` // further mounts, after all of the engine's
	State    []Bind            `json:"state,omitempty"` // the kept directories, before all of the engine's
	// Notes are what the developer should know of the agent's branch and of what is
	// kept.
	Notes   []string     `json:"notes,omitempty"`
	Network *NetworkPlan `json:"network,omitempty"` // nil where none was asked for
}

// Bind is a mount of a host path in the sandbox.
type Bind struct {
	Source      string `json:"source"`      // on the host
	Destination string `json:"destination"` // in the sandbox
	ReadOnly    bool   `json:"read_only,omitempty"`
}

// AttachRequest counts a sandbox in. PID is in the coordinator's pid namespace.
type AttachRequest struct {
	Version     int    `json:"version"`
	ContainerID string `json:"container_id"`
	PID         int    `json:"pid"`
}

// ReleaseRequest counts a container out; unknown ones are no error.
type ReleaseRequest struct {
	Version     int    `json:"version"`
	ContainerID string `json:"container_id"`
}

// ReleaseResponse says whether the domain is still in use; if not, the
// coordinator is about to end.
type ReleaseResponse struct {
	InUse bool `json:"in_use"`
}

// SessionRequest registers a Client Session. The connection it came on is the
// session: it ends when the connection does.
type SessionRequest struct {
	Version     int    `json:"version"`
	SessionID   string `json:"session_id"` // a UUID
	Kind        string `json:"kind"`       // "exec" or "run"
	ContainerID string `json:"container_id,omitempty"`
	Terminal    bool   `json:"terminal"`
	PublicKey   []byte `json:"public_key,omitempty"` // of its Session Anchor; without, it cannot escalate
	Owned       bool   `json:"owned,omitempty"`      // see Session
}

// Empty is an answer without content.
type Empty struct{}

// Status describes a live coordinator.
type Status struct {
	Version     int               `json:"version"`
	Program     string            `json:"program"` // version and commit
	Domain      domain.Anchor     `json:"domain"`
	PID         int               `json:"pid"`
	Started     time.Time         `json:"started"`
	Containers  []ContainerStatus `json:"containers"`
	Sessions    []SessionStatus   `json:"sessions"`
	Desks       []DeskStatus      `json:"desks"`
	Waiting     int               `json:"waiting"` // escalation requests that nobody has answered
	ControlDir  string            `json:"control_dir"`
	MemoryBytes uint64            `json:"memory_bytes"` // resident, 0 when unknown
	Guard       Guard             `json:"guard"`
	State       *StateStatus      `json:"state,omitempty"`   // nil where nothing is kept
	Network     *NetworkStatus    `json:"network,omitempty"` // nil where it is not filtered
}

// StateStatus is what is mounted of the kept directories.
type StateStatus struct {
	Driver string   `json:"driver"`
	Image  string   `json:"image"`
	Paths  []string `json:"paths"`
	Alive  bool     `json:"alive"` // false when a driver has ended: each access fails
}

// States of a guard.
const (
	GuardNone    = "none"    // nobody has needed one yet, or the domain has no workspace
	GuardServing = "serving" // the sandboxes see the workspace through it
	GuardDead    = "dead"    // it ended under them: each access fails in them
)

// Guard is the process between the sandboxes and the workspace.
type Guard struct {
	State string `json:"state"`
	PID   int    `json:"pid,omitempty"`
	Cut   bool   `json:"cut,omitempty"` // the host removed or replaced .git: it is cut off
	// Notes are what the developer should know, oldest first: where his git
	// configuration has come to lead to. Only the last 20 are kept.
	Notes []string `json:"notes,omitempty"`
}

// ContainerStatus is one container of a domain.
type ContainerStatus struct {
	ID    string    `json:"id"`
	State string    `json:"state"` // "preparing" or "attached"
	PID   int       `json:"pid,omitempty"`
	Since time.Time `json:"since"`
	Notes []string  `json:"notes,omitempty"`
}

// SessionStatus is one Client Session.
type SessionStatus struct {
	ID          string    `json:"id"`
	Kind        string    `json:"kind"`
	ContainerID string    `json:"container_id,omitempty"`
	Terminal    bool      `json:"terminal"`
	PID         int       `json:"pid"`
	Since       time.Time `json:"since"`
}

// DeskStatus is one desk.
type DeskStatus struct {
	Kind    string `json:"kind"`
	Session string `json:"session,omitempty"` // of kind "run"
}

// StartSpec is what a starting coordinator reads from its standard input.
type StartSpec struct {
	Version    int           `json:"version"`
	Domain     domain.Anchor `json:"domain"`
	ControlDir string        `json:"control_dir"`
	RuntimeDir string        `json:"runtime_dir"` // hostenv's: containers/ and domains/ are below it
	LogLevel   string        `json:"log_level"`
	ClientPath string        `json:"client_path"` // lazaret-escalate on the host
	RealUID    int           `json:"real_uid"`    // the developer's uid in the initial namespace
	// Home, ConfigHome and GitEnv tell what git on the host obeys: the developer's
	// home, XDG_CONFIG_HOME ("" for none), and of his environment what git reads.
	Home       string   `json:"home,omitempty"`
	ConfigHome string   `json:"config_home,omitempty"`
	GitEnv     []string `json:"git_env,omitempty"`
	// Starter is the pid of the process that starts it, its parent; 0 for none
	// whose end matters.
	Starter int `json:"starter,omitempty"`
	// Recover starts it only to look after what a killed one left.
	Recover bool `json:"recover,omitempty"`
}

// Validate refuses a spec that would lead the coordinator astray.
func (s *StartSpec) Validate() error {
	switch {
	case s.Version != Version:
		return fmt.Errorf("start spec has protocol version %d, this program speaks %d: reinstall Lazaret so that its programs are of one version", s.Version, Version)
	case !domain.ValidHash(s.Domain.Hash):
		return fmt.Errorf("start spec: %q is not a domain hash", s.Domain.Hash)
	}
	for name, p := range map[string]string{"domain root": s.Domain.Root, "control_dir": s.ControlDir, "runtime_dir": s.RuntimeDir} {
		if len(p) == 0 || p[0] != '/' {
			return fmt.Errorf("start spec: %s %q is not an absolute path", name, p)
		}
	}
	return nil
}
