// Package config owns Lazaret's configuration: reading the three layers, telling
// every fault with file, line and key, holding the workspace's file to what only
// tightens, and expanding the strings of a profile for one domain.
//
// The layers, weakest first: built-in defaults, the user's config.toml, the
// workspace's lazaret.toml, the file of --config. A later layer replaces scalars
// and whole lists; env is merged variable by variable. The workspace's file is
// the agent's to write: see tighten.go for what it may do untrusted.
//
// The package is linked into the runtime that the engine starts five times for
// each container, so it stays lean: the TOML library and nothing else.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lazaret-dev/lazaret/internal/spell"
)

// WorkspaceFile is the name of the workspace's own file, directly in it.
const WorkspaceFile = "lazaret.toml"

// DefaultProfile is the profile that always exists.
const DefaultProfile = "default"

// Options say where the layers are.
type Options struct {
	Home       string // the real user's home; "" = unknown, then "~" cannot be used
	DataHome   string // XDG_DATA_HOME if absolute, else ""
	ConfigHome string // XDG_CONFIG_HOME if absolute, else ""; with neither this nor Home there is no user file
	Workspace  string // canonical workspace, "" = none
	File       string // the file of --config, "" = none; it must exist
	SystemWide bool   // the effective user is the real root
}

// Config is the effective configuration. It is not changed after Load.
type Config struct {
	General    General
	Runtime    Runtime
	Escalation Escalation
	Layers     []Layer // in the order of their weight

	home  string
	trust string // path of the trust store, "" = none
	set   *settings
}

// General is [general]; its paths are absolute, expanded and canonical.
type General struct {
	DataRoot       string
	DefaultProfile string // always one that Profile knows
	ControlDir     string
	LogLevel       string // debug, info, warn or error
}

// Runtime is [runtime].
type Runtime struct {
	Sandbox  string // program that runs the Agent Sandbox: a name for fixedpath.Look, or an absolute path
	Sidecar  string // likewise for the Network Sidecar
	Platform string // runsc's --platform, "" = runsc's own choice
	Args     []string
}

// Escalation is [escalation]; in a Profile it is what holds for that profile.
type Escalation struct {
	Enabled     bool
	SocketDir   string        // "" = Lazaret's choice; expanded by Resolve only
	AutoApprove [][]string    // argv prefixes
	Timeout     time.Duration // how long a request waits for an answer
}

// Profile is one [profiles.<name>]. As Config.Profile returns it the strings are
// as written; Config.Resolve expands them.
type Profile struct {
	Name                string
	Image               string // "" = none configured
	Command             []string
	Env                 map[string]string
	PassEnv             []string
	Volumes             []Volume
	Persist             []string // directories in the sandbox
	StatePaths          []string // directories in the sandbox
	StateDriver         string   // auto, overlay or fuse-overlayfs
	Git                 string   // sentry, branch or off
	Masks               []string // relative to the workspace, or absolute in the sandbox
	ReadOnly            []string // likewise
	AllowBroadWorkspace bool     // $HOME, / and the like may be the workspace
	Network             Network
	Escalation          Escalation
}

// Volume is a bind mount of a profile.
type Volume struct {
	Source  string // host path
	Target  string // path in the sandbox
	Options []string
}

// String is the spelling of the configuration file.
func (v Volume) String() string {
	s := v.Source + ":" + v.Target
	if len(v.Options) > 0 {
		s += ":" + strings.Join(v.Options, ",")
	}
	return s
}

// Network is [profiles.<name>.network]; entries of the lists parse with netrule.Parse.
type Network struct {
	Mode  string // filtered, learn, none or open
	Allow []string
	Deny  []string
	// Inbound lets connections to published ports reach the sandbox.
	Inbound bool
}

// Role is a layer's place in the order.
type Role string

// The roles, weakest first.
const (
	RoleUser      Role = "user"
	RoleWorkspace Role = "workspace"
	RoleFile      Role = "--config"
)

// Layer is one file that was looked for.
type Layer struct {
	Role   Role   `json:"role"`
	Path   string `json:"path"`
	Found  bool   `json:"found"`
	SHA256 string `json:"sha256,omitempty"` // of the bytes that were used
	Trust  Trust  `json:"trust,omitempty"`  // only where the agent can write the file
}

