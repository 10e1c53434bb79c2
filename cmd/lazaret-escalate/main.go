// Command lazaret-escalate asks, from inside a sandbox, a person on the host to
// run a command. Called git, it is what stands before git on a sandbox's PATH.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/escalate/mcp"
	"github.com/lazaret-dev/lazaret/escalate/pause"
	"github.com/lazaret-dev/lazaret/internal/gitwrap"
)

func main() {
	if gitwrap.Called(os.Args[0]) {
		os.Exit(gitwrap.Main(os.Args, os.Stderr))
	}
	if pause.Called(os.Args[1:]) {
		os.Exit(pause.Main(os.Args[1:], os.Stderr))
	}
	p := escalate.Program{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Proc: "/proc",
		Client: escalate.Client{Socket: escalate.Socket, Certs: escalate.Certs},
	}
	if len(os.Args) == 2 && os.Args[1] == "mcp" {
		os.Exit(serve(&p))
	}
	os.Exit(p.Main(os.Args[1:]))
}

// serve offers the tool until the agent that started us hangs up.
func serve(p *escalate.Program) int {
	err := mcp.Serve(context.Background(), os.Stdin, os.Stdout, func(ctx context.Context, command, reason string) (*escalate.Response, error) {
		session, err := escalate.FindSession(p.Getenv, p.Proc)
		if err != nil {
			return nil, err
		}
		req, err := p.Client.NewRequest(session, command, reason)
		if err != nil {
			return nil, err
		}
		return p.Client.Ask(ctx, req, func(string) {})
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "lazaret-escalate mcp: %v\n", err)
		return escalate.ExitFailed
	}
	return 0
}
