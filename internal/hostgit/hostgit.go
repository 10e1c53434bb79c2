// Package hostgit owns how Lazaret runs the host's git by itself: so that
// neither the environment, nor a repository's configuration, nor what an agent
// has written into a working tree can make it start another program or reach
// the network.
package hostgit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lazaret-dev/lazaret/internal/fixedpath"
)

// path is where git finds its own helpers and git-lfs.
const path = "/usr/local/bin:/usr/bin:/bin"

// maxOutput bounds what is kept of one call's output, in bytes.
const maxOutput = 64 << 20

// ErrBusy marks a call that was ended as it took too long.
var ErrBusy = errors.New("took too long")

// Git is a host's git. The zero value is not valid; use New.
type Git struct {
	program string
	env     []string
	lfs     bool
	foreign bool
}

// New finds git in fixed directories. home and configHome are where the
// developer's own configuration lies; "" for none.
func New(home, configHome string) (*Git, error) {
	program, err := fixedpath.Look("git")
	if err != nil {
		return nil, fmt.Errorf("%w: install git on the host, or set git = \"sentry\" in the profile", err)
	}
	g := &Git{program: program, env: []string{
		"PATH=" + path,
		"LC_ALL=C",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_ALLOW_PROTOCOL=none", // what GIT_NO_LAZY_FETCH is to git before 2.44
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_EDITOR=:",
		"GIT_SEQUENCE_EDITOR=:",
		"GIT_PAGER=cat",
		// git-lfs would ask the network for what it has not; git lfs checkout does not.
		"GIT_LFS_SKIP_SMUDGE=1",
	}}
	if home != "" {
		g.env = append(g.env, "HOME="+home)
	}
	if configHome != "" {
		g.env = append(g.env, "XDG_CONFIG_HOME="+configHome)
	}
	_, err = fixedpath.Look("git-lfs")
	g.lfs = err == nil
	return g, nil
}

// AnyOwner is a git that also opens what belongs to another user, for a rootful
// engine's process that reads the developer's repository.
func (g *Git) AnyOwner() *Git {
	other := *g
	other.foreign = true
	return &other
}

// Program is git's path.
func (g *Git) Program() string { return g.program }

// HasLFS reports whether git-lfs is installed.
func (g *Git) HasLFS() bool { return g.lfs }

// Error is a git that ended with another status than 0.
type Error struct {
	Args   []string
	Code   int
	Stderr string
}

func (e *Error) Error() string {
	msg := strings.TrimSpace(e.Stderr)
	if msg == "" {
		msg = "exit status " + strconv.Itoa(e.Code)
	}
	return fmt.Sprintf("git %s: %.2000s", e.Args[0], strings.Join(strings.Fields(msg), " "))
}

// Code is the exit status of a git that ran, 0 for nil, -1 for another error.
func Code(err error) int {
	var e *Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}
	return -1
}

// Repo is one working tree of a repository. The zero value of its fields leaves
// the finding to git; set all three for a working tree that an agent has
// written, so that nothing in it is asked where the repository is.
type Repo struct {
	git *Git

	Cwd       string // where git is started
	GitDir    string // of this working tree
	CommonDir string // of the repository
	WorkTree  string

	config []setting // what the repository's configuration must not do
	Notes  []string  // what of it was switched off
}

type setting struct{ key, value string }

// fixed are the settings of every call.
func fixed() []setting {
	return []setting{
		{"core.hooksPath", "/dev/null"},
		{"core.fsmonitor", "false"},
		{"core.pager", "cat"},
		{"credential.helper", ""},
		{"commit.gpgSign", "false"},
		{"diff.submodule", "short"},
		{"gc.auto", "0"},
		{"gc.autoDetach", "false"},
		{"maintenance.auto", "false"},
		{"rerere.enabled", "false"},
		{"status.submoduleSummary", "false"},
		{"submodule.recurse", "false"},
		{"advice.detachedHead", "false"},
	}
}

// At is a repository that git finds from dir, which must be absolute.
func (g *Git) At(ctx context.Context, dir string) (*Repo, error) {
	r := &Repo{git: g, Cwd: dir}
	return r, r.disarm(ctx)
}

// Identity is the name and the address that the developer's commits in dir have,
// each "" where git has been told none.
func (g *Git) Identity(ctx context.Context, dir string) (name, email string, err error) {
	r := &Repo{git: g, Cwd: dir} // to read settings starts no program
	out, err := r.Output(ctx, "config", "--null", "--get-regexp", `^user\.(name|email)$`)
	const none = 1
	if Code(err) == none {
		return "", "", nil
	}
	for entry := range strings.SplitSeq(string(out), "\x00") {
		switch key, value, _ := strings.Cut(entry, "\n"); key { // the last one counts
		case "user.name":
			name = value
		case "user.email":
			email = value
		}
	}
	return name, email, err
}

// Open is a repository whose places are known.
func (g *Git) Open(ctx context.Context, gitDir, commonDir, workTree string) (*Repo, error) {
	r := &Repo{git: g, Cwd: workTree, GitDir: gitDir, CommonDir: commonDir, WorkTree: workTree}
	if workTree == "" {
		r.Cwd = gitDir
	}
	return r, r.disarm(ctx)
}

