package cli

import (
	"errors"
	"log/slog"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/config/edit"
	"github.com/lazaret-dev/lazaret/internal/console"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

func consoleCommand() *cli.Command {
	return &cli.Command{
		Name:  "console",
		Usage: "answer what the sandboxes ask for",
		Description: "Lists the requests of all live domains that no terminal of \"lazaret run\" owns, and puts\n" +
			"each before you: A approves, D denies, R denies with a reason, E edits the command, S allows\n" +
			"this exact command for the session, Q ends the session with its sandbox. What a rule of yours\n" +
			"covers (auto_approve) runs by itself and is listed too.\n" +
			"N lists what filtered networks have refused: A allows it until the domain is no longer in use,\n" +
			"P adds it to the profile in your config.toml too.\n" +
			"With --headless only those run; everything else waits for a console or a terminal.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "headless", Usage: "run automatic approvals only, without a screen; logs to standard error", DisableDefaultText: true},
		},
		Action: runConsole,
	}
}

func runConsole(c *cli.Context) error {
	env, err := hostenv.Detect(hostenv.Host())
	if err != nil {
		return err
	}
	opts := configOptions(env, "", "")
	cfg, err := config.Load(opts)
	if err != nil {
		return err
	}
	side := hostSide(cfg.General.DataRoot)
	o := console.Options{ControlDir: cfg.General.ControlDir, Kind: wire.DeskConsole, Host: side.Host, Runner: side}
	if c.Bool("headless") {
		o.Kind = wire.DeskHeadless
		return console.Headless(c.Context, console.NewHub(o), slog.New(slog.NewTextHandler(c.App.ErrWriter, nil)))
	}
	in, inOK := c.App.Reader.(*os.File)
	out, outOK := c.App.Writer.(*os.File)
	if !inOK || !outOK || !isTerminal(in) || !isTerminal(out) {
		return errors.New("the console needs a terminal: run it in one, or with --headless")
	}
	_, plain := os.LookupEnv("NO_COLOR")
	return console.Run(c.Context, console.NewHub(o), console.Screen{
		In: in, Out: out, Env: os.Environ(), Color: !plain && os.Getenv("TERM") != "dumb",
		Save: func(profile, entry string) (string, error) { return edit.AddAllow(opts, profile, entry) },
	})
}
