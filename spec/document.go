// Package spec owns what Lazaret does to a container's config.json and to the
// process file of an exec: it reads them, rewrites them by an ordered list of
// small modifiers, and checks the result before a runtime sees it.
//
// Rewriting is a pure function of the document and a Plan. Members that nobody
// here knows keep their place and their text, so numbers never pass through a
// float and newer engines' fields survive. Rewriting twice gives what rewriting
// once gave; the traces of an earlier rewrite with other paths are replaced.
package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// MaxSize is the largest config.json or process file that is read, in bytes.
const MaxSize = 16 << 20

// Document is a config.json: raw JSON for everything, typed access to what
// Lazaret reads or changes. It is not safe for concurrent use.
type Document struct {
	top, root, linux, hooks, annotations *object // nil when absent
	process                              *process

	mounts             []mount
	prestart, poststop []hook
	namespaces         []namespace

	notes       map[string]string
	rootfs      specs.Root
	hostname    string
	domainname  string
	uidMappings []specs.LinuxIDMapping
	gidMappings []specs.LinuxIDMapping
}

// mount, hook, namespace and variable pair a value with the text it came from.
type (
	mount struct {
		specs.Mount
		given string // the engine's source, where a rewrite put another in its place
		raw   json.RawMessage
	}
	hook struct {
		specs.Hook
		raw json.RawMessage
	}
	namespace struct {
		specs.LinuxNamespace
		raw json.RawMessage
	}
	variable struct {
		text string
		raw  json.RawMessage
	}
)

// process is an OCI process object: config.json's, or an exec's whole file.
type process struct {
	obj      *object
	terminal bool
	user     specs.User
	args     []string
	cwd      string
	env      []variable
}

// Parse reads a config.json. It refuses what is not exactly one JSON object,
// values of the wrong type where Lazaret reads them, and, in the objects that it
// touches, members that occur twice or that only letter case tells from one that
// the specification defines.
func Parse(data []byte) (*Document, error) {
	d, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return d, nil
}

func parse(data []byte) (*Document, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("larger than %d bytes", MaxSize)
	}
	if err := checkJSON(data); err != nil {
		return nil, err
	}
	d := new(Document)
	var err error
	if d.top, err = parseObject(bytes.Clone(data), "the document", fieldNames[specs.Spec]()); err != nil {
		return nil, err
	}
	if raw := d.top.get("process"); raw != nil {
		if d.process, err = parseProcess(raw, "process"); err != nil {
			return nil, err
		}
	}
	if raw := d.top.get("root"); raw != nil {
		if d.root, err = parseObject(raw, "root", fieldNames[specs.Root]()); err != nil {
			return nil, err
		}
	}
	if raw := d.top.get("annotations"); raw != nil {
		if d.annotations, err = parseObject(raw, "annotations", nil); err != nil {
			return nil, err
		}
	}
	if d.mounts, err = parseList(d.top.get("mounts"), "mounts", func(raw json.RawMessage, v specs.Mount) mount {
		return mount{Mount: v, raw: raw}
	}); err != nil {
		return nil, err
	}
	for i := range d.mounts {
		m := &d.mounts[i]
		if m.given, err = givenSource(m.raw); err != nil {
			return nil, fmt.Errorf("mounts[%d]: %w", i, err)
		}
	}
	if err := d.parseHooks(); err != nil {
		return nil, err
	}
	if err := d.parseLinux(); err != nil {
		return nil, err
	}
	return d, errors.Join(
		decode(d.top.get("annotations"), "annotations", &d.notes),
		decode(d.top.get("root"), "root", &d.rootfs),
		decode(d.top.get("hostname"), "hostname", &d.hostname),
		decode(d.top.get("domainname"), "domainname", &d.domainname),
	)
}

func (d *Document) parseHooks() (err error) {
	raw := d.top.get("hooks")
	if raw == nil {
		return nil
	}
	if d.hooks, err = parseObject(raw, "hooks", fieldNames[specs.Hooks]()); err != nil {
		return err
	}
	pair := func(raw json.RawMessage, v specs.Hook) hook { return hook{v, raw} }
	if d.prestart, err = parseList(d.hooks.get("prestart"), "hooks.prestart", pair); err != nil {
		return err
	}
	d.poststop, err = parseList(d.hooks.get("poststop"), "hooks.poststop", pair)
	return err
}

func (d *Document) parseLinux() (err error) {
	raw := d.top.get("linux")
	if raw == nil {
		return nil
	}
	if d.linux, err = parseObject(raw, "linux", fieldNames[specs.Linux]()); err != nil {
		return err
	}
	d.namespaces, err = parseList(d.linux.get("namespaces"), "linux.namespaces",
		func(raw json.RawMessage, v specs.LinuxNamespace) namespace { return namespace{v, raw} })
	if err != nil {
		return err
	}
	return errors.Join(
		decode(d.linux.get("uidMappings"), "linux.uidMappings", &d.uidMappings),
		decode(d.linux.get("gidMappings"), "linux.gidMappings", &d.gidMappings),
	)
}

