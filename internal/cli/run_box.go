package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/escalate/pause"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

const (
	// enterTime bounds the way into a sandbox, apart from podman's own time.
	enterTime = 40 * time.Second
	// enterPause is between two looks at a sandbox that comes or goes.
	enterPause = 100 * time.Millisecond
)

// box is the domain's sandbox, and the hold on it.
type box struct {
	name string
	id   string
	hold *wire.Conn
	lost chan struct{} // closed when the coordinator has ended the hold
}

// wait is the time that is given to a sandbox. What podman has worked for it, which
// takes long on a busy machine, does not count; but a sandbox that ends again and
// again is not started for ever.
type wait struct {
	until time.Time
	works int // of podman's, that still do not count
}

func newWait(now time.Time) *wait { return &wait{until: now.Add(enterTime), works: 3} }

func (w *wait) over(now time.Time) bool { return !now.Before(w.until) }

// worked is told when podman has done its work.
func (w *wait) worked(now time.Time) {
	if w.works > 0 {
		w.works--
		w.until = now.Add(enterTime)
	}
}

// enter starts the domain's sandbox, or joins it. Of two that start one, the one
// that comes second joins.
func (a *agentRun) enter() (*box, error) {
	b := &box{name: "lazaret-coord-" + a.r.anchor.Hash, lost: make(chan struct{})}
	if a.c.Bool("fresh") {
		if err := a.remove(b.name); err != nil {
			return nil, err
		}
	}
	var last error
	for w := newWait(time.Now()); !w.over(time.Now()); time.Sleep(enterPause) {
		if err := a.c.Context.Err(); err != nil {
			return nil, err
		}
		state, id, err := a.look(b.name)
		if err != nil {
			return nil, err
		}
		switch state {
		case "": // nobody has it
			if err := a.start(b.name); err != nil {
				return nil, err
			}
			w.worked(time.Now())
		case "running":
			b.id = id
			if last = a.take(b); last == nil {
				return b, nil
			}
			var refused *wire.Error
			if errors.As(last, &refused) && refused.Code != wire.CodeClosing && refused.Code != wire.CodeUnknown {
				return nil, last
			}
		case "exited", "stopped":
			if err := a.remove(b.name); err != nil {
				return nil, err
			}
			w.worked(time.Now())
		}
	}
	if last == nil {
		last = errors.New("it neither starts nor ends")
	}
	return nil, fmt.Errorf("join the sandbox %s: %w; lazaret run --fresh ends it and starts another", b.name, last)
}

// look asks podman for a container: state "" where there is none.
func (a *agentRun) look(name string) (state, id string, err error) {
	out, err := podmanAnswer(a.c.Context, "container", "ls", "--all", "--no-trunc", "--filter=name=^"+name+"$", "--format=json")
	if err != nil {
		return "", "", fmt.Errorf("look for the domain's sandbox: %w", err)
	}
	var found []struct{ ID, State string }
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		return "", "", fmt.Errorf("look for the domain's sandbox: %w", err)
	}
	if len(found) == 0 {
		return "", "", nil
	}
	return found[0].State, found[0].ID, nil
}

func (a *agentRun) remove(name string) error {
	if _, err := podmanAnswer(a.c.Context, "rm", "--force", "--ignore", "--time=6", name); err != nil {
		return fmt.Errorf("remove the sandbox %s: %w", name, err)
	}
	return nil
}

// podmanWorkspace are the options by which podman takes a workspace, whatever its
// path: --volume parts at colons, --annotation is read as a line of CSV.
func podmanWorkspace(ws string) (args []string, err error) {
	if !strings.ContainsAny(ws, ",\"\r\n") {
		args = append(args, "--annotation=dev.lazaret.workspace="+ws)
	}
	if !strings.Contains(ws, ":") {
		args = append(args, "--volume="+ws+":/workspace")
	}
	if args == nil {
		return nil, fmt.Errorf("workspace %q has a colon and a comma or quote in its path, which podman has no way to take: rename it", ws)
	}
	return args, nil
}

// start starts the sandbox. That somebody else has done so meanwhile is no error.
func (a *agentRun) start(name string) error {
	p, an := a.r.profile, a.r.anchor
	var args []string
	if a.file != "" {
		args = append(args, "--runtime-flag=config="+a.file)
	}
	args = append(
		args, "run", "--detach", "--pull=never", "--runtime=lazaret", "--name="+name, "--no-healthcheck", "--stop-signal=SIGTERM",
		"--annotation=dev.lazaret.profile="+an.Profile, "--annotation=dev.lazaret.run=true",
		"--workdir=/workspace", "--entrypoint="+spec.RunPath+"/escalate",
	)
	if a.c.Bool("rm") {
		args = append(args, "--rm")
	}
	workspace, err := podmanWorkspace(an.Workspace)
	if err != nil {
		return err
	}
	args = append(args, workspace...)
	for _, v := range p.Volumes {
		args = append(args, "--volume="+v.String())
	}
	for _, k := range slices.Sorted(maps.Keys(p.Env)) {
		args = append(args, "--env="+k+"="+p.Env[k])
	}
	args = append(args, "--", a.image, pause.HoldWord)
	cmd := exec.CommandContext(a.c.Context, a.podman, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Run()
	said := strings.TrimSpace(stderr.String())
	switch {
	case err == nil:
		for line := range strings.Lines(said) { // notes of the runtime's
			_, _ = fmt.Fprintf(a.c.App.ErrWriter, "%s\n", config.Printable(strings.TrimSpace(line)))
		}
		return nil
	case strings.Contains(said, "is already in use"):
		return nil
	case strings.Contains(said, `runtime "lazaret" not found`), strings.Contains(said, `"lazaret" not found`):
		return errors.New("podman does not know the runtime lazaret: run lazaret init")
	case a.c.Context.Err() != nil:
		return a.c.Context.Err()
	}
	lines := strings.Split(said, "\n")
	return fmt.Errorf("start the sandbox: %s", config.Printable(strings.TrimPrefix(lines[len(lines)-1], "Error: ")))
}

// take opens the hold.
func (a *agentRun) take(b *box) error {
	conn, err := wire.Dial(a.r.anchor.SocketPath(a.r.cfg.General.ControlDir), statusTimeout)
	if err != nil {
		return err
	}
	session := a.session
	if a.c.Bool("detach") {
		session = uuid.NewString() // the command's goes on when this hold ends
	}
	req := wire.HoldRequest{Version: wire.Version, ContainerID: b.id, SessionID: session}
	if err := conn.Call(wire.PathHold, req, &wire.Empty{}, statusTimeout); err != nil {
		return errors.Join(err, conn.Close())
	}
	b.hold = conn
	go func() {
		var buf [1]byte
		_, _ = conn.Read(buf[:]) // nothing comes but the end
		close(b.lost)
	}()
	return nil
}

// leave gives the sandbox up. Where its coordinator has been killed nobody else
// would end it.
func (b *box) leave(a *agentRun) {
	select {
	case <-b.lost:
		_ = b.hold.Close() // its peer is gone
		ctx := context.WithoutCancel(a.c.Context)
		if state, _, err := a.look(b.name); err == nil && state == "running" {
			if _, err := podmanAnswer(ctx, "rm", "--force", "--ignore", "--time=3", b.name); err != nil {
				_, _ = fmt.Fprintf(a.c.App.ErrWriter, "lazaret: remove the sandbox %s: %v\n", b.name, err)
			}
		}
	default:
		_ = b.hold.Close() // the coordinator does the rest
	}
}
