package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/hostpath"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

// guardPlan is what the guard of the workspace must do, and what of it the
// container sees.
type guardPlan struct {
	masks, readOnly []string // of the workspace: names, or paths relative to it
	covered         []string // masks elsewhere in the container
	// sources are the binds' sources, as config.json spells them, that are the
	// workspace or lie in it, each with its path relative to the workspace.
	sources map[string]string
}

// planGuard turns masks, read-only paths and mounts into a plan.
func (s *shim) planGuard(r *request) (p guardPlan, err error) {
	ws := r.anchor.Workspace
	for _, m := range r.profile.Masks {
		m = inWorkspace(m)
		switch {
		case path.IsAbs(m):
			p.covered = append(p.covered, m)
		case !filepath.IsLocal(m) || path.Clean(m) == ".":
			return p, fmt.Errorf("mask %q of profile %q leads out of the workspace", m, r.profile.Name)
		case ws != "":
			p.masks = append(p.masks, path.Clean(m))
		}
	}
	if ws == "" {
		return p, nil
	}
	// A broad workspace: the domains' own files are not the agent's.
	for _, own := range []string{r.cfg.General.DataRoot, s.env.RuntimeDir} {
		if rel, ok := below(ws, own); ok {
			p.masks = append(p.masks, rel)
		}
	}
	// What decides over the agent: the workspace's own file, and in a broad
	// workspace the user's configuration and the trust store.
	for _, own := range r.cfg.GuardedPaths() {
		if rel, ok := below(ws, own); ok {
			p.readOnly = append(p.readOnly, rel)
		}
	}
	for _, ro := range r.profile.ReadOnly {
		rel := inWorkspace(ro)
		if !filepath.IsLocal(rel) || path.Clean(rel) == "." {
			return p, fmt.Errorf("read_only %q of profile %q: only paths of the workspace can be made read-only: take it out, or mount it with podman run --volume …:ro", ro, r.profile.Name)
		}
		p.readOnly = append(p.readOnly, path.Clean(rel))
	}
	for _, rel := range p.masks {
		if err := noLinkTo(ws, filepath.Dir(rel)); err != nil { // a link of that name is covered too
			return p, fmt.Errorf("mask %s: %w", rel, err)
		}
	}
	for _, rel := range p.readOnly {
		if err := noLinkTo(ws, rel); err != nil {
			return p, fmt.Errorf("%s of the workspace cannot be made read-only: %w", rel, err)
		}
	}
	p.sources, err = r.workspaceSources()
	return p, err
}

// inWorkspace is a profile's path relative to the workspace, where it leads
// there.
func inWorkspace(p string) string {
	if rel, ok := strings.CutPrefix(path.Clean(p), spec.WorkspacePath+"/"); ok {
		return rel
	}
	return p
}

// below is the path of p relative to dir, canonical, if p lies in it, existing
// or not.
func below(dir, p string) (rel string, ok bool) {
	if parent, err := filepath.EvalSymlinks(filepath.Dir(p)); err == nil {
		p = filepath.Join(parent, filepath.Base(p))
	}
	rel, err := filepath.Rel(dir, p)
	return rel, err == nil && filepath.IsLocal(rel) && rel != "."
}

// noLinkTo refuses a path with a symbolic link in it: the guard knows files by
// where they are, and what lies behind the link is elsewhere.
func noLinkTo(ws, rel string) error {
	full := filepath.Join(ws, rel)
	for p := full; p != ws; p = filepath.Dir(p) {
		if fi, err := os.Lstat(p); err == nil && fi.Mode().Type() == fs.ModeSymlink {
			return fmt.Errorf("%s is a symbolic link: put the file or directory itself there", p)
		}
	}
	return nil
}

