// Package gitsentry owns the guard over the workspace: the FUSE file system
// through which a sandbox sees it, and the rule of what may be written there.
// docs/git-sentry.md describes it.
package gitsentry

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/lazaret-dev/lazaret/internal/gitsentry/gitconf"
)

// Names in the root of the guard's file system.
const (
	WorkspaceName = "w" // the workspace
	GitDirName    = "g" // the git directory of a workspace whose .git is a file
	InfoName      = "i" // what the guard tells the sandbox
)

// Options say what to guard. All paths are absolute and on the host.
type Options struct {
	// Workspace is the canonical directory that the sandbox sees at /workspace.
	Workspace string `json:"workspace"`
	// Mountpoint is an empty directory of ours.
	Mountpoint string `json:"mountpoint"`
	// ShadowDir keeps what the sandbox has and the host must not see; it outlives
	// the guard. MemoryDir is the same on memory, for hooks and masks; it goes with
	// the domain. Both are made where missing.
	ShadowDir string `json:"shadow_dir"`
	MemoryDir string `json:"memory_dir"`
	// Git is the profile's key: "sentry", "branch" or "off" (.git read-only).
	Git string `json:"git"`
	// Masks are names, covered at any depth, or paths relative to the workspace.
	Masks []string `json:"masks,omitempty"`
	// ReadOnly are paths relative to the workspace, there or not.
	ReadOnly []string `json:"read_only,omitempty"`
	// Config says whose git configuration the host obeys in the workspace; nil for
	// nobody's. It is followed while the guard lives.
	Config *gitconf.Options `json:"config,omitempty"`
	// GitDir is the common git directory that the workspace's .git file leads
	// to, shown as GitDirName; "" for none. WorktreeName is the workspace's own
	// name below GitDir/worktrees, "" for a submodule.
	GitDir       string `json:"git_dir,omitempty"`
	WorktreeName string `json:"worktree_name,omitempty"`
	// ConfigSuffix is shown at the end of GitDir's config: where the working tree
	// of a submodule is in the sandbox, and what gc leaves alone there.
	ConfigSuffix string `json:"config_suffix,omitempty"`
	// Branch, for Git == "branch", is the only branch that may be written.
	Branch string `json:"branch,omitempty"`
}

// Validate refuses options that would lead the guard astray.
func (o *Options) Validate() error {
	var errs []error
	for name, p := range map[string]string{"workspace": o.Workspace, "mountpoint": o.Mountpoint, "shadow_dir": o.ShadowDir, "memory_dir": o.MemoryDir} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			errs = append(errs, fmt.Errorf("%s %q is not a clean absolute path", name, p))
		}
	}
	if o.GitDir != "" && (!filepath.IsAbs(o.GitDir) || filepath.Clean(o.GitDir) != o.GitDir) {
		errs = append(errs, fmt.Errorf("git_dir %q is not a clean absolute path", o.GitDir))
	}
	if o.Config != nil && o.Config.Workspace != o.Workspace {
		errs = append(errs, fmt.Errorf("config is of workspace %q", o.Config.Workspace))
	}
	switch o.Git {
	case "sentry", "branch", "off":
	default:
		errs = append(errs, fmt.Errorf("git %q is not sentry, branch or off", o.Git))
	}
	for what, list := range map[string][]string{"mask": o.Masks, "read-only path": o.ReadOnly} {
		for _, p := range list {
			if !filepath.IsLocal(p) || filepath.Clean(p) != p || p == "." {
				errs = append(errs, fmt.Errorf("%s %q is not a clean path in the workspace", what, p))
			}
		}
	}
	return errors.Join(errs...)
}
