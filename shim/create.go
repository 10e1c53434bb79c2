package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/imageinfo"
	"github.com/lazaret-dev/lazaret/internal/layout"
	"github.com/lazaret-dev/lazaret/internal/terminfo"
	"github.com/lazaret-dev/lazaret/internal/wire"
	"github.com/lazaret-dev/lazaret/spec"
)

const (
	profileAnnotation   = "dev.lazaret.profile"
	workspaceAnnotation = "dev.lazaret.workspace"
	runAnnotation       = "dev.lazaret.run" // of lazaret run: "true"

	// branchTimeout bounds one for which it may have to check out a whole tree.
	branchTimeout = 10 * time.Minute
	// callTimeout bounds one request to a coordinator that answers, prepareTimeout
	// one for which it may have to start a guard, after another's start that failed.
	callTimeout    = 10 * time.Second
	prepareTimeout = 30 * time.Second
	// hookTimeout ends a hook of ours that hangs, in seconds.
	hookTimeout = 15
	// fallbackTerm is offered beside the terminal's own type.
	fallbackTerm = "xterm-256color"
)

// request is what a container asks for, and what was decided about it.
type request struct {
	id     string
	bundle string
	doc    *spec.Document
	image  imageinfo.Info
	drop   []string // annotations that came from the image
	// mixedEnv names an engine whose bundles do not tell which variables came from
	// the image; "" where that is known or cannot be.
	mixedEnv string

	cfg      *config.Config
	profile  *config.Profile
	anchor   domain.Anchor
	low      lowRuntime
	flags    []string // global flags for runsc beside the caller's
	loopback bool     // the prestart hook sets it up: runsc takes the interfaces of a namespace that it makes
	notes    []string // what this version does not guard: lazaret status tells
	warnings []string // what this container asked for and does not get: said on stderr too
}

