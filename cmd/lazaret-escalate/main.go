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
	p := escalate.Program{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Proc: "/proc",
		Client: escalate.Client{Socket: escalate.Socket, Certs: escalate.Certs},
	}
	os.Exit(p.Main(os.Args[1:]))
}
