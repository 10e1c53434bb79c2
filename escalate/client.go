// Package escalate owns Host Escalation as a program in a sandbox sees it: the
// messages, their signatures, and the client that asks a person on the host to run
// a command.
package escalate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/internal/shellword"
	"github.com/lazaret-dev/lazaret/internal/version"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// Socket and Certs are the Escalation Socket's and the certificates' places in a
// sandbox.
const (
	Socket = "/run/lazaret/escalate.sock"
	Certs  = "/run/lazaret/certs"
)

// The client's exit statuses where no command ran to its end.
const (
	ExitTimeout = 124 // nobody answered in time
	ExitFailed  = 125 // Lazaret itself failed
	ExitDenied  = 126
)

// sayAfter is how long an answer may take before the client says that it waits:
// what is approved by rule says nothing.
const sayAfter = time.Second

const clientUsage = `lazaret-escalate asks a person on the host to run a command there.

Usage: lazaret-escalate [-j REASON] [--timeout D] [--json] -- PROGRAM [ARGUMENT…]
       lazaret-escalate [-j REASON] [--timeout D] [--json] 'COMMAND LINE'
       lazaret-escalate mcp

Words after -- are a program and its arguments, each of them exactly as given. A
single argument without -- is a command line for a POSIX shell.

  -j REASON      why: the person reads it; - reads it from standard input
  --timeout D    give up when nobody has answered after D, such as 90s or 10m
  --json         print the answer as one JSON object
  --version      print the version
  --help         print this text
  mcp            offer the same as a tool of the Model Context Protocol, over
                 standard input and output

Prints what the command prints, and ends with its exit status; 126 when it was
denied, 124 when nobody answered in time, 125 when Lazaret itself failed. Then
nothing was run, or the message says so.
`

// Program is the Escalation Client as a command.
type Program struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Client         Client
	Getenv         func(string) string
	Proc           string // "/proc"
}

type options struct {
	reason  string
	timeout time.Duration
	json    bool
	command string
	text    string // to print instead
}

// Main takes the arguments after the program's name and returns the exit status.
func (p *Program) Main(args []string) int {
	o, err := parse(args)
	if err != nil {
		return p.fail(options{}, "", fmt.Errorf("%w; see lazaret-escalate --help", err))
	}
	if o.text != "" {
		if _, err := io.WriteString(p.Stdout, o.text); err != nil {
			return ExitFailed
		}
		return 0
	}
	if o.reason == "-" {
		data, err := io.ReadAll(io.LimitReader(p.Stdin, MaxJustification+1))
		if err != nil {
			return p.fail(o, "", fmt.Errorf("read the reason from standard input: %w", err))
		}
		o.reason = strings.TrimSpace(string(data))
	}
	session, err := FindSession(p.Getenv, p.Proc)
	if err != nil {
		// What matters more comes first.
		if _, serr := p.Client.config(); errors.Is(serr, ErrNoSocket) {
			err = serr
		}
		return p.fail(o, "", err)
	}
	req, err := p.Client.NewRequest(session, o.command, o.reason)
	if err != nil {
		return p.fail(o, "", err)
	}
	res, err := p.ask(o, req)
	if err != nil {
		return p.fail(o, req.RequestID, err)
	}
	return p.tell(o, res)
}

// NewRequest makes a signed request for the current working directory.
func (c *Client) NewRequest(s Session, command, reason string) (*Request, error) {
	profile, err := c.Profile()
	if err != nil {
		return nil, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	req := &Request{
		RequestID: uuid.NewString(), SessionID: s.ID, Profile: profile,
		Command: command, CWD: cwd, Justification: reason,
	}
	req.Sign(s.Key)
	if err := req.check(); err != nil {
		return nil, err
	}
	return req, nil
}

// timeoutError ends a wait that the caller bounded.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("nobody answered within %s; nothing was run", e.after)
}