// create prepares the container of create, run and restore, and becomes runsc.
func (s *shim) create() error {
	r, err := s.resolve()
	if err != nil {
		return err
	}
	state, persist, err := s.planState(r)
	if err != nil {
		return err
	}
	// A command that is not there is found here, before anything is made: runsc
	// says it only at start, in words that no engine knows. What is kept of the
	// system directories can be seen only once it is mounted.
	if state == nil {
		if err := s.lookCommand(r, nil); err != nil {
			return err
		}
	}
	if _, err := spec.MountTargets(r.doc, r.bundle, nil); err != nil {
		return err
	}
	if err := s.enforceable(r); err != nil {
		return err
	}
	network, err := s.planNetwork(r)
	if err != nil {
		return err
	}
	guard, err := s.planGuard(r)
	if err != nil {
		return err
	}
	root, err := s.runscRoot()
	if err != nil {
		return err
	}
	if err := checkNew(root, r.id); err != nil {
		return err
	}
	stateDir := containerstate.Dir(s.env.RuntimeDir, r.id)
	if err := s.bringPIDFile(stateDir); err != nil {
		return err
	}
	if n := s.unknownTerminal(r.doc.Env()); n != "" {
		r.warnings = append(r.warnings, n)
	}
	start, err := s.startSpec(r.anchor, r.cfg.General.ControlDir, r.cfg.General.LogLevel)
	if err != nil {
		return err
	}
	req := wire.PrepareRequest{
		Version: wire.Version, Domain: r.anchor, ContainerID: r.id,
		PIDFile: s.cmd.PIDFile, StateDir: stateDir, Notes: slices.Concat(r.warnings, r.notes),
		Run: r.annotation(runAnnotation) == "true",
	}
	if r.anchor.Workspace != "" {
		req.Git, req.Masks, req.ReadOnly, req.Sources = r.profile.Git, guard.masks, guard.readOnly, guard.asked()
		req.State, req.Persist = state, persist
	}
	if req.Network = network; network != nil && state != nil {
		state.Targets = append(state.Targets, wire.Target{Path: resolvConf, Own: true})
	}
	session, err := s.escalation(r, &req)
	if err != nil {
		return err
	}
	if err := domain.RecordWritten(r.cfg.General.DataRoot, r.written()); err != nil {
		return err
	}
	res, err := s.prepare(start, req)
	if err != nil {
		return err
	}
	if r.anchor.Workspace != "" {
		if err := visible(res.GuardDir); err != nil {
			return err
		}
	}
	sources, err := guard.through(res.Sources)
	if err != nil {
		return err
	}
	kept := bindsOf(res.State)
	if err := stateVisible(res.State); err != nil {
		return err
	}
	if state != nil {
		if err := s.lookCommand(r, kept); err != nil {
			return err
		}
	}
	client, err := spec.MountTargets(r.doc, r.bundle, kept)
	if err != nil {
		return err
	}
	s.installTerminfo(r.doc.Env(), res.RunDir)
	hook, err := layout.Helper("lazaret-hook")
	if err != nil {
		return err
	}
	hookEnv := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LAZARET_CONTROL_SOCKET=" + r.anchor.SocketPath(r.cfg.General.ControlDir),
		"LAZARET_STATE_DIR=" + stateDir,
	}
	if r.loopback {
		hookEnv = append(hookEnv, "LAZARET_LOOPBACK=1")
	}
	var pathDirs []string
	if r.anchor.Workspace != "" && spec.HasProgram(r.doc, r.bundle, kept, "git") {
		pathDirs = []string{gitDir}
	}
	if len(kept) > 0 {
		// Before whatever an earlier session has left under the client's name.
		pathDirs = append(pathDirs, spec.RunPath+"/sbin")
	}
	plan := spec.Plan{
		ContainerID: r.id, Profile: r.profile.Name, DomainHash: r.anchor.Hash,
		Workspace: res.GuardDir, State: kept, Sources: sources, Binds: bindsOf(res.Binds),
		Env:    slices.Concat(gitSettings(pathDirs, r.doc.Env()), []string{"LAZARET_RUNTIME=" + shortVersion()}, session),
		RunDir: res.RunDir, ClientPath: client,
		TerminfoDir: spec.RunPath + "/terminfo",
		PathDirs:    pathDirs,
		HookPath:    hook, HookArgs: []string{r.anchor.Hash}, HookEnv: hookEnv,
		HookTimeoutSeconds: hookTimeout,
		Masks:              guard.covered,
		IsolatedNetwork:    r.profile.Network.Mode == "none",
		DropAnnotations:    r.drop,
	}
	networkThrough(&plan, res.Network)
	if err := spec.RewriteFile(r.bundle, plan); err != nil {
		return err
	}
	probe := r.low.probe(s.env)
	if err := containerstate.WriteState(stateDir, containerstate.State{
		Version: containerstate.Version, ID: r.id, Domain: r.anchor,
		ControlDir: r.cfg.General.ControlDir, LogLevel: r.cfg.General.LogLevel,
		Runsc: r.low.path, RunscRoot: root, RunscFlags: r.flags, HideNet: probe.hideNet(), LateNet: network != nil && network.Late,
		RunDir: res.RunDir, PathDirs: pathDirs, Bundle: r.bundle, Escalation: req.Escalation != nil, Notes: slices.Concat(r.warnings, r.notes, res.Notes),
	}); err != nil {
		return err
	}
	for _, n := range slices.Concat(r.warnings, res.Notes) {
		// Engines put this at the head of the container's log.
		_, _ = fmt.Fprintf(s.stderr, "%s: %s\n", program, oneLine(n))
	}
	if s.cmd.Verb != "create" && probe.hideNet() {
		if err := hideNetSysctls(); err != nil {
			return err
		}
	}
	return s.exec(r.low, s.missingFlags(r.flags)...)
}

// lookCommand reports a command that the container does not have.
func (s *shim) lookCommand(r *request, kept []spec.Bind) error {
	if s.cmd.Verb == "restore" {
		return nil // it goes on with what it had
	}
	if args := r.doc.Args(); len(args) > 0 {
		switch args[0] {
		case spec.RunPath + "/escalate", spec.ClientPath, path.Base(spec.ClientPath):
			return nil // mounted, and first in PATH
		}
	}
	return spec.LookExecutable(r.doc, r.bundle, kept)
}

// runscRoot is the directory in which runsc keeps its containers, absolute.
func (s *shim) runscRoot() (string, error) {
	root := s.cmd.Root
	switch d := os.Getenv("XDG_RUNTIME_DIR"); {
	case root != "":
	case d != "":
		root = filepath.Join(d, "runsc")
	default:
		root = "/var/run/runsc"
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return "", fmt.Errorf("--root: %w", err)
	}
	return root, nil
}

