package shim

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

// resolvConf is replaced in a sandbox with a filtered network.
const resolvConf = "/etc/resolv.conf"

// instead is the way out for somebody whose machine cannot filter.
const instead = `or set network.mode in the profile: "none" for no network, "open" for the engine's, unfiltered`

// filtered reports whether a profile's network goes through the sidecar.
func filtered(p *config.Profile) bool {
	return p.Network.Mode == "filtered" || p.Network.Mode == "learn"
}

// planNetwork is what the coordinator is asked for; nil where the network is not
// filtered, or the engine gives the container none.
func (s *shim) planNetwork(r *request) (*wire.Network, error) {
	if !filtered(r.profile) {
		return nil, nil
	}
	i := slices.IndexFunc(r.doc.Namespaces(), func(n specs.LinuxNamespace) bool { return n.Type == specs.NetworkNamespace })
	if i < 0 {
		return nil, fmt.Errorf("profile %q has a filtered network, and the container no network namespace", r.profile.Name)
	}
	at := r.doc.Namespaces()[i].Path
	late := at == "" && s.cmd.Verb == "create"
	if at == "" && r.annotation("io.container.manager") == "libpod" && len(r.doc.UIDMappings()) == 0 {
		return nil, nil // --network=none: nothing is joined, or brought later
	}
	if ok, _ := path.Match("/proc/[0-9]*/ns/net", at); ok {
		return nil, fmt.Errorf("network of another container refused: profile %q has a filtered network, in which each sandbox has a place of its own: leave --network=container: out, %s", r.profile.Name, instead)
	}
	program, err := sidecar(r.cfg)
	if err != nil {
		return nil, err
	}
	if r.profile.Network.Mode == "learn" {
		r.warnings = append(r.warnings, `network.mode = "learn" does NOT protect: everything passes, and lazaret net log tells what "filtered" would refuse`)
	}
	return &wire.Network{
		Mode: r.profile.Network.Mode, Allow: r.profile.Network.Allow, Deny: r.profile.Network.Deny, Sidecar: program, Late: late,
		Engine: at, Inbound: r.profile.Network.Inbound,
	}, nil
}

// sidecar finds the program in which the Network Sidecar runs.
func sidecar(cfg *config.Config) (string, error) {
	name := cfg.Runtime.Sidecar
	if name == "" {
		name = "runc"
	}
	path, err := fixedpath.Look(name)
	if err != nil {
		return "", fmt.Errorf("network sidecar: %w: install runc, or set [runtime] sidecar to its path, %s", err, instead)
	}
	return path, nil
}

// networkThrough puts the container into the network that the coordinator has made.
func networkThrough(plan *spec.Plan, p *wire.NetworkPlan) {
	if p == nil {
		return
	}
	plan.NetworkPath = p.Path
	plan.Binds = append(plan.Binds, spec.Bind{Source: p.Resolv, Destination: resolvConf, ReadOnly: true})
}

// connectNetwork replaces the network that the engine has brought since create.
func (s *shim) connectNetwork(st containerstate.State) error {
	start, err := s.startSpec(st.Domain, st.ControlDir, st.LogLevel)
	if err != nil {
		return err
	}
	return coordinated(start, func(c *wire.Conn) error {
		req := wire.ConnectRequest{Version: wire.Version, ContainerID: st.ID}
		if err := c.Call(wire.PathConnect, req, &wire.Empty{}, prepareTimeout); err != nil {
			return fmt.Errorf("container %s: %w", strings.ToLower(st.ID), err)
		}
		return c.Close()
	})
}