// workspaceSources finds the binds of the workspace and of what lies in it. One
// of a directory that holds the workspace would be a way around the guard, and is
// refused; read-only it only shows what masks hide, which a profile that allows
// broad workspaces accepts. Directories are told by device and inode: the host
// may have the workspace mounted elsewhere once more.
func (r *request) workspaceSources() (map[string]string, error) {
	above, err := chain(r.anchor.Workspace)
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", r.anchor.Workspace, err)
	}
	ws := above[0]
	holdsWorkspace := func(dir step) bool {
		return slices.ContainsFunc(above, func(a step) bool { return os.SameFile(a.info, dir.info) })
	}
	workspaceIn := func(c []step) int {
		return slices.IndexFunc(c, func(a step) bool { return os.SameFile(a.info, ws.info) })
	}
	root, err := chain(r.inBundle(r.doc.RootPath()))
	if err != nil {
		return nil, fmt.Errorf("root file system of the bundle: %w", err)
	}
	if (holdsWorkspace(root[0]) || workspaceIn(root) >= 0) && !r.doc.RootReadonly() && !r.profile.AllowBroadWorkspace {
		return nil, fmt.Errorf("root file system %s refused: it lies in the workspace %s or holds it, and would be a way around its guard: keep them apart", root[0].path, r.anchor.Workspace)
	}
	bundle, err := chain(r.bundle)
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	sources := map[string]string{}
	for _, m := range r.doc.AskedMounts() {
		if !isBind(m) || spec.IsOwn(m) {
			continue
		}
		mine, err := chain(r.inBundle(m.Source))
		if err != nil {
			return nil, fmt.Errorf("source of the mount at %s: %w", m.Destination, err)
		}
		link, err := linkIn(ws, r.inBundle(m.Source))
		if err != nil {
			return nil, fmt.Errorf("source of the mount at %s: %w", m.Destination, err)
		}
		if workspaceIn(bundle) >= 0 && slices.ContainsFunc(mine, func(a step) bool { return os.SameFile(a.info, bundle[0].info) }) {
			continue // a broad workspace has the engine's own files of this container in it
		}
		if i := workspaceIn(mine); i >= 0 {
			rel, err := filepath.Rel(mine[i].path, mine[0].path)
			if err != nil {
				return nil, fmt.Errorf("source of the mount at %s: %w", m.Destination, err)
			}
			sources[m.Source] = rel
			continue
		}
		if link != "" {
			return nil, fmt.Errorf("mount of %s at %s refused: %s, a symbolic link in the workspace, leads it to %s, and an agent could have made that link: if it is yours, mount %s by its own name", m.Source, m.Destination, link, mine[0].path, mine[0].path)
		}
		if holdsWorkspace(mine[0]) && (!readOnlyMount(m) || !r.profile.AllowBroadWorkspace) {
			return nil, fmt.Errorf("mount of %s at %s refused: it holds the workspace %s and would be a way around its guard: mount only what is needed of it, or read-only with allow_broad_workspace = true in profile %q", m.Source, m.Destination, r.anchor.Workspace, r.profile.Name)
		}
	}
	return sources, nil
}

func readOnlyMount(m specs.Mount) bool {
	return slices.Contains(m.Options, "ro") || slices.Contains(m.Options, "rro")
}

// linkIn is the last symbolic link in the workspace on the way of a path, "" for
// none.
func linkIn(ws step, p string) (link string, err error) {
	_, err = hostpath.Follow(p, func(s *hostpath.Step) error {
		if s.Info != nil && os.SameFile(s.Info, ws.info) {
			s.Path = ws.path // by another mount
		}
		if _, ok := below(ws.path, s.Path); ok && s.Target != "" {
			link = s.Path
		}
		return nil
	})
	return link, err
}

// step is a file and its path.
type step struct {
	path string
	info os.FileInfo
}

// chain is a path without its symbolic links, and all directories above it.
func chain(p string) (steps []step, err error) {
	if p, err = filepath.EvalSymlinks(p); err != nil {
		return nil, err
	}
	for {
		fi, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{p, fi})
		if p == "/" {
			return steps, nil
		}
		p = filepath.Dir(p)
	}
}

// asked are the plan's sources as the coordinator is asked for them.
func (p guardPlan) asked() []string {
	rels := slices.Sorted(maps.Values(p.sources))
	return slices.Compact(rels)
}

// through is what the plan's sources become where the guard shows them.
func (p guardPlan) through(shown map[string]string) (map[string]string, error) {
	to := make(map[string]string, len(p.sources))
	for source, rel := range p.sources {
		if shown[rel] == "" {
			return nil, fmt.Errorf("the coordinator does not show %q of the workspace: it is of another version: end the domain's containers and try again", rel)
		}
		to[source] = shown[rel]
	}
	return to, nil
}

// visible checks that the guard's mount is in our mount namespace too: an engine
// that has begun a new one since, as podman does after a migration, would mount
// the empty directory below.
func visible(guardDir string) error {
	var st unix.Statfs_t
	err := unix.Statfs(guardDir, &st)
	if err == nil && st.Type != unix.FUSE_SUPER_MAGIC {
		err = errors.New("it is not mounted here: the engine has changed its mount namespace since the domain began")
	}
	if err != nil {
		return fmt.Errorf("guard over the workspace at %s: %w: end the domain's containers and try again", guardDir, err)
	}
	return nil
}

// bindsOf are the coordinator's further mounts, for the plan.
func bindsOf(all []wire.Bind) []spec.Bind {
	out := make([]spec.Bind, 0, len(all))
	for _, b := range all {
		out = append(out, spec.Bind{Source: b.Source, Destination: b.Destination, ReadOnly: b.ReadOnly})
	}
	return out
}
