// Command lazaret-netrouter is the gateway of a sandbox whose profile filters
// its network.
package main

import (
	"os"

	"github.com/lazaret-dev/lazaret/netrouter"
)

func main() {
	os.Exit(netrouter.Main(os.Args[1:], os.Stdout, os.Stderr))
}
