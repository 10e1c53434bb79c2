package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/packaging/images"
)

// Labels of the images that we build.
const (
	labelImage   = "dev.lazaret.image"   // its name
	labelPackage = "dev.lazaret.package" // what it was made of, name@version
	labelRecipe  = "dev.lazaret.recipe"  // digest of all that a base was made of
)

func imageCommand() *cli.Command {
	conf := &cli.StringFlag{Name: "config", Usage: "also read `FILE`, above the other layers", TakesFile: true}
	base := &cli.StringFlag{Name: "base", Usage: "stand on the image `DEBIAN`, or on one that debootstrap makes, by the word debootstrap"}
	ca := &cli.PathFlag{Name: "ca", Usage: "also trust the PEM certificates of `FILE`, such as those of a company's proxy", TakesFile: true}
	all := &cli.BoolFlag{Name: "all", Usage: "all of " + strings.Join(images.Names(), ", "), DisableDefaultText: true}
	return &cli.Command{
		Name:  "image",
		Usage: "build the agents' images and keep them new",
		Subcommands: []*cli.Command{
			{
				Name:      "build",
				Usage:     "build a profile's image",
				ArgsUsage: "[PROFILE...]",
				Description: "Builds the images localhost/lazaret/NAME of the profiles, by default of the default profile,\n" +
					"in podman's storage: " + strings.Join(images.Names(), ", ") + ". They are one base, Debian with git, node\n" +
					"and what it takes to build things, and one thin layer each. Versions are pinned:\n" +
					"lazaret image list shows them. Where no registry gives the Debian below, debootstrap makes it.",
				Flags: []cli.Flag{
					all, base, ca, conf,
					&cli.BoolFlag{Name: "no-cache", Usage: "build everything anew, with the newest packages of Debian's", DisableDefaultText: true},
				},
				Action: runImageBuild,
			},
			{
				Name:      "update",
				Usage:     "pin the newest versions, and build with them the images that are there",
				ArgsUsage: "[PROFILE...]",
				Description: "Asks npm's registry for the newest versions, writes them to images.toml beside your\n" +
					"config.toml, and builds those images anew that have been built before, on a new base.\n" +
					"Sandboxes that run keep theirs until they are started again.",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "dry-run", Usage: "show what is newer and touch nothing", DisableDefaultText: true},
					&cli.BoolFlag{Name: "pin-only", Usage: "build nothing", DisableDefaultText: true},
					base, ca, conf,
				},
				Action: runImageUpdate,
			},
			{
				Name:   "list",
				Usage:  "show the images with the versions that are pinned and built",
				Action: runImageList,
			},
		},
	}
}

// imageMaker builds images.
type imageMaker struct {
	c      *cli.Context
	podman string
	std    images.Pins // of this Lazaret
	file   string      // the user's, there or not
	saved  images.Pins // with those of file
	pins   images.Pins // those that count: saved, with what the flags say
	fresh  bool        // nothing of before is good enough
}

func newImageMaker(c *cli.Context) (*imageMaker, *config.Config, error) {
	r, err := usersSettings(c)
	if err != nil {
		return nil, nil, err
	}
	m := &imageMaker{c: c, file: filepath.Join(filepath.Dir(configPath(r.env)), "images.toml")}
	if m.podman, err = fixedpath.Look("podman"); err != nil {
		return nil, nil, fmt.Errorf("podman is needed: %w", err)
	}
	if m.std, err = images.Default(); err != nil {
		return nil, nil, fmt.Errorf("read the built-in pins: %w", err)
	}
	text, err := os.ReadFile(m.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the pins: %w", err)
	}
	if m.saved, err = m.std.Over(string(text)); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", m.file, err)
	}
	m.pins = m.saved
	return m, r.cfg, nil
}

// flags lets the command line's choices count for this build.
func (m *imageMaker) flags() error {
	if b := m.c.String("base"); b != "" {
		if err := checkImageName(b); err != nil {
			return usageError("%s: --base: %w", m.c.Command.HelpName, err)
		}
		m.pins.Base = b
	}
	if f := m.c.Path("ca"); f != "" {
		p, err := absolutePath(f)
		if err != nil {
			return err
		}
		m.pins.CA = p
	}
	return nil
}

