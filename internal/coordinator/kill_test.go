package coordinator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/proc"
	"github.com/lazaret-dev/lazaret/internal/sessionkey"
	"github.com/lazaret-dev/lazaret/internal/store"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// askerEnv makes this test program a sandbox's file server through which its
// programs ask the host, as fast as they are answered. It has the socket's
// directories and the session.
const askerEnv = "LAZARET_TEST_ASKER"

type askerSettings struct {
	Client  escalate.Client
	Session escalate.Session
}

// askerMain prints the id of each request whose command ran.
func askerMain(settings string) int {
	var s askerSettings
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				var res *escalate.Response
				req, err := s.Client.NewRequest(s.Session, "make it so", "so that there is something to record")
				if err == nil {
					res, err = s.Client.Ask(ctx, req, func(string) {})
				}
				if err != nil || !res.Approved {
					time.Sleep(2 * time.Millisecond) // nobody is there for a moment
					continue
				}
				mu.Lock()
				_, _ = fmt.Fprintln(os.Stdout, res.RequestID)
				mu.Unlock()
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // its end is ours
	stop()
	all.Wait()
	return 0
}

// Wherever the coordinator is killed while sandboxes ask and commands run: its store
// opens, the chain is whole, and no command was told to run whose approval is not in
// it. The next coordinator goes on with the same sandbox.
func TestCoordinatorKilledUnderLoad(t *testing.T) {
	rounds := 10
	if s := os.Getenv("LAZARET_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		must(t, err)
		rounds = n
	}
	const each = 25 // in one domain: a round would take longer than the one before
	told, answered := 0, 0
	for done := 0; done < rounds && !t.Failed(); done += each {
		t.Run(fmt.Sprint("from ", done), func(t *testing.T) {
			k := newKilled(t)
			for i := range min(each, rounds-done) {
				k.round(i%2 == 1)
			}
			k.finish()
			told, answered = told+k.count(k.told), answered+k.count(k.ran)
		})
	}
	if told == 0 || answered == 0 {
		t.Errorf("%d commands were told to run, %d answered", told, answered)
	}
	t.Logf("%d kills, %d commands told to run, %d answered", rounds, told, answered)
}

// A fuse-overlayfs that ends while its domain lives is in the audit; one that the
// coordinator ends is not.
func TestDeadStateIsRecorded(t *testing.T) {
	if _, err := exec.LookPath("fuse-overlayfs"); err != nil {
		t.Skip("needs fuse-overlayfs")
	}
	f := newFixture(t)
	_ = f.ensure().Close()
	pid := f.pid()
	rootfs := t.TempDir()
	must(t, os.Mkdir(filepath.Join(rootfs, "opt"), 0o755)) //nolint:gosec // as in an image
	req := f.prepareRequest("c1")
	req.Git = "off"
	req.State = &wire.State{Paths: []string{"/opt"}, Driver: "fuse-overlayfs", RootFS: rootfs, ImageID: "i1"}
	must(t, f.call(wire.PathPrepare, req, &wire.PrepareResponse{}))
	box := sandbox(t)
	must(t, f.attach("c1", box.Process.Pid))
	dead := func() (n int) {
		must(t, audit.Pager(func(chain string, after uint64) (p audit.Page, err error) {
			return p, f.call(wire.AuditPath(chain, after), nil, &p)
		}).Each(audit.Main, 0, func(_ map[string]audit.Head, entries []audit.Entry) error {
			for _, e := range entries {
				if e.Kind == audit.GuardChanged && e.Verdict == wire.GuardDead && strings.Contains(string(e.Payload), `"guard":"state"`) {
					n++
				}
			}
			return nil
		}))
		return n
	}
	if n := dead(); n != 0 {
		t.Fatalf("%d records before anything has ended", n)
	}
	for _, server := range childrenNamed(t, pid, "fuse-overlayfs") {
		must(t, syscall.Kill(server, syscall.SIGKILL))
	}
	f.eventually("the end is recorded", func() bool { return dead() == 1 })
	end(box)
	f.gone(pid)
	n := 0
	must(t, audit.Pager(func(chain string, after uint64) (audit.Page, error) {
		return store.ReadPage(f.spec.Domain.Root, chain, after)
	}).Each(audit.Main, 0, func(_ map[string]audit.Head, entries []audit.Entry) error {
		for _, e := range entries {
			if strings.Contains(string(e.Payload), `"guard":"state"`) {
				n++
			}
		}
		return nil
	}))
	if n != 1 {
		t.Errorf("%d records at the end", n)
	}
	f.nothingLeft()
}

// childrenNamed are the processes of a name that pid has started.
func childrenNamed(t *testing.T, pid int, name string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for _, path := range all {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if st, err := proc.ParseStat(data); err == nil && st.Parent == pid && strings.Contains(string(data), "("+name+")") {
			n, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			must(t, err)
			pids = append(pids, n)
		}
	}
	if len(pids) == 0 {
		t.Fatalf("coordinator %d has no %s", pid, name)
	}
	return pids
}

// killed is a domain whose coordinator is killed again and again.
type killed struct {
	*fixture
	box *exec.Cmd

	mu   sync.Mutex
	told map[string]bool // requests whose command was told to run
	ran  map[string]bool // requests whose sandbox has its answer
}

