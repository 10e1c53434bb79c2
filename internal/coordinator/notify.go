package coordinator

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/lazaret-dev/lazaret/internal/wire"
)

const (
	// alertAfter is how long a request may wait before its person is called: rules
	// answer meanwhile, and a console may be opening.
	alertAfter = time.Second
	// alertEvery is the time between two notifications.
	alertEvery = 30 * time.Second
	// notifyTime bounds the talk with the desktop.
	notifyTime = 5 * time.Second
	// maxNotified bounds each of the agent's texts in a notification, in bytes.
	maxNotified = 100
)

// alerter calls a person when requests wait that no console is there for.
type alerter struct {
	log        *slog.Logger
	unattended func() (oldest wire.Ask, n int)
	// notify shows a notification in the place of one that notify has shown, or a
	// new one for 0, and returns its id.
	notify func(ctx context.Context, last uint32, ask *wire.Ask, n int) (id uint32, err error)
}

// run looks each time that alerts has a token, until ctx ends. Where there is no
// desktop, only the log tells.
func (a *alerter) run(ctx context.Context, alerts <-chan struct{}) {
	pause := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	var last uint32
	for {
		select {
		case <-ctx.Done():
			return
		case <-alerts:
		}
		pause(alertAfter)
		ask, n := a.unattended()
		if n == 0 || ctx.Err() != nil {
			continue
		}
		if id, err := a.notify(ctx, last, &ask, n); err != nil {
			a.log.Debug("no desktop notification", "error", err)
		} else {
			last = id
		}
		pause(alertEvery)
	}
}

// notify is an alerter's.
func (c *Coordinator) notify(ctx context.Context, last uint32, ask *wire.Ask, n int) (id uint32, err error) {
	if c.spec.RealUID == 0 {
		return 0, errors.New("root has no desktop")
	}
	return notifyAt(ctx, busAddress(c.spec.RealUID), c.spec.RealUID, last, ask, n)
}

func notifyAt(ctx context.Context, address string, uid int, last uint32, ask *wire.Ask, n int) (id uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	conn, err := dialBus(ctx, address, uid)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // nothing is in flight
	title, body := notification(ask, n)
	call := conn.Object("org.freedesktop.Notifications", "/org/freedesktop/Notifications").CallWithContext(ctx,
		"org.freedesktop.Notifications.Notify", 0, "Lazaret", last, "", title, body, []string{}, map[string]dbus.Variant{}, int32(-1))
	if err := call.Store(&id); err != nil {
		return 0, fmt.Errorf("show a notification: %w", err)
	}
	return id, nil
}

// notification is what a person is told. The body may be taken for markup.
func notification(ask *wire.Ask, n int) (title, body string) {
	title = "Lazaret: a request waits"
	if n > 1 {
		title = fmt.Sprintf("Lazaret: %d requests wait", n)
	}
	where := "profile " + plain(ask.Domain.Profile)
	if ask.Domain.Workspace != "" {
		where += ", " + plain(filepath.Base(ask.Domain.Workspace))
	}
	return title, html.EscapeString(where + "\n" + plain(ask.Command) + "\nTo answer: lazaret console")
}

// plain is the beginning of s, with a mark for each character that is not
// printable ASCII.
func plain(s string) string {
	cut := ""
	if len(s) > maxNotified {
		s, cut = s[:maxNotified-3], "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s) + cut
}
