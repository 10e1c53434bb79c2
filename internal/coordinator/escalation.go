package coordinator

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/escalate"
	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/coordinator/broker"
	"github.com/lazaret-dev/lazaret/internal/trust"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

const (
	// certsName and socketName are what the sandbox sees below /run/lazaret. The
	// socket has a directory of its own, so that a coordinator that takes over can
	// bind it anew.
	certsName  = "certs"
	socketName = "socket"
	// sandboxesName in a domain's runtime directory has a directory for each.
	sandboxesName = "sandboxes"
	socketFile    = "escalate.sock"

	// askTime bounds handshake, header and body of a request each.
	askTime = 10 * time.Second
	// answerTime bounds the sending of an answer.
	answerTime = 30 * time.Second
	// connsEach and connsAll bound the open connections of a sandbox and a domain.
	connsEach = 40
	connsAll  = 120
)

// escalation is one sandbox's Escalation Socket.
type escalation struct {
	c        *Coordinator
	sandbox  string
	kept     keptEscalation
	identity *trust.Identity
	srv      *http.Server
	conns    atomic.Int32
}

// keptEscalation is what another coordinator needs to serve the sandbox after this
// one was killed: the file escalation.json in the container's state directory.
type keptEscalation struct {
	SocketDir string          `json:"socket_dir"` // on the host, shown at /run/lazaret/socket
	CertsDir  string          `json:"certs_dir"`  // shown at /run/lazaret/certs
	Rules     wire.Escalation `json:"rules"`
}

const keptName = "escalation.json"

// checkEscalation refuses what cannot be asked for.
func (c *Coordinator) checkEscalation(req *wire.PrepareRequest) error {
	e := req.Escalation
	switch {
	case e == nil:
		return nil
	case e.SocketDir != "" && (!filepath.IsAbs(e.SocketDir) || filepath.Clean(e.SocketDir) != e.SocketDir):
		return fmt.Errorf("socket_dir %q is not a clean absolute path", e.SocketDir)
	case e.Timeout < time.Second || e.Timeout > 24*time.Hour:
		return fmt.Errorf("timeout %s is not between a second and a day", e.Timeout)
	}
	return nil
}

// escalated makes the Escalation Socket of ct and tells what to mount for it. It
// must not be called with c.mu.
func (c *Coordinator) escalated(ct *container, req *wire.Escalation) (binds []wire.Bind, err error) {
	dir := filepath.Join(c.sandboxesDir(), ct.id)
	kept := keptEscalation{CertsDir: filepath.Join(dir, certsName), SocketDir: filepath.Join(dir, socketName), Rules: *req}
	if req.SocketDir != "" {
		kept.SocketDir = filepath.Join(req.SocketDir, "lazaret-"+ct.id)
	}
	if err := c.offerEscalation(); err != nil {
		return nil, err
	}
	if err := c.openEscalation(ct, kept); err != nil {
		return nil, err
	}
	return []wire.Bind{
		{Source: kept.CertsDir, Destination: spec.RunPath + "/" + certsName, ReadOnly: true},
		{Source: kept.SocketDir, Destination: spec.RunPath + "/" + socketName, ReadOnly: true},
	}, nil
}

// offerEscalation makes the places in what the sandboxes see at /run/lazaret.
func (c *Coordinator) offerEscalation() error {
	for _, name := range []string{certsName, socketName} {
		if err := openDir(filepath.Join(c.runDir, name)); err != nil {
			return fmt.Errorf("make a place for the escalation socket: %w", err)
		}
	}
	link := filepath.Join(c.runDir, socketFile)
	if err := os.Symlink(socketName+"/"+socketFile, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a place for the escalation socket: %w", err)
	}
	return nil
}

// authority is the domain's Trust Anchor, made when it is first needed.
func (c *Coordinator) authority() (*trust.Anchor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trust == nil {
		a, err := trust.New(escalate.ServerName, nil)
		if err == nil {
			err = keepInMemory(c.sandboxesDir())
		}
		if err != nil {
			return nil, err
		}
		c.trust = a
	}
	return c.trust, nil
}

func (c *Coordinator) sandboxesDir() string {
	return filepath.Join(filepath.Dir(c.runDir), sandboxesName)
}

// memorySource names our tmpfs.
const memorySource = "lazaret-certs"

// keepInMemory makes dir, on a tmpfs of its own where the runtime directory is on
// none: the sandboxes' keys never reach a disk.
func keepInMemory(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a place for certificates: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("make a place for certificates: %w", err)
	}
	if st.Type == unix.TMPFS_MAGIC {
		return nil // also a killed predecessor's
	}
	if err := unix.Mount(memorySource, dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700,size=8m"); err != nil {
		return fmt.Errorf("make a place for certificates on memory at %s: %w: set XDG_RUNTIME_DIR to a tmpfs, or enabled = false in [escalation]", dir, err)
	}
	return nil
}

