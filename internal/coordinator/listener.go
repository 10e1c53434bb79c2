package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/wire"
)

// peerListener accepts only connections of our own uid, as the kernel tells it
// (SO_PEERCRED); the socket file's mode says the same.
type peerListener struct {
	*net.UnixListener
	path     string
	dev, ino uint64
}

// listen binds path, which must be free, with mode 0600.
func listen(path string) (*peerListener, error) {
	// The umask is the whole process's: nothing else makes files at this point
	// but the log, whose mode asks for less already.
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("bind control socket %s: %w: another user may have taken the name; remove it or set control_dir in [general]", path, err)
	}
	l.SetUnlinkOnClose(false) // by hand, and only if the name is still ours
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("bind control socket: %w", err), l.Close())
	}
	return &peerListener{UnixListener: l, path: path, dev: st.Dev, ino: st.Ino}, nil
}

// Accept returns the next connection of our own uid.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		cred, err := wire.PeerCred(c)
		if err != nil || int(cred.Uid) != os.Geteuid() {
			_ = c.Close() // a stranger gets nothing, not even an error
			continue
		}
		return c, nil
	}
}

// current reports whether the path still names this socket.
func (l *peerListener) current() bool {
	var st unix.Stat_t
	return unix.Lstat(l.path, &st) == nil && st.Dev == l.dev && st.Ino == l.ino
}

// unlink removes the socket's name if it is still ours.
func (l *peerListener) unlink() {
	if l.current() {
		if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // somebody else owns the directory now: nothing of ours is there
		}
	}
}

// abandon ends accepting; connections that exist go on.
func (l *peerListener) abandon() { _ = l.Close() }

type peerKey struct{}

// withPeer keeps the connection for handlers that need its credentials.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, c)
}

func peerConn(ctx context.Context) (*net.UnixConn, bool) {
	c, ok := ctx.Value(peerKey{}).(*net.UnixConn)
	return c, ok
}