// parseList reads an array of objects of one type.
func parseList[V, P any](raw json.RawMessage, where string, pair func(json.RawMessage, V) P) ([]P, error) {
	all, err := parseArray(raw, where)
	if err != nil {
		return nil, err
	}
	known := fieldNames[V]()
	pairs := make([]P, 0, len(all))
	for i, raw := range all {
		at := fmt.Sprintf("%s[%d]", where, i)
		if _, err := parseObject(raw, at, known); err != nil {
			return nil, err
		}
		var v V
		if err := decode(raw, at, &v); err != nil {
			return nil, err
		}
		pairs = append(pairs, pair(raw, v))
	}
	return pairs, nil
}

func parseProcess(raw json.RawMessage, where string) (*process, error) {
	obj, err := parseObject(raw, where, fieldNames[specs.Process]())
	if err != nil {
		return nil, err
	}
	p := &process{obj: obj}
	env, err := parseArray(obj.get("env"), where+".env")
	if err != nil {
		return nil, err
	}
	for i, raw := range env {
		v := variable{raw: raw}
		if err := decode(raw, fmt.Sprintf("%s.env[%d]", where, i), &v.text); err != nil {
			return nil, err
		}
		p.env = append(p.env, v)
	}
	return p, errors.Join(
		decode(obj.get("terminal"), where+".terminal", &p.terminal),
		decode(obj.get("user"), where+".user", &p.user),
		decode(obj.get("args"), where+".args", &p.args),
		decode(obj.get("cwd"), where+".cwd", &p.cwd),
	)
}

// Bytes is the document as JSON: what Parse was given where nothing changed.
func (d *Document) Bytes() []byte {
	if d.process != nil && d.process.obj.dirty {
		d.top.set("process", d.process.obj.bytes())
	}
	for _, part := range []struct {
		name string
		obj  *object
	}{{"hooks", d.hooks}, {"annotations", d.annotations}, {"linux", d.linux}} {
		if part.obj != nil && part.obj.dirty {
			d.top.set(part.name, part.obj.bytes())
		}
	}
	return bytes.Clone(d.top.bytes())
}

// Annotations is a copy of the annotations; empty when there are none.
func (d *Document) Annotations() map[string]string {
	notes := make(map[string]string, len(d.notes))
	for k, v := range d.notes {
		notes[k] = v
	}
	return notes
}

// Env is a copy of the environment of the container's process.
func (d *Document) Env() []string {
	if d.process == nil {
		return nil
	}
	return d.process.environ()
}

func (p *process) environ() []string {
	env := make([]string, len(p.env))
	for i, v := range p.env {
		env[i] = v.text
	}
	return env
}

