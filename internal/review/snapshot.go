// Package review owns what a person should know before using a workspace again:
// which files that tools on the host run or obey have changed while an agent had
// it. All that it reads may be the agent's: nothing is followed, entered or run.
package review

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/dotgit"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
	"github.com/lazaret-dev/lazaret/internal/gitsentry/repo"
)

const (
	// maxNames and maxFacts bound one look at a working tree.
	maxNames = 3_000_000
	maxFacts = 50_000
	// maxKept bounds what is kept of their names, links and parts, in bytes.
	maxKept = 32 << 20
	// maxFile is how many bytes of a file are read; a larger one counts by its size
	// and its time of change.
	maxFile = 4 << 20
	// maxIndex is the same for an index of git's.
	maxIndex = 128 << 20
	// racy is how young a change may be for its time to tell nothing.
	racy = 2 * time.Second
)

// Fact is what is kept of one path.
type Fact struct {
	// Kind and Why are of the rule that makes it count; Rule is theirs in a record.
	Kind string `json:"-"`
	Why  string `json:"-"`
	Rule int    `json:"rule"`

	Mode   uint32            `json:"mode"` // as in stat(2)
	Size   int64             `json:"size,omitempty"`
	Ctime  int64             `json:"ctime,omitempty"`  // nanoseconds since 1970
	Inode  uint64            `json:"inode,omitempty"`  // 0 where the time of change is too young to tell anything
	Digest string            `json:"digest,omitempty"` // of the content, "" where it was not read
	Link   string            `json:"link,omitempty"`   // where a symbolic link leads
	Parts  map[string]string `json:"parts,omitzero"`   // what counts of the content, instead of Digest

	via string // the link that makes it count, "" for its own name
}

// nothing tells that a file has no part that counts.
func (f *Fact) nothing() bool { return f.Parts != nil && len(f.Parts) == 0 }

// Snapshot is one look at a working tree. Paths are relative to it; those of a git
// directory elsewhere are absolute.
type Snapshot struct {
	Taken      time.Time
	Facts      map[string]Fact
	Incomplete string   // why something was not looked at, "" for nothing
	Unread     []string // directories that could not be listed, each once
	Placed     []string // paths in the tree that git's configuration names, there or not
}

// Options say what to look at.
type Options struct {
	// Tree is the working tree, absolute and canonical.
	Tree string
	// GitDir and CommonDir are the git directories outside of it that belong to it,
	// "" for none; they differ for a linked worktree.
	GitDir, CommonDir string
	// SetID also looks for set-id bits, which takes a look at each file.
	SetID bool
	// Config is whose git configuration may name places in the tree, nil for nobody's.
	Config *gitconf.Options
	// Known are facts of an earlier snapshot: what has not changed since is not read
	// again.
	Known map[string]Fact
	// Placed are what git's configuration named then. It may name them again, once an
	// agent's change of it is taken back.
	Placed []string
}

// For are the options for a working tree of the user uid's: its git directories are
// found where its .git leads elsewhere, and agrees with them. Of dev, the developer
// as git sees him, Home, XDGConfigHome and Env count.
func For(tree string, uid int, dev gitconf.Options) Options {
	if real, err := filepath.EvalSymlinks(tree); err == nil {
		tree = real
	}
	o := Options{Tree: tree}
	r, conf, err := repo.Configured(tree, uid, dev)
	if err != nil {
		return o // the guard refuses it too: no session comes of it
	}
	o.Config = &conf
	switch r.Kind {
	case repo.Worktree, repo.Submodule, repo.Separate:
		o.GitDir, o.CommonDir = r.GitDir, r.CommonDir
	}
	return o
}

// walker takes one snapshot.
type walker struct {
	Options
	root int    // descriptor of what is being looked at
	at   string // its path, "" for the tree
	// shared tells that it is a git directory of other working trees as well.
	shared bool
	rules  *matcher
	snap   *Snapshot
	names  int
	kept   int
	buf    []byte
	todo   []dir
	links  []link // to look at after the directories
	via    string // the one that is being followed, "" for none
	// host remembers which names are programs of the host.
	host map[string]bool
	// late is why there is no time left, nil while there is.
	late func() error
}

