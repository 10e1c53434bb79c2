// Package hostrun owns the running of an approved command on the host: what was
// shown is what is executed, with the developer's environment less what could
// turn it into another, bounded in output and time, and ended with all that it
// started.
package hostrun

import (
	"context"

	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// Result is how a command ended.
type Result struct {
	ExitCode       int // 128 and the signal's number for one that a signal ended
	Stdout, Stderr []byte
	// Err tells why nothing was run, or why its end is not known; nil.
	Err error
}

// Runner runs what a View says for an ask, as a check of it right before says the
// same; ctx's end ends the command and all that it started.
type Runner interface {
	Run(ctx context.Context, ask *wire.Ask, v *policy.View) Result
}
