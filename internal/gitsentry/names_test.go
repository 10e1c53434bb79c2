package gitsentry

import (
	"strings"
	"testing"
)

func TestGitRule(t *testing.T) {
	hex38 := strings.Repeat("a", 38)
	for p, want := range map[string]class{
		"HEAD": real,
		"index.lock.0123456789abcdef0123456789abcdef": real, "refs/heads/x.lock.0123456789abcdef0123456789abcdef": real,
		"config.lock.0123456789abcdef0123456789abcdef": shadow, "index.lock.0123456789abcdef012345678abcdef": real, "index.lock.0123": shadow, "hooks.lock.0123456789abcdef0123456789abcdef": shadow,
		"HEAD.lock": real, "index": index, "index.lock": real, "packed-refs.lock": real,
		"refs/heads/a/b": real, "refs/heads/a/b.lock": real, "logs/refs/heads/a": real, "logs/HEAD": real, "logs": real, "logs/x": refused, "logs/x/HEAD": refused, "FETCH_HEAD": real,
		"sharedindex.abc": index, "sharedindex_abc": real, "next-index-12.lock": real, "index.stash.12": real, "index.stash.12.lock": real,
		"config": readOnly, "config.lock": shadow, "CONFIG": readOnly, "Config.Lock": readOnly, "config.worktree": readOnly,
		"commondir": readOnly, "gitdir": readOnly, "info/attributes": readOnly, "info/attributes.lock": readOnly, "info/grafts": readOnly,
		"info/exclude": readOnly, "info/sparse-checkout": readOnly, "info/refs": real, "info/x": shadow, "info": real,
		"objects": real, "objects/aa": real, "objects/aa/" + hex38: real, "objects/aa/tmp_obj_x": real, "objects/tmp_object_git2_x": real, "objects/pack/pack_git2_x": real, "objects/AA": refused,
		"objects/pack": real, "objects/pack/pack-x.pack": real, "objects/pack/tmp_pack_x": real, "objects/pack/.tmp-1-pack-x.idx": real,
		"objects/info": real, "objects/info/packs": real, "objects/info/alternates": readOnly, "objects/info/alternates.lock": readOnly,
		"objects/info/http-alternates": readOnly, "objects/info/commit-graphs/x": real, "objects/pack/multi-pack-index.d/x": real,
		"objects/tmp_objdir-incoming-x/aa/" + hex38: real, "objects/tmp_objdir-incoming-x/info/alternates": readOnly,
		"objects/x": refused, "objects/pack/x/y": refused, "objects/pack/pack-x/y": refused, "objects/aa/HEAD": refused,
		"hooks": memory, "hooks/pre-commit": memory, "modules/x": modules, "worktrees/x": trees,
		"rebase-merge": shadow, "rebase-merge/done": shadow, "sequencer/todo": shadow, "MERGE_RR": shadow, "BISECT_NAMES": shadow,
		"branches/x": shadow, "remotes/x": shadow, "unknown": shadow, "HOOKS/x": shadow, "refs/replace/x": readOnly,
		".git/config": refused, "refs/heads/.GIT/config": refused, "refs/heads/git~1": refused,
	} {
		if got := gitRule(p); got != want {
			t.Errorf("%s: %d, want %d", p, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	for name, want := range map[string]string{".git": ".git", ".g\u00adit": ".git", ".g\u200bit": ".git", ".g\ufe0fit": ".git", "\u212aey": "key", "obje\u034fcts": "objects", "ref\u017f": "refs", "é": "é"} {
		if got := plain(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// FuzzGitRule: nothing that git obeys is ever written through, however it is
// spelt and wherever it is.
func FuzzGitRule(f *testing.F) {
	for _, s := range []string{"config", "hooks/x", "objects/info/alternates", "modules/a/config", "refs/heads/x", "worktrees/w/config.worktree", "info/../config", "a/.git/config", "index"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if strings.HasPrefix(p, "/") || strings.Contains(p, "//") || strings.HasSuffix(p, "/") {
			return
		}
		for part := range strings.SplitSeq(p, "/") {
			if part == "." || part == ".." || part == "" {
				return // the kernel hands none of these on
			}
		}
		for what, c := range map[string]class{"rule": gitRule(p), "branch": branchRule(p, "w", "b")} {
			if c != real && c != index && what == "rule" || c != real && c != index {
				continue
			}
			low := strings.ToLower(strings.TrimSuffix(strings.ToLower(p), ".lock"))
			for name := range obeyed {
				if low == name || what == "branch" && low == "worktrees/w/"+name {
					t.Errorf("%s: %q is written through", what, p)
				}
			}
			first, _, _ := strings.Cut(low, "/")
			switch first {
			case "hooks", "modules", "rebase-merge", "rebase-apply", "sequencer", "branches", "remotes", "rr-cache", "merge_rr":
				t.Errorf("%s: %q is written through", what, p)
			}
		}
	})
}
