package gitbranch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/hostgit"
)

// Branch is an agent's branch that was prepared before, for the developer's
// commands. Close it.
type Branch struct {
	p       *preparation
	agent   *hostgit.Repo
	release func()
}

// Open finds the branch of a domain: ErrNone where there is none. Nobody else
// prepares or changes it until Close.
func Open(ctx context.Context, o Options) (*Branch, error) {
	rec, err := readRecord(o.Domain.Root)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, fmt.Errorf("%w in the domain of profile %s and %s: set git = \"branch\" in the profile; its first start makes one", ErrNone, o.Domain.Profile, o.Domain.Workspace)
	}
	h, err := openHost(ctx, o)
	if err != nil {
		return nil, err
	}
	release, err := lock(ctx, o.Domain.Root)
	if err != nil {
		return nil, err
	}
	b := &Branch{p: &preparation{host: h, o: o, path: Path(o.Domain.Root)}, release: release}
	if b.p.rec, err = readRecord(o.Domain.Root); err == nil && b.p.rec == nil {
		err = fmt.Errorf("%w any more: it was dropped just now", ErrNone)
	}
	if err == nil && b.p.rec.State == ready {
		if fi, serr := os.Lstat(b.p.path); serr == nil && fi.IsDir() {
			b.agent, err = b.p.agent(ctx)
		}
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close lets others go on.
func (b *Branch) Close() { b.release() }

// Name is the branch without refs/heads/.
func (b *Branch) Name() string { return b.p.rec.Branch }

// Ref is the branch's full name.
func (b *Branch) Ref() string { return "refs/heads/" + b.p.rec.Branch }

// Path is the worktree's.
func (b *Branch) Path() string { return b.p.path }

// Git is the path of the host's git.
func (b *Branch) Git() string { return b.p.git.Program() }

// State is what there is to tell about a branch.
type State struct {
	Branch    string `json:"branch"`
	Commit    string `json:"commit"` // "" when the branch is gone
	Worktree  string `json:"worktree"`
	Host      string `json:"host"` // the host's branch, or its commit when detached
	Ahead     int    `json:"ahead"`
	Behind    int    `json:"behind"`
	Changes   int    `json:"changes"`    // files with uncommitted changes in the agent's worktree
	Elsewhere string `json:"elsewhere"`  // what the agent's worktree is on, when not on the branch
	HostFiles int    `json:"host_files"` // with uncommitted changes, which the agent does not have
	Problem   string `json:"problem"`    // why some of this is unknown, "" for none
}

// State looks, and changes nothing.
func (b *Branch) State(ctx context.Context) (State, error) {
	s := State{Branch: b.p.rec.Branch, Worktree: b.p.path, Host: b.p.headName}
	if s.Host == "" {
		s.Host = b.p.head[:12]
	}
	var exists bool
	var err error
	if s.Commit, exists, err = b.p.tip(ctx, b.p.rec.Branch); err != nil {
		return s, err
	}
	if exists {
		if s.Ahead, s.Behind, err = b.p.counts(ctx, b.p.rec.Branch); err != nil {
			return s, err
		}
	} else {
		s.Problem = "the branch was deleted on the host: the next start mends it"
	}
	if s.HostFiles, err = b.p.repo.Changes(ctx); err != nil {
		return s, err
	}
	if b.agent == nil {
		s.Problem = "its worktree is not complete: the next start mends it"
		return s, nil
	}
	if head, _ := readSmall(filepath.Join(b.p.admin(), "HEAD")); head != "ref: "+b.Ref() {
		s.Elsewhere = strings.TrimPrefix(head, "ref: refs/heads/")
	}
	if !exists {
		return s, nil
	}
	s.Changes, err = b.agent.Changes(ctx)
	return s, err
}

// writable refuses a worktree in which git on the host could not work cleanly.
func (b *Branch) writable(ctx context.Context, what string) error {
	if b.agent == nil {
		return fmt.Errorf("%s: the agent's worktree is not complete: the next start mends it", what)
	}
	if unfinishedRebase(b.p.admin()) {
		if err := abortRebase(ctx, b.agent); err != nil {
			return err
		}
	}
	if head, _ := readSmall(filepath.Join(b.p.admin(), "HEAD")); head != "ref: "+b.Ref() {
		return fmt.Errorf("%s: the agent's worktree is at %.100q, not on %s: let the agent switch back to it", what, strings.TrimPrefix(head, "ref: refs/heads/"), b.Name())
	}
	if _, exists, err := b.p.tip(ctx, b.Name()); err != nil || !exists {
		return errors.Join(fmt.Errorf("%s: the branch was deleted on the host: the next start mends it", what), err)
	}
	n, err := b.agent.Changes(ctx)
	if err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%s: the agent's worktree has %d uncommitted %s: let the agent commit first (git -C %s status shows them)", what, n, files(n), b.p.path)
	}
	return nil
}