// checkNew refuses an id that runsc has already: what a create that failed has
// left is removed, which must never be somebody else's container.
func checkNew(root, id string) error {
	files, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for a container of that id: %w", err)
	}
	for _, f := range files {
		// <id>_sandbox:<sandbox's id>.state
		if strings.HasPrefix(f.Name(), id+"_sandbox:") && strings.HasSuffix(f.Name(), ".state") {
			return fmt.Errorf("container with given ID already exists: %s (in %s): remove it or choose another id", id, root)
		}
	}
	return nil
}

// resolve reads the bundle and the configuration and names the domain.
func (s *shim) resolve() (*request, error) {
	r := &request{id: s.cmd.ID(), bundle: s.cmd.Bundle}
	if !containerstate.ValidID(r.id) {
		return nil, fmt.Errorf("%s: %q is not a container id: use letters, digits, _ + . -", s.cmd.Verb, r.id)
	}
	var err error
	if r.bundle, err = filepath.Abs(r.bundle); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	if r.doc, err = spec.ReadFile(r.bundle); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("bundle %s has no config.json: %w", r.bundle, err)
		}
		return nil, err
	}
	if err := r.checkFiles(); err != nil {
		return nil, err
	}
	if err := r.findImage(); err != nil {
		return nil, err
	}
	if pod := r.podmanPod(); pod != "" {
		return nil, fmt.Errorf("podman pods are not supported by lazaret: runsc runs all of a pod's containers in one sandbox, whose end podman takes for that of each; run the containers without a pod (pod %.12s)", pod)
	}
	workspace, err := r.workspace()
	if err != nil {
		return nil, err
	}
	if r.cfg, err = config.Load(s.configOptions(workspace)); err != nil {
		return nil, err
	}
	if err := r.checkProfileSource(); err != nil {
		return nil, err
	}
	name := r.profileName()
	if name == "" {
		name = r.cfg.General.DefaultProfile
	}
	if r.profile, err = r.cfg.Profile(name); err != nil {
		return nil, err
	}
	if workspace == "" {
		r.anchor = domain.Ephemeral(r.profile.Name, r.id, r.cfg.General.DataRoot)
	} else {
		if !r.profile.AllowBroadWorkspace {
			if err := domain.CheckBroad(workspace, s.env.Home); err != nil {
				return nil, err
			}
		}
		own := domain.Own{DataRoot: r.cfg.General.DataRoot, RuntimeDir: s.env.RuntimeDir, ControlDir: r.cfg.General.ControlDir}
		if f := config.UserFile(s.configOptions("")); f != "" {
			own.ConfigDir = filepath.Dir(f)
		}
		if err := domain.CheckOwn(workspace, own, r.profile.AllowBroadWorkspace); err != nil {
			return nil, err
		}
		r.anchor = domain.New(r.profile.Name, workspace, r.cfg.General.DataRoot)
	}
	if r.profile, err = r.cfg.Resolve(r.profile, config.Anchor{Hash: r.anchor.Hash, Dir: r.anchor.Root, Workspace: workspace}); err != nil {
		return nil, err
	}
	if r.low = s.lowRuntime(r.cfg); r.low.err != nil {
		return nil, r.low.err
	}
	return r, nil
}

func (s *shim) configOptions(workspace string) config.Options {
	return config.Options{
		Home: s.env.Home, ConfigHome: s.env.ConfigHome, DataHome: s.env.DataHome,
		Workspace: workspace, File: s.cmd.Config, SystemWide: !s.env.Rootless,
	}
}

// findImage looks up what the image itself carries, so that an image can steer
// neither Lazaret nor runsc: podman copies an image's annotations and variables
// into the container's.
func (r *request) findImage() error {
	if !spec.NeedsProvenance(r.doc) {
		return nil
	}
	info, err := imageinfo.FromBundle(r.bundle, os.Getenv)
	if errors.Is(err, imageinfo.ErrUnknown) {
		// Not podman's. docker, containerd and buildah hand no annotations of an
		// image's on, and whoever wrote a bundle by hand wrote all of it. CRI-O does
		// hand them on: its bundles look like podman's, and are refused below.
		r.mixedEnv = engineOf(r.bundle)
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the container's image: %w", err)
	}
	r.image = info
	r.drop = spec.ImageAnnotations(r.doc.Annotations(), info.Annotations)
	for _, name := range r.drop {
		r.notes = append(r.notes, "annotation dropped, as it comes from the image: "+name)
	}
	return nil
}

