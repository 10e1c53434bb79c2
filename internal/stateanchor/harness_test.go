package stateanchor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// insideEnv marks a test program that runs in namespaces of its own.
const insideEnv = "LAZARET_TEST_INSIDE"

// inside runs the calling test in a user and a mount namespace of its own, as
// engines do, so that it may mount; it reports whether it is there already.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v=true")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in namespaces of its own: %v\n%s", err, out)
	} else if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
	return false
}

// drivers are those that this machine has.
func drivers(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath(DriverFUSE); err != nil {
		return []string{DriverOverlay}
	}
	return []string{DriverOverlay, DriverFUSE}
}

// tree makes files: a name that ends in "/" is a directory, "name -> to" a link.
func tree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch to, isLink := strings.CutPrefix(content, "-> "); {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(full, 0o755)
		case isLink:
			err = os.Symlink(to, full)
		default:
			err = os.WriteFile(full, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(data)
}

// image makes an image of layers, the uppermost first.
func image(t *testing.T, layers ...map[string]string) Image {
	t.Helper()
	var i Image
	for _, files := range layers {
		dir := t.TempDir()
		tree(t, dir, files)
		i.Layers = append(i.Layers, dir)
	}
	return i
}

// open opens a domain's state, and unmounts it at the end of the test.
func open(t *testing.T, o Options) *Anchor {
	t.Helper()
	a, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}
