package review

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Why names of git directories count.
const (
	whyRepo     = "a repository: git obeys its configuration and runs its hooks for whoever stands below"
	whyBare     = "a git directory in the working tree: git obeys its configuration for whoever stands in it"
	whyPointer  = "git goes where it leads, and obeys what is there"
	whyConfig   = "git runs what it names: file system monitors, pagers, aliases, filters"
	whyHook     = "git runs it"
	whyElse     = "git takes another place for the repository's, or its objects from there"
	whyAttr     = "git runs filters and merge drivers by it"
	whyHidden   = "git status does not show what it covers"
	whyReplace  = "git shows another object than the one asked for"
	whyUnended  = "an operation is unfinished: git goes on with it, and runs what it has noted"
	whyRemotes  = "git fetches from and pushes to what it names"
	whyPlaced   = "git's configuration on the host names it: git obeys it, or runs it"
	whyFakeLink = "a link where git has none: it reads what that leads to"
)

// gitFiles are the files of a git directory that count.
func gitFiles() map[string]rule {
	config := rule{kind: KindGit, why: whyConfig}
	place := rule{kind: KindGit, why: whyElse}
	hidden := rule{kind: KindGit, why: whyHidden}
	unended := rule{kind: KindGit, why: whyUnended}
	return map[string]rule{
		"config": config, "config.worktree": config,
		"commondir": place, "gitdir": place, "objects/info/alternates": place, "objects/info/http-alternates": place,
		"info/attributes": {kind: KindGit, why: whyAttr},
		"info/exclude":    hidden, "info/sparse-checkout": hidden,
		"info/grafts": {kind: KindGit, why: whyReplace}, "packed-refs": {kind: KindGit, why: whyReplace, parts: replacements},
		"MERGE_HEAD": unended, "CHERRY_PICK_HEAD": unended, "REVERT_HEAD": unended, "REBASE_HEAD": unended, "BISECT_LOG": unended, "BISECT_RUN": unended, "BISECT_START": unended,
		"sequencer/todo": unended, "rebase-merge/git-rebase-todo": unended, "rebase-merge/done": unended, "rebase-apply/applying": unended, "rebase-apply/rebasing": unended,
	}
}

// gitDirs are the directories of a git directory of which each file counts.
func gitDirs() map[string]rule {
	return map[string]rule{
		"hooks":        {kind: KindHooks, why: whyHook},
		"refs/replace": {kind: KindGit, why: whyReplace},
		"remotes":      {kind: KindGit, why: whyRemotes},
		"branches":     {kind: KindGit, why: whyRemotes},
	}
}

// maxModules bounds how deep git directories of submodules lie in each other.
const maxModules = 32

// tooDeep tells of a directory of a git directory that no git makes so deep.
func (w *walker) tooDeep(rel string) {
	w.incomplete(fmt.Sprintf("%.200s is too deep in a git directory to be looked at", w.key(rel)))
}

// dotGit notes a .git of the working tree, in whatever spelling.
func (w *walker) dotGit(fd int, rel string, e entry) {
	switch e.typ {
	case unix.DT_DIR:
		w.gitDir(rel, whyRepo)
	default:
		w.fact(fd, rel, e.name, &rule{kind: KindGit, why: whyPointer})
	}
}

