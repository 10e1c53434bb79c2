package spec

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Where Lazaret's things are in the container. These are contract.
const (
	WorkspacePath = "/workspace"
	RunPath       = "/run/lazaret"
	ClientPath    = "/usr/local/bin/lazaret-escalate"
)

// GitConfig is the configuration that a sandbox's git includes.
const GitConfig = RunPath + "/gitconfig"

// EnvPrefix begins the names of all variables that Lazaret owns in a container.
// Those that come from the user or the image are removed, but for ProfileEnv.
const (
	EnvPrefix  = "LAZARET_"
	ProfileEnv = "LAZARET_PROFILE"
)

// Plan says what to make of a config.json. The zero Plan removes what an earlier
// rewrite put in, and every foreign LAZARET_ variable, and changes nothing else.
type Plan struct {
	// ContainerID, Profile and DomainHash become LAZARET_SANDBOX,
	// LAZARET_PROFILE and LAZARET_DOMAIN; empty ones do not.
	ContainerID, Profile, DomainHash string
	// Workspace is the host directory bound at /workspace when no mount of the
	// document is there yet. A mount that is there stays; empty adds none.
	Workspace string
	// State are the kept directories, mounted before all of the engine's mounts, so
	// that those lie on them. One that a mount of the document covers is left out.
	State []Bind
	// Sources replaces the source of each bind mount that names a key, as the
	// document spells it; the mount's options stay.
	Sources map[string]string
	// Env are further NAME=value variables; they replace all of the same name.
	Env []string
	// RunDir is the host directory bound, read-only, at /run/lazaret; empty for none.
	RunDir string
	// ClientPath also binds RunDir/escalate at /usr/local/bin/lazaret-escalate. It
	// is left out where a bind mount covers that path, as the runtime would
	// create an empty file in the user's directory to mount on.
	ClientPath bool
	// PathDirs come first in PATH.
	PathDirs []string
	// TerminfoDir, a path in the container, is searched before all other places
	// of TERMINFO_DIRS; empty for none.
	TerminfoDir string
	// HookPath is the host's lazaret-hook, run as `HookPath prestart HookArgs…`
	// and `HookPath poststop HookArgs…` with exactly the environment HookEnv,
	// which must not be empty: runsc hands down its own where a hook has none.
	// Empty for no hooks.
	HookPath string
	HookArgs []string
	HookEnv  []string
	// HookTimeoutSeconds ends a hook that runs for longer; 0 for never.
	HookTimeoutSeconds int
	// Masks are paths in the container, each covered by an empty tmpfs.
	Masks []string
	// Binds are mounted after all of the engine's; those in /run/lazaret after that.
	Binds []Bind
	// IsolatedNetwork gives the container a fresh network namespace, in which
	// there is only lo, whatever the document joins or shares.
	IsolatedNetwork bool
	// NetworkPath is the network namespace that the container joins, whichever the
	// document names; "" leaves it.
	NetworkPath string
	// DropAnnotations are the names of annotations to remove; see ImageAnnotations.
	DropAnnotations []string
}

// Bind mounts a path of the host in the container.
type Bind struct {
	Source      string // on the host
	Destination string // in the container
	ReadOnly    bool
}

// environment is every variable that the plan sets, each name once, in order.
func (p Plan) environment() []string {
	var env []string
	for _, v := range []struct{ name, value string }{
		{ProfileEnv, p.Profile}, {"LAZARET_DOMAIN", p.DomainHash}, {"LAZARET_SANDBOX", p.ContainerID},
	} {
		if v.value != "" {
			env = append(env, v.name+"="+v.value)
		}
	}
	return mergeEnv(env, p.Env)
}

// mergeEnv appends the entries of more to env; the last of one name counts.
func mergeEnv(env, more []string) []string {
	for _, entry := range more {
		env = slices.DeleteFunc(env, func(old string) bool { return envName(old) == envName(entry) })
		env = append(env, entry)
	}
	return env
}

func envName(entry string) string {
	name, _, _ := strings.Cut(entry, "=")
	return name
}

