package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/stateanchor"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/changes"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/pkgdb"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/snapshot"
)

// aside is the snapshot with the old changes while a rebase is under way.
const aside = "before-rebase"

// rebase is one run of lazaret state rebase. It stays outside podman's user
// namespace, as podman run must; each step that touches the changes is a lazaret of
// its own, which goes in.
type rebase struct {
	c     *cli.Context
	r     resolved
	image string
	// specs are what each manager installs again.
	specs map[string][]string
	// lost says what will not come along.
	lost []string
}

func runStateRebase(c *cli.Context) error {
	if err := checkImageName(c.String("image")); err != nil {
		return usageError("%s: %w", c.Command.HelpName, err)
	}
	r, err := stateDomain(c)
	if err != nil {
		return err
	}
	rb := &rebase{c: c, r: r, image: c.String("image"), specs: map[string][]string{}}
	if err := rb.prepare(); err != nil {
		return err
	}
	if err := rb.show(); err != nil {
		return err
	}
	if !c.Bool("yes") {
		if err := confirm(c.App.Reader, c.App.Writer, "Start anew from the image?"); err != nil {
			return err
		}
	}
	if err := rb.self(nil, "set-aside", aside); err != nil {
		return err
	}
	err = c.Context.Err()
	if err == nil {
		err = rb.install()
	}
	if err != nil {
		return rb.back(err)
	}
	return rb.done()
}

// prepare finds the image and what is to be installed again.
func (rb *rebase) prepare() error {
	rec, err := stateanchor.ReadRecord(rb.r.anchor.Root)
	if _, serr := snapshot.Get(rb.r.anchor.Root, aside); serr == nil {
		return fmt.Errorf("an earlier rebase has left its snapshot: lazaret state restore %s brings those changes back, lazaret state rm %s gives them up", aside, aside)
	}
	if err != nil {
		if roots, rerr := stateRoots(rb.r.anchor.Root); rerr == nil && len(roots) == 0 {
			return errNothingKept(rb.r)
		}
		return err
	}
	if rb.image == "" && rec.Other != nil {
		rb.image = rec.Other.Name // the one that asked for it
	}
	if rb.image == "" {
		rb.image = rec.Image.Name
	}
	if rb.image == "" {
		rb.image = rb.r.profile.Image
	}
	if rb.image == "" {
		return errors.New("the name of the image is not known: name it with --image")
	}
	if err := checkImageName(rb.image); err != nil {
		return err
	}
	if _, err := podmanWorkspace(rb.r.anchor.Workspace); err != nil {
		return err
	}
	if _, err := podmanAnswer(rb.c.Context, "image", "exists", "--", rb.image); err != nil {
		return fmt.Errorf("image %s is not in podman's storage (podman pull %s): %w", rb.image, rb.image, err)
	}
	report, err := rb.diff()
	if err != nil {
		return err
	}
	rb.plan(report)
	return nil
}

// diff asks for the changes; where the image that they were made over is gone, it is
// the new one that packages are added to.
func (rb *rebase) diff() (stateDiffView, error) {
	var v stateDiffView
	var out bytes.Buffer
	err := rb.self(&out, "diff", "--json")
	if err != nil {
		out.Reset()
		if rb.self(&out, "diff", "--json", "--image", rb.image) == nil {
			err = nil
			_, _ = fmt.Fprintf(rb.c.App.ErrWriter, "lazaret: note: the image of the changes is gone: what %s lacks is installed again\n", config.Printable(rb.image)) // a note only
		}
	}
	if err != nil {
		return v, fmt.Errorf("find what was added: %w", err)
	}
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		return v, fmt.Errorf("find what was added: %w", err)
	}
	return v, nil
}

