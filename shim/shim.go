// Package shim owns the OCI runtime command line of lazaret-runtime: it parses
// what the engine says, prepares the container where the verb makes one, and
// becomes runsc by one execve(2), so that exit code, output, signals and
// descriptors are runsc's own.
package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/filelimit"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
	"github.com/lazaret-dev/lazaret/internal/ociargv"
	"github.com/lazaret-dev/lazaret/internal/version"
	"github.com/lazaret-dev/lazaret/spec"
)

// exitError is the exit code of every failure of ours, as runc's.
const exitError = 1

// program is how messages name us.
const program = "lazaret"

// specVersion is the newest runtime-spec that current runsc takes.
const specVersion = "1.2.1"

const usage = `lazaret-runtime is an OCI runtime that wraps gVisor's runsc.

Usage: lazaret-runtime [global flags] COMMAND [flags] [CONTAINER-ID …]

Engines call it, for example: podman run --runtime=lazaret -v "$PWD:/workspace" IMAGE
Commands and flags are those of runc and runsc; create, run, restore and exec
are prepared by Lazaret, everything else goes to runsc as it is.

  --config FILE   a configuration above the user's and the workspace's
  --version       print the versions of lazaret-runtime and runsc
  --help          print this text

See lazaret-runtime(8).
`

// Main runs one command line (without the program's name) and returns the exit
// code; on success it does not return, as the process has become runsc.
func Main(args []string, stdout, stderr io.Writer) int {
	cmd, err := ociargv.Parse(args)
	if err != nil {
		return report(cmd, stderr, err)
	}
	env, err := hostenv.Detect(hostenv.Host())
	if err != nil && preparedVerb(cmd.Verb) {
		// Others go on as if nothing were known of the container: whoever spoils the
		// runtime directory must not keep it from its end.
		return report(cmd, stderr, err)
	}
	s := &shim{cmd: cmd, env: env, stdout: stdout, stderr: stderr}
	return report(cmd, stderr, s.run())
}

// unsafeFlag is what advice found online adds to make runsc start rootless.
const unsafeFlag = "TESTONLY-unsafe-nonroot"

// unsafeArg reports whether a flag is unsafeFlag, in whichever spelling.
func unsafeArg(arg string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name == unsafeFlag
}

func errUnsafeFlag() error {
	return fmt.Errorf("flag %s takes the sandbox's own walls down: leave it out; rootless engines need no such flag here", unsafeFlag)
}

type shim struct {
	cmd    *ociargv.Command
	env    hostenv.Env
	stdout io.Writer
	stderr io.Writer
}

func (s *shim) run() error {
	if s.cmd.HasGlobal(unsafeFlag) {
		if s.cmd.Verb != "delete" {
			return errUnsafeFlag()
		}
		// The engine clears up after the create that was refused.
		s.cmd.Global = slices.DeleteFunc(s.cmd.Global, unsafeArg)
	}
	if s.cmd.Verb == "" && s.cmd.Version {
		return s.version()
	}
	if s.cmd.Verb == "" {
		if s.cmd.Help {
			_, err := io.WriteString(s.stdout, usage)
			return err
		}
		return errors.New("no command given; see lazaret-runtime --help")
	}
	if s.cmd.Help {
		return s.exec(s.lowRuntime(nil), "--help")
	}
	if s.cmd.Refused != "" {
		return fmt.Errorf("not supported by lazaret: %s", s.cmd.Refused)
	}
	switch s.cmd.Verb {
	case "create", "run", "restore":
		return s.create()
	case "exec":
		if err := s.detachedWords(); err != nil {
			return err
		}
		return s.execVerb()
	case "features":
		return s.features()
	}
	return s.passThrough()
}

// preparedVerb reports whether Lazaret does something of its own for a verb.
func preparedVerb(verb string) bool {
	switch verb {
	case "create", "run", "restore", "exec", "start", "update":
		return true
	}
	return false
}

// passThrough becomes runsc with the container's own settings, or, for a
// container that is not known here, with the configured ones.
func (s *shim) passThrough() error {
	st, err := s.state()
	if err != nil && !errors.Is(err, fs.ErrNotExist) && preparedVerb(s.cmd.Verb) {
		return err // these need to know; nothing else may keep a container from its end
	}
	if err != nil {
		low := s.lowRuntime(nil)
		if !ociargv.IsVerb(s.cmd.Verb) && !low.hasVerb(s.env, s.cmd.Verb) {
			return fmt.Errorf("unknown command %q; see lazaret-runtime --help", s.cmd.Verb)
		}
		if s.cmd.Verb == "update" && !low.hasVerb(s.env, "update") {
			return fmt.Errorf("update is not supported by lazaret with this runsc (%s): install a current one", low.path)
		}
		return s.exec(low)
	}
	if s.cmd.Verb == "update" {
		low := lowRuntime{path: st.Runsc}
		if !low.hasVerb(s.env, "update") {
			return fmt.Errorf("update is not supported by lazaret with this runsc (%s): install a current one", st.Runsc)
		}
		if hasFlag(st.RunscFlags, "--ignore-cgroups") {
			return fmt.Errorf("update is not supported by lazaret here: container %s runs without a cgroup of its own, so no limit could be enforced", st.ID)
		}
	}
	if s.cmd.Verb == "start" && st.LateNet {
		if err := s.connectNetwork(st); err != nil {
			return err
		}
	}
	if s.cmd.Verb == "start" && st.HideNet {
		if err := hideNetSysctls(); err != nil {
			return err
		}
	}
	return s.exec(lowRuntime{path: st.Runsc}, s.missingFlags(st.RunscFlags)...)
}

