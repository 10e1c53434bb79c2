package review

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
)

const (
	// version is that of the record's format.
	version = 1
	// maxRecord bounds a record that is read, in bytes.
	maxRecord = 256 << 20
)

// ErrNone means that no session has had the working tree yet.
var ErrNone = errors.New("no session has had this workspace yet")

// File is the record of a working tree in a Domain Root: of the workspace itself, or
// of the agent's own worktree.
func File(domainRoot string, branch bool) string {
	name := "workspace.json"
	if branch {
		name = "branch.json"
	}
	return filepath.Join(domainRoot, "review", name)
}

// record is what is kept of a working tree in the Domain Root.
type record struct {
	Version int       `json:"version"`
	Tree    string    `json:"tree"`
	Taken   time.Time `json:"taken"`
	// Open tells that an agent has the tree, or had it when its coordinator was
	// killed: whatever differs from Base may be its work.
	Open bool `json:"open"`
	// Base is how the tree was before the agent had it.
	Base map[string]Fact `json:"base"`
	// Pending are the paths that differed from Base when the agent's last session
	// ended. They keep their Base until they are accepted or as they were.
	Pending    []string `json:"pending"`
	Incomplete string   `json:"incomplete,omitempty"`
	// Placed are the paths that git's configuration named then, there or not.
	Placed []string `json:"placed,omitempty"`
	// Rules are the kinds and reasons of Base, one "kind: reason" each.
	Rules []string `json:"rules"`
}

// Report is what a person should know.
type Report struct {
	Tree  string    `json:"tree"`
	Since time.Time `json:"since"` // when the baseline was taken
	// Live tells that an agent may have the tree now.
	Live     bool      `json:"live"`
	Findings []Finding `json:"findings"`
	// Incomplete is why something is not known, "" for nothing.
	Incomplete string `json:"incomplete,omitempty"`
	// Unread are directories that could not be looked into.
	Unread []string `json:"unread,omitempty"`
}

// encode makes a path fit for JSON: bytes that are no UTF-8 would be lost. No path
// begins with a zero byte.
func encode(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return "\x00" + strconv.QuoteToASCII(s)
}

func decode(s string) string {
	if quoted, is := strings.CutPrefix(s, "\x00"); is {
		if plain, err := strconv.Unquote(quoted); err == nil {
			return plain
		}
	}
	return s
}

// convert has f applied to all text that came from names.
func (r *record) convert(f func(string) string) *record {
	out := *r
	out.Base = make(map[string]Fact, len(r.Base))
	for p, fact := range r.Base {
		fact.Link = f(fact.Link)
		if fact.Parts != nil {
			parts := make(map[string]string, len(fact.Parts))
			for k, v := range fact.Parts {
				parts[f(k)] = v
			}
			fact.Parts = parts
		}
		out.Base[f(p)] = fact
	}
	out.Pending = make([]string, 0, len(r.Pending))
	for _, p := range r.Pending {
		out.Pending = append(out.Pending, f(p))
	}
	out.Placed = nil
	for _, p := range r.Placed {
		out.Placed = append(out.Placed, f(p))
	}
	return &out
}

func (r *record) save(file string) error {
	out := r.convert(encode)
	out.Version, out.Rules = version, nil
	index := map[string]int{}
	for p, f := range out.Base {
		name := f.Kind + ": " + f.Why
		i, there := index[name]
		if !there {
			i = len(out.Rules)
			index[name], out.Rules = i, append(out.Rules, name)
		}
		f.Rule = i
		out.Base[p] = f
	}
	data, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("record the state of %s: %w", r.Tree, err)
	}
	if err := atomicfile.Write(file, data, 0o600, true); err != nil {
		return err
	}
	if err := os.Remove(reopened(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record before: %w", err)
	}
	return nil
}

// reopened is the name of a record that could not be written anew at a beginning,
// as on a full disk: it counts as open, whatever it says. The record itself is
// newer where both are there.
func reopened(file string) string { return file + ".open" }

// Exists tells whether there is a record.
func Exists(file string) bool {
	for _, name := range []string{file, reopened(file)} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// load reads a record; ErrNone where there is none.
func load(file string) (*record, error) {
	r, err := loadFile(file)
	if errors.Is(err, ErrNone) {
		if r, err = loadFile(reopened(file)); err == nil {
			r.Open = true
		}
	}
	return r, err
}

func loadFile(file string) (*record, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("read what is known of the workspace: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	r, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w: remove it; the next start takes a new baseline", file, err)
	}
	return r, nil
}

func parse(data []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Version != version {
		return nil, fmt.Errorf("version %d, not %d", r.Version, version)
	}
	out := r.convert(decode)
	for p, f := range out.Base {
		if f.Rule < 0 || f.Rule >= len(r.Rules) {
			return nil, fmt.Errorf("rule %d of %q is not there", f.Rule, p)
		}
		f.Kind, f.Why, _ = strings.Cut(r.Rules[f.Rule], ": ")
		f.Rule = 0
		out.Base[p] = f
	}
	return out, nil
}

