// Command gogit reads the repository of the working directory and commits to it
// with go-git, and prints what it found: a client of git that shares no code with
// git itself.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	repo, err := git.PlainOpen(".")
	if err != nil {
		return err
	}
	log, err := repo.Log(&git.LogOptions{})
	if err != nil {
		return err
	}
	if err := log.ForEach(func(c *object.Commit) error {
		fmt.Printf("%s %q\n", c.Hash, c.Message)
		return nil
	}); err != nil {
		return err
	}
	tree, err := repo.Worktree()
	if err != nil {
		return err
	}
	show := func() error {
		status, err := tree.Status()
		if err == nil {
			fmt.Printf("status: %q\n", status.String())
		}
		return err
	}
	if err := show(); err != nil {
		return err
	}
	if err := os.WriteFile("gogit", []byte("by go-git\n"), 0o644); err != nil {
		return err
	}
	if _, err := tree.Add("gogit"); err != nil {
		return err
	}
	if err := show(); err != nil {
		return err
	}
	who := &object.Signature{Name: "Agent", Email: "agent@example.test", When: time.Unix(1_700_000_000, 0).UTC()}
	hash, err := tree.Commit("By go-git\n", &git.CommitOptions{Author: who})
	if err != nil {
		return err
	}
	if _, err := repo.CreateTag("gogit", hash, &git.CreateTagOptions{Tagger: who, Message: "By go-git\n"}); err != nil {
		return err
	}
	if err := tree.Checkout(&git.CheckoutOptions{Branch: plumbing.NewBranchReferenceName("gogit"), Create: true}); err != nil {
		return err
	}
	if err := tree.Checkout(&git.CheckoutOptions{Branch: plumbing.Main}); err != nil {
		return err
	}
	refs, err := repo.References()
	if err != nil {
		return err
	}
	if err := refs.ForEach(func(r *plumbing.Reference) error { fmt.Println(r); return nil }); err != nil {
		return err
	}
	return show()
}
