package review

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What has become of a path.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// Finding is one thing to know. Path and Details hold text of the agent's: make
// them inert before a terminal sees them.
type Finding struct {
	Path    string   `json:"path"` // relative to the tree, or absolute in a git directory elsewhere; with "/" at its end for a repository
	Change  string   `json:"change"`
	Kind    string   `json:"kind"`
	Why     string   `json:"why"`
	Details []string `json:"details,omitempty"`
}

// maxDetails bounds those of one finding that are told.
const maxDetails = 12

// under tells whether a path is in one of the directories.
func under(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return d == "" || strings.HasPrefix(p, d+"/") })
}

// placed tells whether a path is one of the places, or in one.
func placed(p string, places []string) bool {
	return slices.Contains(places, p) || under(p, places)
}

// diff is what differs between the baseline and a snapshot. After the session it is
// only what had differed at its end: the rest is the developer's own work.
func (r *record) diff(snap *Snapshot) map[string]Finding {
	out := map[string]Finding{}
	for p, now := range snap.Facts {
		base, there := r.Base[p]
		switch {
		case now.nothing() && (!there || base.nothing()):
		case now.nothing():
			out[p] = Finding{Change: Changed, Details: partsDiff(base.Parts, now.Parts)}
		case !there:
			// Set-id bits are not looked for at the beginning, nor at what neither
			// git's configuration nor a link led to then.
			unseen := now.Kind == KindMode && now.Why != whyShut || r.Incomplete != "" || now.Why == whyPlaced && !placed(p, r.Placed) ||
				now.via != "" && r.Base[now.via].Link != snap.Facts[now.via].Link // the link is a finding
			if unseen && now.Ctime < r.Taken.UnixNano() && !slices.Contains(r.Pending, p) {
				continue
			}
			out[p] = Finding{Change: Added, Details: describe(now)}
		default:
			if details, same := compare(base, now); !same {
				out[p] = Finding{Change: Changed, Details: details}
			}
		}
	}
	for p, base := range r.Base {
		if _, there := snap.Facts[p]; there || base.nothing() || snap.Incomplete != "" || under(p, snap.Unread) || base.Why == whyUnended {
			continue
		}
		if base.Why == whyPlaced && !placed(p, snap.Placed) {
			continue // git does not obey it any more
		}
		switch base.Kind {
		case KindLink, KindMode, KindProgram: // less of them is no news
		default:
			out[p] = Finding{Change: Removed}
		}
	}
	for p, f := range out {
		// What could be seen at the session's end, and cannot be now, is not known to
		// be as it was.
		if !r.Open && !slices.Contains(r.Pending, p) && snap.Facts[p].Why != whyShut {
			delete(out, p)
			continue
		}
		of, there := snap.Facts[p]
		if !there {
			of = r.Base[p]
		}
		f.Path, f.Kind, f.Why = p, of.Kind, of.Why
		out[p] = f
	}
	return out
}

// compare tells what differs between two facts of one path.
func compare(a, b Fact) (details []string, same bool) {
	switch {
	case a.Mode&unix.S_IFMT != b.Mode&unix.S_IFMT:
		return append([]string{"was " + typeName(a.Mode)}, describe(b)...), false
	case b.Mode&unix.S_IFMT == unix.S_IFLNK:
		return describe(b), a.Link == b.Link
	case b.Mode&unix.S_IFMT == unix.S_IFDIR:
		return []string{"another directory is in its place"}, a.Inode == b.Inode
	case b.Mode&unix.S_IFMT != unix.S_IFREG:
		return describe(b), true
	}
	switch {
	case a.Parts != nil && b.Parts != nil:
		details = partsDiff(a.Parts, b.Parts)
		same = len(details) == 0
	case a.Digest != "" && b.Digest != "":
		same = a.Digest == b.Digest
	default: // one was not read
		same = a.Size == b.Size && a.Ctime == b.Ctime
	}
	const bits = unix.S_ISUID | unix.S_ISGID | unix.S_IXUSR
	if a.Mode&bits != b.Mode&bits {
		same = false
		details = append(details, modeWords(b.Mode))
	}
	return details, same
}

func modeWords(mode uint32) string {
	var words []string
	if mode&unix.S_IXUSR != 0 {
		words = append(words, "executable")
	} else {
		words = append(words, "not executable")
	}
	if mode&unix.S_ISUID != 0 {
		words = append(words, "set-user-id")
	}
	if mode&unix.S_ISGID != 0 {
		words = append(words, "set-group-id")
	}
	return strings.Join(words, ", ")
}

func typeName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "a file"
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFLNK:
		return "a symbolic link"
	}
	return "a special file"
}

// describe tells of a fact that is new.
func describe(f Fact) []string {
	switch f.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return []string{"leads to " + f.Link}
	case unix.S_IFREG:
		if f.Kind == KindMode {
			return []string{modeWords(f.Mode)}
		}
		return partsDiff(nil, f.Parts)
	case unix.S_IFDIR:
		return nil
	}
	return []string{"is " + typeName(f.Mode)}
}

func partsDiff(a, b map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(b)) {
		switch old, there := a[k]; {
		case !there:
			out = append(out, k+" "+Added)
		case old != b[k]:
			out = append(out, k+" "+Changed)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(a)) {
		if _, there := b[k]; !there {
			out = append(out, k+" "+Removed)
		}
	}
	return out
}

// findings are the differences in order, those in a repository that is new or gone
// as details of it.
func findings(diff map[string]Finding) []Finding {
	out := []Finding{}
	whole := "" // the repository that is new or gone
	for _, p := range slices.Sorted(maps.Keys(diff)) {
		f := diff[p]
		if whole != "" && strings.HasPrefix(p, whole) && len(out) > 0 {
			last := &out[len(out)-1]
			last.Details = append(last.Details, strings.TrimPrefix(p, whole))
			continue
		}
		whole = ""
		if strings.HasSuffix(p, "/") && f.Change != Changed {
			whole = p
		}
		out = append(out, f)
	}
	for i := range out {
		if n := len(out[i].Details); n > maxDetails {
			out[i].Details = append(out[i].Details[:maxDetails:maxDetails], fmt.Sprintf("and %d more", n-maxDetails))
		}
	}
	return out
}
