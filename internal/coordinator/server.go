package coordinator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/coordinator/broker"
	"github.com/lazaret-dev/lazaret/internal/version"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

func (c *Coordinator) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+wire.PathStatus, func(w http.ResponseWriter, _ *http.Request) {
		st := c.status()
		st.Program = version.String("lazaret-coordinator")
		c.answer(w, st, nil)
	})
	mux.HandleFunc("POST "+wire.PathPrepare, func(w http.ResponseWriter, r *http.Request) {
		var req wire.PrepareRequest
		if err := decode(r, &req, &req.Version); err != nil {
			c.answer(w, nil, err)
			return
		}
		peer, err := requestProcess(r)
		if err != nil {
			c.answer(w, nil, err)
			return
		}
		res, err := c.prepareRecorded(r.Context(), &req, peer)
		if err != nil {
			c.giveUp()
		}
		c.answer(w, res, err)
	})
	mux.HandleFunc("POST "+wire.PathAttach, func(w http.ResponseWriter, r *http.Request) {
		var req wire.AttachRequest
		err := decode(r, &req, &req.Version)
		if err == nil {
			err = c.attachRequest(&req)
		}
		c.answer(w, wire.Empty{}, err)
	})
	mux.HandleFunc("POST "+wire.PathRelease, func(w http.ResponseWriter, r *http.Request) {
		var req wire.ReleaseRequest
		var res wire.ReleaseResponse
		err := decode(r, &req, &req.Version)
		if err == nil {
			res = c.release(req.ContainerID)
		}
		c.answer(w, res, err)
	})
	mux.HandleFunc("POST "+wire.PathSessions, c.serveSession)
	mux.HandleFunc("POST "+wire.PathDesk, c.serveDesk)
	c.networkRoutes(mux)
	c.auditRoutes(mux)
	mux.HandleFunc("POST "+wire.PathHold, c.serveHold)
	return mux
}

// serveSession answers and then keeps the connection: it is the session.
func (c *Coordinator) serveSession(w http.ResponseWriter, r *http.Request) {
	var req wire.SessionRequest
	if err := decode(r, &req, &req.Version); err != nil {
		c.answer(w, nil, err)
		return
	}
	if _, err := uuid.Parse(req.SessionID); err != nil || (req.Kind != "exec" && req.Kind != "run") ||
		(req.ContainerID != "" && !containerstate.ValidID(req.ContainerID)) {
		c.answer(w, nil, &wire.Error{Code: wire.CodeBadRequest, Message: "session_id must be a UUID, kind exec or run, container_id a container's"})
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		c.answer(w, nil, fmt.Errorf("take over the connection: %w", err))
		return
	}
	s := &session{conn: conn, SessionStatus: wire.SessionStatus{
		ID: req.SessionID, Kind: req.Kind, ContainerID: req.ContainerID, Terminal: req.Terminal, Since: time.Now(),
	}, key: wire.Session{ID: req.SessionID, PublicKey: req.PublicKey, Owned: req.Owned}}
	s.PID = peerPID(r)
	added := c.addSession(s)
	err = answerHijacked(conn, rw, added)
	if added != nil || err != nil {
		if added == nil {
			c.endSession(s.ID)
		}
		_ = conn.Close() // refused, or gone before it began
		return
	}
	// Nothing is expected; whatever arrives is dropped until the end comes.
	_, _ = io.Copy(io.Discard, rw)
	c.endSession(s.ID)
}

// answerHijacked answers {} or err, and leaves conn without deadlines.
func answerHijacked(conn net.Conn, rw *bufio.ReadWriter, failed error) error {
	status, body := http.StatusOK, any(wire.Empty{})
	if failed != nil {
		status, body = errorBody(failed)
	}
	data, err := json.Marshal(body)
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second)) // unix sockets take deadlines
		_, _ = fmt.Fprintf(rw, "HTTP/1.0 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(data), data)
		err = rw.Flush()
	}
	return errors.Join(err, conn.SetDeadline(time.Time{}))
}