// removeMemory takes our tmpfs off dir.
func removeMemory(dir string) error {
	_, err := unmountOurs(dir, "tmpfs")
	return err
}

// openEscalation serves ct's socket, in directories that may be there from a
// coordinator that was killed, and lets the container's own session ask.
func (c *Coordinator) openEscalation(ct *container, kept keptEscalation) (err error) {
	anchor, err := c.authority()
	if err != nil {
		return err
	}
	e := &escalation{c: c, sandbox: ct.id, kept: kept}
	if e.identity, err = anchor.Identify(trust.Name(c.spec.Domain.Hash, c.spec.Domain.Profile, ct.id)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close(true))
		}
	}()
	if err := e.makeDirs(); err != nil {
		return err
	}
	if err := e.writeCerts(anchor); err != nil {
		return err
	}
	ln, err := e.listen()
	if err != nil {
		return err
	}
	e.srv = &http.Server{
		Handler: e.handler(), ReadHeaderTimeout: askTime, ReadTimeout: askTime,
		MaxHeaderBytes: 4 << 10, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		// What a sandbox's programs do wrong is theirs to know, and would fill the log.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	e.srv.SetKeepAlivesEnabled(false)
	go func() { _ = e.srv.Serve(tls.NewListener(ln, e.identity.ServerConfig())) }() // ends with close
	own := kept.Rules.Session
	err = c.broker.Begin(broker.Session{ID: own.ID, Kind: "run", Sandbox: ct.id, Key: own.PublicKey, Owned: own.Owned}, e.rules())
	if err != nil {
		return err
	}
	if err := e.keep(ct.stateDir); err != nil {
		return err
	}
	c.mu.Lock()
	ct.escalation = e
	c.mu.Unlock()
	return nil
}

func (e *escalation) rules() broker.Rules {
	return broker.Rules{AutoApprove: e.kept.Rules.AutoApprove, Timeout: e.kept.Rules.Timeout}
}

func (e *escalation) makeDirs() error {
	if err := openDir(e.kept.CertsDir); err != nil {
		return fmt.Errorf("make a place for certificates: %w", err)
	}
	if d := e.kept.Rules.SocketDir; d != "" {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make socket_dir: %w", err)
		}
	}
	if err := openDir(e.kept.SocketDir); err != nil {
		return fmt.Errorf("make a place for the escalation socket: %w", err)
	}
	return nil
}

func (e *escalation) writeCerts(anchor *trust.Anchor) error {
	if err := e.write("ca.pem", anchor.PEM()); err != nil {
		return err
	}
	if err := e.write("client.key", e.identity.KeyPEM()); err != nil {
		return err
	}
	return e.renew()
}

// renew issues the next certificate. The key stays, so that no reader sees two
// files that do not belong together.
func (e *escalation) renew() error {
	cert, err := e.identity.Issue()
	if err != nil {
		return err
	}
	return e.write("client.pem", cert)
}

func (e *escalation) write(name string, data []byte) error {
	// Any uid of the sandbox reads it. On memory: nothing to flush.
	return atomicfile.Write(filepath.Join(e.kept.CertsDir, name), data, 0o444, false)
}

// listen binds the sandbox's socket, in the place of one that a killed coordinator
// left. Any uid of the sandbox may connect; on the host, the directory above is
// closed to others.
func (e *escalation) listen() (*sandboxListener, error) {
	dir, err := os.Open(e.kept.SocketDir)
	if err != nil {
		return nil, fmt.Errorf("bind the escalation socket: %w", err)
	}
	defer func() { _ = dir.Close() }() // only a name
	// By descriptor: the path may be longer than a socket's address.
	path := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("bind the escalation socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("bind the escalation socket in %s: %w", e.kept.SocketDir, err)
	}
	l.SetUnlinkOnClose(false)                     // with its directory
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // meant for all of the sandbox
		return nil, errors.Join(fmt.Errorf("bind the escalation socket: %w", err), l.Close())
	}
	return &sandboxListener{UnixListener: l, e: e}, nil
}

// keep writes down what a successor needs.
func (e *escalation) keep(stateDir string) error {
	data, err := json.Marshal(e.kept)
	if err != nil {
		return fmt.Errorf("keep the escalation socket's settings: %w", err)
	}
	return atomicfile.Write(filepath.Join(stateDir, keptName), data, 0o600, false)
}

