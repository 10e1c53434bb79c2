package spec

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
)

// Rewrite applies the plan to a config.json and checks that the result holds what
// the plan promises. It reads and writes nothing else.
func Rewrite(data []byte, p Plan) ([]byte, error) {
	_, after, err := rewrite(data, p)
	return after, err
}

func rewrite(data []byte, p Plan) (*Document, []byte, error) {
	p, err := p.normal()
	if err != nil {
		return nil, nil, err
	}
	d, err := Parse(data)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range Modifiers(p) {
		if err := m.Modify(d); err != nil {
			return nil, nil, fmt.Errorf("config.json: %s: %w", m.Name(), err)
		}
	}
	after := d.Bytes()
	// What counts is the text that the runtime will read.
	d, err = Parse(after)
	if err == nil {
		err = check(d, p)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the rewritten config.json is wrong, which is a fault in Lazaret: %w", err)
	}
	return d, after, nil
}

// check tells what a rewritten document lacks of its plan.
func check(d *Document, p Plan) error {
	return errors.Join(
		checkMounts(d.mounts, p),
		checkHook(d.Prestart(), p, "prestart"),
		checkHook(d.Poststop(), p, "poststop"),
		checkVariables(d.Env(), p.environment()),
		checkRest(d, p),
	)
}

func checkMounts(all []mount, p Plan) error {
	var errs []error
	mounts := make([]specs.Mount, len(all)) // as the runtime reads them
	for i, m := range all {
		mounts[i] = m.Mount
		if to := p.Sources[m.source()]; isBind(m.Mount) && to != "" && m.Source != to {
			errs = append(errs, fmt.Errorf("the mount at %s is of %s, not of %s", m.Destination, m.Source, to))
		}
	}
	masks := 0
	for i, m := range mounts {
		if m.Source == maskSource && m.Type == "tmpfs" {
			masks++
			errs = append(errs, checkUncovered(m.Destination, mounts[i+1:]))
		}
	}
	if masks != len(p.Masks) {
		errs = append(errs, fmt.Errorf("%d of %d masks are mounted", masks, len(p.Masks)))
	}
	errs = append(errs, checkState(mounts, p))
	for _, b := range p.Binds {
		i := slices.IndexFunc(mounts, func(m specs.Mount) bool {
			return m.Destination == b.Destination && m.Source == b.Source && isOwn(m) && slices.Contains(m.Options, "ro") == b.ReadOnly
		})
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s is not mounted", b.Destination))
			continue
		}
		errs = append(errs, checkUncovered(b.Destination, mounts[i+1:]))
	}
	if p.RunDir != "" {
		errs = append(errs, checkRunDir(mounts, p))
	}
	return errors.Join(errs...)
}

// checkState wants each kept directory before all mounts that hold it or lie in
// it, or such a mount in its place.
func checkState(mounts []specs.Mount, p Plan) error {
	var errs []error
	for _, b := range p.State {
		i := slices.IndexFunc(mounts, func(m specs.Mount) bool {
			other := destination(m.Destination)
			return under(other, b.Destination) || under(b.Destination, other)
		})
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("the kept directory %s is not mounted", b.Destination))
		case mounts[i].Destination == b.Destination && mounts[i].Source == b.Source && slices.Equal(mounts[i].Options, ownState()):
		case !slices.ContainsFunc(mounts, func(m specs.Mount) bool { return !isOwn(m) && under(b.Destination, destination(m.Destination)) }):
			errs = append(errs, fmt.Errorf("the mount at %s comes before the kept directory %s", mounts[i].Destination, b.Destination))
		}
	}
	return errors.Join(errs...)
}

// checkRunDir wants /run/lazaret, and after it only what the plan has in it.
func checkRunDir(mounts []specs.Mount, p Plan) error {
	first := slices.IndexFunc(mounts, func(m specs.Mount) bool { return under(destination(m.Destination), RunPath) })
	if first < 0 {
		return fmt.Errorf("%s is not mounted", RunPath)
	}
	if run := mounts[first]; run.Destination != RunPath || run.Source != p.RunDir || !slices.Contains(run.Options, "ro") {
		return fmt.Errorf("%s is not %s, read-only", RunPath, p.RunDir)
	}
	for _, m := range mounts[first+1:] {
		if !slices.ContainsFunc(p.Binds, func(b Bind) bool {
			return b.Destination == m.Destination && b.Source == m.Source && under(b.Destination, RunPath)
		}) {
			return fmt.Errorf("the mount at %s comes after %s", m.Destination, RunPath)
		}
	}
	return nil
}

// checkUncovered refuses mounts that would hide dest, or uncover a part of it.
func checkUncovered(dest string, later []specs.Mount) error {
	for _, m := range later {
		other := destination(m.Destination)
		if (under(dest, other) || under(other, dest)) && !isOwn(m) {
			return fmt.Errorf("the mount at %s comes after %s and undoes it", m.Destination, dest)
		}
	}
	return nil
}