// normal is the plan with its lists cleaned and free of doubles, or the reason
// why it cannot be carried out.
func (p Plan) normal() (Plan, error) {
	var errs []error
	masks := make([]string, 0, len(p.Masks))
	for _, m := range p.Masks {
		clean, err := containerPath("mask", m)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if under(RunPath, clean) || under(clean, RunPath) {
			errs = append(errs, fmt.Errorf("mask %s would hide %s", m, RunPath))
		}
		if !slices.Contains(masks, clean) {
			masks = append(masks, clean)
		}
	}
	p.Masks = masks
	binds := make([]Bind, 0, len(p.Binds))
	for _, b := range p.Binds {
		clean, err := containerPath("mount", b.Destination)
		if err = errors.Join(err, hostPath("source of the mount at "+b.Destination, b.Source)); err != nil {
			errs = append(errs, err)
			continue
		}
		inside := under(clean, RunPath)
		if under(RunPath, clean) || inside && (p.RunDir == "" || !b.ReadOnly) {
			errs = append(errs, fmt.Errorf("the mount at %s would hide %s, or be writable in it", b.Destination, RunPath))
		}
		b.Destination = clean
		if !slices.ContainsFunc(binds, func(o Bind) bool { return o.Destination == clean }) {
			binds = append(binds, b)
		}
	}
	p.Binds = binds
	for i, b := range p.State {
		clean, err := containerPath("kept directory", b.Destination)
		err = errors.Join(err, hostPath("source of the kept directory "+b.Destination, b.Source))
		if err == nil && (clean != b.Destination || b.ReadOnly || under(RunPath, clean) || under(clean, RunPath)) {
			err = fmt.Errorf("kept directory %s is not a clean path, read-only, or would hide %s", b.Destination, RunPath)
		}
		if slices.ContainsFunc(p.State[:i], func(o Bind) bool { return under(o.Destination, clean) || under(clean, o.Destination) }) {
			err = errors.Join(err, fmt.Errorf("kept directory %s overlaps another", b.Destination))
		}
		errs = append(errs, err)
	}
	for from, to := range p.Sources {
		if err := hostPath("source of "+from, to); err != nil {
			errs = append(errs, err)
		}
	}
	if p.RunDir != "" {
		errs = append(errs, hostPath("run directory", p.RunDir))
	} else if p.ClientPath {
		errs = append(errs, errors.New("the escalation client needs a run directory"))
	}
	if p.Workspace != "" {
		errs = append(errs, hostPath("workspace", p.Workspace))
	}
	if p.HookPath != "" {
		errs = append(errs, hostPath("hook", p.HookPath))
		if filepath.Base(p.HookPath) != hookProgram {
			errs = append(errs, fmt.Errorf("hook %s is not called %s, the name by which it is found again", p.HookPath, hookProgram))
		}
		if len(p.HookEnv) == 0 {
			errs = append(errs, errors.New("a hook without an environment of its own would inherit the engine's"))
		}
	}
	if p.NetworkPath != "" {
		errs = append(errs, hostPath("network namespace", p.NetworkPath))
		if p.IsolatedNetwork {
			errs = append(errs, errors.New("an isolated network has no namespace to join"))
		}
	}
	if p.HookTimeoutSeconds < 0 {
		errs = append(errs, fmt.Errorf("hook timeout of %d seconds", p.HookTimeoutSeconds))
	}
	errs = append(errs, checkEnv(p.environment()), checkDirs(p.PathDirs, p.TerminfoDir), checkText(p.HookArgs), checkText(p.HookEnv))
	if err := errors.Join(errs...); err != nil {
		return Plan{}, fmt.Errorf("plan for config.json: %w", err)
	}
	return p, nil
}

// containerPath cleans an absolute path in the container, other than the root.
func containerPath(what, name string) (string, error) {
	if !path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") || checkText([]string{name}) != nil {
		return "", fmt.Errorf("%s %q is not an absolute path, or has .. in it", what, name)
	}
	clean := path.Clean(name)
	if clean == "/" {
		return "", fmt.Errorf("%s %q is the root of the container", what, name)
	}
	return clean, nil
}

func hostPath(what, name string) error {
	if !filepath.IsAbs(name) || filepath.Clean(name) != name || checkText([]string{name}) != nil {
		return fmt.Errorf("%s %q is not a clean absolute path", what, name)
	}
	return nil
}

func checkEnv(env []string) error {
	for _, entry := range env {
		if name, _, ok := strings.Cut(entry, "="); !ok || name == "" {
			return fmt.Errorf("variable %q is not NAME=value", entry)
		}
	}
	return checkText(env)
}

func checkDirs(dirs []string, terminfo string) error {
	if terminfo != "" {
		dirs = append(slices.Clone(dirs), terminfo)
	}
	for _, dir := range dirs {
		if !path.IsAbs(dir) || strings.Contains(dir, ":") {
			return fmt.Errorf("directory %q of a search path is not absolute, or has a colon in it", dir)
		}
	}
	return checkText(dirs)
}

// checkText refuses what neither JSON nor execve(2) can carry.
func checkText(all []string) error {
	for _, s := range all {
		if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
			return fmt.Errorf("%q has a NUL in it or is not UTF-8", s)
		}
	}
	return nil
}

// under tells whether name is dir or below it; both clean and absolute.
func under(name, dir string) bool {
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}

// destination is where in the container a mount goes, as far as its text tells:
// runtimes take relative paths from the root, and /var/run leads to /run in every
// image that has it.
func destination(name string) string {
	clean := path.Clean("/" + name)
	if under(clean, "/var/run") {
		clean = strings.TrimPrefix(clean, "/var")
	}
	return clean
}
