package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
)

func domainCommand() *cli.Command {
	return &cli.Command{
		Name:      "domain",
		Usage:     "print the domain of a workspace: its hash and its paths",
		ArgsUsage: "[PATH]",
		Description: "A domain is a profile and a workspace; PATH is the workspace. Without PATH it is the nearest\n" +
			"directory from the current one up that was ever a workspace, else the current one. All\n" +
			"spellings of one directory lead to one domain.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "profile", Aliases: []string{"p"}, Usage: "the domain of profile `NAME` instead of the default one"},
			&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object", DisableDefaultText: true},
		},
		Action: runDomain,
	}
}

// domainView is what lazaret domain prints.
type domainView struct {
	Profile   string `json:"profile"`
	Workspace string `json:"workspace"`
	Hash      string `json:"hash"`
	Root      string `json:"root"`
	Lock      string `json:"lock"`
	Socket    string `json:"socket"`
	Container string `json:"container"`
}

func runDomain(c *cli.Context) error {
	if c.NArg() > 1 {
		return usageError("domain takes one path at most")
	}
	find, path := usedDomain, "."
	if c.NArg() == 1 { // maybe one that is to be used
		find, path = resolveDomain, c.Args().First()
	}
	r, err := find(c, path)
	if err != nil {
		return err
	}
	a, cfg := r.anchor, r.cfg
	v := domainView{
		Profile: a.Profile, Workspace: a.Workspace, Hash: a.Hash, Root: a.Root,
		Lock: a.LockPath(cfg.General.ControlDir), Socket: a.SocketPath(cfg.General.ControlDir),
		Container: "lazaret-coord-" + a.Hash,
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, v)
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"hash", v.Hash},
		{"profile", v.Profile},
		{"workspace", config.Printable(v.Workspace)},
		{"root", config.Printable(v.Root)},
		{"lock", v.Lock},
		{"socket", v.Socket},
		{"container", v.Container},
	} {
		if _, err := fmt.Fprintf(w, "%s\t%s\n", row[0], row[1]); err != nil {
			return err
		}
	}
	return w.Flush()
}

// resolved is a domain as the runtime would find it.
type resolved struct {
	env     hostenv.Env
	cfg     *config.Config
	profile *config.Profile
	anchor  domain.Anchor
}

// resolveDomain finds the domain of a workspace, by the flags --profile and --config.
func resolveDomain(c *cli.Context, workspace string) (resolved, error) {
	return resolveProfile(c, workspace, c.String("profile"))
}

// usersSettings are those that hold for no workspace in particular.
func usersSettings(c *cli.Context) (r resolved, err error) {
	if r.env, err = hostenv.Detect(hostenv.Host()); err != nil {
		return r, err
	}
	r.cfg, err = config.Load(configOptions(r.env, "", c.String("config")))
	return r, err
}

// recordedDomain reads the record of the domain with a hash.
func recordedDomain(dataRoot, hash string) (domain.Anchor, error) {
	return domain.ReadRecord(filepath.Join(dataRoot, "domains", hash))
}

// knownDomains are those with a record in the data root.
func knownDomains(dataRoot string) (all []domain.Anchor, err error) {
	entries, err := os.ReadDir(filepath.Join(dataRoot, "domains"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for domains: %w", err)
	}
	for _, e := range entries {
		if !domain.ValidHash(e.Name()) {
			continue
		}
		// Without one it is half made, or not ours to judge: lazaret doctor tells.
		if a, err := recordedDomain(dataRoot, e.Name()); err == nil {
			all = append(all, a)
		}
	}
	return all, nil
}

// resolveProfile is resolveDomain for the profile of that name, "" for the default
// one.
func resolveProfile(c *cli.Context, workspace, name string) (r resolved, err error) {
	if r.env, err = hostenv.Detect(hostenv.Host()); err != nil {
		return r, err
	}
	ws, err := domain.Canonical(workspace)
	if err != nil {
		return r, err
	}
	if r.cfg, err = config.Load(configOptions(r.env, ws, c.String("config"))); err != nil {
		return r, err
	}
	if name == "" {
		name = r.cfg.General.DefaultProfile
	}
	if r.profile, err = r.cfg.Profile(name); err != nil {
		return r, err
	}
	if !r.profile.AllowBroadWorkspace {
		if err := domain.CheckBroad(ws, r.env.Home); err != nil {
			return r, err
		}
	}
	if err := domain.CheckOwn(ws, ownDirs(r.env, r.cfg), r.profile.AllowBroadWorkspace); err != nil {
		return r, err
	}
	r.anchor = domain.New(r.profile.Name, ws, r.cfg.General.DataRoot)
	return r, nil
}

// ownDirs are what no workspace may hold.
func ownDirs(env hostenv.Env, cfg *config.Config) domain.Own {
	own := domain.Own{DataRoot: cfg.General.DataRoot, RuntimeDir: env.RuntimeDir, ControlDir: cfg.General.ControlDir}
	if f := config.UserFile(configOptions(env, "", "")); f != "" {
		own.ConfigDir = filepath.Dir(f)
	}
	return own
}

// configOptions are the layers as the runtime would read them.
func configOptions(env hostenv.Env, workspace, file string) config.Options {
	return config.Options{
		Home: env.Home, ConfigHome: env.ConfigHome, DataHome: env.DataHome,
		Workspace: workspace, File: file, SystemWide: !env.Rootless,
	}
}

func printJSON(w io.Writer, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}
