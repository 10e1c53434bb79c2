package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
)

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the completion script of a shell",
		ArgsUsage: "bash|zsh|fish",
		Description: "Where the shells look for it:\n" +
			"  bash: lazaret completion bash > ~/.local/share/bash-completion/completions/lazaret\n" +
			"  zsh:  lazaret completion zsh > DIR/_lazaret, with DIR in $fpath\n" +
			"  fish: lazaret completion fish > ~/.config/fish/completions/lazaret.fish",
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usageError("lazaret completion: name a shell: bash, zsh or fish")
			}
			script, ok := completions()[c.Args().First()]
			if !ok {
				return usageError("lazaret completion: unknown shell %q: want bash, zsh or fish", c.Args().First())
			}
			_, err := io.WriteString(c.App.Writer, script.text)
			return err
		},
	}
}

// script is a completion script and the file name that its shell looks for.
type script struct{ file, text string }

// completions are the scripts by shell.
func completions() map[string]script {
	t := commandTree()
	return map[string]script{
		"bash": {"lazaret.bash", bashCompletion(t)},
		"zsh":  {"lazaret.zsh", zshCompletion(t)},
		"fish": {"lazaret.fish", fishCompletion(t)},
	}
}

// genCommand writes what is kept in the repository and packaged.
func genCommand() *cli.Command {
	dir := func(write func(dir string) error) cli.ActionFunc {
		return func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usageError("lazaret gen %s: want a directory", c.Command.Name)
			}
			if err := os.MkdirAll(c.Args().First(), 0o755); err != nil { //nolint:gosec // documentation is everybody's to read
				return err
			}
			return write(c.Args().First())
		}
	}
	return &cli.Command{
		Name: "gen", Hidden: true, Usage: "generate files for packages",
		Subcommands: []*cli.Command{
			{Name: "man", ArgsUsage: "DIR", Usage: "write the manual pages", Action: dir(func(dir string) error {
				return writeAll(dir, manPages())
			})},
			{Name: "completion", ArgsUsage: "DIR", Usage: "write the completion scripts", Action: dir(func(dir string) error {
				files := map[string]string{}
				for _, s := range completions() {
					files[s.file] = s.text
				}
				return writeAll(dir, files)
			})},
			{Name: "config", ArgsUsage: "FILE", Usage: "write the reference of all keys into docs/configuration.md", Action: genConfig},
		},
	}
}

func writeAll(dir string, files map[string]string) error {
	for name, text := range files {
		if err := atomicfile.Write(filepath.Join(dir, name), []byte(text), 0o644, false); err != nil {
			return err
		}
	}
	return nil
}

