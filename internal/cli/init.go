package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/rogpeppe/go-internal/diff"
	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/hostenv"
	"github.com/lazaret-dev/lazaret/internal/install"
	"github.com/lazaret-dev/lazaret/internal/podmanconf"
	"github.com/lazaret-dev/lazaret/packaging/images"
)

func initCommand() *cli.Command {
	return &cli.Command{
		Name:  "init",
		Usage: "register lazaret as a runtime of podman or another engine, and set the rest up",
		Description: "Writes a drop-in for containers.conf(5) that names lazaret-runtime and adds lazaret to\n" +
			"the lists of runtimes that answer in JSON and that can do without cgroups, on top of what\n" +
			"those lists hold already. A drop-in that was changed by hand is left alone.\n" +
			"In a terminal it then leads on: what the machine lacks and the commands that mend it, a first\n" +
			"config.toml, the image of an agent. Without one, or with --register-only, it ends there.\n\n" +
			"--engine registers it with docker (daemon.json), containerd (config.toml) or CRI-O\n" +
			"(a drop-in) instead, for the whole machine; what else their files hold stays.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "scope", Usage: "whose podman: `user|system`; root means system if not told otherwise, others user"},
			&cli.StringFlag{Name: "engine", Usage: "`ENGINE` to register with: podman|docker|containerd|crio", Value: "podman"},
			&cli.PathFlag{Name: "engine-config", Usage: "the engine's configuration `FILE`, where it is not docker's, containerd's or CRI-O's default", TakesFile: true},
			&cli.PathFlag{Name: "runtime-path", Usage: "`FILE` to register; beside lazaret if not given", TakesFile: true},
			&cli.StringFlag{Name: "podman-version", Usage: "write for podman `VERSION`, not for the installed one"},
			&cli.BoolFlag{Name: "register-only", Usage: "register the runtime and do nothing else", DisableDefaultText: true},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask: write config.toml where there is none", DisableDefaultText: true},
			&cli.StringFlag{Name: "image", Usage: "also build the image `NAME`: " + strings.Join(images.Names(), ", ")},
			&cli.BoolFlag{Name: "dry-run", Usage: "show the change and touch nothing", DisableDefaultText: true},
			&cli.BoolFlag{Name: "uninstall", Usage: "remove the drop-in again", DisableDefaultText: true},
			&cli.BoolFlag{Name: "force", Usage: "replace or remove a drop-in that was changed by hand; a copy is kept", DisableDefaultText: true},
		},
		Action: runInit,
	}
}

func runInit(c *cli.Context) error {
	scope := install.Scope(c.String("scope"))
	if c.IsSet("scope") && scope != install.User && scope != install.System {
		return usageError("lazaret init: --scope %q: want user or system", scope)
	}
	if c.IsSet("podman-version") {
		if _, err := podmanconf.ParseVersion(c.String("podman-version")); err != nil {
			return usageError("lazaret init: --podman-version: %w", err)
		}
	}
	if i := c.String("image"); i != "" && !slices.Contains(images.Names(), i) {
		return usageError("lazaret init: --image %q: want one of %s", i, strings.Join(images.Names(), ", "))
	}
	env, err := hostenv.Detect(hostenv.Host())
	if err != nil {
		return err
	}
	engine := install.Engine(c.String("engine"))
	if engine == install.Podman && c.IsSet("engine-config") {
		return usageError("lazaret init: --engine-config is for another --engine than podman")
	}
	host := install.Host{Layout: podmanLayout(env, true), UID: env.UID, Executable: os.Executable, Podman: podmanVersion}
	options := install.Options{
		Scope:         scope,
		RuntimePath:   c.Path("runtime-path"),
		PodmanVersion: c.String("podman-version"),
		Uninstall:     c.Bool("uninstall"),
		Force:         c.Bool("force"),
	}
	var change *install.Change
	if engine == install.Podman {
		change, err = install.Plan(c.Context, host, options)
	} else {
		change, err = install.PlanEngine(host, engine, c.Path("engine-config"), options)
	}
	if err != nil {
		return err
	}
	p := &printer{w: c.App.Writer, width: columns(c.App.Writer)}
	for _, n := range change.Notes {
		_, _ = fmt.Fprintf(c.App.ErrWriter, "lazaret: note: %s\n", n) // a note only
	}
	if c.Bool("dry-run") {
		p.dryRun(change)
		return p.err
	}
	where := inHome(env, change.Path)
	backup, err := change.Apply()
	if backup != "" {
		p.tell("kept the changed file as %s\n", backup)
	}
	if err != nil {
		return err
	}
	switch change.Action {
	case install.Keep:
		if c.Bool("uninstall") {
			p.tell("nothing to remove: %s has nothing of lazaret's\n", where)
			return p.err
		}
		p.tell("already registered: %s\n", where)
	case install.Remove:
		p.tell("removed %s\n", where)
	default:
		if c.Bool("uninstall") {
			p.tell("took lazaret out of %s\n", where)
		} else {
			p.tell("registered %s with %s (%s): %s\n", inHome(env, change.Runtime), engine, change.Scope, where)
		}
	}
	if r := engine.Reload(); r != "" && change.Action != install.Keep {
		p.printf("tell the engine:    %s\n", r)
	}
	if c.Bool("uninstall") {
		return p.err
	}
	problems, err := change.Verify()
	if err != nil {
		return err
	}
	for _, m := range problems {
		_, _ = fmt.Fprintf(c.App.ErrWriter, "lazaret: warning: %s\n", m) // a warning only
	}
	example := exampleConfig(change.Runtime)
	if g := newGuide(c, env, example); g.wanted() && engine == install.Podman && !c.Bool("register-only") {
		return errors.Join(p.err, g.run())
	}
	p.printf("\ncheck the machine:  lazaret doctor\n")
	switch engine {
	case install.Podman, install.Docker:
		p.printf("try it:             %s run --rm -it --runtime=lazaret -v \"$PWD:/workspace\" IMAGE bash\n", engine)
	case install.Containerd:
		p.printf("try it:             ctr run --rm -t --runc-binary %s IMAGE NAME sh\n", change.Runtime)
	}
	if example != "" {
		p.printf("configuration:      copy what you need of %s to %s\n", example, configPath(env))
	}
	return p.err
}

