package coordinator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// privateBus starts a real bus of the test's own.
func privateBus(ctx context.Context, t *testing.T) (address string) {
	t.Helper()
	bus := exec.CommandContext(ctx, "dbus-daemon", "--session", "--nofork", "--print-address")
	out, err := bus.StdoutPipe()
	must(t, err)
	must(t, bus.Start())
	t.Cleanup(func() { end(bus) })
	address, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(address)
}

// desktop stands for the desktop's notification server.
type desktop struct{ calls chan []any }

func (d *desktop) Notify(app string, replaces uint32, icon, title, body string, actions []string, _ map[string]dbus.Variant, expire int32) (uint32, *dbus.Error) {
	d.calls <- []any{app, replaces, icon, title, body, len(actions), expire}
	return 77, nil
}

func (d *desktop) CloseNotification(id uint32) *dbus.Error {
	d.calls <- []any{id}
	return nil
}

func TestNotify(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	address := privateBus(ctx, t)
	conn, err := dbus.Connect(address)
	must(t, err)
	defer func() { _ = conn.Close() }()
	d := &desktop{calls: make(chan []any, 2)}
	must(t, conn.Export(d, "/org/freedesktop/Notifications", "org.freedesktop.Notifications"))

	ask := &wire.Ask{Domain: domain.Anchor{Profile: "dev", Workspace: "/home/dev/project"}, Command: "aws sts"}
	if _, err := notifyAt(ctx, address, os.Getuid(), 0, ask, 1); err == nil {
		t.Error("no notification server, no error")
	}
	if _, err := conn.RequestName("org.freedesktop.Notifications", 0); err != nil {
		t.Fatal(err)
	}
	id, err := notifyAt(ctx, address, os.Getuid(), 5, ask, 1)
	if err != nil || id != 77 {
		t.Fatalf("id %d, %v", id, err)
	}
	want := []any{"Lazaret", uint32(5), "", "Lazaret: a request waits", "profile dev, project\naws sts\nTo answer: lazaret console", 0, int32(-1)}
	for i, got := range <-d.calls {
		if got != want[i] {
			t.Errorf("argument %d is %q, want %q", i, got, want[i])
		}
	}
	if err := withdrawAt(ctx, address, os.Getuid(), 77); err != nil {
		t.Fatal(err)
	}
	if got := <-d.calls; len(got) != 1 || got[0] != uint32(77) {
		t.Errorf("withdrawn: %v", got)
	}
	if _, err := notifyAt(ctx, "unix:path=/nonexistent", os.Getuid(), 0, ask, 1); err == nil {
		t.Error("no bus, no error")
	}
}

// A burst is one notification, and the next one comes half a minute later, if
// somebody still waits then; what nobody waits for any more is taken away.
func TestAlertsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting, fails := 0, false
		var all []string
		a := &alerter{
			log:        slog.New(slog.DiscardHandler),
			unattended: func() (wire.Ask, int) { return wire.Ask{}, waiting },
			notify: func(_ context.Context, last uint32, _ *wire.Ask, n int) (uint32, error) {
				all = append(all, fmt.Sprintf("%d in the place of %d", n, last))
				if fails {
					return 0, errors.New("no desktop")
				}
				return 7, nil
			},
			withdraw: func(_ context.Context, id uint32) error {
				all = append(all, fmt.Sprintf("%d taken away", id))
				return nil
			},
		}
		alerts := make(chan struct{}, 1)
		ask := func() {
			waiting++
			select {
			case alerts <- struct{}{}:
			default:
			}
		}
		after := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if !slices.Equal(all, want) {
				t.Fatalf("after %s %q, want %q", d, all, want)
			}
			all = nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); a.run(ctx, alerts) }()
		ask()
		after(0)
		waiting = 0 // a rule answered
		after(2 * alertAfter)
		for range 100 {
			ask()
		}
		after(2*alertAfter, "100 in the place of 0")
		ask()
		after(alertEvery - 3*alertAfter)
		after(3*alertAfter, "101 in the place of 7")
		after(10 * alertEvery) // not again for what is known
		waiting = 0            // answered
		after(2*alertAfter, "7 taken away")
		after(10 * alertEvery)
		// Requests that come one after the other put nothing off.
		for range 20 {
			ask()
			time.Sleep(2 * alertAfter / 5)
		}
		after(0, "3 in the place of 0")
		waiting = 0
		after(alertEvery, "7 taken away")
		fails = true
		ask()
		after(2*alertAfter, "1 in the place of 0")
		fails = false
		ask()
		after(alertEvery+alertAfter, "2 in the place of 0") // one that failed hinders none
		cancel()
		<-ended
		after(0, "7 taken away") // and none outlives the coordinator
	})
}

// What an agent writes is neither markup nor anything but a short line.
func TestNotificationIsInert(t *testing.T) {
	for _, tt := range []struct{ name, command, want string }{
		{"markup", `<a href="http://x">&amp;</a>`, `&lt;a href=&#34;http://x&#34;&gt;&amp;amp;&lt;/a&gt;`},
		{"control, bidi, bytes", "a\x1b[2J\nb\u202ec\xff", "a?[2J?b?c?"},
		{"long", strings.Repeat("x", 4000), strings.Repeat("x", maxNotified-3) + "..."},
		{"cut within a character", strings.Repeat("x", maxNotified-4) + "\u00fc\u00fc\u00fc", strings.Repeat("x", maxNotified-4) + "?..."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ask := &wire.Ask{Domain: domain.Anchor{Profile: "dev", Workspace: "/w/<b>\n"}, Command: tt.command}
			title, body := notification(ask, 3)
			if want := "profile dev, &lt;b&gt;?\n" + tt.want + "\nTo answer: lazaret console"; title != "Lazaret: 3 requests wait" || body != want {
				t.Errorf("title %q, body %q, want %q", title, body, want)
			}
		})
	}
}
