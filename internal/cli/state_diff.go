package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/stateanchor"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/changes"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/layer"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/snapshot"
)

// mostFiles is how many lines of files are shown without --all.
const mostFiles = 200

// stateDiffView is what lazaret state diff prints.
type stateDiffView struct {
	Profile   string      `json:"profile"`
	Workspace string      `json:"workspace"`
	States    []stateView `json:"states"` // further ones are kept apart: of another release or user namespace
}

type stateView struct {
	Driver  string `json:"driver"`
	Image   string `json:"image"`
	Release string `json:"release"`
	IDMap   string `json:"id_map,omitempty"`
	*changes.Report
}

func runStateDiff(c *cli.Context) error {
	if err := checkImageName(c.String("image")); err != nil {
		return usageError("%s: %w", c.Command.HelpName, err)
	}
	r, done, err := keptDomain(c)
	if done || err != nil {
		return err
	}
	if snapshot.Interrupted(r.anchor.Root) {
		if err := lockedState(c.Context, r, func() error { return nil }); err != nil {
			return err
		}
	}
	roots, err := stateRoots(r.anchor.Root)
	if err != nil {
		return err
	}
	if len(roots) == 0 {
		return errNothingKept(r)
	}
	v := stateDiffView{Profile: r.anchor.Profile, Workspace: r.anchor.Workspace}
	for i, root := range roots {
		s, err := compareState(c, root)
		if err != nil {
			return err
		}
		if i == 0 || len(s.Packages)+len(s.Files)+s.Folded > 0 {
			v.States = append(v.States, s)
		}
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, v)
	}
	for i, s := range v.States {
		if i > 0 {
			if _, err := fmt.Fprintln(c.App.Writer); err != nil {
				return err
			}
		}
		if err := printStateDiff(c, s); err != nil {
			return err
		}
	}
	return nil
}

// compareState compares the changes in one directory with their image.
func compareState(c *cli.Context, root string) (s stateView, err error) {
	rec, err := stateanchor.ReadRecord(root)
	if err != nil {
		return s, err
	}
	layers, name := rec.Image.Layers, rec.Image.String()
	if image := c.String("image"); image != "" {
		if layers, err = imageLayers(c.Context, image); err != nil {
			return s, err
		}
		name = image
	}
	in := changes.Input{Ignore: rec.Targets, All: c.Bool("all"), Style: layer.Kernel}
	if rec.Driver == stateanchor.DriverFUSE {
		in.Style = layer.Fuse
	}
	for _, l := range layers {
		if _, err := os.Lstat(l); errors.Is(err, fs.ErrNotExist) {
			return s, fmt.Errorf("%w: image %s is no longer in podman's storage: --image names another one to compare with", errImageGone, name)
		}
		in.Image = append(in.Image, layer.Layer{Path: l, Style: layer.Fuse})
	}
	for _, p := range rec.Paths {
		dir, _, _ := stateanchor.Layout(root, p)
		in.Paths = append(in.Paths, changes.Path{Name: p, Changes: dir})
	}
	s = stateView{Driver: rec.Driver, Image: name, Release: rec.Image.Release.String(), IDMap: rec.IDMap}
	s.Report, err = changes.Compare(c.Context, in)
	return s, err
}

// errImageGone is in the chain of the error about an image that podman has removed.
var errImageGone = errors.New("nothing to compare with")

// checkImageName refuses what podman would take for an option.
func checkImageName(name string) error {
	if strings.HasPrefix(name, "-") || strings.ContainsAny(name, " \t\r\n\x00") {
		return fmt.Errorf("%q is not the name of an image", name)
	}
	return nil
}

// podmanAnswer is what podman says to a question, within a minute.
func podmanAnswer(ctx context.Context, args ...string) (string, error) {
	program, err := fixedpath.Look("podman")
	if err != nil {
		return "", fmt.Errorf("ask podman: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		// Its exit status is not ours.
		return "", fmt.Errorf("podman %s: %s: %s", strings.Join(args[:min(2, len(args))], " "), err.Error(), strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// imageLayers are the host directories of an image of podman's, uppermost first.
func imageLayers(ctx context.Context, image string) ([]string, error) {
	out, err := podmanAnswer(ctx, "image", "inspect", "--format", "{{json .GraphDriver}}", "--", image)
	if err != nil {
		return nil, err
	}
	var g struct {
		Name string
		Data struct{ LowerDir, UpperDir string }
	}
	if err := json.Unmarshal([]byte(out), &g); err != nil {
		return nil, fmt.Errorf("podman image inspect: %w", err)
	}
	if !filepath.IsAbs(g.Data.UpperDir) {
		return nil, fmt.Errorf("image %s: podman's storage driver %q does not tell where its files are", image, g.Name)
	}
	layers := []string{g.Data.UpperDir}
	if g.Data.LowerDir != "" {
		layers = append(layers, strings.Split(g.Data.LowerDir, ":")...)
	}
	return layers, nil
}

func printStateDiff(c *cli.Context, s stateView) error {
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	p := &printer{w: w}
	p.printf("image\t%s, %s\n", config.Printable(s.Image), config.Printable(s.Release))
	if s.IDMap != "" {
		p.printf("users\t%s\n", config.Printable(s.IDMap))
	}
	p.printf("changes\t%s, kept by %s\n", bytesText(s.Size), s.Driver)
	if err := errors.Join(p.err, w.Flush()); err != nil {
		return err
	}
	p = &printer{w: c.App.Writer}
	if len(s.Packages)+len(s.Files) == 0 && s.Folded == 0 {
		p.printf("nothing differs from the image\n")
	}
	if len(s.Packages) > 0 {
		p.printf("\npackages:\n")
	}
	for _, k := range s.Packages {
		p.printf("  %s\n", packageLine(k))
	}
	if len(s.Files) > 0 {
		p.printf("\nfiles:\n")
	}
	shown := s.Files
	if !c.Bool("all") {
		shown = shown[:min(len(shown), mostFiles)]
	}
	for _, f := range shown {
		p.printf("  %s\n", fileLine(f))
	}
	if n := len(s.Files) - len(shown); n > 0 {
		p.printf("  … and %d more: --all shows them\n", n)
	}
	if s.Cut {
		p.printf("  … and more than a report holds\n")
	}
	if s.Folded > 0 {
		p.printf("\nfiles of packages and of their managers: %d (--all shows them)\n", s.Folded)
	}
	for _, n := range s.Notes {
		_, _ = fmt.Fprintf(c.App.ErrWriter, "lazaret: note: %s\n", config.Printable(n)) // a note only
	}
	return p.err
}

func packageLine(k changes.Package) string {
	sign := map[string]string{changes.Added: "+", changes.Removed: "-", changes.Upgraded: "~"}[k.Change]
	version := k.Version
	if k.Change == changes.Upgraded {
		version = k.From + " → " + k.Version
	}
	about := k.Manager
	if k.Auto {
		about += ", for another one"
	}
	if k.Dir != "" {
		about += ", in " + k.Dir
	}
	return config.Printable(fmt.Sprintf("%s %s %s (%s)", sign, k.Name, version, about))
}

func fileLine(f changes.File) string {
	sign := map[string]string{changes.Added: "+", changes.Deleted: "-", changes.Changed: "~"}[f.Change]
	line := sign + " " + config.Printable(f.Path)
	if f.Type == "directory" {
		line += "/"
	}
	if f.Files > 0 {
		line += fmt.Sprintf(" (%d files, %s)", f.Files, bytesText(f.Size))
	}
	if f.Package != "" && f.Package != "-" {
		line += " (" + config.Printable(f.Package) + ")"
	}
	return line
}
