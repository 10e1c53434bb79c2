// Package gitbranch owns git = "branch": the linked worktree in the Domain Root
// on a branch of its own, in which an agent works while the host's working tree,
// index, HEAD and other branches stay as they are.
//
// The coordinator calls Prepare before it starts the guard, with the domain's
// first container (Live false) and each further one (Live true), and guards
// Worktree.Path in place of the workspace:
//
//	gitsentry.Options{Git: "branch", Workspace: w.Path, GitDir: w.CommonDir,
//		WorktreeName: w.Name, Branch: w.Branch}
//
// Worktree.Notes go to lazaret status and the container's log. Every other
// operation here is a command of the developer's, run while no sandbox of the
// domain lives where it writes: an agent could otherwise put a symbolic link
// under git's hands.
package gitbranch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/hostgit"
)

// ErrRefused is in the chain of an error about a workspace, or a state of it, in
// which git = "branch" does not work; its text says why and what to do.
var ErrRefused = errors.New("git = \"branch\" refused")

// ErrNone is in the chain of an error about a domain without a branch.
var ErrNone = errors.New("no agent's branch")

// lockWait bounds the wait for another Prepare or command of the domain.
const lockWait = 30 * time.Second

// Options say whose branch. Preconditions: Domain is not ephemeral, and its
// Root exists or can be made.
type Options struct {
	Domain     domain.Anchor
	Home       string // the developer's, for git's configuration; "" for none
	ConfigHome string // XDG_CONFIG_HOME, "" for none
	// Live tells that a sandbox of the domain uses the worktree: it is checked
	// and not written to.
	Live bool
}

// Worktree is the agent's working tree. All paths are absolute.
type Worktree struct {
	Path      string   // what the sandbox sees at /workspace
	Branch    string   // without refs/heads/
	Commit    string   // the branch's tip
	CommonDir string   // the repository's git directory
	Name      string   // the worktree's directory below CommonDir/worktrees
	Created   bool     // made by this call
	Notes     []string // what the developer should know
}

// Path is where the worktree of a domain lies.
func Path(domainRoot string) string { return filepath.Join(domainRoot, "worktree") }

// state of a record. Only in ready may the worktree hold something of an agent's.
const (
	creating = "creating"
	ready    = "ready"
	dropping = "dropping"
)

// record is what the Domain Root keeps: the agent cannot write there.
type record struct {
	Version   int      `json:"version"`
	State     string   `json:"state"`
	Workspace string   `json:"workspace"`
	CommonDir string   `json:"common_dir"`
	Name      string   `json:"name,omitempty"`
	Branch    string   `json:"branch"`
	Base      string   `json:"base"` // the commit that it was begun from
	Notes     []string `json:"notes,omitempty"`
}

func recordPath(root string) string { return filepath.Join(root, "git", "branch.json") }

// readRecord returns nil when there is none.
func readRecord(root string) (*record, error) {
	data, err := os.ReadFile(recordPath(root))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // none is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("read the branch's record: %w", err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil || r.Version != 1 || r.Branch == "" || !filepath.IsAbs(r.CommonDir) {
		return nil, fmt.Errorf("%s is damaged: remove it, and %s after a look at it", recordPath(root), Path(root))
	}
	return &r, nil
}

func (r *record) write(root string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("record the branch: %w", err)
	}
	return atomicfile.Write(recordPath(root), append(data, '\n'), 0o600, true)
}

// lock keeps two calls of one domain apart.
func lock(ctx context.Context, root string) (release func(), err error) {
	dir := filepath.Join(root, "git")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the domain's directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "branch.lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the branch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: another start or lazaret git of the domain is at work: %w", f.Name(), ctx.Err()), f.Close())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// host is the developer's side of the repository.
type host struct {
	git       *hostgit.Git
	repo      *hostgit.Repo
	workspace string
	gitDir    string
	commonDir string
	head      string // its commit
	headName  string // its branch, "" when detached
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRefused, fmt.Errorf(format, args...))
}

