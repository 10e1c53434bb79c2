package git

import "testing"

// The ways out that others have published, and the techniques here that try them.
// Those for which nothing runs are tested elsewhere as well: everyday git in
// test/e2e/git, what must keep working in internal/gitsentry.
func TestPublishedCases(t *testing.T) {
	known := map[string]bool{}
	for _, g := range Groups() {
		for _, tech := range g.Techniques {
			known[tech.Name] = true
		}
	}
	for _, c := range []struct {
		fault      string
		techniques []string
	}{
		{"the parent of what is guarded is renamed and made anew", []string{
			"replace-rename", "replace-exchange", "replace-remove", "replace-workspace", "nested-host-rename", "nested-host-parent", "module-rename", "host-moves",
		}},
		{"what is guarded is not there at launch: no repository", []string{"plain-init", "plain-bare", "plain-later"}},
		{"what is guarded is not there at launch: no hooks", []string{"hooks-new", "hooks-moved-in"}},
		{"what is guarded is not there at launch: no editor folder, and no stub of one later", []string{"vscode", "idea", "no-stub"}},
		{"the workspace is a part of a repository", []string{"sub-init", "sub-pointer-up", "sub-up", "above-hooks", "above-include"}},
		{"a second configuration file, the worktree's own", []string{
			"config-worktree", "config-worktree-rename", "config-worktree-lock", "config-worktree-link", "config-worktree-case", "module-config-worktree", "worktree-later",
		}},
		{"hooks that the configuration has in the workspace: there, absent, global, by a link", []string{
			"hooks-path-write", "hooks-path-rename", "hooks-path-absent", "hooks-path-absent-symlink", "hooks-path-global", "hooks-path-global-absolute", "hooks-path-link-target", "hooks-path-link-changed", "hooks-path-later", "global-nested",
		}},
		{"submodules at each depth, and one that comes later", []string{
			"module-config", "module-config-nested", "module-hooks", "module-hooks-nested", "pointer", "pointer-rename", "module-later", "module-later-pointer",
		}},
		{"a linked worktree as the workspace", []string{"wt-pointer", "wt-pointer-rename", "wt-pointer-dir", "wt-pointer-symlink", "wt-common", "wt-other"}},
		{"nested repositories and embedded bare ones", []string{
			"nested", "nested-deep", "nested-pointer", "gitlink", "gitlink-pointer", "bare-horc", "bare-worktree-inside", "bare-commondir", "bare-completed-head",
		}},
		{"alternates make gc fetch another repository's objects", []string{"alternates", "alternates-dir", "http-alternates", "module-alternates"}},
		{"editor folders at each depth; a branch that has them", []string{
			"vscode-deep", "vscode-renamed", "vscode-symlink", "vscode-parent", "vscode-spelling", "mask-read", "mask-deletion",
		}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			for _, name := range c.techniques {
				if !known[name] {
					t.Errorf("there is no technique %q", name)
				}
			}
		})
	}
}