// podmanLayout is where podman's configuration of the caller lies. As root,
// podman before 5.0 reads no user's: withUser says whether it counts.
func podmanLayout(env hostenv.Env, withUser bool) podmanconf.Layout {
	l := podmanconf.Layout{Getenv: os.Getenv}
	if !withUser {
		return l
	}
	l.ConfigHome = env.ConfigHome
	if l.ConfigHome == "" && env.Home != "" {
		l.ConfigHome = filepath.Join(env.Home, ".config")
	}
	return l
}

func configPath(env hostenv.Env) string {
	dir := env.ConfigHome
	if dir == "" {
		dir = filepath.Join(env.Home, ".config")
	}
	return filepath.Join(dir, "lazaret", "config.toml")
}

// podmanVersion asks the installed podman.
func podmanVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "podman", "--version").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("podman: %w along PATH", fs.ErrNotExist)
	}
	if err != nil {
		return "", fmt.Errorf("podman --version: %w", err)
	}
	return string(out), nil
}

// exampleConfig finds example.toml of this installation or build tree, else "".
func exampleConfig(runtime string) string {
	prefix := filepath.Dir(filepath.Dir(runtime))
	for _, p := range []string{
		filepath.Join(prefix, "share", "doc", "lazaret", "example.toml"),
		filepath.Join(prefix, "example.toml"),
	} {
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() {
			return p
		}
	}
	return ""
}

// printer keeps the first error of a run of prints.
type printer struct {
	w     io.Writer
	width int // of the terminal that tell folds lines for; 0 for none
	err   error
}

// columns is the width of a terminal, 0 for what is none.
func columns(w io.Writer) int {
	out := terminalOf(w)
	if out == nil {
		return 0
	}
	width, _, err := term.GetSize(out.Fd())
	if err != nil {
		return 0
	}
	return width
}

// tell prints what a person reads, and nobody copies: a terminal's lines end between
// words.
func (p *printer) tell(format string, args ...any) {
	p.printf("%s", fold(fmt.Sprintf(format, args...), p.width))
}

// fold breaks lines between words. A line goes on two columns behind its beginning.
func fold(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, end := strings.CutSuffix(line, "\n")
		words := strings.TrimLeft(line, " ")
		begin := line[:len(line)-len(words)]
		rest := begin + "  "
		b.WriteString(begin)
		b.WriteString(strings.ReplaceAll(ansi.Wordwrap(words, max(1, width-len(rest)), " "), "\n", "\n"+rest))
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// inHome writes a path as a shell reads it, with ~ for the home.
func inHome(env hostenv.Env, path string) string {
	if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(env.Home, "/")+"/"); ok && env.Home != "" {
		return "~/" + rest
	}
	return path
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *printer) dryRun(c *install.Change) {
	switch c.Action {
	case install.Keep:
		p.printf("nothing to do: %s\n", c.Path)
		return
	case install.Create:
		p.printf("would create %s:\n", c.Path)
	case install.Update:
		p.printf("would update %s:\n", c.Path)
	case install.Remove:
		p.printf("would remove %s:\n", c.Path)
	}
	before, after := c.Path, c.Path
	if c.Before == nil {
		before = "/dev/null"
	}
	if c.After == nil {
		after = "/dev/null"
	}
	p.printf("%s", diff.Diff(before, c.Before, after, c.After))
}