// dir is a directory to look at.
type dir struct {
	rel   string // "" for the top; without name while it waits: many may wait in one
	fold  string // rel in lower case
	name  string // "" once it is at the end of rel
	lower string // name in lower case
	rule  *rule  // of all that is in it
	alien bool   // below a directory of dependencies
}

// link is a symbolic link that stands for what a rule names, or for a directory on
// the way to that.
type link struct {
	rel, fold string
	rule      *rule
}

// Take looks at a working tree. It ends early, and says so in the snapshot, when
// ctx does. An error means that there is nothing to look at.
func Take(ctx context.Context, o Options) (*Snapshot, error) {
	root, err := unix.Open(o.Tree, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", o.Tree, err)
	}
	defer func() { _ = unix.Close(root) }() // only looked through
	w := &walker{
		Options: o, root: root, rules: newMatcher(table()), buf: make([]byte, 64<<10), host: map[string]bool{}, late: ctx.Err,
		snap: &Snapshot{Taken: time.Now(), Facts: map[string]Fact{}},
	}
	for w.todo = []dir{{}}; len(w.todo) > 0 && w.goesOn(); {
		d := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.dir(d)
	}
	w.followAll()
	for _, g := range slices.Compact([]string{o.GitDir, o.CommonDir}) {
		if g == "" || !w.goesOn() {
			continue
		}
		if err := w.outside(g, g != o.GitDir); err != nil {
			w.incomplete(fmt.Sprintf("git directory %s: %v", g, err))
		}
	}
	if w.goesOn() {
		w.places()
	}
	return w.snap, nil
}

// followAll looks at what links of the tree stand for within it, under the rules of
// the links' names, each once.
func (w *walker) followAll() {
	seen := map[string]bool{}
	for i := 0; i < len(w.links) && w.goesOn(); i++ {
		l := w.links[i]
		real, err := filepath.EvalSymlinks(filepath.Join(w.Tree, l.rel))
		if err != nil {
			continue // of one that leads nowhere, the link is all there is
		}
		rel, err := filepath.Rel(w.Tree, real)
		if err != nil || !filepath.IsLocal(rel) || rel == "." || strings.HasPrefix(l.rel, rel+"/") {
			continue // out of the tree, as the link's own fact tells; or to what it lies in
		}
		why := ""
		if l.rule != nil {
			why = l.rule.kind + ": " + l.rule.why
		}
		if seen[rel+"\x00"+why] {
			continue
		}
		seen[rel+"\x00"+why], w.via = true, l.rel
		if fd, err := w.beneath(rel, unix.O_PATH|unix.O_DIRECTORY); err == nil {
			_ = unix.Close(fd) // only looked for
			for w.todo = []dir{{rel: rel, fold: l.fold, rule: l.rule}}; len(w.todo) > 0 && w.goesOn(); {
				d := w.todo[len(w.todo)-1]
				w.todo = w.todo[:len(w.todo)-1]
				w.dir(d)
			}
			continue
		}
		if fd, err := w.beneath(path.Dir(rel), unix.O_RDONLY|unix.O_DIRECTORY); err == nil && l.rule != nil {
			w.fact(fd, rel, path.Base(rel), l.rule)
			_ = unix.Close(fd) // only read
		}
	}
	w.via = ""
}

// places notes what git's configuration names in the tree, wherever that is. Of one
// that git cannot read it obeys nothing, and that it was changed is a fact of its own.
func (w *walker) places() {
	var found gitconf.Places
	if w.Config != nil {
		found, _ = gitconf.Find(*w.Config)
	}
	hooks, file := &rule{kind: KindHooks, why: whyPlaced}, &rule{kind: KindGit, why: whyPlaced}
	for _, p := range found.Hooks {
		w.place(p, hooks)
	}
	for _, p := range slices.Concat(found.Files, found.Programs) {
		w.place(p, file)
	}
	now := w.snap.Placed
	for _, p := range w.Placed {
		if slices.Contains(now, p) {
			continue
		}
		r := file
		if fd, err := w.beneath(p, unix.O_PATH|unix.O_DIRECTORY); err == nil {
			_ = unix.Close(fd) // only looked for
			r = hooks
		}
		w.place(p, r)
	}
	w.snap.Placed = now
}

