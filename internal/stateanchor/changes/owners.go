package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/stateanchor/layer"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/pkgdb"
)

// sameBytes compares two files from where they are read.
func sameBytes(a, b io.Reader) (bool, error) {
	const chunk = 64 << 10
	x, y := make([]byte, chunk), make([]byte, chunk)
	for {
		n, aerr := io.ReadFull(a, x)
		m, berr := io.ReadFull(b, y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		for _, err := range []error{aerr, berr} {
			switch {
			case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
				return true, nil
			case err != nil:
				return false, fmt.Errorf("compare: %w", err)
			}
		}
	}
}

// differ puts into the report what packages differ, by their keys. It returns
// their places in it.
func (c *comparison) differ(before, after map[string]pkgdb.Package) map[string]int {
	places := map[string]int{}
	put := func(key string, p Package) {
		places[key] = len(c.report.Packages)
		c.report.Packages = append(c.report.Packages, p)
	}
	for key, now := range after {
		switch old, had := before[key]; {
		case !had:
			put(key, Package{Package: now, Change: Added})
		case old.Version != now.Version:
			put(key, Package{Package: now, Change: Upgraded, From: old.Version})
		}
	}
	for key, old := range before {
		if _, has := after[key]; !has {
			put(key, Package{Package: old, Change: Removed})
		}
	}
	return places
}

// own gives paths to a package of the report, under the names that they have where
// directories at the top are links.
func (c *comparison) own(place int, paths []string) {
	for _, p := range paths {
		first, rest, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
		if to, found := c.aliases[first]; found {
			p = path.Join("/", to, rest)
		}
		c.owner[p] = place
	}
}

// file reads a file of a package manager's; nil where there is none.
func (c *comparison) file(d *layer.Dir, name string, limit int64) []byte {
	if d == nil {
		return nil
	}
	if _, err := d.Lookup(name); err != nil {
		return nil
	}
	data, err := d.ReadFile(name, limit)
	if err != nil {
		c.note("%v", err)
	}
	return data
}

const dpkgDir = "/var/lib/dpkg"

func (c *comparison) aptPackages() {
	dir, err := c.image.Resolve(dpkgDir)
	if err != nil || !c.changed(dir+"/status") && !c.changed(dir+"/status.d") {
		return
	}
	b, a := c.before(dir), c.after(dir)
	defer func() { _, _ = b.Close(), a.Close() }() // only read
	before, after := c.dpkg(b), c.dpkg(a)
	apt := c.after(path.Dir(dir) + "/apt")
	auto := pkgdb.ParseAptAuto(c.file(apt, "extended_states", pkgdb.MaxFile))
	_ = apt.Close() // only read
	names := map[string]bool{}
	for key := range auto {
		name, _, _ := strings.Cut(key, ":")
		names[name] = true
	}
	for key, p := range after {
		// Those for all architectures are kept under the machine's own.
		p.Auto = auto[p.Name+":"+p.Arch] || p.Arch == "all" && names[p.Name]
		after[key] = p
	}
	infoBefore, infoAfter := c.sub(b, "info"), c.sub(a, "info")
	defer func() { _, _ = infoBefore.Close(), infoAfter.Close() }() // only read
	for _, place := range c.differ(before, after) {
		p := c.report.Packages[place]
		c.apt[p.Name] = true
		for _, info := range []*layer.Dir{infoBefore, infoAfter} {
			for _, name := range []string{p.Name, p.Name + ":" + p.Arch} {
				if strings.Contains(name, "/") || info == infoBefore && p.Change == Added || info == infoAfter && p.Change == Removed {
					continue
				}
				c.own(place, pkgdb.ParseList(c.file(info, name+".list", pkgdb.MaxFile)))
			}
		}
	}
}

func (c *comparison) sub(d *layer.Dir, name string) *layer.Dir {
	if d == nil {
		return nil
	}
	return c.dir(d, name)
}

// dpkg reads the packages of one database directory.
func (c *comparison) dpkg(d *layer.Dir) map[string]pkgdb.Package {
	all, err := pkgdb.ParseDpkg(c.file(d, "status", pkgdb.MaxFile))
	if err != nil {
		c.note("%v", err)
	}
	if parts := c.sub(d, "status.d"); parts != nil {
		names, err := parts.Names()
		if err != nil {
			c.note("status.d: %v", err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".md5sums") || len(all) > pkgdb.MaxPackages {
				continue
			}
			some, err := pkgdb.ParseDpkg(c.file(parts, name, pkgdb.MaxMetadata))
			if err != nil {
				c.note("%v", err)
			}
			all = append(all, some...)
		}
		_ = parts.Close() // only read
	}
	found := map[string]pkgdb.Package{}
	for _, p := range all {
		found[p.Key()] = p
	}
	return found
}

func (c *comparison) apkPackages() {
	for _, dir := range []string{"/lib/apk/db", "/usr/lib/apk/db"} {
		dir, err := c.image.Resolve(dir)
		if err != nil || !c.changed(dir+"/installed") {
			continue
		}
		read := func(d *layer.Dir) (map[string]pkgdb.Package, map[string][]string) {
			all, err := pkgdb.ParseApk(c.file(d, "installed", pkgdb.MaxFile))
			if err != nil {
				c.note("%v", err)
			}
			_ = d.Close() // only read
			found, files := map[string]pkgdb.Package{}, map[string][]string{}
			for _, p := range all {
				found[p.Key()], files[p.Key()] = p.Package, p.Files
			}
			return found, files
		}
		before, oldFiles := read(c.before(dir))
		after, newFiles := read(c.after(dir))
		for key, place := range c.differ(before, after) {
			c.own(place, oldFiles[key])
			c.own(place, newFiles[key])
		}
	}
}

// find looks for directories of pip's and npm's packages in the changes.
func (c *comparison) find(ctx context.Context, at string, upper, lower, merged *layer.Dir, depth int) error {
	if err := ctx.Err(); err != nil || depth > maxDepth {
		return err
	}
	switch path.Base(at) {
	case "site-packages", "dist-packages":
		c.pip(at, lower, merged)
	case "node_modules":
		if path.Base(path.Dir(at)) == "lib" {
			c.npm(at, lower, merged)
		}
		return nil // what is in it are dependencies
	}
	own, err := upper.Own()
	if err != nil {
		return nil //nolint:nilerr // walk tells
	}
	for _, name := range own.Names {
		st, err := upper.Lookup(name)
		if err != nil || typeOf(st.Mode) != "directory" {
			continue
		}
		if err := c.into(ctx, at, name, upper, lower, merged, depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) into(ctx context.Context, at, name string, upper, lower, merged *layer.Dir, depth int) error {
	up, err := upper.Sub(name)
	if err != nil {
		return nil //nolint:nilerr // walk tells
	}
	defer func() { _ = up.Close() }() // only read
	both, err := merged.Sub(name)
	if err != nil {
		return nil //nolint:nilerr // walk tells
	}
	defer func() { _ = both.Close() }() // only read
	var low *layer.Dir
	if lower != nil {
		if low, err = lower.Sub(name); err == nil {
			defer func() { _ = low.Close() }() // only read
		}
	}
	return c.find(ctx, at+"/"+name, up, low, both, depth+1)
}

// pip compares one site-packages directory.
func (c *comparison) pip(at string, lower, merged *layer.Dir) {
	before, old := c.dists(at, lower)
	after, now := c.dists(at, merged)
	for key, place := range c.differ(before, after) {
		c.record(place, at, lower, old[key])
		c.record(place, at, merged, now[key])
	}
}

// record gives a package the files that its entry in a site-packages directory names.
func (c *comparison) record(place int, at string, d *layer.Dir, entry string) {
	if entry == "" {
		return
	}
	c.own(place, []string{at + "/" + entry})
	if st, err := d.Lookup(entry); err != nil || typeOf(st.Mode) != "directory" {
		return
	}
	info := c.dir(d, entry)
	if info == nil {
		return
	}
	defer func() { _ = info.Close() }() // only read
	c.own(place, pkgdb.ParseRecord(c.file(info, "RECORD", pkgdb.MaxFile), at))
	if names, err := info.Names(); err == nil {
		for _, name := range names {
			c.own(place, []string{path.Join(at, entry, name)})
		}
	}
}

// dists reads the packages of a site-packages directory that are not apt's, and
// which entry describes each.
func (c *comparison) dists(at string, d *layer.Dir) (found map[string]pkgdb.Package, entries map[string]string) {
	found, entries = map[string]pkgdb.Package{}, map[string]string{}
	if d == nil {
		return found, entries
	}
	names, err := d.Names()
	if err != nil {
		c.note("%s: %v", at, err)
	}
	for _, entry := range names {
		name, version, ok := pkgdb.DistName(entry)
		if !ok || c.owned(path.Join(at, entry)) != nil || len(found) >= pkgdb.MaxPackages {
			continue
		}
		if st, err := d.Lookup(entry); err == nil && typeOf(st.Mode) == "directory" {
			if info := c.dir(d, entry); info != nil {
				for _, meta := range []string{"METADATA", "PKG-INFO"} {
					if n, v := pkgdb.ParseMetadata(c.file(info, meta, pkgdb.MaxMetadata)); n != "" {
						name, version = n, v
						break
					}
				}
				_ = info.Close() // only read
			}
		}
		p := pkgdb.Package{Manager: pkgdb.Pip, Name: name, Version: version, Dir: at}
		// Upper and lower case and the kind of dash do not count.
		key := p
		key.Name = strings.ToLower(strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '_' || r == '.' }), "-"))
		found[key.Key()], entries[key.Key()] = p, entry
	}
	return found, entries
}