// Begin notes how a tree is before an agent gets it. What an earlier session has
// changed, and nobody has accepted, stays known as changed. It must have returned
// before the agent can write.
func Begin(ctx context.Context, file string, o Options) error {
	unlock, err := atomicfile.LockDirContext(ctx, filepath.Dir(file))
	if err != nil {
		return err
	}
	defer unlock()
	old, err := load(file)
	damaged := ""
	switch {
	case errors.Is(err, ErrNone):
	case err != nil:
		damaged = "what was known of earlier sessions was damaged: " + err.Error()
	default:
		o.Known, o.Placed = old.Base, old.Placed
	}
	snap, err := Take(ctx, o)
	if err != nil {
		return err
	}
	if old != nil && old.Open && snap.Incomplete != "" {
		return nil // what the last session has changed is not known: all that differs from the older baseline counts
	}
	r := &record{Tree: o.Tree, Taken: snap.Taken, Open: true, Base: snap.Facts, Placed: snap.Placed, Incomplete: cmp.Or(snap.Incomplete, damaged)}
	if old != nil {
		r.Pending = old.Pending
		if old.Open {
			r.Pending = slices.Sorted(maps.Keys(old.diff(snap)))
			old.keepUnread(r.Base, snap)
		}
		for _, p := range r.Pending {
			if f, there := old.Base[p]; there {
				r.Base[p] = f
			} else {
				delete(r.Base, p)
			}
		}
	}
	err = r.save(file)
	if old != nil && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) {
		// The agent may be what frees the space: all that differs from the older
		// baseline counts then. A new name takes no room.
		if err = os.Rename(file, reopened(file)); errors.Is(err, fs.ErrNotExist) {
			return nil // it has that name already
		}
	}
	return err
}

// End notes what has changed since Begin; no error where nothing was begun, or it
// was ended before.
func End(ctx context.Context, file string, o Options) error {
	if !Exists(file) {
		return nil
	}
	unlock, err := atomicfile.LockDirContext(ctx, filepath.Dir(file))
	if err != nil {
		return err
	}
	defer unlock()
	r, err := load(file)
	if err != nil || !r.Open {
		return err
	}
	o.SetID, o.Known, o.Placed = true, r.Base, r.Placed
	snap, err := Take(ctx, o)
	if err != nil {
		return err
	}
	if snap.Incomplete != "" {
		return fmt.Errorf("look at what has changed in %s: %s", o.Tree, snap.Incomplete) // stays open: all that differs counts
	}
	for _, p := range slices.Sorted(maps.Keys(snap.Facts)) {
		if _, before := r.Base[p]; snap.Facts[p].Why == whyShut && !before {
			return fmt.Errorf("look at what has changed in %s: %q cannot be listed", o.Tree, p) // the same
		}
	}
	r.Open, r.Pending = false, slices.Sorted(maps.Keys(r.diff(snap)))
	return r.save(file)
}

// Look tells what an agent has changed in a tree and nobody has accepted; ErrNone
// where no session has had it.
func Look(ctx context.Context, file string, o Options) (*Report, error) {
	r, err := load(file)
	if err != nil {
		return nil, err
	}
	rep, _, err := r.look(ctx, o)
	return rep, err
}

func (r *record) look(ctx context.Context, o Options) (*Report, *Snapshot, error) {
	o.SetID, o.Known, o.Placed = true, r.Base, r.Placed
	snap, err := Take(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	return &Report{
		Tree: o.Tree, Since: r.Taken, Live: r.Open, Findings: findings(r.diff(snap)),
		Incomplete: cmp.Or(snap.Incomplete, r.Incomplete), Unread: snap.Unread,
	}, snap, nil
}

// Accept takes a tree as it is for the new baseline, and returns what that accepts.
func Accept(ctx context.Context, file string, o Options) (*Report, error) {
	if !Exists(file) {
		return nil, ErrNone
	}
	unlock, err := atomicfile.LockDirContext(ctx, filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := load(file)
	if err != nil {
		return nil, err
	}
	rep, snap, err := r.look(ctx, o)
	if err != nil {
		return nil, err
	}
	if snap.Incomplete != "" {
		return nil, fmt.Errorf("accept: %s", snap.Incomplete)
	}
	r.keepUnread(snap.Facts, snap)
	r.Base, r.Placed, r.Taken, r.Pending, r.Incomplete = snap.Facts, snap.Placed, snap.Taken, nil, ""
	return rep, r.save(file)
}

// keepUnread keeps in a new baseline what is known of directories that a snapshot
// could not look into.
func (r *record) keepUnread(base map[string]Fact, snap *Snapshot) {
	for p, f := range r.Base {
		if under(p, snap.Unread) {
			base[p] = f
		}
	}
}

// Pending counts what differed when the last session ended and was not accepted; 0
// where none has been. open tells that a session lasts, or that its end was not
// noted, so that nobody has counted.
func Pending(file string) (n int, open bool, err error) {
	r, err := load(file)
	if errors.Is(err, ErrNone) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return len(r.Pending), r.Open, nil
}