// close ends the socket. With remove, its directories go too.
func (e *escalation) close(remove bool) error {
	e.identity.Revoke()
	e.c.broker.EndSandbox(e.sandbox)
	var err error
	if e.srv != nil {
		err = e.srv.Close()
	}
	if remove {
		err = errors.Join(err, removeEscalation(e.kept))
	}
	return err
}

func removeEscalation(kept keptEscalation) error {
	return errors.Join(os.RemoveAll(filepath.Dir(kept.CertsDir)), os.RemoveAll(kept.SocketDir))
}

// readKept reads what a coordinator kept in a container's state directory;
// fs.ErrNotExist where the container has no Escalation Socket.
func readKept(stateDir string) (kept keptEscalation, err error) {
	path := filepath.Join(stateDir, keptName)
	data, err := os.ReadFile(path)
	if err != nil {
		return kept, err
	}
	if err := json.Unmarshal(data, &kept); err != nil {
		return kept, fmt.Errorf("%s is damaged: %w", path, err)
	}
	// Both are removed one day, so they must be what we made.
	dir := filepath.Dir(kept.CertsDir)
	own := kept.SocketDir == filepath.Join(dir, socketName) || filepath.Base(kept.SocketDir) == "lazaret-"+filepath.Base(stateDir)
	if !filepath.IsAbs(dir) || !own || filepath.Base(dir) != filepath.Base(stateDir) || filepath.Base(filepath.Dir(dir)) != sandboxesName {
		return kept, fmt.Errorf("%s names directories that are not Lazaret's", path)
	}
	return kept, nil
}

// sandboxListener accepts connections that this sandbox's own gofer makes
// (SO_PEERCRED): runsc's process, of the developer's uid, or of the one of his
// subordinate ids whose process in the sandbox connects.
type sandboxListener struct {
	*net.UnixListener
	e *escalation
}

func (l *sandboxListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		cred, err := wire.PeerCred(c)
		if err == nil {
			err = l.e.checkPeer(cred)
		}
		if err != nil {
			l.e.c.log.Warn("connection of a stranger to an escalation socket", "container", l.e.sandbox, "error", err)
			_ = c.Close() // gets nothing, not even an error
			continue
		}
		counted := &countedConn{UnixConn: c, counts: []*atomic.Int32{&l.e.conns, &l.e.c.escalationConns}}
		for _, n := range counted.counts {
			n.Add(1)
		}
		if l.e.conns.Load() > connsEach || l.e.c.escalationConns.Load() > connsAll {
			_ = counted.Close() // those that are open end by their deadlines
			continue
		}
		return counted, nil
	}
}

// overflowID stands for every id that our user namespace does not have
// (/proc/sys/kernel/overflowuid).
const overflowID = 65534

func (e *escalation) checkPeer(cred *unix.Ucred) error {
	if cred.Uid == overflowID {
		return fmt.Errorf("process %d is another user's", cred.Pid)
	}
	st, err := containerstate.ReadState(containerstate.Dir(e.c.spec.RuntimeDir, e.sandbox))
	if err != nil {
		return err
	}
	program, err := os.Stat(st.Runsc)
	if err != nil {
		return err
	}
	if !isGofer(int(cred.Pid), st.Bundle, program) {
		return fmt.Errorf("process %d, uid %d is not of this sandbox", cred.Pid, cred.Uid)
	}
	return nil
}

// isGofer reports whether pid is runsc's file server of the container with that
// bundle. Old ones do not name the container.
func isGofer(pid int, bundle string, program fs.FileInfo) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	argv := bytes.Split(bytes.TrimSuffix(data, []byte{0}), []byte{0})
	named := slices.ContainsFunc(argv, func(a []byte) bool {
		return string(a) == bundle || string(a) == "--bundle="+bundle
	})
	exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && string(argv[0]) == "runsc-gofer" && named && sameBundle(argv, bundle) && os.SameFile(exe, program)
}

type countedConn struct {
	*net.UnixConn
	counts []*atomic.Int32
	once   sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() {
		for _, n := range c.counts {
			n.Add(-1)
		}
	})
	return c.UnixConn.Close()
}

func (e *escalation) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+escalate.RequestPath, e.serve)
	return mux
}