// podmanPod is the id of the podman pod that the container belongs to, as its
// infra container or another, else "".
func (r *request) podmanPod() string {
	if r.annotation("io.container.manager") != "libpod" || r.annotation("io.kubernetes.cri-o.ContainerType") == "" {
		return ""
	}
	if pod := r.annotation("io.kubernetes.cri-o.SandboxID"); pod != "" {
		return pod
	}
	return r.id
}

// annotation is one that somebody gave, not the image.
func (r *request) annotation(name string) string {
	if slices.Contains(r.drop, name) {
		return ""
	}
	return r.doc.Annotations()[name]
}

// profileName is the profile that the container asks for, "" for none.
func (r *request) profileName() string {
	if p := r.annotation(profileAnnotation); p != "" {
		return p
	}
	if p, ok := r.doc.Getenv(spec.ProfileEnv); ok && !spec.ImageProfile(r.doc, r.image.Env) {
		return p
	}
	return ""
}

// engineOf names the engine that a bundle's path tells of, where that is one that
// writes the image's variables and the user's into one list; else "".
func engineOf(bundle string) string {
	for part := range strings.SplitSeq(bundle, "/") {
		if strings.HasPrefix(part, "io.containerd.runtime.") {
			return "containerd or docker" // <state>/io.containerd.runtime.v2.task/<namespace>/<id>
		}
	}
	if digits, ok := strings.CutPrefix(filepath.Base(bundle), "buildah"); ok && digits != "" && strings.Trim(digits, "0123456789") == "" {
		return "buildah" // $TMPDIR/buildah<random>
	}
	return ""
}

// checkProfileSource refuses a profile that may be the image's choice: whoever
// built the image would otherwise choose among the user's profiles, the loosest
// too. Taking the default instead would be no better, as the user may have asked
// for a stricter one. Where the image's variables can be told from the user's
// (podman), or nobody but the user can have written the bundle, the variable
// counts as it stands.
func (r *request) checkProfileSource() error {
	asked, ok := r.doc.Getenv(spec.ProfileEnv)
	if !ok || asked == "" || r.annotation(profileAnnotation) != "" {
		return nil
	}
	if spec.ImageProfile(r.doc, r.image.Env) {
		r.notes = append(r.notes, fmt.Sprintf("LAZARET_PROFILE=%s comes from the image and was not followed; name a profile by the annotation %s", asked, profileAnnotation))
		return nil
	}
	if r.mixedEnv == "" || asked == r.cfg.General.DefaultProfile {
		return nil
	}
	return fmt.Errorf("LAZARET_PROFILE=%.64s: with %s it cannot be told whether the image or you set it: name the profile by the annotation %s, or by default_profile in [general]", asked, r.mixedEnv, profileAnnotation)
}

func isBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// inBundle is a path of config.json on the host.
func (r *request) inBundle(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.bundle, name)
}

// checkFiles refuses a bundle whose root file system or a source of whose mounts
// is missing. runsc's processes tell that each in its own words, in several
// objects of the log, of which engines can read but one.
func (r *request) checkFiles() error {
	if r.doc.RootPath() == "" {
		return errors.New("config.json has no root.path: the bundle has no root file system")
	}
	root := r.inBundle(r.doc.RootPath())
	switch fi, err := os.Stat(root); {
	case missing(err):
		return fmt.Errorf("root file system of the bundle: %w", err)
	case err == nil && !fi.IsDir():
		return fmt.Errorf("root file system of the bundle: %s is not a directory", root)
	}
	for _, m := range r.doc.AskedMounts() {
		if !isBind(m) {
			if m.Type == "overlay" { // such as podman's :O
				return fmt.Errorf("mount at %s: runsc has no mounts of type overlay and would leave it out without a word: mount a copy, or read-only", m.Destination)
			}
			continue
		}
		if spec.IsOwn(m) {
			continue // of an earlier create: it comes anew
		}
		if _, err := os.Stat(r.inBundle(m.Source)); missing(err) {
			return fmt.Errorf("source of the mount at %s: %w", m.Destination, err)
		}
	}
	return nil
}

