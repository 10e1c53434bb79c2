// Package terminal owns the user's terminal while lazaret run has it: a relay
// between it and the agent's pseudo-terminal that passes everything on both ways,
// and the prompts that come in between.
//
// While a prompt shows, nothing that is typed reaches the agent, and nothing that
// the agent prints reaches the terminal: it waits, within bounds. Afterwards the
// terminal is as if there had been none.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/console/prompt"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// maxBacklog bounds, in bytes, what of the agent's output waits for a prompt's
// end. More of it waits in the agent.
const maxBacklog = 4 << 20

// maxTail bounds a sequence that is held back until it is complete.
const maxTail = 64 << 10

// maxAnswers bounds the emulator's answers that wait to be taken.
const maxAnswers = 256

// tick is how often a prompt is drawn without a key.
const tick = 100 * time.Millisecond

// pasteTime bounds how long a prompt waits for the end of a paste to the agent.
const pasteTime = 2 * time.Second

// Prompt is a request to put before the person at the terminal.
type Prompt struct {
	Ask     *wire.Ask
	View    *policy.View
	Inspect func(command string) *policy.View
	// Answer takes the person's answer; it is called once, or not at all when Gone
	// came first. It must not block.
	Answer func(prompt.Answer)
	Gone   <-chan struct{} // closed when nobody waits any more
	// Counts are those of wire.Ask as they are now.
	Counts func() (waiting, dropped int)
}

// Options are a relay's.
type Options struct {
	Terminal *os.File // the user's
	// Cmd is started on a pseudo-terminal of its own.
	Cmd     *exec.Cmd
	Prompts <-chan *Prompt
	Color   bool // prompts have colours
}

// SignalError is a signal that ended a relay.
type SignalError struct{ Signal syscall.Signal }

func (e SignalError) Error() string { return "ended by signal " + e.Signal.String() }

// Run starts the command and relays until it ends; its exit status is in
// o.Cmd.ProcessState. The terminal's settings are put back whatever happens. An
// end by SIGHUP, SIGINT or SIGTERM is a SignalError; ctx's end is its error; the
// command has been killed then.
func Run(ctx context.Context, o Options) (err error) {
	width, height := size(o.Terminal)
	before, err := term.MakeRaw(o.Terminal.Fd())
	if err != nil {
		return fmt.Errorf("take the terminal: %w", err)
	}
	defer func() { err = errors.Join(err, term.Restore(o.Terminal.Fd(), before)) }()
	ptmx, err := pty.StartWithSize(o.Cmd, winsize(width, height))
	if err != nil {
		return fmt.Errorf("start %s on a pseudo-terminal: %w", o.Cmd.Path, err)
	}
	r := &relay{
		o: o, pty: ptmx, before: before, shadow: newShadow(width, height),
		width: width, height: height, toAgent: make(chan []byte),
	}
	return r.run(ctx)
}

func winsize(width, height int) *pty.Winsize {
	return &pty.Winsize{Rows: uint16(height), Cols: uint16(width)} //nolint:gosec // of a terminal
}

// size is the terminal's, or the traditional one where it does not know.
func size(f *os.File) (width, height int) {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 || ws.Row == 0 {
		return 80, 24
	}
	return int(ws.Col), int(ws.Row)
}

type relay struct {
	o             Options
	pty           *os.File
	before        *term.State
	shadow        *shadow
	width, height int
	toAgent       chan []byte
	queue         [][]byte // for the agent, not sent yet

	tail    []byte // of the agent's output: a sequence that is not complete
	long    bool   // the rest of a sequence longer than maxTail goes by
	discard bool   // the same, of one that a prompt has cut

	pasting bool // the user's paste to the agent has begun and not ended
	typed   []byte

	prompt  *Prompt
	model   *prompt.Model
	keys    keys
	back    string // brings the terminal back to when the prompt came
	resized bool
	backlog []byte
	drawn   []string
}

