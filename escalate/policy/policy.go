// Package policy owns what a host command that an agent asked for means on this
// host: which words it has, which file is executed, where, and whether a rule of
// the developer's lets it run without a person. The View that it makes is the one
// parsed value that is decided upon, shown and run.
//
// A command without shell metacharacters is executed directly, its words being
// those that a POSIX shell would see; what a shell would expand is passed on as it
// stands. A command with metacharacters is the host's /bin/sh's, and never runs
// without a person.
package policy

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// shell runs commands with metacharacters.
const shell = "/bin/sh"

// View is what would run. Its texts come from the agent where they are not said
// to be ours: nothing of them is fit for a terminal before it is made inert.
type View struct {
	Command string // exactly as it came
	// Argv is what is executed: the words of the command, or the shell, -c and the
	// command. Empty where there is nothing to run.
	Argv  []string
	Shell bool // the host's shell runs it
	// Program is the file that is executed: absolute, without symbolic links, in no
	// place that an agent writes to. "" where Err tells why there is none.
	Program string
	// Dir is the host directory that it runs in, without symbolic links.
	Dir string
	// DirNote says, in words of ours, why Dir is not the one that was asked for; "".
	DirNote string
	// Warnings are what a person should know, in words of ours.
	Warnings []string
	// Automatic tells that the developer's rule lets it run; else Why says, in words
	// of ours, why a person must be asked.
	Automatic bool
	Why       string
	// Err tells why it cannot run at all, whoever approves; nil.
	Err error

	program, dir fileID
}

// Host is the developer's side, as far as commands depend on it.
type Host struct {
	Path string // the developer's PATH
	Home string // his home, "" for none
	// Agents are directories and files that agents write to: workspaces of all
	// domains, what sandboxes were given beside them, and Lazaret's data_root.
	// Nothing in them is executed. Absolute.
	Agents []string
	// Err tells why Agents may lack some; nil. Nothing runs then.
	Err error
}

// FromEnvironment describes the host by the PATH of this process and by what is
// recorded of all domains below dataRoot.
func FromEnvironment(dataRoot string) *Host {
	h := &Host{Path: os.Getenv("PATH"), Home: os.Getenv("HOME"), Agents: []string{dataRoot}}
	written, err := domain.Written(dataRoot)
	h.Agents, h.Err = append(h.Agents, written...), err
	roots, err := os.ReadDir(path.Join(dataRoot, "domains"))
	if err != nil {
		return h // no domain has been yet; an ask brings its own workspace
	}
	for _, r := range roots {
		if a, err := domain.ReadRecord(path.Join(dataRoot, "domains", r.Name())); err == nil && a.Workspace != "" {
			h.Agents = append(h.Agents, a.Workspace)
		}
	}
	return h
}

// Evaluate tells what command, the one of the request or what a person made of
// it, would do on the host. It does not run anything and never fails: see Err.
func Evaluate(h *Host, ask *wire.Ask, command string) *View {
	v := &View{Command: command}
	agents := h.trees(ask)
	nowhere := v.locate(ask)
	var marks string
	switch {
	case h.Err != nil:
		v.Err = fmt.Errorf("what agents write to is not known: %w", h.Err)
	case nowhere != nil:
		v.Err = nowhere
	case !utf8.ValidString(command) || strings.ContainsRune(command, 0):
		v.Err = errors.New("the command is not text")
	case strings.TrimSpace(command) == "":
		v.Err = errors.New("the command is empty")
	case strings.IndexFunc(command, isMeta) >= 0:
		v.Shell = true
		v.Argv = []string{shell, "-c", command}
	default:
		v.Argv, marks, v.Err = Split(command)
	}
	if v.Err == nil {
		v.Program, v.program, v.Err = agents.find(h.Path, v.Argv[0])
	}
	v.warn(marks)
	v.Why = v.askWhy(h, agents, ask, marks)
	v.Automatic = v.Why == ""
	return v
}

// Same tells whether o, of the same command, would do just what v says; the error
// says what has changed.
func (v *View) Same(o *View) error {
	switch {
	case o.Err != nil:
		return o.Err
	case v.Err != nil:
		return v.Err
	case v.Shell != o.Shell || !slices.Equal(v.Argv, o.Argv):
		return errors.New("the command is another than the one that was approved")
	case v.Program != o.Program || v.program != o.program:
		return fmt.Errorf("the program %s has changed since it was approved", strconv.QuoteToASCII(v.Program))
	case v.Dir != o.Dir || v.dir != o.dir:
		return errors.New("the working directory has changed since it was approved")
	}
	return nil
}

// warn says what is easily misread.
func (v *View) warn(marks string) {
	add := func(format string, args ...any) { v.Warnings = append(v.Warnings, fmt.Sprintf(format, args...)) }
	if v.Shell {
		add("runs in the host's shell: %s", metaText(v.Command))
	}
	if marks != "" {
		add("%s has no meaning here: words are passed on as they are, no shell expands them", marksText(marks))
	}
	if r, found := firstRune(v.Command, func(r rune) bool { return !Plain(r) && !isMeta(r) }); found {
		add("has characters that are not shown as they are, such as %U", r)
	}
	if len(v.Argv) > 0 && strings.IndexFunc(v.Argv[0], func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
		add("the program's name has letters beyond ASCII, which can look like others")
	}
	if v.DirNote != "" {
		add("%s", v.DirNote)
	}
}

// askWhy tells why a person must be asked; "" when the developer's rule covers
// the command.
func (v *View) askWhy(h *Host, agents trees, ask *wire.Ask, marks string) string {
	switch {
	case v.Err != nil:
		return "it cannot run"
	case v.Shell:
		return "it needs the shell: " + metaText(v.Command)
	case marks != "":
		return "a shell would do more with " + marksText(marks)
	case v.DirNote != "":
		return v.DirNote
	}
	if r, found := firstRune(v.Command, func(r rune) bool { return !Plain(r) }); found {
		return fmt.Sprintf("it has the character %U", r)
	}
	if _, _, err := agents.real(h.Home); h.Home != "" && errors.Is(err, errAgents) {
		return "your home is in a workspace, and with it what programs read their settings from"
	}
	for _, prefix := range ask.AutoApprove {
		if !matches(prefix, v.Argv) {
			continue
		}
		// The coordinator's file is checked at load, but what the name leads to now is
		// known only here.
		if err := config.CheckAutoApprove(prefix); err != nil {
			continue
		}
		program, id, err := agents.find(h.Path, prefix[0])
		if err != nil || program != v.Program || id != v.program {
			continue
		}
		if err := config.CheckAutoApprove([]string{program}); err != nil {
			return "its program is " + err.Error()
		}
		return agents.shared(v.Program)
	}
	return "no automatic approval covers it"
}

func firstRune(s string, is func(rune) bool) (rune, bool) {
	for _, r := range s {
		if is(r) {
			return r, true
		}
	}
	return 0, false
}

// metaText names the metacharacters of a command, each once.
func metaText(command string) string {
	var out []string
	for _, r := range command {
		if s := strconv.QuoteRuneToASCII(r); isMeta(r) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return "it has " + strings.Join(out, " ")
}

func marksText(marks string) string {
	return strings.Join(strings.Split(marks, ""), " ")
}
