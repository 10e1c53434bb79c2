// Command bench prints what Lazaret costs against plain runsc, as ratios of one
// run: the same podman, runsc binary, image and workspace, taken in turns.
//
// It wants a machine prepared by test/scripts/setup.sh and an installed build
// that LAZARET_TEST_PREFIX names; make bench does both. BENCH_N sets the number
// of rounds. It judges nothing but prints whether each aim is met.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	runsc   = "/usr/local/lib/lazaret-test/runsc"
	image   = "localhost/lazaret-test/busybox:1"
	account = "lazaret-test"
)

// bench is one place to measure in: a home, a workspace and a user.
type bench struct {
	ctx    context.Context
	dir    string
	run    string // XDG_RUNTIME_DIR
	prefix string
	cred   *syscall.Credential // nil to stay who we are
	n      int
}

func main() {
	if err := run(context.Background()); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	b := &bench{ctx: ctx, prefix: os.Getenv("LAZARET_TEST_PREFIX"), n: 15}
	if b.prefix == "" {
		return errors.New("LAZARET_TEST_PREFIX is not set: use make bench")
	}
	if s := os.Getenv("BENCH_N"); s != "" {
		if b.n, err = strconv.Atoi(s); err != nil || b.n < 3 {
			return fmt.Errorf("BENCH_N is %q: it must be a number from 3", s)
		}
	}
	if err := b.setUp(); err != nil {
		return errors.Join(err, b.tearDown())
	}
	return errors.Join(b.measure(), b.tearDown())
}

func (b *bench) setUp() error {
	u, err := user.Current()
	if err == nil && u.Uid == "0" {
		u, err = user.Lookup(account)
	}
	if err != nil {
		return err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if uid != os.Getuid() {
		b.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // ids of an account
	}
	if b.dir, err = os.MkdirTemp("/var/tmp", "lazaret-bench."); err != nil {
		return err
	}
	b.run = filepath.Join("/run/user", u.Uid, filepath.Base(b.dir))
	for _, d := range []string{b.run, b.dir, filepath.Join(b.dir, "ws"), filepath.Join(b.dir, ".config/containers"), filepath.Join(b.dir, ".config/lazaret")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	storage := fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n[storage.options]\nadditionalimagestores = [%q]\n",
		filepath.Join(b.dir, "storage"), filepath.Join(b.run, "containers"), filepath.Join(u.HomeDir, ".local/share/lazaret-test/storage"))
	if err := errors.Join(
		os.WriteFile(filepath.Join(b.dir, ".config/containers/storage.conf"), []byte(storage), 0o600),
		os.WriteFile(filepath.Join(b.dir, ".config/lazaret/config.toml"), fmt.Appendf(nil, "[runtime]\nsandbox = %q\n", runsc), 0o600),
	); err != nil {
		return err
	}
	for _, root := range []string{b.dir, b.run} {
		if err := filepath.Walk(root, func(p string, _ os.FileInfo, err error) error {
			return errors.Join(err, os.Lchown(p, uid, gid))
		}); err != nil {
			return err
		}
	}
	_, err = b.output(filepath.Join(b.prefix, "bin/lazaret"), "init")
	return err
}

func (b *bench) tearDown() error {
	if b.dir == "" {
		return nil
	}
	_, err := b.output("podman", "rm", "-fa", "-t", "0")
	// Files of subordinate ids are only the namespace's to remove, and podman
	// keeps its store a mount there, in a namespace that a process holds.
	storage := filepath.Join(b.dir, "storage")
	_, err2 := b.output("podman", "unshare", "sh", "-c", `umount -l "$1/overlay" 2>/dev/null; rm -rf "$1"`, "sh", storage)
	_, err3 := b.output("podman", "system", "migrate")
	return errors.Join(err, err2, err3, os.RemoveAll(b.dir), os.RemoveAll(b.run))
}

func (b *bench) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.ctx, name, args...) //nolint:gosec // our own commands
	cmd.Dir = filepath.Join(b.dir, "ws")
	cmd.Env = []string{"HOME=" + b.dir, "XDG_RUNTIME_DIR=" + b.run, "LANG=C.UTF-8", "PATH=" + b.prefix + "/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.cred}
	return cmd
}

