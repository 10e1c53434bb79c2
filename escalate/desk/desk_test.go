package desk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/escalate/hostrun"
	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/wire"
	fake "github.com/lazaret-dev/lazaret/test/fakes/coordinator"
)

// runner notes what it is told to run; "block" runs until its context ends.
type runner struct {
	ran   chan string
	ended chan string
}

func (r *runner) Run(ctx context.Context, _ *wire.Ask, v *policy.View) hostrun.Result {
	r.ran <- v.Command
	if strings.HasPrefix(v.Command, "block") {
		<-ctx.Done()
		r.ended <- v.Command
		return hostrun.Result{Err: ctx.Err()}
	}
	return hostrun.Result{ExitCode: 3, Stdout: []byte("out of " + v.Command), Stderr: []byte("\xff")}
}

type fixture struct {
	*fake.Coordinator
	*Desk
	run *runner
}

func setup(t *testing.T, kind string) *fixture {
	t.Helper()
	return setupLimit(t, kind, 0)
}

func setupLimit(t *testing.T, kind string, limit time.Duration) *fixture {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin, work := filepath.Join(dir, "bin"), filepath.Join(dir, "work")
	for _, d := range []string{bin, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"tool", "block"} {
		if err := os.WriteFile(filepath.Join(bin, p), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := &fixture{Coordinator: fake.Start(t, dir, fake.Anchor(dir, "dev", work))}
	f.run = &runner{ran: make(chan string, 100), ended: make(chan string, 100)}
	f.Desk, err = Open(Options{
		Socket: f.Socket, Kind: kind, Runner: f.run, Limit: limit,
		Host: func() *policy.Host { return &policy.Host{Path: bin} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Desk.Close() })
	return f
}

func (f *fixture) next(t *testing.T, want string) Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := f.Next(ctx)
	if err != nil || e.Type != want {
		t.Fatalf("event %+v, %v; want %s", e, err, want)
	}
	return e
}

func tool(id string) *wire.Ask {
	return &wire.Ask{ID: id, Command: "tool x", CWD: "/workspace", AutoApprove: [][]string{{"tool", "list"}}}
}

func TestAPersonApproves(t *testing.T) {
	t.Parallel()
	f := setup(t, wire.DeskConsole)
	f.Ask(tool("1"))
	e := f.next(t, Asked)
	if e.ID != "1" || e.Ask.Command != "tool x" || e.View.Automatic || e.View.Err != nil {
		t.Fatalf("asked: %+v %+v", e, e.View)
	}
	f.Silent()
	if err := f.Approve("1", e.View, true); err != nil {
		t.Fatal(err)
	}
	if err := f.Approve("1", e.View, true); err != nil { // twice is once
		t.Fatal(err)
	}
	if r := f.Reply(); r.Type != wire.ReplyApprove || r.ID != "1" || r.Command != "tool x" || r.Auto || !r.Remember {
		t.Errorf("reply %+v", r)
	}
	f.next(t, Started)
	if e := f.next(t, Finished); e.Result.ExitCode != 3 || e.Auto {
		t.Errorf("finished: %+v", e.Result)
	}
	r := f.Reply()
	if r.Type != wire.ReplyResult || r.ExitCode != 3 || string(r.Stdout) != "out of tool x" || string(r.Stderr) != "\xff" || r.Failed {
		t.Errorf("result %+v", r)
	}
	if err := f.Deny("1", "late"); err != nil {
		t.Fatal(err)
	}
	f.Silent()
}

func TestAPersonDenies(t *testing.T) {
	t.Parallel()
	f := setup(t, wire.DeskConsole)
	f.Ask(tool("1"))
	e := f.next(t, Asked)
	if err := f.Deny("1", "not today"); err != nil {
		t.Fatal(err)
	}
	if r := f.Reply(); r.Type != wire.ReplyDeny || r.ID != "1" || r.Reason != "not today" {
		t.Errorf("reply %+v", r)
	}
	if err := f.Approve("1", e.View, false); err != nil {
		t.Fatal(err)
	}
	f.Silent()
}

func TestAnEditedCommandRuns(t *testing.T) {
	t.Parallel()
	f := setup(t, wire.DeskConsole)
	f.Ask(tool("1"))
	e := f.next(t, Asked)
	if err := f.Approve("1", f.View(e.Ask, "nowhere"), false); err == nil {
		t.Error("a command that cannot run is approved")
	}
	f.Silent()
	if err := f.Approve("1", f.View(e.Ask, "tool y"), false); err != nil {
		t.Fatal(err)
	}
	if r := f.Reply(); r.Command != "tool y" {
		t.Errorf("reply %+v", r)
	}
	if got := <-f.run.ran; got != "tool y" {
		t.Errorf("ran %q", got)
	}
}

func TestRulesApprove(t *testing.T) {
	t.Parallel()
	f := setup(t, wire.DeskHeadless)
	f.Ask(&wire.Ask{ID: "1", Command: "tool list", CWD: "/workspace", AutoApprove: [][]string{{"tool", "list"}}})
	if r := f.Reply(); r.Type != wire.ReplyApprove || !r.Auto || r.Remember || r.Command != "tool list" {
		t.Errorf("reply %+v", r)
	}
	if e := f.next(t, Started); !e.Auto {
		t.Errorf("started %+v", e)
	}
	f.next(t, Finished)
	f.Reply()
	f.Ask(&wire.Ask{ID: "2", Command: "tool x; tool y", CWD: "/workspace", Remembered: true})
	if r := f.Reply(); r.Type != wire.ReplyApprove || !r.Auto {
		t.Errorf("remembered: %+v", r)
	}
	f.next(t, Started)
	f.next(t, Finished)
	f.Reply()
	// What cannot run is a person's to see, however it was allowed before.
	f.Ask(&wire.Ask{ID: "3", Command: "nowhere", CWD: "/workspace", Remembered: true})
	f.next(t, Asked)
	f.Silent()
}

func TestGoneEndsTheCommand(t *testing.T) {
	t.Parallel()
	f := setup(t, wire.DeskConsole)
	f.Ask(&wire.Ask{ID: "1", Command: "block"})
	e := f.next(t, Asked)
	if err := f.Approve("1", e.View, false); err != nil {
		t.Fatal(err)
	}
	f.Reply()
	f.next(t, Started)
	f.Send(wire.DeskEvent{Type: wire.EventGone, ID: "1", Why: "client left"})
	if e := f.next(t, Gone); e.Why != "client left" || e.ID != "1" {
		t.Errorf("gone %+v", e)
	}
	<-f.run.ended
	// Before it was answered.
	f.Ask(tool("2"))
	e = f.next(t, Asked)
	f.Send(wire.DeskEvent{Type: wire.EventGone, ID: "2"})
	f.next(t, Gone)
	if err := f.Approve("2", e.View, false); err != nil {
		t.Fatal(err)
	}
	f.Silent()
}

func TestTheLimitEndsTheCommand(t *testing.T) {
	t.Parallel()
	f := setupLimit(t, wire.DeskConsole, 300*time.Millisecond)
	f.Ask(&wire.Ask{ID: "1", Command: "block", Deadline: time.Now().Add(time.Millisecond)}) // that is for the answer
	e := f.next(t, Asked)
	if err := f.Approve("1", e.View, false); err != nil {
		t.Fatal(err)
	}
	<-f.run.ended
	f.next(t, Started)
	if e := f.next(t, Finished); !errors.Is(e.Result.Err, context.DeadlineExceeded) {
		t.Errorf("finished %+v", e.Result)
	}
	f.Reply()
	if r := f.Reply(); !r.Failed || r.Reason == "" {
		t.Errorf("result %+v", r)
	}
}

func TestTheConnectionsEndEndsCommands(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"coordinator", "desk"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := setup(t, wire.DeskConsole)
			f.Ask(&wire.Ask{ID: "1", Command: "block"})
			if err := f.Approve("1", f.next(t, Asked).View, false); err != nil {
				t.Fatal(err)
			}
			f.next(t, Started)
			if how == "desk" {
				_ = f.Desk.Close()
			} else {
				f.Stop()
			}
			<-f.run.ended
			for {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err := f.Next(ctx)
				cancel()
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("ends with %v", err)
					}
					break
				}
			}
		})
	}
}

