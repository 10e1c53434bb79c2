package cli

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

//go:embed man/lazaret.1.md
var manTail string

//go:embed man/lazaret-runtime.8.md
var manRuntime string

// manPages are the manual pages in roff(7) by file name.
func manPages() map[string]string {
	return map[string]string{
		"lazaret.1":         string(md2man.Render([]byte(manMarkdown(commandTree()) + "\n" + manTail))),
		"lazaret-runtime.8": string(md2man.Render([]byte(manRuntime))),
	}
}

// manMarkdown describes the commands; what the definition does not know follows
// from man/lazaret.1.md.
func manMarkdown(t *node) string {
	var b strings.Builder
	b.WriteString("% lazaret 1 \"\" \"Lazaret\" \"User Commands\"\n\n# NAME\n\n")
	fmt.Fprintf(&b, "lazaret - %s\n\n# SYNOPSIS\n\n", t.usage)
	for _, n := range t.all() {
		if n.path != "" && len(n.subs) == 0 {
			fmt.Fprintf(&b, "%s\n\n", synopsis(n))
		}
	}
	fmt.Fprintf(&b, "**lazaret --version**\n\n# DESCRIPTION\n\n%s\n\n# COMMANDS\n\n", paragraph(t.description))
	for _, n := range t.all() {
		if n.path == "" {
			continue
		}
		fmt.Fprintf(&b, "## lazaret %s\n\n%s.\n\n", n.path, capital(escapeMarkdown(n.usage)))
		if len(n.subs) == 0 {
			fmt.Fprintf(&b, "%s\n\n", synopsis(n))
		}
		if n.description != "" {
			fmt.Fprintf(&b, "%s\n\n", paragraph(n.description))
		}
		for _, f := range n.flags {
			if f.names[0] == "help" {
				continue
			}
			term := "**" + strings.Join(f.dashed(), "**, **") + "**"
			if f.value != "" {
				term += " " + escapeMarkdown(f.value)
			}
			fmt.Fprintf(&b, "%s\n: %s\n\n", term, escapeMarkdown(f.usage))
		}
	}
	return b.String()
}

func synopsis(n *node) string {
	s := "**lazaret " + n.path + "**"
	for _, f := range n.flags {
		if f.names[0] == "help" {
			continue
		}
		s += " [**" + f.dashed()[0] + "**"
		if f.value != "" {
			s += " " + escapeMarkdown(f.value)
		}
		s += "]"
	}
	if n.args != "" {
		s += " " + escapeMarkdown(n.args)
	}
	return s
}

// paragraph joins the lines of a description; those that are indented stay as
// they are, as examples.
func paragraph(s string) string {
	var b strings.Builder
	example := false
	for line := range strings.Lines(strings.TrimRight(s, "\n")) {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, "  ")
		if indented != example {
			b.WriteString("\n") // a blank line begins and ends a code block
		}
		if example = indented; indented {
			b.WriteString("  " + line + "\n")
		} else {
			b.WriteString(escapeMarkdown(line) + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func escapeMarkdown(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `_`, `\_`, "`", "\\`", `[`, `\[`, `]`, `\]`, `<`, `\<`, `>`, `\>`, `|`, `\|`).Replace(s)
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
