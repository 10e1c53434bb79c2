// Package podmanconf owns what Lazaret has to know of podman's own
// configuration: its version, which containers.conf files it reads in which
// order, and what they make of the keys that name OCI runtimes.
//
// The order and the built-in lists are those of github.com/containers/common
// as podman 4.0 to 5.x vendor it; podman 4.3.1's were also seen in its trace log.
package podmanconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Version of podman. The zero value stands for an unknown one.
type Version struct{ Major, Minor, Patch int }

var versionForm = regexp.MustCompile(`^(?:podman version )?v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?([-+~].*)?$`)

// ParseVersion reads "4.3.1" or what podman --version prints. What follows the
// numbers (-rc1, -rhel, +ds1) is accepted and dropped.
func ParseVersion(s string) (Version, error) {
	m := versionForm.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return Version{}, fmt.Errorf("podman version %q: want a version such as 4.3.1", s)
	}
	var v Version
	for i, p := range []*int{&v.Major, &v.Minor, &v.Patch} {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.Atoi(m[i+1])
		if err != nil {
			return Version{}, fmt.Errorf("podman version %q: %w", s, err)
		}
		*p = n
	}
	return v, nil
}

// Known tells whether v is not the zero value.
func (v Version) Known() bool { return v != Version{} }

// AtLeast compares with major.minor. An unknown version is at least nothing.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// Appends tells whether podman understands {append=true} in lists (containers/common
// 0.57). An older one refuses the whole file, and with it every command.
func (v Version) Appends() bool { return v.AtLeast(4, 8) }

func (v Version) String() string {
	if !v.Known() {
		return "unknown"
	}
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
}

// Layout says where podman's configuration lies.
type Layout struct {
	Root       string              // put before the system's paths; "" for none
	ConfigHome string              // the user's XDG configuration directory; "" for a podman run by root
	Getenv     func(string) string // nil for no environment
}

// SystemDropins is the containers.conf.d directory for all users.
func (l Layout) SystemDropins() string {
	return l.Root + "/etc/containers/containers.conf.d"
}

// UserDropins is the user's containers.conf.d directory; "" without ConfigHome.
func (l Layout) UserDropins() string {
	if l.ConfigHome == "" {
		return ""
	}
	return filepath.Join(l.ConfigHome, "containers", "containers.conf.d")
}

// Override returns the file that CONTAINERS_CONF makes podman read in place of
// all others, else "".
func (l Layout) Override() string {
	if l.Getenv == nil {
		return ""
	}
	return l.Getenv("CONTAINERS_CONF")
}

// Files lists the files that podman reads, first to last: each is laid over the
// ones before. Those that do not exist are left out, but with is always
// listed, at its place, when it is a drop-in that podman would read.
func (l Layout) Files(with string) ([]string, error) {
	if o := l.Override(); o != "" {
		return []string{o}, nil
	}
	var files []string
	add := func(path string) error {
		switch _, err := os.Stat(path); {
		case err == nil:
			files = append(files, path)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("podman's configuration: %w", err)
		}
		return nil
	}
	if err := add(l.Root + "/usr/share/containers/containers.conf"); err != nil {
		return nil, err
	}
	dirs := []string{l.SystemDropins()}
	if u := l.UserDropins(); u != "" {
		dirs = append(dirs, u)
	}
	for _, dir := range dirs {
		if err := add(strings.TrimSuffix(dir, ".d")); err != nil {
			return nil, err
		}
		dropins, err := dropins(dir, with)
		if err != nil {
			return nil, err
		}
		files = append(files, dropins...)
	}
	return files, nil
}

func dropins(dir, with string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("podman's configuration: %w", err)
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ".conf") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if filepath.Dir(with) == dir && strings.HasSuffix(with, ".conf") && !slices.Contains(files, with) {
		files = append(files, with)
	}
	slices.Sort(files)
	return files, nil
}

// Engine is what the files make of the keys about runtimes.
type Engine struct {
	Runtimes      map[string][]string // [engine.runtimes]: candidate paths by name
	JSON          []string            // runtime_supports_json
	NoCgroups     []string            // runtime_supports_nocgroup
	RuntimesFrom  map[string]string   // file that set each name last
	JSONFrom      string              // file that set or added to JSON last; "" for podman itself
	NoCgroupsFrom string              // likewise

	jsonAppend, nocgroupsAppend bool // podman keeps appending once a file has asked for it
}