// place notes what is at a path of the tree. Of directories only those of hooks
// count: what is in others is not named.
func (w *walker) place(rel string, r *rule) {
	if !filepath.IsLocal(rel) || rel == "." {
		return
	}
	w.snap.Placed = append(w.snap.Placed, rel)
	if fd, err := w.beneath(rel, unix.O_PATH|unix.O_DIRECTORY); err == nil {
		_ = unix.Close(fd) // only looked for
		if r.kind == KindHooks {
			w.gitTree(rel, r, 0)
		}
		return
	}
	w.gitFile(rel, r, maxFile)
}

func (w *walker) incomplete(why string) {
	if w.snap.Incomplete == "" {
		w.snap.Incomplete = why
	}
}

// maxUnread bounds how many directories that cannot be read are told apart.
const maxUnread = 1000

func (w *walker) unread(rel string) {
	key := w.key(rel)
	switch {
	case slices.Contains(w.snap.Unread, key):
		return
	case len(w.snap.Unread) == maxUnread:
		w.incomplete(fmt.Sprintf("more than %d directories cannot be read", maxUnread))
		return
	}
	w.snap.Unread = append(w.snap.Unread, key)
	w.shut(rel)
}

const whyShut = "it cannot be listed, so nobody knows what tools that are told a name find in it"

// shut notes a directory that cannot be listed where something in it may be obeyed
// all the same: whoever may enter it finds files by their names, and its owner may
// open it again. What is another user's and closed is of no use to any tool.
func (w *walker) shut(rel string) {
	fd, err := w.beneath(rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }() // only looked at
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || int(st.Uid) != os.Geteuid() && unix.Faccessat(fd, ".", unix.X_OK, unix.AT_EACCESS) != nil {
		return
	}
	f := statFact(&st)
	f.Kind, f.Why = KindMode, whyShut
	key := w.key(rel)
	if key == "" {
		key = "."
	}
	w.keep(key, f)
}

func (w *walker) goesOn() bool {
	switch {
	case w.late() != nil:
		w.incomplete("there was no time to look at everything")
	case w.names > maxNames:
		w.incomplete(fmt.Sprintf("there are more than %d files", maxNames))
	case len(w.snap.Facts) > maxFacts:
		w.incomplete(fmt.Sprintf("there are more than %d files of the kinds that count", maxFacts))
	case w.kept > maxKept:
		w.incomplete(fmt.Sprintf("the names of what counts have more than %d MiB", maxKept>>20))
	default:
		return true
	}
	return false
}

