package gitconf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Options say whose configuration to read. All paths are absolute.
type Options struct {
	// Workspace is the canonical directory that the sandbox writes.
	Workspace string `json:"workspace"`
	// WorkTree is the repository's root in the workspace, canonical, "" for a bare one.
	WorkTree string `json:"work_tree,omitempty"`
	// GitDirs are its common git directory and, for a linked worktree, its own.
	GitDirs []string `json:"git_dirs,omitempty"`
	// Home and XDGConfigHome are the developer's; XDGConfigHome may be "".
	Home          string `json:"home"`
	XDGConfigHome string `json:"xdg_config_home,omitempty"`
	// System are the configuration files of the machine, as /etc/gitconfig.
	System []string `json:"system,omitempty"`
	// Env is the developer's environment, NAME=value each, for GIT_CONFIG_GLOBAL,
	// GIT_EDITOR and their like.
	Env []string `json:"env,omitempty"`
	// Free are the Places.Free of an earlier search.
	Free map[string]bool `json:"-"`
}

// env looks up the developer's environment.
func (o *Options) env(name string) string {
	for _, e := range o.Env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// Source is where a place is named.
type Source struct {
	File string // the configuration file, "" for the environment
	Name string // the variable, as core.hooksPath in lower case; "" for the file itself
}

func (s Source) String() string {
	switch {
	case s.File == "":
		return "environment: git's " + s.Name
	case s.Name == "":
		return "git configuration " + s.File
	}
	return "git configuration " + s.File + ": " + s.Name
}

// Places are what git obeys or runs in the workspace: clean paths relative to
// it, there or not, sorted. Links and what they lead to are both named. A place
// in a git directory is named too.
type Places struct {
	// Hooks are directories of hooks.
	Hooks []string
	// Files are read as configuration, or are links on the way to a place.
	Files []string
	// Programs are run, or read by an interpreter that is run. There may be data
	// among them: which word of a command is a program, git does not tell.
	Programs []string
	// Ways are directories on the way to a place. A place holds only while these
	// stay what they are: a directory may be made of a name that is missing, but
	// none may be renamed, removed, or made a link.
	Ways []string
	// Why tells of each place but Ways what first named it.
	Why map[string]Source
	// Free are paths that a command's word would name, if they were there: a
	// sandbox that makes such a file later is not kept from it.
	Free map[string]bool
	// Looked has the path of everything that was looked at, there or not. One with
	// "/" at its end is a directory whose entries were.
	Looked map[string]Stamp
}

// kind is what git does with a variable's value.
type kind int

const (
	data      kind = iota
	include        // more configuration
	hooks          // a directory of hooks
	template       // a directory that is copied into new git directories
	file           // a file that is read
	program        // a path that is run
	command        // a line for the shell
	aliasLine      // the same, when the developer asks for it by name
)

// kindOf goes by the endings of names rather than by a list of variables, so
// that one that git or its helpers gain is taken as what its name says.
func kindOf(v Var) kind {
	ends := func(endings ...string) bool {
		return slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(v.Key, e) })
	}
	shell := strings.HasPrefix(v.Value, "ext::") || strings.HasPrefix(v.Subsection, "ext::")
	switch {
	case v.Key == "path" && (v.Section == "include" || v.Section == "includeif"):
		return include
	case v.Section == "core" && v.Key == "hookspath":
		return hooks
	case v.Section == "init" && v.Key == "templatedir":
		return template
	case v.Section == "alias":
		// An alias of git's own commands can bring options: -c core.pager=…
		if strings.HasPrefix(v.Value, "!") || strings.HasPrefix(v.Value, "-") {
			return aliasLine
		}
		return data
	case v.Section == "submodule" && v.Key == "path":
		return data
	case ends("program", "path"):
		return program
	case shell, v.Section == "pager",
		ends("command", "cmd", "helper", "hook", "editor", "pager", "askpass", "gitproxy", "fsmonitor", "external",
			"textconv", "driver", "clean", "smudge", "process", "filter", "uploadpack", "receivepack", "vcs",
			"server", "tunnel", "httpd", "browser", "update", "args"):
		return command
	case ends("file", "template", "list"):
		return file
	}
	return data
}

