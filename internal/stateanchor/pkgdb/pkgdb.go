// Package pkgdb reads the databases of package managers in a tree that somebody
// else may have written: dpkg, apk, pip and npm. What it returns are claims of that
// tree. Names and versions can hold anything but line breaks: make them inert before
// they are shown, and ask Package.Spec before one comes near a command line.
package pkgdb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"
)

// The package managers, as shown to people.
const (
	Apt = "apt" // dpkg's database
	Apk = "apk"
	Pip = "pip"
	Npm = "npm" // global packages
)

// Package is one installed package.
type Package struct {
	Manager string `json:"manager"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch,omitempty"` // where the manager tells several apart
	Auto    bool   `json:"auto,omitempty"` // only because another one needs it
	Dir     string `json:"dir,omitempty"`  // pip, npm: the directory that holds the package
}

// Key tells packages of one tree apart.
func (p Package) Key() string {
	return strings.Join([]string{p.Manager, p.Name, p.Arch, p.Dir}, "\x00")
}

// Upper bounds of what is read.
const (
	MaxFile     = 64 << 20  // bytes of one database or list of files
	MaxMetadata = 4 << 20   // bytes of one package's description
	MaxPackages = 200_000   // of one manager
	maxField    = 1024      // bytes of a name or a version
	maxPaths    = 2_000_000 // files of one package
)

// ErrTooMany is in the chain of an error about a tree beyond the bounds.
var ErrTooMany = errors.New("more than a package database can hold")

// ParseDpkg reads /var/lib/dpkg/status, or one file of status.d, where no package
// has a state. Packages that are not unpacked are left out.
func ParseDpkg(data []byte) ([]Package, error) {
	var all []Package
	p := Package{Manager: Apt}
	there := true
	end := func() error {
		if p.Name != "" && there {
			if len(all) >= MaxPackages {
				return fmt.Errorf("dpkg: %w", ErrTooMany)
			}
			all = append(all, p)
		}
		p, there = Package{Manager: Apt}, true
		return nil
	}
	for line := range lines(data) {
		if len(line) == 0 {
			if err := end(); err != nil {
				return nil, err
			}
			continue
		}
		key, value, ok := field(line)
		if !ok {
			continue // a field goes on
		}
		switch strings.ToLower(key) {
		case "package":
			p.Name = value
		case "version":
			p.Version = value
		case "architecture":
			p.Arch = value
		case "status":
			words := strings.Fields(value)
			there = len(words) == 3 && words[2] != "not-installed" && words[2] != "config-files"
		}
	}
	return all, end()
}

// ParseAptAuto reads /var/lib/apt/extended_states: the packages that apt installed
// only for others, as "name:arch".
func ParseAptAuto(data []byte) map[string]bool {
	auto := map[string]bool{}
	var name, arch string
	for line := range lines(data) {
		if len(line) == 0 {
			name, arch = "", ""
			continue
		}
		key, value, _ := field(line)
		switch strings.ToLower(key) {
		case "package":
			name = value
		case "architecture":
			arch = value
		case "auto-installed":
			if value == "1" && name != "" && len(auto) < MaxPackages {
				auto[name+":"+arch] = true
			}
		}
	}
	return auto
}

// field splits "Name: value". A line that begins with a blank has no name.
func field(line []byte) (key, value string, ok bool) {
	k, v, found := bytes.Cut(line, []byte(":"))
	if !found || len(k) == 0 || k[0] == ' ' || k[0] == '\t' {
		return "", "", false
	}
	v = bytes.TrimSpace(v)
	return string(k[:min(len(k), maxField)]), string(v[:min(len(v), maxField)]), true
}

// lines is every line without its end; a last empty one is none.
func lines(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range bytes.Lines(data) {
			if !yield(bytes.TrimRight(line, "\r\n")) {
				return
			}
		}
	}
}

// ApkPackage is a package of apk's with its files, absolute.
type ApkPackage struct {
	Package
	Files []string
}

// ParseApk reads apk's database "installed".
func ParseApk(data []byte) ([]ApkPackage, error) {
	var all []ApkPackage
	p := ApkPackage{Package: Package{Manager: Apk}}
	dir, total := "", 0
	end := func() error {
		if p.Name != "" {
			if len(all) >= MaxPackages {
				return fmt.Errorf("apk: %w", ErrTooMany)
			}
			all = append(all, p)
		}
		p, dir = ApkPackage{Package: Package{Manager: Apk}}, ""
		return nil
	}
	for line := range lines(data) {
		if len(line) == 0 {
			if err := end(); err != nil {
				return nil, err
			}
			continue
		}
		if len(line) < 2 || line[1] != ':' {
			continue
		}
		value := string(line[2:])
		switch line[0] {
		case 'P':
			p.Name = short(value)
		case 'V':
			p.Version = short(value)
		case 'F':
			dir = value
		}
		if line[0] == 'F' || line[0] == 'R' {
			path := dir
			if line[0] == 'R' {
				path = dir + "/" + value
			}
			if clean, ok := absolute("/" + strings.TrimPrefix(path, "/")); ok {
				if total++; total > maxPaths {
					return nil, fmt.Errorf("apk: %w", ErrTooMany)
				}
				p.Files = append(p.Files, clean)
			}
		}
	}
	return all, end()
}

