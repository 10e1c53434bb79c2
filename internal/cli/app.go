// Package cli owns the command line of lazaret. Its one definition of commands
// and flags is also the source of the help, the manual page and the shells'
// completions.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/spell"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/version"
)

// Exit statuses of lazaret.
const (
	exitOK     = 0
	exitFailed = 1 // the work failed, or a check did
	exitUsage  = 2 // the command line is wrong; nothing was done
)

// exitError carries an exit status. A nil err has been told already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is an error about the command line itself.
func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// Main runs lazaret with args, which start with the program's name, and returns
// its exit status. Errors have been written to stderr then, one line each.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app := newApp()
	app.Reader, app.Writer, app.ErrWriter = stdin, stdout, stderr
	err := app.RunContext(ctx, keepDashes(args))
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var own *exitError
	var coder cli.ExitCoder
	switch {
	case errors.As(err, &own):
		code = own.code
	case errors.As(err, &coder):
		code = coder.ExitCode()
	}
	if msg := strings.TrimSpace(err.Error()); msg != "" {
		_, _ = fmt.Fprintf(stderr, "lazaret: %s\n", msg) // nowhere left to tell
	}
	return code
}

func newApp() *cli.App {
	app := &cli.App{
		Name:        "lazaret",
		Usage:       "rootless sandboxes for AI coding agents",
		UsageText:   "lazaret [--version] COMMAND [OPTIONS] [ARGUMENTS]",
		Description: "Lazaret is an OCI runtime around gVisor. Once \"lazaret init\" has registered it,\n\"podman run --runtime=lazaret\" gives a coding agent a sandbox to work in.",
		HideVersion: true, // the library's flag would need its package variables
		// The library's own help command answers unknown names with status 3.
		HideHelpCommand: true,
		// Values may hold commas: paths do.
		DisableSliceFlagSeparator: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "version", Usage: "print version and commit", DisableDefaultText: true},
			// The library adds it only to applications without a help command of their own.
			cli.HelpFlag,
		},
		Before: func(c *cli.Context) error {
			if !c.Bool("version") {
				return nil
			}
			if _, err := fmt.Fprintln(c.App.Writer, version.String("lazaret")); err != nil {
				return err
			}
			return &exitError{code: exitOK}
		},
		Commands: []*cli.Command{
			initCommand(),
			imageCommand(),
			runCommand(),
			doctorCommand(),
			statusCommand(),
			sessionsCommand(),
			stopCommand(),
			reviewCommand(),
			logsCommand(),
			consoleCommand(),
			domainCommand(),
			netCommand(),
			auditCommand(),
			gitCommand(),
			stateCommand(),
			pruneCommand(),
			configCommand(),
			trustCommand(),
			completionCommand(),
			helpCommand(),
			genCommand(),
			probeCommand(),
			superviseCommand(),
		},
		// Main prints and exits; the library must not.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	app.OnUsageError = flagError(app.Flags)
	app.Action = func(c *cli.Context) error {
		if c.Args().Present() {
			return unknownCommand("lazaret", c.Args().First(), app.Commands)
		}
		return cli.ShowAppHelp(c)
	}
	for _, cmd := range app.Commands {
		finish("lazaret", cmd)
	}
	return app
}

// finish gives a command and those below it the behaviour that all share.
func finish(parent string, cmd *cli.Command) {
	name := parent + " " + cmd.Name
	cmd.HideHelpCommand = true
	cmd.OnUsageError = flagError(cmd.Flags)
	for _, sub := range cmd.Subcommands {
		finish(name, sub)
	}
	act := cmd.Action
	cmd.Action = func(c *cli.Context) error {
		first := c.Args().First()
		switch {
		case act == nil && c.Args().Present():
			return unknownCommand(name, first, cmd.Subcommands)
		case act == nil:
			return usageError("%s needs a command: %s", name, strings.Join(visibleNames(cmd.Subcommands), ", "))
		case cmd.ArgsUsage == "" && c.Args().Present():
			if len(cmd.Subcommands) > 0 {
				return unknownCommand(name, first, cmd.Subcommands)
			}
			return usageError("%s takes no arguments, but got %q", name, first)
		}
		if !strings.Contains(cmd.ArgsUsage, "...") {
			for _, a := range c.Args().Slice() {
				if len(a) > 1 && a[0] == '-' {
					return usageError("%s: put %s before the arguments", name, a)
				}
			}
		}
		return act(c)
	}
}

func visibleNames(commands []*cli.Command) []string {
	var names []string
	for _, c := range commands {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

func unknownCommand(parent, word string, commands []*cli.Command) error {
	if near := nearest(word, visibleNames(commands)); near != "" {
		return usageError("unknown command %q: did you mean %q? (%s --help lists all)", word, near, parent)
	}
	return usageError("unknown command %q: %s --help lists all", word, parent)
}

// flagError turns the flag package's complaint into one line.
func flagError(flags []cli.Flag) cli.OnUsageErrorFunc {
	return func(c *cli.Context, err error, _ bool) error {
		help := strings.TrimSpace(c.Command.HelpName)
		if help == "" {
			help = c.App.Name
		}
		if word, found := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); found {
			word = strings.TrimLeft(word, "-")
			names := []string{"help"}
			for _, f := range flags {
				names = append(names, f.Names()...)
			}
			if near := nearest(word, names); near != "" {
				return usageError("unknown flag --%s: did you mean --%s? (%s --help lists all)", word, near, help)
			}
			return usageError("unknown flag --%s: %s --help lists all", word, help)
		}
		return usageError("%w (%s --help lists the flags)", err, help)
	}
}

// nearest returns the candidate that word may be a misspelling of, that with the
// smallest edit distance; "" where none is near.
func nearest(word string, candidates []string) string {
	best, least := "", (min(len(word), 64)+2)/3+1
	for _, c := range candidates {
		if d := distance(word, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is the number of inserted, dropped, changed or swapped characters.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > 64 {
		x = x[:64] // nobody misspells that far
	}
	return spell.Distance(x, y)
}

func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Aliases:   []string{"h"},
		Usage:     "show the help of a command",
		ArgsUsage: "[COMMAND...]",
		Action: func(c *cli.Context) error {
			path := c.Args().Slice()
			parent, commands := "lazaret", newApp().Commands
			for _, word := range path {
				i := slices.IndexFunc(commands, func(cmd *cli.Command) bool { return cmd.HasName(word) })
				if i < 0 && len(commands) == 0 {
					return usageError("%s has no command %q", parent, word)
				}
				if i < 0 {
					return unknownCommand(parent, word, commands)
				}
				parent, commands = parent+" "+commands[i].Name, commands[i].Subcommands
			}
			app := newApp()
			app.Writer, app.ErrWriter = c.App.Writer, c.App.ErrWriter
			return app.RunContext(c.Context, slices.Concat([]string{"lazaret"}, path, []string{"--help"}))
		},
	}
}