// disarm switches off every program that the configuration names for content:
// attributes that an agent writes choose among them, and "./tool" would be the
// agent's. git-lfs in its own spelling stays.
func (r *Repo) disarm(ctx context.Context) error {
	out, err := r.Output(ctx, "config", "--list", "-z")
	if err != nil {
		return err
	}
	values := map[string]string{}
	for entry := range strings.SplitSeq(string(out), "\x00") {
		key, value, _ := strings.Cut(entry, "\n")
		values[key] = value // the last one counts
	}
	var off []string
	for key, value := range values {
		section, rest, _ := strings.Cut(key, ".")
		dot := strings.LastIndexByte(rest, '.')
		if dot < 0 {
			continue
		}
		name, variable := rest[:dot], rest[dot+1:]
		switch section + "." + variable {
		case "filter.clean", "filter.smudge", "filter.process":
			if r.git.lfs && name == "lfs" && lfsCommand(value) {
				continue
			}
			r.config = append(r.config, setting{key, ""}, setting{"filter." + name + ".required", "false"})
			off = append(off, "filter "+name)
		case "merge.driver":
			// An empty one would quietly take our side; this one is a conflict.
			r.config = append(r.config, setting{key, "false"})
			off = append(off, "merge driver "+name)
		}
	}
	slices.Sort(off)
	for _, o := range slices.Compact(off) {
		r.Notes = append(r.Notes, fmt.Sprintf("git's %.80q is not run on the host for the agent's files", o))
	}
	return nil
}

func lfsCommand(value string) bool {
	switch value {
	case "git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs smudge --skip -- %f", "git-lfs filter-process", "git-lfs filter-process --skip":
		return true
	}
	return false
}

// Limit of one call: a checkout of a large repository takes its time.
const Limit = 10 * time.Minute

// Output runs git and returns what it wrote. A status other than 0 is an *Error.
func (r *Repo) Output(ctx context.Context, args ...string) ([]byte, error) {
	return r.Run(ctx, Call{Args: args})
}

// Line is Output without the line's end.
func (r *Repo) Line(ctx context.Context, args ...string) (string, error) {
	out, err := r.Output(ctx, args...)
	return strings.TrimRight(string(out), "\n"), err
}

// Call is one run of git.
type Call struct {
	Args  []string
	Stdin []byte
	Env   []string // beside those of every call, above them
	// OwnFilters lets the developer's own filters run: only where the working
	// tree is the developer's and he has asked for the call.
	OwnFilters bool
}

// Run is Output with more to say.
func (r *Repo) Run(ctx context.Context, c Call) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	cmd := exec.CommandContext(limited, r.git.program, c.Args...)
	cmd.Dir = r.Cwd
	cmd.Env = append(r.environment(c.OwnFilters), c.Env...)
	if c.Stdin != nil {
		cmd.Stdin = bytes.NewReader(c.Stdin)
	}
	cmd.WaitDelay = time.Second
	var stdout, stderr capped
	stdout.most, stderr.most = maxOutput, 1<<16
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case limited.Err() != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("git %s: %w (more than %s)", c.Args[0], ErrBusy, Limit)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("git %s: %w", c.Args[0], ctx.Err())
	case errors.As(err, &exit):
		return stdout.Bytes(), &Error{Args: c.Args, Code: exit.ExitCode(), Stderr: stderr.String()}
	case err != nil:
		return nil, fmt.Errorf("run %s: %w", r.git.program, err)
	case stdout.cut:
		return nil, fmt.Errorf("git %s: its output has more than %d bytes", c.Args[0], maxOutput)
	}
	return stdout.Bytes(), nil
}

// environment has its settings in variables and not in -c options: a key may
// hold an equals sign.
func (r *Repo) environment(ownFilters bool) []string {
	env := slices.Clone(r.git.env)
	for name, value := range map[string]string{"GIT_DIR": r.GitDir, "GIT_COMMON_DIR": r.CommonDir, "GIT_WORK_TREE": r.WorkTree} {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	config := fixed()
	if r.git.foreign {
		config = append(config, setting{"safe.directory", "*"})
	}
	if !ownFilters {
		config = append(config, r.config...)
	}
	for i, s := range config {
		n := strconv.Itoa(i)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+s.key, "GIT_CONFIG_VALUE_"+n+"="+s.value)
	}
	return append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(config)))
}

// capped keeps the first bytes of what is written to it.
type capped struct {
	bytes.Buffer
	most int
	cut  bool
}

func (c *capped) Write(p []byte) (int, error) {
	if room := c.most - c.Len(); len(p) > room {
		c.cut = true
		c.Buffer.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return c.Buffer.Write(p)
}

// DeveloperEnv is environ without what would lead git to another repository:
// for a git that the developer has asked for in his own working tree.
func DeveloperEnv(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
			"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE":
			return true
		}
		return false
	})
}

// Changes counts the files with uncommitted changes, new ones among them, a
// directory of only new files as one. Submodules are not looked into.
func (r *Repo) Changes(ctx context.Context) (int, error) {
	out, err := r.Output(ctx, "status", "--porcelain=v1", "-z", "--untracked-files=normal", "--ignore-submodules=all", "--no-renames")
	if err != nil {
		return 0, err
	}
	return bytes.Count(out, []byte{0}), nil
}

// SubmoduleDir reports whether gitDir is that of a submodule.
func SubmoduleDir(gitDir string) bool {
	for dir := filepath.Dir(gitDir); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if filepath.Base(dir) == "modules" {
			if _, err := os.Lstat(filepath.Join(filepath.Dir(dir), "HEAD")); err == nil {
				return true
			}
		}
	}
	return false
}
