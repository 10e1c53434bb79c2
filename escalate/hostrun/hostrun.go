// Package hostrun owns the running of an approved command on the host: what was
// shown is what is executed, with the developer's environment less what could
// turn it into another, bounded in output and time, and ended with all that it
// started.
//
// Between a desk and each command is a supervisor, a process of Lazaret's that
// every descendant of the command falls back to: it ends them when the desk says
// so, and when the desk is there no more.
package hostrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

const (
	// drainTime is how long the output is waited for when the command has ended: who
	// holds it then has left the command's process group.
	drainTime = time.Second
	// endTime bounds the supervisor's ending of everything.
	endTime = termTime + killTime + 2*time.Second
)

// Result is how a command ended.
type Result struct {
	ExitCode       int // 128 and the signal's number for one that a signal ended
	Stdout, Stderr []byte
	// Err tells why nothing was run, or why its end is not known; nil.
	Err error
}

// Runner runs what a View says for an ask, as a check of it right before says the
// same; ctx's end ends the command and all that it started.
type Runner interface {
	Run(ctx context.Context, ask *wire.Ask, v *policy.View) Result
}

// Local is the Runner of this host.
type Local struct {
	// Host is asked for each command anew.
	Host func() *policy.Host
	// Environ is the developer's environment.
	Environ []string
	// Supervisor is the argv of a process that calls Supervise; its first word is an
	// absolute path.
	Supervisor []string
}

// Run implements Runner.
func (l *Local) Run(ctx context.Context, ask *wire.Ask, v *policy.View) Result {
	if err := ctx.Err(); err != nil {
		return Result{Err: ended(err)}
	}
	h := l.Host()
	now := policy.Evaluate(h, ask, v.Command)
	if err := v.Same(now); err != nil {
		return Result{Err: fmt.Errorf("nothing was run: %w", err)}
	}
	dir, err := now.OpenDir(ask)
	if err != nil {
		return Result{Err: fmt.Errorf("nothing was run: %w", err)}
	}
	defer func() { _ = dir.Close() }() // only looked at
	s := spec{Program: now.Program, Argv: now.Argv, Env: Environment(l.Environ, h, ask, now.Dir)}
	res, err := l.supervise(ctx, &s, dir)
	if err != nil {
		res.Err = fmt.Errorf("run %.64q: %w", now.Program, err)
	}
	return res
}

// ended says why ctx ended a command.
func ended(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("the time for the command is up")
	}
	return errors.New("nobody waits for the command any more")
}

func (l *Local) supervise(ctx context.Context, s *spec, dir *os.File) (res Result, err error) {
	ours, theirs, err := socketpair()
	if err != nil {
		return res, err
	}
	defer func() { _ = ours.Close() }() // the supervisor's last word has been read
	out, err := newCapture()
	if err != nil {
		return res, errors.Join(err, theirs.Close())
	}
	errs, err := newCapture()
	if err != nil {
		return res, errors.Join(err, theirs.Close(), out.close())
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), l.Supervisor[0], l.Supervisor[1:]...) // it ends by itself
	cmd.Env = s.Env
	cmd.Stdout, cmd.Stderr = out.w, errs.w
	cmd.ExtraFiles = []*os.File{theirs, dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal of the developer's
	err = cmd.Start()
	err = errors.Join(err, theirs.Close(), out.start(), errs.start())
	if err != nil {
		if cmd.Process != nil {
			_ = cmd.Process.Kill() // the first error counts
			_ = cmd.Wait()
		}
		return res, errors.Join(err, out.close(), errs.close())
	}
	stop := context.AfterFunc(ctx, func() {
		_ = ours.CloseWrite() // tells the supervisor to end everything
		_ = ours.SetReadDeadline(time.Now().Add(endTime))
	})
	rep, err := talk(ours, s)
	stop()
	_ = ours.Close() // tells the supervisor to end, if it has not
	kill := time.AfterFunc(endTime, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // its report counts
	kill.Stop()
	res.Stdout, res.Stderr = out.finish(), errs.finish()
	if ctxErr := ctx.Err(); ctxErr != nil && err != nil {
		return res, ended(ctxErr)
	}
	switch {
	case err != nil:
		return res, err
	case rep.Error != "":
		return res, errors.New(rep.Error)
	}
	res.ExitCode = rep.ExitCode
	return res, nil
}

// talk tells the supervisor what to run and waits for its report.
func talk(c *net.UnixConn, s *spec) (*report, error) {
	line, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("start its supervisor: %w", err)
	}
	var rep report
	if err := json.NewDecoder(c).Decode(&rep); err != nil {
		return nil, fmt.Errorf("its supervisor has ended without a word: %w", err)
	}
	return &rep, nil
}

func socketpair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	f, theirs := os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "supervisor")
	c, err := net.FileConn(f)
	err = errors.Join(err, f.Close())
	if uc, ok := c.(*net.UnixConn); ok && err == nil {
		return uc, theirs, nil
	}
	return nil, nil, errors.Join(fmt.Errorf("make a socket pair: %w", err), theirs.Close())
}

// capture keeps the beginning of an output and reads all of it.
type capture struct {
	r, w *os.File
	wg   sync.WaitGroup
	kept bytes.Buffer
	more int64 // bytes that were not kept
}

func newCapture() (*capture, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	return &capture{r: r, w: w}, nil
}

func (c *capture) start() error {
	err := c.w.Close()
	c.wg.Go(func() {
		_, _ = io.CopyN(&c.kept, c.r, escalate.MaxOutput)
		c.more, _ = io.Copy(io.Discard, c.r)
	})
	return err
}

func (c *capture) close() error { return errors.Join(c.r.Close(), c.w.Close()) }

// finish returns what was kept, at most escalate.MaxOutput bytes with the mark
// that says how much is missing.
func (c *capture) finish() []byte {
	_ = c.r.SetReadDeadline(time.Now().Add(drainTime)) // who still holds it is none of the command
	c.wg.Wait()
	_ = c.r.Close()
	if c.more == 0 {
		return c.kept.Bytes()
	}
	const most = len("\n[lazaret: cut here, 9223372036854775807 more bytes]\n")
	keep := escalate.MaxOutput - most
	mark := fmt.Sprintf("\n[lazaret: cut here, %d more bytes]\n", c.more+int64(c.kept.Len()-keep))
	return append(c.kept.Bytes()[:keep:keep], mark...)
}
