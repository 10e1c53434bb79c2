// Package netrouter owns the Network Sidecar, the gateway of a sandbox whose
// profile filters its network. This version cannot filter yet, and a gateway
// that does not filter must not come up by accident: it refuses to run.
package netrouter

import (
	"fmt"
	"io"

	"github.com/lazaret-dev/lazaret/internal/version"
)

// Main takes the arguments after the program's name and returns the exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == "--version" {
		if _, err := fmt.Fprintln(stdout, version.String("lazaret-netrouter")); err != nil {
			return 1
		}
		return 0
	}
	_, _ = fmt.Fprintln(stderr, "lazaret-netrouter: this version filters no network yet; profiles that ask for it are refused at their start") // nowhere left to tell
	return 1
}