// imageNames finds the images of profiles; a name that is no profile's with an
// image can be an image's own.
func imageNames(cfg *config.Config, profiles []string) ([]string, error) {
	var names []string
	for _, p := range profiles {
		name, image := "", ""
		if slices.Contains(cfg.Profiles(), p) {
			profile, err := cfg.Profile(p)
			if err != nil {
				return nil, err
			}
			image = profile.Image
			name = images.ByReference(image)
		}
		if image == "" && slices.Contains(images.Names(), p) {
			name = p
		}
		switch {
		case name == "" && image != "":
			return nil, fmt.Errorf("profile %q has the image %s, which is none of Lazaret's (%s): build or pull that one with podman", p, config.Printable(image), strings.Join(images.Names(), ", "))
		case name == "":
			return nil, fmt.Errorf("%q is neither a profile with an image nor an image of Lazaret's: name one of %s", config.Printable(p), strings.Join(images.Names(), ", "))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func runImageBuild(c *cli.Context) error {
	m, cfg, err := newImageMaker(c)
	if err != nil {
		return err
	}
	if err := m.flags(); err != nil {
		return err
	}
	m.fresh = c.Bool("no-cache")
	names := images.Names()
	if !c.Bool("all") {
		profiles := c.Args().Slice()
		if len(profiles) == 0 {
			profiles = []string{cfg.General.DefaultProfile}
		}
		if names, err = imageNames(cfg, profiles); err != nil {
			return err
		}
	} else if c.Args().Present() {
		return usageError("lazaret image build: either --all or profiles")
	}
	return m.build(names)
}

func runImageUpdate(c *cli.Context) error {
	m, cfg, err := newImageMaker(c)
	if err != nil {
		return err
	}
	if err := m.flags(); err != nil {
		return err
	}
	names := images.Names()
	if c.Args().Present() {
		if names, err = imageNames(cfg, c.Args().Slice()); err != nil {
			return err
		}
	}
	changed := false
	p := &printer{w: c.App.Writer}
	for _, name := range names {
		pkg, ok := m.saved.Npm[name]
		if !ok {
			continue
		}
		newest, err := newestVersion(c.Context, m.pins.Registry, pkg.Name)
		if err != nil {
			return err
		}
		if newest == pkg.Version {
			p.printf("%-9s %s\n", name, pkg.Version)
			continue
		}
		p.printf("%-9s %s -> %s\n", name, pkg.Version, newest)
		pkg.Version, changed = newest, true
		m.saved.Npm[name] = pkg // pins has the same table
	}
	if p.err != nil || c.Bool("dry-run") {
		return p.err
	}
	if changed {
		text, err := m.saved.Text(m.std)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(m.file), 0o755); err != nil { //nolint:gosec // a directory of configuration
			return fmt.Errorf("write the pins: %w", err)
		}
		if err := atomicfile.Write(m.file, []byte(text), 0o644, true); err != nil {
			return err
		}
		p.printf("pinned in %s\n", m.file)
	}
	if c.Bool("pin-only") {
		return p.err
	}
	var there []string
	built, err := m.built()
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := built[images.Prefix+name]; ok {
			there = append(there, name)
		}
	}
	if len(there) == 0 {
		p.printf("no image has been built yet: lazaret image build [PROFILE]\n")
		return p.err
	}
	m.fresh = true
	return m.build(there)
}

// newestVersion asks npm's registry.
func newestVersion(ctx context.Context, registry, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	where := registry + "/" + url.PathEscape(name) + "/latest"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("ask for the newest %s: %w", name, err)
	}
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return "", fmt.Errorf("ask for the newest %s: %w", name, err)
	}
	defer func() { _ = resp.Body.Close() }() // was read
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("ask for the newest %s: %s: %s", name, where, resp.Status)
	}
	var found struct{ Name, Version string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, 8<<20)).Decode(&found); err != nil {
		return "", fmt.Errorf("ask for the newest %s: read the answer of %s: %w", name, where, err)
	}
	if found.Name != name {
		return "", fmt.Errorf("ask for the newest %s: %s answers about %.100q", name, where, found.Name)
	}
	if err := images.CheckVersion(found.Version); err != nil {
		return "", fmt.Errorf("ask for the newest %s: %s: %w", name, where, err)
	}
	return found.Version, nil
}

