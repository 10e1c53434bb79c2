package cli

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/escalate/hostrun"
	"github.com/lazaret-dev/lazaret/escalate/policy"
)

// superviseName is what lazaret starts itself as, between a desk and a command.
const superviseName = "supervise-command"

// hostSide is what approved commands run with.
func hostSide(dataRoot string) *hostrun.Local {
	return &hostrun.Local{
		Host:       func() *policy.Host { return policy.FromEnvironment(dataRoot) },
		Environ:    os.Environ(),
		Supervisor: []string{"/proc/self/exe", superviseName}, // this very program, also after an upgrade
	}
}

func superviseCommand() *cli.Command {
	return &cli.Command{
		Name: superviseName, Hidden: true,
		Action: func(*cli.Context) error { return hostrun.Supervise() },
	}
}
