package shim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
)

// lowRuntime is the runsc to become, or why there is none.
type lowRuntime struct {
	path string
	err  error
}

// probed is what was found out about one runsc.
type probed struct {
	Version string   `json:"version"`
	Flags   []string `json:"flags"`
	Verbs   []string `json:"verbs"`
}

// lowRuntime finds runsc: the configured one, else "runsc" in the fixed
// directories. cfg may be nil: then the user's configuration is read if it can
// be, for a broken one must not keep anybody from ending a container.
func (s *shim) lowRuntime(cfg *config.Config) lowRuntime {
	name := "runsc"
	if cfg == nil {
		if c, err := config.Load(s.configOptions("")); err == nil {
			cfg = c
		}
	}
	if cfg != nil && cfg.Runtime.Sandbox != "" {
		name = cfg.Runtime.Sandbox
	}
	path, err := fixedpath.Look(name)
	if err != nil {
		return lowRuntime{err: fmt.Errorf("low-level runtime: %w: install gVisor's runsc, or set [runtime] sandbox to its path", err)}
	}
	if isSelf(path) {
		return lowRuntime{err: fmt.Errorf("low-level runtime: %s is lazaret-runtime itself, which would start itself for ever: set [runtime] sandbox to gVisor's runsc", path)}
	}
	return lowRuntime{path: path}
}

func isSelf(path string) bool {
	other, err := os.Stat(path)
	if err != nil {
		return false
	}
	self, err := os.Stat("/proc/self/exe")
	return err == nil && os.SameFile(self, other)
}

// probe asks runsc what it is, once for each binary: the answer is kept in the
// runtime directory under the file's identity.
func (l lowRuntime) probe(env hostenv.Env) probed {
	var st unix.Stat_t
	if l.err != nil || unix.Stat(l.path, &st) != nil {
		return probed{}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %d %d", l.path, st.Dev, st.Ino, st.Size, st.Mtim.Nano()))
	dir := filepath.Join(env.RuntimeDir, "runsc")
	cache := filepath.Join(dir, hex.EncodeToString(sum[:8])+".json")
	var p probed
	if env.RuntimeDir == "" {
		return l.ask()
	}
	if data, err := os.ReadFile(cache); err == nil && json.Unmarshal(data, &p) == nil && len(p.Flags) > 0 {
		return p
	}
	p = l.ask()
	if data, err := json.Marshal(p); err == nil && len(p.Flags) > 0 && os.MkdirAll(dir, 0o700) == nil {
		_ = atomicfile.Write(cache, data, 0o600, false) // only costs the next call time
	}
	return p
}

func (l lowRuntime) ask() probed {
	var p probed
	run := func(args ...string) string {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, l.path, args...)
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		// Whatever the program is: it and its children end with the time limit.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second
		var out bounded
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run() // runsc's help exits with 0 or 128, by version
		return string(out)
	}
	first, _, _ := strings.Cut(run("--version"), "\n")
	version, ok := strings.CutPrefix(strings.TrimSpace(first), "runsc version ")
	if !ok {
		return probed{} // another program, one that hangs, or none that can be started
	}
	p.Version = version
	// Compiled here: most calls only read the cache.
	flagLine := regexp.MustCompile(`(?m)^\s+-([A-Za-z0-9_-]+)`)
	for _, m := range flagLine.FindAllStringSubmatch(run("flags"), -1) {
		p.Flags = append(p.Flags, m[1])
	}
	for line := range strings.Lines(run("help")) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(line, "\t") {
			p.Verbs = append(p.Verbs, f[0])
		}
	}
	return p
}

// bounded keeps the first megabyte that is written to it.
type bounded []byte

func (b *bounded) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), 1<<20-len(*b))]...)
	return len(p), nil
}

func (l lowRuntime) hasVerb(env hostenv.Env, verb string) bool {
	return slices.Contains(l.probe(env).Verbs, verb)
}

func (p probed) hasFlag(name string) bool { return slices.Contains(p.Flags, name) }

// hideNet reports whether this runsc needs hideNetSysctls. The flag came long
// after the check was mended; hiding is harmless for those in between.
func (p probed) hideNet() bool { return !p.hasFlag("systrap-disable-fast-path") }