// state is what create kept of the container that the command names;
// fs.ErrNotExist when it names none that we know.
func (s *shim) state() (containerstate.State, error) {
	id := s.cmd.ID()
	if !containerstate.ValidID(id) || s.env.RuntimeDir == "" {
		return containerstate.State{}, fs.ErrNotExist
	}
	return containerstate.ReadState(containerstate.Dir(s.env.RuntimeDir, id))
}

// missingFlags leaves out what the caller gave himself.
func (s *shim) missingFlags(flags []string) []string {
	var out []string
	for _, f := range flags {
		name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "=")
		if !s.cmd.HasGlobal(name) {
			out = append(out, f)
		}
	}
	return out
}

func hasFlag(flags []string, want string) bool {
	for _, f := range flags {
		if f == want {
			return true
		}
	}
	return false
}

// exec becomes the low-level runtime. It returns only on failure.
func (s *shim) exec(low lowRuntime, extraGlobal ...string) error {
	if low.err != nil {
		return low.err
	}
	argv := s.cmd.Argv(filepath.Base(low.path), extraGlobal...)
	if s.cmd.Verb == "create" || s.cmd.Verb == "run" || s.cmd.Verb == "restore" {
		// What the container's processes may is set in config.json.
		if err := filelimit.Raise(); err != nil {
			return err
		}
	}
	err := syscall.Exec(low.path, argv, os.Environ())
	return fmt.Errorf("run %s: %w: check [runtime] sandbox, or install runsc", low.path, err)
}

func (s *shim) version() error {
	// containerd and docker read the words "version", "commit:" and "spec:".
	_, err := fmt.Fprintf(s.stdout, "lazaret-runtime version %s\ncommit: %s\nspec: %s\ngo: %s\n", version.Version, version.Commit, specVersion, runtime.Version())
	if err != nil {
		return err
	}
	low := s.lowRuntime(nil)
	if low.err != nil {
		_, err := fmt.Fprintf(s.stdout, "runsc: %v\n", low.err)
		return err
	}
	_, err = fmt.Fprintf(s.stdout, "runsc: %s %s\n", low.path, low.probe(s.env).Version)
	return err
}

// report tells err where the engine looks: one JSON object (or text line) in
// the --log file, one line on stderr.
func report(cmd *ociargv.Command, stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	msg := oneLine(err.Error())
	var command *spec.ExecError
	if !errors.As(err, &command) {
		// podman takes the kernel's words anywhere in a message for a missing
		// command: status 127, and a line that says so.
		msg = strings.ReplaceAll(msg, "no such file or directory", "no such file")
	}
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", program, msg) // nowhere left to complain
	if cmd.Log != "" {
		if lerr := appendLog(cmd.Log, cmd.LogFormat, msg); lerr != nil {
			_, _ = fmt.Fprintf(stderr, "%s: %v\n", program, lerr)
		}
	}
	return exitError
}

func appendLog(path, format, msg string) error {
	now := time.Now().Format(time.RFC3339)
	line := fmt.Sprintf("time=%q level=error msg=%q\n", now, msg)
	if format == "json" {
		data, err := json.Marshal(map[string]string{"level": "error", "msg": msg, "time": now})
		if err != nil {
			return fmt.Errorf("write log %s: %w", path, err)
		}
		line = string(data) + "\n"
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_CLOEXEC, 0o644) //nolint:gosec // the engine reads it, as runc's
	if err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// maxLine bounds a message, in bytes before escapes: words of the command line
// and of config.json can be in it.
const maxLine = 4096

// oneLine keeps a message to one inert line, as parts of it can come from an
// image or from the workspace. Line breaks become blanks; whatever else a
// terminal acts upon, or that hides or reorders text, is shown escaped.
func oneLine(s string) string {
	if len(s) > maxLine {
		// The reason is at the end.
		s = s[:maxLine/2] + " … " + s[len(s)-maxLine/2:]
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			b.WriteByte(' ')
		case r == utf8.RuneError && s[i] != "\uFFFD"[0], r < utf8.RuneSelf && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, s[i]) // a byte that is no text, or a control character
		case !unicode.IsPrint(r) || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hideNetSysctls gives this process, and the runsc that it becomes, a mount
// namespace in which /proc/sys/net is empty. runsc before 2025 takes any network
// namespace that shows /proc/sys/net/core for the host's own and refuses to
// start; newer kernels show parts of that directory everywhere.
func hideNetSysctls() error {
	// execve(2) ends all other threads and keeps this one with its namespace.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace for an old runsc: %w: install a current runsc", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private for an old runsc: %w: install a current runsc", err)
	}
	if err := unix.Mount("tmpfs", "/proc/sys/net", "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k"); err != nil {
		return fmt.Errorf("cover /proc/sys/net for an old runsc: %w: install a current runsc", err)
	}
	return nil
}
