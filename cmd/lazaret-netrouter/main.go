// Command lazaret-netrouter is the gateway of a sandbox whose profile filters
// its network.
package main

import (
	"fmt"
	"os"

	"github.com/lazaret-dev/lazaret/internal/version"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		_, _ = fmt.Fprintln(os.Stdout, version.String("lazaret-netrouter"))
		return
	}
	// A gateway that does not filter must not come up by accident.
	fmt.Fprintln(os.Stderr, "lazaret-netrouter: this version filters no network yet; profiles that ask for it are refused at their start")
	os.Exit(1)
}