// run is the one goroutine that changes the relay's state.
func (r *relay) run(ctx context.Context) error {
	done := make(chan struct{})
	defer close(done)
	defer func() { _ = r.pty.Close() }() // hangs the agent's side up
	defer r.shadow.close()

	output := make(chan []byte)
	go readAll(r.pty, output, done)
	input := make(chan []byte)
	stop, err := readTerminal(r.o.Terminal, input, done)
	if err != nil {
		return r.kill(err)
	}
	defer stop()
	go r.feed(done)
	// The emulator answers in the middle of a write, which is this goroutine's: who
	// takes the answers must never wait for it.
	answers := make(chan []byte, maxAnswers)
	go r.shadow.drain(func(b []byte) {
		select {
		case answers <- b:
		default: // so many questions at once are nobody's
		}
	})
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGTSTP, unix.SIGCONT, unix.SIGHUP, unix.SIGINT, unix.SIGTERM)
	defer signal.Stop(signals)
	clock := time.NewTicker(tick)
	defer clock.Stop()
	var held time.Time // since when a paste has held up the prompt

	for {
		out, in, send, prompts := output, input, (chan<- []byte)(nil), r.o.Prompts
		var first []byte
		if len(r.queue) > 0 {
			send, first = r.toAgent, r.queue[0]
		}
		if r.model == nil && len(r.queue) > 64 {
			in = nil
		}
		if len(r.backlog) > maxBacklog {
			out = nil
		}
		if r.model != nil || r.pasting && time.Since(held) < pasteTime {
			prompts = nil
		}
		select {
		case b, open := <-out:
			if !open {
				return r.ended()
			}
			r.output(b)
		case b, open := <-in:
			if !open { // the terminal is gone
				return r.kill(SignalError{unix.SIGHUP})
			}
			if r.input(b); r.pasting && held.IsZero() {
				held = time.Now()
			} else if !r.pasting {
				held = time.Time{}
			}
		case b := <-answers:
			if r.model != nil { // else the terminal itself answers
				r.queue = append(r.queue, b)
			}
		case send <- first:
			r.queue = r.queue[1:]
		case p, open := <-prompts:
			if !open {
				r.o.Prompts = nil
				break
			}
			r.show(p)
		case <-r.gone():
			r.hide()
		case <-clock.C:
			r.time()
		case <-ctx.Done():
			r.hide()
			return r.kill(ctx.Err())
		case sig := <-signals:
			if err := r.signal(sig); err != nil {
				r.hide()
				return r.kill(err)
			}
		}
	}
}

