package generator

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Where programs act: the worktree, nested repositories of either side, git
// directories and what is in them.
func zones() []string {
	return []string{
		"", "d", "d/e", "x", "n", "m",
		".git", ".git", ".git", ".git/hooks", ".git/info", ".git/objects", ".git/objects/info", ".git/objects/pack", ".git/objects/ab",
		".git/refs", ".git/refs/heads", ".git/refs/x", ".git/logs", ".git/logs/refs", ".git/lfs", ".git/rebase-merge", ".git/rr-cache",
		".git/modules", ".git/modules/m", ".git/modules/m", ".git/modules/m/hooks", ".git/modules/m/info", ".git/modules/m/objects/info", ".git/modules/evil",
		".git/worktrees", ".git/worktrees/w", ".git/worktrees/evil",
		"x/.git", "x/.git/hooks", "d/.git", "n/.git", "n/.git/hooks", "n/.git/info", "n/.git/refs/heads",
		".vscode", ".idea", "d/.vscode",
	}
}

func names() []string {
	return []string{
		"config", "config", "config", "config.lock", "config.worktree", "commondir", "gitdir", "HEAD", "HEAD", "HEAD.lock", "index", "index.lock",
		"objects", "refs", "hooks", "info", "logs", "modules", "worktrees", "attributes", "attributes.lock", "alternates", "alternates.lock", "grafts",
		"post-checkout", "pre-commit", "packed-refs", "packed-refs.lock", "ORIG_HEAD", "COMMIT_EDITMSG", "MERGE_RR", "BISECT_START",
		"sharedindex.0123456789012345678901234567890123456789", "rebase-merge", "git-rebase-todo", "main", "heads", "evil", "m", "w",
		".git", ".git", ".git", ".GIT", ".Git", "git~1", ".git ", ".g\u200cit", ".vscode", ".idea", "tasks.json", "lazaret.toml", ".gitmodules",
		"f", "f", "g", "d", "x", "n",
	}
}

// kinds are drawn with their weights.
func kinds() []string {
	return []string{
		"mkdir", "mkdir", "mkdir", "write", "write", "write", "append", "overwrite", "truncate", "mmap", "fallocate", "copyrange", "unlink", "unlink",
		"rmdir", "rename", "rename", "rename", "rename", "exchange", "exchange", "noreplace", "whiteout", "link", "link", "symlink", "symlink", "fifo", "char", "socket",
		"chmod", "xattr", "tmpfile", "tmpfile", "index", "index", "open", "open", "openread", "openpath", "opendir", "opendir", "close",
		"fdwrite", "fdwrite", "fdtruncate", "fdreopen", "fdreopen", "fdlink", "fdlink", "pass", "pass", "atwrite", "atwrite", "atmkdir", "atrename", "atrenamein",
		"atunlink", "atproc", "race", "race", "host", "host", "hostrace",
	}
}

// Kinds of Host ops; Text of "host" and "hostrace" is one of them.
func hostKinds() []string {
	return []string{
		"config", "config", "config", "config", "config", "attributes", "attributes", "hook", "hook", "edit", "edit", "edit", "touch-head", "touch-head", "touch-head",
		"module-config", "module-config", "nested-config", "nested-config", "away", "back", "commit", "status", "gc",
	}
}

// Program is a random program, the same for the same seed. What it writes names
// the seed, so that a planted byte tells where it is from.
func Program(seed uint64) []Op {
	r := rand.New(rand.NewPCG(seed, 0x6c617a61726574)) //nolint:gosec // must be the same each time
	g := gen{r: r, mark: fmt.Sprintf("LZ%d.", seed)}
	ops := make([]Op, 3+r.IntN(12))
	for i := range ops {
		ops[i] = g.op(true)
	}
	return ops
}

type gen struct {
	r    *rand.Rand
	mark string
	last string // programs come back to the same places
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func (g *gen) path() string {
	switch n := g.r.IntN(20); {
	case n < 4 && g.last != "":
		return g.last
	case n < 6:
		return strings.TrimPrefix(pick(g.r, zones()), "/")
	}
	g.last = strings.TrimPrefix(pick(g.r, zones())+"/"+pick(g.r, names()), "/")
	return g.last
}

func (g *gen) op(compound bool) Op {
	op := Op{Kind: pick(g.r, kinds()), Path: g.path(), Slot: g.r.IntN(slots)}
	for !compound && (op.Kind == "race" || strings.HasPrefix(op.Kind, "host")) {
		op.Kind = pick(g.r, kinds())
	}
	switch op.Kind {
	case "rename", "exchange", "noreplace", "whiteout", "link", "copyrange", "fdlink", "atrename", "atrenamein":
		op.To = g.path()
	case "tmpfile":
		op.Path, op.To = pick(g.r, zones()), g.path()
	case "symlink":
		op.Text = pick(g.r, []string{"config", "../config", "hooks", ".git", "../.git/config", "../.git", "../../x", "/nonexistent/x", "refs/heads/main"})
	case "index":
		op.Path = pick(g.r, []string{".git/index", ".git/index", "n/.git/index", ".git/modules/m/index", "f"})
		for range 1 + g.r.IntN(3) {
			op.Text += pick(g.r, []string{"f", "d/g", ".git/config", ".git/hooks/post-checkout", "d/.git/config", ".GIT/hooks/x", "../f", "x", "git~1/config", "m/.git"}) + "\n"
		}
	case "race":
		with := g.op(false)
		one := g.op(false)
		op = Op{Kind: "race", Path: one.Path, To: one.To, Slot: one.Slot, Text: one.Kind, With: &with}
	case "host":
		op = Op{Kind: "host", Text: pick(g.r, hostKinds())}
	case "hostrace":
		with := g.op(false)
		op = Op{Kind: "hostrace", Text: pick(g.r, hostKinds()), With: &with}
	}
	if strings.HasPrefix(op.Kind, "at") {
		op.Path = pick(g.r, append(names(), "hooks/pre-commit", "info/attributes", "../config", ".git/config"))
	}
	if op.Text == "" {
		op.Text = g.text()
	}
	return op
}

// text is a payload for whichever file it gets into.
func (g *gen) text() string {
	return pick(g.r, []string{
		"[core]\n\tfsmonitor = " + g.mark + "\n",
		"ref: refs/heads/main\n",
		"ref: refs/heads/" + g.mark + "\n",
		"gitdir: ../.git/modules/evil\n",
		"../evil\n",
		"#!/bin/sh\n" + g.mark + "\n",
		"/etc/" + g.mark + "\n",
		g.mark + "\n",
	})
}
