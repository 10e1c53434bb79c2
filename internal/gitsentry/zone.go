package gitsentry

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/dotgit"
)

type zoneKind int32

const (
	worktree zoneKind = iota
	gitDir            // a git directory, or below one
	frozen            // nothing of the host changes here
	apart             // in a shadow
	outside           // moved away from what is shown
)

// zone is what a directory is at this moment.
type zone struct {
	kind zoneKind
	rel  string // from the root that it is shown by; "" is that itself
	git  string // the git directory's rel, if in one
	sub  string // below git
}

// zoneOfFD judges an open directory by where the kernel says that it is.
func (f *guard) zoneOfFD(top *root, fd int) (zone, error) {
	rel, inside, err := f.below(top, fd)
	if err != nil {
		return zone{}, err
	}
	if !inside {
		return zone{kind: outside}, nil
	}
	return f.zoneOf(top, rel), nil
}

// below is the path of what is open as fd relative to top, "" for that itself, as
// the kernel tells it at this moment.
func (f *guard) below(top *root, fd int) (rel string, inside bool, err error) {
	here, err := f.pathOf(fd)
	if err != nil {
		return "", false, err
	}
	base, err := f.pathOf(top.fd)
	if err != nil || here == base {
		return "", err == nil, err
	}
	rel, inside = strings.CutPrefix(here, base+"/")
	return rel, inside, nil
}

// zoneOf judges the directory at rel below top.
func (f *guard) zoneOf(top *root, rel string) zone {
	z := zone{kind: worktree}
	if top.git {
		z.kind = gitDir
	}
	if rel == "" {
		return z
	}
	for part := range strings.SplitSeq(rel, "/") {
		z = f.step(top, z, part)
	}
	return z
}

// step is the zone of the directory called part in one of zone z.
func (f *guard) step(top *root, z zone, part string) zone {
	next := zone{kind: z.kind, rel: join(z.rel, part), git: z.git, sub: z.sub}
	switch z.kind {
	case worktree:
		switch {
		case dotgit.Is(part) || shaped(top.fd, next.rel):
			next.kind, next.git = gitDir, next.rel
		case f.masked(next.rel, part) || f.ownCopy(next.rel):
			next.kind = frozen // the host has it there; the sandbox has its own
		}
	case gitDir:
		next.sub = join(z.sub, part)
		if under(next.sub, "modules") && shaped(top.fd, next.rel) {
			next.git, next.sub = next.rel, "" // a submodule's
			return next
		}
		switch c := f.rule(top, next); c {
		case real, modules:
		case trees:
			if next.sub != "worktrees" {
				next.kind = frozen
			}
		default:
			next.kind = frozen
		}
	}
	return next
}

// rule judges what is at z.sub in a git directory.
func (f *guard) rule(top *root, z zone) class {
	if f.o.Git == "off" {
		return readOnly
	}
	if z.sub == "" {
		return real
	}
	if z.git == "" && f.gitDir != nil && top == f.gitDir.top {
		return branchRule(z.sub, f.o.WorktreeName, f.o.Branch)
	}
	return gitRule(z.sub)
}

// shaped tells whether the directory has what git looks for in a git directory.
func shaped(fd int, rel string) bool {
	return entry(fd, rel+"/HEAD") && (entry(fd, rel+"/objects") && entry(fd, rel+"/refs") || entry(fd, rel+"/commondir"))
}

func entry(fd int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// wouldShape tells whether one more entry makes the directory look like a git
// directory to the host, or would with no more than a HEAD, which the host might
// bring.
func wouldShape(fd int, name string) bool {
	if !completes(name) {
		return false
	}
	has := func(want string) bool { return strings.EqualFold(name, want) || entry(fd, want) }
	return strings.EqualFold(name, "commondir") || has("objects") && has("refs")
}

// judge says what becomes of name in a directory of the host.
func (f *guard) judge(top *root, z zone, fd int, name string) class {
	c := f.judgeName(top, z, fd, name)
	if p := plain(name); c == real && p != name && f.judgeName(top, z, fd, p) != real {
		return refused // some file system would take it for that
	}
	return c
}

func (f *guard) judgeName(top *root, z zone, fd int, name string) class {
	switch z.kind {
	case worktree:
		rel := join(z.rel, name)
		switch {
		case name == ".git":
			return shadow
		case dotgit.Is(name):
			return refused
		case f.masked(rel, name), f.ownCopy(rel):
			return memory
		case f.protected(rel):
			return readOnly
		case wouldShape(fd, name):
			return shadow
		}
		return real
	case gitDir:
		next := z
		next.rel, next.sub = join(z.rel, name), join(z.sub, name)
		c := f.rule(top, next)
		switch c {
		case trees:
			if z.sub != "" && z.sub != "worktrees" {
				return readOnly // in one of the host's
			}
			return shadow // a new one
		case modules:
			return shadow
		case real, index:
			if z.sub != "" && wouldShape(fd, name) {
				return refused
			}
		}
		return c
	}
	return readOnly
}

// masked tells whether a mask covers rel, whose last component is name.
func (f *guard) masked(rel, name string) bool {
	for _, m := range f.o.Masks {
		if strings.Contains(m, "/") && strings.EqualFold(m, rel) || strings.EqualFold(m, name) {
			return true
		}
	}
	return false
}

// ownCopy tells whether rel is kept in memory for the sandbox.
func (f *guard) ownCopy(rel string) bool {
	for _, m := range f.conf.now.Load().memory {
		if strings.EqualFold(m, rel) {
			return true
		}
	}
	return false
}

// protected tells whether rel is read-only, or below such a path.
func (f *guard) protected(rel string) bool {
	for _, p := range f.conf.now.Load().readOnly {
		if under(rel, p) {
			return true
		}
	}
	return false
}

// leads tells whether a path that is guarded by its name lies below rel: then rel
// can be neither moved away nor be anything but a directory.
func (f *guard) leads(rel string) bool {
	now := f.conf.now.Load()
	for _, p := range now.ways {
		if under(p, rel) {
			return true
		}
	}
	for _, list := range [][]string{now.readOnly, now.memory, f.o.Masks} {
		for _, p := range list {
			if under(p, rel) && len(p) > len(rel) {
				return true
			}
		}
	}
	return false
}

// pathOf is where an open file is now, as the kernel tells it.
func (f *guard) pathOf(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(f.proc, strconv.Itoa(fd), buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