// Trust is what the trust store says of a file that the agent can write.
type Trust string

// The states of trust.
const (
	Untrusted Trust = "untrusted" // never trusted: it may only tighten
	Trusted   Trust = "trusted"   // this very content is trusted
	Changed   Trust = "changed"   // another content was trusted: it may only tighten
)

// settings are values by dotted key, above the built-in defaults.
type settings struct {
	values   map[string]value
	profiles map[string]Origin
	defaults map[string]any // profile keys as "profiles.*.git"
}

func builtin(o Options) *settings {
	dataRoot := ""
	switch {
	case o.SystemWide:
		dataRoot = "/var/lib/lazaret"
	case o.DataHome != "":
		dataRoot = filepath.Join(o.DataHome, "lazaret")
	case o.Home != "":
		dataRoot = filepath.Join(o.Home, ".local/share/lazaret")
	}
	return &settings{
		values:   map[string]value{},
		profiles: map[string]Origin{DefaultProfile: {}},
		defaults: map[string]any{
			"general.data_root":       dataRoot,
			"general.default_profile": DefaultProfile,
			"general.control_dir":     "/tmp",
			"general.log_level":       "info",
			"runtime.sandbox":         "runsc",
			"runtime.sidecar":         "runc",
			"runtime.platform":        "",
			"runtime.args":            []string{},
			"escalation.enabled":      true,
			"escalation.socket_dir":   "",
			"escalation.auto_approve": [][]string{},
			"escalation.timeout":      5 * time.Minute,

			"profiles.*.image":                   "",
			"profiles.*.command":                 []string{},
			"profiles.*.pass_env":                []string{},
			"profiles.*.volumes":                 []string{},
			"profiles.*.persist":                 []string{},
			"profiles.*.state_paths":             []string{"/usr", "/etc", "/var/lib", "/opt"},
			"profiles.*.state_driver":            "auto",
			"profiles.*.git":                     "sentry",
			"profiles.*.masks":                   []string{".vscode", ".idea"},
			"profiles.*.read_only":               []string{},
			"profiles.*.allow_broad_workspace":   false,
			"profiles.*.network.mode":            "filtered",
			"profiles.*.network.inbound":         false,
			"profiles.*.network.allow":           []string{},
			"profiles.*.network.deny":            []string{},
			"profiles.*.escalation.auto_approve": nil, // unset: [escalation] auto_approve holds
		},
	}
}

// splitProfile takes "profiles.NAME.rest" apart; ok is false for other keys.
func splitProfile(key string) (name, rest string, ok bool) {
	s, ok := strings.CutPrefix(key, "profiles.")
	if !ok {
		return "", "", false
	}
	return strings.Cut(s, ".")
}

// get returns the value of key, or its default.
func (s *settings) get(key string) value {
	if v, ok := s.values[key]; ok {
		return v
	}
	if _, rest, ok := splitProfile(key); ok {
		return value{s.defaults["profiles.*."+rest], []Origin{{}}}
	}
	return value{s.defaults[key], []Origin{{}}}
}

func (s *settings) isSet(key string) bool { _, ok := s.values[key]; return ok }

func get[T any](s *settings, key string) T {
	v, _ := s.get(key).v.(T) // absent and nil give the zero value
	return v
}

// autoApprove is what holds for a profile: its own list if it has one.
func (s *settings) autoApprove(profile string) [][]string {
	if key := "profiles." + profile + ".escalation.auto_approve"; s.isSet(key) {
		return get[[][]string](s, key)
	}
	return get[[][]string](s, "escalation.auto_approve")
}

// with returns s below l; s is not changed. Under the untrusted rule the lists
// that only take away from the agent are added to, instead of replaced.
func (s *settings) with(l *layer, untrusted bool) *settings {
	out := &settings{values: maps.Clone(s.values), profiles: maps.Clone(s.profiles), defaults: s.defaults}
	if l == nil {
		return out
	}
	for name, o := range l.profiles {
		if _, ok := out.profiles[name]; !ok {
			out.profiles[name] = o
		}
	}
	for key, v := range l.values {
		if add, ok := v.v.([]string); ok && untrusted && len(add) > 0 && isRestriction(key) {
			old := s.get(key)
			list := slices.Clone(old.v.([]string))
			for _, e := range add {
				if !slices.Contains(list, e) {
					list = append(list, e)
				}
			}
			v = value{list, append(slices.Clone(old.origins), v.origins...)}
		}
		out.values[key] = v
	}
	return out
}

