// Command lazaret-runtime is the OCI runtime that container engines call.
package main

import (
	"os"

	_ "github.com/lazaret-dev/lazaret/internal/early" // the entry that make build sets
	"github.com/lazaret-dev/lazaret/shim"
)

func main() {
	os.Exit(shim.Main(os.Args[1:], os.Stdout, os.Stderr))
}
