// Command lazaret-escalate asks, from inside a sandbox, a person on the host to
// run a command. Called git, it is what stands before git on a sandbox's PATH.
package main

import (
	"os"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/internal/gitwrap"
)

func main() {
	if gitwrap.Called(os.Args[0]) {
		os.Exit(gitwrap.Main(os.Args, os.Stderr))
	}
	os.Exit(escalate.ClientMain(os.Args[1:], escalate.Socket, os.Stdout, os.Stderr))
}