// plan decides what is installed again. Every name was written by the agent: what
// does not parse as one of its manager's never gets to a command line.
func (rb *rebase) plan(v stateDiffView) {
	skip := rb.c.StringSlice("skip")
	for _, s := range v.States {
		if s.Report == nil {
			continue
		}
		if s.IDMap != "" {
			rb.lost = append(rb.lost, "all changes of containers with the user namespace "+s.IDMap)
			continue
		}
		files := 0
		for _, f := range s.Files {
			files += max(1, f.Files)
		}
		if files > 0 {
			rb.lost = append(rb.lost, fmt.Sprintf("%d files that belong to no package (lazaret state diff shows them)", files))
		}
		for _, p := range s.Packages {
			switch {
			case p.Change == changes.Removed:
				rb.lost = append(rb.lost, fmt.Sprintf("the removal of %s %s", p.Manager, p.Name))
			case p.Change != changes.Added || p.Auto || slices.Contains(skip, p.Name):
				// The image's own version counts; what others need comes with them.
			case !reinstallable(p):
				rb.lost = append(rb.lost, fmt.Sprintf("%s %s in %s", p.Manager, p.Name, p.Dir))
			default:
				spec, err := p.Spec()
				if err != nil {
					rb.lost = append(rb.lost, err.Error())
					continue
				}
				if !slices.Contains(rb.specs[p.Manager], spec) {
					rb.specs[p.Manager] = append(rb.specs[p.Manager], spec)
				}
			}
		}
	}
}

// reinstallable tells the directories into which the managers install by default.
func reinstallable(p changes.Package) bool {
	switch p.Manager {
	case pkgdb.Apt, pkgdb.Apk:
		return true
	case pkgdb.Npm:
		return p.Dir == "/usr/lib/node_modules" || p.Dir == "/usr/local/lib/node_modules"
	case pkgdb.Pip:
		parent := path.Dir(p.Dir)
		return (path.Dir(parent) == "/usr/lib" || path.Dir(parent) == "/usr/local/lib") && strings.HasPrefix(path.Base(parent), "python3")
	}
	return false
}

// managers in the order in which they install: the later ones may be the earlier
// ones' packages.
func (rb *rebase) managers() []string { return []string{pkgdb.Apt, pkgdb.Apk, pkgdb.Pip, pkgdb.Npm} }

func (rb *rebase) show() error {
	p := &printer{w: rb.c.App.Writer}
	p.printf("start anew from %s and install in a sandbox:\n", config.Printable(rb.image))
	for _, m := range rb.managers() {
		if len(rb.specs[m]) > 0 {
			p.printf("  %s: %s\n", m, config.Printable(strings.Join(rb.specs[m], " ")))
		}
	}
	if len(rb.specs) == 0 {
		p.printf("  nothing\n")
	}
	for i, l := range rb.lost {
		const most = 20
		if i == most {
			p.printf("  … and %d more\n", len(rb.lost)-most)
			break
		}
		p.printf("not brought over: %s\n", config.Printable(l))
	}
	return p.err
}

