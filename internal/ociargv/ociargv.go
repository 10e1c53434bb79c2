// Package ociargv owns the OCI runtime command line: it finds the global flags,
// the verb, the container id and the few flags that Lazaret acts upon, and
// turns runc's spelling, which engines use, into the one that runsc takes.
//
// runc parses with urfave/cli, runsc with Go's flag package: there -x and --x
// are the same, a boolean takes no separate value, and flags end at the first
// word that is none. Words that this package does not know pass through.
package ociargv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// flag says what is known of one flag.
type flag struct {
	to    string // runsc's name, "" when runsc has no such flag
	value bool   // takes a value
	drop  bool   // means nothing to gVisor: left out
	// refuse, when not "", is why a container that asks for it cannot be run.
	refuse string
}

// Command is one parsed command line.
type Command struct {
	Global []string // global flags for runsc, in order
	Verb   string   // "" when there is none
	Flags  []string // the verb's flags for runsc, in order
	Args   []string // the words after the flags: container id and so on

	// What Lazaret itself reads; "" when not given.
	Config        string // --config FILE, Lazaret's own: never passed on
	Root          string
	Log           string
	LogFormat     string
	Bundle        string
	PIDFile       string
	Process       string
	ConsoleSocket string
	Detach        bool
	Force         bool
	CgroupManager string // "disabled", "systemd", "cgroupfs" or ""
	Version       bool
	Help          bool
	dashes        bool // "--" stood before the verb
	// Refused is why runsc cannot do what was asked, "" normally.
	Refused string
}

// ID is the container id of a verb that has one, else "".
func (c *Command) ID() string {
	if len(c.Args) == 0 || !IsVerb(c.Verb) || noID(c.Verb) {
		return ""
	}
	return c.Args[0]
}

func noID(verb string) bool {
	switch verb {
	case "list", "spec", "features", "help", "flags":
		return true
	}
	return false
}

// IsVerb reports whether word is one of the OCI runtime's verbs, runc's and
// runsc's; others pass through.
func IsVerb(word string) bool {
	switch word {
	case "checkpoint", "create", "delete", "events", "exec", "features", "flags", "help", "init",
		"kill", "list", "pause", "ps", "restore", "resume", "run", "spec", "start", "state", "update", "wait":
		return true
	}
	return false
}

// Parse reads the arguments after the program's name. It fails only where a
// flag that it knows lacks its value; the command then holds what came before,
// such as where to log.
func Parse(args []string) (*Command, error) {
	c := &Command{}
	rest, err := c.parseGlobal(args)
	if err != nil {
		return c, err
	}
	if len(rest) == 0 {
		return c, nil
	}
	c.Verb = rest[0]
	return c, c.parseVerb(rest[1:])
}

// split takes "--name=value" apart; name is "" for a word that is no flag.
func split(word string) (name, value string, hasValue bool) {
	if len(word) < 2 || word[0] != '-' || word == "--" {
		return "", "", false
	}
	name = strings.TrimPrefix(word[1:], "-")
	name, value, hasValue = strings.Cut(name, "=")
	return name, value, hasValue
}

func (c *Command) parseGlobal(args []string) ([]string, error) {
	for i := 0; i < len(args); i++ {
		word := args[i]
		if word == "--" {
			c.dashes = true
			return args[i+1:], nil
		}
		name, value, hasValue := split(word)
		if name == "" {
			return args[i:], nil
		}
		f, known := globalFlag(name)
		if !known {
			// An engine's or user's own flag for runsc. "--flag value" and
			// "--flag VERB" look alike: a verb's name is the verb.
			c.Global = append(c.Global, word)
			if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") && !IsVerb(args[i+1]) {
				i++
				c.Global = append(c.Global, args[i])
			}
			continue
		}
		if f.value && !hasValue {
			if i+1 >= len(args) {
				return nil, fmt.Errorf("flag needs a value: %s", word)
			}
			i++
			value = args[i]
		}
		c.global(name, f, value, hasValue || f.value)
	}
	return nil, nil
}

// global acts on one known global flag.
func (c *Command) global(name string, f flag, value string, hasValue bool) {
	switch name {
	case "config":
		c.Config = value
		return
	case "root":
		c.Root = value
	case "log":
		c.Log = value
	case "log-format":
		c.LogFormat = value
	case "version", "v":
		c.Version = value != "false"
		return
	case "help", "h":
		c.Help = value != "false"
		return
	case "cgroup-manager":
		c.CgroupManager = value
		return
	case "systemd-cgroup":
		if value != "false" {
			c.CgroupManager = "systemd"
		}
		return
	case "rootless":
		// runc's takes true, false or auto; runsc's is another thing: its own
		// user namespace, which create refuses.
		return
	}
	if f.drop {
		return
	}
	word := "--" + f.to
	if hasValue {
		word += "=" + value
	}
	c.Global = append(c.Global, word)
}

func (c *Command) parseVerb(args []string) error {
	for i := 0; i < len(args); i++ {
		word := args[i]
		if word == "--" {
			c.Args = args[i+1:]
			return nil
		}
		name, value, hasValue := split(word)
		if name == "" {
			c.Args = args[i:]
			return nil
		}
		f, known := verbFlag(c.Verb, name)
		if !known {
			c.Flags = append(c.Flags, word)
			continue
		}
		if f.value && !hasValue {
			if i+1 >= len(args) {
				return fmt.Errorf("flag needs a value: %s %s", c.Verb, word)
			}
			i++
			value, hasValue = args[i], true
		}
		c.verbFlag(name, f, value, hasValue)
	}
	return nil
}

// verbFlag acts on one known flag of the verb.
func (c *Command) verbFlag(name string, f flag, value string, hasValue bool) {
	off := hasValue && !f.value && value == "false"
	if f.refuse != "" {
		if !off && value != "0" && (value != "" || !f.value) {
			c.Refused = fmt.Sprintf("%s --%s: %s", c.Verb, name, f.refuse)
		}
		return
	}
	switch f.to {
	case "bundle":
		c.Bundle = value
	case "pid-file":
		c.PIDFile = value
	case "process":
		c.Process = value
	case "console-socket":
		c.ConsoleSocket = value
	case "detach":
		c.Detach = !off
	case "force":
		c.Force = !off
	}
	if f.drop || off {
		return
	}
	if c.Verb == "events" && f.to == "interval" {
		value = seconds(value)
	}
	word := "--" + f.to
	if hasValue && f.value {
		word += "=" + value
	}
	c.Flags = append(c.Flags, word)
}

// seconds turns runc's duration ("5s") into runsc's number of whole seconds, at
// least one. What is no duration is runsc's to judge.
func seconds(value string) string {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return value
	}
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// HasGlobal reports whether a global flag of that name is given.
func (c *Command) HasGlobal(names ...string) bool {
	for _, w := range c.Global {
		if n, _, _ := split(w); slices.Contains(names, n) {
			return true
		}
	}
	return false
}

// Argv is the command line for runsc, its program name first.
func (c *Command) Argv(program string, extraGlobal ...string) []string {
	argv := []string{program}
	argv = append(argv, c.Global...)
	argv = append(argv, extraGlobal...)
	if c.Verb == "" {
		return argv
	}
	if c.dashes {
		argv = append(argv, "--")
	}
	argv = append(argv, c.Verb)
	argv = append(argv, c.Flags...)
	if len(c.Args) > 0 && strings.HasPrefix(c.Args[0], "-") {
		argv = append(argv, "--") // it was given after one
	}
	return append(argv, c.Args...)
}
