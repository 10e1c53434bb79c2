package escalate

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/lazaret-dev/lazaret/internal/sessionkey"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// Bounds of a request, in bytes of UTF-8.
const (
	MaxRequest       = 128 << 10 // the whole body
	MaxCommand       = 64 << 10
	MaxJustification = 16 << 10
	MaxCWD           = 4 << 10
)

// MaxOutput bounds each of a command's stdout and stderr in a Response, in bytes;
// what is longer is cut, with a mark.
const MaxOutput = 1 << 20

// RequestPath is where the Escalation Socket takes a Request, by POST over mTLS.
const RequestPath = "/v1/escalate"

// Request asks a person to run a command on the host.
type Request struct {
	RequestID string `json:"request_id"` // a UUID, never used before
	SessionID string `json:"session_id"` // LAZARET_SESSION_ID
	Profile   string `json:"profile"`
	// Command is one line in the words of a POSIX shell.
	Command string `json:"command"`
	// CWD is where in the sandbox the command was asked for; "" is /workspace.
	CWD           string `json:"cwd,omitempty"`
	Justification string `json:"justification"`
	// Signature is the Session Anchor's over Canonical, in standard base64.
	Signature string `json:"signature"`
}

// Response tells how a request ended.
type Response struct {
	RequestID string `json:"request_id"`
	Approved  bool   `json:"approved"`
	// ExitCode is the command's, or why none ran: 124 nobody answered in time, 125
	// Lazaret failed, 126 denied.
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	// Encoding is "base64" where stdout or stderr was not UTF-8: then both are.
	Encoding string `json:"encoding,omitempty"`
	Reason   string `json:"reason,omitempty"` // a person's, or Lazaret's, for people
}

// DecodeRequest reads a request strictly: no unknown name, none twice or in
// another case, nothing after it, everything within bounds.
func DecodeRequest(data []byte) (*Request, error) {
	if len(data) > MaxRequest {
		return nil, fmt.Errorf("request has %d bytes, %d are allowed", len(data), MaxRequest)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("request is not UTF-8") // encoding/json would replace what is not
	}
	var r Request
	if err := wire.Decode(data, &r); err != nil {
		return nil, err
	}
	return &r, r.check()
}

func (r *Request) check() error {
	for name, id := range map[string]string{"request_id": r.RequestID, "session_id": r.SessionID} {
		if !sessionkey.ValidID(id) {
			return fmt.Errorf("%s %.64q is not a UUID in lower case with hyphens", name, id)
		}
	}
	for _, f := range []struct {
		name, text string
		limit      int
	}{
		{"command", r.Command, MaxCommand},
		{"justification", r.Justification, MaxJustification},
		{"cwd", r.CWD, MaxCWD},
		{"profile", r.Profile, 32},
		{"signature", r.Signature, 128},
	} {
		switch {
		case len(f.text) > f.limit:
			return fmt.Errorf("%s has %d bytes, %d are allowed", f.name, len(f.text), f.limit)
		case !utf8.ValidString(f.text):
			return fmt.Errorf("%s is not UTF-8", f.name)
		case strings.ContainsRune(f.text, 0):
			return fmt.Errorf("%s has a NUL in it", f.name)
		}
	}
	if strings.TrimSpace(r.Command) == "" {
		return errors.New("command is empty")
	}
	if r.CWD != "" && r.CWD[0] != '/' {
		return fmt.Errorf("cwd %.64q is not absolute", r.CWD)
	}
	return nil
}

// Canonical is what is signed: the name of this form, then each field but the
// signature with its length before it, so that no two requests give one text.
func (r *Request) Canonical() []byte {
	out := []byte("lazaret escalation request 1\n")
	for _, f := range []string{r.RequestID, r.SessionID, r.Profile, r.Command, r.CWD, r.Justification} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(f))) //nolint:gosec // bounded by check
		out = append(out, f...)
	}
	return out
}

// Sign puts the signature of key, a Session Anchor, into r.
func (r *Request) Sign(key ed25519.PrivateKey) {
	r.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(key, r.Canonical()))
}

// Verify reports whether r is signed by the Session Anchor whose public half is
// key.
func (r *Request) Verify(key ed25519.PublicKey) bool {
	sig, err := base64.StdEncoding.Strict().DecodeString(r.Signature)
	return err == nil && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, r.Canonical(), sig)
}

// SetOutput puts what a command printed into r, each cut to MaxOutput with a mark.
func (r *Response) SetOutput(stdout, stderr []byte) {
	stdout, stderr = cut(stdout), cut(stderr)
	if plain(stdout) && plain(stderr) {
		r.Stdout, r.Stderr = string(stdout), string(stderr)
		return
	}
	r.Encoding = "base64"
	r.Stdout, r.Stderr = base64.StdEncoding.EncodeToString(stdout), base64.StdEncoding.EncodeToString(stderr)
}

// plain reports whether out is UTF-8 that JSON does not make much longer.
func plain(out []byte) bool {
	controls := 0
	for _, b := range out {
		if b < 0x20 && b != '\n' && b != '\r' && b != '\t' {
			controls++ // six bytes each
		}
	}
	return utf8.Valid(out) && controls <= len(out)/20
}

// cutMark ends an output that is not whole.
const cutMark = "\n[lazaret: the rest was cut]\n"

func cut(out []byte) []byte {
	if len(out) <= MaxOutput {
		return out
	}
	return append(out[:MaxOutput-len(cutMark):MaxOutput-len(cutMark)], cutMark...)
}

// Output is what the command printed.
func (r *Response) Output() (stdout, stderr []byte, err error) {
	switch r.Encoding {
	case "":
		return []byte(r.Stdout), []byte(r.Stderr), nil
	case "base64":
		stdout, err = base64.StdEncoding.DecodeString(r.Stdout)
		if err == nil {
			stderr, err = base64.StdEncoding.DecodeString(r.Stderr)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("output of the command: %w", err)
		}
		return stdout, stderr, nil
	}
	return nil, nil, fmt.Errorf("output of the command has the unknown encoding %.32q", r.Encoding)
}
