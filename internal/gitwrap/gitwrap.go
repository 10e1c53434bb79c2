// Package gitwrap owns the program that stands before git on a sandbox's PATH.
// Git works as without it, and where the guard over the workspace refuses what
// git wants to write, one line says why and what to do. Most calls never come
// here: see internal/early, without which git is started as it is.
package gitwrap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/lazaret-dev/lazaret/internal/early"
	"github.com/lazaret-dev/lazaret/internal/shellword"
)

// Exit statuses where git was not run.
const (
	exitRefused  = 1
	exitNotFound = 127 // as a shell's
)

// Called tells whether a program of this name is to be git.
func Called(argv0 string) bool { return filepath.Base(argv0) == "git" }

// Main says what there is to say of a call of git, or becomes git. It returns the
// exit status.
func Main(argv []string, stderr io.Writer) int {
	switch o := early.Git(); {
	case o.Refused:
		_, _ = io.WriteString(stderr, refusal(argv, o.Verb)) // nowhere left to tell
		return exitRefused
	case o.Ended:
		data, _ := os.ReadFile(early.RefusalsFile()) // what cannot be read explains nothing
		_, _ = io.WriteString(stderr, explain(argv, o.Succeeded(), data, o.Before))
		o.Finish()
	}
	err := execGit(argv)
	_, _ = fmt.Fprintf(stderr, "lazaret: git: %v\n", err)
	return exitNotFound
}

// execGit becomes the first git on PATH that is another program than this one.
func execGit(argv []string) error {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		name := filepath.Join(dir, "git")
		fi, err := os.Stat(name) //nolint:gosec // the caller's own PATH
		if err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 && !os.SameFile(fi, self) {
			return syscall.Exec(name, argv, os.Environ()) //nolint:gosec // to start git as the caller would is the job
		}
	}
	return errors.New("there is no git on PATH")
}

// entry is one line of the guard's file.
type entry struct{ errno, operation, path string }

// parse lists the refusals after a sequence number, oldest first. A line is
// "number errno operation path", the path quoted as Go's strconv does.
func parse(data []byte, after uint64) []entry {
	var out []entry
	for line := range bytes.Lines(data) {
		f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), " ", 4)
		if len(f) != 4 {
			continue
		}
		name, err := strconv.Unquote(f[3])
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(f[0], 10, 64); err == nil && n > after {
			out = append(out, entry{f[1], f[2], name})
		}
	}
	return out
}

// guarded tells whether a name, or the lock by which it is replaced, is one that
// git obeys: those that the guard keeps as they are.
func guarded(name string) bool {
	switch strings.TrimSuffix(path.Base(name), ".lock") {
	case "config", "config.worktree", "commondir", "gitdir", "attributes", "grafts", "sparse-checkout", "alternates", "http-alternates":
		return true
	}
	return false
}

// why is the reason of every refusal.
const why = "as git on the host obeys it"

// explain is the line for what was refused while git ran, or "".
func explain(argv []string, succeeded bool, data []byte, after uint64) string {
	all := parse(data, after)
	for _, e := range all {
		switch name := inert(strings.TrimSuffix(e.path, ".lock")); {
		case !guarded(e.path):
			continue
		case succeeded:
			return fmt.Sprintf("lazaret: git has done all but change %s, which a sandbox cannot, %s; if that matters, %s\n", name, why, ask(argv))
		default:
			return fmt.Sprintf("lazaret: %s cannot be changed in a sandbox, %s; to have this done on the host, %s\n", name, why, ask(argv))
		}
	}
	if succeeded || len(all) == 0 {
		return "" // git went another way
	}
	e := all[len(all)-1]
	return fmt.Sprintf("lazaret: the guard over the workspace refused %s of %s (%s), %s; to have this done on the host, %s\n",
		inert(e.operation), inert(e.path), inert(e.errno), why, ask(argv))
}

// refusal is the line for a command that git would have left half done.
func refusal(argv []string, verb int) string {
	hint := instead(argv[verb])
	if hint != "" {
		hint += ", or "
	}
	return fmt.Sprintf("lazaret: not run, as this changes git's config, which cannot be changed in a sandbox, %s; %s%s\n", why, hint, ask(argv))
}

// instead is what does most of a refused command without the config.
func instead(verb string) string {
	switch verb {
	case "push":
		return "leave out -u"
	case "checkout", "switch", "worktree":
		return "leave out --track"
	case "branch":
		return "make a branch of another name, without --track"
	case "fetch", "pull":
		return "leave out --set-upstream"
	}
	return ""
}

// ask is how the command is asked for, in a shell's words.
func ask(argv []string) string {
	words := "git"
	for _, a := range argv[1:] {
		words += " " + shellword.Quote(a)
	}
	if len(words) > maxCommand || words != inert(words) {
		words = "git …"
	}
	return `ask for it: lazaret-escalate -j "why" -- ` + words
}

// maxCommand is the longest command that is repeated, in bytes.
const maxCommand = 300

// inert keeps a name of the agent's from acting upon the terminal.
func inert(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}
