package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// node is one visible command as help for shells and manual pages needs it.
type node struct {
	path        string // words after "lazaret", "" for lazaret itself
	name        string // last word of path
	usage       string
	description string
	args        string   // ArgsUsage
	choices     []string // what the first argument can be, when that is fixed
	flags       []flag
	subs        []*node
}

type flag struct {
	names   []string // without dashes, long ones first
	usage   string   // without backquotes
	value   string   // placeholder, "" for a flag without value
	choices []string // the placeholder's words when it is "a|b|c"
	file    bool     // the value names a file
}

// dashed is the flag's names as people type them.
func (f flag) dashed() []string {
	var d []string
	for _, n := range f.names {
		if len(n) == 1 {
			d = append(d, "-"+n)
		} else {
			d = append(d, "--"+n)
		}
	}
	return d
}

// commandTree is the visible part of the application's definition.
func commandTree() *node {
	app := newApp()
	root := &node{usage: app.Usage, description: app.Description, args: "COMMAND", flags: flagsOf(app.Flags)}
	root.subs = nodesOf("", app.Commands)
	return root
}

func nodesOf(parent string, commands []*cli.Command) []*node {
	var nodes []*node
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		n := &node{
			path: strings.TrimSpace(parent + " " + c.Name), name: c.Name,
			usage: c.Usage, description: c.Description, args: c.ArgsUsage,
			choices: choicesOf(c.ArgsUsage), flags: flagsOf(c.Flags),
		}
		n.subs = nodesOf(n.path, c.Subcommands)
		nodes = append(nodes, n)
	}
	return nodes
}

var (
	choiceForm      = regexp.MustCompile(`^[a-z0-9-]+(\|[a-z0-9-]+)+$`)
	placeholderForm = regexp.MustCompile("`([^`]+)`")
)

func choicesOf(s string) []string {
	if !choiceForm.MatchString(s) {
		return nil
	}
	return strings.Split(s, "|")
}

// flagsOf ends with the help flag, which the library adds to each command when
// it runs.
func flagsOf(flags []cli.Flag) []flag {
	var all []flag
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		if !ok || isHidden(f) || slices.Contains(d.Names(), "help") {
			continue
		}
		x := flag{names: slices.Clone(d.Names()), usage: strings.ReplaceAll(d.GetUsage(), "`", "")}
		slices.SortStableFunc(x.names, func(a, b string) int { return len(b) - len(a) })
		if d.TakesValue() {
			x.value = "VALUE"
			if m := placeholderForm.FindStringSubmatch(d.GetUsage()); m != nil {
				x.value = m[1]
			}
			x.choices = choicesOf(x.value)
			x.file = x.value == "FILE" || x.value == "PATH" || x.value == "DIR"
		}
		all = append(all, x)
	}
	return append(all, flag{names: []string{"help", "h"}, usage: "show help"})
}

func isHidden(f cli.Flag) bool {
	v, ok := f.(cli.VisibleFlag)
	return ok && !v.IsVisible()
}

// all is n and every node below it, parents first.
func (n *node) all() []*node {
	nodes := []*node{n}
	for _, s := range n.subs {
		nodes = append(nodes, s.all()...)
	}
	return nodes
}

// wantsFiles tells whether the arguments are paths.
func (n *node) wantsFiles() bool {
	return strings.Contains(n.args, "PATH") || strings.Contains(n.args, "FILE") || strings.Contains(n.args, "DIR")
}