// Nothing runs that this desk has not approved, whatever arrives.
func TestNothingRunsUnapproved(t *testing.T) {
	t.Parallel()
	ask := `{"type":"ask","ask":{"id":"1","domain":{"profile":"dev","hash":"000000000000","root":"/"},"command":"tool x"}}` + "\n"
	for name, lines := range map[string]string{
		"go for nothing":     `{"type":"go","id":"1"}` + "\n",
		"go for an ask":      ask + `{"type":"go","id":"1"}` + "\n",
		"the same ask twice": ask + ask,
		"an ask of nothing":  `{"type":"ask"}` + "\n",
		"no JSON":            "GET / HTTP/1.0\n",
		"a line too long":    `{"type":"` + strings.Repeat("x", wire.MaxLine+1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, wire.DeskConsole)
			f.SendRaw(lines)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var err error
			for err == nil {
				_, err = f.Next(ctx)
			}
			if !errors.Is(err, ErrClosed) {
				t.Errorf("the desk goes on: %v", err)
			}
			select {
			case c := <-f.run.ran:
				t.Errorf("ran %q", c)
			default:
			}
		})
	}
}

func TestUnknownEventsAreNoError(t *testing.T) {
	t.Parallel()
	f := setup(t, wire.DeskConsole)
	f.SendRaw(`{"type":"later","more":1}` + "\n")
	f.Ask(tool("1"))
	f.next(t, Asked)
}

func TestAnAskThatWaitsComesWithTheAnswer(t *testing.T) {
	t.Parallel()
	f := setup(t, wire.DeskConsole)
	f.Ask(tool("1"))
	f.next(t, Asked)
	second, err := Open(Options{Socket: f.Socket, Kind: wire.DeskConsole, Runner: f.run, Host: func() *policy.Host { return &policy.Host{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if e, err := second.Next(ctx); err != nil || e.ID != "1" {
		t.Errorf("got %+v, %v", e, err)
	}
}
