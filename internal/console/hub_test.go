package console

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/escalate/desk"
	"github.com/lazaret-dev/lazaret/escalate/hostrun"
	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/wire"
	fake "github.com/lazaret-dev/lazaret/test/fakes/coordinator"
)

type runner struct{}

func (runner) Run(_ context.Context, _ *wire.Ask, v *policy.View) hostrun.Result {
	return hostrun.Result{Stdout: []byte(v.Command)}
}

// place is a control_dir with programs beside it.
type place struct {
	dir, bin string
	hub      *Hub
	end      func() error
}

func newPlace(t *testing.T, kind string) *place {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &place{dir: dir, bin: filepath.Join(dir, "bin")}
	if err := os.Mkdir(p.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.bin, "tool"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	p.hub = NewHub(Options{ControlDir: dir, Kind: kind, Runner: runner{}, Host: func() *policy.Host { return &policy.Host{Path: p.bin} }})
	return p
}

func (p *place) coordinator(t *testing.T, name string) *fake.Coordinator {
	t.Helper()
	work := filepath.Join(p.dir, name)
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	return fake.Start(t, p.dir, fake.Anchor(p.dir, "dev", work))
}

func (p *place) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.hub.Run(ctx) }()
	p.end = sync.OnceValue(func() error {
		cancel()
		for range p.hub.Updates() {
		}
		return <-ended
	})
	t.Cleanup(func() { _ = p.end() })
}

func (p *place) next(t *testing.T) Update {
	t.Helper()
	select {
	case u, ok := <-p.hub.Updates():
		if !ok {
			t.Fatal("the hub has ended")
		}
		return u
	case <-time.After(time.Minute):
		t.Fatal("no update within a minute")
		return Update{}
	}
}

