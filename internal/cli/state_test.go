package cli

import (
	"errors"
	flagpkg "flag"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/stateanchor/changes"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/pkgdb"
	"github.com/lazaret-dev/lazaret/internal/stateanchor/tree"
)

// What an agent wrote into its databases comes to a command line only where it is a
// name; all else is told.
func TestRebasePlan(t *testing.T) {
	t.Parallel()
	fs := flagpkg.NewFlagSet("rebase", flagpkg.ContinueOnError)
	skip := cli.NewStringSlice("unwanted")
	fs.Var(skip, "skip", "")
	rb := &rebase{c: cli.NewContext(nil, fs, nil), specs: map[string][]string{}}
	const local = "/usr/local/lib/python3.13/dist-packages"
	pkg := func(manager, name, version, change, dir string, auto bool) changes.Package {
		return changes.Package{Package: pkgdb.Package{Manager: manager, Name: name, Version: version, Dir: dir, Auto: auto}, Change: change}
	}
	rb.plan(stateDiffView{States: []stateView{
		{Report: &changes.Report{
			Packages: []changes.Package{
				pkg("apt", "jq", "1", changes.Added, "", false),
				pkg("apt", "libjq1", "1", changes.Added, "", true),
				pkg("apt", "bash", "2", changes.Upgraded, "", false),
				pkg("apt", "vim", "1", changes.Removed, "", false),
				pkg("apt", "unwanted", "1", changes.Added, "", false),
				pkg("apt", "--allow-unauthenticated", "1", changes.Added, "", false),
				pkg("apt", "/workspace/evil.deb", "1", changes.Added, "", false),
				pkg("apt", "x;reboot", "1", changes.Added, "", false),
				pkg("pip", "six", "1.16", changes.Added, local, false),
				pkg("pip", "six", "1.16", changes.Added, "/opt/venv/lib/python3.13/site-packages", false),
				pkg("pip", "--index-url=http://evil", "1", changes.Added, local, false),
				pkg("npm", "@a/b", "1.0.0", changes.Added, "/usr/local/lib/node_modules", false),
				pkg("npm", "a", "file:/etc", changes.Added, "/usr/local/lib/node_modules", false),
			},
			Files: []changes.File{{Path: "/etc/x"}, {Path: "/opt/d", Files: 9}},
		}},
		{IDMap: "0:1:2", Report: &changes.Report{Packages: []changes.Package{pkg("apt", "other", "1", changes.Added, "", false)}}},
	}})
	want := map[string][]string{"apt": {"jq"}, "pip": {"six==1.16"}, "npm": {"@a/b@1.0.0"}}
	if !reflect.DeepEqual(rb.specs, want) {
		t.Errorf("specs: %q", rb.specs)
	}
	lost := strings.Join(rb.lost, "\n")
	for _, w := range []string{"10 files", "removal of apt vim", `"--allow-unauthenticated"`, "evil.deb", "x;reboot", "pip six in /opt/venv", "--index-url", "file:/etc", "user namespace 0:1:2"} {
		if !strings.Contains(lost, w) {
			t.Errorf("not told: %s\n%s", w, lost)
		}
	}
	for manager, specs := range want {
		argvs := commands(manager, specs)
		last := argvs[len(argvs)-1]
		if i := slices.Index(last, "--"); i < 0 || !slices.Equal(last[i+1:], specs) {
			t.Errorf("%s: %q", manager, last)
		}
	}
}

// A sandbox's text cannot do anything to the terminal.
func TestPassLines(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	passLines(&out, strings.NewReader("Get:1 x\r\nbar\r50%\r100%\n\n\x1b]0;title\x07 \x1b[2J\u202eevil\n"+strings.Repeat("a", 300_000)+"\nend"))
	lines := strings.Split(out.String(), "\n")
	if lines[0] != "  | Get:1 x" || lines[1] != "  | bar" || lines[2] != "  | 50%" || lines[3] != "  | 100%" || lines[4] != `  | \x1b]0;title\a \x1b[2J\u202eevil` {
		t.Errorf("%q", lines[:5])
	}
	if lines[len(lines)-2] != "  | end" || strings.ContainsAny(out.String(), "\x1b\x07\r") {
		t.Error("cut, or not inert")
	}
}

// Progress is one line of a terminal, and nothing anywhere else.
func TestProgress(t *testing.T) {
	t.Parallel()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []*os.File{tty, write} {
		p := newProgress(w, "copying")
		p.show(tree.Stats{Files: 1})
		p.last = p.last.Add(-time.Second)
		p.show(tree.Stats{Files: 1234, Bytes: 5_600_000})
		p.last = p.last.Add(time.Minute) // it is soon again, however busy the machine
		p.show(tree.Stats{Files: 1235})
		p.end()
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(read); err != nil || len(data) > 0 {
		t.Errorf("in a pipe: %q, %v", data, err)
	}
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(terminal) // a terminal without another end is EIO when all is read
	if got := string(data); !errors.Is(err, syscall.EIO) || got != "\rcopying: 1234 files, 5.6 MB \x1b[K\r\x1b[K" {
		t.Errorf("on a terminal: %q, %v", got, err)
	}
	_, _ = terminal.Close(), read.Close()
}