// commands are the argument vectors that a manager needs.
func commands(manager string, specs []string) [][]string {
	switch manager {
	case pkgdb.Apt:
		return [][]string{
			{"apt-get", "-q", "update"},
			// A name that is missing must not be taken for a pattern.
			slices.Concat([]string{"apt-get", "-q", "-y", "--no-install-recommends", "-o", "APT::Cmd::Pattern-Only=true", "-o", "Dpkg::Use-Pty=0", "install", "--"}, specs),
		}
	case pkgdb.Apk:
		return [][]string{slices.Concat([]string{"apk", "add", "--"}, specs)}
	case pkgdb.Pip:
		return [][]string{slices.Concat([]string{"python3", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--"}, specs)}
	case pkgdb.Npm:
		return [][]string{slices.Concat([]string{"npm", "install", "--global", "--no-fund", "--no-audit", "--"}, specs)}
	}
	return nil
}

func (rb *rebase) install() error {
	for _, m := range rb.managers() {
		if len(rb.specs[m]) == 0 {
			continue
		}
		for _, argv := range commands(m, rb.specs[m]) {
			if err := rb.inSandbox(argv); err != nil {
				return err
			}
		}
	}
	return nil
}

// inSandbox runs a command as root of a sandbox of the domain. What it prints goes
// to stderr, made inert.
func (rb *rebase) inSandbox(argv []string) error {
	podman, err := fixedpath.Look("podman")
	if err != nil {
		return err
	}
	workspace, err := podmanWorkspace(rb.r.anchor.Workspace)
	if err != nil {
		return err
	}
	args := slices.Concat([]string{
		"run", "--rm", "--pull=never", "--runtime=lazaret", "--user=0:0", "--workdir=/",
		"--annotation=dev.lazaret.profile=" + rb.r.anchor.Profile,
	}, workspace, []string{
		"--env=DEBIAN_FRONTEND=noninteractive", "--env=PIP_BREAK_SYSTEM_PACKAGES=1", "--env=PIP_ROOT_USER_ACTION=ignore",
		"--entrypoint=" + argv[0], "--", rb.image,
	})
	cmd := exec.CommandContext(rb.c.Context, podman, append(args, argv[1:]...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // podman ends the container, and removes it
	cmd.WaitDelay = 30 * time.Second
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		passLines(rb.c.App.ErrWriter, r)
	}()
	err = cmd.Run()
	_ = w.Close() // of a pipe in memory
	<-shown
	if err != nil {
		// Its exit status is not ours.
		return fmt.Errorf("%s in a sandbox: %s", strings.Join(argv[:min(len(argv), 3)], " "), err.Error())
	}
	return nil
}

// passLines passes text of a sandbox's on, to its end.
func passLines(w io.Writer, r io.Reader) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 64<<10)
	sc.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
			return i + 1, data[:i], nil
		}
		if len(data) >= 4096 || atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	for sc.Scan() {
		if line := strings.TrimSpace(sc.Text()); line != "" {
			_, _ = fmt.Fprintf(w, "  | %s\n", config.Printable(line)) // of no consequence
		}
	}
	_, _ = io.Copy(io.Discard, r) // a writer never waits
}

// back brings the old changes back.
func (rb *rebase) back(why error) error {
	err := rb.self(nil, "take-back", aside)
	// The last container's end takes a moment.
	for range 50 {
		if err == nil || !strings.Contains(err.Error(), errInUse.Error()) {
			break
		}
		time.Sleep(200 * time.Millisecond)
		err = rb.self(nil, "take-back", aside)
	}
	if err != nil {
		return fmt.Errorf("%w; and the old changes could not be brought back: %w: lazaret state restore %s does it", why, err, aside)
	}
	return fmt.Errorf("%w: the old changes are back as they were; --skip PACKAGE leaves one out", why)
}

func (rb *rebase) done() error {
	p := &printer{w: rb.c.App.Writer}
	p.printf("the changes lie over %s now\n", config.Printable(rb.image))
	if rb.c.Bool("keep") || len(rb.lost) > 0 {
		p.printf("the old ones are kept as snapshot %s: lazaret state rm %s removes them\n", aside, aside)
		return p.err
	}
	err := rb.self(nil, "rm", aside)
	return errors.Join(p.err, err)
}

// self runs another state command on the same domain, to its end: half of a step
// would help nobody. Its stdout goes to out, or nowhere.
func (rb *rebase) self(out io.Writer, name string, args ...string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("lazaret state %s: %w", name, err)
	}
	argv := []string{"state", name, "--workspace", rb.r.anchor.Workspace, "--profile", rb.r.anchor.Profile}
	if file := rb.c.String("config"); file != "" {
		argv = append(argv, "--config", file)
	}
	cmd := exec.CommandContext(context.WithoutCancel(rb.c.Context), program, append(argv, args...)...)
	cmd.Stdout = out
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		if text := strings.TrimPrefix(strings.TrimSpace(stderr.String()), "lazaret: "); text != "" {
			return errors.New(text)
		}
		return fmt.Errorf("lazaret state %s: %s", name, err.Error())
	}
	return nil
}
