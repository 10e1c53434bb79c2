package stateanchor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret-dev/lazaret/internal/mountinfo"
)

const release13 = "ID=debian\nVERSION_ID=\"13\"\nVERSION_CODENAME=trixie\nPRETTY_NAME=\"Debian 13\"\n"

func base() map[string]string {
	return map[string]string{
		"usr/bin/ls": "ls", "usr/share/doc/a": "a", "usr/share/doc/b": "b", "etc/os-release": release13, "etc/passwd": "root",
		"var/lib/dpkg/status": "one", "bin": "-> usr/bin",
	}
}

func TestChangesSurvive(t *testing.T) {
	if !inside(t) {
		return
	}
	for _, driver := range drivers(t) {
		t.Run(driver, func(t *testing.T) {
			o := Options{Root: t.TempDir(), Paths: []string{"/usr", "/etc", "/var/lib", "/opt"}, Driver: driver, Image: image(t, base())}
			a := open(t, o)
			if got := binds(a); !slices.Equal(got, o.Paths) {
				t.Fatalf("mounted %q", got)
			}
			usr, opt := a.Binds[0].Source, a.Binds[3].Source
			tree(t, usr, map[string]string{"local/bin/x": "new", "bin/ls": "changed"})
			tree(t, opt, map[string]string{"tool/y": "y"})
			if err := errors.Join(os.RemoveAll(usr+"/share/doc"), os.Mkdir(usr+"/share/doc", 0o700), os.Remove(a.Binds[1].Source+"/passwd")); err != nil {
				t.Fatal(err)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if left, err := Mounted(o.Root); err != nil || len(left) > 0 {
				t.Fatalf("still mounted: %q, %v", left, err)
			}
			o.Driver = DriverAuto
			a = open(t, o)
			if a.Record.Driver != driver {
				t.Errorf("driver is %s now", a.Record.Driver)
			}
			for name, want := range map[string]string{
				usr + "/local/bin/x": "new", usr + "/bin/ls": "changed", opt + "/tool/y": "y",
				usr + "/share/doc/a": "no such file", a.Binds[1].Source + "/passwd": "no such file",
			} {
				if got := read(t, name); !strings.Contains(got, want) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if got := read(t, o.Image.Layers[0]+"/usr/bin/ls"); got != "ls" {
				t.Errorf("the image's file is %q", got)
			}
		})
	}
}

func binds(a *Anchor) []string {
	var all []string
	for _, b := range a.Binds {
		all = append(all, b.Destination)
	}
	return all
}

func TestLayersAreJoinedAsTheEngineHasThem(t *testing.T) {
	if !inside(t) {
		return
	}
	i := image(t, map[string]string{"usr/bin/b": "upper", "opt/x": "x"}, base(), map[string]string{"usr/bin/lowest": "lowest"})
	if err := unix.Setxattr(i.Layers[1]+"/usr", "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(i.Layers[0]+"/usr/bin/ls", unix.S_IFCHR, 0); err != nil {
		t.Skip("no whiteouts can be made here")
	}
	for _, driver := range drivers(t) {
		t.Run(driver, func(t *testing.T) {
			a := open(t, Options{Root: t.TempDir(), Paths: []string{"/usr"}, Driver: driver, Image: i})
			usr := a.Binds[0].Source
			for name, want := range map[string]string{"/bin/b": "upper", "/share/doc/a": "a", "/bin/ls": "no such file", "/bin/lowest": "no such file"} {
				if got := read(t, usr+name); !strings.Contains(got, want) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestDockersLayerOfAContainerIsNotTheImages(t *testing.T) {
	if !inside(t) {
		return
	}
	dir := t.TempDir()
	for _, d := range []string{"one/merged", "one/diff", "one/work", "one-init/diff", "image/diff"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(dir, "one/merged")
	options := fmt.Sprintf("lowerdir=%[1]s/one-init/diff:%[1]s/image/diff,upperdir=%[1]s/one/diff,workdir=%[1]s/one/work", dir)
	if inUserNamespace() {
		options += ",userxattr"
	}
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(merged, unix.MNT_DETACH) }() // with the namespace at the latest
	if got, err := Layers(merged, ""); err != nil || !slices.Equal(got, []string{filepath.Join(dir, "image/diff")}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestPathsOfTheImage(t *testing.T) {
	if !inside(t) {
		return
	}
	tests := []struct {
		name   string
		files  map[string]string
		paths  []string
		mounts []string
		fails  string
	}{
		{"missing", map[string]string{"usr/a": ""}, []string{"/opt", "/var/lib"}, []string{"/opt", "/var/lib"}, ""},
		{"a link within the image", map[string]string{"opt": "-> /var/opt", "var/opt/a": ""}, []string{"/opt"}, []string{"/var/opt"}, ""},
		{"a relative link that climbs out", map[string]string{"opt": "-> ../../../../srv/../var/opt", "srv/": "", "var/opt/a": ""}, []string{"/opt"}, []string{"/var/opt"}, ""},
		{"a link into another one", map[string]string{"bin": "-> usr/bin", "usr/bin/a": ""}, []string{"/usr", "/bin"}, []string{"/usr"}, ""},
		{"the other way round", map[string]string{"bin": "-> usr/bin", "usr/bin/a": ""}, []string{"/bin", "/usr"}, nil, "keep the outer one"},
		{"a link into the workspace", map[string]string{"opt": "-> workspace/x", "workspace/x/a": ""}, []string{"/opt"}, nil, "belongs to the sandbox"},
		{"a link to the root", map[string]string{"opt": "-> /"}, []string{"/opt"}, nil, "not in the image"},
		{"a file", map[string]string{"opt": "text"}, []string{"/opt"}, nil, "not a directory in the image"},
		{"a link that leads nowhere", map[string]string{"opt": "-> /nowhere"}, []string{"/opt"}, []string{"/opt"}, ""},
		{"a loop", map[string]string{"opt": "-> opt"}, []string{"/opt"}, nil, "too many levels"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Root: t.TempDir(), Paths: tt.paths, Driver: DriverOverlay, Image: image(t, tt.files)}
			a, err := Open(t.Context(), o)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %v", err)
				}
				if left, err := Mounted(o.Root); err != nil || len(left) > 0 {
					t.Errorf("still mounted: %q, %v", left, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := binds(a); !slices.Equal(got, tt.mounts) {
				t.Errorf("mounted at %q", got)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOddNames(t *testing.T) {
	if !inside(t) {
		return
	}
	for _, name := range []string{"a b", "a,b", "a:b", `a\b`, "a%20b", strings.Repeat("x", 200), "ünïcödé–☃", `lowerdir=x,upperdir=y`, "a'b\"c", "-o"} {
		for _, driver := range drivers(t) {
			t.Run(driver+" "+name[:min(len(name), 12)], func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), name)
				tree(t, dir, map[string]string{"1/usr/a": "upper", "2/usr/a": "lower", "2/usr/b": "b", "root/": ""})
				o := Options{Root: dir + "/root", Paths: []string{"/usr", "/" + name}, Driver: driver, Image: Image{Layers: []string{dir + "/1", dir + "/2"}}}
				if name == "a:b" && driver == DriverFUSE {
					if a, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "has a colon in it") {
						t.Errorf("got %v, %v", a, err)
					}
					return
				}
				a := open(t, o)
				tree(t, a.Binds[0].Source, map[string]string{"c": "c"})
				tree(t, a.Binds[1].Source, map[string]string{"d": "d"})
				changes, _, _ := Layout(o.Root, "/usr")
				odd, _, _ := Layout(o.Root, "/"+name)
				for file, want := range map[string]string{a.Binds[0].Source + "/a": "upper", a.Binds[0].Source + "/b": "b", changes + "/c": "c", odd + "/d": "d"} {
					if got := read(t, file); got != want {
						t.Errorf("%s: %q, want %q", file, got, want)
					}
				}
			})
		}
	}
}

func TestImagesThatChange(t *testing.T) {
	if !inside(t) {
		return
	}
	with := func(changes map[string]string) map[string]string {
		files := base()
		for name, content := range changes {
			files[name] = content
		}
		return files
	}
	tests := []struct {
		name  string
		files map[string]string
		note  string
		apart string
	}{
		{"the same release", with(map[string]string{"usr/bin/new": "new"}), "the image is now", ""},
		{"newer packages", with(map[string]string{"usr/bin/new": "new", "var/lib/dpkg/status": "two"}), "lazaret state rebase brings both together", ""},
		{"another release", with(map[string]string{"etc/os-release": strings.ReplaceAll(release13, "13", "14")}), "", "lazaret state rebase"},
		{"another distribution", with(map[string]string{"etc/os-release": "ID=alpine\nVERSION_ID=13\n"}), "", "alpine 13"},
		{"a release without a version", with(map[string]string{"etc/os-release": "ID=arch\n"}), "", "lazaret state rebase"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Root: t.TempDir(), Paths: []string{"/usr", "/var/lib"}, Driver: DriverOverlay, Image: image(t, base())}
			a := open(t, o)
			tree(t, a.Binds[0].Source, map[string]string{"local/kept": "kept"})
			tree(t, a.Binds[1].Source, map[string]string{"dpkg/status": "mine"})
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			first := a.Record
			o.Image = image(t, tt.files)
			a = open(t, o)
			if tt.apart != "" {
				if len(a.Notes) != 1 || !strings.Contains(a.Notes[0], tt.apart) || read(t, a.Binds[0].Source+"/local/kept") == "kept" {
					t.Errorf("notes %q, and what is kept shows", a.Notes)
				}
				tree(t, a.Binds[0].Source, map[string]string{"local/apart": "apart"})
				if r, err := ReadRecord(o.Root); err != nil || r.Image.Key() != first.Image.Key() || r.Other == nil || r.Other.Key() != o.Image.Key() {
					t.Errorf("record %+v, %v", r, err)
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				if a = open(t, o); read(t, a.Binds[0].Source+"/local/apart") != "apart" {
					t.Error("what changed over the other release is gone")
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				o.Image = Image{Layers: first.Image.Layers}
				a = open(t, o)
				if read(t, a.Binds[0].Source+"/local/kept") != "kept" || len(a.Notes) > 0 || a.Record.Other != nil {
					t.Errorf("the first image again: %q, %+v", a.Notes, a.Record)
				}
				return
			}
			if len(a.Notes) != 1 || !strings.Contains(a.Notes[0], tt.note) {
				t.Errorf("notes %q", a.Notes)
			}
			for name, want := range map[string]string{"/local/kept": "kept", "/bin/new": "new"} {
				if got := read(t, a.Binds[0].Source+name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			if a := open(t, o); len(a.Notes) > 0 {
				t.Errorf("told again: %q", a.Notes)
			}
		})
	}
}

// A domain in which nothing has changed belongs to no release yet.
func TestUnusedChangesFitEveryImage(t *testing.T) {
	if !inside(t) {
		return
	}
	o := Options{Root: t.TempDir(), Paths: []string{"/usr", "/opt"}, Driver: DriverOverlay, Image: image(t, map[string]string{"usr/old": ""})}
	a := open(t, o)
	if err := errors.Join(a.MakeTargets([]Target{{"/usr/local/bin/client", false, true}}), a.Close()); err != nil {
		t.Fatal(err)
	}
	o.Image = image(t, base())
	a = open(t, o)
	if changes, _, _ := Layout(o.Root, "/usr"); a.Record.Image.Release.Codename != "trixie" || read(t, changes+"/local/bin/client") != "" {
		t.Errorf("record %+v", a.Record)
	}
	if err := errors.Join(os.Mkdir(a.Binds[1].Source+"/dir", 0o700), a.Close()); err != nil {
		t.Fatal(err)
	}
	o.Image = image(t, map[string]string{"usr/old": ""})
	if a = open(t, o); len(a.Notes) != 1 {
		t.Errorf("notes %q", a.Notes)
	}
}

func TestAnotherWorkspaceAtThePathIsTold(t *testing.T) {
	if !inside(t) {
		return
	}
	ws := t.TempDir() + "/ws"
	o := Options{Root: t.TempDir(), Paths: []string{"/usr"}, Driver: DriverOverlay, Image: image(t, base()), Workspace: ws}
	for i, want := range []int{0, 0, 1, 0} {
		if i == 0 || i == 2 {
			if err := errors.Join(os.RemoveAll(ws), os.Mkdir(ws, 0o700)); err != nil {
				t.Fatal(err)
			}
		}
		if identity(ws) == "" {
			t.Skip("this file system keeps no time of birth")
		}
		a := open(t, o)
		if len(a.Notes) != want {
			t.Errorf("start %d: notes %q", i, a.Notes)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestUserNamespacesAreApart(t *testing.T) {
	if !inside(t) {
		return
	}
	o := Options{Root: t.TempDir(), Paths: []string{"/usr"}, Driver: DriverOverlay, Image: image(t, base())}
	all := []string{"", "0:1:1000", "0:2:1000"}
	seen := map[string]bool{}
	for _, m := range append(all, all...) {
		o.IDMap = m
		a := open(t, o)
		for _, other := range all {
			if _, err := os.Lstat(a.Binds[0].Source + "/of" + other); (err == nil) != (other == m && seen[m]) {
				t.Errorf("in %q that of %q: %v", m, other, err)
			}
		}
		tree(t, a.Binds[0].Source, map[string]string{"of" + m: ""})
		seen[m] = true
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusals(t *testing.T) {
	if !inside(t) {
		return
	}
	used := func(t *testing.T) Options {
		o := Options{Root: t.TempDir(), Paths: []string{"/usr"}, Driver: DriverOverlay, Image: image(t, base())}
		if err := open(t, o).Close(); err != nil {
			t.Fatal(err)
		}
		return o
	}
	tests := []struct {
		name  string
		spoil func(t *testing.T, o *Options)
		fails string
	}{
		{"another driver", func(_ *testing.T, o *Options) { o.Driver = DriverFUSE }, `were made with "overlay"`},
		{"a lost record", func(t *testing.T, o *Options) {
			if err := os.Remove(filepath.Join(o.Root, RecordFile)); err != nil {
				t.Fatal(err)
			}
		}, "lazaret state reset"},
		{"a damaged record", func(t *testing.T, o *Options) {
			tree(t, o.Root, map[string]string{RecordFile: `{"driver":"overlay","paths":["/usr"`})
		}, "is damaged"},
		{"a record of an unknown driver", func(t *testing.T, o *Options) {
			tree(t, o.Root, map[string]string{RecordFile: `{"driver":"aufs","paths":["/usr"]}`})
		}, "is damaged"},
		{"a newer record", func(t *testing.T, o *Options) {
			tree(t, o.Root, map[string]string{RecordFile: `{"version":9,"driver":"overlay"}`})
		}, "newer Lazaret"},
		{"paths in paths that have changes", func(_ *testing.T, o *Options) { o.Paths = []string{"/usr/local"} }, "other state_paths before"},
		{"changes that are mounted", func(t *testing.T, o *Options) {
			changes, _, _ := Layout(o.Root, "/usr")
			f, err := lockDir(changes)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
		}, "in use by another process"},
		{"changes that are no directory", func(t *testing.T, o *Options) {
			changes, _, _ := Layout(o.Root, "/usr")
			if err := errors.Join(os.Remove(changes), os.Symlink("/", changes)); err != nil {
				t.Fatal(err)
			}
		}, "not a directory"},
		{"an image that is gone", func(_ *testing.T, o *Options) { o.Image.Layers = []string{"/nonexistent"} }, "open the image"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := used(t)
			tt.spoil(t, &o)
			a, err := Open(t.Context(), o)
			if err == nil {
				err = a.Close()
				t.Fatalf("opened; %v", err)
			}
			if !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("got %v", err)
			}
			if left, err := Mounted(o.Root); err != nil || len(left) > 0 {
				t.Errorf("still mounted: %q, %v", left, err)
			}
		})
	}
}

func TestWhatAKilledProcessLeft(t *testing.T) {
	if !inside(t) {
		return
	}
	o := Options{Root: t.TempDir(), Paths: []string{"/usr", "/etc"}, Driver: DriverOverlay, Image: image(t, base(), base())}
	a := open(t, o)
	tree(t, a.Binds[0].Source, map[string]string{"x": "x"})
	if err := a.Abandon(); err != nil { // the mounts stay, as after SIGKILL
		t.Fatal(err)
	}
	// Killed while it tried a driver, with the image open, and half-way through a path.
	probing := filepath.Join(o.Root, probeDir)
	tree(t, probing, map[string]string{"merged/": ""})
	if err := errors.Join(
		unix.Mount(source, probing+"/merged", "overlay", 0, "lowerdir="+o.Image.Layers[0]+":"+o.Image.Layers[1]),
		os.MkdirAll(filepath.Join(o.Root, imageDir), 0o700), mountLayers(filepath.Join(o.Root, imageDir), o.Image.Layers),
		os.MkdirAll(filepath.Join(o.Root, "opt_changes.new/x"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	o.Paths = append(o.Paths, "/opt")
	a = open(t, o)
	if got := read(t, a.Binds[0].Source+"/x"); got != "x" {
		t.Errorf("got %q", got)
	}
	all, err := Mounted(o.Root)
	if err != nil || len(all) != 3 {
		t.Errorf("mounted: %q, %v", all, err)
	}
	if entries, err := mountinfo.All(); err != nil || len(slices.DeleteFunc(entries, func(m mountinfo.Entry) bool { return !strings.HasPrefix(m.Point, o.Root) })) != 3 {
		t.Errorf("mounts are stacked: %v", err)
	}
	for _, gone := range []string{probeDir, imageDir, "opt_changes.new"} {
		if _, err := os.Lstat(filepath.Join(o.Root, gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
}

func TestForeignMountsAreNotTakenAway(t *testing.T) {
	if !inside(t) {
		return
	}
	root := t.TempDir()
	tree(t, root, map[string]string{"usr_merged/": ""})
	if err := unix.Mount("none", root+"/usr_merged", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := Clean(root); err == nil || !strings.Contains(err.Error(), "type tmpfs") {
		t.Errorf("got %v", err)
	}
	if err := unix.Unmount(root+"/usr_merged", 0); err != nil {
		t.Fatal(err)
	}
}

func TestADeadFUSEServerIsSeen(t *testing.T) {
	if !inside(t) {
		return
	}
	if !slices.Contains(drivers(t), DriverFUSE) {
		t.Skip("no fuse-overlayfs here")
	}
	o := Options{Root: t.TempDir(), Paths: []string{"/usr"}, Driver: DriverFUSE, Image: image(t, base())}
	a := open(t, o)
	if !a.Alive() {
		t.Fatal("not alive")
	}
	if err := a.overlays[0].fuse.process.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); a.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still alive")
		}
	}
	if got := read(t, a.Binds[0].Source+"/bin/ls"); !strings.Contains(got, "not connected") {
		t.Errorf("got %q", got)
	}
}

// The image may be unmounted and its engine's mount gone: the overlays hold it.
func TestTheImageOutlivesItsMount(t *testing.T) {
	if !inside(t) {
		return
	}
	over := image(t, base())
	rootfs := t.TempDir()
	tree(t, rootfs, map[string]string{"merged/": "", "up/": "", "work/": ""})
	merged := rootfs + "/merged"
	err := unix.Mount("none", merged, "overlay", 0, "userxattr,lowerdir="+over.Layers[0]+",upperdir="+rootfs+"/up,workdir="+rootfs+"/work")
	if err != nil {
		t.Fatal(err)
	}
	tree(t, merged, map[string]string{"usr/own": "the container's own"})
	layers, err := Layers(merged, "")
	if err != nil || !slices.Equal(layers, over.Layers) {
		t.Fatalf("layers %q, %v; want %q", layers, err, over.Layers)
	}
	a := open(t, Options{Root: t.TempDir(), Paths: []string{"/usr"}, Driver: DriverOverlay, Image: Image{Layers: layers}})
	if err := errors.Join(unix.Unmount(merged, 0), os.RemoveAll(rootfs)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"/bin/ls": "ls", "/share/doc/b": "b", "/own": "no such file"} {
		if got := read(t, a.Binds[0].Source+name); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