func newKilled(t *testing.T) *killed {
	t.Helper()
	k := &killed{fixture: newFixture(t), box: sandbox(t), told: map[string]bool{}, ran: map[string]bool{}}
	key, err := sessionkey.New()
	must(t, err)
	session := escalate.Session{ID: uuid.NewString(), Key: key}
	_ = k.ensure().Close()
	req := k.prepareRequest("c1")
	req.Git = "off"
	req.Escalation = &wire.Escalation{Timeout: time.Hour, Session: wire.Session{ID: session.ID, PublicKey: sessionkey.Public(key)}}
	var plan wire.PrepareResponse
	must(t, k.call(wire.PathPrepare, req, &plan))
	self, err := os.Executable()
	must(t, err)
	k.writeState("c1", self, t.TempDir())
	must(t, k.attach("c1", k.box.Process.Pid))

	settings := askerSettings{Session: session}
	asker := exec.CommandContext(t.Context(), self)
	for _, b := range plan.Binds {
		switch filepath.Base(b.Source) {
		case certsName:
			settings.Client.Certs = b.Source
		case socketName:
			// A socket's name holds 107 bytes.
			asker.Dir, settings.Client.Socket = b.Source, socketFile
		}
	}
	data, err := json.Marshal(settings)
	must(t, err)
	st, err := containerstate.ReadState(req.StateDir)
	must(t, err)
	asker.Args = []string{"runsc-gofer", "gofer", "--bundle", st.Bundle, "c1"}
	asker.Env = append(os.Environ(), askerEnv+"="+string(data))
	asker.Stderr = os.Stderr
	out, err := asker.StdoutPipe()
	must(t, err)
	_, err = asker.StdinPipe() // stays open
	must(t, err)
	must(t, asker.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			k.mu.Lock()
			k.ran[lines.Text()] = true
			k.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		end(asker)
		<-read
	})
	return k
}

func (k *killed) count(of map[string]bool) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(of)
}

// finish ends the sandbox, and sees what is left.
func (k *killed) finish() {
	k.t.Helper()
	_ = k.ensure().Close()
	pid := k.pid()
	end(k.box)
	k.gone(pid)
	k.nothingLeft()
}

// round kills a coordinator at any moment of its life, or, with busy, of its work.
func (k *killed) round(busy bool) {
	k.t.Helper()
	_ = k.ensure().Close()
	pid := k.pid()
	before := k.count(k.told)
	ended := make(chan error, 1)
	go func() { ended <- k.desk() }()
	if busy {
		k.eventually("a command is told to run", func() bool { return k.count(k.told) > before })
	}
	time.Sleep(time.Duration(rand.Int64N(int64(200 * time.Millisecond)))) //nolint:gosec // any moment
	must(k.t, syscall.Kill(pid, syscall.SIGKILL))
	k.gone(pid)
	if err := <-ended; err != nil {
		k.t.Fatal(err)
	}
	pager := func(chain string, after uint64) (audit.Page, error) {
		return store.ReadPage(k.spec.Domain.Root, chain, after)
	}
	if _, err := audit.Verify(pager); err != nil {
		k.t.Fatal(err)
	}
	asked, approved := map[string]bool{}, map[string]bool{}
	must(k.t, audit.Pager(pager).Each(audit.Main, 0, func(_ map[string]audit.Head, entries []audit.Entry) error {
		for _, e := range entries {
			var what struct {
				Request string `json:"request_id"`
			}
			if err := json.Unmarshal(e.Payload, &what); err != nil {
				return err
			}
			switch {
			case e.Kind == audit.EscalationAsked:
				asked[what.Request] = true
			case e.Kind == audit.EscalationDecided && e.Verdict == "approved":
				approved[what.Request] = true
			}
		}
		return nil
	}))
	for id := range k.told {
		if !asked[id] || !approved[id] {
			k.t.Fatalf("command of request %s was told to run and is not recorded: asked %v, approved %v; %d before this round, %d now", id, asked[id], approved[id], before, len(k.told))
		}
	}
}

// desk approves everything, until its coordinator ends.
func (k *killed) desk() error {
	conn, err := wire.Dial(k.spec.Domain.SocketPath(k.spec.ControlDir), 5*time.Second)
	if errors.Is(err, wire.ErrNoCoordinator) {
		return nil // killed already
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.Call(wire.PathDesk, wire.DeskRequest{Version: wire.Version, Kind: wire.DeskConsole}, &wire.Empty{}, 5*time.Second); err != nil {
		return nil //nolint:nilerr // as above: a round that is told nothing shows nothing
	}
	for in := json.NewDecoder(conn); ; {
		var e wire.DeskEvent
		if in.Decode(&e) != nil {
			return nil
		}
		reply := wire.DeskReply{Type: wire.ReplyApprove}
		switch e.Type {
		case wire.EventAsk:
			reply.ID = e.Ask.ID
		case wire.EventGo:
			k.mu.Lock()
			k.told[e.ID] = true
			k.mu.Unlock()
			reply = wire.DeskReply{Type: wire.ReplyResult, ID: e.ID, Stdout: []byte("done\n")}
		default:
			continue
		}
		data, err := json.Marshal(reply)
		if err != nil {
			return err
		}
		_ = conn.Write(append(data, byte(10)), 5*time.Second) // what it sent before its end is still read
	}
}
