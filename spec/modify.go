package spec

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Modifier makes one change to a document.
type Modifier interface {
	Name() string
	Modify(*Document) error
}

type modifier struct {
	name   string
	modify func(*Document) error
}

func (m modifier) Name() string             { return m.name }
func (m modifier) Modify(d *Document) error { return m.modify(d) }

// Modifiers lists, in the order in which they must run, the changes that a plan
// asks for. Preconditions: the plan's paths are absolute and clean; Rewrite checks
// that.
func Modifiers(p Plan) []Modifier {
	return []Modifier{
		modifier{"annotations", p.dropAnnotations},
		modifier{"environment", p.environ},
		modifier{"network", p.network},
		modifier{"earlier mounts", dropOwnMounts},
		modifier{"reserved paths", p.refuseReserved},
		modifier{"sources", p.sources},
		modifier{"workspace", p.workspace},
		modifier{"kept directories", p.state},
		modifier{"mounts", p.binds(false)},
		modifier{"masks", p.masks},
		modifier{"run directory", p.runDir},
		modifier{"mounts in it", p.binds(true)},
		modifier{"hooks", p.hooks},
	}
}

const (
	standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// maskSource is the source of our tmpfs mounts. The kernel ignores it; it
	// tells our masks from the user's.
	maskSource = "lazaret-mask"
)

// ownBind are the options of our bind mounts. Naming bind beside rbind changes
// nothing and is what no engine writes, so it tells our mounts from the user's.
func ownBind() []string { return []string{"bind", "rbind", "ro", "nosuid", "nodev"} }

// maskOptions: small, as nothing of worth belongs there, yet room for a tool that
// insists on writing its settings.
func maskOptions() []string { return []string{"nosuid", "nodev", "noexec", "mode=0755", "size=1m"} }

// ownState are those of a kept directory. It takes the place of a part of the root
// file system, which has neither nosuid nor nodev.
func ownState() []string { return []string{"bind", "rbind", "rw"} }

// ownWritable are those of what the sandbox may write.
func ownWritable() []string { return []string{"bind", "rbind", "rw", "nosuid", "nodev"} }

// IsOwn tells whether a mount is one that a rewrite made; the next one replaces it.
func IsOwn(m specs.Mount) bool { return isOwn(m) }

func isOwn(m specs.Mount) bool {
	switch m.Type {
	case "tmpfs":
		return m.Source == maskSource
	case "bind":
		return slices.Equal(m.Options, ownBind()) || slices.Equal(m.Options, ownWritable()) || slices.Equal(m.Options, ownState())
	}
	return false
}

func (p Plan) dropAnnotations(d *Document) error {
	for _, name := range p.DropAnnotations {
		d.dropAnnotation(name)
	}
	return nil
}

func (p Plan) environ(d *Document) error {
	if d.process == nil {
		return errors.New("there is no process in it")
	}
	setVariables(d.process, p.environment(), p.PathDirs, p.TerminfoDir)
	return nil
}

// setVariables replaces the variables that Lazaret owns, then mends the search
// paths, and writes nothing where nothing changes.
func setVariables(p *process, own, pathDirs []string, terminfo string) {
	env := make([]variable, 0, len(p.env)+len(own)+2)
	named := func(name string) bool {
		return slices.ContainsFunc(own, func(entry string) bool { return envName(entry) == name })
	}
	hasPath, hasTerminfo := named("PATH"), named("TERMINFO_DIRS")
	for _, v := range p.env {
		name, value, ok := strings.Cut(v.text, "=")
		switch {
		case named(name):
			continue
		case strings.HasPrefix(name, EnvPrefix) && name != ProfileEnv:
			continue
		case ok && name == "PATH":
			hasPath = true
			v = v.with("PATH=" + addDirs(value, pathDirs))
		case ok && name == "TERMINFO_DIRS":
			value, keep := terminfoDirs(value, terminfo)
			if !keep {
				continue
			}
			hasTerminfo = true
			v = v.with("TERMINFO_DIRS=" + value)
		}
		env = append(env, v)
	}
	if !hasPath && len(pathDirs) > 0 {
		env = append(env, newVariable("PATH="+addDirs(standardPath, pathDirs)))
	}
	if !hasTerminfo && terminfo != "" {
		env = append(env, newVariable("TERMINFO_DIRS="+terminfo+":"))
	}
	for _, entry := range own {
		env = append(env, newVariable(entry))
	}
	if !slices.EqualFunc(env, p.env, func(a, b variable) bool { return a.text == b.text }) {
		p.setEnv(env)
	}
}

