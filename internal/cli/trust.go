package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/config"
)

func trustCommand() *cli.Command {
	return &cli.Command{
		Name:      "trust",
		Usage:     "let the configuration file of a workspace loosen the sandbox",
		ArgsUsage: "[PATH]",
		Description: "The agent can write its workspace, so the lazaret.toml there may only tighten. Trust is for\n" +
			"one content of one file: after any change the file may only tighten again. PATH is the file,\n" +
			"or the directory with the lazaret.toml; without it, the current directory.\n" +
			"Shows what the file would loosen, then asks.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask", DisableDefaultText: true},
			&cli.BoolFlag{Name: "revoke", Usage: "trust the file no longer", DisableDefaultText: true},
			&cli.BoolFlag{Name: "list", Usage: "list the trusted files", DisableDefaultText: true},
		},
		Action: runTrust,
	}
}

func runTrust(c *cli.Context) error {
	if c.NArg() > 1 {
		return usageError("lazaret trust takes one path, but got %d", c.NArg())
	}
	if c.Bool("list") && (c.Bool("revoke") || c.Bool("yes") || c.NArg() > 0) {
		return usageError("lazaret trust --list takes no other flags and no path")
	}
	o, err := userOptions()
	if err != nil {
		return err
	}
	store, err := config.OpenTrustStore(o)
	if err != nil {
		return tellFaults(c.App.ErrWriter, err)
	}
	path := c.Args().First()
	if path == "" {
		path = "."
	}
	switch {
	case c.Bool("list"):
		return listTrusted(c, store)
	case c.Bool("revoke"):
		return revoke(c.App.Writer, store, path)
	}
	in, err := config.Inspect(o, path)
	if err != nil {
		return tellFaults(c.App.ErrWriter, err)
	}
	needed, err := describe(c.App.Writer, in)
	if err != nil || !needed {
		return err
	}
	if !c.Bool("yes") {
		if err := confirm(c.App.Reader, c.App.Writer, "Trust this content?"); err != nil {
			return err
		}
	}
	if err := store.Trust(in, time.Now()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "trusted %s with this content (SHA-256 %s)\n", config.Printable(in.Path), in.SHA256)
	return err
}

// describe tells what trust would mean, and whether there is anything to trust.
func describe(w io.Writer, in *config.Inspection) (needed bool, err error) {
	path := config.Printable(in.Path)
	var b strings.Builder
	switch {
	case in.Trust == config.Trusted:
		fmt.Fprintf(&b, "%s is trusted already, with this very content\n", path)
	case len(in.Loosens) == 0 && filepath.Base(in.Path) == config.WorkspaceFile:
		fmt.Fprintf(&b, "%s only tightens: it holds without trust\n", path)
	default:
		needed = true
		if in.Trust == config.Changed {
			fmt.Fprintf(&b, "%s has changed since it was trusted.\n", path)
		}
		if len(in.Loosens) == 0 {
			fmt.Fprintf(&b, "%s only tightens; trusted, it can be given with --config.\n", path)
		} else {
			fmt.Fprintf(&b, "Trusted, %s loosens the sandbox:\n", path)
		}
		for _, e := range in.Loosens {
			fmt.Fprintf(&b, "  line %d: %s %s\n", e.Line, config.Printable(e.Key), config.Printable(e.Why))
		}
	}
	_, err = io.WriteString(w, b.String())
	return needed, err
}

// confirm asks on the terminal. Input that is not typed by a person is no consent.
func confirm(r io.Reader, w io.Writer, question string) error {
	f, ok := r.(*os.File)
	if !ok || !isTerminal(f) {
		return errors.New("nobody can be asked, as the input is no terminal: look first and use --yes")
	}
	if _, err := io.WriteString(w, question+" [y/N] "); err != nil {
		return err
	}
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("not confirmed: nothing was changed")
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func listTrusted(c *cli.Context, store *config.TrustStore) error {
	entries, err := store.List()
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return nothing(c, "no file is trusted")
	}
	for _, e := range entries {
		if _, err := fmt.Fprintf(c.App.Writer, "%s  %s  %s\n", e.SHA256, e.When.Format(time.RFC3339), config.Printable(e.Path)); err != nil {
			return err
		}
	}
	return nil
}

func revoke(w io.Writer, store *config.TrustStore, path string) error {
	file, err := config.TrustPath(path)
	if errors.Is(err, fs.ErrNotExist) && filepath.IsAbs(path) {
		file, err = filepath.Clean(path), nil // its directory is gone: take the path as --list shows it
	}
	if err != nil {
		return err
	}
	found, err := store.Revoke(file)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s is not trusted: \"lazaret trust --list\" shows what is", config.Printable(file))
	}
	_, err = fmt.Fprintf(w, "%s is not trusted any more\n", config.Printable(file))
	return err
}
