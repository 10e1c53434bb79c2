// Command lazaret-hook is the OCI hook by which a sandbox is counted in and out
// at its domain's coordinator. The low-level runtime starts it.
package main

import (
	"fmt"
	"os"

	"github.com/lazaret-dev/lazaret/hooks"
	"github.com/lazaret-dev/lazaret/internal/version"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] == "--help" || os.Args[1] == "-h" {
		_, _ = fmt.Fprintln(os.Stdout, "usage: lazaret-hook prestart|poststop [DOMAIN] < OCI state\nThe low-level runtime starts this hook of a container; see lazaret-runtime(8).")
		if len(os.Args) < 2 {
			os.Exit(1)
		}
		return
	}
	if os.Args[1] == "--version" {
		_, _ = fmt.Fprintln(os.Stdout, version.String("lazaret-hook"))
		return
	}
	if err := hooks.Run(os.Args[1], os.Stdin, os.Getenv); err != nil {
		fmt.Fprintf(os.Stderr, "lazaret-hook %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}