// npm compares one directory of global packages. A package owns all below its own.
func (c *comparison) npm(at string, lower, merged *layer.Dir) {
	before, _ := c.modules(at, lower)
	after, entries := c.modules(at, merged)
	for key, place := range c.differ(before, after) {
		if entry, ok := entries[key]; ok {
			c.own(place, []string{path.Join(at, entry)})
		} else {
			c.own(place, []string{path.Join(at, c.report.Packages[place].Name)})
		}
	}
}

func (c *comparison) modules(at string, d *layer.Dir) (found map[string]pkgdb.Package, entries map[string]string) {
	found, entries = map[string]pkgdb.Package{}, map[string]string{}
	read := func(dir *layer.Dir, prefix string) []string {
		names, err := dir.Names()
		if err != nil {
			c.note("%s: %v", at, err)
		}
		for _, n := range names {
			if strings.HasPrefix(n, ".") || strings.HasPrefix(n, "@") || len(found) >= pkgdb.MaxPackages {
				continue
			}
			sub, err := dir.Sub(n)
			if err != nil {
				continue // a link to somewhere, or a file
			}
			name, version, err := pkgdb.ParsePackageJSON(c.file(sub, "package.json", pkgdb.MaxMetadata))
			_ = sub.Close() // only read
			if err != nil || name == "" || c.owned(path.Join(at, prefix, n)) != nil {
				continue
			}
			p := pkgdb.Package{Manager: pkgdb.Npm, Name: name, Version: version, Dir: at}
			found[p.Key()], entries[p.Key()] = p, path.Join(prefix, n)
		}
		return names
	}
	if d == nil {
		return found, entries
	}
	for _, n := range read(d, "") {
		if strings.HasPrefix(n, "@") {
			if scope, err := d.Sub(n); err == nil {
				read(scope, n)
				_ = scope.Close() // only read
			}
		}
	}
	return found, entries
}

