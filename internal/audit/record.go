// Package audit owns the records of what happened in a domain: their one encoding,
// the hash chains that they form, and how a chain is judged. It opens no file;
// package store keeps the records.
package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Chains of a domain. What the network decides has one of its own, as only its
// oldest records are ever dropped.
const (
	Main   = "main"
	Egress = "egress"
)

// Chains lists them, in the order in which they are read: the main chain tells
// what was dropped of the others.
func Chains() []string { return []string{Egress, Main} }

// Kinds of a record. The part before the dot is what a filter may name too.
const (
	EscalationAsked   = "escalation.asked"
	EscalationShown   = "escalation.shown"   // to a desk
	EscalationDecided = "escalation.decided" // verdict approved, denied, timeout or failed
	EscalationRun     = "escalation.run"     // what came of an approved one
	EscalationRefused = "escalation.refused" // before anybody was asked; verdict is the code
	EgressDecision    = "egress.decision"    // verdict allowed, blocked or would-block
	EgressLost        = "egress.lost"        // decisions that were too many to record
	EgressDropped     = "egress.dropped"     // the oldest of the egress chain were removed
	NetworkChanged    = "network.changed"    // by lazaret net or the console; verdict allow, deny or withdraw
	SessionStarted    = "session.started"
	SessionEnded      = "session.ended"
	ContainerPrepared = "container.prepared" // verdict ready or refused
	ContainerStarted  = "container.started"
	ContainerEnded    = "container.ended"
	CoordinatorStart  = "coordinator.started"
	CoordinatorEnd    = "coordinator.ended"
	GuardChanged      = "guard.changed" // verdict serving, ended, cut, dead, up or down; the payload names the guard
	StateChanged      = "state.changed" // by lazaret state; verdict is the operation
	ChainBroken       = "chain.broken"  // records were missing when the store was opened
	ChainLost         = "chain.lost"    // events that could not be written
)

// Bounds of a record, in bytes.
const (
	MaxPayload = 640 << 10
	maxText    = 256 // each of kind, verdict, session and container
)

// Hash is a record's SHA-256. The zero value stands before the first record.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes lower-case hex.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads lower-case hex.
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(h) || strings.ToLower(string(text)) != string(text) {
		return fmt.Errorf("%.80q is no SHA-256 in lower-case hex", text)
	}
	copy(h[:], b)
	return nil
}

// Event is what a record tells. Texts are kept as they came: who shows them makes
// them inert.
type Event struct {
	Time      time.Time       `json:"time"` // with nanoseconds, UTC
	Kind      string          `json:"kind"`
	Verdict   string          `json:"verdict,omitempty"`
	Session   string          `json:"session,omitempty"`
	Container string          `json:"container,omitempty"`
	Payload   json.RawMessage `json:"payload"` // one JSON object, as json.Marshal writes it
}

// Record is an event in a chain.
type Record struct {
	Seq uint64 `json:"seq"` // from 1, without gaps
	Event
	Prev Hash `json:"prev"` // of the record before it
	Hash Hash `json:"hash"` // over all of the above
}

// magic separates these hashes from all others.
const magic = "lazaret audit record 1\n"

// New makes the record that follows one with sequence number seq and hash prev;
// 0 and the zero Hash for the first.
func New(seq uint64, prev Hash, e Event) (Record, error) {
	r := Record{Seq: seq + 1, Prev: prev, Event: e}
	r.Time = time.Unix(0, e.Time.UnixNano()).UTC()
	if err := r.check(); err != nil {
		return Record{}, err
	}
	r.Hash = r.Sum()
	return r, nil
}

// check holds for every record, however it came.
func (r *Record) check() error {
	if r.Seq == 0 {
		return errors.New("sequence number is 0")
	}
	return r.Check()
}

// Check refuses an event of which no record can be made.
func (e *Event) Check() error {
	if !validKind(e.Kind) {
		return fmt.Errorf("kind %.64q is not two words of lower-case letters with a dot between", e.Kind)
	}
	for _, s := range []string{e.Kind, e.Verdict, e.Session, e.Container} {
		if len(s) > maxText || !utf8.ValidString(s) {
			return fmt.Errorf("text %.64q is longer than %d bytes or not UTF-8", s, maxText)
		}
	}
	if len(e.Payload) > MaxPayload {
		return fmt.Errorf("payload has %d bytes, %d are allowed", len(e.Payload), MaxPayload)
	}
	if len(e.Payload) < 2 || e.Payload[0] != '{' || !json.Valid(e.Payload) {
		return errors.New("payload is not a JSON object")
	}
	return nil
}

func validKind(s string) bool {
	a, b, ok := strings.Cut(s, ".")
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return ok && a != "" && b != "" && strings.Trim(a, letters) == "" && strings.Trim(b, letters) == ""
}

// body is the one encoding of a record without its hash: numbers have eight bytes,
// big-endian, and each text comes after its length.
func (r *Record) body() []byte {
	b := make([]byte, 0, len(magic)+8*7+len(r.Kind)+len(r.Verdict)+len(r.Session)+len(r.Container)+len(r.Payload)+len(r.Prev)+len(r.Hash))
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint64(b, r.Seq)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Time.UnixNano()))
	for _, s := range []string{r.Kind, r.Verdict, r.Session, r.Container, string(r.Payload)} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	return append(b, r.Prev[:]...)
}

// Sum is the hash that the record must have.
func (r *Record) Sum() Hash { return sha256.Sum256(r.body()) }

// Encode is the record as it is kept.
func (r *Record) Encode() []byte { return append(r.body(), r.Hash[:]...) }

// Decode reads a record that is kept. Only what Encode writes is taken; whether the
// hash is right is for a Verifier to say.
func Decode(data []byte) (Record, error) {
	var r Record
	rest, ok := strings.CutPrefix(string(data), magic)
	if !ok {
		return r, errors.New("does not begin as a record does")
	}
	number := func() (n uint64) {
		if len(rest) < 8 {
			ok, rest = false, ""
			return 0
		}
		n = binary.BigEndian.Uint64([]byte(rest[:8]))
		rest = rest[8:]
		return n
	}
	text := func() (s string) {
		n := number()
		if n > uint64(len(rest)) {
			ok, rest = false, ""
			return ""
		}
		s, rest = rest[:n], rest[n:]
		return s
	}
	r.Seq = number()
	r.Time = time.Unix(0, int64(number())).UTC() //nolint:gosec // its bits
	r.Kind, r.Verdict, r.Session, r.Container = text(), text(), text(), text()
	r.Payload = json.RawMessage(text())
	if !ok || len(rest) != len(r.Prev)+len(r.Hash) {
		return Record{}, errors.New("has not the length that it says")
	}
	copy(r.Prev[:], rest)
	copy(r.Hash[:], rest[len(r.Prev):])
	return r, r.check()
}

// Payload is v, which must encode as a JSON object, as a record's payload; nil is
// an empty one.
func Payload(v any) json.RawMessage {
	if v == nil {
		return json.RawMessage("{}")
	}
	data, err := json.Marshal(v)
	if err != nil { // of a type that JSON does not know: Check refuses it
		return json.RawMessage("null")
	}
	return data
}
