// Command lazaret-coordinator holds one domain while somebody uses it, and as
// "guard" serves its workspace to the sandboxes. The runtime starts it, and it
// starts the guard; people do not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/lazaret-dev/lazaret/internal/coordinator"
	"github.com/lazaret-dev/lazaret/internal/gitsentry"
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
	if len(os.Args) > 1 && os.Args[1] == "guard" {
		if err := guard(os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "lazaret-coordinator guard: %v\n", err)
			os.Exit(1)
		}
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
	log, out, err := logger(wire.LogPath(spec.Domain.Root), spec.LogLevel)
	if err != nil {
		return err
	}

	signal.Ignore(syscall.SIGHUP)
	// Caught, not ignored: programs that we start would inherit that, and some
	// versions of pasta take it for a failure.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err = coordinator.Run(ctx, spec, log)
	if !spec.Domain.Ephemeral {
		// An ephemeral domain's log went with its root.
		err = errors.Join(err, out.Close())
	}
	return err
}

// logger writes to a domain's log. Coordinator and guard each turn it over when
// they have filled it, so that none of them can fill the disk.
func logger(path, levelName string) (*slog.Logger, io.Closer, error) {
	var level slog.Level
	if levelName != "" {
		if err := level.UnmarshalText([]byte(levelName)); err != nil {
			return nil, nil, fmt.Errorf("log_level: %w", err)
		}
	}
	out := &lumberjack.Logger{Filename: path, MaxSize: 5, MaxBackups: 3}
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level})), out, nil
}

// wordsFD is where the guard tells its coordinator whether it serves.
const wordsFD = 3

// guard serves a workspace: settings come on standard input, which stays open
// for as long as the guard is wanted.
func guard(args []string) error {
	set := flag.NewFlagSet("guard", flag.ContinueOnError)
	path := set.String("log", "", "the domain's log `FILE`")
	level := set.String("log-level", "", "what is logged: debug, info, warn or error")
	if err := set.Parse(args); err != nil {
		return err
	}
	syscall.CloseOnExec(wordsFD)
	words := os.NewFile(wordsFD, "words")
	log, out, err := slog.New(slog.NewJSONHandler(os.Stderr, nil)), io.Closer(os.Stderr), error(nil)
	if *path != "" {
		if log, out, err = logger(*path, *level); err != nil {
			return err
		}
	}
	log = log.With("process", "guard")
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err = coordinator.ServeGuard(ctx, os.Stdin, words, log, gitsentry.Serve)
	if err != nil {
		log.Error("guard ends", "error", err)
	}
	return errors.Join(err, out.Close())
}
