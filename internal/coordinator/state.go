package coordinator

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/stateanchor"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// state is what is mounted of the domain's kept directories.
type state struct {
	*stateanchor.Anchor
	req wire.State // what it was mounted for
	key string     // of the image
}

// checkState refuses a request that would lead the mounts astray.
func (c *Coordinator) checkState(req *wire.PrepareRequest) error {
	if (req.State != nil || len(req.Persist) > 0) && c.spec.Domain.Workspace == "" {
		return errors.New("a domain without a workspace keeps nothing")
	}
	if s := req.State; s != nil {
		if err := stateanchor.CheckPaths(s.Paths); err != nil {
			return err
		}
		for _, p := range []string{s.RootFS, s.Tree} {
			if p != "" && !filepath.IsAbs(p) || s.RootFS == "" || len(s.Paths) == 0 {
				return fmt.Errorf("root file system %q or image tree %q is not an absolute path, or there is no state path", s.RootFS, s.Tree)
			}
		}
		for _, t := range s.Targets {
			if !path.IsAbs(t.Path) || path.Clean(t.Path) != t.Path {
				return fmt.Errorf("mount target %q is not a clean absolute path", t.Path)
			}
		}
	}
	for _, p := range req.Persist {
		if err := stateanchor.CheckPersist(p.Path); err != nil {
			return err
		}
		if p.UID < 0 || p.GID < 0 {
			return fmt.Errorf("owner %d:%d of %s", p.UID, p.GID, p.Path)
		}
	}
	return nil
}

// kept has the state mounted as req asks before ct may be created, and returns
// its mounts, the persist folders, and what the developer should know. All
// containers that live at one time share one mount of each path, over one image.
// It needs c.guarding, not c.mu, and comes after guarded.
func (c *Coordinator) kept(ctx context.Context, ct *container, req *wire.PrepareRequest) (binds, persist []wire.Bind, notes []string, err error) {
	c.mu.Lock()
	var others []string
	for id := range c.containers {
		if id != ct.id {
			others = append(others, id)
		}
	}
	old := c.state
	c.mu.Unlock()
	slices.Sort(others)
	s, err := c.sharedState(req.State, old, others)
	if err != nil {
		return nil, nil, nil, err
	}
	if s == nil {
		if err := c.dropState(); err != nil {
			return nil, nil, nil, refused("state: %w", err)
		}
		if req.State != nil {
			if s, err = c.openState(ctx, req.State); err != nil {
				return nil, nil, nil, refused("state: %w", err)
			}
			notes = s.Notes
			c.mu.Lock()
			c.state = s
			c.mu.Unlock()
			s.Watch(func(path, words string) { c.stateEnded(s, path, words) })
			c.log.Info("state mounted", "driver", s.Record.Driver, "image", s.Record.Image.String(), "paths", req.State.Paths, "notes", notes)
		}
	}
	if s != nil {
		if err := s.MakeTargets(targets(req.State.Targets)); err != nil {
			return nil, nil, nil, refused("state: %w", err)
		}
		for _, b := range s.Binds {
			binds = append(binds, wire.Bind{Source: b.Source, Destination: b.Destination})
		}
	}
	for _, p := range req.Persist {
		dir, err := stateanchor.MakePersist(filepath.Dir(filepath.Dir(c.spec.Domain.Root)), c.spec.Domain.Profile, p.Path, p.UID, p.GID)
		if err != nil {
			return nil, nil, nil, refused("persist %s: %w", p.Path, err)
		}
		persist = append(persist, wire.Bind{Source: dir, Destination: p.Path})
	}
	return binds, persist, notes, nil
}

// stateEnded tells of a fuse-overlayfs that has ended by itself: its mount stays,
// dead, and each access to it fails.
func (c *Coordinator) stateEnded(s *state, path, words string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != s {
		return // it was unmounted, or left to others
	}
	c.record(audit.Event{Kind: audit.GuardChanged, Verdict: wire.GuardDead}, facts{"guard": "state", "path": path, "reason": words, "containers": len(c.containers)})
	c.log.Error("a fuse-overlayfs has ended: the sandboxes are cut off from what is kept", "path", path, "said", words, "containers", len(c.containers))
}

