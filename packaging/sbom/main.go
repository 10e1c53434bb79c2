// Command sbom lists what is linked into Lazaret's programs, as the Go toolchain has
// recorded it in them: a CycloneDX document, and the licences that must go with them.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	version := flags.String("version", "", "the `VERSION` of Lazaret")
	epoch := flags.Int64("epoch", 0, "the document's time, in `SECONDS`")
	goCommand := flags.String("go", "go", "the go `COMMAND`, asked where modules are")
	out := flags.String("out", "", "`FILE` of the CycloneDX document")
	licenses := flags.String("licenses", "", "`FILE` of the licences' texts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version == "" || *out == "" || *licenses == "" || flags.NArg() == 0 {
		return errors.New("want -version, -out, -licenses and programs")
	}
	inv := inventory{version: *version, when: time.Unix(*epoch, 0).UTC()}
	for _, path := range flags.Args() {
		if err := inv.add(path); err != nil {
			return err
		}
	}
	doc, err := inv.document()
	if err != nil {
		return err
	}
	texts, err := inv.licenses(func(m module) (string, error) { return moduleDir(ctx, *goCommand, m) })
	if err != nil {
		return err
	}
	if err := atomicfile.Write(*licenses, texts, 0o644, false); err != nil {
		return err
	}
	return atomicfile.Write(*out, doc, 0o644, false)
}

// module is one of the modules that a program was linked from.
type module struct{ path, version, sum string }

func (m module) purl() string { return "pkg:golang/" + m.path + "@" + m.version }

type program struct {
	name, sha256 string
	modules      []module
}

// inventory is what a set of programs of one build consists of.
type inventory struct {
	version  string
	when     time.Time
	goos     string
	goarch   string
	programs []program
}

// add reads a program. All must be of one platform.
func (inv *inventory) add(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read what %s was built from: %w", path, err)
	}
	goos, goarch := setting(info, "GOOS"), setting(info, "GOARCH")
	if inv.goos == "" {
		inv.goos, inv.goarch = goos, goarch
	}
	if goos == "" || goos != inv.goos || goarch != inv.goarch {
		return fmt.Errorf("%s is for %s/%s, the others are for %s/%s", path, goos, goarch, inv.goos, inv.goarch)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	p := program{name: filepath.Base(path), sha256: hex.EncodeToString(sum[:])}
	p.modules = append(p.modules, module{path: "std", version: strings.TrimPrefix(info.GoVersion, "go")})
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		p.modules = append(p.modules, module{d.Path, d.Version, d.Sum})
	}
	inv.programs = append(inv.programs, p)
	return nil
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// modules are those of all programs, each once, in order.
func (inv *inventory) modules() []module {
	var all []module
	for _, p := range inv.programs {
		all = append(all, p.modules...)
	}
	slices.SortFunc(all, func(a, b module) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.version, b.version))
	})
	return slices.Compact(all)
}

// The parts of CycloneDX 1.5 that are used here.
type (
	document struct {
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		SerialNumber string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Ref        string     `json:"bom-ref"`
		Type       string     `json:"type"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Licenses   []license  `json:"licenses,omitempty"`
		PURL       string     `json:"purl,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Alg     string `json:"alg"`
		Content string `json:"content"`
	}
	license struct {
		License struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

// document is the CycloneDX text. Its serial number comes from its content, so that
// the same build gives the same bytes.
func (inv *inventory) document() ([]byte, error) {
	own := component{Ref: "lazaret", Type: "application", Name: "lazaret", Version: inv.version}
	own.Licenses = make([]license, 1)
	own.Licenses[0].License.ID = "Apache-2.0"
	own.Properties = []property{{"lazaret:platform", inv.goos + "/" + inv.goarch}}
	d := document{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata: metadata{Timestamp: inv.when.Format(time.RFC3339), Component: own},
	}
	root := dependency{Ref: own.Ref}
	var uses []dependency
	for _, p := range inv.programs {
		ref := "program:" + p.name
		d.Components = append(d.Components, component{
			Ref: ref, Type: "application", Name: p.name, Version: inv.version,
			Hashes: []hash{{"SHA-256", p.sha256}},
		})
		root.DependsOn = append(root.DependsOn, ref)
		use := dependency{Ref: ref}
		for _, m := range p.modules {
			use.DependsOn = append(use.DependsOn, m.purl())
		}
		uses = append(uses, use)
	}
	for _, m := range inv.modules() {
		c := component{Ref: m.purl(), Type: "library", Name: m.path, Version: m.version, PURL: m.purl()}
		if m.sum != "" {
			c.Properties = []property{{"go:sum", m.sum}} // go.sum's hash of the module, not of one file
		}
		d.Components = append(d.Components, c)
	}
	d.Dependencies = slices.Concat([]dependency{root}, uses)
	for range 2 { // without the serial number first, then with it
		data, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return nil, err
		}
		if d.SerialNumber != "" {
			return append(data, '\n'), nil
		}
		d.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, data).String()
	}
	return nil, errors.New("no serial number")
}

// licenseFile matches the names of files that a distribution has to bring along.
func licenseFile(name string) bool {
	return regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`).MatchString(name) && !strings.HasSuffix(name, ".go")
}

// licenses is the text of all modules' licences. A module without one is an error: its
// code could not be given to anybody.
func (inv *inventory) licenses(dirOf func(module) (string, error)) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("Lazaret's programs contain code of these modules.\n")
	for _, m := range inv.modules() {
		dir, err := dirOf(m)
		if err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("look for the licence of %s: %w", m.path, err)
		}
		found := false
		for _, e := range entries {
			if !e.Type().IsRegular() || !licenseFile(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n%[1]s\n\n%[5]s\n", strings.Repeat("=", 80), m.path, m.version, e.Name(), bytes.TrimSpace(text))
			found = true
		}
		if !found {
			return nil, fmt.Errorf("%s %s has no licence file in %s", m.path, m.version, dir)
		}
	}
	return b.Bytes(), nil
}

// moduleDir is where the module's files are: they were there when it was built.
func moduleDir(ctx context.Context, goCommand string, m module) (string, error) {
	args := []string{"env", "GOROOT"}
	if m.path != "std" {
		args = []string{"mod", "download", "-json", m.path + "@" + m.version}
	}
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, goCommand, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find %s %s: %w: %s%s", m.path, m.version, err, &stderr, out)
	}
	if m.path == "std" {
		return strings.TrimSpace(string(out)), nil
	}
	var found struct{ Dir string }
	if err := json.NewDecoder(io.LimitReader(bytes.NewReader(out), 1<<20)).Decode(&found); err != nil || found.Dir == "" {
		return "", fmt.Errorf("find %s %s: no directory in the answer of go mod download: %w", m.path, m.version, err)
	}
	return found.Dir, nil
}
