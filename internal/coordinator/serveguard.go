package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/filelimit"
	"github.com/lazaret-dev/lazaret/internal/gitsentry"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// Server serves a guard's file system until ctx ends, and calls ready once it
// can be used; gitsentry.Serve is one.
type Server func(ctx context.Context, o gitsentry.Options, ready func() error, log *slog.Logger) error

// ServeGuard is the guard process: it reads gitsentry.Options from in, serves,
// and says on words, which it closes then, that it does, or why it cannot. It
// ends with ctx, or when in does: the coordinator holds the other end for life.
func ServeGuard(ctx context.Context, in io.Reader, words io.WriteCloser, log *slog.Logger, serve Server) error {
	spoken := false
	ready := func() error {
		spoken = true
		_, err := io.WriteString(words, guardReady+"\n")
		if err = errors.Join(err, words.Close()); err != nil {
			return fmt.Errorf("tell the coordinator: %w", err)
		}
		return nil
	}
	err := serveGuard(ctx, in, ready, log, serve)
	if err != nil && !spoken {
		data, merr := json.Marshal(guardError{err.Error()})
		_, werr := words.Write(append(data, '\n'))
		err = errors.Join(err, merr, werr, words.Close())
	}
	return err
}

func serveGuard(ctx context.Context, in io.Reader, ready func() error, log *slog.Logger, serve Server) error {
	o, err := readOptions(in)
	if err != nil {
		return err
	}
	if err := errors.Join(fuseDevice("/dev/fuse"), filelimit.Raise()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in) // its end is all that matters
		log.Info("the coordinator is gone")
		cancel()
	}()
	done := make(chan error, 1)
	go func() { done <- serve(ctx, o, ready, log) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(guardStop):
		return errors.New("the guard does not stop by itself")
	}
}

// readOptions reads one JSON object, strictly.
func readOptions(in io.Reader) (o gitsentry.Options, err error) {
	dec := json.NewDecoder(io.LimitReader(in, 2*wire.MaxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return o, fmt.Errorf("read the guard's options: %w (the coordinator starts this program)", err)
	}
	rest, err := io.ReadAll(dec.Buffered()) // of memory
	if err != nil || len(bytes.TrimSpace(rest)) > 0 {
		return o, errors.New("read the guard's options: there is data after the object")
	}
	if err := o.Validate(); err != nil {
		return o, fmt.Errorf("the guard's options: %w", err)
	}
	return o, nil
}

// fuseDevice tells what to do where the kernel's FUSE cannot be had.
func fuseDevice(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: the guard needs it read-write: sudo chmod 666 %s", err, path)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("open %s: it is missing, and no workspace is shown without its guard: sudo modprobe fuse", path)
	}
	return fmt.Errorf("%w: the guard needs it: sudo modprobe fuse", err)
}
