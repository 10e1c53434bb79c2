// Command lazaret-coordinator holds one domain while somebody uses it. The
// runtime starts it; people do not.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/lazaret-dev/lazaret/internal/coordinator"
	"github.com/lazaret-dev/lazaret/internal/version"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		_, _ = fmt.Fprintln(os.Stdout, version.String("lazaret-coordinator"))
		return
	}
	if len(os.Args) == 2 && (os.Args[1] == "--help" || os.Args[1] == "-h") {
		_, _ = fmt.Fprintln(os.Stdout, "lazaret-coordinator holds one Lazaret domain while it is in use.\nThe runtime starts it with its settings on standard input; see lazaret-runtime(8).")
		return
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "lazaret-coordinator: %v\n", err)
		if errors.Is(err, coordinator.ErrBusy) {
			os.Exit(wire.ExitBusy)
		}
		os.Exit(1)
	}
}

func run() error {
	var spec wire.StartSpec
	data, err := io.ReadAll(io.LimitReader(os.Stdin, wire.MaxBody))
	if err == nil {
		err = wire.Decode(data, &spec)
	}
	if err != nil {
		return fmt.Errorf("read settings from standard input: %w (the runtime starts this program)", err)
	}
	if err := spec.Validate(); err != nil {
		return err
	}
	// The starter's pipe: kept open it would be one more thing to leak.
	if err := os.Stdin.Close(); err != nil {
		return fmt.Errorf("close standard input: %w", err)
	}
	var level slog.Level
	if spec.LogLevel != "" {
		if err := level.UnmarshalText([]byte(spec.LogLevel)); err != nil {
			return fmt.Errorf("log_level: %w", err)
		}
	}
	out := &lumberjack.Logger{Filename: wire.LogPath(spec.Domain.Root), MaxSize: 5, MaxBackups: 3}
	log := slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))

	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err = coordinator.Run(ctx, spec, log)
	if !spec.Domain.Ephemeral {
		// An ephemeral domain's log went with its root.
		err = errors.Join(err, out.Close())
	}
	return err
}