// readAll reads f to its end, which on a pseudo-terminal is an error.
func readAll(f io.Reader, to chan<- []byte, done <-chan struct{}) {
	defer close(to)
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			select {
			case to <- append([]byte(nil), buf[:n]...):
			case <-done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// feed writes to the agent, which may not be reading.
func (r *relay) feed(done <-chan struct{}) {
	for {
		select {
		case b := <-r.toAgent:
			if _, err := r.pty.Write(b); err != nil {
				return // its end is seen by who reads
			}
		case <-done:
			return
		}
	}
}

// ended is the end of the command's output.
func (r *relay) ended() error {
	r.hide()
	r.write(string(r.tail))
	r.write(r.shadow.plain())
	return r.wait()
}

// kill ends the command for a reason, and leaves the terminal usable.
func (r *relay) kill(why error) error {
	_ = r.o.Cmd.Process.Kill() // may have ended
	err := r.wait()
	r.write(r.shadow.plain())
	return errors.Join(why, err)
}

func (r *relay) wait() error {
	var exit *exec.ExitError
	if err := r.o.Cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("wait for %s: %w", r.o.Cmd.Path, err)
	}
	return nil
}

// write is to the user's terminal. What fails here shows as the input's end.
func (r *relay) write(s string) {
	if s != "" {
		_, _ = r.o.Terminal.WriteString(s)
	}
}

// output takes what the agent prints. Whole sequences only are passed on, so that
// a prompt never comes into the middle of one.
func (r *relay) output(b []byte) {
	r.tail = append(r.tail, b...)
	var pass []byte
	for len(r.tail) > 0 {
		if r.long {
			n, _ := stringEnd(r.tail, 0)
			if r.long = n == 0; r.long {
				n = len(r.tail)
				if r.tail[n-1] == esc && n > 1 { // perhaps the end's first half
					n--
				} else if r.tail[n-1] == esc {
					break
				}
			}
			if !r.discard {
				pass = append(pass, r.tail[:n]...)
			}
			r.discard = r.discard && r.long
			r.tail = r.tail[n:]
			continue
		}
		n, k := next(r.tail)
		if n == 0 {
			if len(r.tail) < maxTail {
				break
			}
			r.long = r.tail[0] == esc && strings.IndexByte("]PX^_", r.tail[1]) >= 0
			pass = append(pass, r.tail...)
			r.tail = nil
			break
		}
		token := r.tail[:n]
		r.shadow.token(token, k)
		if r.model == nil || !answered(token, k) {
			pass = append(pass, token...)
		}
		r.tail = r.tail[n:]
	}
	r.tail = append([]byte(nil), r.tail...)
	if r.model != nil {
		r.backlog = append(r.backlog, pass...)
		return
	}
	r.write(string(pass))
}

// input takes what the user types.
func (r *relay) input(b []byte) {
	if r.model != nil {
		r.keys.take(b, time.Now(), r.model)
		r.time()
		return
	}
	r.queue = append(r.queue, b)
	// Where a paste to the agent begins and ends.
	const mark = len("\x1b[200~")
	r.typed = append(r.typed, b...)
	text := string(r.typed)
	if begin, end := strings.LastIndex(text, "\x1b[200~"), strings.LastIndex(text, "\x1b[201~"); begin != end {
		r.pasting = begin > end
	}
	r.typed = r.typed[max(0, len(r.typed)-mark+1):]
}

func (r *relay) gone() <-chan struct{} {
	if r.prompt == nil {
		return nil
	}
	return r.prompt.Gone
}

// show puts a prompt on the screen.
func (r *relay) show(p *Prompt) {
	select {
	case <-p.Gone:
		return
	default:
	}
	r.back = r.shadow.leave()
	r.write(r.shadow.enter() + "\a")
	r.discard = r.long // what is cut now is not to be shown as text later
	r.prompt, r.resized, r.drawn, r.keys = p, false, nil, keys{}
	r.model = prompt.New(prompt.Options{
		Ask: p.Ask, View: p.View, Inspect: p.Inspect,
		Width: r.width, Height: r.height, Now: time.Now(),
	})
	r.time()
}

// hide takes the prompt off the screen and brings the agent's back.
func (r *relay) hide() {
	if r.model == nil {
		return
	}
	alt := strings.HasPrefix(r.back, altBack)
	r.model, r.prompt = nil, nil
	if r.resized && alt && r.shadow.alt {
		r.write(r.shadow.leave())
	} else {
		r.write(r.back)
		r.write(string(r.backlog))
	}
	r.backlog, r.back = nil, ""
	if r.shadow.emu == nil && alt { // it draws anew after a change of size
		_ = pty.Setsize(r.pty, winsize(max(1, r.width-1), r.height))
		r.resize()
	}
}

// time tells a prompt the time, draws it, and takes its answer.
func (r *relay) time() {
	if r.model == nil {
		return
	}
	now := time.Now()
	r.keys.time(now, r.model)
	if r.prompt.Counts != nil {
		r.model.SetWaiting(r.prompt.Counts())
	}
	if a, ok := r.model.Tick(now); ok {
		answer := r.prompt.Answer
		r.hide()
		answer(a)
		return
	}
	r.draw()
}

// draw writes the lines that have changed.
func (r *relay) draw() {
	var b strings.Builder
	frame := r.model.Frame()
	if len(r.drawn) != len(frame) {
		r.drawn = make([]string, len(frame))
		b.WriteString("\x1b[m\x1b[2J")
	}
	for i, l := range frame {
		if s := l.Render(r.o.Color); s != r.drawn[i] {
			r.drawn[i] = s
			fmt.Fprintf(&b, "\x1b[%d;1H%s\x1b[K", i+1, s)
		}
	}
	r.write(b.String())
}

// signal handles one; those that end the relay are errors.
func (r *relay) signal(sig os.Signal) error {
	switch sig {
	case unix.SIGWINCH:
		r.resize()
	case unix.SIGTSTP:
		return r.suspend()
	case unix.SIGHUP, unix.SIGINT, unix.SIGTERM:
		return SignalError{sig.(syscall.Signal)}
	}
	return nil
}

func (r *relay) resize() {
	r.width, r.height = size(r.o.Terminal)
	_ = pty.Setsize(r.pty, winsize(r.width, r.height)) // fails when the agent has ended
	r.shadow.resize(r.width, r.height)
	if r.model != nil {
		r.resized, r.drawn = true, nil
		r.model.Resize(r.width, r.height)
		r.draw()
	}
}

// suspend stops this process as the user asked for, with the terminal as his shell
// expects it, and takes it again when the process goes on.
func (r *relay) suspend() error {
	p := r.prompt
	r.hide()
	back := r.shadow.leave()
	r.write(r.shadow.plain())
	if err := term.Restore(r.o.Terminal.Fd(), r.before); err != nil {
		return fmt.Errorf("give the terminal back: %w", err)
	}
	if err := unix.Kill(unix.Getpid(), unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	// A stop takes effect before this goes on, or within the next call of the kernel.
	if _, err := term.MakeRaw(r.o.Terminal.Fd()); err != nil {
		return fmt.Errorf("take the terminal again: %w", err)
	}
	if r.shadow.alt {
		r.write("\x1b[?1049h" + back)
	} else {
		r.write("\x1b7" + strings.TrimPrefix(back, mainBack))
	}
	r.resize()
	if p != nil {
		r.show(p)
	}
	return nil
}