func (p *Program) ask(o options, req *Request) (*Response, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var limit *time.Timer
	if o.timeout > 0 {
		limit = time.AfterFunc(o.timeout, func() { cancel(&timeoutError{o.timeout}) })
		defer limit.Stop()
	}
	said := Say(func(text string) { _, _ = fmt.Fprintf(p.Stderr, "lazaret-escalate: %s\n", text) })
	defer said.Stop()
	return p.Client.Ask(ctx, req, func(news string) {
		if news == NewsRunning && limit != nil {
			limit.Stop() // it bounds the wait for an answer
		}
		said.News(news)
	})
}

func parse(args []string) (o options, err error) {
	value := func(name string) (string, error) {
		if len(args) == 0 {
			return "", fmt.Errorf("%s needs a value", name)
		}
		v := args[0]
		args = args[1:]
		return v, nil
	}
	for len(args) > 0 {
		arg := args[0]
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			break
		}
		args = args[1:]
		name, inline, has := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			if len(args) == 0 {
				return o, errors.New("no command after --")
			}
			o.command = Join(args)
			return o, nil
		case arg == "--help" || arg == "-h":
			return options{text: clientUsage}, nil
		case arg == "--version":
			return options{text: version.String("lazaret-escalate") + "\n"}, nil
		case arg == "--json":
			o.json = true
		case name == "-j" || name == "--justification":
			if o.reason = inline; !has {
				o.reason, err = value(arg)
			}
		case name == "--timeout":
			text := inline
			if !has {
				text, err = value(arg)
			}
			if err == nil {
				o.timeout, err = time.ParseDuration(text)
			}
			if err == nil && o.timeout <= 0 {
				err = fmt.Errorf("--timeout %s is not positive", text)
			}
		default:
			return o, fmt.Errorf("unknown option %q: put -- before the command", arg)
		}
		if err != nil {
			return o, err
		}
	}
	switch len(args) {
	case 0:
		return o, errors.New("no command given")
	case 1:
		o.command = args[0]
		return o, nil
	}
	return o, errors.New("put -- before a command of several words")
}

// fail tells why nothing came of it.
func (p *Program) fail(o options, id string, err error) int {
	code := ExitFailed
	var late *timeoutError
	if errors.As(err, &late) {
		code = ExitTimeout
	}
	var refused *wire.Error
	text := err.Error()
	if errors.As(err, &refused) {
		text = fmt.Sprintf("the host refused the request (%s): %s; nothing was run", refused.Code, refused.Message)
	}
	if o.json {
		return p.tell(o, &Response{RequestID: id, ExitCode: code, Reason: text})
	}
	_, _ = fmt.Fprintf(p.Stderr, "lazaret-escalate: %s\n", text) // nowhere left to tell
	return code
}

// tell prints an answer and returns the exit status.
func (p *Program) tell(o options, res *Response) int {
	if o.json {
		enc := json.NewEncoder(p.Stdout)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(res); err != nil {
			return ExitFailed
		}
		return res.ExitCode
	}
	stdout, stderr, err := res.Output()
	if err == nil {
		_, err = p.Stdout.Write(stdout)
	}
	if err == nil {
		_, err = p.Stderr.Write(stderr)
	}
	if err != nil {
		_, _ = fmt.Fprintf(p.Stderr, "lazaret-escalate: print the command's output: %v\n", err)
		return ExitFailed
	}
	if text := res.Explain(); text != "" {
		_, _ = fmt.Fprintf(p.Stderr, "lazaret-escalate: %s\n", text)
	}
	return res.ExitCode
}

// Explain says why no command ran to its end; "" where one did.
func (r *Response) Explain() string {
	switch {
	case r.Approved && (r.ExitCode != ExitFailed || r.Reason == ""):
		return ""
	case r.Approved:
		return "approved, but: " + r.Reason
	case r.ExitCode == ExitDenied && r.Reason == "":
		return "denied; nothing was run"
	case r.ExitCode == ExitDenied:
		return "denied: " + r.Reason
	case r.Reason == "":
		return "nothing was run"
	}
	return r.Reason
}

// Join writes words as one line that a POSIX shell splits into the same words.
func Join(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellword.Quote(w)
	}
	return strings.Join(quoted, " ")
}