// Load reads the layers and returns the effective configuration. Faults of the
// files come as Errors. The workspace's file is read exactly once: what is
// checked against the trust store and the tighten-only rule is what is used.
func Load(o Options) (*Config, error) {
	ls, err := readLayers(o)
	if err != nil {
		return nil, err
	}
	store := trustStore(o, ls.user)
	base := builtin(o).with(ls.user, false)
	if err := ls.checkFile(o, store); err != nil {
		return nil, err
	}
	set := base.with(ls.file, false)
	if ls.workspace != nil {
		state, err := store.state(ls.workspacePath, ls.workspace.sum)
		if err != nil {
			return nil, fmt.Errorf("is %s trusted? %w", printable(ls.workspacePath), err)
		}
		ls.entries[ls.workspaceEntry].Trust = state
		without := set
		set = base.with(ls.workspace, state != Trusted).with(ls.file, false)
		if state != Trusted {
			if errs := refuse(loosened(without, set, ls.workspacePath), state, o.Workspace); len(errs) > 0 {
				return nil, errs
			}
		}
	}
	c, err := finish(o, set, ls.entries)
	if err != nil {
		return nil, err
	}
	c.trust = store.path
	return c, nil
}

// GuardedPaths lists the files that decide what the agent may do, existing or
// not. Those that lie in what the sandbox sees must be read-only there.
func (c *Config) GuardedPaths() []string {
	var out []string
	for _, l := range c.Layers {
		out = append(out, l.Path)
	}
	if c.trust != "" {
		out = append(out, c.trust)
	}
	return out
}

// layers are the parsed files; a nil one was not there.
type layers struct {
	user, workspace, file *layer
	workspacePath         string
	filePath              string
	entries               []Layer
	workspaceEntry        int
	fileEntry             int
}

func readLayers(o Options) (*layers, error) {
	ls := &layers{}
	var errs Errors
	read := func(role Role, path string, must bool) (*layer, int, error) {
		l, err := readLayer(path, o.Home, role == RoleWorkspace)
		var faults Errors
		switch {
		case errors.As(err, &faults):
			errs = append(errs, faults...)
		case errors.Is(err, fs.ErrNotExist) && !must:
		case err != nil:
			return nil, 0, err
		}
		entry := Layer{Role: role, Path: path, Found: l != nil}
		if l != nil {
			entry.SHA256 = l.sum
		}
		ls.entries = append(ls.entries, entry)
		return l, len(ls.entries) - 1, nil
	}
	var err error
	if path := UserFile(o); path != "" {
		if ls.user, _, err = read(RoleUser, path, false); err != nil {
			return nil, err
		}
	}
	if o.Workspace != "" {
		if !filepath.IsAbs(o.Workspace) {
			return nil, fmt.Errorf("workspace %q is not an absolute path", o.Workspace)
		}
		ls.workspacePath = filepath.Join(o.Workspace, WorkspaceFile)
		if ls.workspace, ls.workspaceEntry, err = read(RoleWorkspace, ls.workspacePath, false); err != nil {
			return nil, err
		}
	}
	if o.File != "" {
		if ls.filePath, err = absolute(o.File); err != nil {
			return nil, err
		}
		if ls.file, ls.fileEntry, err = read(RoleFile, ls.filePath, true); err != nil {
			return nil, err
		}
	}
	return ls, errs.orNil()
}

// absolute prepends the working directory without cleaning: the kernel follows
// links before it takes "..".
func absolute(path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", path, err)
	}
	return strings.TrimSuffix(wd, "/") + "/" + strings.TrimPrefix(path, "./"), nil
}

// readLayer reads and parses one file. An absent one is an error that matches
// fs.ErrNotExist; faults of the content are Errors.
func readLayer(path, home string, noFollow bool) (*layer, error) {
	data, err := readFile(path, noFollow)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", printable(path), fs.ErrNotExist)
	}
	if err != nil {
		return nil, Errors{{File: path, Why: err.Error()}}
	}
	l, errs := parseLayer(path, home, data)
	if len(errs) > 0 {
		return nil, errs
	}
	return l, nil
}