// Getenv is the value of the first variable called name in the environment of
// the container's process, as getenv(3) finds it.
func (d *Document) Getenv(name string) (value string, ok bool) {
	for _, entry := range d.Env() {
		if value, ok = strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Args is a copy of the arguments of the container's process.
func (d *Document) Args() []string {
	if d.process == nil {
		return nil
	}
	return slices.Clone(d.process.args)
}

// Cwd is the working directory of the container's process, in the container.
func (d *Document) Cwd() string {
	if d.process == nil {
		return ""
	}
	return d.process.cwd
}

// Terminal tells whether the container's process gets a terminal.
func (d *Document) Terminal() bool { return d.process != nil && d.process.terminal }

// UID is the user id of the container's process, in the container.
func (d *Document) UID() uint32 {
	if d.process == nil {
		return 0
	}
	return d.process.user.UID
}

// GID is the group id of the container's process, in the container.
func (d *Document) GID() uint32 {
	if d.process == nil {
		return 0
	}
	return d.process.user.GID
}

// Mounts is a copy of the mounts, in the order in which they are made.
func (d *Document) Mounts() []specs.Mount {
	all := make([]specs.Mount, len(d.mounts))
	for i, m := range d.mounts {
		all[i] = m.Mount
	}
	return all
}

// AskedMounts is Mounts with the sources that the engine named: what an earlier
// rewrite replaced them by may be gone.
func (d *Document) AskedMounts() []specs.Mount {
	all := d.Mounts()
	for i, m := range d.mounts {
		all[i].Source = m.source()
	}
	return all
}

// source is what the engine named.
func (m mount) source() string {
	if m.given != "" {
		return m.given
	}
	return m.Source
}

// givenMember of a mount keeps the engine's source where Plan.Sources replaced
// it. Runtimes skip members that they do not know.
const givenMember = "lazaretSource"

func givenSource(raw json.RawMessage) (given string, err error) {
	if !bytes.Contains(raw, []byte(givenMember)) {
		return "", nil
	}
	o, err := parseObject(raw, "the mount", []string{givenMember})
	if err != nil {
		return "", err
	}
	return given, decode(o.get(givenMember), givenMember, &given)
}

// from is the mount with another source, "" for the engine's own.
func (m mount) from(source string) (mount, error) {
	given := m.source()
	if source == "" {
		source = given
	}
	if source == m.Source {
		return m, nil
	}
	o, err := parseObject(m.raw, "the mount", nil)
	if err != nil {
		return mount{}, err
	}
	o.set("source", encode(source))
	if m.Source = source; source == given {
		m.given = ""
		o.remove(givenMember)
	} else {
		m.given = given
		o.set(givenMember, encode(given))
	}
	m.raw = o.bytes()
	return m, nil
}

// RootPath is root.path: absolute, or relative to the bundle.
func (d *Document) RootPath() string { return d.rootfs.Path }

// RootReadonly tells whether the root file system is mounted read-only.
func (d *Document) RootReadonly() bool { return d.rootfs.Readonly }

// Hostname is the host name that the container gets; empty for none.
func (d *Document) Hostname() string { return d.hostname }

// Namespaces is a copy of the namespaces that the container has of its own.
func (d *Document) Namespaces() []specs.LinuxNamespace {
	all := make([]specs.LinuxNamespace, len(d.namespaces))
	for i, n := range d.namespaces {
		all[i] = n.LinuxNamespace
	}
	return all
}

// Prestart is a copy of the hooks that run before the container's process.
func (d *Document) Prestart() []specs.Hook { return hookList(d.prestart) }

// Poststop is a copy of the hooks that run once the container is gone.
func (d *Document) Poststop() []specs.Hook { return hookList(d.poststop) }

func hookList(all []hook) []specs.Hook {
	out := make([]specs.Hook, len(all))
	for i, h := range all {
		out[i] = h.Hook
	}
	return out
}

// UIDMappings is a copy of the user ids' mapping into the container's user
// namespace; empty where it has none of its own.
func (d *Document) UIDMappings() []specs.LinuxIDMapping { return slices.Clone(d.uidMappings) }

// GIDMappings is the same for group ids.
func (d *Document) GIDMappings() []specs.LinuxIDMapping { return slices.Clone(d.gidMappings) }

// Resources names the limits that the document sets, sorted, as in
// "memory.limit" or "pids.limit": for the warning where they cannot be enforced.
// Zero, empty and null do not count, nor does the device list, which engines
// always write.
func (d *Document) Resources() []string {
	var names []string
	var groups map[string]json.RawMessage
	if json.Unmarshal(d.linux.get("resources"), &groups) != nil {
		return nil // absent
	}
	for group, raw := range groups {
		var limits map[string]json.RawMessage
		switch {
		case group == "devices" || isZero(raw):
		case json.Unmarshal(raw, &limits) != nil:
			names = append(names, group) // a list, such as hugepageLimits
		default:
			for limit, raw := range limits {
				if !isZero(raw) {
					names = append(names, group+"."+limit)
				}
			}
		}
	}
	sort.Strings(names)
	return names
}

func isZero(raw json.RawMessage) bool {
	return isNull(raw) || slices.Contains([]string{"0", `""`, "[]", "{}", "false"}, string(raw))
}

func (p *process) setEnv(env []variable) {
	p.env = env
	all := make([]json.RawMessage, len(env))
	for i, v := range env {
		all[i] = v.raw
	}
	p.obj.set("env", joinArray(all))
}

func (d *Document) setMounts(mounts []mount) {
	d.mounts = mounts
	all := make([]json.RawMessage, len(mounts))
	for i, m := range mounts {
		all[i] = m.raw
	}
	d.top.set("mounts", joinArray(all))
}

// setHooks replaces the hooks of the moment name, which list belongs to.
func (d *Document) setHooks(name string, list *[]hook, hooks []hook) {
	if len(hooks) == 0 && len(*list) == 0 {
		return
	}
	*list = hooks
	if d.hooks == nil {
		d.hooks = &object{dirty: true}
	}
	if len(hooks) == 0 {
		d.hooks.remove(name)
		return
	}
	all := make([]json.RawMessage, len(hooks))
	for i, h := range hooks {
		all[i] = h.raw
	}
	d.hooks.set(name, joinArray(all))
}

func (d *Document) setNamespaces(namespaces []namespace) {
	d.namespaces = namespaces
	if d.linux == nil {
		d.linux = &object{dirty: true}
	}
	all := make([]json.RawMessage, len(namespaces))
	for i, n := range namespaces {
		all[i] = n.raw
	}
	d.linux.set("namespaces", joinArray(all))
}

func (d *Document) dropAnnotation(name string) {
	if d.annotations != nil {
		d.annotations.remove(name)
		delete(d.notes, name)
	}
}

func newVariable(text string) variable { return variable{text, encode(text)} }

func newMount(m specs.Mount) mount { return mount{Mount: m, raw: encode(m)} }

func newHook(h specs.Hook) hook { return hook{h, encode(h)} }
