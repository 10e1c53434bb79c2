// Package overlay gives tests overlay file systems of both drivers, in a user
// namespace of their own, as a rootless engine has it.
package overlay

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The drivers.
const (
	Kernel = "kernel"
	Fuse   = "fuse-overlayfs"
)

const inside = "LAZARET_TEST_OVERLAY"

// Inside reports whether the test runs in a namespace already. Where it does not,
// it runs the same test again in a new user and mount namespace, as root there and
// with uids up to 1000 where the caller has them, and passes its outcome on.
func Inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this very test
	cmd.Env = append(os.Environ(), inside+"=1")
	ids := []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
	gids := []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	if os.Geteuid() == 0 {
		ids[0].Size, gids[0].Size = 1001, 1001
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: ids, GidMappings: gids, GidMappingsEnableSetgroups: os.Geteuid() == 0,
		Pdeathsig: syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("in a namespace: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- SKIP") {
			t.Log(strings.TrimSpace(line))
		}
	}
	return false
}

// ManyIDs reports whether other uids than 0 are mapped.
func ManyIDs() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.HasSuffix(strings.TrimSpace(string(data)), "1001")
}

// Tree is one overlay; Merged is its mount.
type Tree struct {
	Driver               string
	Lower, Upper, Merged string
	t                    *testing.T
	work                 string
	fuse                 *exec.Cmd
}

// New makes and mounts an overlay over lower, which it makes if it is missing.
// Its end unmounts it.
func New(t *testing.T, driver, lower string) *Tree {
	t.Helper()
	dir := t.TempDir()
	o := &Tree{Driver: driver, Lower: lower, t: t, Upper: filepath.Join(dir, "upper"), Merged: filepath.Join(dir, "merged"), work: filepath.Join(dir, "work")}
	for _, d := range []string{o.Lower, o.Upper, o.Merged, o.work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o.Mount()
	t.Cleanup(o.Unmount)
	return o
}

// Mount mounts it again after Unmount.
func (o *Tree) Mount() {
	o.t.Helper()
	options := "lowerdir=" + o.Lower + ",upperdir=" + o.Upper + ",workdir=" + o.work
	if o.Driver == Kernel {
		if err := unix.Mount("overlay", o.Merged, "overlay", 0, options+",userxattr"); err != nil {
			o.t.Fatalf("mount an overlay: %v", err)
		}
		return
	}
	path, err := exec.LookPath("fuse-overlayfs")
	if err != nil {
		o.t.Skip("no fuse-overlayfs here")
	}
	o.fuse = exec.CommandContext(context.WithoutCancel(o.t.Context()), path, "-f", "-o", options, o.Merged)
	o.fuse.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	o.fuse.Stderr = os.Stderr
	if err := o.fuse.Start(); err != nil {
		o.t.Fatal(err)
	}
	var before, now unix.Stat_t
	if err := unix.Stat(filepath.Dir(o.Merged), &before); err != nil {
		o.t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := unix.Stat(o.Merged, &now); err == nil && now.Dev != before.Dev {
			return
		}
		if time.Now().After(deadline) {
			o.t.Fatal("fuse-overlayfs does not mount")
		}
	}
}

// Unmount detaches it; a second time does nothing.
func (o *Tree) Unmount() {
	err := unix.Unmount(o.Merged, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		o.t.Errorf("unmount: %v", err)
		_ = unix.Unmount(o.Merged, unix.MNT_DETACH)
	}
	if o.fuse != nil {
		_ = o.fuse.Wait() // ends with its mount
		o.fuse = nil
	}
}
