package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/nsutil"
	"github.com/lazaret-dev/lazaret/netrouter/plan"
)

// The uplink's network: nobody's own has these addresses.
func uplinkAddr() netip.Prefix   { return netip.MustParsePrefix("198.19.255.100/24") }
func uplinkGateway() netip.Addr  { return netip.MustParseAddr("198.19.255.2") }
func uplinkResolver() netip.Addr { return netip.MustParseAddr("198.19.255.3") }

// uplink is the process that carries the domain's packets to the host's sockets.
type uplink struct {
	name string
	proc *os.Process
	hold *os.File // slirp4netns ends with it
	done chan struct{}
}

// driver is a program that can be an uplink.
type driver struct {
	name string
	args func(ns string) []string
	// tells: it says on descriptor 4 that it is ready, and ends with descriptor 3.
	tells bool
}

func drivers() []driver {
	return []driver{
		{name: "pasta", args: func(ns string) []string {
			a := uplinkAddr()
			return []string{
				"--foreground", "--quiet", "--config-net", "--ipv4-only", "--no-map-gw", "--no-dhcp",
				"--address", a.Addr().String(), "--netmask", strconv.Itoa(a.Bits()), "--gateway", uplinkGateway().String(),
				"--dns-forward", uplinkResolver().String(), "--mtu", strconv.Itoa(plan.MTU),
				"--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none",
				"--ns-ifname", plan.Uplink, "--netns", ns,
			}
		}},
		{name: "slirp4netns", tells: true, args: func(ns string) []string {
			return []string{
				"--configure", "--mtu=" + strconv.Itoa(plan.MTU), "--cidr=" + uplinkAddr().Masked().String(),
				"--disable-host-loopback", "--enable-sandbox", "--enable-seccomp",
				"--exit-fd=3", "--ready-fd=4", "--netns-type=path", ns, plan.Uplink,
			}
		}},
	}
}

// startUplink starts the first program that is there and works.
func startUplink(ctx context.Context, o Options, ns *os.File) (*uplink, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var errs []error
	for _, d := range drivers() {
		path, err := fixedpath.Look(d.name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		u, err := d.start(ctx, path, o, ns)
		if err == nil {
			return u, nil
		}
		errs = append(errs, err)
		o.Log.Warn("uplink", "program", path, "error", err)
	}
	return nil, fmt.Errorf("network uplink: %w: install pasta (package passt) or slirp4netns", errors.Join(errs...))
}

func (d driver) start(ctx context.Context, path string, o Options, ns *os.File) (_ *uplink, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	words, stderr, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, null.Close())
	}
	var said tail
	go func() { said.readFrom(words); _ = words.Close() }()
	files := []*os.File{null, null, stderr}
	theirs := []*os.File{null, stderr}
	var ready *os.File
	u := &uplink{name: d.name, done: make(chan struct{})}
	if d.tells {
		var in, out *os.File
		if in, u.hold, err = os.Pipe(); err == nil {
			ready, out, err = os.Pipe()
		}
		if err != nil {
			return nil, err
		}
		files = append(files, in, out)
		theirs = append(theirs, in, out)
		defer func() { _ = ready.Close() }() // only read
	}
	started := make(chan error, 1)
	nsutil.Thread(func() {
		defer close(u.done)
		// PDEATHSIG comes at the end of the thread that forked, so this one waits.
		at := filepath.Join(o.Dir, "netns")
		err := ownMounts(ns, at)
		var p *os.Process
		if err == nil {
			p, err = os.StartProcess(path, append([]string{path}, d.args(at)...), &os.ProcAttr{
				Dir: "/", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Files: files,
				Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
			})
		}
		for _, f := range theirs {
			_ = f.Close() // its ends
		}
		u.proc = p
		started <- err
		if err == nil {
			_, _ = p.Wait() // it has ended, however that went
		}
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			u.stop()
			err = fmt.Errorf("%s: %w: %s", path, err, said.String())
		}
	}()
	start, err := proc.StartTime(u.proc.Pid)
	if err != nil {
		return nil, err
	}
	if err := writeRemains(o.Dir, "uplink.json", remains{Uplink: u.proc.Pid, StartTime: start}); err != nil {
		return nil, err
	}
	if d.tells {
		go func() {
			<-ctx.Done()
			_ = ready.SetReadDeadline(time.Unix(1, 0)) // it may be closed
		}()
		if _, err := ready.Read(make([]byte, 1)); err != nil {
			return nil, fmt.Errorf("it is not ready: %w", err)
		}
		return u, nil
	}
	return u, u.awaitLink(ctx, ns)
}

// ownMounts gives this thread, and what it starts, mounts of its own, as
// slirp4netns unmounts what it sees. Among them is the namespace by a plain name,
// the only way to tell it that works for a program that has given up its
// capabilities and closed its descriptors.
func ownMounts(ns *os.File, at string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mknod(at, unix.S_IFREG|0o600, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/thread-self/fd/%d", ns.Fd()), at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the namespace at %s: %w", at, err)
	}
	return nil
}

// awaitLink waits until the namespace has the uplink's address.
func (u *uplink) awaitLink(ctx context.Context, ns *os.File) error {
	for {
		there := false
		if err := nsutil.Do(ns, func() error {
			l, err := netlink.LinkByName(plan.Uplink)
			if err != nil {
				return nil //nolint:nilerr // not yet
			}
			routes, err := netlink.RouteList(l, unix.AF_INET)
			there = err == nil && len(routes) > 1 // its network and the way out
			return err
		}); err != nil {
			return err
		}
		if there {
			return nil
		}
		select {
		case <-u.done:
			return errors.New("it ended at its start")
		case <-ctx.Done():
			return fmt.Errorf("it has no link: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (u *uplink) ended() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// stop ends the process.
func (u *uplink) stop() {
	if u.hold != nil {
		_ = u.hold.Close() // a pipe
	}
	_ = u.proc.Signal(syscall.SIGTERM) // it may be gone
	select {
	case <-u.done:
	case <-time.After(endTime / 4):
		_ = u.proc.Kill()
		select {
		case <-u.done:
		case <-time.After(endTime):
		}
	}
}

// endUplink ends one by pid, if it is still that process.
func endUplink(pid int, start uint64) bool {
	p, err := proc.Open(pid)
	if err != nil {
		return false
	}
	defer p.Close()
	if t, err := proc.StartTime(pid); err != nil || t != start {
		return false
	}
	if p.Signal(unix.SIGKILL) != nil {
		return false
	}
	p.WaitUntil(time.Now().Add(endTime))
	return true
}

// tail keeps the end of what a program says.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) readFrom(f *os.File) {
	b := make([]byte, 4096)
	for {
		n, err := f.Read(b)
		t.mu.Lock()
		t.buf = append(t.buf, b[:n]...)
		t.buf = t.buf[max(0, len(t.buf)-500):]
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.ReplaceAll(bytes.TrimSpace(t.buf), []byte("\n"), []byte("; ")))
}
