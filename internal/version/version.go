// Package version owns the version and commit that every Lazaret binary prints.
package version

import (
	"fmt"
	"runtime"
)

// Version and Commit are set at link time (-X); the defaults mark a build
// that did not go through the Makefile.
var (
	Version = "0.0.0-dev"
	Commit  = "unknown"
)

// String returns one line for --version of the named program.
func String(program string) string {
	return fmt.Sprintf("%s %s (commit %s, %s/%s, %s)", program, Version, Commit, runtime.GOOS, runtime.GOARCH, runtime.Version())
}
