package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lazaret-dev/lazaret/internal/gitbranch"
	"github.com/lazaret-dev/lazaret/internal/review"
)

const (
	// reviewBegin bounds how long the start of a first container waits for the
	// baseline, reviewEnd how long the end of a domain waits for the comparison.
	reviewBegin = 6 * time.Second
	reviewEnd   = 5 * time.Second
)

// baseline is the taking of one; err is set when done is closed.
type baseline struct {
	done chan struct{}
	err  error
}

// beginReview notes how a tree is before a new guard shows it, beside the start of
// guard and sandbox. It needs c.guarding, not c.mu.
func (c *Coordinator) beginReview(ctx context.Context, tree string, branch bool) {
	file := review.File(c.spec.Domain.Root, branch)
	c.mu.Lock()
	begun := c.reviewed == file
	b := c.baseline
	if !begun {
		b = &baseline{done: make(chan struct{})}
		c.reviewed, c.baseline = file, b
	}
	c.mu.Unlock()
	if begun {
		return // the session goes on
	}
	go func() {
		defer close(b.done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewBegin)
		defer cancel()
		began := time.Now()
		uid, err := c.developer(c.spec.Domain.Workspace)
		if err == nil {
			err = review.Begin(ctx, file, review.For(tree, uid, c.developersGit()))
		}
		if err != nil {
			b.err = fmt.Errorf("note for lazaret review how the workspace is before an agent has it: %w", err)
			return
		}
		c.log.Info("noted how the workspace is", "took", time.Since(began))
	}()
}

// awaitBaseline is called before a container's first process runs. Without a
// baseline the old one would be taken for this session's, and a review be quiet.
func (c *Coordinator) awaitBaseline() error {
	c.mu.Lock()
	b := c.baseline
	c.mu.Unlock()
	if b == nil {
		return nil
	}
	select {
	case <-b.done:
		if b.err != nil {
			return refused("%w", b.err)
		}
	case <-time.After(reviewBegin + time.Second): // what was not seen by now is recorded as such
		c.log.Warn("the baseline for lazaret review is not recorded yet")
	}
	return nil
}

// endReview notes what the agent has changed, in a domain without containers.
func (c *Coordinator) endReview(ctx context.Context) {
	if c.spec.Domain.Workspace == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reviewEnd)
	defer cancel()
	for _, branch := range []bool{false, true} {
		tree := c.spec.Domain.Workspace
		if branch {
			tree = gitbranch.Path(c.spec.Domain.Root)
		}
		file := review.File(c.spec.Domain.Root, branch)
		if !review.Exists(file) {
			continue
		}
		uid, err := c.developer(c.spec.Domain.Workspace)
		if err == nil {
			err = review.End(ctx, file, review.For(tree, uid, c.developersGit()))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			c.log.Warn("note what the session has changed", "error", err) // all that differs counts then
		}
	}
}