// beneath opens what lies below the root: no link is followed, nothing above it
// reached.
func (w *walker) beneath(rel string, flags int) (int, error) {
	if rel == "" {
		rel = "."
	}
	for {
		fd, err := unix.Openat2(w.root, rel, &unix.OpenHow{
			Flags:   uint64(flags) | unix.O_CLOEXEC | unix.O_NOFOLLOW, //nolint:gosec // flags are constants
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// gone tells that a name has become something else since it was listed.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// entry is a name in a directory.
type entry struct {
	name string
	typ  uint8 // DT_…, of what the name is itself
}

// list reads a directory.
func (w *walker) list(fd int) (all []entry, err error) {
	for w.names+len(all) <= maxNames {
		n, err := unix.Getdents(fd, w.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return all, err
		}
		for rest := w.buf[:n]; len(rest) >= 20; {
			length := int(binary.NativeEndian.Uint16(rest[16:]))
			if length < 20 || length > len(rest) {
				return all, unix.EIO
			}
			name, _, _ := bytes.Cut(rest[19:length], []byte{0})
			e := entry{string(name), rest[18]}
			rest = rest[length:]
			if e.name == "." || e.name == ".." {
				continue
			}
			if e.typ == unix.DT_UNKNOWN {
				var st unix.Stat_t
				if unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
					continue
				}
				e.typ = uint8(st.Mode & unix.S_IFMT >> 12)
			}
			all = append(all, e)
		}
	}
	return all, nil // more than are looked at, which goesOn tells
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// lower is strings.ToLower for what is lower already, as most names are.
func lower(s string) string {
	for i := range len(s) {
		if c := s[i]; 'A' <= c && c <= 'Z' || c >= 0x80 {
			return foldings().Replace(strings.ToLower(s))
		}
	}
	return s
}

// foldings are what file systems that do not tell case apart take for one beside
// upper and lower case (Unicode's full case folding), of letters in the table's names.
func foldings() *strings.Replacer {
	return strings.NewReplacer("ſ", "s", "ß", "ss", "ﬀ", "ff", "ﬁ", "fi", "ﬂ", "fl", "ﬃ", "ffi", "ﬄ", "ffl", "ﬅ", "st", "ﬆ", "st")
}

// dir looks at one directory of the working tree.
func (w *walker) dir(d dir) {
	if d.name != "" {
		d.rel, d.fold, d.name = join(d.rel, d.name), join(d.fold, d.lower), ""
	}
	fd, err := w.beneath(d.rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if !gone(err) {
			w.unread(d.rel)
		}
		return
	}
	defer func() { _ = unix.Close(fd) }() // only read
	all, err := w.list(fd)
	if err != nil {
		w.unread(d.rel)
	}
	w.names += len(all)
	has := map[string]bool{}
	for _, e := range all {
		switch fold := lower(e.name); fold {
		case "head", "objects", "refs", "commondir":
			has[fold] = true
		}
	}
	if has["head"] && (has["objects"] && has["refs"] || has["commondir"]) {
		w.gitDir(d.rel, whyBare)
	}
	programs := d.rel == "" || programDirs(path.Base(d.rel))
	for _, e := range all {
		if !w.goesOn() {
			return
		}
		fold := lower(e.name)
		rel := join(d.rel, e.name)
		if dotgit.Is(e.name) {
			w.dotGit(fd, rel, e)
			continue
		}
		if e.typ == unix.DT_DIR {
			below := dir{rel: d.rel, fold: d.fold, name: e.name, lower: fold, rule: d.rule, alien: d.alien || dependencies(fold)}
			if r := w.rules.dir(d.fold, fold); r != nil && !below.alien {
				below.rule = r
			}
			w.todo = append(w.todo, below)
			continue
		}
		r := w.ruleOf(d, e, fold, programs)
		if e.typ == unix.DT_LNK && (r != nil || w.rules.heads[fold]) && !d.alien {
			w.links = append(w.links, link{rel, join(d.fold, fold), r})
		}
		if r == nil && e.typ == unix.DT_LNK && w.rules.heads[fold] && !d.alien {
			r = &rule{kind: KindLink, why: whyWay}
		}
		if r != nil {
			w.fact(fd, rel, e.name, r)
		} else if e.typ == unix.DT_LNK && !d.alien {
			w.link(fd, rel, e.name)
		}
		if w.SetID && e.typ == unix.DT_REG {
			w.setID(fd, rel, e.name)
		}
	}
}

// ruleOf is the rule for a name that is no directory, nil for none.
func (w *walker) ruleOf(d dir, e entry, fold string, programs bool) *rule {
	switch {
	case d.alien:
		return nil
	case d.rule != nil:
		return d.rule
	}
	if r := w.rules.file(d.fold, fold); r != nil {
		return r
	}
	// A link can stand for the directory.
	if e.typ == unix.DT_LNK {
		if r := w.rules.dir(d.fold, fold); r != nil {
			return r
		}
	}
	if programs && w.onHost(e.name) {
		return &rule{kind: KindProgram, why: "it stands before the host's program of that name where PATH leads here first"}
	}
	return nil
}

// onHost tells whether a name is that of a program of the host.
func (w *walker) onHost(name string) bool {
	is, known := w.host[name]
	if !known {
		is = slices.ContainsFunc([]string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"}, func(dir string) bool {
			var st unix.Stat_t
			return unix.Stat(filepath.Join(dir, name), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
		})
		w.host[name] = is
	}
	return is
}

// keep notes a fact.
func (w *walker) keep(key string, f Fact) {
	w.kept += len(key) + len(f.Link)
	for k, v := range f.Parts {
		w.kept += len(k) + len(v)
	}
	w.snap.Facts[key] = f
}

// fact notes what is at a name in a directory.
func (w *walker) fact(fd int, rel, name string, r *rule) {
	if _, known := w.snap.Facts[rel]; known {
		return // by its own name, before a link led here
	}
	f, there := w.read(fd, rel, name, r, maxFile)
	if !there || r.kind == KindProgram && f.Mode&unix.S_IFMT == unix.S_IFREG && f.Mode&0o111 == 0 {
		return
	}
	if f.Mode&unix.S_IFMT == unix.S_IFLNK && w.leaves(rel, f.Link) {
		f.Kind, f.Why = KindLink, whyLink
	}
	w.keep(rel, f)
}

// read is the fact of a name in a directory; there is false for none.
func (w *walker) read(fd int, rel, name string, r *rule, limit int64) (f Fact, there bool) {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return f, false
	}
	f = statFact(&st)
	f.Kind, f.Why, f.via = r.kind, r.why, w.via
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		f.Link = readlink(fd, name)
	case unix.S_IFREG:
		known, is := w.Known[rel]
		if is && !r.afresh && (known.Digest != "" || known.Parts != nil) && unchanged(known, f) {
			f.Digest, f.Parts = known.Digest, known.Parts
			return f, true
		}
		data, ok := content(fd, name, limit)
		switch {
		case !ok:
		case r.parts != nil:
			f.Parts = r.parts(data)
		default:
			f.Digest = digest(data)
		}
		if !time.Unix(0, f.Ctime).Before(w.snap.Taken.Add(-racy)) {
			f.Inode = 0
		}
	}
	return f, true
}

func statFact(st *unix.Stat_t) Fact {
	f := Fact{Mode: st.Mode, Ctime: st.Ctim.Nano(), Inode: st.Ino}
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		f.Size = st.Size
	}
	return f
}

// unchanged tells whether a file is the very one that it was, by what stat(2)
// says: nobody but the kernel sets the time of change.
func unchanged(a, b Fact) bool {
	return a.Inode != 0 && a.Kind == b.Kind && a.Why == b.Why && a.Mode == b.Mode && a.Size == b.Size && a.Ctime == b.Ctime && a.Inode == b.Inode
}

// content reads a regular file; ok is false for one that cannot be read, or is
// larger than limit.
func content(dirfd int, name string, limit int64) (data []byte, ok bool) {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }() // only read
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > limit {
		return nil, false
	}
	data, err = io.ReadAll(io.LimitReader(file, limit+1))
	return data, err == nil && int64(len(data)) <= limit
}

