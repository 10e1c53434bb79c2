package generator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// View runs ops in the sandbox's view of the workspace.
type View interface {
	// Do runs ops one after another; that ops fail is no error.
	Do(ops []Op) error
	// Begin runs an op again and again until End.
	Begin(op Op) error
	End() error
}

// Options of Drive.
type Options struct {
	View      View
	Workspace string // the host's side, made by Setup
	// HostDo acts as Host.Do, as the user whose workspace it is.
	HostDo func(kind string) (wrote map[string]string, err error)
	First  uint64 // seed of the first program
	Count  int
	Repair int // programs after which the workspace is brought back to its start
	// Moves lets the host move .git away and back. A guard may cut the sandbox off
	// for good then, so that later programs attack less.
	Moves bool
	// Every looks after each op, slowly, and tells which it was.
	Every bool
}

// Violation is a program that changed what it must not.
type Violation struct {
	Seed    uint64
	First   uint64 // descriptors may be from programs since this one
	Program []Op
	Changes []string
}

// Error lists the program.
func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "program %d changed what is guarded (descriptors may be from programs since %d):\n", v.Seed, v.First)
	for _, line := range v.Changes {
		fmt.Fprintf(&b, "\t%s\n", line)
	}
	b.WriteString("the program:\n")
	for _, op := range v.Program {
		fmt.Fprintf(&b, "\t%s\n", op)
	}
	return b.String()
}

// Drive runs programs with what the host does in between, and returns a
// *Violation for the first one that changes what is guarded.
func Drive(ctx context.Context, o Options) error {
	d := driver{Options: o}
	var err error
	if d.guarded, err = d.look(); err != nil {
		return err
	}
	begin := o.First
	for i := range uint64(max(o.Count, 0)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		seed := o.First + i
		if o.Repair > 0 && i > 0 && i%uint64(o.Repair) == 0 {
			begin = seed
			if _, err := o.HostDo("repair"); err != nil {
				return fmt.Errorf("before program %d: %w", seed, err)
			}
			if d.guarded, err = d.look(); err != nil {
				return err
			}
		}
		program := Program(seed)
		changes, err := d.run(program)
		if errors.Is(err, ErrHung) {
			changes = append(changes, err.Error())
		} else if err != nil {
			return fmt.Errorf("program %d: %w", seed, err)
		}
		if len(changes) > 0 {
			return &Violation{Seed: seed, First: begin, Program: program, Changes: changes}
		}
	}
	return nil
}

type driver struct {
	Options
	guarded Snapshot // as it must be now
	home    string   // what it has for .git, while that is away
}

