package wire

import (
	"time"

	"github.com/lazaret-dev/lazaret/internal/domain"
)

// PathDesk opens a desk: a host process of the developer's at which a person, or
// the rule for automatic approvals, answers escalation requests, and which runs
// what is approved. It is a POST of a DeskRequest; after the answer {} the
// connection carries JSON lines: DeskEvent from the coordinator, DeskReply to it.
// The desk is the connection.
const PathDesk = "/v1/desk"

// Kinds of a desk.
const (
	DeskRun      = "run"      // the terminal of one lazaret run: the requests of its session only
	DeskConsole  = "console"  // a person's, for all sessions that no terminal owns
	DeskHeadless = "headless" // automatic approvals only, for the same sessions
)

// MaxLine bounds a line of a desk's connection, in bytes.
const MaxLine = 4 << 20

// DeskRequest opens a desk.
type DeskRequest struct {
	Version   int    `json:"version"`
	Kind      string `json:"kind"`
	SessionID string `json:"session_id,omitempty"` // of kind "run"; it need not be registered yet
}

// Types of DeskEvent.
const (
	EventAsk  = "ask"  // Ask has come, or was waiting
	EventGo   = "go"   // the answer to an approval: it is recorded, run it now
	EventGone = "gone" // nobody waits for the answer any more, or another desk has it: stop, kill what runs
)

// DeskEvent is a line to a desk.
type DeskEvent struct {
	Type string `json:"type"`
	Ask  *Ask   `json:"ask,omitempty"`
	ID   string `json:"id,omitempty"`  // of the request, for go and gone
	Why  string `json:"why,omitempty"` // for gone, for people
}

// Ask is a request as a desk shows it. Its texts are the agent's: to be made inert
// before a terminal sees them.
type Ask struct {
	ID            string        `json:"id"` // the request's
	Domain        domain.Anchor `json:"domain"`
	Sandbox       string        `json:"sandbox"` // container id
	Session       string        `json:"session"`
	Kind          string        `json:"kind"` // the session's: "run" or "exec"
	Command       string        `json:"command"`
	CWD           string        `json:"cwd"` // in the sandbox
	Justification string        `json:"justification"`
	Received      time.Time     `json:"received"`
	Deadline      time.Time     `json:"deadline"` // then the client gives up
	// AutoApprove are the profile's prefixes, as the container was created with.
	AutoApprove [][]string `json:"auto_approve,omitempty"`
	// Remembered is true where a person has allowed this exact command, in this
	// directory, for the session.
	Remembered bool `json:"remembered,omitempty"`
	// Waiting counts the session's requests that are not answered, this one too;
	// Dropped those that were refused as too many since the last answer.
	Waiting int `json:"waiting"`
	Dropped int `json:"dropped,omitempty"`
}

// Types of DeskReply.
const (
	ReplyApprove = "approve" // answered by go, or by gone
	ReplyDeny    = "deny"
	ReplyResult  = "result" // of a command that was told to go
)

// DeskReply is a line from a desk.
type DeskReply struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	// Command is what is going to run: the request's, or what a person made of it.
	Command  string `json:"command,omitempty"`
	Auto     bool   `json:"auto,omitempty"`     // approved by rule or memory, not by a person now
	Remember bool   `json:"remember,omitempty"` // allow this exact command for the session
	Reason   string `json:"reason,omitempty"`   // of a denial, or why nothing could be run; shown to the agent
	// Result. Stdout and Stderr are bounded by the desk.
	ExitCode int    `json:"exit_code,omitempty"`
	Failed   bool   `json:"failed,omitempty"` // nothing could be run: Reason says why
	Stdout   []byte `json:"stdout,omitempty"`
	Stderr   []byte `json:"stderr,omitempty"`
}
