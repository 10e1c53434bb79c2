// Package mainpath runs podman's everyday commands through lazaret-runtime, with
// every runsc of the machine: a container's whole life, its domain, its identity
// and the rest of podman's surface.
package mainpath

import (
	"os"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