// Defaults are podman's built-in lists, without its table of runtimes. For an
// unknown version they are the newest: a name too many does no harm.
func Defaults(v Version) Engine {
	e := Engine{
		Runtimes:     map[string][]string{},
		RuntimesFrom: map[string]string{},
		JSON:         []string{"crun", "runc", "kata", "runsc", "krun"},
		NoCgroups:    []string{"crun", "krun"},
	}
	if !v.Known() || v.AtLeast(4, 4) {
		e.JSON = []string{"crun", "runc", "kata", "runsc", "youki", "krun"}
	}
	if !v.Known() || v.AtLeast(4, 7) {
		e.JSON = append(e.JSON, "ocijail")
	}
	return e
}

// Load lays files over podman's defaults as podman of version v does. A file
// that podman of that version could not read is an error.
func Load(files []string, v Version) (Engine, error) {
	e := Defaults(v)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Engine{}, fmt.Errorf("podman's configuration: %w", err)
		}
		if err := e.merge(f, data, v); err != nil {
			return Engine{}, fmt.Errorf("podman's configuration: %s: %w", f, err)
		}
	}
	return e, nil
}

func (e *Engine) merge(file string, data []byte, v Version) error {
	var c struct {
		Engine struct {
			Runtimes  map[string][]string `toml:"runtimes"`
			JSON      []any               `toml:"runtime_supports_json"`
			NoCgroups []any               `toml:"runtime_supports_nocgroup"`
		} `toml:"engine"`
	}
	if _, err := toml.Decode(string(data), &c); err != nil {
		return err
	}
	for name, paths := range c.Engine.Runtimes {
		e.Runtimes[name] = paths
		e.RuntimesFrom[name] = file
	}
	set, err := lay(&e.JSON, c.Engine.JSON, &e.jsonAppend, v)
	if err != nil {
		return fmt.Errorf("runtime_supports_json: %w", err)
	}
	if set {
		e.JSONFrom = file
	}
	if set, err = lay(&e.NoCgroups, c.Engine.NoCgroups, &e.nocgroupsAppend, v); err != nil {
		return fmt.Errorf("runtime_supports_nocgroup: %w", err)
	}
	if set {
		e.NoCgroupsFrom = file
	}
	return nil
}

// lay puts one file's list over dst; nil means that the file has no such key.
func lay(dst *[]string, list []any, add *bool, v Version) (bool, error) {
	if list == nil {
		return false, nil
	}
	names := []string{}
	for _, item := range list {
		switch item := item.(type) {
		case string:
			names = append(names, item)
		case map[string]any:
			b, ok := item["append"].(bool)
			if !ok || len(item) != 1 {
				return false, fmt.Errorf("unknown attribute %v", item)
			}
			if v.Known() && !v.Appends() {
				return false, fmt.Errorf("podman %s cannot read {append=…}, it came with 4.8", v)
			}
			*add = b
		default:
			return false, fmt.Errorf("want strings, found %v", item)
		}
	}
	if *add {
		names = slices.Concat(*dst, names)
	}
	*dst = names
	return true, nil
}

// Problems tells what keeps podman from using the runtime of that name in full.
// path is the wanted path of its program, or "" for any.
func (e Engine) Problems(name, path string) []string {
	paths, ok := e.Runtimes[name]
	if !ok {
		return []string{"podman knows no runtime named " + name}
	}
	var p []string
	if path != "" && !slices.Contains(paths, path) {
		p = append(p, fmt.Sprintf("%s names %s as runtime %s, not %s", e.RuntimesFrom[name], strings.Join(paths, ", "), name, path))
	}
	for _, l := range []struct {
		key, from string
		names     []string
	}{
		{"runtime_supports_json", e.JSONFrom, e.JSON},
		{"runtime_supports_nocgroup", e.NoCgroupsFrom, e.NoCgroups},
	} {
		if slices.Contains(l.names, name) {
			continue
		}
		if l.from == "" {
			p = append(p, fmt.Sprintf("no file sets %s to a list with %s", l.key, name))
		} else {
			p = append(p, fmt.Sprintf("%s sets %s without %s: add it there", l.from, l.key, name))
		}
	}
	return p
}
