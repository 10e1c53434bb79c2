package cli

import (
	"encoding/json"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/doctor"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
)

const probeName = "doctor-probe"

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check whether this machine can run sandboxes",
		Description: "Prints a line for each check, ok, warn or fail, and below it the command that mends what\n" +
			"is wrong. Exits with 1 if a check fails; warnings alone do not count.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object with all checks", DisableDefaultText: true},
		},
		Action: runDoctor,
	}
}

func runDoctor(c *cli.Context) error {
	env, err := hostenv.Detect(hostenv.Host())
	if err != nil {
		return err
	}
	report, err := examine(c, env)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		enc := json.NewEncoder(c.App.Writer)
		enc.SetIndent("", "  ")
		err = enc.Encode(report)
	} else {
		err = report.Write(c.App.Writer)
	}
	if err != nil {
		return err
	}
	if report.Failures > 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}

// examine runs all checks of the machine.
func examine(c *cli.Context, env hostenv.Env) (doctor.Report, error) {
	settings := doctor.Settings{Sandbox: "runsc", Sidecar: "runc", ControlDir: "/tmp", RuntimeDir: env.RuntimeDir}
	conf := doctor.Check{Name: "configuration", Status: doctor.OK, Detail: configPath(env) + " is valid"}
	cfg, err := config.Load(config.Options{
		Home: env.Home, DataHome: env.DataHome, ConfigHome: env.ConfigHome, SystemWide: !env.Rootless,
	})
	if err != nil {
		conf.Status, conf.Fix = doctor.Fail, "lazaret config check"
		conf.Detail = strings.ReplaceAll(err.Error(), "\n", "; ")
	} else {
		settings.Sandbox, settings.Sidecar = cfg.Runtime.Sandbox, cfg.Runtime.Sidecar
		settings.Platform = cfg.Runtime.Platform
		settings.ControlDir, settings.DataRoot = cfg.General.ControlDir, cfg.General.DataRoot
		if _, err := os.Stat(configPath(env)); err != nil {
			conf.Detail = "none at " + configPath(env) + ", the defaults hold"
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return doctor.Report{}, err
	}
	name := ""
	if u, err := user.LookupId(strconv.Itoa(env.UID)); err == nil {
		name = u.Username
	}
	report := doctor.Run(c.Context,
		doctor.Real(env.UID, name, podmanLayout(env, env.UID != 0), fixedpath.Look, []string{exe, probeName}),
		settings)
	report.Add(conf)
	return report, nil
}

// probeCommand is what doctor starts itself as, in namespaces of its own.
func probeCommand() *cli.Command {
	return &cli.Command{
		Name: probeName, Hidden: true, ArgsUsage: "DIR",
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usageError("lazaret %s: want a directory", probeName)
			}
			return doctor.ServeProbe(c.App.Writer, c.Args().First())
		},
	}
}
