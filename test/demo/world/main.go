// Command world makes the demo's network: two names with a web server each. It
// prints how to enter it, one word a line, and serves until it is ended.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/test/networld"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "world: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("needs a directory")
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer stop()
	w, err := networld.New(os.Args[1], map[string]string{"listed.example": "203.0.113.10", "other.example": "203.0.113.11"})
	if err != nil {
		return err
	}
	ln, err := w.Listen(":80")
	if err != nil {
		return errors.Join(err, w.Close())
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(rw, "this is %s\n", r.Host) //nolint:gosec // plain text
	})}
	go func() { _ = s.Serve(ln) }() // until Close
	_, err = fmt.Println(strings.Join(w.Enter(), "\n"))
	if err = errors.Join(err, os.Stdout.Close()); err != nil { // the reader waits for its end
		return errors.Join(err, w.Close())
	}
	<-ctx.Done()
	return errors.Join(s.Close(), w.Close())
}