func TestHubFollowsDomains(t *testing.T) {
	t.Parallel()
	p := newPlace(t, wire.DeskConsole)
	first := p.coordinator(t, "one")
	if err := os.WriteFile(filepath.Join(p.dir, "lazaret_coord_0123456789ab.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(t)
	if u := p.next(t); !u.Open || u.Socket != first.Socket {
		t.Fatalf("got %+v", u)
	}
	second := p.coordinator(t, "two")
	if u := p.next(t); !u.Open || u.Socket != second.Socket {
		t.Fatalf("got %+v", u)
	}
	for _, c := range []*fake.Coordinator{first, second} {
		if d := c.Desks(); len(d) != 1 || d[0].Kind != wire.DeskConsole || d[0].SessionID != "" {
			t.Errorf("desks %+v", d)
		}
	}
	// One id in both domains.
	for _, c := range []*fake.Coordinator{first, second} {
		c.Ask(&wire.Ask{ID: "1", Command: "tool x", CWD: "/workspace"})
		u := p.next(t)
		if u.Event == nil || u.Event.Type != desk.Asked || u.Key != (Key{c.Socket, "1"}) || u.Event.Ask.Domain.Workspace != c.Domain.Workspace {
			t.Fatalf("got %+v", u)
		}
	}
	if err := p.hub.Deny(Key{second.Socket, "1"}, "no"); err != nil {
		t.Fatal(err)
	}
	if r := second.Reply(); r.Type != wire.ReplyDeny || r.Reason != "no" {
		t.Errorf("reply %+v", r)
	}
	first.Silent()
	second.Stop()
	if u := p.next(t); u.Open || u.Socket != second.Socket {
		t.Fatalf("got %+v", u)
	}
	if err := p.hub.Approve(Key{second.Socket, "1"}, &policy.View{}, false); err == nil {
		t.Error("approved in a domain that has gone")
	}
	_ = os.Remove(second.Socket)
	again := p.coordinator(t, "two")
	if u := p.next(t); !u.Open || u.Socket != again.Socket {
		t.Fatalf("got %+v", u)
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// One coordinator that does not answer, or does not know desks, is not in the way
// of the others.
func TestHubAndCoordinatorsInTrouble(t *testing.T) {
	t.Parallel()
	p := newPlace(t, wire.DeskConsole)
	mute, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(p.dir, "lazaret_coord_000000000001.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	old, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(p.dir, "lazaret_coord_000000000002.sock"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(old) }()
	t.Cleanup(func() { _ = srv.Close() })
	stale, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(p.dir, "lazaret_coord_000000000003.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if ul, ok := stale.(*net.UnixListener); ok {
		ul.SetUnlinkOnClose(false)
	}
	_ = stale.Close()
	good := p.coordinator(t, "one")
	p.run(t)
	seen := map[string]bool{}
	for len(seen) < 2 {
		u := p.next(t)
		switch {
		case u.Open && u.Socket == good.Socket:
			seen["good"] = true
		case u.Problem != "" && strings.Contains(u.Problem, "404"):
			seen["old"] = true
		default:
			t.Fatalf("got %+v", u)
		}
	}
}

// What becomes of a domain's guard is told once.
func TestHubFollowsGuards(t *testing.T) {
	t.Parallel()
	p := newPlace(t, wire.DeskConsole)
	c := p.coordinator(t, "one")
	p.run(t)
	if u := p.next(t); !u.Open || u.Guard != nil {
		t.Fatalf("got %+v", u)
	}
	for _, tt := range []struct {
		guard   wire.Guard
		warning string
	}{
		{wire.Guard{State: wire.GuardServing, Cut: true}, "cut off from git"},
		{wire.Guard{State: wire.GuardDead}, "guard dead"},
		{wire.Guard{State: wire.GuardServing}, ""},
	} {
		c.SetGuard(tt.guard)
		u := p.next(t)
		if !u.Open || u.Socket != c.Socket || u.Guard == nil || u.Guard.Of.Workspace != c.Domain.Workspace {
			t.Fatalf("got %+v", u)
		}
		if got := u.Guard.Warning(); (got == "") != (tt.warning == "") || !strings.Contains(got, tt.warning) {
			t.Errorf("%+v: %q, want %q", tt.guard, got, tt.warning)
		}
	}
}

func TestHubWithoutItsDirectory(t *testing.T) {
	t.Parallel()
	p := newPlace(t, wire.DeskConsole)
	p.hub.o.ControlDir = filepath.Join(p.dir, "none")
	p.run(t)
	if err := p.end(); err == nil {
		t.Error("no error")
	}
}

func TestHeadless(t *testing.T) {
	t.Parallel()
	p := newPlace(t, wire.DeskHeadless)
	c := p.coordinator(t, "one")
	var log syncBuffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Headless(ctx, p.hub, slog.New(slog.NewTextHandler(&log, nil))) }()
	c.Ask(&wire.Ask{ID: "1", Command: "tool x \x1b[2J", CWD: "/workspace", AutoApprove: [][]string{{"tool"}}})
	c.Ask(&wire.Ask{ID: "2", Command: "tool y", CWD: "/workspace", AutoApprove: [][]string{{"tool"}}})
	if r := c.Reply(); r.ID != "2" || r.Type != wire.ReplyApprove || !r.Auto {
		t.Errorf("reply %+v", r)
	}
	if r := c.Reply(); r.ID != "2" || r.Type != wire.ReplyResult || string(r.Stdout) != "tool y" {
		t.Errorf("reply %+v", r)
	}
	c.Silent() // the other waits
	for deadline := time.Now().Add(time.Minute); !strings.Contains(log.String(), "has ended") && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // told after the reply
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, part := range []string{"waits for a person", "runs by rule", "has ended", `\x1b[2J`} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("log lacks %q:\n%s", part, log.String())
		}
	}
	if strings.Contains(log.String(), "\x1b") {
		t.Errorf("log is not inert: %q", log.String())
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestStopSandboxRefusesWhatIsNoID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "..", "a b", "a\x1b", "../x", strings.Repeat("x", 300)} {
		if err := StopSandbox(t.Context(), id); err == nil || !strings.Contains(err.Error(), "no container's id") {
			t.Errorf("%q: %v", id, err)
		}
	}
}