func readlink(fd int, name string) string {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, name, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

const whyWay = "tools look for their files below it"

const whyLink = "it leads out of the workspace: what writes or reads here does so there"

// link notes a symbolic link that leads out of the tree.
func (w *walker) link(fd int, rel, name string) {
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return
	}
	f := statFact(&st)
	if f.Link = readlink(fd, name); f.Mode&unix.S_IFMT == unix.S_IFLNK && w.leaves(rel, f.Link) {
		f.Kind, f.Why = KindLink, whyLink
		w.keep(rel, f)
	}
}

// leaves tells whether a link at rel leads out of the tree, or would if what it
// passes on the way were made.
func (w *walker) leaves(rel, target string) bool {
	if strings.HasPrefix(target, "/") {
		real, err := filepath.EvalSymlinks(target)
		return err != nil || real != w.Tree && !strings.HasPrefix(real, strings.TrimSuffix(w.Tree, "/")+"/")
	}
	if !filepath.IsLocal(path.Join(path.Dir(rel), target)) {
		return true
	}
	fd, err := unix.Openat2(w.root, rel, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == nil {
		_ = unix.Close(fd) // only looked for
	}
	return errors.Is(err, unix.EXDEV)
}

// setID notes a file that runs as its owner or group.
func (w *walker) setID(fd int, rel, name string) {
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG ||
		st.Mode&unix.S_ISUID == 0 && st.Mode&(unix.S_ISGID|unix.S_IXGRP) != unix.S_ISGID|unix.S_IXGRP {
		return
	}
	f := statFact(&st)
	f.Kind, f.Why = KindMode, "whoever runs it has the rights of its owner or group"
	w.keep(rel, f)
}
