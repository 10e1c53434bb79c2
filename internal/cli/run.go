package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/console"
	"github.com/lazaret-dev/lazaret/internal/console/terminal"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/sessionkey"
	"github.com/lazaret-dev/lazaret/packaging/images"
)

// exitAborted is lazaret run's exit status when the developer has aborted at a
// prompt: a shell's for an interrupt.
const exitAborted = 130

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run an agent in the sandbox of the current directory",
		ArgsUsage: "[PROFILE] [-- CMD...]",
		Description: "Starts the sandbox of PROFILE and the current directory, or joins the one that runs, with the\n" +
			"profile's image, environment and volumes, and runs CMD there, by default the profile's command.\n" +
			"What the agent asks for on the host is asked in this terminal. The exit status is the command's.\n" +
			"The sandbox is stopped and removed when nobody uses it any more.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "fresh", Usage: "end the sandbox that runs, with all its sessions, and start another", DisableDefaultText: true},
			&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "run CMD in the background; its requests go to lazaret console", DisableDefaultText: true},
			&cli.BoolFlag{Name: "rm", Value: true, Usage: "remove the sandbox's container at its end; --rm=false keeps it for podman logs, diff and commit", DisableDefaultText: true},
			&cli.StringFlag{Name: "image", Usage: "use `IMAGE` instead of the profile's"},
			&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
		},
		Action: runRun,
	}
}

// keepDashes doubles the first "--" of a lazaret run: the library takes one away,
// and what stood before it would be lost.
func keepDashes(args []string) []string {
	if len(args) < 2 || args[1] != "run" {
		return args
	}
	if i := slices.Index(args, "--"); i > 0 {
		return slices.Insert(slices.Clone(args), i, "--")
	}
	return args
}

// runWords takes the arguments of lazaret run apart.
func runWords(args []string) (profile string, argv []string, err error) {
	switch i := slices.Index(args, "--"); {
	case i == 0:
		return "", args[1:], nil
	case i == 1:
		return args[0], args[3:], nil // the second one is of keepDashes
	case len(args) == 0:
		return "", nil, nil
	case len(args) == 1:
		return args[0], nil, nil
	}
	return "", nil, usageError("lazaret run: put -- before the command: lazaret run [PROFILE] -- CMD")
}

// agentRun is one lazaret run.
type agentRun struct {
	c       *cli.Context
	r       resolved
	podman  string
	file    string // of --config, absolute; ""
	image   string
	argv    []string
	session string
	tty     bool
	box     *box
}

func runRun(c *cli.Context) error {
	name, argv, err := runWords(c.Args().Slice())
	if err != nil {
		return err
	}
	a := &agentRun{c: c, argv: argv, session: uuid.NewString()}
	if a.r, err = resolveProfile(c, ".", name); err != nil {
		return err
	}
	cfg := a.r.cfg
	if a.r.profile, err = cfg.Resolve(a.r.profile, config.Anchor{Hash: a.r.anchor.Hash, Dir: a.r.anchor.Root, Workspace: a.r.anchor.Workspace}); err != nil {
		return err
	}
	if a.podman, err = fixedpath.Look("podman"); err != nil {
		return fmt.Errorf("podman is needed: %w", err)
	}
	if a.file = c.String("config"); a.file != "" {
		if a.file, err = absolutePath(a.file); err != nil {
			return err
		}
	}
	if err := a.findImage(); err != nil {
		return err
	}
	in, out := terminalOf(c.App.Reader), terminalOf(c.App.Writer)
	a.tty = in != nil && out != nil && !c.Bool("detach")
	if a.box, err = a.enter(); err != nil {
		return err
	}
	if !c.Bool("detach") {
		defer a.summary() // after the sandbox was left
	}
	defer a.box.leave(a)
	// The Session Anchor: the runtime takes it for the session's process.
	key, err := sessionkey.New()
	if err != nil {
		return err
	}
	if err := sessionkey.Leave(a.r.env.RuntimeDir, a.session, key, a.tty); err != nil {
		return err
	}
	defer func() { _ = sessionkey.Forget(a.r.env.RuntimeDir, a.session) }() // a sweep does it too
	switch {
	case c.Bool("detach"):
		return a.detached()
	case a.tty:
		return a.inTerminal(in)
	}
	return a.passThrough()
}

// terminalOf is the file of a reader or writer that is a terminal, else nil.
func terminalOf(v any) *os.File {
	f, ok := v.(*os.File)
	if !ok || !term.IsTerminal(f.Fd()) {
		return nil
	}
	return f
}

