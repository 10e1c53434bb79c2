package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
)

// stopTime bounds the ending of a sandbox.
const stopTime = time.Minute

// Screen is the terminal of a person.
type Screen struct {
	In    io.Reader
	Out   io.Writer
	Env   []string
	Color bool
	// Save adds an entry to what a profile's network allows, and returns where.
	Save func(profile, entry string) (path string, err error)
}

// Run shows the console until the person leaves it or ctx ends; then what runs is
// ended.
func Run(ctx context.Context, h *Hub, s Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &model{
		desks: h, now: time.Now, color: s.Color,
		open: map[string]bool{}, problems: map[string]string{}, guards: map[string]*Guard{}, nets: map[string]*Net{}, save: s.Save,
		stop: func(sandbox string) error { return StopSandbox(context.WithoutCancel(ctx), sandbox) },
	}
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(s.In), tea.WithOutput(s.Out), tea.WithEnvironment(s.Env))
	hub := make(chan error, 1)
	go func() {
		err := h.Run(ctx)
		if err != nil {
			p.Quit()
		}
		hub <- err
	}()
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for u := range h.Updates() {
			p.Send(updateMsg(u))
		}
	}()
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		err = nil // it was told to end
	}
	cancel()
	<-passed
	return errors.Join(err, <-hub)
}

// StopSandbox ends a sandbox as podman stop does: the coordinator follows with
// all that belongs to it.
func StopSandbox(ctx context.Context, id string) error {
	if !containerstate.ValidID(id) {
		return fmt.Errorf("stop the sandbox: %.64q is no container's id", id)
	}
	return PodmanStop(ctx, "--", id)
}

// PodmanStop runs podman stop with further arguments, of which the last is the
// container. It goes on when this process ends, when its terminal is closed and
// when ctx ends: podman removes what is left of a container, and would leave half of
// it.
func PodmanStop(ctx context.Context, args ...string) error {
	name := args[len(args)-1]
	fail := func(err error) error { return fmt.Errorf("stop the sandbox %.40s: %w", name, err) }
	podman, err := fixedpath.Look("podman")
	if err != nil {
		return fail(err)
	}
	fd, err := unix.MemfdCreate("podman-stop", unix.MFD_CLOEXEC) // a pipe would end podman with us
	if err != nil {
		return fail(fmt.Errorf("memfd_create: %w", err))
	}
	out := os.NewFile(uintptr(fd), "podman-stop")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), podman, append([]string{"stop", "--ignore"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fail(errors.Join(err, out.Close()))
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if err != nil {
			text := make([]byte, 200)
			n, _ := out.ReadAt(text, 0) // as far as there is any
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text[:n])))
		}
		ended <- errors.Join(err, out.Close())
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("%w: podman goes on with it", ctx.Err())
	case <-time.After(stopTime):
		err = fmt.Errorf("it takes longer than %s: podman goes on with it", stopTime)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}
