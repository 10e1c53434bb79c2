package shim

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
)

// CheckConfig tells why sandboxes of a valid configuration could not start on this
// machine, as far as that does not depend on a container; nil where nothing is
// known.
func CheckConfig(env hostenv.Env, cfg *config.Config) []error {
	s := &shim{env: env}
	low := s.lowRuntime(cfg)
	errs := compact(low.err)
	probe := low.probe(env)
	for _, name := range cfg.Profiles() {
		p, err := cfg.Profile(name)
		if err == nil && low.err == nil {
			err = fits(cfg, p, low, probe, flagValues(cfg.Runtime.Args, "network"))
		}
		errs = append(errs, compact(err)...)
		if err != nil {
			continue
		}
		if filtered(p) {
			_, err := sidecar(cfg)
			errs = append(errs, compact(err)...)
		}
		if p.StateDriver == "fuse-overlayfs" && len(p.StatePaths) > 0 {
			if _, err := fixedpath.Look(p.StateDriver); err != nil {
				errs = append(errs, fmt.Errorf("profile %q has state_driver = %q: %w: install it, or set \"auto\"", name, p.StateDriver, err))
			}
		}
	}
	if cfg.Runtime.Platform == "kvm" {
		f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("[runtime] platform = \"kvm\": %w: choose another platform, or see lazaret doctor", err))
		}
	}
	// What holds for several profiles is told once.
	seen := map[string]bool{}
	return slices.DeleteFunc(errs, func(err error) bool {
		again := seen[err.Error()]
		seen[err.Error()] = true
		return again
	})
}

func compact(err error) []error {
	if err == nil {
		return nil
	}
	return []error{err}
}

// fits refuses what a runsc cannot give to a profile. networks are the values of its
// flag --network, whoever gives it.
func fits(cfg *config.Config, p *config.Profile, low lowRuntime, probe probed, networks []string) error {
	other := func(than string) int {
		return slices.IndexFunc(networks, func(n string) bool { return n != than })
	}
	if slices.ContainsFunc(cfg.Runtime.Args, unsafeArg) {
		return errUnsafeFlag()
	}
	if p.Network.Mode == "none" && other("none") >= 0 {
		return fmt.Errorf(`profile %q has network.mode = "none", but runsc is given --network=%s: take that flag away`, p.Name, strings.Join(networks, ", "))
	}
	if i := other("sandbox"); filtered(p) && i >= 0 {
		return fmt.Errorf(`profile %q has a filtered network, but runsc is given --network=%s: take that flag away, %s`, p.Name, networks[i], instead)
	}
	if len(probe.Flags) == 0 {
		return fmt.Errorf("%s does not answer as runsc does: set [runtime] sandbox to gVisor's runsc", low.path)
	}
	if p.Escalation.Enabled && !probe.hasFlag("host-uds") {
		return fmt.Errorf("host escalation needs runsc's flag --host-uds, which %s does not have: install a current runsc, or set enabled = false in [escalation]", low.path)
	}
	for _, a := range cfg.Runtime.Args {
		if name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "="); !probe.hasFlag(name) { // runsc would answer with all of its usage
			return fmt.Errorf("[runtime] args: %s has no flag %q: see %s flags", low.path, a, low.path)
		}
	}
	return nil
}
