package config

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// Anchor is what the placeholders of a profile stand for. It mirrors
// internal/domain, which is a package of the same layer.
type Anchor struct {
	Hash       string // {domain_hash}
	Dir        string // {domain_dir}, the Domain Root
	Workspace  string // {workspace_dir}, canonical; "" = no workspace, then using it is an error
	ProfileDir string // {profile_dir}; "" = <data_root>/<profile>
}

// vars gives the value of a placeholder; ok is false for an unknown name.
type vars func(name string) (value string, ok bool, err error)

// exampleVars stand in where a file is checked before its domain is known.
func exampleVars(name string) (string, bool, error) {
	v, ok := map[string]string{
		"profile_name": "p", "profile_dir": "/p", "domain_hash": "000000000000",
		"domain_dir": "/d", "workspace_dir": "/w",
	}[name]
	return v, ok, nil
}

const placeholders = "{profile_name}, {profile_dir}, {domain_hash}, {domain_dir}, {workspace_dir}"

// expand replaces "~" as first character and the placeholders, each once: what
// is inserted is never looked at again. A ".." segment in the result is an error.
func expand(s, home string, v vars) (string, error) {
	var b strings.Builder
	rest := s
	if strings.HasPrefix(s, "~") {
		if s != "~" && s[1] != '/' {
			return "", fmt.Errorf("%q: only your own home can be named: write \"~/…\"", s)
		}
		if home == "" {
			return "", fmt.Errorf("%q: no home directory is known: write the path out", s)
		}
		b.WriteString(home)
		rest = s[1:]
	}
	for {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:open])
		rest = rest[open:]
		name, after, ok := placeholder(rest)
		if !ok { // a brace that cannot be a placeholder, as in JSON
			b.WriteByte('{')
			rest = rest[1:]
			continue
		}
		val, known, err := v(name)
		if err != nil {
			return "", err
		}
		if !known {
			return "", fmt.Errorf("%q: unknown placeholder {%s} (allowed: %s; environment variables are not expanded)", s, name, placeholders)
		}
		b.WriteString(val)
		rest = after
	}
	out := b.String()
	if hasDotDot(out) {
		return "", fmt.Errorf("%q: a \"..\" segment is not allowed: write the path that is meant", s)
	}
	return out, nil
}

// placeholder splits "{name}rest".
func placeholder(s string) (name, after string, ok bool) {
	end := strings.IndexByte(s, '}')
	if end < 2 {
		return "", "", false
	}
	name = s[1:end]
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-' {
			return "", "", false
		}
	}
	return name, s[end+1:], true
}

// hasDotDot looks at the segments of paths and of colon-separated lists.
func hasDotDot(s string) bool {
	return slices.Contains(strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == ':' }), "..")
}

// hostPath expands s to an absolute, clean path of the host; links stay.
func hostPath(s, home string, v vars) (string, error) {
	if err := pathText(s); err != nil {
		return "", err
	}
	out, err := expand(s, home, v)
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(out, "{}") {
		return "", fmt.Errorf("%q: braces in a path must be a placeholder (allowed: %s)", s, placeholders)
	}
	if !strings.HasPrefix(out, "/") {
		return "", fmt.Errorf("%q: must be an absolute path or begin with \"~/\"", s)
	}
	return filepath.Clean(out), nil
}

// sandboxPath expands s to an absolute, clean path inside the sandbox.
func sandboxPath(s string, v vars) (string, error) {
	if strings.HasPrefix(s, "~") {
		return "", fmt.Errorf("%q: this is a path in the sandbox, and \"~\" is your home on the host: write the path out, such as \"/root/.config\"", s)
	}
	if strings.ContainsAny(s, ":,") {
		return "", fmt.Errorf("%q: \":\" and \",\" cannot be in a path of the sandbox, as mount options are split there", s)
	}
	return hostPath(s, "", v)
}

// workspacePath expands s to a path relative to the workspace, or to an
// absolute one inside the sandbox.
func workspacePath(s, workspace string, v vars) (string, error) {
	if strings.HasPrefix(s, "/") {
		return sandboxPath(s, v)
	}
	if err := pathText(s); err != nil {
		return "", err
	}
	if strings.HasPrefix(s, "~") {
		return "", fmt.Errorf("%q: must be relative to the workspace, or an absolute path in the sandbox", s)
	}
	out, err := expand(s, "", v)
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(out, "{}") {
		return "", fmt.Errorf("%q: braces in a path must be a placeholder (allowed: %s)", s, placeholders)
	}
	out = path.Clean(out)
	if workspace != "" && path.IsAbs(out) && within(out, workspace) {
		out = path.Clean(strings.TrimPrefix(strings.TrimPrefix(out, workspace), "/"))
	}
	if out == "." {
		return "", fmt.Errorf("%q: is the workspace itself: name something in it", s)
	}
	return out, nil
}