func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// workspace is the canonical host path of the Agent Workspace, "" for none.
func (r *request) workspace() (string, error) {
	mounted := ""
	for _, m := range r.doc.AskedMounts() {
		if path.Clean(m.Destination) == spec.WorkspacePath && !spec.IsOwn(m) {
			mounted = "" // a later mount covers an earlier one
			if isBind(m) {
				mounted = r.inBundle(m.Source)
			}
		}
	}
	asked := r.annotation(workspaceAnnotation)
	if asked == "" && (mounted == "" || anonymousVolume(mounted)) {
		return "", nil
	}
	if asked == "" {
		return domain.Canonical(mounted)
	}
	if !filepath.IsAbs(asked) {
		return "", fmt.Errorf("annotation %s: %q is not an absolute path", workspaceAnnotation, asked)
	}
	ws, err := domain.Canonical(asked)
	if err != nil || mounted == "" {
		return ws, err
	}
	if m, err := domain.Canonical(mounted); err != nil || m != ws {
		return "", fmt.Errorf("annotation %s names %q but %s is mounted from %q: make them the same or leave one out", workspaceAnnotation, asked, spec.WorkspacePath, mounted)
	}
	return ws, nil
}

// written are the host's directories and files beside the workspace that the
// container may write to: no program in them is the developer's own any more.
// What the engine has made for this container alone bears its id.
func (r *request) written() []string {
	var all []string
	for _, m := range r.doc.AskedMounts() {
		if !isBind(m) || spec.IsOwn(m) || slices.Contains(m.Options, "ro") && !slices.Contains(m.Options, "rw") {
			continue
		}
		source, err := filepath.EvalSymlinks(r.inBundle(m.Source))
		if err != nil {
			continue // the runtime finds none either
		}
		fi, err := os.Stat(source)
		ws := r.anchor.Workspace
		switch {
		case err != nil || !fi.IsDir() && !fi.Mode().IsRegular(): // such as a socket
		case ws != "" && strings.HasPrefix(source+"/", ws+"/"):
		case anonymousVolume(source) || slices.Contains(strings.Split(source, "/"), r.id):
		default:
			all = append(all, source)
		}
	}
	return all
}

// anonymousVolume tells whether an engine made a directory for this container
// alone, as podman and docker do for an image's VOLUME:
// <storage>/volumes/<64 digits>/_data. It is nobody's project.
func anonymousVolume(source string) bool {
	dir, data := filepath.Split(source)
	dir, name := filepath.Split(strings.TrimSuffix(dir, "/"))
	return data == "_data" && len(name) == 64 && strings.Trim(name, "0123456789abcdef") == "" && filepath.Base(dir) == "volumes"
}

