package doctor

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/proc"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/domain"
)

// place is the three directories; unix sockets want short paths.
func place(t *testing.T) LeftoverDirs {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "lzd") //nolint:usetesting // t.TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	d := LeftoverDirs{Root: root, UID: os.Geteuid(), Runtime: "/run", Control: "/c", Data: "/data"}
	for _, dir := range []string{"/run", "/c", "/data/domains"} {
		if err := os.MkdirAll(root+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d LeftoverDirs) mustBe(t *testing.T, name string, status Status, detail string) Check {
	t.Helper()
	for _, c := range Leftovers(d) {
		if c.Name != name {
			continue
		}
		if c.Status != status || !strings.Contains(c.Detail, detail) {
			t.Errorf("%s: %s, %s; want %s with %q", name, c.Status, c.Detail, status, detail)
		}
		return c
	}
	t.Fatalf("no check %q", name)
	return Check{}
}

const hash = "0123456789ab"

func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func record(t *testing.T, d LeftoverDirs, a domain.Anchor) {
	t.Helper()
	dir := filepath.Join(d.Root+d.Data, "domains", a.Hash)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "domain.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestControlFiles(t *testing.T) {
	t.Run("nothing", func(t *testing.T) { place(t).mustBe(t, "control files", OK, "0 coordinators") })
	t.Run("a live coordinator, its lock free", func(t *testing.T) {
		d := place(t)
		listen(t, d.Root+"/c/lazaret_coord_"+hash+".sock")
		if err := os.WriteFile(d.Root+"/c/lazaret_coord_"+hash+".lock", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		d.mustBe(t, "control files", OK, "1 coordinators")
	})
	t.Run("a socket that nobody answers", func(t *testing.T) {
		d := place(t)
		path := d.Root + "/c/lazaret_coord_" + hash + ".sock"
		l := listen(t, path)
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if c := d.mustBe(t, "control files", Warn, path); c.Fix != "rm "+path {
			t.Errorf("fix %q", c.Fix)
		}
	})
	t.Run("a lock that is held: somebody is starting", func(t *testing.T) {
		d := place(t)
		f, err := os.Create(d.Root + "/c/lazaret_coord_" + hash + ".lock")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		d.mustBe(t, "control files", OK, "nothing is left over")
	})
	t.Run("a lock that nobody holds", func(t *testing.T) {
		d := place(t)
		path := d.Root + "/c/lazaret_coord_" + hash + ".lock"
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		d.mustBe(t, "control files", Warn, path)
	})
	t.Run("a symbolic link in the lock's place", func(t *testing.T) {
		d := place(t)
		victim := d.Root + "/victim"
		if err := os.Symlink(victim, d.Root+"/c/lazaret_coord_"+hash+".lock"); err != nil {
			t.Fatal(err)
		}
		d.mustBe(t, "control files", Fail, "not made by Lazaret")
		if _, err := os.Lstat(victim); err == nil {
			t.Error("the link was followed")
		}
	})
	t.Run("another user's name counts only in a domain of ours", func(t *testing.T) {
		d := place(t)
		path := d.Root + "/c/lazaret_coord_" + hash + ".sock"
		listen(t, path)
		d.UID++ // what lies there is then somebody else's
		d.mustBe(t, "control files", OK, "nothing is left over")
		record(t, d, domain.Anchor{Hash: hash, Workspace: "/"})
		d.mustBe(t, "control files", Fail, path)
	})
	t.Run("names that are not ours are not touched", func(t *testing.T) {
		d := place(t)
		for _, n := range []string{"lazaret_coord_x.lock", "lazaret_coord_" + hash + ".txt", "lazaret_coord_" + hash, "other.sock"} {
			if err := os.WriteFile(filepath.Join(d.Root, "c", n), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d.mustBe(t, "control files", OK, "nothing is left over")
	})
}

func TestRunDirectories(t *testing.T) {
	d := place(t)
	run := d.Root + d.Runtime + "/domains/" + hash
	d.mustBe(t, "coordinators", OK, "0 domains")
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if c := d.mustBe(t, "coordinators", Warn, "the next start"); c.Fix != "rm -r "+run {
		t.Errorf("fix %q", c.Fix)
	}
	start, err := proc.StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dir := containerstate.Dir(d.Root+d.Runtime, "c1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lease := containerstate.Lease{Version: containerstate.Version, Domain: hash, Attached: true, PID: os.Getpid(), StartTime: start}
	if err := containerstate.WriteLease(dir, lease); err != nil {
		t.Fatal(err)
	}
	if c := d.mustBe(t, "coordinators", Warn, hash+": their sandboxes run"); strings.Contains(c.Fix, "rm -r") {
		t.Errorf("fix %q would take the sandbox's things away", c.Fix)
	}
	lock, err := os.Create(d.Root + "/c/lazaret_coord_" + hash + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	d.mustBe(t, "coordinators", OK, "none without one") // somebody starts it
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	listen(t, d.Root+"/c/lazaret_coord_"+hash+".sock")
	d.mustBe(t, "coordinators", OK, "1 domains in use")
}

func TestContainers(t *testing.T) {
	lease := func(t *testing.T, d LeftoverDirs, id string, pid int, start uint64) string {
		t.Helper()
		dir := containerstate.Dir(d.Root+d.Runtime, id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := containerstate.WriteLease(dir, containerstate.Lease{Version: containerstate.Version, PID: pid, StartTime: start}); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	self, err := proc.StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("alive", func(t *testing.T) {
		d := place(t)
		lease(t, d, "c1", os.Getpid(), self)
		d.mustBe(t, "containers", OK, "1 known")
	})
	t.Run("its pid belongs to another process now", func(t *testing.T) {
		d := place(t)
		dir := lease(t, d, "c1", os.Getpid(), self+1)
		d.mustBe(t, "containers", Warn, dir)
	})
	t.Run("its process is gone", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "/bin/true")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		d := place(t)
		dir := lease(t, d, "c1", cmd.Process.Pid, 1)
		d.mustBe(t, "containers", Warn, dir)
	})
	t.Run("just begun, or begun long ago and never finished", func(t *testing.T) {
		d := place(t)
		dir := containerstate.Dir(d.Root+d.Runtime, "c1")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		d.mustBe(t, "containers", OK, "none left over")
		old := time.Now().Add(-2 * halfMade)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
		d.mustBe(t, "containers", Warn, dir)
	})
}

func TestDomains(t *testing.T) {
	d := place(t)
	record(t, d, domain.Anchor{Hash: "00000000000a", Workspace: d.Root})
	d.mustBe(t, "domains", OK, "1 kept")
	record(t, d, domain.Anchor{Hash: "00000000000b", Workspace: d.Root + "/gone"})
	record(t, d, domain.Anchor{Hash: "00000000000c", Ephemeral: true})
	c := d.mustBe(t, "domains", Warn, "00000000000b (workspace "+d.Root+"/gone is gone), 00000000000c")
	if strings.Contains(c.Detail, "00000000000a") || c.Fix != "lazaret prune" {
		t.Errorf("fix %q", c.Fix)
	}
	// While its coordinator lives a domain is in use, whatever its record says.
	listen(t, d.Root+"/c/lazaret_coord_00000000000b.sock")
	listen(t, d.Root+"/c/lazaret_coord_00000000000c.sock")
	d.mustBe(t, "domains", OK, "3 kept")
}

func TestUnreadableRecordIsNotCalledALeftover(t *testing.T) {
	d := place(t)
	dir := filepath.Join(d.Root+d.Data, "domains", hash)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "domain.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.mustBe(t, "domains", OK, "1 kept")
}