// UserFile is the path of the user's file, "" if no home is known.
func UserFile(o Options) string {
	switch {
	case o.ConfigHome != "":
		return filepath.Join(o.ConfigHome, "lazaret/config.toml")
	case o.Home != "":
		return filepath.Join(o.Home, ".config/lazaret/config.toml")
	}
	return ""
}

// CheckFile reports the faults of one file by itself, as Errors.
func CheckFile(path, home string) error {
	_, err := readLayer(path, home, false)
	return err
}

// checkFile refuses a --config file that the agent can write, or that a link in
// the workspace leads to, unless its content is trusted.
func (ls *layers) checkFile(o Options, store *TrustStore) error {
	if ls.file == nil || o.Workspace == "" {
		return nil
	}
	inside, err := passesThrough(ls.filePath, o.Workspace)
	if err != nil || !inside {
		return err
	}
	state := Untrusted
	// A link in the workspace has no content of its own that could be trusted.
	if real, err := filepath.EvalSymlinks(ls.filePath); err == nil && within(real, o.Workspace) {
		if state, err = store.state(real, ls.file.sum); err != nil {
			return fmt.Errorf("is %s trusted? %w", printable(real), err)
		}
	}
	ls.entries[ls.fileEntry].Trust = state
	switch state {
	case Trusted:
		return nil
	case Changed:
		return Errors{{File: ls.filePath, Why: "lies in the workspace, where the agent can write it, and has changed since it was trusted: read it, then run: lazaret trust " + ls.filePath}}
	default:
		return Errors{{File: ls.filePath, Why: "lies in the workspace, where the agent can write it: move it out, or read it and then run: lazaret trust " + ls.filePath}}
	}
}

// finish makes the typed configuration.
func finish(o Options, set *settings, entries []Layer) (*Config, error) {
	c := &Config{home: o.Home, set: set, Layers: entries}
	var errs Errors
	dir := func(key string) string {
		v := set.get(key)
		s, _ := v.v.(string)
		if s == "" {
			errs = append(errs, &Error{File: "configuration", Key: key, Why: "no home directory is known: set it in the file of --config"})
			return ""
		}
		p, err := hostPath(s, o.Home, noVarsHere)
		if err == nil {
			p, err = Canonical(p)
		}
		if err != nil {
			o := v.origins[0]
			if o.File == "" {
				o.File = "built-in default"
			}
			errs = append(errs, &Error{File: o.File, Line: o.Line, Key: key, Why: err.Error()})
		}
		return p
	}
	c.General = General{
		DataRoot:       dir("general.data_root"),
		DefaultProfile: get[string](set, "general.default_profile"),
		ControlDir:     dir("general.control_dir"),
		LogLevel:       get[string](set, "general.log_level"),
	}
	c.Runtime = Runtime{
		Sandbox:  c.program("runtime.sandbox"),
		Sidecar:  c.program("runtime.sidecar"),
		Platform: get[string](set, "runtime.platform"),
		Args:     slices.Clone(get[[]string](set, "runtime.args")),
	}
	c.Escalation = Escalation{
		Enabled:     get[bool](set, "escalation.enabled"),
		SocketDir:   get[string](set, "escalation.socket_dir"),
		AutoApprove: cloneArgvs(get[[][]string](set, "escalation.auto_approve")),
		Timeout:     get[time.Duration](set, "escalation.timeout"),
	}
	if _, ok := set.profiles[c.General.DefaultProfile]; !ok {
		at := set.get("general.default_profile").origins[0]
		errs = append(errs, &Error{
			File: at.File, Line: at.Line, Key: "general.default_profile",
			Why:     fmt.Sprintf("no profile %q is configured", c.General.DefaultProfile),
			Allowed: strings.Join(c.Profiles(), ", "), Nearest: spell.Nearest(c.General.DefaultProfile, c.Profiles()),
		})
	}
	if err := errs.orNil(); err != nil {
		return nil, err
	}
	return c, nil
}

// program expands "~"; a bare name stays for fixedpath.Look.
func (c *Config) program(key string) string {
	s := get[string](c.set, key)
	if rest, ok := strings.CutPrefix(s, "~/"); ok && c.home != "" {
		return filepath.Join(c.home, rest)
	}
	return s
}

