// Command lazaret is what people type: it sets Lazaret up, checks the machine
// and shows what runs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/lazaret-dev/lazaret/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
