package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

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
	podman, err := fixedpath.Look("podman")
	if err != nil {
		return fmt.Errorf("stop the sandbox: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, podman, "stop", "--ignore", "--", id).CombinedOutput()
	if err != nil {
		return fmt.Errorf("stop the sandbox %.12s: %w: %.200s", id, err, strings.TrimSpace(string(out)))
	}
	return nil
}
