// Package install owns the registration of Lazaret with the engines: what lazaret
// init writes, what it leaves alone and how it takes it back.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	dropin "github.com/lazaret-dev/lazaret/containers.conf.d"
	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/podmanconf"
)

// Scope says for whom Lazaret is registered.
type Scope string

// The scopes.
const (
	User   Scope = "user"   // the caller's rootless podman
	System Scope = "system" // everybody's podman on this machine
)

// ErrEdited is in the chain of the error about a file that lazaret init did not
// write, or that somebody has changed since.
var ErrEdited = errors.New("not as lazaret init wrote it")

// Host is the machine as the installer sees it; tests replace parts of it.
type Host struct {
	Layout     podmanconf.Layout
	UID        int                                       // of the caller
	Executable func() (string, error)                    // path of the running lazaret
	Podman     func(ctx context.Context) (string, error) // what podman --version prints; fs.ErrNotExist in the chain when there is none
}

// Options is what the user asked for.
type Options struct {
	Scope         Scope  // "" chooses: System for root, else User
	RuntimePath   string // "" looks beside the running executable
	PodmanVersion string // "" asks podman
	Uninstall     bool
	Force         bool // also where the file is edited or foreign: a copy of it is kept
}

// Action is what a change does to the drop-in.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	Remove Action = "remove"
	Keep   Action = "keep" // there is nothing to do
)

// Change is the work found by Plan. Nothing is touched before Apply.
type Change struct {
	Scope         Scope
	Engine        Engine // "" for podman
	Path          string // of the drop-in
	Action        Action
	Before, After []byte // nil where there is no file
	Runtime       string // absolute path of lazaret-runtime; "" when uninstalling
	Notes         []string

	backup bool
	layout podmanconf.Layout
	podman podmanconf.Version
}

// Plan finds out what has to be done. It reads only.
func Plan(ctx context.Context, h Host, o Options) (*Change, error) {
	c := &Change{Scope: o.Scope, layout: h.Layout}
	if c.Scope == "" {
		c.Scope = User
		if h.UID == 0 {
			c.Scope = System
		}
	}
	switch c.Scope {
	case User:
		dir := h.Layout.UserDropins()
		if dir == "" {
			return nil, errors.New("no home directory to register in: set HOME or XDG_CONFIG_HOME, or use --scope system")
		}
		c.Path = filepath.Join(dir, dropin.FileName)
	case System:
		c.Path = filepath.Join(h.Layout.SystemDropins(), dropin.FileName)
		c.layout.ConfigHome = "" // nothing of one user's may go into everybody's lists
	default:
		return nil, fmt.Errorf("scope %q: want user or system", c.Scope)
	}
	if err := c.readBefore(o.Force); err != nil {
		return nil, err
	}
	if o.Uninstall {
		c.Action = Remove
		if c.Before == nil && !c.backup {
			c.Action = Keep
		}
		return c, nil
	}
	if err := c.findRuntime(h, o.RuntimePath); err != nil {
		return nil, err
	}
	if err := c.findPodman(ctx, h, o.PodmanVersion); err != nil {
		return nil, err
	}
	if c.Scope == User && h.UID == 0 && !c.podman.AtLeast(5, 0) {
		c.note("podman before 5.0 reads no user's configuration when root runs it: use --scope system")
	}
	if err := c.render(); err != nil {
		return nil, err
	}
	switch {
	case c.Before == nil && !c.backup:
		c.Action = Create
	case !c.backup && string(c.Before) == string(c.After):
		c.Action = Keep
	default:
		c.Action = Update
	}
	if o := c.layout.Override(); o != "" {
		c.note("CONTAINERS_CONF=%s is set: podman reads that file alone and not %s", o, c.Path)
	}
	return c, nil
}

func (c *Change) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// readBefore reads the drop-in as it is and refuses one that is a person's.
func (c *Change) readBefore(force bool) error {
	fi, err := os.Lstat(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the drop-in: %w", err)
	}
	origin := dropin.Foreign
	if fi.Mode().IsRegular() {
		if c.Before, err = os.ReadFile(c.Path); err != nil {
			return fmt.Errorf("read the drop-in: %w", err)
		}
		origin = dropin.Inspect(c.Before)
	}
	switch {
	case origin == dropin.Intact:
		return nil
	case fi.IsDir():
		return fmt.Errorf("%s is %w: it is a directory: move it away", c.Path, ErrEdited)
	case force:
		c.backup = true
		return nil
	}
	return fmt.Errorf("%s is %w: left alone; move your changes into a file that is read later (60-local.conf) and remove this one, or give --force to replace it and keep a copy", c.Path, ErrEdited)
}

