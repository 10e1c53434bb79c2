// Package images owns what the agent images are made of: their Containerfiles,
// and the pins, which say in which versions.
package images

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Names of images. Base is below those that Names lists.
const (
	Prefix = "localhost/lazaret/"
	Base   = Prefix + "base"
	Debian = Prefix + "debian" // made by debootstrap; its tag is the suite
)

// Bootstrap in the place of a base image's name has Debian made by debootstrap.
const Bootstrap = "debootstrap"

//go:embed *.Containerfile pins.toml debian.sh
var files embed.FS

// Pins are the choices that images are made by.
type Pins struct {
	Base     string `toml:"base"`     // image, or Bootstrap
	Suite    string `toml:"suite"`    // release of Debian for debootstrap
	Mirror   string `toml:"mirror"`   // of Debian; "" is debootstrap's choice
	CA       string `toml:"ca"`       // absolute path of PEM certificates; "" for none
	Registry string `toml:"registry"` // of npm's packages: a URL without a slash at its end
	// Npm has the package of each image that is made of one.
	Npm map[string]Package `toml:"npm"`
}

// Package is one version of a package of npm's, written name@version.
type Package struct{ Name, Version string }

func (p Package) String() string { return p.Name + "@" + p.Version }

// MarshalText writes name@version.
func (p Package) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads name@version, where version is a whole one, no range or tag.
func (p *Package) UnmarshalText(text []byte) error {
	s := string(text)
	i := strings.LastIndexByte(s, '@')
	if i < 1 {
		return fmt.Errorf("package %q: want name@version", s)
	}
	q := Package{s[:i], s[i+1:]}
	if !packageName().MatchString(q.Name) {
		return fmt.Errorf("package %q: %q is not the name of a package", s, q.Name)
	}
	if err := CheckVersion(q.Version); err != nil {
		return fmt.Errorf("package %q: %w", s, err)
	}
	*p = q
	return nil
}

func packageName() *regexp.Regexp {
	return regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$`)
}

// CheckVersion tells whether v is one whole version, such as 1.2.3 or 1.2.3-rc.1.
func CheckVersion(v string) error {
	if len(v) > 100 || !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(v) {
		return fmt.Errorf("%.100q is not one version, such as 1.2.3", v)
	}
	return nil
}

// Default are the pins of this Lazaret.
func Default() (Pins, error) {
	return decode(Pins{}, read("pins.toml"))
}

// Over reads a user's pins. What they leave out is as in p, which does not change.
func (p Pins) Over(text string) (Pins, error) {
	p.Npm = maps.Clone(p.Npm)
	return decode(p, text)
}

func decode(p Pins, text string) (Pins, error) {
	meta, err := toml.Decode(text, &p)
	if err != nil {
		var bad toml.ParseError
		if errors.As(err, &bad) {
			return p, fmt.Errorf("line %d: %s", bad.Position.Line, bad.Message)
		}
		return p, err
	}
	if keys := meta.Undecoded(); len(keys) > 0 {
		return p, fmt.Errorf("unknown key %q: known are base, suite, mirror, ca, registry and the table npm", keys[0].String())
	}
	for name := range p.Npm {
		if !slices.Contains(Names(), name) || name == "shell" {
			return p, fmt.Errorf("npm.%s: there is no such image (npm has claude, codex, gemini, opencode)", name)
		}
	}
	for key, v := range map[string]string{"base": p.Base, "suite": p.Suite, "mirror": p.Mirror} {
		if strings.HasPrefix(v, "-") || strings.ContainsAny(v, " \t\r\n\x00") {
			return p, fmt.Errorf("%s = %q: neither spaces nor a dash at the beginning can be in it", key, v)
		}
	}
	switch {
	case p.Base == "" || p.Suite == "":
		return p, errors.New("base and suite cannot be empty")
	case p.CA != "" && !strings.HasPrefix(p.CA, "/"):
		return p, fmt.Errorf("ca = %q: want an absolute path", p.CA)
	case !strings.HasPrefix(p.Registry, "https://") && !strings.HasPrefix(p.Registry, "http://"):
		return p, fmt.Errorf("registry = %q: want an https URL", p.Registry)
	}
	p.Registry = strings.TrimRight(p.Registry, "/")
	return p, nil
}

// Text is a user's file of those pins that differ from base.
func (p Pins) Text(base Pins) (string, error) {
	out := map[string]any{}
	for key, v := range map[string][2]string{
		"base": {p.Base, base.Base}, "suite": {p.Suite, base.Suite}, "mirror": {p.Mirror, base.Mirror},
		"ca": {p.CA, base.CA}, "registry": {p.Registry, base.Registry},
	} {
		if v[0] != v[1] {
			out[key] = v[0]
		}
	}
	npm := map[string]string{}
	for name, v := range p.Npm {
		if v != base.Npm[name] {
			npm[name] = v.String()
		}
	}
	if len(npm) > 0 {
		out["npm"] = npm
	}
	var b strings.Builder
	b.WriteString("# Written by \"lazaret image update\", which keeps your values and not your comments.\n")
	if err := toml.NewEncoder(&b).Encode(out); err != nil {
		return "", fmt.Errorf("write pins: %w", err)
	}
	return b.String(), nil
}

// Names lists the images that can be built, sorted.
func Names() []string { return []string{"claude", "codex", "gemini", "opencode", "shell"} }

// ByReference finds the name of the image that a reference of podman's means; ""
// where it is none of ours.
func ByReference(ref string) string {
	name, found := strings.CutPrefix(ref, Prefix)
	name = strings.TrimSuffix(name, ":latest")
	if !found || !slices.Contains(Names(), name) {
		return ""
	}
	return name
}

// Containerfile is the text for an image of Names, or for "base".
func Containerfile(name string) string { return read(name + ".Containerfile") }

// BootstrapScript is the shell script that makes a Debian; its arguments are the
// suite and the mirror, if any.
func BootstrapScript() string { return read("debian.sh") }

func read(name string) string {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // embedded: cannot be missing
	}
	return string(data)
}
