// Command lazaret-escalate asks, from inside a sandbox, a person on the host to
// run a command.
package main

import (
	"os"

	"github.com/lazaret-dev/lazaret/escalate"
)

func main() {
	os.Exit(escalate.ClientMain(os.Args[1:], escalate.Socket, os.Stdout, os.Stderr))
}
