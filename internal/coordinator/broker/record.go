package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/lazaret-dev/lazaret/internal/audit"
)

// Verdicts of audit.EscalationDecided.
const (
	verdictApproved = "approved" // by a desk, which is about to run it
	verdictDenied   = "denied"
	verdictTimeout  = "timeout"
	verdictFailed   = "failed" // Lazaret failed, the client or the desk went away
)

// Verdicts of audit.EscalationRun.
const (
	verdictExited = "exited"
	// and verdictFailed: nothing could be run, or its desk went away
)

// The payloads. Texts are kept as they came; who shows them makes them inert.
type (
	asked struct {
		Request       string    `json:"request_id"`
		Profile       string    `json:"profile"`
		Kind          string    `json:"session_kind"`
		Command       string    `json:"command"`
		CWD           string    `json:"cwd"`
		Justification string    `json:"justification"`
		Deadline      time.Time `json:"deadline"`
	}
	shown struct {
		Request string `json:"request_id"`
		Desk    string `json:"desk"` // its kind
		DeskPID int    `json:"desk_pid"`
	}
	decided struct {
		Request  string `json:"request_id"`
		Desk     string `json:"desk,omitempty"` // kind of the desk that decided
		DeskPID  int    `json:"desk_pid,omitempty"`
		Command  string `json:"command,omitempty"`  // what runs, where it is not what was asked
		Auto     bool   `json:"auto,omitempty"`     // by rule or memory
		Remember bool   `json:"remember,omitempty"` // allowed for the session
		Reason   string `json:"reason,omitempty"`
	}
	ran struct {
		Request  string `json:"request_id"`
		Desk     string `json:"desk"`
		DeskPID  int    `json:"desk_pid"`
		ExitCode int    `json:"exit_code"`
		Reason   string `json:"reason,omitempty"`
		Stdout   digest `json:"stdout"`
		Stderr   digest `json:"stderr"`
	}
	digest struct {
		Bytes  int    `json:"bytes"`
		SHA256 string `json:"sha256"`
	}
)

func digestOf(b []byte) digest {
	sum := sha256.Sum256(b)
	return digest{len(b), hex.EncodeToString(sum[:])}
}

// recordedSize is how many bytes texts have in a record: what JSON escapes has up to
// six times those that came.
func recordedSize(texts ...string) int { return len(audit.Payload(map[string][]string{"": texts})) }

// event is about r.
func (b *Broker) event(r *Request, kind, verdict string, payload any) audit.Event {
	return audit.Event{Time: b.opts.Now(), Kind: kind, Verdict: verdict, Session: r.ask.Session, Container: r.ask.Sandbox, Payload: audit.Payload(payload)}
}

// note records what is not waited for. It needs b.mu.
func (b *Broker) note(e audit.Event) { b.opts.Record(e, nil) }

// refusals are those of one sandbox with one code that are not recorded yet.
type refusals struct {
	count   int
	message string
	next    time.Time // not to be recorded before
}

// refusalEvery bounds how often refusals of one kind are recorded: they cost a
// sandbox nothing, and are counted meanwhile.
const refusalEvery = 10 * time.Second

// maxRefusals bounds the kinds that are counted apart.
const maxRefusals = 1024

type refusalKey struct{ sandbox, code string }

// countRefusal needs b.mu.
func (b *Broker) countRefusal(sandbox, code, message string) {
	k, now := refusalKey{sandbox, code}, b.opts.Now()
	r := b.refused[k]
	if r == nil {
		if len(b.refused) >= maxRefusals {
			return
		}
		r = &refusals{}
		b.refused[k] = r
	}
	r.count, r.message = r.count+1, message
	if now.Before(r.next) {
		return
	}
	b.tellRefusals(k, r)
	r.next = now.Add(refusalEvery)
}

func (b *Broker) tellRefusals(k refusalKey, r *refusals) {
	if r.count == 0 {
		return
	}
	b.note(audit.Event{Time: b.opts.Now(), Kind: audit.EscalationRefused, Verdict: k.code, Container: k.sandbox, Payload: audit.Payload(struct {
		Count   int    `json:"count"` // since the last such record
		Message string `json:"message"`
	}{r.count, r.message})})
	r.count = 0
}

// endRefusals records what is left of a sandbox's, or of all with "". It needs b.mu.
func (b *Broker) endRefusals(sandbox string) {
	for k, r := range b.refused {
		if sandbox == "" || k.sandbox == sandbox {
			b.tellRefusals(k, r)
			delete(b.refused, k)
		}
	}
}