// Rebase puts the branch's commits on top of the host's HEAD, and reports
// whether there was anything to do. Conflicts take it back. Preconditions: no
// sandbox of the domain lives.
func (b *Branch) Rebase(ctx context.Context) (changed bool, err error) {
	if err := b.writable(ctx, "rebase"); err != nil {
		return false, err
	}
	before, _, err := b.p.tip(ctx, b.Name())
	if err != nil {
		return false, err
	}
	// The agent's commits are not the developer's to sign, other branches not to move.
	_, err = b.agent.Output(ctx,
		"-c", "rebase.autoStash=false", "-c", "rebase.updateRefs=false", "-c", "rebase.backend=merge",
		"-c", "rebase.forkPoint=false", "-c", "rebase.autoSquash=false", "-c", "rebase.abbreviateCommands=false",
		"-c", "rebase.missingCommitsCheck=ignore", "-c", "notes.rewriteMode=ignore",
		"rebase", "--quiet", "--no-gpg-sign", "--no-stat", b.p.head)
	if err != nil {
		conflicts, _ := b.agent.Line(ctx, "diff", "--no-ext-diff", "--no-textconv", "--name-only", "--diff-filter=U")
		if unfinishedRebase(b.p.admin()) {
			if aerr := abortRebase(ctx, b.agent); aerr != nil {
				return false, errors.Join(err, aerr)
			}
		}
		if conflicts != "" {
			return false, fmt.Errorf("rebase: conflicts in %s: nothing was changed; let the agent rebase onto %.12s in the sandbox, or use lazaret git merge", strings.Join(strings.Split(conflicts, "\n"), ", "), b.p.head)
		}
		return false, fmt.Errorf("rebase: nothing was changed: %w", err)
	}
	after, _, err := b.p.tip(ctx, b.Name())
	if err != nil || after == before {
		return false, err
	}
	return true, b.p.large(ctx, b.agent)
}

func unfinishedRebase(admin string) bool {
	for _, name := range []string{"rebase-merge", "rebase-apply"} {
		if _, err := os.Lstat(filepath.Join(admin, name)); err == nil {
			return true
		}
	}
	return false
}

func abortRebase(ctx context.Context, agent *hostgit.Repo) error {
	if _, err := agent.Output(ctx, "rebase", "--abort"); err != nil {
		return fmt.Errorf("take back the rebase: %w: look at it with git -C %s status", err, agent.WorkTree)
	}
	return nil
}

// Include copies the host's uncommitted changes and new files, but for ignored
// ones, into the agent's worktree as uncommitted changes. It returns how many
// files changed there. Preconditions: no sandbox of the domain lives.
func (b *Branch) Include(ctx context.Context) (n int, err error) {
	if err := b.writable(ctx, "include"); err != nil {
		return 0, err
	}
	commit, err := b.snapshot(ctx)
	if err != nil {
		return 0, fmt.Errorf("include: look at the host's changes: %w", err)
	}
	if commit == "" {
		return 0, nil
	}
	if _, err := b.agent.Output(ctx, "cherry-pick", "--no-commit", "--no-gpg-sign", commit); err != nil {
		conflicts, _ := b.agent.Line(ctx, "diff", "--no-ext-diff", "--no-textconv", "--name-only", "--diff-filter=U")
		// It was clean before.
		if _, rerr := b.agent.Output(ctx, "reset", "--hard", "--quiet"); rerr != nil {
			return 0, errors.Join(err, rerr)
		}
		if conflicts != "" {
			return 0, fmt.Errorf("include: conflicts with the agent's commits in %s: nothing was copied; commit on the host and use lazaret git rebase", strings.Join(strings.Split(conflicts, "\n"), ", "))
		}
		return 0, fmt.Errorf("include: nothing was copied: %w", err)
	}
	if _, err := b.agent.Output(ctx, "reset", "--mixed", "--quiet"); err != nil {
		return 0, err
	}
	if err := b.p.large(ctx, b.agent); err != nil {
		return 0, err
	}
	return b.agent.Changes(ctx)
}