// owned tells whose a path is: nil for nobody's.
func (c *comparison) owned(p string) *int {
	if place, found := c.owner[p]; found {
		return &place
	}
	own := bookkeeping
	// Everything in a directory of npm's packages.
	if i := strings.Index(p, "/lib/node_modules/"); i >= 0 {
		rest := p[i+len("/lib/node_modules/"):]
		for j := range len(rest) + 1 {
			if j == len(rest) || rest[j] == '/' {
				place, found := c.owner[p[:len(p)-len(rest)+j]]
				if found && place != bookkeeping && c.report.Packages[place].Manager == pkgdb.Npm {
					return &place
				}
			}
		}
		if rest == ".package-lock.json" {
			return &own
		}
	}
	// Python compiles a module beside it.
	if dir, file := path.Split(p); path.Base(dir) == "__pycache__" && strings.HasSuffix(file, ".pyc") {
		module, _, _ := strings.Cut(file, ".")
		if place, found := c.owner[path.Join(dir, "..", module+".py")]; found {
			return &place
		}
	}
	if c.keeps(p) {
		return &own
	}
	return nil
}

// keeps tells what package managers write about themselves.
func (c *comparison) keeps(p string) bool {
	switch {
	case p == "/etc/ld.so.cache", p == "/var/lib/apt/extended_states",
		below(p, "/var/lib/apt/lists"), below(p, "/var/lib/apt/periodic"),
		below(p, "/lib/apk/db"), below(p, "/usr/lib/apk/db"):
		return true
	case strings.HasPrefix(p, dpkgDir+"/info/"):
		// dpkg writes the lists of others anew too. Scripts it has only for packages
		// that changed: other ones were planted.
		name := strings.TrimPrefix(p, dpkgDir+"/info/")
		if ext := path.Ext(name); ext == ".list" || ext == ".md5sums" {
			return true
		}
		if i := strings.LastIndexByte(name, '.'); i > 0 {
			name, _, _ = strings.Cut(name[:i], ":")
		}
		return c.apt[name] || name == "format"
	case strings.HasPrefix(p, dpkgDir+"/"):
		first, _, _ := strings.Cut(strings.TrimPrefix(p, dpkgDir+"/"), "/")
		first = strings.TrimSuffix(strings.TrimSuffix(first, "-old"), "-new")
		return slices.Contains([]string{"status", "status.d", "available", "lock", "lock-frontend", "diversions", "statoverride", "triggers", "updates", "alternatives"}, first)
	}
	return false
}

// ownedLink tells whose a link is that managers make beside a package's files.
func (c *comparison) ownedLink(p, target string) *int {
	if !strings.HasPrefix(target, "/") {
		target = path.Join(path.Dir(p), target)
	}
	target = path.Clean(target)
	switch {
	case path.Dir(p) == "/etc/alternatives":
		if place, found := c.owner[target]; found {
			return &place
		}
	case path.Dir(target) == "/etc/alternatives":
		d := c.after("/etc/alternatives")
		if d == nil {
			return nil
		}
		defer func() { _ = d.Close() }() // only read
		if to, err := d.Readlink(path.Base(target)); err == nil {
			if place, found := c.owner[path.Clean(to)]; found {
				return &place
			}
		}
	case path.Base(path.Dir(p)) == "bin" && strings.HasPrefix(target, path.Join(path.Dir(p), "../lib/node_modules")+"/"):
		return c.owned(target)
	}
	return nil
}