func short(s string) string { return s[:min(len(s), maxField)] }

// ParseList reads a list of files, one absolute path a line, as in
// /var/lib/dpkg/info/NAME.list. What is no clean absolute path is left out.
func ParseList(data []byte) []string {
	var all []string
	for line := range lines(data) {
		if clean, ok := absolute(string(line)); ok && len(all) < maxPaths {
			all = append(all, clean)
		}
	}
	return all
}

// absolute makes a path of a database comparable: no "." and no "..".
func absolute(p string) (string, bool) {
	if !strings.HasPrefix(p, "/") || p == "/" || p == "/." || strings.Contains(p, "\x00") {
		return "", false
	}
	var out []string
	for part := range strings.SplitSeq(p[1:], "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			if len(out) == 0 {
				return "", false
			}
			out = out[:len(out)-1]
			continue
		}
		out = append(out, part)
	}
	if len(out) == 0 {
		return "", false
	}
	return "/" + strings.Join(out, "/"), true
}

// DistName tells name and version from the name of a *.dist-info or *.egg-info
// entry of a site-packages directory; ok is false for any other name.
func DistName(entry string) (name, version string, ok bool) {
	if base, found := strings.CutSuffix(entry, ".dist-info"); found {
		name, version, _ = strings.Cut(base, "-")
		return name, version, name != "" && version != ""
	}
	if base, found := strings.CutSuffix(entry, ".egg-info"); found {
		name, version, _ = strings.Cut(base, "-")
		version, _, _ = strings.Cut(version, "-py")
		return name, version, name != ""
	}
	return "", "", false
}

// ParseMetadata reads name and version from the head of METADATA or PKG-INFO.
func ParseMetadata(data []byte) (name, version string) {
	for line := range lines(data) {
		if len(line) == 0 {
			break // what follows is a text
		}
		key, value, _ := field(line)
		switch strings.ToLower(key) {
		case "name":
			name = value
		case "version":
			version = value
		}
	}
	return name, version
}

// ParseRecord reads the files of a wheel's RECORD, absolute, where dir is the
// site-packages directory that holds it.
func ParseRecord(data []byte, dir string) []string {
	var all []string
	for line := range lines(data) {
		var name string
		if len(line) > 0 && line[0] == '"' {
			end := bytes.IndexByte(line[1:], '"') // a quote in a name is not worth a CSV reader
			if end < 0 {
				continue
			}
			name = string(line[1 : 1+end])
		} else {
			first, _, _ := bytes.Cut(line, []byte(","))
			name = string(first)
		}
		if name == "" {
			continue
		}
		if !strings.HasPrefix(name, "/") {
			name = dir + "/" + name
		}
		if clean, ok := absolute(name); ok && len(all) < maxPaths {
			all = append(all, clean)
		}
	}
	return all
}

// ParsePackageJSON reads name and version from npm's package.json.
func ParsePackageJSON(data []byte) (name, version string, err error) {
	var p struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return "", "", fmt.Errorf("package.json: %w", err)
	}
	return short(oneLine(p.Name)), short(oneLine(p.Version)), nil
}

func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

// Spec is what the manager's install command takes for this very package, or an
// error where name or version are not what its manager could have written. It never
// begins with a dash. Apt's is the name alone, as another release has other versions.
func (p Package) Spec() (string, error) {
	name, version, join := "", "", ""
	switch p.Manager {
	case Apt, Apk:
		// To apt a name that ends in a dash means removal.
		name = `^[a-z0-9][a-z0-9+._-]{0,126}[a-z0-9+.]$`
	case Pip:
		name, version, join = `^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`, `^[0-9A-Za-z][0-9A-Za-z.!+_-]{0,126}$`, "=="
	case Npm:
		name, version, join = `^(@[a-z0-9_~][a-z0-9._~-]{0,126}/)?[a-z0-9_~][a-z0-9._~-]{0,126}$`, `^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]{1,100})?$`, "@"
	default:
		return "", fmt.Errorf("package manager %q: not one that can install again", p.Manager)
	}
	if !regexp.MustCompile(name).MatchString(p.Name) {
		return "", fmt.Errorf("%s package %q: not a name of this manager", p.Manager, p.Name)
	}
	if join == "" {
		return p.Name, nil
	}
	if !regexp.MustCompile(version).MatchString(p.Version) {
		return "", fmt.Errorf("%s package %s: %q is not a version of this manager", p.Manager, p.Name, p.Version)
	}
	return p.Name + join + p.Version, nil
}