func pathText(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("%q holds a control character", s)
		}
	}
	return nil
}

func parseVolume(s string) (Volume, error) {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return Volume{}, fmt.Errorf("%q is not HOSTPATH:SANDBOXPATH[:OPTIONS]", s)
	}
	vol := Volume{Source: parts[0], Target: parts[1]}
	if len(parts) == 3 {
		vol.Options = strings.Split(parts[2], ",")
	}
	return vol, nil
}

func (v Volume) resolve(home string, vs vars) (Volume, error) {
	src, err := hostPath(v.Source, home, vs)
	if err != nil {
		return Volume{}, err
	}
	dst, err := sandboxPath(v.Target, vs)
	if err != nil {
		return Volume{}, err
	}
	for _, sys := range []string{"/proc", "/sys", "/dev", "/run/lazaret"} {
		if within(dst, sys) {
			return Volume{}, fmt.Errorf("%q: nothing can be mounted over %s", v.Target, sys)
		}
	}
	if dst == "/" || dst == "/workspace" {
		return Volume{}, fmt.Errorf("%q: %s belongs to the sandbox itself: mount below it, or elsewhere", v.Target, dst)
	}
	return Volume{Source: src, Target: dst, Options: slices.Clone(v.Options)}, nil
}

// Resolve returns a copy of p for one domain: every string expanded, host paths
// canonical, sandbox paths clean. Nothing else of p changes. It touches the
// host's file system only to resolve links.
func (c *Config) Resolve(p *Profile, a Anchor) (*Profile, error) {
	profileDir := a.ProfileDir
	if profileDir == "" {
		profileDir = filepath.Join(c.General.DataRoot, p.Name)
	}
	v := func(name string) (string, bool, error) {
		val, ok := map[string]string{
			"profile_name": p.Name, "profile_dir": profileDir, "domain_hash": a.Hash,
			"domain_dir": a.Dir, "workspace_dir": a.Workspace,
		}[name]
		if ok && val == "" {
			return "", true, fmt.Errorf("{%s} has no value here: this sandbox has no %s", name, strings.TrimSuffix(name, "_dir"))
		}
		return val, ok, nil
	}
	r := &resolver{c: c, profile: p.Name, vars: v}
	out := *p
	out.PassEnv = slices.Clone(p.PassEnv)
	out.Network.Allow = slices.Clone(p.Network.Allow)
	out.Network.Deny = slices.Clone(p.Network.Deny)
	free := func(s string) (string, error) { return expand(s, c.home, v) }
	inSandbox := func(s string) (string, error) { return sandboxPath(s, v) }
	inWorkspace := func(s string) (string, error) { return workspacePath(s, a.Workspace, v) }
	out.Image = r.one("image", p.Image, free)
	out.Command = r.list("command", p.Command, free)
	out.Persist = r.list("persist", p.Persist, inSandbox)
	out.StatePaths = r.list("state_paths", p.StatePaths, inSandbox)
	out.Masks = r.list("masks", p.Masks, inWorkspace)
	out.ReadOnly = r.list("read_only", p.ReadOnly, inWorkspace)
	out.Env = make(map[string]string, len(p.Env))
	for name, val := range p.Env {
		out.Env[name] = r.one("env."+name, val, free)
	}
	out.Volumes = make([]Volume, 0, len(p.Volumes))
	for _, vol := range p.Volumes {
		res, err := vol.resolve(c.home, v)
		if err == nil {
			res.Source, err = Canonical(res.Source)
		}
		r.keep("volumes", err)
		out.Volumes = append(out.Volumes, res)
	}
	if p.Escalation.SocketDir != "" {
		dir, err := hostPath(p.Escalation.SocketDir, c.home, v)
		if err == nil {
			dir, err = Canonical(dir)
		}
		r.keepKey("escalation.socket_dir", err)
		out.Escalation.SocketDir = dir
	}
	if r.err != nil {
		return nil, r.err
	}
	return &out, nil
}

// resolver keeps the first error, with the origin of the value at fault.
type resolver struct {
	c       *Config
	profile string
	vars    vars
	err     error
}

func (r *resolver) keep(key string, err error) { r.keepKey("profiles."+r.profile+"."+key, err) }

func (r *resolver) keepKey(key string, err error) {
	if err == nil || r.err != nil {
		return
	}
	o := r.c.Origin(key)
	r.err = &Error{File: o.File, Line: o.Line, Key: key, Why: err.Error()}
	if o.File == "" {
		r.err = fmt.Errorf("key %q: %w", key, err)
	}
}

func (r *resolver) one(key, s string, f func(string) (string, error)) string {
	out, err := f(s)
	r.keep(key, err)
	return out
}

func (r *resolver) list(key string, in []string, f func(string) (string, error)) []string {
	out := make([]string, 0, len(in))
	for _, s := range in {
		out = append(out, r.one(key, s, f))
	}
	return out
}
