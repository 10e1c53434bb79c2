package gitsentry

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What is written to or cut by the sandbox runs as nobody's on the host any more.
func TestChangeDropsSetID(t *testing.T) {
	w := newWorld(t, nil)
	for name, change := range map[string]func(name string) error{
		"write": func(name string) error {
			file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			cmd := exec.Command("echo", "more") //nolint:forbidigo // a moment's
			cmd.Stdout = file
			if os.Geteuid() == 0 { // root may keep the bits
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			return cmd.Run()
		},
		"truncate": func(name string) error { return os.Truncate(name, 1) },
	} {
		host := filepath.Join(w.host, name)
		w.write(host, "program\n")
		if err := unix.Chmod(host, 0o6755); err != nil {
			t.Fatal(err)
		}
		if err := change(filepath.Join(w.in, name)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var st unix.Stat_t
		if err := unix.Stat(host, &st); err != nil {
			t.Fatal(err)
		}
		if st.Mode&0o7777 != 0o755 {
			t.Errorf("after %s the mode is %o", name, st.Mode&0o7777)
		}
	}
}

// A file that was just made is its maker's; giving it away, or back, is done.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	w := newWorld(t, nil)
	name := filepath.Join(w.in, "made")
	if err := writeFile(name, "x"); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []int{0, 65534, 65534, 0} {
		if err := os.Chown(name, uid, uid); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{name, filepath.Join(w.host, "made")} {
			var st unix.Stat_t
			if err := unix.Stat(at, &st); err != nil {
				t.Fatal(err)
			}
			if int(st.Uid) != uid || int(st.Gid) != uid {
				t.Errorf("%s is %d:%d's, not %d's", at, st.Uid, st.Gid, uid)
			}
		}
	}
}

func TestGather(t *testing.T) {
	var buf []byte
	add := func(wd int32, mask uint32, name string) {
		padded := append([]byte(name), make([]byte, (16-len(name)%16)%16)...)
		for _, v := range []uint32{uint32(wd), mask, 0, uint32(len(padded))} { //nolint:gosec // small
			buf = binary.NativeEndian.AppendUint32(buf, v)
		}
		buf = append(buf, padded...)
	}
	add(1, unix.IN_CREATE, "a")
	add(1, unix.IN_MODIFY, "b")
	add(2, unix.IN_CREATE, "a")
	add(1, unix.IN_ATTRIB, "")
	add(1, unix.IN_DELETE, "a")
	add(1, unix.IN_IGNORED, "")
	want := []told{
		{1, unix.IN_CREATE | unix.IN_DELETE, "a"},
		{1, unix.IN_MODIFY, "b"},
		{2, unix.IN_CREATE, "a"},
		{1, unix.IN_ATTRIB, ""},
		{1, unix.IN_IGNORED, ""},
	}
	if got := gather(buf); !slices.Equal(got, want) {
		t.Errorf("gathered %v, want %v", got, want)
	}
}

// A name that the kernel has forgotten may still be in a list that it keeps: its end
// on the host must be told.
func TestForgottenName(t *testing.T) {
	g := &guard{}
	g.nodes.byID, g.nodes.byKy, g.nodes.next = map[uint64]*node{}, map[identity]*node{}, 15
	g.fds.limit = 10
	base := &node{dir: true, children: map[string]*node{}}
	dir := g.nodes.enter(identity{ino: 1}, true, nil, base, "dir")
	dir.path = newFile(openDir(t, t.TempDir()))
	dir.path.use() // whose end is openDir's
	w := &watcher{g: g}
	if !w.look(dir, "gone", unix.IN_DELETE).same {
		t.Error("a name that nobody was told of is told")
	}
	n := g.nodes.enter(identity{ino: 2}, false, nil, dir, "gone")
	if _, gone := g.nodes.forget(n.id, 1); !gone {
		t.Fatal("not forgotten")
	}
	if w.look(dir, "gone", unix.IN_CREATE).same != true || w.look(dir, "gone", unix.IN_DELETE).same {
		t.Error("the end of a forgotten name is not told")
	}
}