type finder struct {
	Options
	root     fs.FileInfo
	hooks    map[string]bool
	files    map[string]bool
	programs map[string]bool
	ways     map[string]bool
	why      map[string]Source
	read     map[string]bool
	free     map[string]bool
	looked   map[string]Stamp
	trails   int
}

// Find reads all of the configuration that git on the host may obey, whatever
// the conditions of its includes, and returns the places in the workspace that
// it names. Missing files are none. One that cannot be read, or that git would
// refuse, is an error that names it: what it says would not be guarded. So is
// a directory of hooks that is the repository's root, or has it within. With an
// error come the places that were found all the same, and what was looked at.
func Find(o Options) (Places, error) {
	f, err := newFinder(o)
	if err != nil {
		return Places{}, err
	}
	if err = errors.Join(f.gitDirs(), f.configs(), f.environment()); f.trails > maxTrails {
		err = errTrails
	}
	return Places{
		Hooks: sorted(f.hooks), Files: sorted(f.files), Programs: sorted(f.programs), Ways: sorted(f.ways),
		Why: f.why, Free: f.free, Looked: f.looked,
	}, err
}

func newFinder(o Options) (*finder, error) {
	root, err := os.Lstat(o.Workspace)
	switch {
	case err != nil:
		return nil, fmt.Errorf("workspace: %w", err)
	case !filepath.IsAbs(o.Home):
		return nil, errors.New("git configuration: the developer's home is not known: set HOME")
	}
	return &finder{
		Options: o, root: root,
		hooks: map[string]bool{}, files: map[string]bool{}, programs: map[string]bool{}, ways: map[string]bool{},
		why: map[string]Source{}, read: map[string]bool{}, free: map[string]bool{}, looked: map[string]Stamp{},
	}, nil
}