// look takes the snapshot, with a .git that the host moved away.
func (d *driver) look() (Snapshot, error) {
	s, err := Guarded(d.Workspace)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(Away(d.Workspace)); err == nil {
		if err := s.gitDir(Away(d.Workspace), away); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// away is the name of a moved .git in a snapshot's keys.
const away = ".git.away"

func (d *driver) check() ([]string, error) {
	now, err := d.look()
	if err != nil {
		return nil, err
	}
	harm := now.Harm(d.guarded)
	if len(harm) == 0 {
		d.guarded = now
	}
	return harm, nil
}

// run runs one program and looks before and after each act of the host's.
func (d *driver) run(program []Op) ([]string, error) {
	var pending []Op
	for _, op := range program {
		if op.Kind != "host" && op.Kind != "hostrace" {
			pending = append(pending, op)
			if !d.Every {
				continue
			}
			if err := d.View.Do(pending); err != nil {
				return nil, err
			}
			pending = nil
			if changes, err := d.check(); err != nil || len(changes) > 0 {
				return append(changes, "by: "+op.String()), err
			}
			continue
		}
		if err := d.View.Do(pending); err != nil {
			return nil, err
		}
		pending = nil
		if changes, err := d.check(); err != nil || len(changes) > 0 {
			return changes, err
		}
		if op.With != nil {
			if err := d.View.Begin(*op.With); err != nil {
				return nil, err
			}
		}
		if !d.Moves && (op.Text == "away" || op.Text == "back") {
			op.Text = "status"
		}
		err := d.act(op.Text)
		if op.With != nil {
			err = errors.Join(err, d.View.End())
		}
		if err != nil {
			return nil, err
		}
		if changes, err := d.check(); err != nil || len(changes) > 0 {
			return changes, err
		}
	}
	if err := d.View.Do(pending); err != nil {
		return nil, err
	}
	return d.check()
}

// act lets the host act and notes what must be guarded from now on.
func (d *driver) act(kind string) error {
	wasAway := exists(Away(d.Workspace))
	wrote, err := d.HostDo(kind)
	if err != nil {
		return err
	}
	isAway := exists(Away(d.Workspace))
	if wasAway != isAway {
		const name = "name .git"
		if isAway { // then there is no name to guard
			d.home = d.guarded[name]
			delete(d.guarded, name)
			d.guarded = d.guarded.moved(map[string]string{".git": away})
		} else {
			d.guarded = d.guarded.moved(map[string]string{away: ".git"})
			d.guarded[name] = d.home
		}
	}
	for rel, text := range wrote {
		key := "file " + rel
		mode := "-rw-r--r--"
		if strings.Contains(rel, "/hooks/") {
			mode = "-rwxr-xr-x"
		}
		d.guarded[key] = fmt.Sprintf("%s %x %.60q", mode, sha256.Sum256([]byte(text)), []byte(text))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Local is a view in this process.
type Local struct {
	m    *Machine
	stop chan struct{}
	done chan struct{}
}

// NewLocal runs ops on a machine.
func NewLocal(m *Machine) *Local { return &Local{m: m} }

// Do is View's.
func (l *Local) Do(ops []Op) error {
	for _, op := range ops {
		_ = l.m.Do(op) // refused, as it should be
	}
	return nil
}

// Begin is View's.
func (l *Local) Begin(op Op) error {
	l.stop, l.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(l.done)
		for {
			_ = l.m.Do(op)
			select {
			case <-l.stop:
				return
			default:
			}
		}
	}()
	return nil
}

// End is View's.
func (l *Local) End() error {
	close(l.stop)
	<-l.done
	return nil
}

// request is a line to a view in another process; each is answered by a line.
type request struct {
	Ops   []Op   `json:"ops,omitempty"`
	Begin *Op    `json:"begin,omitempty"`
	End   bool   `json:"end,omitempty"`
	Host  string `json:"host,omitempty"`
}

type answer struct {
	Wrote map[string]string `json:"wrote,omitempty"`
	Error string            `json:"error,omitempty"`
	Hung  bool              `json:"hung,omitempty"`
}

// Remote is a view, or a host, behind a pipe that Serve answers.
type Remote struct {
	in  *json.Encoder
	out *json.Decoder
}

// NewRemote talks over a process's input and output.
func NewRemote(in io.Writer, out io.Reader) *Remote {
	return &Remote{in: json.NewEncoder(in), out: json.NewDecoder(out)}
}

func (r *Remote) ask(req request) (answer, error) {
	if err := r.in.Encode(req); err != nil {
		return answer{}, fmt.Errorf("the other side of the pipe: %w", err)
	}
	var a answer
	if err := r.out.Decode(&a); err != nil {
		return answer{}, fmt.Errorf("the other side of the pipe: %w", err)
	}
	if a.Hung {
		return a, fmt.Errorf("%w: %s", ErrHung, a.Error)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// Do is View's.
func (r *Remote) Do(ops []Op) error {
	if len(ops) == 0 {
		return nil
	}
	_, err := r.ask(request{Ops: ops})
	return err
}

// Begin is View's.
func (r *Remote) Begin(op Op) error {
	_, err := r.ask(request{Begin: &op})
	return err
}

// End is View's.
func (r *Remote) End() error {
	_, err := r.ask(request{End: true})
	return err
}

// Host asks a host behind the pipe.
func (r *Remote) Host(kind string) (map[string]string, error) {
	a, err := r.ask(request{Host: kind})
	return a.Wrote, err
}

// Serve answers a Remote until its input ends. One of view and host may be nil.
func Serve(in io.Reader, out io.Writer, view View, host *Host) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var req request
		if err := requests.Decode(&req); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var a answer
		var err error
		switch {
		case req.Host != "":
			a.Wrote, err = host.Do(req.Host)
			a.Hung = errors.Is(err, ErrHung)
		case req.Begin != nil:
			err = view.Begin(*req.Begin)
		case req.End:
			err = view.End()
		default:
			err = view.Do(req.Ops)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// Place is where a test keeps a view so that links and .. of programs stay in
// directories of its own: three levels below dir.
func Place(dir, name string) string { return filepath.Join(dir, "a", "b", name) }
