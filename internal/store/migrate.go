package store

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lazaret-dev/lazaret/internal/audit"
)

// schema is the current version. The store of version 0 was two text files.
const schema = 1

// migration brings a store from one version to the next, in the transaction that
// it is given. after removes what the next version does not have any more, once
// that is on the disk; it is called again where it may not have come to its end.
type migration struct {
	do    func(*bbolt.Tx, Options) error
	after func(Options) error
}

func migrations() map[int]migration {
	return map[int]migration{0: {fromFiles, removeFiles}}
}

// migrate brings the store to the current schema in one transaction, or leaves it
// as it was. from is the version that it had.
func migrate(db *bbolt.DB, o Options) (from int, err error) {
	err = db.View(func(tx *bbolt.Tx) (err error) {
		from, err = schemaOf(tx)
		return err
	})
	switch {
	case err != nil:
		return from, err
	case from > schema:
		return from, newer(from)
	case from < schema:
		o.Log.Debug("bring the store to the current schema", "from", from, "to", schema)
		if err := db.Update(func(tx *bbolt.Tx) error { return migrateTx(tx, o, from) }); err != nil {
			return from, fmt.Errorf("bring it from schema %d to %d: %w", from, schema, err)
		}
	}
	for v := range schema {
		o.at()
		if err := migrations()[v].after(o); err != nil {
			return from, fmt.Errorf("remove what schema %d has left: %w", v, err)
		}
	}
	return from, nil
}

func newer(v int) error {
	return fmt.Errorf("it has schema %d, and this program knows none above %d: a newer Lazaret has written it; install that one or a later one", v, schema)
}

func migrateTx(tx *bbolt.Tx, o Options, from int) error {
	for v := from; v < schema; v++ {
		if err := migrations()[v].do(tx, o); err != nil {
			return err
		}
		o.at()
	}
	b, err := tx.CreateBucketIfNotExists([]byte(meta))
	if err != nil {
		return err
	}
	data, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	defer o.at()
	return b.Put([]byte(schemaKey), data)
}

// at lets a test interrupt here.
func (o Options) at() {
	if o.step != nil {
		o.step()
	}
}

// Of schema 0: one JSON object a line. The network's was turned over.
const (
	oldEscalations = "escalations.jsonl"
	oldNetwork     = "network.log"
	oldNetworks    = "network-*.log"
)

func oldFiles(root string) (map[string]string, []string) {
	chain := map[string]string{}
	var all []string
	older, err := fs.Glob(os.DirFS(root), oldNetworks) // in the order of their times
	if err != nil {
		older = nil // only for a bad pattern
	}
	for _, name := range append(older, oldNetwork) {
		path := filepath.Join(root, name)
		chain[path] = audit.Egress
		all = append(all, path)
	}
	path := filepath.Join(root, oldEscalations)
	chain[path] = audit.Main
	return chain, append(all, path)
}

// fromFiles makes the buckets, and takes the lines of the old files over as they
// are. What they tell has no chain from before.
func fromFiles(tx *bbolt.Tx, o Options) error {
	for _, chain := range audit.Chains() {
		if _, err := tx.CreateBucket([]byte(chain)); err != nil {
			return err
		}
		o.at()
	}
	heads := map[string]audit.Head{}
	chains, files := oldFiles(o.Root)
	for _, path := range files {
		if err := fromFile(tx, o, path, chains[path], heads); err != nil {
			return fmt.Errorf("take over %s: %w", path, err)
		}
		o.at()
	}
	return nil
}

func fromFile(tx *bbolt.Tx, o Options, path, chain string, heads map[string]audit.Head) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, audit.MaxPayload)
	for lines.Scan() {
		e, ok := oldEvent(lines.Bytes())
		if !ok {
			o.Log.Warn("a line of an old log is not whole", "file", path)
			continue // as a killed coordinator left it
		}
		if err := put(tx, chain, heads, e); err != nil {
			return err
		}
		o.at()
	}
	return lines.Err()
}

// oldEvent reads a line of either file.
func oldEvent(line []byte) (e audit.Event, ok bool) {
	var old struct {
		Time    time.Time `json:"time"`
		Event   string    `json:"event"`
		Verdict string    `json:"verdict"`
		Session string    `json:"session_id"`
		Sandbox string    `json:"sandbox"`
	}
	var all map[string]any
	if json.Unmarshal(line, &old) != nil || json.Unmarshal(line, &all) != nil || all == nil {
		return e, false
	}
	e = audit.Event{Time: old.Time, Kind: audit.EgressDecision, Verdict: old.Verdict, Session: old.Session, Container: old.Sandbox, Payload: audit.Payload(all)}
	if old.Event != "" {
		e.Kind, e.Verdict = audit.EscalationDecided, old.Event
		if old.Event == "result" {
			e.Kind, e.Verdict = audit.EscalationRun, ""
		}
	}
	return e, true
}

func removeFiles(o Options) error {
	_, files := oldFiles(o.Root)
	for _, path := range files {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		o.at()
	}
	return nil
}