func runImageList(c *cli.Context) error {
	m, _, err := newImageMaker(c)
	if err != nil {
		return err
	}
	there, err := m.built()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tIMAGE\tPINNED\tBUILT\tCREATED") // Flush tells
	for _, name := range images.Names() {
		pinned := "-"
		if p, ok := m.pins.Npm[name]; ok {
			pinned = p.String()
		}
		ref := images.Prefix + name
		built, created := "no", "-"
		if i, ok := there[ref]; ok {
			built, created = "yes", i.CreatedAt.Format(time.DateOnly)
			if pkg := i.Labels[labelPackage]; pkg != "" {
				built = pkg[strings.LastIndexByte(pkg, '@')+1:]
			}
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, ref, pinned, config.Printable(built), created)
	}
	return w.Flush()
}

// builtImage is what podman tells of an image of ours.
type builtImage struct {
	Names     []string
	Labels    map[string]string
	CreatedAt time.Time
}

// built finds the images of ours in podman's storage, by their names. That podman
// does not answer is an error, and not that there are none.
func (m *imageMaker) built() (map[string]builtImage, error) {
	out, err := podmanAnswer(m.c.Context, "image", "ls", "--filter=label="+labelImage, "--format=json")
	if err != nil {
		return nil, fmt.Errorf("look for images: %w", err)
	}
	return builtImages(out)
}

func builtImages(answer string) (map[string]builtImage, error) {
	var all []builtImage
	if err := json.Unmarshal([]byte(answer), &all); err != nil {
		return nil, fmt.Errorf("look for images: read podman's answer: %w", err)
	}
	found := map[string]builtImage{}
	for _, i := range all {
		for _, name := range i.Names {
			found[strings.TrimSuffix(name, ":latest")] = i
		}
	}
	return found, nil
}

// build builds images and what is below them.
func (m *imageMaker) build(names []string) error {
	if err := m.buildBase(); err != nil {
		return err
	}
	for _, name := range names {
		args := []string{"--build-arg=BASE=" + images.Base}
		if pkg, ok := m.pins.Npm[name]; ok {
			args = append(args, "--build-arg=PACKAGE="+pkg.String(), "--build-arg=REGISTRY="+m.pins.Registry, "--label="+labelPackage+"="+pkg.String())
		}
		if err := m.podmanBuild(name, images.Prefix+name, args...); err != nil {
			return err
		}
	}
	p := &printer{w: m.c.App.Writer}
	for _, name := range names {
		p.printf("built %s%s\n", images.Prefix, name)
	}
	return p.err
}

