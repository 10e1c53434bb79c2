// Package changes tells what an agent has installed and changed against its image:
// packages first, then the files that belong to none of them. It reads the layers
// where they lie and mounts nothing. All that it returns was chosen by the agent or
// the image: make it inert before it is shown.
package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/stateanchor/layer"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/pkgdb"
)

// What became of a package or a file.
const (
	Added    = "added"
	Removed  = "removed" // packages
	Deleted  = "deleted" // files
	Changed  = "changed"
	Upgraded = "upgraded" // or another version at least
)

// Bounds of a report.
const (
	MaxFiles = 100_000 // entries of Report.Files
	maxDepth = 1000    // directories below a state path
)

// Path is a state path and the host directory of its changes.
type Path struct {
	Name    string // absolute, in the container
	Changes string
}

// Input is what is compared.
type Input struct {
	Image  []layer.Layer // the image's, uppermost first
	Paths  []Path
	Style  layer.Style // of the changes
	Ignore []string    // paths that do not count while they are empty, nor do empty directories on the way
	All    bool        // every file, also those of packages and in new directories
}

// Package is a package that is not as in the image.
type Package struct {
	pkgdb.Package
	Change string `json:"change"`
	From   string `json:"from,omitempty"` // the image's version, if it had another one
	Files  int    `json:"files"`          // changed ones that belong to it
}

// File is a file or directory that is not as in the image.
type File struct {
	Path   string `json:"path"`
	Change string `json:"change"`
	Type   string `json:"type"` // "file", "directory", "link", "other"
	Size   int64  `json:"size"` // bytes; of all files, for a new directory
	// Files is how many a new directory holds. It is one entry, unless all are
	// asked for or part of it is a package's.
	Files int `json:"files,omitempty"`
	// Package is whose it is; told only where all are asked for.
	Package string `json:"package,omitempty"`
}

// Report is what was found, sorted. The lists are never nil.
type Report struct {
	Packages []Package `json:"packages"`
	Files    []File    `json:"files"`
	// Folded is how many files were left out, as they are packages' or their
	// managers' own.
	Folded int   `json:"folded"`
	Size   int64 `json:"size"` // bytes of all changed files
	Cut    bool  `json:"cut"`  // there was more than a report holds
	// Notes say what could not be read.
	Notes []string `json:"notes"`
}

// tree is a state path with its layers.
type tree struct {
	at           string     // canonical path in the container
	upper, lower *layer.Dir // lower is nil where the image has none
	merged       *layer.Dir // not to be closed
}

type comparison struct {
	in      Input
	image   *layer.Dir
	trees   []tree
	aliases map[string]string // of directories at the top: /lib is /usr/lib
	owner   map[string]int    // of a path: the package's place in report, or bookkeeping
	apt     map[string]bool   // names of apt's packages that are not as in the image
	report  *Report
}

// bookkeeping owns what package managers write for themselves.
const bookkeeping = -1

