package coordinator

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// manager stands for systemd, which cannot be had in a test: it records what
// the real bus brings it.
type manager struct{ calls chan []any }

func (m *manager) StartTransientUnit(name, mode string, props []property, aux []auxUnit) (dbus.ObjectPath, *dbus.Error) {
	m.calls <- []any{name, mode, props, aux}
	return "/job/1", nil
}

func TestStartScope(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	address := privateBus(ctx, t)
	conn, err := dbus.Connect(address)
	must(t, err)
	defer func() { _ = conn.Close() }()
	m := &manager{calls: make(chan []any, 1)}
	must(t, conn.Export(m, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"))
	if _, err := conn.RequestName("org.freedesktop.systemd1", 0); err != nil {
		t.Fatal(err)
	}

	must(t, startScope(ctx, address, os.Getuid(), "lazaret-coordinator-0123456789ab.scope", 4242))
	call := <-m.calls
	if call[0] != "lazaret-coordinator-0123456789ab.scope" || call[1] != "replace" {
		t.Errorf("called with %v", call)
	}
	found := false
	for _, p := range call[2].([]property) {
		if p.Name == "PIDs" {
			pids, ok := p.Value.Value().([]uint32)
			found = ok && len(pids) == 1 && pids[0] == 4242
		}
	}
	if !found {
		t.Errorf("properties %v do not move pid 4242", call[2])
	}

	if err := startScope(ctx, "unix:path=/nonexistent", os.Getuid(), "x.scope", 1); err == nil {
		t.Error("no bus, no error")
	}
}
