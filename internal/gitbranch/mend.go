package gitbranch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/hostgit"
)

// mend brings a worktree that was complete once back to where an agent can work
// in it, whatever the host has done with it since, and loses nothing.
func (p *preparation) mend(ctx context.Context) error {
	names, err := p.admins()
	if err != nil {
		return err
	}
	fi, err := os.Lstat(p.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	there := err == nil && fi.IsDir()
	switch {
	case there && len(names) == 1:
	case p.o.Live:
		return errors.New("its worktree was removed or changed on the host while a sandbox of the domain lives: end its containers and start again")
	case there:
		moved, err := p.moveAside()
		if err != nil {
			return err
		}
		p.note("the repository does not know the agent's worktree any more: its files are in %s now", moved)
		return p.again(ctx)
	default:
		p.note("the agent's worktree was removed on the host: it was made again, without what was not committed in it")
		return p.again(ctx)
	}
	if p.rec.CommonDir != p.commonDir || p.rec.Name != names[0] { // the repository has moved
		if p.o.Live {
			return errors.New("the repository was moved while a sandbox of the domain lives: end its containers and start again")
		}
		p.rec.CommonDir, p.rec.Name = p.commonDir, names[0]
		if err := p.rec.write(p.o.Domain.Root); err != nil {
			return err
		}
	}
	tip, exists, err := p.tip(ctx, p.rec.Branch)
	if err != nil {
		return err
	}
	if p.o.Live {
		if !exists {
			return fmt.Errorf("the branch %s was deleted on the host while a sandbox of the domain lives: end its containers and start again", p.rec.Branch)
		}
		return nil
	}
	if err := p.repair(); err != nil {
		return err
	}
	agent, err := p.agent(ctx)
	if err != nil {
		return err
	}
	if unfinishedRebase(p.admin()) {
		if err := abortRebase(ctx, agent); err != nil {
			return err
		}
		p.note("a rebase that was killed on the host was taken back")
	}
	if head, _ := readSmall(filepath.Join(p.admin(), "HEAD")); head != "ref: refs/heads/"+p.rec.Branch {
		p.note("the agent's worktree is not on %s but at %.100q", p.rec.Branch, strings.TrimPrefix(head, "ref: refs/heads/"))
		if !exists {
			return refuse("the branch %s was deleted on the host and the agent's worktree is elsewhere: make it again (git branch %s COMMIT), or start over with lazaret git drop", p.rec.Branch, p.rec.Branch)
		}
		return nil
	}
	last := lastInLog(filepath.Join(p.admin(), "logs", "HEAD"))
	switch {
	case !exists:
		return p.deleted(ctx, agent, last)
	case last != "" && last != tip && lastInLog(filepath.Join(p.commonDir, "logs", "refs", "heads", filepath.FromSlash(p.rec.Branch))) == tip:
		// Moved from outside of the worktree: whatever moves it inside logs both,
		// or, as go-git does, neither.
		return p.moved(ctx, agent, last, tip)
	}
	return nil
}

// again makes the worktree anew from the branch, or from the host's commit when
// that is gone as well.
func (p *preparation) again(ctx context.Context) error {
	if err := p.removeAdmin(); err != nil {
		return err
	}
	_, exists, err := p.tip(ctx, p.rec.Branch)
	if err != nil {
		return err
	}
	p.rec.State, p.rec.CommonDir, p.rec.Name, p.rec.Notes = creating, p.commonDir, "", nil
	if !exists {
		p.rec.Base = p.head
	}
	if err := p.rec.write(p.o.Domain.Root); err != nil {
		return err
	}
	return p.add(ctx, exists)
}

// repair writes the two small files by which git finds the worktree, and its
// lock, without which the host's prune could remove it.
func (p *preparation) repair() error {
	for path, want := range map[string]string{
		filepath.Join(p.path, ".git"):      "gitdir: " + p.admin(),
		filepath.Join(p.admin(), "locked"): p.lockReason(),
	} {
		if got, err := readSmall(path); err == nil && got == want {
			continue
		}
		if err := atomicfile.Write(path, []byte(want+"\n"), 0o644, false); err != nil {
			return fmt.Errorf("repair the worktree: %w", err)
		}
	}
	return nil
}

// deleted begins anew from the host's commit, unless something would be lost.
func (p *preparation) deleted(ctx context.Context, agent *hostgit.Repo, last string) error {
	if last == "" {
		return refuse("the branch %s was deleted on the host, and no log tells where it was: make it again (git branch %s COMMIT), or start over with lazaret git drop", p.rec.Branch, p.rec.Branch)
	}
	ref := "refs/heads/" + p.rec.Branch
	if _, err := agent.Output(ctx, "update-ref", "-m", "lazaret: restore", ref, last, zero(last)); err != nil {
		return refuse("the branch %s was deleted on the host and cannot be restored (%w): start over with lazaret git drop", p.rec.Branch, err)
	}
	n, err := agent.Changes(ctx)
	if err != nil {
		return err
	}
	if n > 0 {
		p.note("the branch was deleted on the host, but the agent's worktree has %d uncommitted %s: it is back at %.12s; lazaret git drop removes both", n, files(n), last)
		return nil
	}
	if _, err := agent.Output(ctx, "reset", "--keep", "--quiet", p.head); err != nil {
		return err
	}
	if err := p.large(ctx, agent); err != nil {
		return err
	}
	p.note("the branch was deleted on the host: it begins anew from %.12s; it was at %.12s", p.head, last)
	p.rec.Base = p.head
	return p.rec.write(p.o.Domain.Root)
}

// moved lets index and files follow a branch that the host has moved, as a
// checkout would: what is not committed comes along or stands in the way.
func (p *preparation) moved(ctx context.Context, agent *hostgit.Repo, from, to string) error {
	// Done already, as after a kill of this very step?
	if _, err := agent.Output(ctx, "diff-index", "--cached", "--quiet", to, "--"); err != nil {
		if hostgit.Code(err) != 1 {
			return err
		}
		if _, err := agent.Output(ctx, "update-index", "-q", "--refresh"); err != nil && hostgit.Code(err) != 1 {
			return err
		}
		if _, err := agent.Output(ctx, "read-tree", "-m", "-u", from, to); err != nil {
			return refuse("the branch %s was moved on the host to %.12s, and what is not committed in the agent's worktree is in the way (%w): move it back (git update-ref refs/heads/%s %.12s), or start over with lazaret git drop --force", p.rec.Branch, to, err, p.rec.Branch, from)
		}
	}
	if _, err := agent.Output(ctx, "update-ref", "-m", "lazaret: follow the host", "--create-reflog", "HEAD", to, to); err != nil {
		return err
	}
	if err := p.large(ctx, agent); err != nil {
		return err
	}
	p.note("the branch was moved on the host from %.12s to %.12s", from, to)
	return nil
}

// describe tells what Prepare has come to.
func (p *preparation) describe(ctx context.Context) (Worktree, error) {
	w := Worktree{Path: p.path, Branch: p.rec.Branch, CommonDir: p.commonDir, Name: p.rec.Name, Created: p.created}
	var err error
	if w.Commit, _, err = p.tip(ctx, p.rec.Branch); err != nil {
		return w, err
	}
	w.Notes = append(p.notes, p.rec.Notes...)
	n, err := p.repo.Changes(ctx)
	if err != nil {
		return w, err
	}
	if n > 0 {
		w.Notes = append(w.Notes, fmt.Sprintf("%d %s with uncommitted changes %s not in the agent's branch; lazaret git include copies them", n, files(n), are(n)))
	}
	if w.Commit != p.head {
		_, behind, err := p.counts(ctx, p.rec.Branch)
		if err != nil {
			return w, err
		}
		if behind > 0 {
			w.Notes = append(w.Notes, fmt.Sprintf("the agent's branch lacks %d of the host's commits; lazaret git rebase brings them", behind))
		}
	}
	return w, nil
}

// counts are the commits that only the branch has, and only the host's HEAD.
func (h *host) counts(ctx context.Context, branch string) (ahead, behind int, err error) {
	out, err := h.repo.Line(ctx, "rev-list", "--left-right", "--count", "refs/heads/"+branch+"..."+h.head)
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscan(out, &ahead, &behind); err != nil {
		return 0, 0, fmt.Errorf("git rev-list answered %.100q", out)
	}
	return ahead, behind, nil
}

// lastInLog is the commit to which the last line of a reflog leads, "" if it
// cannot be told. The agent can write it: it is only ever where its own branch was.
func lastInLog(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }() // only read
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return ""
	}
	buf := make([]byte, min(fi.Size(), 1<<16))
	if _, err := f.ReadAt(buf, fi.Size()-int64(len(buf))); err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(buf), "\n"), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	if len(fields) < 2 || !isOID(fields[0]) || !isOID(fields[1]) || len(fields[0]) != len(fields[1]) {
		return ""
	}
	return fields[1]
}

func zero(oid string) string { return strings.Repeat("0", len(oid)) }

func files(n int) string {
	if n == 1 {
		return "file"
	}
	return "files"
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