func checkHook(hooks []specs.Hook, p Plan, moment string) error {
	var own []specs.Hook
	for _, h := range hooks {
		if filepath.Base(h.Path) == hookProgram {
			own = append(own, h)
		}
	}
	switch {
	case p.HookPath == "" && len(own) == 0:
		return nil
	case p.HookPath == "" || len(own) != 1:
		return fmt.Errorf("there are %d hooks of ours at %s", len(own), moment)
	case own[0].Path != p.HookPath || len(own[0].Args) < 2 || own[0].Args[1] != moment || len(own[0].Env) == 0:
		return fmt.Errorf("the hook at %s is incomplete", moment)
	}
	return nil
}

func checkVariables(env, own []string) error {
	for _, entry := range own {
		if n := count(env, envName(entry)); n != 1 || !slices.Contains(env, entry) {
			return fmt.Errorf("the variable %s is there %d times", envName(entry), n)
		}
	}
	for _, entry := range env {
		name := envName(entry)
		if strings.HasPrefix(name, EnvPrefix) && name != ProfileEnv && !slices.Contains(own, entry) {
			return fmt.Errorf("a foreign variable %s is left", name)
		}
	}
	return nil
}

func count(env []string, name string) (n int) {
	for _, entry := range env {
		if envName(entry) == name {
			n++
		}
	}
	return n
}

func checkRest(d *Document, p Plan) error {
	for _, name := range p.DropAnnotations {
		if _, there := d.notes[name]; there {
			return fmt.Errorf("the annotation %s is left", name)
		}
	}
	if (p.IsolatedNetwork || p.NetworkPath != "") && !joins(d, p.NetworkPath) {
		return fmt.Errorf("the network namespace is not the wanted one (%q)", p.NetworkPath)
	}
	return nil
}

// RewriteFile applies the plan to config.json in the bundle, a directory. The
// result is also checked with libcontainer's rules (see Validate). The file is
// replaced in one step and keeps its mode and owner; a failure leaves the old one.
// A config.json that is a symbolic link is refused: replacing it would leave the
// file it leads to as it was, and no engine makes one.
func RewriteFile(bundle string, p Plan) error {
	name := filepath.Join(bundle, "config.json")
	before, info, err := readRegular(name)
	if err != nil {
		return err
	}
	d, after, err := rewrite(before, p)
	if err != nil {
		return err
	}
	if string(before) == string(after) {
		return nil
	}
	if err := Validate(d); err != nil {
		// Refused before as well: the user's document, and runsc's to judge.
		old, perr := Parse(before)
		if perr != nil {
			return perr
		}
		if was := Validate(old); was == nil || was.Error() != err.Error() {
			return fmt.Errorf("the rewritten config.json is wrong, which is a fault in Lazaret: %w", err)
		}
	}
	if err := atomicfile.Write(name, after, info.Mode().Perm(), false); err != nil {
		return err
	}
	return keepOwner(name, info)
}

// ReadFile reads and parses config.json in the bundle, a directory.
func ReadFile(bundle string) (*Document, error) {
	data, _, err := readRegular(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

// readRegular reads a regular file of at most MaxSize bytes. It neither follows a
// link nor waits for a FIFO.
func readRegular(name string) ([]byte, os.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, nil, fmt.Errorf("%s is a symbolic link: Lazaret rewrites the file itself, put one there", name)
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, info, nil
}

// keepOwner gives the new file the old one's owner, where they differ.
func keepOwner(name string, old os.FileInfo) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	was, ok := old.Sys().(*syscall.Stat_t)
	is, ok2 := info.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	return os.Lchown(name, int(was.Uid), int(was.Gid))
}

// ProcessPlan says what to make of the process file of an exec.
type ProcessPlan struct {
	// Env are NAME=value variables; they replace all of the same name.
	Env []string
	// PathDirs come first in PATH.
	PathDirs []string
	// TerminfoDir is searched before all other places of TERMINFO_DIRS; empty for none.
	TerminfoDir string
}

// RewriteProcess applies the plan to the process file of an exec, a JSON object
// as config.json's process. Foreign LAZARET_ variables are removed, but for
// LAZARET_PROFILE.
func RewriteProcess(data []byte, p ProcessPlan) ([]byte, error) {
	own := mergeEnv(nil, p.Env)
	if err := errors.Join(checkEnv(own), checkDirs(p.PathDirs, p.TerminfoDir)); err != nil {
		return nil, fmt.Errorf("plan for the process file: %w", err)
	}
	proc, err := readProcess(data)
	if err != nil {
		return nil, fmt.Errorf("process file: %w", err)
	}
	setVariables(proc, own, p.PathDirs, p.TerminfoDir)
	after := proc.obj.bytes()
	if proc, err = readProcess(after); err == nil {
		err = checkVariables(proc.environ(), own)
	}
	if err != nil {
		return nil, fmt.Errorf("the rewritten process file is wrong, which is a fault in Lazaret: %w", err)
	}
	return after, nil
}

func readProcess(data []byte) (*process, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("larger than %d bytes", MaxSize)
	}
	if err := checkJSON(data); err != nil {
		return nil, err
	}
	return parseProcess(slices.Clone(data), "the document")
}
