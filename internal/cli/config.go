package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
	"github.com/lazaret-dev/lazaret/shim"
)

func configCommand() *cli.Command {
	layers := []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "read `FILE` above all other layers"},
		&cli.StringFlag{Name: "workspace", Usage: "take the lazaret.toml of `DIR`", DefaultText: "current directory"},
	}
	return &cli.Command{
		Name:  "config",
		Usage: "show or check the configuration",
		Subcommands: []*cli.Command{
			{
				Name:  "show",
				Usage: "print every effective value and where it comes from",
				Description: "Prints KEY = VALUE, with FILE:LINE or \"default\" behind it. The workspace's lazaret.toml\n" +
					"counts as it would for a sandbox started now.",
				Flags: append([]cli.Flag{
					&cli.StringFlag{Name: "profile", Usage: "leave out the other profiles than `NAME`"},
					&cli.BoolFlag{Name: "json", Usage: "print one JSON object", DisableDefaultText: true},
				}, layers...),
				Action: showConfig,
			},
			{
				Name:      "check",
				Usage:     "report every mistake with file, line and key",
				ArgsUsage: "[FILE]",
				Description: "Without FILE, checks all layers as a sandbox started now would read them, with what the\n" +
					"workspace's lazaret.toml may not do untrusted, and whether this machine has what they ask\n" +
					"for. With FILE, checks the text of that file by itself.\n" +
					"Exits with 1 if there is a mistake.",
				Flags:  layers,
				Action: checkConfig,
			},
		},
	}
}

// userOptions are the layers that do not depend on a workspace.
func userOptions() (config.Options, error) {
	env, err := hostenv.Detect(hostenv.Host())
	if err != nil {
		return config.Options{}, err
	}
	return config.Options{Home: env.Home, DataHome: env.DataHome, ConfigHome: env.ConfigHome, SystemWide: !env.Rootless}, nil
}

// layerOptions adds the flags --config and --workspace.
func layerOptions(c *cli.Context) (config.Options, error) {
	o, err := userOptions()
	if err != nil {
		return o, err
	}
	dir := "."
	if c.IsSet("workspace") {
		dir = c.String("workspace")
	}
	if o.Workspace, err = domain.Canonical(dir); err != nil {
		return o, err
	}
	if c.IsSet("config") && c.String("config") == "" {
		return o, usageError("--config needs a file")
	}
	o.File = c.String("config")
	return o, nil
}

func showConfig(c *cli.Context) error {
	o, err := layerOptions(c)
	if err != nil {
		return err
	}
	conf, err := config.Load(o)
	if err != nil {
		return tellFaults(c.App.ErrWriter, err)
	}
	profile := c.String("profile")
	if c.IsSet("profile") {
		if _, err := conf.Profile(profile); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return showJSON(c.App.Writer, conf, profile)
	}
	var b strings.Builder
	for _, l := range conf.Layers {
		fmt.Fprintf(&b, "# %-9s %s (%s)\n", l.Role, config.Printable(l.Path), layerState(l))
	}
	for _, v := range conf.Values(profile) {
		origins := make([]string, len(v.Origins))
		for i, o := range v.Origins {
			origins[i] = config.Printable(o.String())
		}
		if v.Value == "" && v.Origins[0] == (config.Origin{}) {
			fmt.Fprintf(&b, "# %s is not set\n", v.Key) // no file could say ""
			continue
		}
		fmt.Fprintf(&b, "%s = %s  # %s\n", config.Printable(v.Key), tomlValue(v.Value), strings.Join(origins, ", "))
	}
	_, err = io.WriteString(c.App.Writer, b.String())
	return err
}

func layerState(l config.Layer) string {
	switch {
	case !l.Found:
		return "absent"
	case l.Trust == config.Untrusted:
		return "not trusted, so it may only tighten"
	case l.Trust == config.Changed:
		return "changed since it was trusted, so it may only tighten"
	case l.Trust == config.Trusted:
		return "trusted"
	}
	return "read"
}

func showJSON(w io.Writer, conf *config.Config, profile string) error {
	type shown struct {
		Value   any      `json:"value"`
		Origins []string `json:"origins"`
	}
	values := map[string]shown{}
	for _, v := range conf.Values(profile) {
		s := shown{Value: v.Value}
		for _, o := range v.Origins {
			s.Origins = append(s.Origins, o.String())
		}
		values[v.Key] = s
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(map[string]any{"layers": conf.Layers, "values": values}); err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	_, err := io.WriteString(w, inertJSON(buf.String()))
	return err
}

// printInertJSON is printJSON of what may hold names that an agent has made.
func printInertJSON(w io.Writer, v any) error {
	var b strings.Builder
	if err := printJSON(&b, v); err != nil {
		return err
	}
	_, err := io.WriteString(w, inertJSON(b.String()))
	return err
}

// inertJSON escapes what JSON lets pass but a terminal would obey, such as
// right-to-left overrides. They occur in strings only.
func inertJSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// tomlValue is v as a configuration file would write it.
func tomlValue(v any) string {
	switch v := v.(type) {
	case string:
		return tomlString(v)
	case []string:
		parts := make([]string, len(v))
		for i, s := range v {
			parts[i] = tomlString(s)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case [][]string:
		parts := make([]string, len(v))
		for i, s := range v {
			parts[i] = tomlValue(s)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case bool:
		return strconv.FormatBool(v)
	}
	return fmt.Sprint(v)
}

func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// tellFaults writes the mistakes of files one a line, each beginning with
// FILE:LINE, where editors and people look for it. Other errors it returns.
func tellFaults(w io.Writer, err error) error {
	var faults config.Errors
	if !errors.As(err, &faults) {
		return err
	}
	if _, werr := fmt.Fprintln(w, faults.Error()); werr != nil {
		return werr
	}
	return &exitError{code: exitFailed}
}

func checkConfig(c *cli.Context) error {
	if c.NArg() > 1 {
		return usageError("lazaret config check takes one file, but got %d", c.NArg())
	}
	if c.NArg() == 1 && (c.IsSet("config") || c.IsSet("workspace")) {
		return usageError("lazaret config check: FILE is checked by itself, without --config and --workspace")
	}
	if c.NArg() == 1 {
		o, err := userOptions()
		if err != nil {
			return err
		}
		file := c.Args().First()
		if err := config.CheckFile(file, o.Home); err != nil {
			return tellFaults(c.App.ErrWriter, err)
		}
		_, err = fmt.Fprintf(c.App.Writer, "%s: ok\n", config.Printable(file))
		return err
	}
	o, err := layerOptions(c)
	if err != nil {
		return err
	}
	conf, err := config.Load(o)
	if err != nil {
		return tellFaults(c.App.ErrWriter, err)
	}
	for _, l := range conf.Layers {
		state := "ok"
		if s := layerState(l); s != "read" {
			state += ", " + s
		}
		if !l.Found {
			state = "absent"
		}
		if _, err := fmt.Fprintf(c.App.Writer, "%s: %s\n", config.Printable(l.Path), state); err != nil {
			return err
		}
	}
	env, err := hostenv.Detect(hostenv.Host())
	if err != nil {
		return err
	}
	faults := shim.CheckConfig(env, conf)
	for _, f := range faults {
		if _, err := fmt.Fprintf(c.App.ErrWriter, "sandboxes cannot start: %s\n", config.Printable(f.Error())); err != nil {
			return err
		}
	}
	if len(faults) > 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}