// with keeps the variable's own JSON text where its value stays.
func (v variable) with(text string) variable {
	if v.text == text {
		return v
	}
	return newVariable(text)
}

// addDirs puts dirs first in a PATH. Directories under /run/lazaret that are not
// wanted are an earlier rewrite's.
func addDirs(list string, dirs []string) string {
	rest := slices.DeleteFunc(strings.Split(list, ":"), func(element string) bool {
		return element != "" && under(path.Clean(element), RunPath) || slices.Contains(dirs, element)
	})
	return strings.Join(append(slices.Clone(dirs), rest...), ":")
}

// terminfoDirs puts dir first in a TERMINFO_DIRS. An empty element stands for
// the library's own default, so "dir:" means: dir, then as ever. Directories
// under /run/lazaret are an earlier rewrite's. Nothing to keep means that the
// variable was ours alone.
func terminfoDirs(list, dir string) (value string, keep bool) {
	var rest []string
	own := false
	for _, element := range strings.Split(list, ":") {
		if element != "" && under(path.Clean(element), RunPath) || dir != "" && element == dir {
			own = true
			continue
		}
		rest = append(rest, element)
	}
	switch {
	case dir != "":
		return dir + ":" + strings.Join(rest, ":"), true
	case own && slices.Equal(rest, []string{""}):
		return "", false
	case own:
		return strings.Join(rest, ":"), true
	}
	return list, true
}

// dropOwnMounts takes an earlier rewrite's mounts out, so that they are neither
// doubled nor left behind.
func dropOwnMounts(d *Document) error {
	var kept []mount
	for _, m := range d.mounts {
		if !isOwn(m.Mount) {
			kept = append(kept, m)
		}
	}
	if len(kept) != len(d.mounts) {
		d.setMounts(kept)
	}
	return nil
}

func (p Plan) refuseReserved(d *Document) error {
	for _, m := range d.mounts {
		dest := destination(m.Destination)
		if p.RunDir != "" && under(dest, RunPath) {
			return fmt.Errorf("the mount of %q at %q is inside %s, which belongs to Lazaret: mount it elsewhere",
				m.Source, m.Destination, RunPath)
		}
		if p.ClientPath && under(dest, ClientPath) {
			return fmt.Errorf("the mount of %q at %q takes the place of Lazaret's escalation client: mount it elsewhere",
				m.Source, m.Destination)
		}
	}
	return nil
}

// sources also gives mounts that an earlier rewrite changed their own back.
func (p Plan) sources(d *Document) error {
	mounts := slices.Clone(d.mounts)
	changed := false
	for i, m := range mounts {
		if !isBind(m.Mount) {
			continue
		}
		var err error
		if mounts[i], err = m.from(p.Sources[m.source()]); err != nil {
			return err
		}
		changed = changed || mounts[i].Source != m.Source
	}
	if changed {
		d.setMounts(mounts)
	}
	return nil
}

func (p Plan) workspace(d *Document) error {
	if p.Workspace == "" || slices.ContainsFunc(d.mounts, func(m mount) bool {
		return destination(m.Destination) == WorkspacePath
	}) {
		return nil
	}
	d.addMount(specs.Mount{
		Destination: WorkspacePath, Type: "bind", Source: p.Workspace, Options: ownWritable(),
	})
	return nil
}

