// Package escalate owns Host Escalation: how a program in a sandbox asks a
// person on the host to run a command. This version has the client's manners
// only: it says that nobody can be asked, and fails closed.
package escalate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/lazaret-dev/lazaret/internal/version"
)

// Socket is the Escalation Socket's place in a sandbox.
const Socket = "/run/lazaret/escalate.sock"

// ExitFailed is the client's exit status when Lazaret itself failed and nothing
// was run.
const ExitFailed = 125

const clientUsage = `lazaret-escalate asks a person on the host to run a command.

Usage: lazaret-escalate [-j REASON] [--timeout D] [--json] -- ARGV…

This version of Lazaret offers no host escalation: the command ends with status
125, and nothing is asked or run.
`

// ClientMain is the Escalation Client: it takes the arguments after the
// program's name, for a socket at path, and returns the exit status.
func ClientMain(args []string, socket string, stdout, stderr io.Writer) int {
	if len(args) == 1 {
		text := ""
		switch args[0] {
		case "--version":
			text = version.String("lazaret-escalate") + "\n"
		case "--help", "-h":
			text = clientUsage
		}
		if text != "" {
			if _, err := io.WriteString(stdout, text); err != nil {
				return ExitFailed
			}
			return 0
		}
	}
	_, err := os.Lstat(socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("this sandbox offers no host escalation: nothing was asked and nothing was run")
	case err == nil:
		err = fmt.Errorf("%s is served by another version of Lazaret: nothing was asked and nothing was run", socket)
	}
	_, _ = fmt.Fprintf(stderr, "lazaret-escalate: %v\n", err) // nowhere left to tell
	return ExitFailed
}
