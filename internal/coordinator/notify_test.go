package coordinator

import (
	"bufio"
	"context"
	"errors"
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
	if _, err := notifyAt(ctx, "unix:path=/nonexistent", os.Getuid(), 0, ask, 1); err == nil {
		t.Error("no bus, no error")
	}
}

// A burst is one notification, and the next one comes half a minute later, if
// somebody still waits then.
func TestAlertsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := 0
		type shown struct {
			last uint32
			n    int
		}
		var all []shown
		a := &alerter{
			log:        slog.New(slog.DiscardHandler),
			unattended: func() (wire.Ask, int) { return wire.Ask{}, waiting },
			notify: func(_ context.Context, last uint32, _ *wire.Ask, n int) (uint32, error) {
				all = append(all, shown{last, n})
				if len(all) == 3 {
					return 0, errors.New("no desktop")
				}
				return 7, nil
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
		after := func(d time.Duration, want ...shown) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if !slices.Equal(all, want) {
				t.Fatalf("shown %v, want %v", all, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); a.run(ctx, alerts) }()
		ask()
		after(0)
		waiting = 0 // a rule answered
		after(alertAfter)
		for range 100 {
			ask()
		}
		after(alertAfter, shown{0, 100})
		ask()
		after(alertEvery-time.Millisecond, shown{0, 100})
		after(alertAfter+time.Millisecond, shown{0, 100}, shown{7, 101})
		after(10*alertEvery, shown{0, 100}, shown{7, 101}) // not again for what is known
		for range 2 {
			ask()
			time.Sleep(alertAfter + alertEvery)
		}
		after(0, shown{0, 100}, shown{7, 101}, shown{7, 102}, shown{7, 103}) // one that failed hinders none
		cancel()
		<-ended
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
