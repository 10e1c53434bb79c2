package gitsentry

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/dotgit"
)

// class says what becomes of a name in a git directory.
type class int

const (
	refused  class = iota // nobody needs it: EPERM
	real                  // written through to the host
	index                 // written through once its content was checked
	readOnly              // what git obeys: EROFS
	memory                // hooks: the sandbox's own copy, on memory
	shadow                // the sandbox's own, in the Domain Root
	modules               // a directory of submodules' git directories
	trees                 // a directory of linked worktrees' git directories
)

// gitFiles are the plain files in the root of a git directory that git writes
// in daily work and that make no host program run anything.
//
//nolint:gochecknoglobals // a constant table
var gitFiles = map[string]bool{
	"HEAD": true, "ORIG_HEAD": true, "FETCH_HEAD": true,
	"MERGE_HEAD": true, "MERGE_MODE": true, "MERGE_MSG": true, "SQUASH_MSG": true, "MERGE_AUTOSTASH": true,
	"CHERRY_PICK_HEAD": true, "REVERT_HEAD": true, "REBASE_HEAD": true, "AUTO_MERGE": true,
	"COMMIT_EDITMSG": true, "TAG_EDITMSG": true, "NOTES_EDITMSG": true, "EDIT_DESCRIPTION": true,
	"packed-refs": true, "packed-refs.new": true, "shallow": true,
	"gc.pid": true, "gc.log": true,
}

// obeyed are the files by which a git directory says what to run, or where the
// rest of it is.
//
//nolint:gochecknoglobals // a constant table
var obeyed = map[string]bool{
	"config": true, "config.worktree": true, "commondir": true, "gitdir": true, "locked": true,
	"info/attributes": true, "info/exclude": true, "info/grafts": true, "info/sparse-checkout": true,
	"objects/info/alternates": true, "objects/info/http-alternates": true,
}

// configLock is what git writes a config anew in, also where nothing changes: as
// for a branch without settings that is deleted.
const configLock = "config.lock"

// messages are what git has people edit. Programs that edit files replace them by
// others, with names of their own.
//
//nolint:gochecknoglobals // a constant table
var messages = map[string]bool{
	"COMMIT_EDITMSG": true, "MERGE_MSG": true, "SQUASH_MSG": true, "TAG_EDITMSG": true, "NOTES_EDITMSG": true, "EDIT_DESCRIPTION": true,
}

// gitRule judges the path p, clean and relative, of something in a git directory.
func gitRule(p string) class {
	if hasDotGit(p) {
		return refused
	}
	if lock, ok := lockTwin(p); ok {
		return gitRule(lock)
	}
	if p == configLock {
		return shadow // it may come back as the config that is there, and as no other
	}
	base := strings.TrimSuffix(p, ".lock")
	if obeyed[base] || obeyed[strings.TrimSuffix(strings.ToLower(p), ".lock")] {
		return readOnly
	}
	top, rest, nested := strings.Cut(p, "/")
	if !nested {
		switch {
		case gitFiles[base]:
			return real
		case p == "index" || strings.HasPrefix(p, "sharedindex."):
			return index
		case p == "index.lock" || strings.HasPrefix(p, "sharedindex_") || strings.HasPrefix(p, "next-index-") || strings.HasPrefix(p, "index.stash."):
			return real // becomes the index by a rename, which checks it
		case strings.HasPrefix(p, "shallow_"): // git's own temporary name
			return real
		}
	}
	switch top {
	case "refs":
		if rest == "replace" || strings.HasPrefix(rest, "replace/") {
			return readOnly // another object in the place of the one asked for
		}
		return real
	case "logs":
		// Elsewhere the host's git would make files of it, as reflogs of no ref.
		if !nested || rest == "HEAD" || rest == "HEAD.lock" || rest == "refs" || strings.HasPrefix(rest, "refs/") {
			return real
		}
		return refused
	case "lfs":
		return real
	case "objects":
		return objectRule(rest)
	case "info":
		if !nested || rest == "refs" || strings.HasPrefix(rest, "refs_") || rest == "refs.lock" {
			return real
		}
		return shadow
	case "hooks":
		return memory
	case "modules":
		return modules
	case "worktrees":
		return trees
	}
	return shadow
}

// lockTwin is the lock file of which p is the second name that JGit makes, to see
// by their number that the lock is its own.
func lockTwin(p string) (lock string, ok bool) {
	dot := strings.LastIndexByte(p, '.')
	if dot <= 0 || !strings.HasSuffix(p[:dot], ".lock") {
		return "", false
	}
	// Two numbers of 64 bits, without leading zeros.
	id := p[dot+1:]
	return p[:dot], len(id) >= 16 && len(id) <= 32 && isHex(id, len(id))
}

