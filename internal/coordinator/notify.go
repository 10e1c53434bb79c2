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

// alerter calls a person when requests wait that no console is there for, until
// they do not any more.
type alerter struct {
	log        *slog.Logger
	unattended func() (oldest wire.Ask, n int)
	// notify shows a notification in the place of one that notify has shown, or a
	// new one for 0, and returns its id.
	notify func(ctx context.Context, last uint32, ask *wire.Ask, n int) (id uint32, err error)
	// withdraw takes one away.
	withdraw func(ctx context.Context, id uint32) error
}

// run looks when alerts has a token, and as long as a notification shows, until
// ctx ends. Where there is no desktop, only the log tells.
func (a *alerter) run(ctx context.Context, alerts <-chan struct{}) {
	var shown uint32      // 0 for none
	var next time.Time    // when another one may come
	var look *time.Ticker // while there is something to look for
	due := false
	defer func() {
		if look != nil {
			look.Stop()
		}
		a.clear(context.WithoutCancel(ctx), shown)
	}()
	for {
		var tick <-chan time.Time
		if look != nil {
			tick = look.C
		}
		select {
		case <-ctx.Done():
			return
		case <-alerts:
			due = true
			if look == nil {
				look = time.NewTicker(alertAfter)
			}
			continue
		case <-tick:
		}
		ask, n := a.unattended()
		switch {
		case n == 0:
			a.clear(ctx, shown)
			shown, due = 0, false
		case due && !time.Now().Before(next):
			id, err := a.notify(ctx, shown, &ask, n)
			if err != nil {
				a.log.Debug("no desktop notification", "error", err)
			} else {
				shown = id
			}
			due, next = false, time.Now().Add(alertEvery)
		}
		if !due && shown == 0 {
			look.Stop()
			look = nil
		}
	}
}

func (a *alerter) clear(ctx context.Context, id uint32) {
	if id == 0 {
		return
	}
	if err := a.withdraw(ctx, id); err != nil {
		a.log.Debug("withdraw a desktop notification", "error", err)
	}
}

// notify is an alerter's.
func (c *Coordinator) notify(ctx context.Context, last uint32, ask *wire.Ask, n int) (id uint32, err error) {
	if c.spec.RealUID == 0 {
		return 0, errors.New("root has no desktop")
	}
	return notifyAt(ctx, busAddress(c.spec.RealUID), c.spec.RealUID, last, ask, n)
}

// withdraw is an alerter's.
func (c *Coordinator) withdraw(ctx context.Context, id uint32) error {
	return withdrawAt(ctx, busAddress(c.spec.RealUID), c.spec.RealUID, id)
}

const (
	notificationsName = "org.freedesktop.Notifications"
	notificationsPath = "/org/freedesktop/Notifications"
)

func withdrawAt(ctx context.Context, address string, uid int, id uint32) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	conn, err := dialBus(ctx, address, uid)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is in flight
	return conn.Object(notificationsName, notificationsPath).CallWithContext(ctx, notificationsName+".CloseNotification", 0, id).Err
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
	call := conn.Object(notificationsName, notificationsPath).CallWithContext(ctx,
		notificationsName+".Notify", 0, "Lazaret", last, "", title, body, []string{}, map[string]dbus.Variant{}, int32(-1))
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