// snapshot is a commit of the host's working tree on top of its HEAD, named by
// no ref; "" when there is nothing to commit. It is made with an index of its
// own and the developer's own filters, as his git add would.
func (b *Branch) snapshot(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp(filepath.Join(b.p.o.Domain.Root, "git"), "include-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a file of no worth
	call := func(args ...string) (string, error) {
		out, err := b.p.repo.Run(ctx, hostgit.Call{
			Args: args, OwnFilters: true,
			Env: []string{
				"GIT_INDEX_FILE=" + filepath.Join(dir, "index"),
				"GIT_AUTHOR_NAME=lazaret", "GIT_AUTHOR_EMAIL=lazaret@localhost", "GIT_COMMITTER_NAME=lazaret", "GIT_COMMITTER_EMAIL=lazaret@localhost",
			},
		})
		return strings.TrimRight(string(out), "\n"), err
	}
	// A copy of the index spares reading every file again.
	if data, err := os.ReadFile(filepath.Join(b.p.gitDir, "index")); err == nil {
		if err := atomicfile.Write(filepath.Join(dir, "index"), data, 0o600, false); err != nil {
			return "", err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, err := call("add", "--all", "--", "."); err != nil {
		return "", err
	}
	tree, err := call("write-tree")
	if err != nil {
		return "", err
	}
	if have, err := call("rev-parse", "--verify", b.p.head+"^{tree}"); err != nil || have == tree {
		return "", err
	}
	return call("commit-tree", "-p", b.p.head, "-m", "uncommitted changes on the host", tree)
}

// Loss is what Drop would lose.
type Loss struct {
	Commits int // that no other branch, tag or remote has
	Changes int // files with uncommitted changes
}

func (l Loss) String() string {
	var parts []string
	if l.Commits > 0 {
		parts = append(parts, strconv.Itoa(l.Commits)+" unmerged commit"+strings.TrimPrefix(files(l.Commits), "file"))
	}
	if l.Changes > 0 {
		parts = append(parts, strconv.Itoa(l.Changes)+" "+files(l.Changes)+" with uncommitted changes")
	}
	return strings.Join(parts, " and ")
}

// Loss tells what nobody else has.
func (b *Branch) Loss(ctx context.Context) (l Loss, err error) {
	tip, exists, err := b.p.tip(ctx, b.Name())
	if err != nil {
		return l, err
	}
	if b.agent != nil && exists {
		if l.Changes, err = b.agent.Changes(ctx); err != nil {
			return l, err
		}
	}
	var tips []string
	if exists {
		tips = append(tips, tip)
	}
	// Detached commits of the agent's count too.
	if at, err := readSmall(filepath.Join(b.p.admin(), "HEAD")); err == nil && isOID(at) && at != tip {
		tips = append(tips, at)
	}
	if len(tips) == 0 {
		return l, nil
	}
	args := append([]string{"rev-list", "--count"}, tips...)
	out, err := b.p.repo.Line(ctx, append(args, "--not", b.p.head, "--exclude="+b.Ref(), "--glob=refs/heads/*", "--remotes", "--tags")...)
	if err != nil {
		return l, err
	}
	l.Commits, err = strconv.Atoi(out)
	return l, err
}

// Drop removes worktree and branch. Preconditions: no sandbox of the domain
// lives. fs.ErrPermission is in the chain of an error about files of other
// users of the user namespace: do it there.
func (b *Branch) Drop(ctx context.Context) error { return b.p.drop(ctx, b.p.rec) }

// drop can be done again after a kill at any point.
func (p *preparation) drop(ctx context.Context, rec *record) error {
	if p.o.Live {
		return errors.New("drop: a sandbox of the domain lives")
	}
	rec.State = dropping
	if err := rec.write(p.o.Domain.Root); err != nil {
		return err
	}
	if err := removeTree(p.path); err != nil {
		return fmt.Errorf("remove the agent's worktree: %w", err)
	}
	if err := p.removeAdmin(); err != nil {
		return err
	}
	if tip, exists, err := p.tip(ctx, rec.Branch); err != nil {
		return err
	} else if exists {
		if _, err := p.repo.Output(ctx, "update-ref", "-d", "refs/heads/"+rec.Branch, tip); err != nil {
			return err
		}
	}
	if err := os.Remove(recordPath(p.o.Domain.Root)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop: %w", err)
	}
	return nil
}

// removeTree removes what an agent has made, directories without permissions too.
func removeTree(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if werr := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // removal tells
		}
		return openUp(p)
	}); werr != nil {
		return werr
	}
	return os.RemoveAll(path)
}

// openUp makes a directory removable, and follows no link. Its own content is
// read after this.
func openUp(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // removal tells
	}
	defer func() { _ = unix.Close(fd) }()
	// Removal tells what this could not do.
	_ = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700)
	return nil
}
