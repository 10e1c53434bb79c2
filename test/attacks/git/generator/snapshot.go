package generator

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// Snapshot is what a sandbox must not change on the host: the guarded files of
// every git directory with type, mode and content, the names that git takes for a
// repository, directories of a repository's shape, what is masked, and entries of
// an index that would be written into a git directory. The key is a path with a
// word for why it is in here.
type Snapshot map[string]string

// Guarded takes the snapshot of a workspace. It follows no link.
func Guarded(workspace string) (Snapshot, error) {
	s := Snapshot{}
	return s, s.worktree(workspace, "")
}

// Diff tells, one a line and sorted, what is not in s as it was before.
func (s Snapshot) Diff(before Snapshot) []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		old, had := before[key]
		if !had {
			lines = append(lines, "new: "+key+": "+s[key])
		} else if old != s[key] {
			lines = append(lines, "changed: "+key+": "+old+" → "+s[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, has := s[key]; !has {
			lines = append(lines, "gone: "+key)
		}
	}
	return lines
}

// Harm is Diff, but for directories that were renamed with the repositories in
// them: the worktree is the sandbox's to arrange. What was in a git directory must
// still be there, all of it and nothing else, and .git in the same directory.
func (s Snapshot) Harm(before Snapshot) []string {
	changes := s.Diff(before)
	if len(changes) > 0 && len(s.Diff(before.follow(s))) == 0 {
		return nil
	}
	return changes
}

// follow is the snapshot after the directories that hold repositories were renamed
// as now has them.
func (s Snapshot) follow(now Snapshot) Snapshot {
	var gone, come []string
	for key := range s {
		if rel, ok := strings.CutPrefix(key, "name "); ok && now[key] != s[key] {
			gone = append(gone, rel)
		}
	}
	for key := range now {
		if rel, ok := strings.CutPrefix(key, "name "); ok && s[key] != now[key] {
			come = append(come, rel)
		}
	}
	if len(gone) != len(come) || len(gone) > 16 {
		return s
	}
	slices.Sort(gone)
	slices.Sort(come)
	for range 2 { // in order, as below one directory, or two that were exchanged
		pairs := map[string]string{}
		for i, from := range gone {
			pairs[from] = come[i]
		}
		out := s.moved(pairs)
		if len(now.Diff(out)) == 0 {
			return out
		}
		slices.Reverse(come)
	}
	return s
}

// moved is the snapshot after git directories were renamed, from to to.
func (s Snapshot) moved(pairs map[string]string) Snapshot {
	out := Snapshot{}
	for key, value := range s {
		kind, rel, _ := strings.Cut(key, " ")
		for from, to := range pairs {
			if rel == from || strings.HasPrefix(rel, from+"/") {
				rel = to + strings.TrimPrefix(rel, from)
				break
			}
		}
		out[kind+" "+rel] = value
	}
	return out
}

// worktree records what is guarded below a directory outside git directories.
func (s Snapshot) worktree(dir, rel string) error {
	return each(dir, rel, func(path, rel string, fi fs.FileInfo) error {
		name := fi.Name()
		if fi.Mode()&(fs.ModeDevice|fs.ModeSetuid|fs.ModeSetgid) != 0 && !fi.IsDir() {
			s["special "+rel] = fi.Mode().String()
		}
		switch {
		case GitLike(name):
			s["name "+rel] = fi.Mode().Type().String() + parent(path)
			if fi.IsDir() {
				return s.gitDir(path, rel)
			}
			return s.all(path, rel, fi)
		case name == ".vscode" || name == ".idea" || rel == "lazaret.toml":
			return s.all(path, rel, fi)
		case fi.IsDir() && Shaped(path):
			s["shape "+rel] = "dir"
			return s.gitDir(path, rel)
		case fi.IsDir():
			return s.worktree(path, rel)
		}
		return nil
	})
}

var (
	// free are the files of a git directory that git must be able to write.
	free = regexp.MustCompile(`^((HEAD|[A-Z]+_HEAD|MERGE_MODE|MERGE_MSG|SQUASH_MSG|AUTO_MERGE|[A-Z]+_EDITMSG|` +
		`packed-refs|packed-refs\.new|shallow|gc\.pid|gc\.log|index)(\.lock)?|sharedindex[._].*|next-index-.*|tmp_.*)$`)
	// freeTrees are its directories whose files git must be able to write.
	freeTrees = regexp.MustCompile(`^(refs|logs|lfs|objects)$`)
)

// gitDir records what is guarded in a git directory.
func (s Snapshot) gitDir(dir, rel string) error {
	return each(dir, rel, func(path, rel string, fi fs.FileInfo) error {
		name := fi.Name()
		switch {
		case GitLike(name):
			s["name "+rel] = fi.Mode().Type().String()
			return s.all(path, rel, fi)
		case fi.Mode().IsRegular() && free.MatchString(name):
			if name == "index" || strings.HasPrefix(name, "sharedindex.") {
				return s.index(path, rel)
			}
			return nil
		// A directory where git wants a file, or the reverse, stops git but runs nothing.
		case fi.IsDir() && (freeTrees.MatchString(name) || free.MatchString(name)):
			return s.freeTree(path, rel)
		case fi.Mode().IsRegular() && (freeTrees.MatchString(name) || name == "info"):
			return nil
		case fi.IsDir() && name == "info":
			return s.info(path, rel)
		case fi.IsDir() && name == "modules":
			return s.modules(path, rel)
		case fi.IsDir() && name == "worktrees":
			return s.worktrees(path, rel)
		}
		return s.all(path, rel, fi)
	})
}

// modules looks for git directories at any depth: a submodule's name may have
// slashes.
func (s Snapshot) modules(dir, rel string) error {
	return each(dir, rel, func(path, rel string, fi fs.FileInfo) error {
		if !fi.IsDir() {
			return s.all(path, rel, fi)
		}
		for _, name := range []string{"HEAD", "config", "objects", "refs"} {
			if _, err := os.Lstat(filepath.Join(path, name)); err == nil {
				s["shape "+rel] = "dir"
				return s.gitDir(path, rel)
			}
		}
		s["dir "+rel] = "dir"
		return s.modules(path, rel)
	})
}

// worktrees are all guarded but for their reflogs, which the host's gc trims.
func (s Snapshot) worktrees(dir, rel string) error {
	return each(dir, rel, func(path, rel string, fi fs.FileInfo) error {
		if !fi.IsDir() {
			return s.all(path, rel, fi)
		}
		s["dir "+rel] = "dir"
		return each(path, rel, func(path, rel string, fi fs.FileInfo) error {
			if fi.IsDir() && fi.Name() == "logs" {
				return s.freeTree(path, rel)
			}
			return s.all(path, rel, fi)
		})
	})
}

// info is all guarded but what dumb servers and git's own commands write.
func (s Snapshot) info(dir, rel string) error {
	return each(dir, rel, func(path, rel string, fi fs.FileInfo) error {
		if strings.HasPrefix(fi.Name(), "refs") && (fi.IsDir() || fi.Mode().IsRegular()) {
			return nil
		}
		return s.all(path, rel, fi)
	})
}

// freeTree records only what has no business in refs, logs and objects.
func (s Snapshot) freeTree(dir, rel string) error {
	return each(dir, rel, func(path, rel string, fi fs.FileInfo) error {
		name := fi.Name()
		switch {
		case GitLike(name), !fi.IsDir() && !fi.Mode().IsRegular(), strings.HasSuffix(rel, "objects/info/alternates"),
			strings.HasSuffix(rel, "objects/info/http-alternates"):
			return s.all(path, rel, fi)
		case fi.IsDir() && Shaped(path):
			s["shape "+rel] = "dir"
			return s.freeTree(path, rel)
		case fi.IsDir():
			return s.freeTree(path, rel)
		}
		return nil
	})
}

// parent tells the directory that a name is in, whatever that is called: it may be
// renamed, but what is in it must stay there.
func parent(path string) string {
	fi, err := os.Lstat(filepath.Dir(path))
	if err != nil {
		return ""
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf(" in %d", st.Ino)
	}
	return ""
}

// all records every byte of a file or tree.
func (s Snapshot) all(path, rel string, fi fs.FileInfo) error {
	switch {
	case fi.IsDir():
		s["dir "+rel] = "dir"
		return each(path, rel, s.all)
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err == nil {
			s["link "+rel] = target
		}
		return ignoreGone(err)
	case fi.Mode().IsRegular():
		data, err := os.ReadFile(path)
		if err == nil {
			s["file "+rel] = fmt.Sprintf("%s %x %.60q", fi.Mode(), sha256.Sum256(data), data)
		}
		return ignoreGone(err)
	}
	s["special "+rel] = fi.Mode().String()
	return nil
}

// index records paths that git would write into a git directory or outside.
func (s Snapshot) index(path, rel string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return ignoreGone(err)
	}
	for _, p := range IndexPaths(data) {
		for part := range strings.SplitSeq(p, "/") {
			if part == "" || part == "." || part == ".." || GitLike(part) {
				s["index "+rel+" entry "+p] = "entry"
				break
			}
		}
	}
	return nil
}

// Shaped tells whether git would take a directory for a git directory. It is
// stricter than git: HEAD may be anything, and objects and refs too.
func Shaped(dir string) bool {
	has := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	return has("HEAD") && (has("objects") && has("refs") || has("commondir"))
}

// GitLike tells whether some file system takes a name for .git.
func GitLike(name string) bool {
	name = strings.Map(func(r rune) rune {
		if r >= 0x200b && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff {
			return -1 // HFS+ ignores these
		}
		return r
	}, name)
	name, _, _ = strings.Cut(name, ":") // NTFS streams
	name = strings.ToLower(strings.TrimRight(name, " ."))
	rest, short := strings.CutPrefix(name, "git~")
	return name == ".git" || short && strings.Trim(rest, "0123456789") == ""
}

// each calls f for what is in a directory. What vanishes meanwhile is left out.
func each(dir, rel string, f func(path, rel string, fi fs.FileInfo) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return ignoreGone(err)
	}
	defer func() { _ = d.Close() }() // only read
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			path := filepath.Join(dir, name)
			fi, err := os.Lstat(path)
			if err == nil {
				err = f(path, filepath.Join(rel, name), fi)
			}
			if err := ignoreGone(err); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