// buildBase makes the base, unless there is one that was made of the same.
func (m *imageMaker) buildBase() error {
	var ca []byte
	if m.pins.CA != "" {
		var err error
		if ca, err = os.ReadFile(m.pins.CA); err != nil {
			return fmt.Errorf("read the certificates to trust: %w", err)
		}
		if !strings.Contains(string(ca), "-----BEGIN CERTIFICATE-----") {
			return fmt.Errorf("%s: there is no PEM certificate in it", m.pins.CA)
		}
	}
	recipe := digest(images.Containerfile("base"), images.BootstrapScript(), m.pins.Base, m.pins.Suite, m.pins.Mirror, string(ca))
	built, err := m.built()
	if err != nil {
		return err
	}
	if built[images.Base].Labels[labelRecipe] == recipe && !m.fresh {
		return nil
	}
	debian, err := m.debian()
	if err != nil {
		return err
	}
	args := []string{"--build-arg=DEBIAN=" + debian, "--label=" + labelRecipe + "=" + recipe}
	if len(ca) > 0 {
		args = append(args, "--secret=id=ca,src="+m.pins.CA, "--build-arg=CA_DIGEST="+digest(string(ca)))
	}
	return m.podmanBuild("base", images.Base, args...)
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

// podmanBuild builds one image, with its progress on standard error.
func (m *imageMaker) podmanBuild(name, ref string, args ...string) error {
	args = append([]string{"build", "--pull=never", "--file=-", "--tag=" + ref, "--label=" + labelImage + "=" + name}, args...)
	if m.fresh {
		args = append(args, "--no-cache")
	}
	m.say("building %s", ref)
	out, end := follow(m.c.App.ErrWriter)
	cmd := m.command(out, m.podman, args...)
	cmd.Dir = "/" // nothing of it is copied
	cmd.Stdin = strings.NewReader(images.Containerfile(name))
	err := cmd.Run()
	end(err != nil && m.c.Context.Err() == nil)
	if err != nil {
		if m.c.Context.Err() != nil {
			return m.c.Context.Err()
		}
		return fmt.Errorf("build %s: podman build: %w (what failed is above; for a proxy with certificates of its own there is --ca)", ref, err)
	}
	return nil
}

func (m *imageMaker) command(out io.Writer, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.c.Context, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdout, cmd.Stderr = out, out
	return cmd
}

func (m *imageMaker) say(format string, args ...any) {
	_, _ = fmt.Fprintf(m.c.App.ErrWriter, "lazaret: "+format+"\n", args...) // progress only
}

// debian finds or makes the image below the base.
func (m *imageMaker) debian() (string, error) {
	if m.pins.Base == images.Bootstrap {
		return m.bootstrap()
	}
	_, missing := podmanAnswer(m.c.Context, "image", "exists", "--", m.pins.Base)
	if missing == nil && (!m.fresh || strings.HasPrefix(m.pins.Base, "localhost/")) {
		return m.pins.Base, nil
	}
	m.say("pulling %s", m.pins.Base)
	out, end := follow(m.c.App.ErrWriter)
	err := m.command(out, m.podman, "pull", "--", m.pins.Base).Run()
	end(err != nil && m.c.Context.Err() == nil)
	switch {
	case err == nil:
		return m.pins.Base, nil
	case m.c.Context.Err() != nil:
		return "", m.c.Context.Err()
	case missing == nil:
		m.say("it cannot be pulled: the one that is here will do")
		return m.pins.Base, nil
	}
	if _, lerr := fixedpath.Look("debootstrap"); lerr != nil {
		return "", fmt.Errorf("pull %s: podman pull: %w; without that registry, install debootstrap and the keys of Debian's archive (apt install debootstrap debian-archive-keyring): it makes the same of Debian's packages", m.pins.Base, err)
	}
	m.say("it cannot be pulled: debootstrap makes one of Debian's packages in its place")
	return m.bootstrap()
}

// bootstrap makes a Debian with debootstrap, unless there is one.
func (m *imageMaker) bootstrap() (string, error) {
	ref := images.Debian + ":" + m.pins.Suite
	if _, err := podmanAnswer(m.c.Context, "image", "exists", "--", ref); err == nil && !m.fresh {
		return ref, nil
	}
	if _, err := fixedpath.Look("debootstrap"); err != nil {
		return "", fmt.Errorf("make %s: %w: install it and the keys of Debian's archive (apt install debootstrap debian-archive-keyring)", ref, err)
	}
	m.say("making %s with debootstrap", ref)
	words := []string{"unshare", "--mount", "--propagation=private", "sh", "-c", images.BootstrapScript(), "debian", m.pins.Suite}
	if m.pins.Mirror != "" {
		words = append(words, m.pins.Mirror)
	}
	if os.Geteuid() != 0 {
		words = append([]string{m.podman, "unshare"}, words...)
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("make %s: %w", ref, err)
	}
	out, end := follow(m.c.App.ErrWriter)
	made, load := m.command(out, words[0], words[1:]...), m.command(out, m.podman, "import", "--quiet", "-", ref)
	made.Stdout, load.Stdin = pw, pr
	err = errors.Join(load.Start(), made.Start())
	// Each end is its child's alone.
	_, _ = pw.Close(), pr.Close()
	if err != nil {
		end(false)
		return "", fmt.Errorf("make %s: %w", ref, err)
	}
	madeErr, loadErr := made.Wait(), load.Wait()
	end((madeErr != nil || loadErr != nil) && m.c.Context.Err() == nil)
	switch {
	case m.c.Context.Err() != nil:
		err = m.c.Context.Err()
	case madeErr != nil:
		err = fmt.Errorf("debootstrap: %w (what failed is above)", madeErr)
	case loadErr != nil:
		err = fmt.Errorf("podman import: %w", loadErr)
	default:
		return ref, nil
	}
	// A part of one must not be taken for a whole one.
	if _, rerr := podmanAnswer(context.WithoutCancel(m.c.Context), "rmi", "--ignore", "--", ref); rerr != nil {
		err = errors.Join(err, rerr)
	}
	return "", fmt.Errorf("make %s: %w", ref, err)
}
