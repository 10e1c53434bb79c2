package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/lazaret-dev/lazaret/internal/wire"
)

// joinScope moves a process of ours, coordinator or guard by role, into a
// systemd scope of its own, where there is a systemd: the cgroup that it was born
// in belongs to the first container's monitor and can be ended with it. Without
// systemd nothing ends it there.
func joinScope(ctx context.Context, spec wire.StartSpec, log *slog.Logger, role string, pid int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	name := "lazaret-" + role + "-" + spec.Domain.Hash + ".scope"
	if err := startScope(ctx, busAddress(spec.RealUID), spec.RealUID, name, pid); err != nil {
		log.Debug("no systemd scope", "error", err)
		return
	}
	log.Info("joined a systemd scope", "scope", name)
}

// busAddress is the user's bus, for root the system's.
func busAddress(uid int) string {
	if uid == 0 {
		return "unix:path=/run/dbus/system_bus_socket"
	}
	if a := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); a != "" {
		return a
	}
	return "unix:path=" + filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "bus")
}

// property and auxUnit have the shape that systemd's D-Bus interface asks for,
// (sv) and (sa(sv)).
type property struct {
	Name  string
	Value dbus.Variant
}

type auxUnit struct {
	Name       string
	Properties []property
}

// dialBus connects to the bus at address as uid, until ctx ends.
func dialBus(ctx context.Context, address string, uid int) (*dbus.Conn, error) {
	conn, err := dbus.Dial(address, dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	// The bus compares with the uid that the kernel tells it: the real one, not
	// the 0 that we are in the engine's user namespace.
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(uid))}); err != nil {
		return nil, errors.Join(fmt.Errorf("authenticate at %s: %w", address, err), conn.Close())
	}
	if err := conn.Hello(); err != nil {
		return nil, errors.Join(fmt.Errorf("greet %s: %w", address, err), conn.Close())
	}
	return conn, nil
}

func startScope(ctx context.Context, address string, uid int, name string, pid int) error {
	conn, err := dialBus(ctx, address, uid)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is in flight
	props := []property{
		{"Description", dbus.MakeVariant("Lazaret domain in use")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(pid)})}, //nolint:gosec // a pid is positive and small
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
	}
	call := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.systemd1.Manager.StartTransientUnit", 0, name, "replace", props, []auxUnit{})
	if call.Err != nil {
		return fmt.Errorf("start scope %s: %w", name, call.Err)
	}
	return nil
}
