package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/lazaret-dev/lazaret/escalate"
)

// connect serves ask to a client of the protocol's own library.
func connect(t *testing.T, ask Ask) *sdk.ClientSession {
	t.Helper()
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(t.Context(), fromClient, toClient, ask)
		_ = toClient.Close()
	}()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		_ = toServer.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestLibrarysClient(t *testing.T) {
	var asked, why string
	s := connect(t, func(_ context.Context, command, reason string) (*escalate.Response, error) {
		asked, why = command, reason
		switch command {
		case "no":
			return &escalate.Response{ExitCode: escalate.ExitDenied, Reason: "not today"}, nil
		case "broken":
			return nil, errors.New("no socket")
		}
		r := &escalate.Response{Approved: true, ExitCode: 3}
		r.SetOutput([]byte("out <\xff"), nil)
		return r, nil
	})
	if err := s.Ping(t.Context(), nil); err != nil {
		t.Error(err)
	}
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != toolName {
		t.Fatalf("tools %+v, %v", tools, err)
	}
	tests := []struct {
		name    string
		args    map[string]any
		asked   string
		text    string // a part of what the model reads
		isError bool
		refused bool
	}{
		{"argv", map[string]any{"argv": []string{"aws", "a b"}, "justification": "why"}, "aws 'a b'", "exit code 3\nstdout:\nout <\uFFFD", false, false},
		{"a command line", map[string]any{"command_line": "a | b", "justification": "why"}, "a | b", "exit code 3", false, false},
		{"denied", map[string]any{"command_line": "no", "justification": "why"}, "no", "denied: not today", true, false},
		{"failed", map[string]any{"command_line": "broken", "justification": "why"}, "broken", "nothing was run: no socket", true, false},
		{"both", map[string]any{"command_line": "a", "argv": []string{"b"}, "justification": "why"}, "", "", false, true},
		{"neither", map[string]any{"justification": "why"}, "", "", false, true},
		{"unknown argument", map[string]any{"command_line": "a", "env": "x"}, "", "", false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked, why = "", ""
			res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: toolName, Arguments: tt.args})
			if tt.refused {
				if err == nil || asked != "" {
					t.Errorf("asked for %q, error %v", asked, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text, ok := res.Content[0].(*sdk.TextContent)
			if !ok || asked != tt.asked || why != "why" || res.IsError != tt.isError || !strings.Contains(text.Text, tt.text) {
				t.Errorf("asked %q for %q, got %+v", asked, why, res)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	ended := make(chan struct{})
	s := connect(t, func(ctx context.Context, _, _ string) (*escalate.Response, error) {
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.CallTool(ctx, &sdk.CallToolParams{Name: toolName, Arguments: map[string]any{"command_line": "x", "justification": ""}}); err == nil {
		t.Error("no error")
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the call goes on after the client has cancelled it")
	}
}

// The end of the input gives up what waits.
func TestEnd(t *testing.T) {
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_on_host","arguments":{"command_line":"x"}}}`)
	err := Serve(t.Context(), in, io.Discard, func(ctx context.Context, _, _ string) (*escalate.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err != nil {
		t.Error(err)
	}
}

func TestLines(t *testing.T) {
	tests := []struct {
		name, in string
		code     float64 // of the error; 0 for an answer without one
	}{
		{"ping", `{"jsonrpc":"2.0","id":"a","method":"ping"}`, 0},
		{"no JSON", `{`, codeParse},
		{"an array", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, codeInvalid},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, codeInvalid},
		{"no version", `{"id":1,"method":"ping"}`, codeInvalid},
		{"another case", `{"jsonrpc":"2.0","id":1,"Method":"ping"}`, codeInvalid},
		{"twice", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, codeInvalid},
		{"id of another kind", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, codeInvalid},
		{"no such method", `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, codeMethod},
		{"no such tool", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{}}}`, codeParams},
		{"arguments twice", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_on_host","arguments":{"command_line":"a","command_line":"b"}}}`, codeParams},
		{"arguments in another case", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_on_host","arguments":{"Command_line":"a"}}}`, codeParams},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			err := Serve(t.Context(), strings.NewReader(tt.in+"\n"), &out, func(context.Context, string, string) (*escalate.Response, error) {
				t.Error("asked")
				return nil, errors.New("asked")
			})
			var answer map[string]any
			if err != nil || json.Unmarshal([]byte(out.String()), &answer) != nil {
				t.Fatalf("%v: %q", err, out.String())
			}
			failed, _ := answer["error"].(map[string]any)
			if code, _ := failed["code"].(float64); code != tt.code {
				t.Errorf("got %s", out.String())
			}
		})
	}
}

// FuzzServe: whatever comes, each line that goes out is one JSON object, and
// nothing is asked for twice.
func FuzzServe(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_on_host","arguments":{"argv":["a"],"justification":"b"}}}` + "\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n{}\n[]\nnull\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","id":null,"method":"initialize","params":{"protocolVersion":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out strings.Builder
		_ = Serve(t.Context(), strings.NewReader(string(data)), &out, func(context.Context, string, string) (*escalate.Response, error) {
			return &escalate.Response{Approved: true}, nil
		})
		lines := bufio.NewScanner(strings.NewReader(out.String()))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var v map[string]any
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil || v["jsonrpc"] != "2.0" {
				t.Fatalf("wrote %q", lines.Text())
			}
		}
	})
}
