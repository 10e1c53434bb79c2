// Package mcp owns the Escalation Client as a tool of the Model Context Protocol:
// JSON-RPC 2.0, one message a line, over standard input and output. It speaks the
// part of the protocol that a server with one tool needs.
package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/internal/version"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

const (
	maxLine  = 512 << 10 // of a message, in bytes
	maxCalls = 16        // at one time: as many as a session may have waiting
	toolName = "run_on_host"
)

// Error codes of JSON-RPC.
const (
	codeParse   = -32700
	codeInvalid = -32600
	codeMethod  = -32601
	codeParams  = -32602
)

// versions of the protocol, newest first.
func versions() []string { return []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"} }

// Ask asks for a command line with a reason, and waits for the answer or for ctx.
type Ask func(ctx context.Context, command, reason string) (*escalate.Response, error)

// Message is one of JSON-RPC's, a request or a notification.
type Message struct {
	ID     json.RawMessage // nil for a notification
	Method string
	Params json.RawMessage // nil for none
	answer bool            // a response: to nothing that we asked
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

type server struct {
	ask Ask
	out io.Writer

	// mu guards the fields below, and writing.
	mu     sync.Mutex
	calls  map[string]context.CancelFunc // by id, as its JSON
	failed error                         // of writing
}

// Serve answers until in ends, which gives nil, or ctx does. Calls that wait then
// are given up.
func Serve(ctx context.Context, in io.Reader, out io.Writer, ask Ask) error {
	s := &server{ask: ask, out: out, calls: map[string]context.CancelFunc{}}
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	lines := bufio.NewReaderSize(in, 16<<10)
	for ctx.Err() == nil {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			s.fail(nil, codeParse, err.Error())
			return fmt.Errorf("read a message: %w", err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			s.take(ctx, line, &calls)
		}
		s.mu.Lock()
		err = s.failed
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return nil, fmt.Errorf("message is longer than %d bytes", maxLine)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Decode reads one message strictly: an object whose names are in their own case,
// each there once, and nothing after it.
func Decode(line []byte) (*Message, error) {
	if !utf8.Valid(line) {
		return nil, errors.New("message is not UTF-8")
	}
	fields, err := object(line)
	if err != nil {
		return nil, err
	}
	m := &Message{}
	for name, raw := range fields {
		switch name {
		case "jsonrpc":
			var v string
			if json.Unmarshal(raw, &v) != nil || v != "2.0" {
				return nil, errors.New("jsonrpc is not 2.0")
			}
		case "id":
			if !validID(raw) {
				return nil, errors.New("id is neither a string nor a whole number")
			}
			m.ID = raw
		case "method":
			if json.Unmarshal(raw, &m.Method) != nil || m.Method == "" || raw[0] != '"' {
				return nil, errors.New("method is not a string")
			}
		case "params":
			if raw[0] != '{' {
				return nil, errors.New("params are not an object")
			}
			m.Params = raw
		case "result", "error":
			m.answer = true
		default:
			return nil, fmt.Errorf("unknown name %.64q", name)
		}
	}
	if fields["jsonrpc"] == nil || m.answer == (m.Method != "") {
		return nil, errors.New("message is neither a request nor an answer of JSON-RPC 2.0")
	}
	return m, nil
}

// object reads the fields of one JSON object, each as it is written.
func object(data []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("message is not a JSON object")
	}
	fields := map[string]json.RawMessage{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := tok.(string)
		if _, twice := fields[name]; !ok || twice {
			return nil, fmt.Errorf("name %.64q is there twice", name)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, err
		}
		fields[name] = raw
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the message")
	}
	return fields, nil
}

func validID(raw json.RawMessage) bool {
	if len(raw) > 256 {
		return false
	}
	var text string
	var number int64
	return raw[0] == '"' && json.Unmarshal(raw, &text) == nil || raw[0] != 'n' && json.Unmarshal(raw, &number) == nil
}

// take acts upon one line.
func (s *server) take(ctx context.Context, line []byte, calls *sync.WaitGroup) {
	m, err := Decode(line)
	switch {
	case err != nil && !json.Valid(line):
		s.fail(nil, codeParse, err.Error())
	case err != nil:
		s.fail(nil, codeInvalid, err.Error())
	case m.answer:
	case m.ID == nil:
		if m.Method == "notifications/cancelled" {
			s.cancelled(m.Params)
		}
	default:
		s.request(ctx, m, calls)
	}
}

func (s *server) request(ctx context.Context, m *Message, calls *sync.WaitGroup) {
	switch m.Method {
	case "initialize":
		var p struct {
			Version string `json:"protocolVersion"`
		}
		if m.Params == nil || json.Unmarshal(m.Params, &p) != nil {
			s.fail(m.ID, codeParams, "params have no protocolVersion")
			return
		}
		if !slices.Contains(versions(), p.Version) {
			p.Version = versions()[0]
		}
		s.answer(m.ID, map[string]any{
			"protocolVersion": p.Version,
			"capabilities":    map[string]any{"tools": map[string]any{}},
			"serverInfo":      map[string]string{"name": "lazaret-escalate", "version": version.Version},
		})
	case "ping":
		s.answer(m.ID, map[string]any{})
	case "tools/list":
		s.answer(m.ID, map[string]any{"tools": []any{tool()}})
	case "tools/call":
		s.call(ctx, m, calls)
	default:
		s.fail(m.ID, codeMethod, fmt.Sprintf("method %.64q is not offered", m.Method))
	}
}

func tool() map[string]any {
	text := func(about string) map[string]any { return map[string]any{"type": "string", "description": about} }
	return map[string]any{
		"name":        toolName,
		"title":       "Run a command on the host",
		"description": "Asks the person at the host, outside of this sandbox, to run one command there, and returns its exit code and output. Use it for what the sandbox cannot do itself. The person sees the command and the justification, and may deny it. Give either argv or command_line.",
		"inputSchema": map[string]any{
			"type": "object",
			"properties": map[string]any{
				"argv":          map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "description": "the program and its arguments, each exactly as given"},
				"command_line":  text("a command line for a POSIX shell, where argv is not enough"),
				"justification": text("why it is needed, in one or two sentences for the person"),
			},
			"required":             []string{"justification"},
			"additionalProperties": false,
		},
	}
}

// arguments of the tool.
type arguments struct {
	Argv          []string `json:"argv"`
	CommandLine   string   `json:"command_line"`
	Justification string   `json:"justification"`
}

func parseCall(params json.RawMessage) (command, reason string, err error) {
	if params == nil {
		return "", "", errors.New("params are missing")
	}
	fields, err := object(params)
	if err != nil {
		return "", "", err
	}
	var name string
	if json.Unmarshal(fields["name"], &name) != nil || name != toolName {
		return "", "", fmt.Errorf("tool %.64q is not offered, only %s", name, toolName)
	}
	var a arguments
	if err := wire.Decode(fields["arguments"], &a); err != nil {
		return "", "", fmt.Errorf("arguments: %w", err)
	}
	switch {
	case (len(a.Argv) == 0) == (a.CommandLine == ""):
		return "", "", errors.New("arguments: give either argv or command_line")
	case len(a.Argv) > 0:
		return escalate.Join(a.Argv), a.Justification, nil
	}
	return a.CommandLine, a.Justification, nil
}

func (s *server) call(ctx context.Context, m *Message, calls *sync.WaitGroup) {
	command, reason, err := parseCall(m.Params)
	if err != nil {
		s.fail(m.ID, codeParams, err.Error())
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	id := string(m.ID)
	s.mu.Lock()
	_, twice := s.calls[id]
	full := len(s.calls) >= maxCalls
	if !twice && !full {
		s.calls[id] = cancel
	}
	s.mu.Unlock()
	if twice || full {
		cancel()
		s.fail(m.ID, codeInvalid, fmt.Sprintf("a call of this id waits already, or %d others do", maxCalls))
		return
	}
	calls.Go(func() {
		defer cancel()
		res, err := s.ask(ctx, command, reason)
		s.mu.Lock()
		delete(s.calls, id)
		s.mu.Unlock()
		if ctx.Err() == nil { // who has cancelled it wants no answer
			s.answer(m.ID, result(res, err))
		}
	})
}

// result is what the model reads.
func result(res *escalate.Response, err error) map[string]any {
	if err != nil {
		return content("nothing was run: "+err.Error(), true, nil)
	}
	if text := res.Explain(); text != "" {
		return content(text, true, map[string]any{"approved": res.Approved, "exit_code": res.ExitCode})
	}
	stdout, stderr, err := res.Output()
	if err != nil {
		return content(err.Error(), true, nil)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "exit code %d\n", res.ExitCode)
	for _, o := range []struct {
		name string
		text []byte
	}{{"stdout", stdout}, {"stderr", stderr}} {
		if len(o.text) > 0 {
			fmt.Fprintf(&b, "%s:\n%s\n", o.name, strings.ToValidUTF8(string(o.text), "\uFFFD"))
		}
	}
	return content(b.String(), false, map[string]any{"approved": true, "exit_code": res.ExitCode})
}

func content(text string, failed bool, structured map[string]any) map[string]any {
	r := map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}, "isError": failed}
	if structured != nil {
		r["structuredContent"] = structured
	}
	return r
}

func (s *server) cancelled(params json.RawMessage) {
	fields, err := object(params)
	if err != nil {
		return // a notification has no answer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.calls[string(fields["requestId"])]; cancel != nil {
		cancel()
	}
}

func (s *server) answer(id json.RawMessage, v any) {
	s.write(map[string]any{"jsonrpc": "2.0", "id": id, "result": v})
}

func (s *server) fail(id json.RawMessage, code int, text string) {
	s.write(map[string]any{"jsonrpc": "2.0", "id": id, "error": rpcError{code, text}})
}

func (s *server) write(v map[string]any) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		_, err = s.out.Write(line.Bytes())
	}
	if err != nil && s.failed == nil {
		s.failed = fmt.Errorf("write an answer: %w", err)
	}
}
