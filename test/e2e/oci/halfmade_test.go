package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// halfMade is a create that fails on the way.
type halfMade struct {
	name string
	// spec breaks the bundle, make the machine, and mend repairs that.
	spec  func(w *world, s *specs.Spec)
	make  func(w *world)
	mend  func(w *world)
	flags []string
	say   string // part of the message
	runsc bool   // runsc is reached and fails: its own exit code and words
}

func hook(script string) specs.Hook {
	return specs.Hook{Path: "/bin/sh", Args: []string{"sh", "-c", script}}
}

func prestart(h specs.Hook) *specs.Hooks {
	return &specs.Hooks{Prestart: []specs.Hook{h}} //nolint:staticcheck // ours is one, and engines still use it
}

// small mounts a file system of a few pages where Lazaret writes, and fills it.
func small(w *world, dir, options string) {
	w.t.Helper()
	w.engine("sh", "-ceu", `
		mkdir -p "$1"
		mount -t tmpfs -o "size=64k,mode=0700" tmpfs "$1"
		cat /dev/zero >"$1/filler" 2>/dev/null || :
		[ -z "$2" ] || mount -o "remount,$2" "$1"
	`, "sh", dir, options).OK(w.t)
}

func (w *world) unmount(dir string) {
	w.t.Helper()
	w.engine("umount", dir).OK(w.t)
}

// data is the data_root that configure sets.
func (w *world) data() string { return filepath.Join(w.Dir, "data") }

func (w *world) lazaretRun() string { return filepath.Join(w.Runtime, "lazaret") }

// configure writes the user's configuration anew.
func (w *world) configure(runtime string) {
	w.t.Helper()
	w.Config(fmt.Sprintf("[general]\ndata_root = %q\n[runtime]\nsandbox = %q\n%s\n", w.data(), w.Sandbox, runtime))
}

func TestHalfMadeContainers(t *testing.T) {
	tests := []halfMade{
		{name: "a full disk", make: func(w *world) { small(w, w.data(), "") }, mend: func(w *world) { w.unmount(w.data()) }, say: "no space left on device"},
		{name: "a read-only disk", make: func(w *world) { small(w, w.data(), "ro") }, mend: func(w *world) { w.unmount(w.data()) }, say: "read-only file system"},
		{name: "a full runtime directory", make: func(w *world) { small(w, w.lazaretRun(), "") }, mend: func(w *world) { w.unmount(w.lazaretRun()) }, say: "no space left on device"},
		{name: "a read-only runtime directory", make: func(w *world) { small(w, w.lazaretRun(), "ro") }, mend: func(w *world) { w.unmount(w.lazaretRun()) }, say: "read-only file system"},
		{name: "no such platform", make: func(w *world) { w.configure(`platform = "abacus"`) }, mend: func(w *world) { w.configure("") }, say: "platform"},
		{name: "a flag that runsc does not have", make: func(w *world) { w.configure(`args = ["--frobnicate"]`) }, mend: func(w *world) { w.configure("") }, say: "frobnicate"},
		{name: "no root file system", spec: func(_ *world, s *specs.Spec) { s.Root.Path = "no" }, say: "root file system"},
		{name: "the root file system is a file", spec: func(_ *world, s *specs.Spec) { s.Root.Path = "config.json" }, say: "root file system"},
		{name: "a mount without its source", spec: func(w *world, s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/x", Type: "bind", Source: w.Dir + "/no", Options: []string{"rbind"}})
		}, say: "source of the mount at /x"},
		{name: "no console socket", spec: func(_ *world, s *specs.Spec) { s.Process.Terminal = true }, flags: []string{"--console-socket", "/no/socket"}, runsc: true},
		{name: "a pid file that cannot be written", flags: []string{"--pid-file", "/no/pid"}, runsc: true},
		{name: "the user's prestart hook refuses", spec: func(_ *world, s *specs.Spec) {
			s.Hooks = prestart(hook("echo this is why >&2; exit 3"))
		}, runsc: true, say: "this is why"},
		{name: "the user's createRuntime hook refuses", spec: func(_ *world, s *specs.Spec) {
			s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{hook("exit 3")}}
		}, runsc: true},
		{name: "the user's hook is not there", spec: func(_ *world, s *specs.Spec) {
			s.Hooks = prestart(specs.Hook{Path: "/no/hook"})
		}, runsc: true},
		{name: "the coordinator is killed before the hook reaches it", spec: func(w *world, s *specs.Spec) {
			s.Hooks = prestart(hook("kill -9 $(cat " + w.data() + "/domains/*/coordinator.pid)"))
		}, runsc: true, say: "lazaret-hook"},
	}
	each(t, harness.Options{}, func(t *testing.T, w *world) {
		ws := w.Workspace()
		w.configure("")
		log := filepath.Join(w.Dir, "log.json")
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				w.t = t
				b := w.bundle("sleep 100", func(s *specs.Spec) {
					workspace(ws)(s)
					if tt.spec != nil {
						tt.spec(w, s)
					}
				})
				if tt.make != nil {
					tt.make(w)
				}
				id := w.id("c" + fmt.Sprint(i))
				before := w.Run("cat", b+"/config.json").OK(t)
				w.Run("rm", "-f", log).OK(t)
				args := slices.Concat([]string{"--network=none", "--log", log, "--log-format=json", "create", "--bundle", b}, tt.flags, []string{id})
				r := w.rt(args...)
				want := 1
				if tt.runsc {
					want = 128
				}
				if r.Code != want || strings.Contains(r.Stderr, "goroutine") || strings.Contains(r.Stdout, "goroutine") {
					t.Errorf("exit %d, want %d; stderr %s", r.Code, want, r.Stderr)
				}
				if !tt.runsc {
					if strings.Count(r.Stderr, "\n") != 1 || !strings.HasPrefix(r.Stderr, "lazaret: ") {
						t.Errorf("stderr %q, want one line", r.Stderr)
					}
					if after := w.Run("cat", b+"/config.json").OK(t); after != before {
						t.Errorf("config.json became %s", after)
					}
				}
				if msg := w.logged(log); !strings.Contains(msg, tt.say) || msg == "" {
					t.Errorf("log %q, want %q", msg, tt.say)
				}
				if tt.mend != nil {
					tt.mend(w)
				}
				for range 2 {
					w.rt("delete", "--force", id).OK(t)
				}
				// The same container, whole.
				b = w.bundle("sleep 100", workspace(ws))
				if r := w.create(b, id, "--network=none"); r.Code != 0 {
					t.Fatalf("retry: exit %d: %s", r.Code, r.Stderr)
				}
				w.rt("start", id).OK(t)
				if got := w.rt("exec", id, "cat", "/workspace/README").OK(t); got != "one" {
					t.Errorf("the workspace has %q", got)
				}
				w.rt("delete", "--force", id).OK(t)
				w.nothingRuns()
			})
		}
		w.t = t
	})
}

// logged is the message of the one JSON object in a log file.
func (w *world) logged(path string) string {
	w.t.Helper()
	text := w.Run("cat", path).OK(w.t)
	dec := json.NewDecoder(strings.NewReader(text))
	var v struct {
		Msg   string `json:"msg"`
		Level string `json:"level"`
	}
	if err := dec.Decode(&v); err != nil || v.Level != "error" {
		w.t.Errorf("log %q: %v", text, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		w.t.Errorf("log holds more than one object: %s", text)
	}
	return v.Msg
}
