package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	escdesk "github.com/lazaret-dev/lazaret/escalate/desk"
	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/console/prompt"
	"github.com/lazaret-dev/lazaret/internal/console/terminal"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// errAborted is the cause of a session's end by the developer's wish.
var errAborted = errors.New("aborted")

// runDesk brings the requests of one session to its terminal.
type runDesk struct {
	desk    *escdesk.Desk // nil where the profile has no escalation
	prompts chan *terminal.Prompt
	abort   context.CancelCauseFunc
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	waiting []*asking
	dropped int
	more    chan struct{}
}

// asking is a request that waits for its answer.
type asking struct {
	prompt *terminal.Prompt
	gone   chan struct{}
	shown  bool
}

func (a *agentRun) openDesk(ctx context.Context, abort context.CancelCauseFunc) (*runDesk, error) {
	d := &runDesk{prompts: make(chan *terminal.Prompt), abort: abort, more: make(chan struct{}, 1)}
	if !a.r.profile.Escalation.Enabled {
		return d, nil
	}
	host := hostSide(a.r.cfg.General.DataRoot)
	var err error
	d.desk, err = escdesk.Open(escdesk.Options{
		Socket: a.r.anchor.SocketPath(a.r.cfg.General.ControlDir), Kind: wire.DeskRun, SessionID: a.session,
		Host: host.Host, Runner: host,
	})
	if err != nil {
		return nil, fmt.Errorf("open the desk for requests: %w", err)
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.done.Go(func() { d.events(ctx) })
	d.done.Go(func() { d.offer(ctx) })
	return d, nil
}

func (d *runDesk) close() {
	if d.desk == nil {
		return
	}
	d.stop()
	_ = d.desk.Close() // the connection's end is all that is wanted
	d.done.Wait()
}

// events takes in what happens at the desk, until it is closed.
func (d *runDesk) events(ctx context.Context) {
	for {
		e, err := d.desk.Next(ctx)
		if err != nil {
			return // with the coordinator, or by close
		}
		switch e.Type {
		case escdesk.Asked:
			d.add(e)
		case escdesk.Gone:
			d.remove(e.ID)
		}
	}
}

func (d *runDesk) add(e escdesk.Event) {
	q := &asking{gone: make(chan struct{})}
	q.prompt = &terminal.Prompt{
		Ask: e.Ask, View: e.View, Gone: q.gone, Counts: d.counts,
		Inspect: func(command string) *policy.View { return d.desk.View(e.Ask, command) },
		Answer:  func(a prompt.Answer) { d.answer(e.ID, a) },
	}
	d.mu.Lock()
	d.waiting = append(d.waiting, q)
	d.dropped = e.Ask.Dropped
	d.mu.Unlock()
	d.wake()
}

func (d *runDesk) wake() {
	select {
	case d.more <- struct{}{}:
	default:
	}
}

func (d *runDesk) counts() (waiting, dropped int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting), d.dropped
}

func (d *runDesk) remove(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, q := range d.waiting {
		if q.prompt.Ask.ID == id {
			d.waiting = append(d.waiting[:i:i], d.waiting[i+1:]...)
			close(q.gone)
			return
		}
	}
}

// answer is called by the terminal and must not wait for the coordinator.
func (d *runDesk) answer(id string, a prompt.Answer) {
	d.remove(id)
	d.done.Go(func() {
		var err error
		switch a.Verb {
		case prompt.Approve:
			err = d.desk.Approve(id, a.View, a.Remember)
		case prompt.Deny:
			err = d.desk.Deny(id, a.Reason)
		case prompt.Abort:
			err = d.desk.Deny(id, "the session was aborted")
			d.abort(errAborted)
		}
		_ = err // a desk that is closed: nobody waits for the answer
	})
}

// offer hands the requests to the terminal, one after the other.
func (d *runDesk) offer(ctx context.Context) {
	for {
		d.mu.Lock()
		var next *asking
		for _, q := range d.waiting {
			if !q.shown {
				next = q
				break
			}
		}
		if next != nil {
			next.shown = true
		}
		d.mu.Unlock()
		var prompts chan<- *terminal.Prompt
		var p *terminal.Prompt
		var gone <-chan struct{}
		if next != nil {
			prompts, p, gone = d.prompts, next.prompt, next.gone
		}
		more := d.more
		if next != nil {
			more = nil // this one first
		}
		select {
		case <-ctx.Done():
			return
		case prompts <- p:
		case <-gone:
		case <-more:
		}
	}
}