// sharedState is the mounted state if it is what want asks for, nil if it may be
// mounted anew, and an error while others use another.
func (c *Coordinator) sharedState(want *wire.State, old *state, others []string) (*state, error) {
	if want == nil || old == nil {
		if len(others) > 0 && (want == nil) != (old == nil) {
			return nil, refused("state_paths of profile %q have changed since container %.12s was made: end it first", c.spec.Domain.Profile, others[0])
		}
		return nil, nil
	}
	key, err := imageKey(want)
	if err != nil {
		return nil, refused("state: %w", err)
	}
	alive := old.Alive()
	same := old.key == key && slices.Equal(old.req.Paths, want.Paths) && old.req.IDMap == want.IDMap && old.req.Driver == want.Driver
	if alive && same {
		return old, nil
	}
	if len(others) == 0 {
		return nil, nil
	}
	switch {
	case !alive:
		return nil, refused("its fuse-overlayfs has ended, and its sandboxes are cut off from what is kept: end container %.12s first", others[0])
	case old.key != key:
		return nil, refused("container %.12s of this domain runs over image %s, and what is kept can lie over one image at a time: end it first, or use another profile", others[0], old.Record.Image)
	case old.req.IDMap != want.IDMap:
		return nil, refused("container %.12s of this domain has another user namespace: use the same --userns, or end it first", others[0])
	}
	return nil, refused("state_paths or state_driver of profile %q have changed since container %.12s was made: end it first", c.spec.Domain.Profile, others[0])
}

func imageKey(s *wire.State) (string, error) {
	if s.ImageID != "" {
		return s.ImageID, nil
	}
	layers, err := stateanchor.Layers(s.RootFS, s.Tree)
	return strings.Join(layers, ":"), err
}

func (c *Coordinator) openState(ctx context.Context, req *wire.State) (*state, error) {
	layers, err := stateanchor.Layers(req.RootFS, req.Tree)
	if err != nil {
		return nil, err
	}
	image := stateanchor.Image{Name: req.ImageName, ID: req.ImageID, Digest: req.ImageDigest, Layers: layers}
	a, err := stateanchor.Open(ctx, stateanchor.Options{
		Root: c.spec.Domain.Root, Paths: req.Paths, Driver: req.Driver, Image: image,
		Workspace: c.spec.Domain.Workspace, IDMap: req.IDMap,
	})
	if err != nil {
		return nil, err
	}
	return &state{Anchor: a, req: *req, key: image.Key()}, nil
}

func targets(all []wire.Target) []stateanchor.Target {
	out := make([]stateanchor.Target, 0, len(all))
	for _, t := range all {
		out = append(out, stateanchor.Target{Path: t.Path, Dir: t.Dir, Own: t.Own})
	}
	return out
}

// dropState unmounts the state, a killed predecessor's too. It needs c.guarding,
// not c.mu.
func (c *Coordinator) dropState() error {
	c.mu.Lock()
	s := c.state
	c.state = nil
	c.mu.Unlock()
	var err error
	if s != nil {
		err = s.Close()
	}
	return errors.Join(err, stateanchor.Clean(c.spec.Domain.Root))
}

// leaveState lets sandboxes that live on keep the kernel's mounts: unmounted here
// they would still write to the changes, and nobody would know. It needs
// c.guarding, not c.mu.
func (c *Coordinator) leaveState() error {
	c.mu.Lock()
	s := c.state
	c.state = nil
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.Abandon()
}

// stateStatus needs c.mu.
func (c *Coordinator) stateStatus() *wire.StateStatus {
	if c.state == nil {
		return nil
	}
	return &wire.StateStatus{Driver: c.state.Record.Driver, Image: c.state.Record.Image.String(), Paths: c.state.req.Paths, Alive: c.state.Alive()}
}