// openHost finds the repository of a workspace and refuses what cannot work.
func openHost(ctx context.Context, o Options) (*host, error) {
	ws := o.Domain.Workspace
	if ws == "" {
		return nil, refuse("the container has no workspace: mount one at /workspace")
	}
	git, err := hostgit.New(o.Home, o.ConfigHome)
	if err != nil {
		return nil, err
	}
	h := &host{git: git, workspace: ws}
	if h.repo, err = git.At(ctx, ws); err != nil {
		return nil, err
	}
	out, err := h.repo.Line(ctx, "rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-dir", "--git-common-dir")
	lines := strings.Split(out, "\n")
	if err != nil {
		if strings.Contains(err.Error(), "not a git repository") {
			return nil, refuse("%s is in no git repository: run git init and commit, or set git = \"sentry\" in the profile", ws)
		}
		return nil, refuse("%w", err) // such as another user's repository, in git's words
	}
	if len(lines) != 3 || !filepath.IsAbs(lines[1]) || !filepath.IsAbs(lines[2]) {
		return nil, fmt.Errorf("git rev-parse answered %.200q", out)
	}
	if lines[0] == "true" {
		return nil, refuse("%s is a bare repository, without files to work on: use a clone of it as the workspace", ws)
	}
	h.gitDir, h.commonDir = lines[1], lines[2]
	top, err := h.repo.Line(ctx, "rev-parse", "--path-format=absolute", "--show-toplevel")
	if err != nil {
		return nil, refuse("%w", err)
	}
	if top != ws {
		return nil, refuse("%s lies in the working tree %s: use that as the workspace, or set git = \"sentry\" in the profile", ws, top)
	}
	if fi, err := os.Lstat(filepath.Join(ws, ".git")); err != nil || fi.Mode()&fs.ModeSymlink != 0 {
		return nil, refuse("%s/.git is a symbolic link or out of reach: make it a directory", ws)
	}
	if hostgit.SubmoduleDir(h.commonDir) {
		return nil, refuse("%s is a submodule, of which git supports no second working tree: set git = \"sentry\" in the profile, or use a clone of it", ws)
	}
	if h.head, err = h.repo.Line(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil || !isOID(h.head) {
		return nil, refuse("%s has no commit yet to begin from: commit something (git commit --allow-empty -m start), or set git = \"sentry\" in the profile", ws)
	}
	// Detached gives status 1 and no name.
	if name, err := h.repo.Line(ctx, "symbolic-ref", "--quiet", "HEAD"); err == nil {
		h.headName = strings.TrimPrefix(name, "refs/heads/")
	}
	return h, nil
}

// Prepare makes the agent's worktree, or mends and reuses it. It never changes
// the host's working tree, index, HEAD or other branches. A Prepare that was
// killed is made good by the next one. Errors with ErrRefused in their chain
// are about the workspace.
func Prepare(ctx context.Context, o Options) (Worktree, error) {
	h, err := openHost(ctx, o)
	if err != nil {
		return Worktree{}, err
	}
	release, err := lock(ctx, o.Domain.Root)
	if err != nil {
		return Worktree{}, err
	}
	defer release()
	p := &preparation{host: h, o: o, path: Path(o.Domain.Root)}
	if p.rec, err = readRecord(o.Domain.Root); err != nil {
		return Worktree{}, err
	}
	if p.rec != nil && p.rec.State == dropping {
		if err := p.drop(ctx, p.rec); err != nil {
			return Worktree{}, err
		}
		p.rec = nil
	}
	if p.rec != nil && p.rec.State == ready {
		err = p.mend(ctx)
	} else {
		err = p.create(ctx)
	}
	if err != nil {
		return Worktree{}, fmt.Errorf("the agent's branch of %s: %w", h.workspace, err)
	}
	return p.describe(ctx)
}

type preparation struct {
	*host
	o       Options
	path    string
	rec     *record
	created bool
	notes   []string
}

func (p *preparation) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// lockReason tells a locked worktree's domain, to git worktree list too.
func (p *preparation) lockReason() string { return "lazaret domain " + p.o.Domain.Hash }

// create begins anew. Preconditions: no record, or one of an attempt that never
// came to an end and so was in no agent's hands.
func (p *preparation) create(ctx context.Context) error {
	if p.o.Live {
		return errors.New("it was removed while a sandbox of the domain lives: end its containers and start again")
	}
	half := p.rec != nil
	if _, err := os.Lstat(p.path); err == nil {
		if !half {
			moved, err := p.moveAside()
			if err != nil {
				return err
			}
			p.note("%s held files that belong to no branch known: they are in %s now", p.path, moved)
		} else if err := os.RemoveAll(p.path); err != nil {
			return fmt.Errorf("remove what a killed start left: %w", err)
		}
	}
	if err := p.removeAdmin(); err != nil {
		return err
	}
	branch, exists, err := p.chooseBranch(ctx)
	if err != nil {
		return err
	}
	p.rec = &record{Version: 1, State: creating, Workspace: p.workspace, CommonDir: p.commonDir, Branch: branch, Base: p.head, Notes: p.rec.takeNotes(half)}
	if err := p.rec.write(p.o.Domain.Root); err != nil {
		return err
	}
	if branch != p.wanted() {
		p.keep("the branch is %s, as %s belongs to another workspace of this repository", branch, p.wanted())
	}
	if exists && !half {
		p.keep("the branch %s was there already and is continued", branch)
	}
	return p.add(ctx, exists)
}

func (r *record) takeNotes(half bool) []string {
	if !half {
		return nil
	}
	return r.Notes
}

// keep notes what stays true for the life of the worktree.
func (p *preparation) keep(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(p.rec.Notes, n) {
		p.rec.Notes = append(p.rec.Notes, n)
	}
}

// add makes the worktree of p.rec.Branch, which is made too unless it exists.
func (p *preparation) add(ctx context.Context, exists bool) error {
	args := []string{"worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", p.lockReason()}
	if exists {
		args = append(args, p.path, p.rec.Branch)
	} else {
		args = append(args, "--no-track", "-b", p.rec.Branch, p.path, p.head)
	}
	if _, err := p.repo.Output(ctx, args...); err != nil {
		return err
	}
	p.created = true
	var err error
	if p.rec.Name, err = p.findAdmin(); err != nil {
		return err
	}
	agent, err := p.agent(ctx)
	if err != nil {
		return err
	}
	if _, err := agent.Output(ctx, "reset", "--hard", "--quiet", "--no-recurse-submodules"); err != nil {
		return err
	}
	for _, n := range agent.Notes {
		p.keep("%s", n)
	}
	if err := p.content(ctx, agent); err != nil {
		return err
	}
	p.rec.State = ready
	return p.rec.write(p.o.Domain.Root)
}

// content looks after what a commit holds only by reference.
func (p *preparation) content(ctx context.Context, agent *hostgit.Repo) error {
	if err := p.large(ctx, agent); err != nil {
		return err
	}
	if out, err := agent.Line(ctx, "ls-files", "--stage", "--", ".gitmodules"); err == nil && out != "" {
		p.keep("submodules are empty in the agent's worktree, and git submodule update cannot fill them in the sandbox: set git = \"sentry\" where the agent needs them")
	}
	if on, err := agent.Line(ctx, "config", "--bool", "core.sparseCheckout"); err == nil && on == "true" {
		p.keep("the agent's worktree is as sparse as the host's")
	}
	return nil
}

// large fills in the content of git-lfs's files, as far as the host has it: the
// network is not asked, as .lfsconfig is the agent's to write.
func (p *preparation) large(ctx context.Context, agent *hostgit.Repo) error {
	// Status 1: no attribute names it.
	if _, err := agent.Output(ctx, "grep", "--cached", "-q", "-F", "filter=lfs", "--", ":(glob)**/.gitattributes"); err != nil {
		if hostgit.Code(err) == 1 {
			return nil
		}
		return err
	}
	if !p.git.HasLFS() {
		p.keep("git-lfs is not installed on the host: the agent's large files are pointers")
		return nil
	}
	_, err := agent.Output(ctx, "lfs", "checkout")
	var listed []byte
	if err == nil {
		listed, err = agent.Output(ctx, "lfs", "ls-files", "--long")
	}
	if err != nil {
		p.keep("git lfs checkout failed, so that large files may be pointers: %.300s", err)
		return nil
	}
	missing := 0
	for line := range strings.Lines(string(listed)) { // <hash> *|- <path>
		if f := strings.Fields(line); len(f) > 2 && f[1] == "-" {
			missing++
		}
	}
	if missing > 0 {
		p.keep("large files that are pointers in the agent's worktree, as the host lacks their content: %d; git lfs fetch on the host gets it", missing)
	}
	return nil
}

// agent is the agent's worktree: nothing in it is asked where the repository is.
func (p *preparation) agent(ctx context.Context) (*hostgit.Repo, error) {
	return p.git.Open(ctx, p.admin(), p.commonDir, p.path)
}

func (p *preparation) admin() string { return filepath.Join(p.commonDir, "worktrees", p.rec.Name) }

func (p *preparation) wanted() string { return "lazaret/agent-" + p.o.Domain.Profile }

// chooseBranch finds a name that no other workspace has.
func (p *preparation) chooseBranch(ctx context.Context) (name string, exists bool, err error) {
	if _, exists, err := p.tip(ctx, "lazaret"); err != nil {
		return "", false, err
	} else if exists {
		return "", false, refuse("a branch called lazaret leaves no room for %s: rename it (git branch -m lazaret NAME)", p.wanted())
	}
	others, err := p.checkedOut(ctx)
	if err != nil {
		return "", false, err
	}
	claimed, err := p.claimed()
	if err != nil {
		return "", false, err
	}
	for _, n := range []string{p.wanted(), p.wanted() + "-" + p.o.Domain.Hash[:6], p.wanted() + "-" + p.o.Domain.Hash} {
		if slices.Contains(others, n) || slices.Contains(claimed, n) {
			continue
		}
		_, exists, err := p.tip(ctx, n)
		return n, exists, err
	}
	return "", false, refuse("every name for the agent's branch is taken: see git worktree list")
}

// tip is the commit of a branch.
func (p *preparation) tip(ctx context.Context, branch string) (oid string, exists bool, err error) {
	oid, err = p.repo.Line(ctx, "rev-parse", "--verify", "--quiet", "refs/heads/"+branch+"^{commit}")
	if hostgit.Code(err) == 1 {
		return "", false, nil
	}
	return oid, err == nil, err
}

// checkedOut are the branches of other worktrees.
func (p *preparation) checkedOut(ctx context.Context) ([]string, error) {
	out, err := p.repo.Output(ctx, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return nil, err
	}
	var branches []string
	at := ""
	for line := range strings.SplitSeq(string(out), "\x00") {
		if path, ok := strings.CutPrefix(line, "worktree "); ok {
			at = path
		}
		if b, ok := strings.CutPrefix(line, "branch refs/heads/"); ok && at != p.path {
			branches = append(branches, b)
		}
	}
	return branches, nil
}

// claimed are the branches that other domains have of this repository.
func (p *preparation) claimed() ([]string, error) {
	domains := filepath.Dir(p.o.Domain.Root)
	entries, err := os.ReadDir(domains)
	if err != nil {
		return nil, fmt.Errorf("look for other domains' branches: %w", err)
	}
	var branches []string
	for _, e := range entries {
		root := filepath.Join(domains, e.Name())
		if !domain.ValidHash(e.Name()) || root == p.o.Domain.Root {
			continue
		}
		if r, err := readRecord(root); err == nil && r != nil && r.CommonDir == p.commonDir {
			branches = append(branches, r.Branch)
		}
	}
	return branches, nil
}

// admins are the repository's worktrees that are this domain's: they lead to
// its path, or carry its lock if a killed git had not come so far.
func (p *preparation) admins() ([]string, error) {
	dir := filepath.Join(p.commonDir, "worktrees")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for the worktree: %w", err)
	}
	var names []string
	for _, e := range entries {
		lead, lerr := readSmall(filepath.Join(dir, e.Name(), "gitdir"))
		locked, _ := readSmall(filepath.Join(dir, e.Name(), "locked"))
		if lead == filepath.Join(p.path, ".git") || lerr != nil && locked == p.lockReason() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (p *preparation) findAdmin() (string, error) {
	names, err := p.admins()
	if err != nil {
		return "", err
	}
	if len(names) != 1 {
		return "", fmt.Errorf("%s has %d worktrees that lead to %s, want 1", p.commonDir, len(names), p.path)
	}
	return names[0], nil
}

func (p *preparation) removeAdmin() error {
	names, err := p.admins()
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := os.RemoveAll(filepath.Join(p.commonDir, "worktrees", n)); err != nil {
			return fmt.Errorf("remove the former worktree: %w", err)
		}
	}
	// As git does; another's is in it otherwise.
	_ = os.Remove(filepath.Join(p.commonDir, "worktrees"))
	return nil
}

func (p *preparation) moveAside() (string, error) {
	to := p.path + "-" + time.Now().UTC().Format("20060102T150405.000000000")
	if err := os.Rename(p.path, to); err != nil {
		return "", fmt.Errorf("move aside: %w", err)
	}
	return to, nil
}

// readSmall reads the one line of a plain file.
func readSmall(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, 8192))
	return strings.TrimRight(string(data), "\n"), err
}

func isOID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