// enforceable refuses what the profile asks for and this version cannot give,
// and notes what is missing of the defaults. It decides the runtime's flags.
func (s *shim) enforceable(r *request) error {
	p := r.profile
	networks := s.networkFlags(r)
	hostNet := !slices.ContainsFunc(r.doc.Namespaces(), ownNetwork) || slices.Contains(networks, "host")
	switch {
	case hostNet && p.Network.Mode != "open":
		return fmt.Errorf(`host network refused: the sandbox would be on the host's own network; profile %q must say network.mode = "open" for that`, p.Name)
	case p.Network.Mode == "open":
		r.notes = append(r.notes, `network is not filtered: the profile says network.mode = "open"`)
	}
	fresh := func(n specs.LinuxNamespace) bool { return n.Type == specs.NetworkNamespace && n.Path == "" }
	r.loopback = p.Network.Mode != "none" && len(networks) == 0 && slices.ContainsFunc(r.doc.Namespaces(), fresh)
	probe := r.low.probe(s.env)
	if err := fits(r.cfg, p, r.low, probe, networks); err != nil {
		return err
	}
	r.noteUnused()
	if engineOf(r.bundle) == "buildah" && !probe.hasFlag("directfs") {
		// Nobody reaps its gofer there, and so old runsc's delete waits for it in vain.
		return fmt.Errorf("builds are not supported by lazaret with %s, of before 2023, which cannot end a container of buildah's: install a current runsc, or build with the default runtime", r.low.path)
	}
	if own := r.doc.UIDMappings(); len(own) > 0 && !probe.hasFlag("directfs") && !slices.ContainsFunc(own, func(m specs.LinuxIDMapping) bool { return m.HostID == 0 }) {
		// It opens the mounts' sources as a user of the container.
		return fmt.Errorf("user namespace refused: none of the container's users is you (podman --userns=auto or nomap), and %s, of before 2023, could not open your files: use --userns=keep-id, or install a current runsc", r.low.path)
	}
	if s.ignoreCgroups() {
		r.flags = append(r.flags, "--ignore-cgroups")
		if limits := r.doc.Resources(); len(limits) > 0 {
			r.warnings = append(r.warnings, "resource limits are not enforced, as no cgroup is delegated to this engine: "+strings.Join(limits, ", "))
		}
	} else if s.cmd.CgroupManager == "systemd" {
		r.flags = append(r.flags, "--systemd-cgroup")
	}
	if probe.hasFlag("overlay2") {
		// Writes to the root go to the engine's layer: else commit, diff and cp
		// would not see them, and runsc's releases would differ.
		r.flags = append(r.flags, "--overlay2=none")
	}
	if p.Escalation.Enabled {
		r.flags = append(r.flags, "--host-uds=open") // to connect, not to make any
	}
	if p.Network.Mode == "none" {
		// Beside the fresh namespace: runsc then has a loopback of its own, and
		// takes no interface that an engine adds after create.
		r.flags = append(r.flags, "--network=none")
	}
	if r.cfg.Runtime.Platform != "" {
		r.flags = append(r.flags, "--platform="+r.cfg.Runtime.Platform)
	}
	for _, a := range r.cfg.Runtime.Args {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		r.flags = slices.DeleteFunc(r.flags, func(f string) bool { return f == "--"+name || strings.HasPrefix(f, "--"+name+"=") })
		r.flags = append(r.flags, a)
	}
	return nil
}

// networkFlags are the values of runsc's --network, whoever gives it.
func (s *shim) networkFlags(r *request) []string {
	return flagValues(slices.Concat(s.cmd.Global, r.cfg.Runtime.Args), "network")
}

// ownNetwork reports whether n is a network namespace other than the host's,
// which a path can name too (podman run --network ns:/proc/1/ns/net).
func ownNetwork(n specs.LinuxNamespace) bool {
	if n.Type != specs.NetworkNamespace {
		return false
	}
	given, err := os.Stat(n.Path)
	if n.Path == "" || err != nil {
		return true // a fresh one, or one that runsc will not find either
	}
	for _, host := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		if fi, err := os.Stat(host); err == nil && os.SameFile(fi, given) {
			return false
		}
	}
	return true
}

// noteUnused notes settings that somebody made and that this version does not
// act upon. None of them holds the sandbox in: without them it gets less.
func (r *request) noteUnused() {
	set := func(key string) bool { return r.cfg.Origin(key).File != "" }
	own := "profiles." + r.profile.Name + "."
	for _, list := range []struct {
		name  string
		value []string
	}{{"state_paths", r.profile.StatePaths}, {"persist", r.profile.Persist}} {
		if r.anchor.Workspace == "" && set(own+list.name) && len(list.value) > 0 {
			r.notes = append(r.notes, list.name+" has no effect in a container without a workspace: what it writes there goes with it")
		}
	}
}

// flagValues are the values that a runsc flag is given.
func flagValues(flags []string, name string) []string {
	var out []string
	for _, f := range flags {
		if n, v, ok := strings.Cut(strings.TrimLeft(f, "-"), "="); ok && n == name {
			out = append(out, v)
		}
	}
	return out
}

// ignoreCgroups reports whether runsc could not make the container's cgroup: a
// rootless engine has none delegated that runsc can use (on version 1 never, on
// version 2 runsc asks the system's systemd, which refuses).
func (s *shim) ignoreCgroups() bool {
	return s.env.Rootless || s.cmd.CgroupManager == "disabled"
}

// bringPIDFile makes sure that runsc writes its sandbox's pid somewhere: the
// coordinator reads it there when no hook has told it.
func (s *shim) bringPIDFile(stateDir string) error {
	if s.cmd.PIDFile != "" {
		p, err := filepath.Abs(s.cmd.PIDFile)
		if err != nil {
			return fmt.Errorf("pid file: %w", err)
		}
		s.cmd.PIDFile = p
		return nil
	}
	s.cmd.PIDFile = filepath.Join(stateDir, "pid")
	s.cmd.Flags = append(s.cmd.Flags, "--pid-file="+s.cmd.PIDFile)
	return nil
}

