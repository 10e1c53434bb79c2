package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoCoordinator means that nobody answers at the control socket.
var ErrNoCoordinator = errors.New("no coordinator answers")

// maxHeaders bounds the headers of an answer.
const maxHeaders = 64

// Conn is one connection to a coordinator whose peer has been checked. It
// carries one request, or one Client Session.
type Conn struct {
	c    *net.UnixConn
	r    *bufio.Reader
	peer unix.Ucred
}

// Dial connects to the control socket and refuses a peer that is not of our own
// uid: anybody can bind a name in /tmp. Nobody there gives ErrNoCoordinator.
func Dial(socket string, timeout time.Duration) (*Conn, error) {
	d := net.Dialer{Timeout: timeout}
	c, err := d.Dial("unix", socket)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("%w at %s", ErrNoCoordinator, socket)
		}
		if errors.Is(err, unix.EACCES) {
			// Ours has mode 0600 and we are its owner.
			return nil, fmt.Errorf("control socket %s is not yours to use: somebody took the name; remove the file or set control_dir in [general]", socket)
		}
		return nil, fmt.Errorf("connect to coordinator: %w", err)
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("connect to coordinator: %s is not a unix socket", socket), c.Close())
	}
	cred, err := PeerCred(uc)
	if err == nil {
		err = checkPeer(cred, os.Geteuid(), socket)
	}
	if err != nil {
		return nil, errors.Join(err, uc.Close())
	}
	return &Conn{c: uc, r: bufio.NewReader(uc), peer: *cred}, nil
}

// Sockets lists the control sockets in controlDir that are the caller's own:
// another user's domains are none of ours. A coordinator need not answer there.
func Sockets(controlDir string) ([]string, error) {
	entries, err := os.ReadDir(controlDir)
	if err != nil {
		return nil, fmt.Errorf("look for coordinators: %w", err)
	}
	var out []string
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, "lazaret_coord_") || !strings.HasSuffix(name, ".sock") {
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it ended just now
		}
		if err != nil {
			return nil, fmt.Errorf("look for coordinators: %w", err)
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			out = append(out, filepath.Join(controlDir, e.Name()))
		}
	}
	return out, nil
}

func checkPeer(cred *unix.Ucred, uid int, socket string) error {
	if int(cred.Uid) != uid {
		return fmt.Errorf("control socket %s is served by uid %d, pid %d, not by you: somebody took the name; remove the file or set control_dir in [general]", socket, cred.Uid, cred.Pid)
	}
	return nil
}

// PeerCred reads SO_PEERCRED (unix(7)): the ids of the process that connected,
// or listened, translated into the caller's namespaces.
func PeerCred(c *net.UnixConn) (*unix.Ucred, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("read peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var serr error
	if err := rc.Control(func(fd uintptr) {
		cred, serr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("read peer credentials: %w", err)
	}
	if serr != nil {
		return nil, fmt.Errorf("read peer credentials: %w", serr)
	}
	return cred, nil
}

// PeerPID is the coordinator's pid as seen from here, 0 across pid namespaces.
func (c *Conn) PeerPID() int { return int(c.peer.Pid) }

// Read reads what the coordinator sends after an answer, on a desk's connection.
func (c *Conn) Read(p []byte) (int, error) { return c.r.Read(p) }

// Write sends on a desk's connection; it fails when the coordinator does not read
// for as long as timeout.
func (c *Conn) Write(p []byte, timeout time.Duration) error {
	if err := c.c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("send to the coordinator: %w", err)
	}
	if _, err := c.c.Write(p); err != nil {
		return fmt.Errorf("send to the coordinator: %w", err)
	}
	return nil
}

// Close ends the connection, and with it a session that it carries.
func (c *Conn) Close() error { return c.c.Close() }

// Call sends one request and reads its answer into out. in may be nil (a GET).
// An answer other than 200 is returned as *Error.
func (c *Conn) Call(path string, in, out any, timeout time.Duration) error {
	var body []byte
	method := "GET"
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode request %s: %w", path, err)
		}
		method = "POST"
	}
	if err := c.c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("request %s: %w", path, err)
	}
	var req bytes.Buffer
	fmt.Fprintf(&req, "%s %s HTTP/1.0\r\nHost: lazaret\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, len(body))
	req.Write(body)
	if _, err := c.c.Write(req.Bytes()); err != nil {
		return fmt.Errorf("send %s to the coordinator: %w", path, err)
	}
	status, answer, err := readResponse(c.r)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("coordinator (pid %d) did not answer %s within %s: it may be stopped or overloaded; look at it with ps, or end it and try again", c.peer.Pid, path, timeout)
		}
		return fmt.Errorf("read the coordinator's answer to %s: %w", path, err)
	}
	if status != 200 {
		e := &Error{}
		if json.Unmarshal(answer, e) != nil || e.Message == "" {
			return fmt.Errorf("coordinator answered %s with status %d", path, status)
		}
		return e
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("decode the coordinator's answer to %s: %w", path, err)
	}
	return c.c.SetDeadline(time.Time{})
}

// readResponse reads one response with a Content-Length from r, and not one
// byte past it for the connection may go on as a session. A line of its head is
// at most as long as the reader's buffer.
func readResponse(r *bufio.Reader) (status int, body []byte, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, nil, unexpectedEOF(err)
	}
	proto, rest, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	code, _, _ := strings.Cut(rest, " ")
	if !strings.HasPrefix(proto, "HTTP/1.") {
		return 0, nil, fmt.Errorf("not an HTTP answer: %.40q", line)
	}
	if status, err = strconv.Atoi(code); err != nil || status < 100 || status > 599 {
		return 0, nil, fmt.Errorf("bad HTTP status %.10q", code)
	}
	length := -1
	for n := 0; ; n++ {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, nil, unexpectedEOF(err)
		}
		text := strings.TrimSpace(string(line))
		if text == "" {
			break
		}
		if n == maxHeaders {
			return 0, nil, fmt.Errorf("answer has more than %d headers", maxHeaders)
		}
		k, v, _ := strings.Cut(text, ":")
		if strings.EqualFold(k, "Content-Length") {
			n, err := strconv.Atoi(strings.TrimSpace(v))
			if err != nil || n < 0 || n > MaxBody || (length >= 0 && n != length) {
				return 0, nil, fmt.Errorf("bad Content-Length %.20q", v)
			}
			length = n
		}
	}
	if length < 0 {
		return 0, nil, errors.New("answer without Content-Length")
	}
	body = make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, unexpectedEOF(err)
	}
	return status, body, nil
}

func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Inherit makes the connection survive execve: descriptor number at least min,
// close-on-exec cleared. The returned descriptor is owned by the process, not by
// Conn, which is closed.
func (c *Conn) Inherit(minFD int) (fd int, err error) {
	f, err := c.c.File()
	if err != nil {
		return -1, fmt.Errorf("keep session connection: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), c.c.Close()) }()
	// F_DUPFD, not F_DUPFD_CLOEXEC: the runtime that replaces us holds it.
	fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD, minFD)
	if err != nil {
		return -1, fmt.Errorf("keep session connection: %w", err)
	}
	return fd, nil
}

// Cut reports whether err means that the peer went away in the middle of a call.
func Cut(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}
