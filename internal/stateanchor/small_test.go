package stateanchor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/mountinfo"
)

func TestNamesAreApart(t *testing.T) {
	for p, want := range map[string]string{"/usr": "usr", "/var/lib": "var_lib", "/var_lib": "var%5flib", "/a%5fb": "a%255fb", "/root/.claude": "root_.claude", "/a:b": "a%3ab"} {
		if got := Name(p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	changes, work, merged := Layout("/r", "/usr")
	if changes != "/r/usr_changes" || work != "/r/usr_work" || merged != "/r/usr_merged" {
		t.Errorf("%s %s %s", changes, work, merged)
	}
}

func FuzzNamesAreApart(f *testing.F) {
	f.Add("/usr/lib", "/usr_lib")
	f.Add("/a%5f", "/a_")
	f.Fuzz(func(t *testing.T, a, b string) {
		if CheckPersist(a) != nil || CheckPersist(b) != nil {
			t.Skip()
		}
		if a != b && Name(a) == Name(b) {
			t.Errorf("%q and %q are both %q", a, b, Name(a))
		}
		if strings.Contains(Name(a), "/") {
			t.Errorf("%q", Name(a))
		}
	})
}

func TestCheckPaths(t *testing.T) {
	tests := []struct {
		paths []string
		fails string
	}{
		{[]string{"/usr", "/etc", "/var/lib", "/opt"}, ""},
		{[]string{"/"}, "whole root"},
		{[]string{"usr"}, "clean absolute"},
		{[]string{"/usr/../etc"}, "clean absolute"},
		{[]string{"/usr/"}, "clean absolute"},
		{[]string{"/a\nb"}, "line break"},
		{[]string{"/proc"}, "belongs to"},
		{[]string{"/sys/x"}, "belongs to"},
		{[]string{"/dev"}, "belongs to"},
		{[]string{"/run/lazaret"}, "belongs to"},
		{[]string{"/workspace/x"}, "belongs to"},
		{[]string{"/usr", "/usr/local"}, "overlap"},
		{[]string{"/usr/local", "/usr"}, "overlap"},
		{[]string{"/usr", "/usr"}, "overlap"},
		{[]string{"/usr", "/usrlocal"}, ""},
		{[]string{"/" + strings.Repeat("x", 250)}, "too long"},
	}
	for _, tt := range tests {
		err := CheckPaths(tt.paths)
		if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%q: %v", tt.paths, err)
		}
	}
}

func TestLowerDirs(t *testing.T) {
	tests := []struct {
		options string
		want    []string
	}{
		{"rw,lowerdir=/a:/b,upperdir=/u,workdir=/w,userxattr", []string{"/a", "/b"}},
		{"rw,upperdir=/u", nil},
		{`rw,lowerdir=/a\040b\072c:/d,upperdir=/u`, []string{"/a b", "c", "/d"}},
		{`rw,lowerdir=/a\134:b:/c,x`, []string{"/a:b", "/c"}},
		{`rw,lowerdir=/a\\:b:/c`, []string{`/a\`, "b", "/c"}},
		{"rw,lowerdir+=/a:b,lowerdir+=/c", []string{"/a:b", "/c"}},
		{"rw,lowerdir=l/ABC:l/DEF", []string{"l/ABC", "l/DEF"}},
	}
	for _, tt := range tests {
		if got := lowerDirs(tt.options); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.options, got, tt.want)
		}
	}
}

func FuzzMountinfo(f *testing.F) {
	f.Add(`1 2 0:3 / /a\040b rw - overlay overlay rw,lowerdir=/x:/y` + "\n")
	f.Fuzz(func(_ *testing.T, data string) {
		for _, m := range mountinfo.Parse(data) {
			lowerDirs(m.Options)
		}
	})
}

func FuzzRelease(f *testing.F) {
	f.Add("ID=debian\nVERSION_ID=\"13\"\n")
	f.Fuzz(func(t *testing.T, data string) {
		r := parseRelease(data)
		if strings.ContainsAny(r.String()+r.Codename, "\n\x1b\x00") {
			t.Errorf("%q", r)
		}
	})
}

func TestTargets(t *testing.T) {
	usr, outside := t.TempDir(), t.TempDir()
	tree(t, usr, map[string]string{
		"local/bin/": "", "dir/": "", "file": "x", "out": "-> " + outside, "in": "-> dir", "dangling": "-> nowhere",
		"etc/hosts/deep/x": "left by an agent", "etc/hostname": "-> " + outside + "/stolen",
	})
	root := t.TempDir()
	a := &Anchor{root: root, Record: Record{Driver: DriverOverlay, Paths: []string{"/usr"}}, Binds: []Bind{{Source: usr, Destination: "/usr"}}}
	ok := []Target{
		{"/usr/local/bin/client", false, true},
		{"/usr/new/deep", true, false},
		{"/usr/file", false, false},
		{"/usr/dir", true, false},
		{"/usr/in/x", false, false},
		{"/usr/out/x", false, true},
		{"/usr/file/x", true, false},
		{"/usr/dangling", true, false},
		{"/usr/etc/hosts", false, true},
		{"/usr/etc/hostname", false, true},
		{"/usr", true, false},
		{"/etc/elsewhere", false, false},
	}
	for range 2 {
		if err := a.MakeTargets(ok); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"/usr/local/bin/client", "/usr/new/deep", "/usr/in/x", "/usr/etc/hosts", "/usr/etc/hostname"}
	if r, err := ReadRecord(root); err != nil || !slices.Equal(r.Targets, want) {
		t.Errorf("made %q, %v", r.Targets, err)
	}
	for _, name := range []string{"local/bin/client", "etc/hosts", "etc/hostname", "dir/x"} {
		if fi, err := os.Lstat(filepath.Join(usr, name)); err != nil || !fi.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
	if all, err := os.ReadDir(outside); err != nil || len(all) > 0 {
		t.Errorf("outside: %v, %v", all, err)
	}
	for _, bad := range []Target{{"/usr/file", true, false}, {"/usr/dir", false, false}} {
		if err := a.MakeTargets([]Target{bad}); err == nil || !strings.Contains(err.Error(), "earlier session left") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestPersist(t *testing.T) {
	data := t.TempDir()
	dir, err := MakePersist(data, "claude", "/root/.claude", os.Getuid(), os.Getgid())
	if err != nil || dir != data+"/claude/root_.claude" {
		t.Fatalf("%s, %v", dir, err)
	}
	if fi, err := os.Lstat(dir); err != nil || fi.Mode() != os.ModeDir|0o700 {
		t.Errorf("%v, %v", fi, err)
	}
	tree(t, dir, map[string]string{"login": "secret"})
	if again, err := MakePersist(data, "claude", "/root/.claude", 4711, 4711); err != nil || again != dir || read(t, dir+"/login") != "secret" {
		t.Errorf("%s, %v", again, err)
	}
	outside := t.TempDir()
	if err := errors.Join(os.RemoveAll(dir), os.Symlink(outside, dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := MakePersist(data, "claude", "/root/.claude", 0, 0); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a link: %v", err)
	}
	if _, err := MakePersist(data, "domains", "/root", 0, 0); err == nil {
		t.Error("among the Domain Roots")
	}
	for _, p := range []string{"/", "x", "/a/..", "/proc/x", "/workspace", "/run/lazaret/x", "/a\nb", "/" + strings.Repeat("y", 250)} {
		if CheckPersist(p) == nil {
			t.Errorf("%q is taken", p)
		}
	}
}
