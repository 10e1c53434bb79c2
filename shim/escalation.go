package shim

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/sessionkey"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// escalation asks in req for an Escalation Socket, where the profile has one, and
// returns the variables by which the container's process is a Client Session.
func (s *shim) escalation(r *request, req *wire.PrepareRequest) (env []string, err error) {
	e := r.profile.Escalation
	if !e.Enabled {
		return nil, nil
	}
	session, key, err := s.newSession(r.doc.Env())
	if err != nil {
		return nil, err
	}
	req.Escalation = &wire.Escalation{AutoApprove: e.AutoApprove, Timeout: e.Timeout, Session: session}
	if e.SocketDir != "" {
		req.Escalation.SocketDir = filepath.Clean(e.SocketDir)
	}
	return []string{sessionkey.EnvID + "=" + session.ID, sessionkey.EnvAnchor + "=" + sessionkey.Encode(key)}, nil
}

// execSession is the session of an exec, and its key where it may escalate.
func (s *shim) execSession(st *containerstate.State) (wire.Session, ed25519.PrivateKey, error) {
	if s.cmd.Process == "" {
		return wire.Session{ID: uuid.NewString()}, nil, nil
	}
	data, _, err := readProcessFile(s.cmd.Process)
	if err != nil {
		return wire.Session{}, nil, err
	}
	var p struct {
		Env []string `json:"env"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return wire.Session{}, nil, fmt.Errorf("process file %s: %w", s.cmd.Process, err)
	}
	session, key, err := s.newSession(p.Env)
	if !st.Escalation {
		session.PublicKey, session.Owned, key = nil, false, nil
	}
	return session, key, err
}

// newSession makes a Session Anchor, or takes the one that lazaret run left for the
// session that env names. An image cannot name one: its id is random, and taken
// within the same call.
func (s *shim) newSession(env []string) (wire.Session, ed25519.PrivateKey, error) {
	id := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, sessionkey.EnvID+"="); ok {
			id = v
		}
	}
	key, owned, err := sessionkey.Take(s.env.RuntimeDir, id)
	if errors.Is(err, sessionkey.ErrNone) {
		id = uuid.NewString()
		key, err = sessionkey.New()
	}
	if err != nil {
		return wire.Session{}, nil, err
	}
	return wire.Session{ID: id, PublicKey: sessionkey.Public(key), Owned: owned}, key, nil
}