func (e *escalation) serve(w http.ResponseWriter, r *http.Request) {
	ctl := http.NewResponseController(w)
	req, err := readRequest(r)
	var asked *broker.Request
	if err == nil {
		asked, err = e.c.broker.Submit(e.sandbox, req)
	}
	if err != nil {
		e.c.log.Debug("escalation refused", "container", e.sandbox, "error", err)
		_ = ctl.SetWriteDeadline(time.Now().Add(answerTime)) // the connection takes deadlines
		e.c.respond(w, nil, err)
		return
	}
	// The person has all the time that the request has; while the server reads for
	// the client's end, no deadline of the body's may pass for that.
	if err := ctl.SetReadDeadline(time.Time{}); err != nil {
		e.c.broker.Cancel(asked)
		return
	}
	for {
		select {
		case news := <-asked.News:
			_ = ctl.SetWriteDeadline(time.Now().Add(answerTime))
			w.Header().Set(escalate.NewsHeader, news)
			w.WriteHeader(http.StatusProcessing)
			w.Header().Del(escalate.NewsHeader)
		case res := <-asked.Done:
			_ = ctl.SetWriteDeadline(time.Now().Add(answerTime))
			e.c.respond(w, res, nil)
			return
		case <-r.Context().Done():
			e.c.broker.Cancel(asked)
			return
		}
	}
}

// readRequest judges the size before anything is read.
func readRequest(r *http.Request) (*escalate.Request, error) {
	switch {
	case r.ContentLength < 0:
		return nil, &wire.Error{Code: wire.CodeBadRequest, Message: "a request says its Content-Length"}
	case r.ContentLength > escalate.MaxRequest:
		return nil, &wire.Error{Code: codeTooLarge, Message: fmt.Sprintf("request has %d bytes, %d are allowed", r.ContentLength, escalate.MaxRequest)}
	}
	data := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, data); err != nil {
		return nil, &wire.Error{Code: wire.CodeBadRequest, Message: "request is not complete"}
	}
	req, err := escalate.DecodeRequest(data)
	if err != nil {
		return nil, &wire.Error{Code: wire.CodeBadRequest, Message: err.Error()}
	}
	return req, nil
}

const codeTooLarge = "too_large"

// respond writes a Response, or an error of the socket's own.
func (c *Coordinator) respond(w http.ResponseWriter, res *escalate.Response, err error) {
	status, v := http.StatusOK, any(res)
	if err != nil {
		code, e := errorBody(err)
		status = code
		switch e.Code {
		case broker.CodeUnknownSession, broker.CodeLostSession, broker.CodeEndedSession, broker.CodeForeignSession, broker.CodeBadSignature:
			status = http.StatusForbidden
		case broker.CodeReplayed:
			status = http.StatusConflict
		case broker.CodeTooMany:
			status = http.StatusTooManyRequests
		case codeTooLarge:
			status = http.StatusRequestEntityTooLarge
		}
		v = e
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // it would make output longer, six times
	if err := enc.Encode(v); err != nil {
		c.log.Error("encode answer", "error", err)
		status = http.StatusInternalServerError
		body.Reset()
		body.WriteString(`{"code":"internal","message":"cannot encode the answer"}`)
	}
	data := body.Bytes()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	w.WriteHeader(status)
	if _, err := w.Write(data); err != nil {
		c.log.Debug("send answer", "error", err)
	}
}

// renewCerts renews what is due.
func (c *Coordinator) renewCerts() {
	c.mu.Lock()
	var due []*escalation
	for _, ct := range c.containers {
		if ct.escalation != nil && ct.escalation.identity.Due() {
			due = append(due, ct.escalation)
		}
	}
	c.mu.Unlock()
	for _, e := range due {
		if err := e.renew(); err != nil {
			c.log.Error("renew a sandbox's certificate", "container", e.sandbox, "error", err)
		}
	}
}

// dropEscalation ends ct's socket. It needs c.mu.
func (c *Coordinator) dropEscalation(ct *container) {
	if ct.escalation == nil {
		return
	}
	if err := ct.escalation.close(true); err != nil {
		c.log.Error("remove the escalation socket of a container", "container", ct.id, "error", err)
	}
	ct.escalation = nil
}

// adoptEscalation serves the socket of a container whose coordinator was killed. The
// container's own session goes on; those of execs were the connections that ended
// with it. It needs c.mu.
func (c *Coordinator) adoptEscalation(ct *container) {
	kept, err := readKept(ct.stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		c.broker.Adopt(ct.id)
		c.mu.Unlock()
		err = c.openEscalation(ct, kept)
		c.mu.Lock()
	}
	if err != nil {
		c.log.Error("serve the escalation socket of a container whose coordinator was killed", "container", ct.id, "error", err)
	}
}

// beginExec lets the session of an exec in ct ask. It needs c.mu.
func (c *Coordinator) beginExec(ct *container, s wire.Session) error {
	if ct.escalation == nil {
		return nil // the container has no socket to ask over
	}
	kind := "exec"
	if s.Owned {
		kind = "run"
	}
	return c.broker.Begin(broker.Session{ID: s.ID, Kind: kind, Sandbox: ct.id, Key: s.PublicKey, Owned: s.Owned}, ct.escalation.rules())
}