// outside looks at a git directory elsewhere; paths in it are absolute. What others
// of its working trees have in it is theirs where it is shared.
func (w *walker) outside(gitDir string, shared bool) error {
	fd, err := unix.Open(gitDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // only looked through
	root := w.root
	w.root, w.at = fd, gitDir
	defer func() { w.root, w.at = root, "" }()
	w.shared = shared
	w.gitDir("", whyRepo)
	w.shared = false
	return nil
}

// key is the name of a path of the present root in the snapshot.
func (w *walker) key(rel string) string { return path.Join(w.at, rel) }

// gitDir notes what counts of a git directory.
func (w *walker) gitDir(rel, why string) {
	var st unix.Stat_t
	fd, err := w.beneath(rel, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		err = unix.Fstat(fd, &st)
		_ = unix.Close(fd) // only looked at
	}
	if err != nil {
		return
	}
	f := statFact(&st)
	f.Kind, f.Why = KindGit, why
	// Its own times change with each command.
	f.Ctime = 0
	key := w.key(rel)
	if key == "" {
		key = "."
	}
	w.keep(key+"/", f)
	w.gitDirBelow(rel, 0)
}

func (w *walker) gitDirBelow(rel string, depth int) {
	for name, r := range gitFiles() {
		if !w.shared || r.why != whyUnended {
			w.gitFile(join(rel, name), &r, maxFile)
		}
	}
	for name, r := range gitDirs() {
		w.gitTree(join(rel, name), &r, 0)
	}
	w.gitDirsIn(join(rel, "modules"), depth+1)
	if !w.shared {
		w.gitIndex(rel)
		w.gitDirsIn(join(rel, "worktrees"), depth+1)
	}
}

// gitFile notes one file of a git directory.
func (w *walker) gitFile(rel string, r *rule, limit int64) {
	dir, err := w.beneath(path.Dir(rel), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if !gone(err) {
			w.unread(path.Dir(rel))
		}
		return
	}
	defer func() { _ = unix.Close(dir) }() // only read
	if _, known := w.snap.Facts[w.key(rel)]; known && r.why == whyPlaced {
		return
	}
	f, there := w.read(dir, w.key(rel), path.Base(rel), r, limit)
	if !there || f.Mode&unix.S_IFMT == unix.S_IFDIR {
		return
	}
	if f.Mode&unix.S_IFMT == unix.S_IFLNK && r.why != whyPlaced {
		f.Why = whyFakeLink
	}
	w.keep(w.key(rel), f)
}

// gitIndex notes what the index hides.
func (w *walker) gitIndex(rel string) {
	r := &rule{kind: KindGit, why: whyHidden}
	r.parts = func(data []byte) map[string]string {
		return hiddenPaths(data, func(name string) ([]byte, error) {
			dir, err := w.beneath(rel, unix.O_RDONLY|unix.O_DIRECTORY)
			if err != nil {
				return nil, err
			}
			defer func() { _ = unix.Close(dir) }() // only read
			data, ok := content(dir, name, maxIndex)
			if !ok {
				return nil, fmt.Errorf("%s cannot be read", name)
			}
			return data, nil
		})
	}
	r.afresh = w.splits(rel)
	w.gitFile(join(rel, "index"), r, maxIndex)
}

// splits tells whether a git directory has a file beside its index that this may
// refer to: git takes entries from that, whose change the index does not show.
func (w *walker) splits(rel string) bool {
	fd, err := w.beneath(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }() // only read
	all, _ := w.list(fd)                  // what cannot be listed is told already
	return slices.ContainsFunc(all, func(e entry) bool { return strings.HasPrefix(e.name, "sharedindex.") })
}

// gitTree notes all files below a directory of a git directory.
func (w *walker) gitTree(rel string, r *rule, depth int) {
	fd, err := w.beneath(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		switch {
		case !gone(err):
			w.unread(rel)
		case depth == 0:
			w.gitFile(rel, r, maxFile) // a link in its place
		}
		return
	}
	defer func() { _ = unix.Close(fd) }() // only read
	all, err := w.list(fd)
	if err != nil {
		w.unread(rel)
	}
	w.names += len(all)
	for _, e := range all {
		if !w.goesOn() {
			return
		}
		switch at := join(rel, e.name); {
		case e.typ == unix.DT_DIR && depth < maxModules:
			w.gitTree(at, r, depth+1)
		case e.typ == unix.DT_DIR:
			w.tooDeep(at)
		case r.kind == KindHooks && strings.HasSuffix(e.name, ".sample"): // git runs no such name
		default:
			w.gitFile(at, r, maxFile)
		}
	}
}

// gitDirsIn looks for git directories below one that holds those of submodules or
// of linked worktrees.
func (w *walker) gitDirsIn(rel string, depth int) {
	if depth > maxModules {
		w.tooDeep(rel)
		return
	}
	fd, err := w.beneath(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if !gone(err) {
			w.unread(rel)
		}
		return
	}
	defer func() { _ = unix.Close(fd) }() // only read
	all, err := w.list(fd)
	if err != nil {
		w.unread(rel)
	}
	w.names += len(all)
	for _, e := range all {
		if !w.goesOn() {
			return
		}
		if e.typ != unix.DT_DIR {
			continue
		}
		at := join(rel, e.name)
		var st unix.Stat_t
		if unix.Fstatat(fd, e.name+"/HEAD", &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			w.gitDirBelow(at, depth)
			continue
		}
		w.gitDirsIn(at, depth+1)
	}
}