func (b *bench) output(name string, args ...string) (string, error) {
	cmd := b.command(name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// plain and lazaret are podman's arguments that choose the runtime.
func plain(flags ...string) []string {
	args := []string{"--runtime=" + runsc, "--runtime-flag=ignore-cgroups"}
	for _, f := range flags {
		args = append(args, "--runtime-flag="+f)
	}
	return args
}

var lazaret = []string{"--runtime=lazaret"} //nolint:gochecknoglobals // a constant list

func (b *bench) podmanRun(runtime []string, extra ...string) []string {
	args := slices.Concat(runtime, []string{"run", "--rm", "-v", filepath.Join(b.dir, "ws") + ":/workspace"}, extra)
	return append(args, image, "true")
}

func (b *bench) measure() error {
	fmt.Printf("%d rounds each, medians in ms (spread: 10th to 90th percentile)\n\n", b.n)
	fmt.Printf("%-44s %22s %22s %7s  %s\n", "", "plain runsc", "lazaret", "ratio", "aim")
	runs := func(title string, aim float64, flags ...string) error {
		return b.compare(title, aim, false,
			b.podman(b.podmanRun(plain(flags...))...), b.podman(b.podmanRun(lazaret)...))
	}
	if err := errors.Join(
		runs("run true, first in the domain", 1.25, "overlay2=none"),
		runs("the same, plain with its own overlay", 0),
	); err != nil {
		return err
	}
	// A container that lives keeps the coordinator up.
	for name, rt := range map[string][]string{"lz": lazaret, "pl": plain("overlay2=none")} {
		args := slices.Concat(rt, []string{"run", "-d", "--name", name, "-v", filepath.Join(b.dir, "ws") + ":/workspace", image, "sleep", "3600"})
		if _, err := b.output("podman", args...); err != nil {
			return err
		}
	}
	if err := errors.Join(
		runs("run true, coordinator up", 1.05, "overlay2=none"),
		b.compare("exec true", 1.05, false, b.podman("exec", "pl", "true"), b.podman("exec", "lz", "true")),
	); err != nil {
		return err
	}
	id, err := b.output("podman", "inspect", "--format", "{{.Id}}", "lz")
	if err != nil {
		return err
	}
	fmt.Println()
	// Inside podman's namespaces, as podman calls them; both on one container.
	verbs := [][]string{{"state", id}, {"list"}, {"ps", id}, {"kill", id, "0"}, {"delete", "--force", "nobody"}}
	for _, v := range verbs {
		shown := strings.ReplaceAll(strings.Join(v, " "), id, "ID")
		if err := b.inNamespace("verb "+shown, 3, v); err != nil {
			return err
		}
	}
	fmt.Println()
	return b.memory()
}

// podman is a command to take the time of.
func (b *bench) podman(args ...string) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		cmd := b.command("podman", args...)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		begin := time.Now()
		err := cmd.Run()
		took := time.Since(begin)
		if err != nil {
			err = fmt.Errorf("podman %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
		}
		return took, err
	}
}

// inNamespace compares one verb: a shell in podman's namespaces calls it often,
// so that the namespace's own cost is shared out.
func (b *bench) inNamespace(title string, aim float64, verb []string) error {
	const calls = 20
	timed := func(program string) func() (time.Duration, error) {
		script := `for i in $(seq ` + strconv.Itoa(calls) + `); do "$@" >/dev/null 2>&1; done; :`
		return func() (time.Duration, error) {
			took, err := b.podman(slices.Concat([]string{"unshare", "sh", "-c", script, "sh", program}, verb)...)()
			return took / calls, err
		}
	}
	return b.compare(title, aim, true, timed(runsc), timed(filepath.Join(b.prefix, "bin/lazaret-runtime")))
}

// compare takes the two in turns and prints a line: a ratio, or with added the
// difference in ms. An aim of 0 is none.
func (b *bench) compare(title string, aim float64, added bool, x, y func() (time.Duration, error)) error {
	var xs, ys []float64
	for i := range b.n + 1 {
		dx, err := x()
		if err != nil {
			return err
		}
		dy, err := y()
		if err != nil {
			return err
		}
		if i > 0 { // the first warms up
			xs, ys = append(xs, dx.Seconds()*1000), append(ys, dy.Seconds()*1000)
		}
	}
	mx, my := median(xs), median(ys)
	value, unit := my/mx, "×"
	if added {
		value, unit = my-mx, " ms"
	}
	verdict := ""
	if aim > 0 {
		verdict = fmt.Sprintf("≤ %g%s: met", aim, unit)
		if value > aim {
			verdict = fmt.Sprintf("≤ %g%s: NOT met", aim, unit)
		}
	}
	fmt.Printf("%-44s %22s %22s %+7.2f  %s\n", title, spread(xs), spread(ys), value, verdict)
	return nil
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	return s[len(s)/2]
}

func spread(v []float64) string {
	s := slices.Clone(v)
	slices.Sort(s)
	return fmt.Sprintf("%.1f (%.1f–%.1f)", s[len(s)/2], s[len(s)/10], s[len(s)*9/10])
}

// memory prints the coordinator's resident memory with one container and ten.
func (b *bench) memory() error {
	for _, more := range []int{0, 9} {
		for i := range more {
			args := slices.Concat(lazaret, []string{"run", "-d", "--name", fmt.Sprintf("lz%d", i), "-v", filepath.Join(b.dir, "ws") + ":/workspace", image, "sleep", "3600"})
			if _, err := b.output("podman", args...); err != nil {
				return err
			}
		}
		out, err := b.output(filepath.Join(b.prefix, "bin/lazaret"), "status", "--json")
		if err != nil {
			return err
		}
		var st struct {
			Domains []struct {
				Containers  []any  `json:"containers"`
				MemoryBytes uint64 `json:"memory_bytes"`
			} `json:"domains"`
		}
		if err := json.Unmarshal([]byte(out), &st); err != nil || len(st.Domains) != 1 {
			return fmt.Errorf("lazaret status: %w: %s", err, out)
		}
		mb := float64(st.Domains[0].MemoryBytes) / (1 << 20)
		verdict := "met"
		if mb > 20 {
			verdict = "NOT met"
		}
		fmt.Printf("%-44s %53.1f  ≤ 20 MB: %s\n", fmt.Sprintf("coordinator's memory, %d containers, MB", len(st.Domains[0].Containers)), mb, verdict)
	}
	return nil
}