// quote makes s one word for a POSIX shell and for zsh.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// quoteFish does so for fish, which knows \\ and \' within single quotes.
func quoteFish(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// findCommand is shell code, for bash and zsh alike, that follows the words of
// the command line down the tree; %s is the loop's head.
func findCommand(b *strings.Builder, t *node, words string) {
	fmt.Fprintf(b, "        case \"$cmd %s\" in\n", words)
	for _, n := range t.all() {
		for _, s := range n.subs {
			fmt.Fprintf(b, "            %s) cmd=%s ;;\n", quote(strings.TrimSuffix(n.path, " ")+" "+s.name), quote(s.path))
		}
	}
	b.WriteString("        esac\n")
}

func bashCompletion(t *node) string {
	var b strings.Builder
	b.WriteString(`# bash completion of lazaret; generated, do not edit.
# shellcheck shell=bash

_lazaret() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd='' words='' i
    COMPREPLY=()
    # bash splits --flag=value at the equals sign
    if [[ $cur == = ]]; then
        cur=''
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
`)
	findCommand(&b, t, "${COMP_WORDS[i]}")
	b.WriteString("    done\n    case \"$cmd $prev\" in\n")
	for _, n := range t.all() {
		for _, f := range n.flags {
			if f.value == "" {
				continue
			}
			var patterns []string
			for _, d := range f.dashed() {
				patterns = append(patterns, quote(n.path+" "+d))
			}
			fmt.Fprintf(&b, "        %s)\n", strings.Join(patterns, " | "))
			switch {
			case len(f.choices) > 0:
				fmt.Fprintf(&b, "            mapfile -t COMPREPLY < <(compgen -W %s -- \"$cur\")\n", quote(strings.Join(f.choices, " ")))
			case f.file:
				b.WriteString("            compopt -o filenames\n            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n")
			}
			b.WriteString("            return\n            ;;\n")
		}
	}
	b.WriteString("    esac\n    case $cmd in\n")
	for _, n := range t.all() {
		var flags []string
		for _, f := range n.flags {
			flags = append(flags, f.dashed()...)
		}
		words := n.choices
		for _, s := range n.subs {
			words = append(words, s.name)
		}
		fmt.Fprintf(&b, "        %s)\n", quote(n.path))
		fmt.Fprintf(&b, "            if [[ $cur == -* ]]; then\n                words=%s\n            else\n                words=%s\n            fi\n", quote(strings.Join(flags, " ")), quote(strings.Join(words, " ")))
		if n.wantsFiles() {
			b.WriteString("            if [[ $cur != -* ]]; then\n                compopt -o filenames\n                mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n                return\n            fi\n")
		}
		b.WriteString("            ;;\n")
	}
	b.WriteString(`    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _lazaret lazaret
`)
	return b.String()
}

func zshCompletion(t *node) string {
	// _describe splits a name from its description at the first bare colon.
	item := func(name, usage string) string {
		return quote(strings.ReplaceAll(name, ":", `\:`) + ":" + usage)
	}
	var b strings.Builder
	b.WriteString(`#compdef lazaret
# zsh completion of lazaret; generated, do not edit.

_lazaret() {
    local cmd='' word='' prev=${words[CURRENT-1]}
    local -a flags items
    for word in ${words[2,CURRENT-1]}; do
`)
	findCommand(&b, t, "$word")
	b.WriteString("    done\n    case \"$cmd $prev\" in\n")
	for _, n := range t.all() {
		for _, f := range n.flags {
			if f.value == "" {
				continue
			}
			var patterns []string
			for _, d := range f.dashed() {
				patterns = append(patterns, quote(n.path+" "+d))
			}
			fmt.Fprintf(&b, "        %s) ", strings.Join(patterns, "|"))
			switch {
			case len(f.choices) > 0:
				fmt.Fprintf(&b, "compadd -- %s; return ;;\n", strings.Join(f.choices, " "))
			case f.file:
				b.WriteString("_files; return ;;\n")
			default:
				fmt.Fprintf(&b, "_message %s; return ;;\n", quote(f.value))
			}
		}
	}
	b.WriteString("    esac\n    case $cmd in\n")
	for _, n := range t.all() {
		fmt.Fprintf(&b, "        %s)\n            flags=(\n", quote(n.path))
		for _, f := range n.flags {
			for _, d := range f.dashed() {
				fmt.Fprintf(&b, "                %s\n", item(d, f.usage))
			}
		}
		b.WriteString("            )\n            items=(\n")
		for _, s := range n.subs {
			fmt.Fprintf(&b, "                %s\n", item(s.name, s.usage))
		}
		for _, c := range n.choices {
			fmt.Fprintf(&b, "                %s\n", quote(c))
		}
		b.WriteString("            )\n")
		if n.wantsFiles() {
			b.WriteString("            [[ $PREFIX == -* ]] || { _files; return }\n")
		}
		b.WriteString("            ;;\n")
	}
	b.WriteString(`    esac
    if [[ $PREFIX == -* ]]; then
        _describe -o -t options option flags
    else
        _describe -t commands command items
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _lazaret "$@"
else
    compdef _lazaret lazaret
fi
`)
	return b.String()
}

func fishCompletion(t *node) string {
	var b strings.Builder
	b.WriteString(`# fish completion of lazaret; generated, do not edit.

function __lazaret_at --description 'test which command the words typed so far name'
    set -l cmd ''
    set -l typed (commandline -opc)
    for word in $typed[2..-1]
        switch "$cmd $word"
`)
	for _, n := range t.all() {
		for _, s := range n.subs {
			fmt.Fprintf(&b, "            case %s\n                set cmd %s\n", quoteFish(n.path+" "+s.name), quoteFish(s.path))
		}
	}
	b.WriteString(`        end
    end
    test "$cmd" = "$argv[1]"
end

complete -c lazaret -f
`)
	for _, n := range t.all() {
		at := "complete -c lazaret -n " + quoteFish("__lazaret_at "+quoteFish(n.path))
		for _, s := range n.subs {
			fmt.Fprintf(&b, "%s -a %s -d %s\n", at, s.name, quoteFish(s.usage))
		}
		if len(n.choices) > 0 {
			fmt.Fprintf(&b, "%s -a %s\n", at, quoteFish(strings.Join(n.choices, " ")))
		}
		if n.wantsFiles() {
			b.WriteString(at + " -F\n")
		}
		for _, f := range n.flags {
			b.WriteString(at)
			for _, name := range f.names {
				if len(name) == 1 {
					b.WriteString(" -s " + name)
				} else {
					b.WriteString(" -l " + name)
				}
			}
			switch {
			case len(f.choices) > 0:
				b.WriteString(" -x -a " + quoteFish(strings.Join(f.choices, " ")))
			case f.file:
				b.WriteString(" -r -F")
			case f.value != "":
				b.WriteString(" -x")
			}
			b.WriteString(" -d " + quoteFish(f.usage) + "\n")
		}
	}
	return b.String()
}