// objectRule judges p, relative to an object directory; "" is that itself.
func objectRule(p string) class {
	if p == "" {
		return real
	}
	top, rest, nested := strings.Cut(p, "/")
	switch {
	case strings.HasPrefix(top, "tmp_objdir-") || strings.HasPrefix(top, "incoming-"):
		if nested && strings.HasPrefix(rest, "tmp_objdir-") {
			return refused
		}
		if base := strings.TrimSuffix(rest, ".lock"); base == "info/alternates" || base == "info/http-alternates" {
			return readOnly
		}
		return objectRule(rest) // a quarantine has the same shape
	case !nested:
		// Temporary names: git's, libgit2's, JGit's.
		if isHex(top, 2) || top == "pack" || top == "info" || strings.HasPrefix(top, "tmp_obj_") || strings.HasPrefix(top, "tmp_object_git2_") || strings.HasPrefix(top, "noz") || top == "maintenance.lock" || top == "schedule.lock" {
			return real
		}
	case isHex(top, 2):
		if isHex(rest, 38) || isHex(rest, 62) || strings.HasPrefix(rest, "tmp_obj_") && !strings.Contains(rest, "/") ||
			strings.HasPrefix(rest, "noz") && !strings.Contains(rest, "/") { // JGit's
			return real
		}
	case top == "pack":
		for _, prefix := range []string{"pack-", "tmp_", ".tmp-", "multi-pack-index", "gc_", "loose-", "pack_git2_"} {
			if strings.HasPrefix(rest, prefix) && (!strings.Contains(rest, "/") || prefix == "multi-pack-index") {
				return real
			}
		}
	case top == "info":
		for _, prefix := range []string{"packs", "commit-graph", "tmp_"} {
			if strings.HasPrefix(rest, prefix) && (!strings.Contains(rest, "/") || strings.HasPrefix(rest, "commit-graphs/")) {
				return real
			}
		}
	}
	return refused
}

// isHex tells whether s is n hexadecimal digits, as git writes them.
func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// hasDotGit tells whether a component of p is one that git takes for .git.
func hasDotGit(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if dotgit.Is(part) {
			return true
		}
	}
	return false
}

// branchRule narrows gitRule for a common git directory of which only one linked
// worktree is the sandbox's: own is its name below worktrees, branch, if not "",
// the only branch that may be written.
func branchRule(p, own, branch string) class {
	top, rest, nested := strings.Cut(p, "/")
	if top == "worktrees" && nested && own != "" {
		if name, sub, _ := strings.Cut(rest, "/"); name == own {
			if sub == "" {
				return real
			}
			c := gitRule(sub)
			if strings.HasPrefix(sub, "objects") || strings.HasPrefix(sub, "modules") || strings.HasPrefix(sub, "worktrees") {
				c = shadow
			}
			return c
		}
	}
	c := gitRule(p)
	if own == "" {
		return c
	}
	switch {
	case !nested && (c == index || c == real) && !strings.HasPrefix(p, "packed-refs") && !strings.HasPrefix(p, "shallow") && !strings.HasPrefix(p, "gc.") && top != "refs" && top != "logs" && top != "objects" && top != "info" && top != "lfs":
		return readOnly // the other working tree's
	case p == "logs/HEAD" || p == "logs/HEAD.lock":
		return readOnly
	case branch == "":
		return c
	case p == "packed-refs" || p == "packed-refs.new":
		return readOnly // has all branches; git takes its lock also to look
	case strings.HasPrefix(p, "refs/stash") || strings.HasPrefix(p, "logs/refs/stash"):
		return shadow
	}
	ref := strings.TrimPrefix(strings.TrimSuffix(p, ".lock"), "logs/")
	if strings.HasPrefix(ref, "refs/heads/") && ref != "refs/heads/"+branch && !strings.HasPrefix("refs/heads/"+branch, ref+"/") {
		return readOnly
	}
	return c
}

// plain is name as a file system may see it that ignores what is not visible, as
// ext4 and f2fs do in folders that ignore case.
func plain(name string) string {
	ascii := true
	for i := range len(name) {
		ascii = ascii && name[i] < utf8.RuneSelf
	}
	if ascii {
		return name
	}
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) || r == 0xad {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r)) // also the long s and the kelvin sign
	}, name)
}

// isDirName tells whether a name in the root of a git directory is a directory's;
// all others that are written through are plain files.
func isDirName(name string) bool {
	switch name {
	case "refs", "logs", "objects", "info", "lfs":
		return true
	}
	return false
}

// completes lists the names that make a directory look like a git directory.
func completes(name string) bool {
	switch strings.ToLower(name) {
	case "head", "objects", "refs", "commondir":
		return true
	}
	return false
}

// under tells whether p is dir or below it; both clean and relative, in any case.
func under(p, dir string) bool {
	if len(p) < len(dir) || !strings.EqualFold(p[:len(dir)], dir) {
		return false
	}
	return len(p) == len(dir) || p[len(dir)] == '/'
}

// join is path.Join for a directory that may be "".
func join(dir, name string) string {
	if dir == "" || dir == "." {
		return name
	}
	return path.Join(dir, name)
}