func (s *shim) startSpec(a domain.Anchor, controlDir, logLevel string) (wire.StartSpec, error) {
	client, err := layout.Helper("lazaret-escalate")
	if err != nil {
		return wire.StartSpec{}, err
	}
	return wire.StartSpec{
		Version: wire.Version, Domain: a, ControlDir: controlDir, LogLevel: logLevel,
		RuntimeDir: s.env.RuntimeDir, ClientPath: client, RealUID: s.env.UID,
		Home: s.env.Home, ConfigHome: s.env.ConfigHome, GitEnv: gitEnv(os.Environ()),
	}, nil
}

// gitSettings are the variables by which git reads what the coordinator has to tell
// it: how it finds its index true although gVisor numbers files anew in each sandbox.
// Without them the first status in a sandbox reads every file of the workspace, and
// the next one on the host does so again. Who sets configuration in this way himself keeps his own.
func gitSettings(pathDirs, env []string) []string {
	own := slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "GIT_CONFIG_COUNT=") })
	if own || !slices.Contains(pathDirs, gitDir) {
		return nil
	}
	return []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=include.path", "GIT_CONFIG_VALUE_0=" + spec.GitConfig}
}

// gitEnv is the part of an environment that git obeys.
func gitEnv(environ []string) []string {
	var out []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "GIT_") || slices.Contains([]string{"VISUAL", "EDITOR", "PAGER", "SSH_ASKPASS"}, name) {
			out = append(out, e)
		}
	}
	return out
}

// gitDir holds, in a container, a git that tells why the guard refuses.
const gitDir = spec.RunPath + "/bin"

// coordinated calls f with a connection to the domain's coordinator, once more
// with a new one each time that one turns out to be closing.
func coordinated(start wire.StartSpec, f func(*wire.Conn) error) error {
	program, err := layout.Helper("lazaret-coordinator")
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(wire.StartTimeout); ; {
		conn, err := wire.Ensure(start, program)
		if err != nil {
			return err
		}
		err = f(conn)
		var e *wire.Error
		closing := errors.As(err, &e) && e.Code == wire.CodeClosing
		// One that ends between our connect and its answer cuts the connection.
		if (closing || wire.Cut(err)) && time.Now().Before(deadline) {
			_ = conn.Close() // it is going away
			time.Sleep(2 * time.Millisecond)
			continue
		}
		return err
	}
}

// prepare announces the container. The connection's peer is this process, which
// stays alive under the same pid as runsc.
func (s *shim) prepare(start wire.StartSpec, req wire.PrepareRequest) (wire.PrepareResponse, error) {
	var res wire.PrepareResponse
	err := coordinated(start, func(c *wire.Conn) error {
		limit := prepareTimeout
		if req.Git == "branch" {
			limit = branchTimeout
		}
		if err := c.Call(wire.PathPrepare, req, &res, limit); err != nil {
			return err
		}
		return c.Close()
	})
	return res, err
}

// unknownTerminal says that the host has no description of the terminal either,
// which is no reason not to start; else "".
func (s *shim) unknownTerminal(env []string) string {
	term := terminalType(env)
	if term == "" {
		return ""
	}
	if _, err := terminfo.Find(term, os.Getenv, s.env.Home); err != nil {
		return fmt.Sprintf("terminal type %q: %v; programs in the sandbox fall back to what the image knows", term, err)
	}
	return ""
}

func terminalType(env []string) string {
	term := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "TERM="); ok {
			term = v
		}
	}
	return term
}

// installTerminfo offers the host's description of the terminal, if it has one.
func (s *shim) installTerminfo(env []string, runDir string) {
	term := terminalType(env)
	dir := filepath.Join(runDir, "terminfo")
	for _, t := range []string{term, fallbackTerm} {
		if t == "" {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, t[:1], t)); err == nil && !strings.Contains(t, "/") {
			continue
		}
		if err := terminfo.Install(dir, t, os.Getenv, s.env.Home); err != nil && t == term && !errors.Is(err, terminfo.ErrNotFound) {
			_, _ = fmt.Fprintf(s.stderr, "%s: terminal type %q: %s\n", program, oneLine(t), oneLine(err.Error()))
		}
	}
}
