package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/doctor"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
	"github.com/lazaret-dev/lazaret/packaging/images"
)

// guide leads from a registered runtime to an agent that runs.
type guide struct {
	c       *cli.Context
	env     hostenv.Env
	example string        // file to begin a configuration with, "" where there is none
	keys    *bufio.Reader // of a person's answers; nil where nobody is asked
	check   func() (doctor.Report, error)
	build   func(image string) error
	p       *printer
}

func newGuide(c *cli.Context, env hostenv.Env, example string) *guide {
	g := &guide{c: c, env: env, example: example, p: &printer{w: c.App.Writer, width: columns(c.App.Writer)}}
	if in, out := terminalOf(c.App.Reader), terminalOf(c.App.Writer); in != nil && out != nil && !c.Bool("yes") {
		g.keys = bufio.NewReader(in)
	}
	g.check = func() (doctor.Report, error) { return examine(c, env) }
	g.build = func(image string) error {
		m, _, err := newImageMaker(c)
		if err != nil {
			return err
		}
		return m.build([]string{image})
	}
	return g
}

// wanted tells whether init goes on after it has registered the runtime.
func (g *guide) wanted() bool {
	return g.keys != nil || g.c.Bool("yes") || g.c.String("image") != ""
}

func (g *guide) run() error {
	fit, err := g.machine()
	if err != nil {
		return err
	}
	if err := g.configuration(); err != nil {
		return err
	}
	image, err := g.image()
	if err != nil {
		return err
	}
	if image == "" {
		image = "claude"
		g.p.printf("\nnext:  lazaret image build %s   # or %s\n", image, strings.Join(images.Names()[1:], ", "))
		g.p.printf("then:  cd PROJECT && lazaret run %s\n", image)
	} else {
		g.p.printf("\nnext:  cd PROJECT && lazaret run %s\n", image)
	}
	if !fit {
		g.p.printf("first: what is said above of the machine; lazaret doctor shows it again\n")
	}
	return g.p.err
}

// ask asks for a line; what is only a return, or the end, is the answer std.
func (g *guide) ask(question, std string) (string, error) {
	g.p.tell("%s", question)
	g.p.printf(" ")
	line, err := g.keys.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	if line = strings.ToLower(strings.TrimSpace(line)); line == "" {
		line = std
	}
	return line, g.p.err
}

// machine shows what the machine lacks, with the commands that mend it, until
// nothing does or the person goes on.
func (g *guide) machine() (fit bool, err error) {
	for {
		if g.keys != nil {
			g.p.printf("\nlooking at the machine...\n")
		}
		report, err := g.check()
		if err != nil {
			return false, err
		}
		if report.Failures+report.Warnings > 0 {
			g.p.printf("\nthis machine:\n")
		}
		for _, c := range report.Checks {
			if c.Status != doctor.OK {
				g.p.tell("  %-5s%s: %s\n", c.Status, c.Name, c.Detail)
				if c.Fix != "" {
					g.p.printf("       %s\n", c.Fix)
				}
			}
		}
		if report.Failures == 0 {
			return true, g.p.err
		}
		if g.keys == nil {
			return false, g.p.err
		}
		answer, err := g.ask("\nRun these in another terminal. Look again? [Y/n]", "y")
		if err != nil || !strings.HasPrefix(answer, "y") {
			return false, err
		}
	}
}

// configuration writes the user's first configuration.
func (g *guide) configuration() error {
	path := configPath(g.env)
	shown := inHome(g.env, path)
	switch _, err := os.Lstat(path); {
	case err == nil:
		g.p.tell("\nconfiguration: %s is there\n", shown)
		return g.p.err
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look for a configuration: %w", err)
	case g.example == "":
		g.p.tell("\nconfiguration: example.toml is not where this Lazaret is installed; begin %s with docs/configuration.md\n", shown)
		return g.p.err
	}
	if g.keys != nil {
		answer, err := g.ask(fmt.Sprintf("\nWrite %s, with profiles of %s? [Y/n]", shown, strings.Join(images.Names(), ", ")), "y")
		if err != nil || !strings.HasPrefix(answer, "y") {
			return err
		}
	}
	text, err := os.ReadFile(g.example)
	if err != nil {
		return fmt.Errorf("read the example: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a directory of configuration
		return fmt.Errorf("write the configuration: %w", err)
	}
	if err := atomicfile.Write(path, text, 0o644, true); err != nil {
		return err
	}
	g.p.tell("configuration: wrote %s\n", shown)
	return g.p.err
}

// image builds the image that the flag or the person names; "" for none.
func (g *guide) image() (string, error) {
	name := g.c.String("image")
	for name == "" && g.keys != nil {
		answer, err := g.ask(fmt.Sprintf("\nBuild the image of an agent now? It takes minutes. Name one of %s, or return for none:", strings.Join(images.Names(), ", ")), "none")
		if err != nil || answer == "none" {
			return "", err
		}
		if !slices.Contains(images.Names(), answer) {
			g.p.tell("%s is none of them\n", config.Printable(answer))
			continue
		}
		name = answer
	}
	if name == "" {
		return "", nil
	}
	return name, g.build(name)
}