// serveDesk answers and then keeps the connection: it is the desk.
func (c *Coordinator) serveDesk(w http.ResponseWriter, r *http.Request) {
	var req wire.DeskRequest
	err := decode(r, &req, &req.Version)
	if err == nil {
		err = broker.CheckDesk(&req)
	}
	if err == nil {
		err = c.openTerminal(&req)
	}
	if err != nil {
		c.answer(w, nil, err)
		return
	}
	defer c.closeTerminal(&req)
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		c.answer(w, nil, fmt.Errorf("take over the connection: %w", err))
		return
	}
	pid := peerPID(r)
	if err := answerHijacked(conn, rw, nil); err != nil {
		_ = conn.Close() // gone before it began
		return
	}
	c.log.Info("desk opened", "kind", req.Kind, "session", req.SessionID, "pid", pid)
	// What the client sent with its request is in rw.
	err = c.broker.Serve(context.WithoutCancel(r.Context()), deskConn{conn, rw.Reader}, &req, pid)
	c.log.Info("desk closed", "kind", req.Kind, "session", req.SessionID, "pid", pid, "error", err)
}

// openTerminal counts the desk of a lazaret run: the domain is in use while it is
// open, whether its sandbox is there yet or not.
func (c *Coordinator) openTerminal(req *wire.DeskRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return &wire.Error{Code: wire.CodeClosing, Message: "coordinator is closing"}
	}
	if req.Kind == wire.DeskRun {
		c.terminals++
		c.used = true
	}
	return nil
}

func (c *Coordinator) closeTerminal(req *wire.DeskRequest) {
	if req.Kind != wire.DeskRun {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.terminals--
	c.poke()
}

type deskConn struct {
	net.Conn
	in io.Reader
}

func (d deskConn) Read(p []byte) (int, error) { return d.in.Read(p) }

// peerPID is the pid of the process that sent r, 0 where it is not known.
func peerPID(r *http.Request) int {
	if uc, ok := peerConn(r.Context()); ok {
		if cred, err := wire.PeerCred(uc); err == nil {
			return int(cred.Pid)
		}
	}
	return 0
}

// requestProcess opens the process that sent r.
func requestProcess(r *http.Request) (*proc.Process, error) {
	uc, ok := peerConn(r.Context())
	if !ok {
		return nil, errors.New("request did not come over the control socket")
	}
	cred, err := wire.PeerCred(uc)
	if err != nil {
		return nil, err
	}
	if cred.Pid <= 0 {
		return nil, &wire.Error{Code: wire.CodeBadRequest, Message: "the calling process is in a pid namespace that the coordinator cannot see: run the engine in the one that started it"}
	}
	return proc.Peer(uc, int(cred.Pid))
}

// decode reads one JSON object of the protocol's version, strictly.
func decode(r *http.Request, v any, ver *int) error {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, wire.MaxBody))
	if err == nil {
		err = wire.Decode(data, v)
	}
	if err != nil {
		return &wire.Error{Code: wire.CodeBadRequest, Message: fmt.Sprintf("request body: %v", err)}
	}
	if *ver != wire.Version {
		return &wire.Error{Code: wire.CodeBadVersion, Message: fmt.Sprintf("protocol version %d is not spoken here, only %d: reinstall Lazaret so that its programs are of one version, and end the domain's containers", *ver, wire.Version)}
	}
	return nil
}

func errorBody(err error) (status int, body *wire.Error) {
	e := &wire.Error{}
	if !errors.As(err, &e) {
		e = &wire.Error{Code: wire.CodeInternal, Message: err.Error()}
	}
	switch e.Code {
	case wire.CodeBadRequest, wire.CodeBadVersion:
		status = http.StatusBadRequest
	case wire.CodeUnknown:
		status = http.StatusNotFound
	case wire.CodeClosing:
		status = http.StatusServiceUnavailable
	case wire.CodeRefused, wire.CodeDomainMismatch:
		status = http.StatusConflict
	default:
		status = http.StatusInternalServerError
	}
	return status, e
}

// answer writes v, or err as its own kind of body. The length is always said:
// the shim's client needs it.
func (c *Coordinator) answer(w http.ResponseWriter, v any, err error) {
	status := http.StatusOK
	if err != nil {
		status, v = errorBodyAny(err)
		c.log.Warn("request refused", "error", err)
	}
	data, merr := json.Marshal(v)
	if merr != nil {
		c.log.Error("encode answer", "error", merr)
		status, data = http.StatusInternalServerError, []byte(`{"code":"internal","message":"cannot encode the answer"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	w.WriteHeader(status)
	if _, err := w.Write(data); err != nil {
		c.log.Debug("send answer", "error", err)
	}
}

func errorBodyAny(err error) (int, any) {
	status, e := errorBody(err)
	return status, e
}
