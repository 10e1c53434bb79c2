// Command lazaret-escalate asks, from inside a sandbox, a person on the host to
// run a command.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/lazaret-dev/lazaret/internal/version"
)

const (
	socket = "/run/lazaret/escalate.sock"
	// exitFailed is the exit code for a failure of Lazaret itself.
	exitFailed = 125
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		_, _ = fmt.Fprintln(os.Stdout, version.String("lazaret-escalate"))
		return
	}
	_, err := os.Stat(socket)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("this sandbox offers no host escalation: nothing was asked and nothing was run")
	} else if err == nil {
		err = fmt.Errorf("%s is served by another version of Lazaret: nothing was asked and nothing was run", socket)
	}
	fmt.Fprintf(os.Stderr, "lazaret-escalate: %v\n", err)
	os.Exit(exitFailed)
}