// Compare reads the changes. It fails only where layers cannot be opened or ctx
// ends; what else cannot be read is told in the report's notes.
func Compare(ctx context.Context, in Input) (_ *Report, err error) {
	c := &comparison{
		in: in, aliases: map[string]string{}, owner: map[string]int{}, apt: map[string]bool{},
		report: &Report{Packages: []Package{}, Files: []File{}, Notes: []string{}},
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if c.image, err = layer.Open(in.Image...); err != nil {
		return nil, err
	}
	if err := c.open(); err != nil {
		return nil, err
	}
	c.aptPackages()
	c.apkPackages()
	for _, t := range c.trees {
		if err := c.find(ctx, t.at, t.upper, t.lower, t.merged, 0); err != nil {
			return nil, err
		}
	}
	for _, t := range c.trees {
		if _, err := c.walk(ctx, place{t.at, t.upper, t.lower, 0, false}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(c.report.Packages, func(a, b Package) int {
		return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch), cmp.Compare(a.Dir, b.Dir))
	})
	slices.SortFunc(c.report.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return c.report, nil
}

func (c *comparison) open() error {
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if to, err := c.image.Resolve("/" + name); err == nil && to != "/"+name {
			c.aliases[name] = strings.TrimPrefix(to, "/")
		}
	}
	for _, p := range c.in.Paths {
		at, err := c.image.Resolve(p.Name)
		if err != nil {
			return fmt.Errorf("find %s in the image: %w", p.Name, err)
		}
		if slices.ContainsFunc(c.trees, func(t tree) bool { return below(at, t.at) }) {
			continue // the image leads it into another state path
		}
		t := tree{at: at}
		t.upper, err = layer.Open(layer.Layer{Path: p.Changes, Style: c.in.Style})
		if errors.Is(err, fs.ErrNotExist) {
			continue // nothing was changed yet
		}
		if err != nil {
			return err
		}
		t.lower, err = c.image.Walk(at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return errors.Join(err, t.upper.Close())
		}
		c.trees = append(c.trees, t)
		if c.trees[len(c.trees)-1].merged, err = layer.Over(t.upper, t.lower); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) close() error {
	errs := []error{c.image.Close()}
	for _, t := range c.trees {
		errs = append(errs, t.upper.Close(), t.lower.Close())
	}
	return errors.Join(errs...)
}

func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func (c *comparison) note(format string, args ...any) {
	const most = 50
	if len(c.report.Notes) < most {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf(format, args...))
	}
}

// before and after open a directory as the image and as the container has it; nil
// where there is none. Both are to be closed.
func (c *comparison) before(dir string) *layer.Dir { return c.dir(c.image, dir) }

func (c *comparison) after(dir string) *layer.Dir {
	for _, t := range c.trees {
		if below(dir, t.at) {
			return c.dir(t.merged, strings.TrimPrefix(dir, t.at))
		}
	}
	return c.before(dir)
}

func (c *comparison) dir(from *layer.Dir, rel string) *layer.Dir {
	d, err := from.Walk(rel)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			c.note("%s: %v", rel, err)
		}
		return nil
	}
	return d
}

// changed reports whether a state path's changes have anything under a path.
func (c *comparison) changed(file string) bool {
	for _, t := range c.trees {
		if !below(file, t.at) {
			continue
		}
		d, err := t.upper.Walk(path.Dir(strings.TrimPrefix(file, t.at)))
		if err != nil {
			return !errors.Is(err, fs.ErrNotExist) // then a reader shall find out
		}
		own, err := d.Own()
		_ = d.Close() // only read
		return err != nil || own.Opaque || slices.Contains(own.Names, path.Base(file)) || slices.Contains(own.Hidden, path.Base(file))
	}
	return false
}

// place is a directory of the changes.
type place struct {
	path         string
	upper, lower *layer.Dir // lower is nil where the image has no such directory
	depth        int
	added        bool // the image has none
}

// sum is what was found below a directory.
type sum struct {
	files, shown, folded int
	size                 int64
}

func (s *sum) add(o sum) {
	s.files += o.files
	s.shown += o.shown
	s.folded += o.folded
	s.size += o.size
}

// walk compares one directory of the changes with the image's.
func (c *comparison) walk(ctx context.Context, p place) (s sum, err error) {
	if err := ctx.Err(); err != nil {
		return s, err
	}
	if p.depth > maxDepth {
		c.note("%s: directories nested deeper than %d were not looked at", p.path, maxDepth)
		c.report.Cut = true
		return s, nil
	}
	own, err := p.upper.Own()
	if err != nil {
		c.note("%s: %v", p.path, err)
		return s, nil
	}
	c.report.Cut = c.report.Cut || own.Cut
	gone := own.Hidden
	if own.Opaque && p.lower != nil {
		if gone, err = p.lower.Names(); err != nil {
			c.note("%s: %v", p.path, err)
		}
		gone = slices.DeleteFunc(gone, func(n string) bool {
			_, there := slices.BinarySearch(own.Names, n)
			return there
		})
	}
	for _, name := range gone {
		if p.lower == nil {
			break
		}
		if st, err := p.lower.Lookup(name); err == nil {
			s.add(c.put(File{Path: p.path + "/" + name, Change: Deleted, Type: typeOf(st.Mode)}, ""))
		}
	}
	for _, name := range own.Names {
		one, err := c.entry(ctx, p, name)
		if err != nil {
			return s, err
		}
		s.add(one)
	}
	return s, nil
}