// state comes before everything else: whatever the engine or the user mounts in a
// kept directory lies on it.
func (p Plan) state(d *Document) error {
	var kept []mount
	for _, b := range p.State {
		if !coveredByMount(d, b.Destination) {
			kept = append(kept, newMount(specs.Mount{Destination: b.Destination, Type: "bind", Source: b.Source, Options: ownState()}))
		}
	}
	if len(kept) > 0 {
		d.setMounts(slices.Concat(kept, d.mounts))
	}
	return nil
}

// coveredByMount tells whether a mount of somebody's holds name.
func coveredByMount(d *Document, name string) bool {
	return slices.ContainsFunc(d.mounts, func(m mount) bool {
		return !isOwn(m.Mount) && under(name, destination(m.Destination))
	})
}

// binds mounts what lies in /run/lazaret, or the rest.
func (p Plan) binds(inRun bool) func(*Document) error {
	return func(d *Document) error {
		for _, b := range p.Binds {
			if under(b.Destination, RunPath) != inRun {
				continue
			}
			options := ownWritable()
			if b.ReadOnly {
				options = ownBind()
			}
			d.addMount(specs.Mount{Destination: b.Destination, Type: "bind", Source: b.Source, Options: options})
		}
		return nil
	}
}

func (p Plan) masks(d *Document) error {
	for _, dest := range p.Masks {
		d.addMount(specs.Mount{Destination: dest, Type: "tmpfs", Source: maskSource, Options: maskOptions()})
	}
	return nil
}

// runDir comes after all other mounts, but for those in it: nothing of the user
// or the image can then lie over it, under whatever name.
func (p Plan) runDir(d *Document) error {
	if p.RunDir == "" {
		return nil
	}
	if p.ClientPath && !coveredByBind(d, ClientPath) {
		d.addMount(specs.Mount{
			Destination: ClientPath, Type: "bind",
			Source: filepath.Join(p.RunDir, "escalate"), Options: ownBind(),
		})
	}
	d.addMount(specs.Mount{Destination: RunPath, Type: "bind", Source: p.RunDir, Options: ownBind()})
	return nil
}

// coveredByBind tells whether a mount of a host directory holds name. A kept
// directory does not count: it stands for a part of the root file system.
func coveredByBind(d *Document, name string) bool {
	return slices.ContainsFunc(d.mounts, func(m mount) bool {
		return isBind(m.Mount) && !slices.Equal(m.Options, ownState()) && under(name, destination(m.Destination))
	})
}

func isBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

func (d *Document) addMount(m specs.Mount) { d.setMounts(append(slices.Clip(d.mounts), newMount(m))) }

// hooks puts ours after the user's at prestart: the sandbox is counted in once
// everything else has agreed to its start. At poststop ours is first, so that
// the sandbox is let go however long the user's take. An earlier rewrite's hooks
// are known by the name of the program.
func (p Plan) hooks(d *Document) error {
	prestart, poststop := foreignHooks(d.prestart), foreignHooks(d.poststop)
	if p.HookPath != "" {
		prestart = append(prestart, p.hook(configs.Prestart))
		poststop = append([]hook{p.hook(configs.Poststop)}, poststop...)
	}
	d.setHooks(string(configs.Prestart), &d.prestart, prestart)
	d.setHooks(string(configs.Poststop), &d.poststop, poststop)
	return nil
}

const hookProgram = "lazaret-hook"

func foreignHooks(hooks []hook) []hook {
	var kept []hook
	for _, h := range hooks {
		if filepath.Base(h.Path) != hookProgram {
			kept = append(kept, h)
		}
	}
	return kept
}

func (p Plan) hook(moment configs.HookName) hook {
	h := specs.Hook{
		Path: p.HookPath,
		Args: append([]string{p.HookPath, string(moment)}, p.HookArgs...),
		Env:  p.HookEnv,
	}
	if p.HookTimeoutSeconds > 0 {
		h.Timeout = &p.HookTimeoutSeconds
	}
	return newHook(h)
}
