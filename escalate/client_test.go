package escalate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClientMain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, socket string
		args         []string
		code         int
		out, err     string
	}{
		{"no socket: nothing is run", "/nonexistent/sock", []string{"--", "touch", "/x"}, 125, "", "nothing was run"},
		{"a socket of another version: nothing is run", file, []string{"--", "touch", "/x"}, 125, "", "another version"},
		{"no arguments", "/nonexistent/sock", nil, 125, "", "nothing was asked"},
		{"version", "", []string{"--version"}, 0, "lazaret-escalate ", ""},
		{"help", "", []string{"--help"}, 0, "Usage: lazaret-escalate", ""},
		{"a command called --version is asked for", "/nonexistent/sock", []string{"--", "--version"}, 125, "", "nothing was run"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, err bytes.Buffer
			if code := ClientMain(tt.args, tt.socket, &out, &err); code != tt.code {
				t.Errorf("exit status %d", code)
			}
			if !strings.Contains(out.String(), tt.out) || !strings.Contains(err.String(), tt.err) {
				t.Errorf("stdout %q, stderr %q", out.String(), err.String())
			}
		})
	}
}