func (c *Change) findRuntime(h Host, path string) error {
	if path == "" {
		exe, err := h.Executable()
		if err != nil {
			return fmt.Errorf("find lazaret-runtime: %w", err)
		}
		// A link in some bin directory may point into the installation.
		if exe, err = filepath.EvalSymlinks(exe); err != nil {
			return fmt.Errorf("find lazaret-runtime: %w", err)
		}
		path = filepath.Join(filepath.Dir(exe), "lazaret-runtime")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("find lazaret-runtime: %w", err)
	}
	if err := fixedpath.Check(path); err != nil {
		if errors.Is(err, fixedpath.ErrNotFound) {
			return fmt.Errorf("%w: install it beside lazaret or name it with --runtime-path", err)
		}
		return err
	}
	c.Runtime = path
	return nil
}

func (c *Change) findPodman(ctx context.Context, h Host, given string) error {
	if given == "" {
		out, err := h.Podman(ctx)
		if errors.Is(err, fs.ErrNotExist) {
			c.note("podman is not installed: the lists are written in full, as every version of it can read them")
			return nil
		}
		if err != nil {
			return fmt.Errorf("ask podman for its version: %w; give it with --podman-version", err)
		}
		given = out
	}
	v, err := podmanconf.ParseVersion(given)
	if err != nil {
		return err
	}
	c.podman = v
	return nil
}

// render computes the new content. Where podman cannot append, the lists are
// those that it would have without our file, and lazaret.
func (c *Change) render() error {
	v := dropin.Values{RuntimePath: c.Runtime, Append: c.podman.Appends()}
	if v.Append {
		v.JSON, v.NoCgroups = []string{dropin.RuntimeName}, []string{dropin.RuntimeName}
	} else {
		l := c.layout
		l.Getenv = nil // what CONTAINERS_CONF says passes, the file stays
		files, err := l.Files(c.Path)
		if err != nil {
			return err
		}
		e, err := podmanconf.Load(files[:slices.Index(files, c.Path)], c.podman)
		if err != nil {
			return err
		}
		v.JSON, v.NoCgroups = with(e.JSON), with(e.NoCgroups)
	}
	var err error
	c.After, err = dropin.Render(v)
	return err
}

func with(names []string) []string {
	if slices.Contains(names, dropin.RuntimeName) {
		return names
	}
	return slices.Concat(names, []string{dropin.RuntimeName})
}

// Apply does the work. It returns the path of the copy that it kept of a
// person's file, "" if there was none.
func (c *Change) Apply() (backup string, err error) {
	if c.Action == Keep {
		return "", nil
	}
	if c.backup {
		if backup, err = keepCopy(c.Path); err != nil {
			return "", err
		}
	}
	if c.Action == Remove {
		if c.backup {
			return backup, nil // moved away already
		}
		if err := os.Remove(c.Path); err != nil {
			return backup, c.explain("remove the drop-in", err)
		}
		return backup, nil
	}
	// podman runs as other users than the one who writes.
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o755); err != nil { //nolint:gosec // everybody's podman reads it
		return backup, c.explain("make the drop-in's directory", err)
	}
	if err := atomicfile.Write(c.Path, c.After, 0o644, true); err != nil {
		return backup, c.explain("write the drop-in", err)
	}
	return backup, nil
}

func (c *Change) explain(what string, err error) error {
	if errors.Is(err, fs.ErrPermission) && c.Engine != "" {
		return fmt.Errorf("%s: %w: run it with sudo", what, err)
	}
	if errors.Is(err, fs.ErrPermission) && c.Scope == System {
		return fmt.Errorf("%s: %w: run it with sudo, or use --scope user", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// keepCopy moves path to the first free name that podman does not read.
func keepCopy(path string) (string, error) {
	for i := 1; ; i++ {
		bak := path + ".bak"
		if i > 1 {
			bak += "." + strconv.Itoa(i)
		}
		_, err := os.Lstat(bak)
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("keep a copy of %s: %w", path, err)
		}
		if err := os.Rename(path, bak); err != nil {
			return "", fmt.Errorf("keep a copy of %s: %w", path, err)
		}
		return bak, nil
	}
}

// Verify reads podman's configuration back and tells what still stands between
// it and Lazaret; nothing when podman sees what was written. Other engines are not
// asked.
func (c *Change) Verify() ([]string, error) {
	if c.Engine != "" {
		return nil, nil
	}
	files, err := c.layout.Files("")
	if err != nil {
		return nil, err
	}
	e, err := podmanconf.Load(files, c.podman)
	if err != nil {
		return nil, err
	}
	return e.Problems(dropin.RuntimeName, c.Runtime), nil
}