// gitDirs looks for links that lead from the git directories to the workspace.
func (f *finder) gitDirs() error {
	for _, dir := range f.GitDirs {
		for _, name := range []string{"config", "config.worktree", "info/attributes", "info/exclude", "info/sparse-checkout"} {
			path := filepath.Join(dir, name)
			t, err := f.trace(path)
			if err != nil {
				return err
			}
			if t.end != path {
				f.keep(f.files, t, Source{File: path})
			}
		}
		path := filepath.Join(dir, "hooks")
		t, err := f.trace(path)
		if err != nil {
			return err
		}
		if t.end != path {
			err = f.hooksDir(path, Source{File: path})
		} else {
			err = f.hookLinks(path, Source{File: path})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// configs reads the files that git begins with. The environment's come beside
// the usual ones: the developer's other terminals may not have it.
func (f *finder) configs() error {
	paths := slices.Clone(f.System)
	paths = append(paths, filepath.Join(f.Home, ".config/git/config"), filepath.Join(f.Home, ".gitconfig"))
	if f.XDGConfigHome != "" {
		paths = append(paths, filepath.Join(f.XDGConfigHome, "git/config"))
	}
	for _, name := range []string{"GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL"} {
		if path := f.env(name); path != "" {
			paths = append(paths, f.absolute(path)...)
		}
	}
	for _, path := range paths {
		if err := f.place(f.files, path, Source{File: path}); err != nil {
			return err
		}
		// What git takes when no variable says otherwise.
		if filepath.Base(path) == "config" {
			for _, name := range []string{"attributes", "ignore"} {
				if err := f.place(f.files, filepath.Join(filepath.Dir(path), name), Source{File: path}); err != nil {
					return err
				}
			}
		}
	}
	for _, dir := range f.GitDirs {
		paths = append(paths, filepath.Join(dir, "config"), filepath.Join(dir, "config.worktree"))
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, f.config(path, 0))
	}
	return errors.Join(errs...)
}

// config reads one file and what it includes. It is git's rule that a file may
// be ten includes deep.
func (f *finder) config(path string, depth int) error {
	const maxDepth = 10
	// Its directory is where its includes begin, so that is part of what it is.
	dir, err := f.trace(filepath.Dir(path))
	if err != nil {
		return err
	}
	path = filepath.Join(dir.end, filepath.Base(path))
	switch {
	case f.read[path]:
		return nil
	case depth > maxDepth:
		return fmt.Errorf("git configuration %s: more than %d includes deep: shorten the chain", path, maxDepth)
	}
	f.read[path] = true
	text, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	var vars []Var
	if err == nil {
		vars, err = Parse(text)
	}
	if err != nil {
		return fmt.Errorf("git configuration %s: %w: make it readable to git, or remove it", path, err)
	}
	return f.variables(vars, path, depth)
}

// variables goes on after an error: what follows may name a place as well.
func (f *finder) variables(vars []Var, from string, depth int) error {
	var errs []error
	for _, v := range vars {
		if err := f.variable(v, from, depth); err != nil {
			errs = append(errs, err)
		}
		if len(errs) > 10 || f.trails > maxTrails {
			break
		}
	}
	return errors.Join(errs...)
}

func readFile(path string) ([]byte, error) {
	// A pipe must not keep us waiting.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer file.Close() //nolint:errcheck // only read
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, withoutPath(err)
	case !info.Mode().IsRegular() && info.Mode()&fs.ModeCharDevice == 0: // /dev/null is usual
		return nil, errors.New("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	return text, nil
}

// withoutPath is for errors that are wrapped with the path anyway.
func withoutPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func (f *finder) variable(v Var, from string, depth int) error {
	src := Source{File: from, Name: v.Name()}
	kind := kindOf(v)
	if kind == command || kind == aliasLine {
		return f.command(v, kind == aliasLine, src)
	}
	if v.Value == "" {
		return nil
	}
	path, err := f.expand(v.Value)
	if err != nil {
		if kind == data {
			return nil
		}
		return fmt.Errorf("%s: %w", src, err)
	}
	if kind == include {
		if !filepath.IsAbs(path) {
			if from == "" {
				return fmt.Errorf("%s: git takes no relative path here: name it from /", src)
			}
			path = filepath.Dir(from) + "/" + path
		}
		if err := f.place(f.files, path, src); err != nil {
			return err
		}
		return f.config(path, depth+1)
	}
	for _, path := range f.absolute(path) {
		var err error
		switch kind {
		case hooks:
			err = f.hooksDir(path, src)
		case template:
			err = errors.Join(f.hooksDir(path+"/hooks", src), f.place(f.files, path+"/config", src))
		case file:
			err = f.place(f.files, path, src)
		case program:
			if strings.Contains(v.Value, "/") {
				err = f.place(f.programs, path, src)
			}
		default:
			// A variable that we do not know, but which names a file.
			if !strings.Contains(v.Value, "/") {
				continue
			}
			var t trail
			if t, err = f.trace(path); err == nil && t.info != nil && !t.info.IsDir() {
				f.keep(f.files, t, src)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// environment looks at the variables that say the same as configuration.
func (f *finder) environment() error {
	vars := []Var{{Section: "init", Key: "templatedir", Value: f.env("GIT_TEMPLATE_DIR")}}
	for _, name := range []string{
		"GIT_SSH_COMMAND", "GIT_SSH", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "VISUAL", "EDITOR", "GIT_PAGER", "PAGER",
		"GIT_EXTERNAL_DIFF", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_PROXY_COMMAND",
	} {
		vars = append(vars, Var{Section: "pager", Key: name, Value: f.env(name)})
	}
	const maxVars = 1000
	count, err := strconv.Atoi(f.env("GIT_CONFIG_COUNT"))
	if f.env("GIT_CONFIG_COUNT") != "" && (err != nil || count < 0 || count > maxVars) {
		return fmt.Errorf("environment: GIT_CONFIG_COUNT: want a number to %d: unset it", maxVars)
	}
	for i := range count {
		name := f.env("GIT_CONFIG_KEY_" + strconv.Itoa(i))
		last := strings.LastIndexByte(name, '.')
		if last < 0 {
			return fmt.Errorf("environment: GIT_CONFIG_KEY_%d: want section.key: unset it", i)
		}
		v := inherit([]byte(name[:last]))
		v.Section, v.Key = strings.ToLower(v.Section), strings.ToLower(name[last+1:])
		v.Value = f.env("GIT_CONFIG_VALUE_" + strconv.Itoa(i))
		vars = append(vars, v)
	}
	return f.variables(vars, "", 0)
}

// expand does what git does to a path in its configuration.
func (f *finder) expand(value string) (string, error) {
	value = strings.TrimPrefix(value, ":(optional)")
	if strings.HasPrefix(value, "%(prefix)/") {
		return "", fmt.Errorf("%q: where git is installed is not known: name the directory itself", value)
	}
	name, ok := strings.CutPrefix(value, "~")
	if !ok {
		return value, nil
	}
	name, rest, _ := strings.Cut(name, "/")
	if name == "" {
		return f.Home + "/" + rest, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return "", fmt.Errorf("%q: %w: name the directory itself", value, err)
	}
	return u.HomeDir + "/" + rest, nil
}

// absolute returns the paths that a path can mean. A relative one begins where
// git runs: in the worktree's root, and in a bare repository in the git directory.
func (f *finder) absolute(path string) []string {
	switch {
	case filepath.IsAbs(path):
		return []string{path}
	case f.WorkTree != "":
		return []string{f.WorkTree + "/" + path}
	}
	paths := make([]string, 0, len(f.GitDirs))
	for _, dir := range f.GitDirs {
		paths = append(paths, dir+"/"+path)
	}
	return paths
}

// hooksDir keeps a directory of hooks, and what its links lead to.
func (f *finder) hooksDir(path string, src Source) error {
	dirs := []string{path}
	// husky's directory of hooks, .husky/_, runs what lies beside it.
	if filepath.Base(path) == "_" {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		t, err := f.trace(dir)
		if err != nil {
			return err
		}
		if (t.inside || t.end == f.Workspace) && f.holdsRepository(t.end) {
			return fmt.Errorf("%s: hooks in %s cannot be told from what else is there: give them a directory of their own", src, t.end)
		}
		f.keep(f.hooks, t, src)
		if err := f.hookLinks(t.end, src); err != nil {
			return err
		}
	}
	return nil
}

// hookLinks keeps what single hooks of a directory, wherever it is, lead to.
func (f *finder) hookLinks(dir string, src Source) error {
	const maxHooks = 1000
	f.looked[dir+"/"] = Look(dir + "/")
	file, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	var entries []fs.DirEntry
	if err == nil {
		defer file.Close() //nolint:errcheck // only read
		if entries, err = file.ReadDir(maxHooks + 1); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("git hooks: %w: make the directory readable, or remove it", err)
	case len(entries) > maxHooks:
		return fmt.Errorf("git hooks: more than %d files in %s: remove what is no hook", maxHooks, dir)
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			if err := f.place(f.programs, filepath.Join(dir, e.Name()), src); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *finder) place(set map[string]bool, path string, src Source) error {
	t, err := f.trace(path)
	if err == nil {
		f.keep(set, t, src)
	}
	return err
}

// keep adds a trail's end to set, and what holds the trail to files and ways.
func (f *finder) keep(set map[string]bool, t trail, src Source) {
	add := func(set map[string]bool, rel string) {
		set[rel] = true
		if _, ok := f.why[rel]; !ok {
			f.why[rel] = src
		}
	}
	for _, link := range t.links {
		add(set, link)
	}
	for _, link := range t.dirLinks {
		add(f.files, link)
	}
	// A directory that has the repository within is no file that git could read.
	if t.inside && !f.holdsRepository(t.end) {
		rel, _ := f.rel(t.end)
		add(set, rel)
	}
	for _, way := range t.ways {
		f.ways[way] = true
	}
}

// holdsRepository tells whether the worktree or a git directory is dir or below it.
func (f *finder) holdsRepository(dir string) bool {
	return slices.ContainsFunc(append([]string{f.Workspace, f.WorkTree}, f.GitDirs...), func(path string) bool {
		return path == dir || strings.HasPrefix(path, dir+"/")
	})
}

func sorted(set map[string]bool) []string {
	list := make([]string, 0, len(set))
	for name := range set {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