// entry compares one entry of the changes with the image's.
func (c *comparison) entry(ctx context.Context, p place, name string) (s sum, err error) {
	full := p.path + "/" + name
	st, err := p.upper.Lookup(name)
	if err != nil {
		c.note("%s: %v", full, err)
		return s, nil
	}
	var old unix.Stat_t
	had := false
	if p.lower != nil {
		old, err = p.lower.Lookup(name)
		had = err == nil
	}
	f := File{Path: full, Change: Changed, Type: typeOf(st.Mode)}
	if !had {
		f.Change = Added
	}
	if f.Type == "directory" {
		return c.directory(ctx, p, name, f, st, old, had)
	}
	if f.Type == "file" {
		f.Size = st.Size
		c.report.Size += st.Size
	}
	target := ""
	if f.Type == "link" {
		target, _ = p.upper.Readlink(name) // without it the link is shown
	}
	switch {
	case slices.Contains(c.in.Ignore, full) && st.Size == 0:
		return s, nil
	case had && sameMode(st, old) && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size == old.Size):
		same, err := c.sameContent(p, name, st, target)
		if err != nil {
			c.note("%s: %v", full, err)
		}
		if same {
			return s, nil // it was only touched
		}
	}
	s = c.put(f, target)
	s.files, s.size = 1, f.Size
	return s, nil
}

func (c *comparison) directory(ctx context.Context, p place, name string, f File, st, old unix.Stat_t, had bool) (s sum, err error) {
	isDir := had && old.Mode&unix.S_IFMT == unix.S_IFDIR
	if had && !isDir {
		f.Change = Changed
	}
	upper, err := p.upper.Sub(name)
	if err != nil {
		c.note("%s: %v", f.Path, err)
		return s, nil
	}
	defer func() { _ = upper.Close() }() // only read
	var lower *layer.Dir
	if isDir {
		if lower, err = p.lower.Sub(name); err != nil {
			c.note("%s: %v", f.Path, err)
		}
		defer func() { _ = lower.Close() }() // only read
	}
	begin := len(c.report.Files)
	s, err = c.walk(ctx, place{f.Path, upper, lower, p.depth + 1, !isDir})
	if err != nil {
		return s, err
	}
	switch {
	case isDir && sameMode(st, old):
		return s, nil // only what is in it counts
	case isDir:
		s.add(c.put(f, ""))
	case s.files+s.shown+s.folded == 0 && slices.ContainsFunc(c.in.Ignore, func(t string) bool { return below(t, f.Path) }):
		// It is one, or was made on the way to one.
	case s.folded > 0 && s.shown == 0:
		c.fold(f, bookkeeping)
		s.folded++
	case s.folded == 0 && !c.in.All && c.owned(f.Path) == nil:
		// All of it is new and nobody's: one line.
		c.report.Files = c.report.Files[:begin]
		f.Size, f.Files = s.size, s.files
		c.put(f, "")
		s.shown = 1
	default:
		s.add(c.put(f, ""))
	}
	return s, nil
}

// put takes a file into the report, or counts it to its package.
func (c *comparison) put(f File, target string) sum {
	owner := c.owned(f.Path)
	if owner == nil && target != "" {
		owner = c.ownedLink(f.Path, target)
	}
	if owner != nil {
		c.fold(f, *owner)
		return sum{folded: 1}
	}
	c.list(f)
	return sum{shown: 1}
}

func (c *comparison) fold(f File, owner int) {
	if owner != bookkeeping {
		c.report.Packages[owner].Files++
	}
	if !c.in.All {
		c.report.Folded++
		return
	}
	f.Package = "-"
	if owner != bookkeeping {
		f.Package = c.report.Packages[owner].Name
	}
	c.list(f)
}

func (c *comparison) list(f File) {
	if len(c.report.Files) >= MaxFiles {
		c.report.Cut = true
		return
	}
	c.report.Files = append(c.report.Files, f)
}

func sameMode(a, b unix.Stat_t) bool {
	return a.Mode == b.Mode && a.Uid == b.Uid && a.Gid == b.Gid && (a.Mode&unix.S_IFMT == unix.S_IFREG || a.Rdev == b.Rdev)
}

// sameContent compares an entry with the image's of the same mode.
func (c *comparison) sameContent(p place, name string, st unix.Stat_t, target string) (bool, error) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		old, err := p.lower.Readlink(name)
		return old == target, err
	case unix.S_IFREG:
		a, err := p.upper.OpenFile(name)
		if err != nil {
			return false, err
		}
		defer func() { _ = a.Close() }() // only read
		b, err := p.lower.OpenFile(name)
		if err != nil {
			return false, err
		}
		defer func() { _ = b.Close() }() // only read
		return sameBytes(a, b)
	}
	return true, nil
}

func typeOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "link"
	}
	return "other"
}