// findImage checks that there is an image, and finds the command.
func (a *agentRun) findImage() error {
	a.image = a.r.profile.Image
	if i := a.c.String("image"); i != "" {
		a.image = i
	}
	p := a.r.profile.Name
	if a.image == "" {
		return fmt.Errorf("profile %q has no image: set image in [profiles.%s] of the configuration, or name one with --image", p, p)
	}
	if err := checkImageName(a.image); err != nil {
		return usageError("lazaret run: %w", err)
	}
	out, err := podmanAnswer(a.c.Context, "image", "inspect", "--format", "{{json .Config}}", "--", a.image)
	if err != nil {
		if _, eerr := podmanAnswer(a.c.Context, "image", "exists", "--", a.image); eerr != nil {
			if name := images.ByReference(a.image); name != "" {
				return fmt.Errorf("image %s of profile %q has not been built yet: lazaret image build %s", a.image, p, name)
			}
			return fmt.Errorf("image %s of profile %q is not in podman's storage: podman pull %s, or podman build -t %s", a.image, p, a.image, a.image)
		}
		return fmt.Errorf("look at image %s: %w", a.image, err)
	}
	if len(a.argv) == 0 {
		a.argv = a.r.profile.Command
	}
	if len(a.argv) == 0 {
		var conf struct{ Entrypoint, Cmd []string }
		if err := json.Unmarshal([]byte(out), &conf); err != nil {
			return fmt.Errorf("look at image %s: %w", a.image, err)
		}
		a.argv = slices.Concat(conf.Entrypoint, conf.Cmd)
	}
	if len(a.argv) == 0 {
		return fmt.Errorf("neither profile %q nor image %s has a command: name one after --", p, a.image)
	}
	return nil
}

// execArgs are podman's for the session's command.
func (a *agentRun) execArgs(flags ...string) []string {
	args := append([]string{"exec"}, flags...)
	args = append(args, "--workdir=/workspace", "--env="+sessionkey.EnvID+"="+a.session)
	pass := slices.Clone(a.r.profile.PassEnv)
	if a.tty {
		pass = append(pass, "TERM", "COLORTERM", "NO_COLOR")
	}
	for _, name := range pass {
		if _, set := os.LookupEnv(name); set {
			args = append(args, "--env="+name) // podman takes the value from its own environment
		}
	}
	return append(append(args, a.box.id), a.argv...)
}

// command is podman for the session.
func (a *agentRun) command(ctx context.Context, flags ...string) *exec.Cmd {
	return exec.CommandContext(ctx, a.podman, a.execArgs(flags...)...)
}

// detached starts the command and leaves it; its session keeps the sandbox.
func (a *agentRun) detached() error {
	cmd := a.command(a.c.Context, "--detach")
	cmd.Stderr = a.c.App.ErrWriter
	if err := cmd.Run(); err != nil {
		return exitOf(cmd, err)
	}
	_, err := fmt.Fprintf(a.c.App.Writer, "%s\n", a.box.name)
	return err
}

// passThrough runs the command without a terminal of its own: requests go to
// lazaret console.
func (a *agentRun) passThrough() error {
	// The signal at this process's end is that of the thread that starts podman.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := a.command(a.c.Context, "--interactive")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.c.App.Reader, a.c.App.Writer, a.c.App.ErrWriter
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctxErr := a.c.Context.Err(); ctxErr != nil {
		return &exitError{code: exitAborted}
	}
	return exitOf(cmd, err)
}

// inTerminal runs the command on a pseudo-terminal between it and the user's.
func (a *agentRun) inTerminal(tty *os.File) error {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(a.c.Context)) // signals are the relay's
	defer stop(nil)
	desk, err := a.openDesk(ctx, stop)
	if err != nil {
		return err
	}
	defer desk.close()
	cmd := a.command(ctx, "--interactive", "--tty", "--detach-keys=")
	err = terminal.Run(ctx, terminal.Options{Terminal: tty, Cmd: cmd, Prompts: desk.prompts, Color: os.Getenv("NO_COLOR") == ""})
	var sig terminal.SignalError
	switch {
	case errors.Is(context.Cause(ctx), errAborted):
		if err := a.stop(); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(a.c.App.ErrWriter, "lazaret: aborted: the session and its sandbox have ended") // nowhere left to tell
		return &exitError{code: exitAborted}
	case errors.As(err, &sig):
		return &exitError{code: 128 + int(sig.Signal)}
	case err != nil:
		return err
	}
	return exitOf(cmd, nil)
}

// stop ends the sandbox as a whole: its first process ends the others.
func (a *agentRun) stop() error {
	return console.PodmanStop(context.WithoutCancel(a.c.Context), "--time=6", a.box.name)
}

// exitOf makes a command's end the exit status.
func exitOf(cmd *exec.Cmd, err error) error {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("run podman: %w", err)
	}
	st := cmd.ProcessState
	if st == nil || st.Success() {
		return nil
	}
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signal() > 0 {
		return &exitError{code: 128 + int(ws.Signal())}
	}
	return &exitError{code: st.ExitCode()}
}

func absolutePath(p string) (string, error) {
	if strings.HasPrefix(p, "/") {
		return p, nil
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", p, err)
	}
	return wd + "/" + p, nil // not cleaned: the kernel follows links before it takes ".."
}
