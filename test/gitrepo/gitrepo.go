// Package gitrepo owns the large repository that tests and the benchmark work on:
// the same objects on every machine, as a stream for git fast-import.
package gitrepo

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
)

// Size says how large a repository is.
type Size struct {
	Files   int               // in the first commit of branch main
	Dirs    int               // that they lie in, two levels deep
	Commits int               // of main, each but the first changing ten files and adding one
	Other   int               // files that branch other changes, from main's middle
	Extra   map[string]string // further files of the first commit, by path
}

// Large is what the benchmark's figures are about.
func Large() Size { return Size{Files: 20000, Dirs: 1000, Commits: 200, Other: 2000} }

const (
	begin    = 1_600_000_000 // the first commit's date, Unix time
	perEntry = 10            // files changed by a commit
)

// Path is where file i is.
func (s Size) Path(i int) string {
	dir := i % s.Dirs
	return fmt.Sprintf("top%02d/sub%03d/file%05d.txt", dir%20, dir, i)
}

// Stream writes the repository as git fast-import reads it.
func (s Size) Stream(to io.Writer) error {
	w := bufio.NewWriterSize(to, 1<<20)
	random := rand.New(rand.NewPCG(20000, 200))
	text := s.texts(random)
	put := func(path, content string) {
		_, _ = fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n%s\n", path, len(content), content) // Flush tells
	}
	commit := func(branch string, n int, from string) {
		message := fmt.Sprintf("Change %d of %s\n\nWhat a message says at some length, as people write them.\n", n, branch)
		_, _ = fmt.Fprintf(w, "commit refs/heads/%s\nmark :%d\ncommitter Dev <dev@example.test> %d +0000\ndata %d\n%s%s",
			branch, n+1, begin+n*3600, len(message), message, from)
	}
	commit("main", 0, "")
	for i := range s.Files {
		put(s.Path(i), text())
	}
	for _, path := range slices.Sorted(maps.Keys(s.Extra)) {
		put(path, s.Extra[path])
	}
	for n := 1; n < s.Commits; n++ {
		commit("main", n, "")
		for range perEntry {
			put(s.Path(random.IntN(s.Files)), text())
		}
		put(s.Path(s.Files+n), text())
	}
	commit("other", s.Commits, fmt.Sprintf("from :%d\n", s.Commits/2+1))
	for i := range s.Other {
		put(s.Path(i*s.Files/s.Other), text())
	}
	_, _ = io.WriteString(w, "done\n")
	return w.Flush()
}

// texts makes files of 40 lines on average, of words that repeat as in sources.
func (s Size) texts(random *rand.Rand) func() string {
	words := make([]string, 500)
	for i := range words {
		b := make([]byte, 3+random.IntN(8))
		for k := range b {
			b[k] = byte('a' + random.IntN(26))
		}
		words[i] = string(b)
	}
	return func() string {
		var out []byte
		for range 10 + random.IntN(60) {
			for range 2 + random.IntN(10) {
				out = append(append(out, words[random.IntN(len(words))]...), ' ')
			}
			out = append(out, '\n')
		}
		return string(out)
	}
}