func cloneArgvs(in [][]string) [][]string {
	out := make([][]string, len(in))
	for i, a := range in {
		out[i] = slices.Clone(a)
	}
	return out
}

// Profiles lists the names of all profiles, sorted; "default" is always there.
func (c *Config) Profiles() []string {
	return slices.Sorted(maps.Keys(c.set.profiles))
}

// Profile returns the profile of that name with its strings as written. What it
// does not set has the built-in default: profiles do not inherit from each other.
func (c *Config) Profile(name string) (*Profile, error) {
	if _, ok := c.set.profiles[name]; !ok {
		msg := fmt.Sprintf("unknown profile %q (known: %s", printable(name), strings.Join(c.Profiles(), ", "))
		if n := spell.Nearest(name, c.Profiles()); n != "" {
			msg += fmt.Sprintf("; did you mean %q?", n)
		}
		return nil, errors.New(msg + ")")
	}
	key := func(k string) string { return "profiles." + name + "." + k }
	list := func(k string) []string { return slices.Clone(get[[]string](c.set, key(k))) }
	p := &Profile{
		Name:                name,
		Image:               get[string](c.set, key("image")),
		Command:             list("command"),
		Env:                 map[string]string{},
		PassEnv:             list("pass_env"),
		Persist:             list("persist"),
		StatePaths:          list("state_paths"),
		StateDriver:         get[string](c.set, key("state_driver")),
		Git:                 get[string](c.set, key("git")),
		Masks:               list("masks"),
		ReadOnly:            list("read_only"),
		AllowBroadWorkspace: get[bool](c.set, key("allow_broad_workspace")),
		Network: Network{
			Mode:  get[string](c.set, key("network.mode")),
			Allow: list("network.allow"),
			Deny:  list("network.deny"),

			Inbound: get[bool](c.set, key("network.inbound")),
		},
		Escalation: c.Escalation,
	}
	p.Escalation.AutoApprove = cloneArgvs(c.set.autoApprove(name))
	for k, v := range c.set.values {
		if env, ok := strings.CutPrefix(k, key("env.")); ok {
			p.Env[env], _ = v.v.(string)
		}
	}
	for _, s := range get[[]string](c.set, key("volumes")) {
		vol, err := parseVolume(s)
		if err != nil { // the layer's check let it pass
			return nil, fmt.Errorf("profile %s: volume: %w", name, err)
		}
		p.Volumes = append(p.Volumes, vol)
	}
	return p, nil
}

// Value is one effective setting, for people.
type Value struct {
	Key     string
	Value   any // string, bool, []string or [][]string
	Origins []Origin
}

// Values lists every effective setting in the order of the documentation, of
// one profile or, with "", of all. Paths of [general] are the resolved ones.
func (c *Config) Values(profile string) []Value {
	var out []Value
	add := func(key string, v value) {
		if d, ok := v.v.(time.Duration); ok {
			v.v = d.String()
		}
		switch key {
		case "general.data_root":
			v.v = c.General.DataRoot
		case "general.control_dir":
			v.v = c.General.ControlDir
		}
		if v.v != nil {
			out = append(out, Value{key, v.v, v.origins})
		}
	}
	var walk func(prefix string, t *table)
	walk = func(prefix string, t *table) {
		for _, f := range t.fields {
			if f.kind != kindEnv {
				add(prefix+f.name, c.set.get(prefix+f.name))
				continue
			}
			var names []string
			for k := range c.set.values {
				if strings.HasPrefix(k, prefix+f.name+".") {
					names = append(names, k)
				}
			}
			sort.Strings(names)
			for _, k := range names {
				add(k, c.set.values[k])
			}
		}
		for _, s := range t.tables {
			walk(prefix+s.name+".", s.table)
		}
		if t.each != nil {
			for _, name := range c.Profiles() {
				if profile == "" || profile == name {
					walk(prefix+name+".", t.each)
				}
			}
		}
	}
	walk("", schema(c.home))
	return out
}

// Origin tells who set the value of a dotted key last.
func (c *Config) Origin(key string) Origin {
	o := c.set.get(key).origins
	return o[len(o)-1]
}
