package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/netrule"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// netTimeout bounds a change of a live network.
const netTimeout = 15 * time.Second

func netCommand() *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		return append([]cli.Flag{
			&cli.StringFlag{Name: "profile", Aliases: []string{"p"}, Usage: "the domain of profile `NAME` instead of the default one"},
			&cli.StringFlag{Name: "workspace", Aliases: []string{"w"}, Usage: "the domain of the workspace at `PATH`", Value: ".", TakesFile: true},
			&cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true},
		}, more...)
	}
	asJSON := &cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true}
	return &cli.Command{
		Name:  "net",
		Usage: "see and change the filtered network of a domain that is in use",
		Subcommands: []*cli.Command{
			{
				Name: "allow", Usage: "let the sandboxes reach something, until the domain is no longer in use", ArgsUsage: "ENTRY…",
				Description: "An ENTRY is what a profile's list holds: host, *.host, host:port, an address, a CIDR, a preset.\nWhat the profile denies stays denied.",
				Flags:       flags(), Action: func(c *cli.Context) error { return changeNet(c, false) },
			},
			{
				Name: "deny", Usage: "keep the sandboxes from something, and end what they have open to it", ArgsUsage: "ENTRY…",
				Flags: flags(), Action: func(c *cli.Context) error { return changeNet(c, true) },
			},
			{
				Name: "list", Usage: "show what the sandboxes may reach, and what was refused",
				Flags: flags(asJSON), Action: listNet,
			},
			{
				Name: "log", Usage: "show the decisions of the domain's network", Description: "Also of a domain that is no longer in use.",
				Flags: flags(asJSON, &cli.BoolFlag{Name: "blocked", Usage: "only what was refused, or would be", DisableDefaultText: true}), Action: logNet,
			},
		},
	}
}

// callNet calls the coordinator of the domain that the flags name.
func callNet(c *cli.Context, path string, in, out any) error {
	r, err := usedDomain(c, c.String("workspace"))
	if err != nil {
		return err
	}
	conn, err := wire.Dial(r.anchor.SocketPath(r.cfg.General.ControlDir), netTimeout)
	if err != nil {
		return fmt.Errorf("domain %s (profile %s) is not in use: %w", r.anchor.Hash, r.anchor.Profile, err)
	}
	defer func() { _ = conn.Close() }() // answered
	return conn.Call(path, in, out, netTimeout)
}

func changeNet(c *cli.Context, deny bool) error {
	if c.NArg() == 0 {
		return usageError("name at least one entry, such as example.org:443")
	}
	req := wire.NetworkRequest{Version: wire.Version}
	for _, arg := range c.Args().Slice() {
		r, err := netrule.Parse(arg)
		if err != nil {
			return usageError("%w", err)
		}
		req.Add = append(req.Add, wire.NetworkChange{Entry: r.String(), Deny: deny})
	}
	var res wire.NetworkResponse
	if err := callNet(c, wire.PathNetwork, req, &res); err != nil {
		return err
	}
	if res.Cut > 0 {
		_, err := fmt.Fprintf(c.App.Writer, "%d connections ended\n", res.Cut)
		return err
	}
	return nil
}

func listNet(c *cli.Context) error {
	var st wire.Status
	if err := callNet(c, wire.PathStatus, nil, &st); err != nil {
		return err
	}
	n := st.Network
	if n == nil {
		return errors.New("no container of this domain has a filtered network")
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, n)
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	row := func(a, b, more string) { _, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", a, config.Printable(b), more) } // Flush tells
	row("network", n.State, n.Mode)
	for _, e := range n.Allow {
		row("allow", e, "profile")
	}
	for _, e := range n.Deny {
		row("deny", e, "profile")
	}
	for _, ch := range n.Session {
		word := "allow"
		if ch.Deny {
			word = "deny"
		}
		row(word, ch.Entry, "until the end")
	}
	for _, b := range n.Blocked {
		word := "refused"
		if b.Would {
			word = "would refuse"
		}
		row(word, target(b.Name, b.Addr, b.Port), fmt.Sprintf("%s %d times, last %s", b.Proto, b.Count, b.Last))
	}
	return w.Flush()
}

func target(name, addr string, port uint16) string {
	if name == "" {
		name = addr
	}
	if port != 0 {
		return fmt.Sprintf("%s:%d", name, port)
	}
	return name
}

// netEvent is a recorded decision, as far as it is shown.
type netEvent struct {
	Time    string `json:"time"`
	Kind    string `json:"kind"`
	Verdict string `json:"verdict"`
	Name    string `json:"name"`
	Addr    string `json:"addr"`
	Port    uint16 `json:"port"`
	Proto   string `json:"proto"`
	Up      int64  `json:"bytes_up"`
	Down    int64  `json:"bytes_down"`
	Reason  string `json:"reason"`
	Repeats int    `json:"repeats"`
}

func logNet(c *cli.Context) error {
	r, err := usedDomain(c, c.String("workspace"))
	if err != nil {
		return err
	}
	none := func() error {
		if c.Bool("blocked") {
			return nothing(c, "nothing was refused in domain %s (profile %s)", r.anchor.Hash, r.anchor.Profile)
		}
		return nothing(c, "the network of domain %s (profile %s) has decided nothing yet", r.anchor.Hash, r.anchor.Profile)
	}
	shown := 0
	for p, err := range entriesOf(auditPager(r), audit.Egress) {
		if err != nil {
			return err
		}
		var e netEvent
		if p.Kind != audit.EgressDecision || json.Unmarshal(p.Payload, &e) != nil || c.Bool("blocked") && e.Verdict == "allowed" {
			continue // lazaret audit tells what else there is
		}
		shown++
		if c.Bool("json") {
			_, err = fmt.Fprintf(c.App.Writer, "%s\n", p.Payload)
		} else {
			more := ""
			if e.Repeats > 0 {
				more = fmt.Sprintf(" %d times more", e.Repeats)
			}
			_, err = fmt.Fprintf(c.App.Writer, "%s %-11s %-4s %s %s up %d down %d %s%s\n", config.Printable(e.Time), config.Printable(e.Verdict),
				config.Printable(e.Kind), config.Printable(target(e.Name, e.Addr, e.Port)), config.Printable(e.Proto), e.Up, e.Down, config.Printable(e.Reason), more)
		}
		if err != nil {
			return err
		}
	}
	if shown > 0 {
		return nil
	}
	return none()
}
