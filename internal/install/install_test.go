package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	dropin "github.com/lazaret-dev/lazaret/containers.conf.d"
	"github.com/lazaret-dev/lazaret/internal/fixedpath"
	"github.com/lazaret-dev/lazaret/internal/podmanconf"
)

// machine is a fake root with a home, an installed lazaret and some podman.
type machine struct {
	t       *testing.T
	root    string
	podman  string // version line; "" for none
	env     map[string]string
	uid     int
	runtime string
}

func newMachine(t *testing.T, podman string) *machine {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil { //nolint:gosec // checked for being closed to others, not to be secret
		t.Fatal(err)
	}
	m := &machine{t: t, root: root, podman: podman, uid: 1000, env: map[string]string{}}
	m.runtime = m.put("opt/bin/lazaret-runtime", "#!/bin/sh\n", 0o755)
	m.put("opt/bin/lazaret", "", 0o755)
	return m
}

func (m *machine) put(path, content string, mode os.FileMode) string {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // see newMachine
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *machine) host() Host {
	return Host{
		Layout: podmanconf.Layout{
			Root: m.root, ConfigHome: filepath.Join(m.root, "home/.config"),
			Getenv: func(k string) string { return m.env[k] },
		},
		UID:        m.uid,
		Executable: func() (string, error) { return filepath.Join(m.root, "opt/bin/lazaret"), nil },
		Podman: func(context.Context) (string, error) {
			if m.podman == "" {
				return "", fmt.Errorf("podman: %w", fs.ErrNotExist)
			}
			return m.podman, nil
		},
	}
}

func (m *machine) plan(o Options) *Change {
	m.t.Helper()
	c, err := Plan(m.t.Context(), m.host(), o)
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

func (m *machine) apply(o Options) (*Change, string) {
	m.t.Helper()
	c := m.plan(o)
	bak, err := c.Apply()
	if err != nil {
		m.t.Fatal(err)
	}
	return c, bak
}

func (m *machine) userPath() string {
	return filepath.Join(m.root, "home/.config/containers/containers.conf.d/50-lazaret.conf")
}

// effective is what podman would make of all files now.
func (m *machine) effective(user bool) podmanconf.Engine {
	m.t.Helper()
	l := m.host().Layout
	if !user {
		l.ConfigHome = ""
	}
	files, err := l.Files("")
	if err != nil {
		m.t.Fatal(err)
	}
	v, err := podmanconf.ParseVersion(m.podman)
	if err != nil {
		m.t.Fatal(err)
	}
	e, err := podmanconf.Load(files, v)
	if err != nil {
		m.t.Fatal(err)
	}
	return e
}

func TestListsKeepWhatPodmanHad(t *testing.T) {
	const own = "[engine]\nruntime_supports_json = [\"crun\", \"mine\"]\n"
	for _, c := range []struct {
		name, podman string
		scope        Scope
		files        map[string]string
		json, nocg   []string
		append       bool
	}{
		{
			name: "4.3 without files: podman's own", podman: "podman version 4.3.1", scope: User,
			json: []string{"crun", "runc", "kata", "runsc", "krun", "lazaret"}, nocg: []string{"crun", "krun", "lazaret"},
		},
		{
			name: "4.7 has a longer list of its own", podman: "4.7.2", scope: User,
			json: []string{"crun", "runc", "kata", "runsc", "youki", "krun", "ocijail", "lazaret"}, nocg: []string{"crun", "krun", "lazaret"},
		},
		{
			name: "4.3, the user's list", podman: "4.3.1", scope: User,
			files: map[string]string{"home/.config/containers/containers.conf": own},
			json:  []string{"crun", "mine", "lazaret"}, nocg: []string{"crun", "krun", "lazaret"},
		},
		{
			name: "4.3, a drop-in before ours", podman: "4.3.1", scope: User,
			files: map[string]string{"home/.config/containers/containers.conf.d/10-x.conf": own},
			json:  []string{"crun", "mine", "lazaret"}, nocg: []string{"crun", "krun", "lazaret"},
		},
		{
			name: "4.3, system scope takes nothing from a user", podman: "4.3.1", scope: System,
			files: map[string]string{
				"home/.config/containers/containers.conf": own,
				"etc/containers/containers.conf":          "[engine]\nruntime_supports_nocgroup = [\"x\"]\n",
			},
			json: []string{"crun", "runc", "kata", "runsc", "krun", "lazaret"}, nocg: []string{"x", "lazaret"},
		},
		{
			name: "5.2 appends to the user's list", podman: "5.2.0", scope: User, append: true,
			files: map[string]string{"home/.config/containers/containers.conf": own},
			json:  []string{"crun", "mine", "lazaret"}, nocg: []string{"crun", "krun", "lazaret"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, c.podman)
			for p, content := range c.files {
				m.put(p, content, 0o644)
			}
			ch, _ := m.apply(Options{Scope: c.scope})
			if got := strings.Contains(string(ch.After), "append=true"); got != c.append {
				t.Errorf("appends %v, want %v:\n%s", got, c.append, ch.After)
			}
			e := m.effective(c.scope == User)
			if diff := cmp.Diff(c.json, e.JSON); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.nocg, e.NoCgroups); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{m.runtime}, e.Runtimes["lazaret"]); diff != "" {
				t.Error(diff)
			}
			if p, err := ch.Verify(); err != nil || len(p) > 0 {
				t.Errorf("verify: %q, %v", p, err)
			}
		})
	}
}

func TestVerifyNamesAFileThatOverrules(t *testing.T) {
	m := newMachine(t, "4.3.1")
	late := m.put("home/.config/containers/containers.conf.d/99-late.conf",
		"[engine]\nruntime_supports_json=[\"crun\"]\n[engine.runtimes]\nlazaret=[\"/other\"]\n", 0o644)
	c, _ := m.apply(Options{})
	p, err := c.Verify()
	if err != nil {
		t.Fatal(err)
	}
	if len(p) != 2 || !strings.Contains(p[0], late) || !strings.Contains(p[1], late) {
		t.Errorf("got %q, want two problems that name %s", p, late)
	}
}

func TestDefaultScope(t *testing.T) {
	for uid, want := range map[int]Scope{0: System, 1000: User} {
		m := newMachine(t, "4.3.1")
		m.uid = uid
		if c := m.plan(Options{}); c.Scope != want {
			t.Errorf("uid %d: scope %s, want %s", uid, c.Scope, want)
		}
	}
}

func TestIdempotent(t *testing.T) {
	m := newMachine(t, "4.3.1")
	if c, _ := m.apply(Options{}); c.Action != Create {
		t.Fatalf("first: %s", c.Action)
	}
	before, err := os.Stat(m.userPath())
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := m.apply(Options{}); c.Action != Keep {
		t.Errorf("second: %s", c.Action)
	}
	after, err := os.Stat(m.userPath())
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Error("the second run wrote the file again")
	}
	if before.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", before.Mode())
	}
	m.podman = "5.2.0"
	if c, _ := m.apply(Options{}); c.Action != Update {
		t.Errorf("after an upgrade of podman: %s", c.Action)
	}
	if c, _ := m.apply(Options{Uninstall: true}); c.Action != Remove {
		t.Errorf("uninstall: %s", c.Action)
	}
	if _, err := os.Lstat(m.userPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if c, _ := m.apply(Options{Uninstall: true}); c.Action != Keep {
		t.Errorf("second uninstall: %s", c.Action)
	}
}

func TestPlanTouchesNothing(t *testing.T) {
	m := newMachine(t, "4.3.1")
	m.plan(Options{})
	if _, err := os.Lstat(filepath.Join(m.root, "home")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("planning made something: %v", err)
	}
}

func TestAPersonsFileIsLeftAlone(t *testing.T) {
	ours, err := dropin.Render(dropin.Values{RuntimePath: "/x", JSON: []string{"lazaret"}, NoCgroups: []string{"lazaret"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, content string }{
		{"edited", string(ours) + "\n[containers]\nlog_driver = \"journald\"\n"},
		{"foreign", "[engine]\n"},
		{"emptied", ""},
	} {
		for _, uninstall := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s uninstall=%v", c.name, uninstall), func(t *testing.T) {
				m := newMachine(t, "4.3.1")
				m.put("home/.config/containers/containers.conf.d/50-lazaret.conf", c.content, 0o600)
				o := Options{Uninstall: uninstall}
				if _, err := Plan(t.Context(), m.host(), o); !errors.Is(err, ErrEdited) {
					t.Fatalf("error %v, want ErrEdited", err)
				}
				if got, err := os.ReadFile(m.userPath()); err != nil || string(got) != c.content {
					t.Fatalf("file is now %q, %v", got, err)
				}
				// --force keeps a copy, and never over an older copy.
				m.put("home/.config/containers/containers.conf.d/50-lazaret.conf.bak", "older", 0o600)
				o.Force = true
				_, bak := m.apply(o)
				if want := m.userPath() + ".bak.2"; bak != want {
					t.Fatalf("copy %q, want %q", bak, want)
				}
				if got, err := os.ReadFile(bak); err != nil || string(got) != c.content { //nolint:gosec // the test's own file
					t.Errorf("copy holds %q, %v", got, err)
				}
				if got, err := os.ReadFile(m.userPath() + ".bak"); err != nil || string(got) != "older" {
					t.Errorf("older copy holds %q, %v", got, err)
				}
				_, err := os.Lstat(m.userPath())
				if uninstall != errors.Is(err, fs.ErrNotExist) {
					t.Errorf("drop-in after --force: %v", err)
				}
			})
		}
	}
}

// A link at our place may lead to a file of somebody else's, in another's tree.
func TestLinkIsNotFollowed(t *testing.T) {
	m := newMachine(t, "4.3.1")
	target := m.put("home/dotfiles/lazaret.conf", "mine", 0o600)
	if err := os.MkdirAll(filepath.Dir(m.userPath()), 0o755); err != nil { //nolint:gosec // as podman makes it
		t.Fatal(err)
	}
	if err := os.Symlink(target, m.userPath()); err != nil {
		t.Fatal(err)
	}
	if _, err := Plan(t.Context(), m.host(), Options{}); !errors.Is(err, ErrEdited) {
		t.Fatalf("error %v, want ErrEdited", err)
	}
	m.apply(Options{Force: true})
	if got, err := os.ReadFile(target); err != nil || string(got) != "mine" { //nolint:gosec // the test's own file
		t.Errorf("target holds %q, %v", got, err)
	}
}

func TestRuntimePath(t *testing.T) {
	t.Run("absent", func(t *testing.T) {
		m := newMachine(t, "4.3.1")
		if err := os.Remove(m.runtime); err != nil {
			t.Fatal(err)
		}
		_, err := Plan(t.Context(), m.host(), Options{})
		if !errors.Is(err, fixedpath.ErrNotFound) || !strings.Contains(err.Error(), "--runtime-path") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("found through a link to the executable", func(t *testing.T) {
		m := newMachine(t, "4.3.1")
		h := m.host()
		link := filepath.Join(m.root, "lz")
		if err := os.Symlink(filepath.Join(m.root, "opt/bin/lazaret"), link); err != nil {
			t.Fatal(err)
		}
		h.Executable = func() (string, error) { return link, nil }
		c, err := Plan(t.Context(), h, Options{})
		if err != nil || c.Runtime != m.runtime {
			t.Errorf("got %v, %v", c, err)
		}
	})
	t.Run("others could replace it", func(t *testing.T) {
		m := newMachine(t, "4.3.1")
		if err := os.Chmod(m.runtime, 0o777); err != nil { //nolint:gosec // the point of the test
			t.Fatal(err)
		}
		if _, err := Plan(t.Context(), m.host(), Options{}); !errors.Is(err, fixedpath.ErrUnsafe) {
			t.Errorf("error %v, want ErrUnsafe", err)
		}
	})
}

func TestPodman(t *testing.T) {
	t.Run("none: full lists, and a note", func(t *testing.T) {
		m := newMachine(t, "")
		c := m.plan(Options{})
		if len(c.Notes) != 1 || strings.Contains(string(c.After), "append") || !strings.Contains(string(c.After), `"runsc"`) {
			t.Errorf("notes %q, content\n%s", c.Notes, c.After)
		}
	})
	t.Run("the given version is not asked for", func(t *testing.T) {
		m := newMachine(t, "nonsense")
		if c := m.plan(Options{PodmanVersion: "5.0.0"}); !strings.Contains(string(c.After), "append") {
			t.Errorf("content\n%s", c.After)
		}
	})
	t.Run("nonsense", func(t *testing.T) {
		if _, err := Plan(t.Context(), newMachine(t, "nonsense").host(), Options{}); err == nil {
			t.Error("no error")
		}
	})
	t.Run("root's user scope is read by none before 5", func(t *testing.T) {
		m := newMachine(t, "4.3.1")
		m.uid = 0
		if c := m.plan(Options{Scope: User}); len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "--scope system") {
			t.Errorf("notes %q", c.Notes)
		}
		m.podman = "5.0.0"
		if c := m.plan(Options{Scope: User}); len(c.Notes) != 0 {
			t.Errorf("notes %q", c.Notes)
		}
	})
	t.Run("a broken containers.conf is named", func(t *testing.T) {
		m := newMachine(t, "4.3.1")
		bad := m.put("etc/containers/containers.conf", "[engine", 0o644)
		if _, err := Plan(t.Context(), m.host(), Options{}); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("error %v, want one that names %s", err, bad)
		}
	})
	t.Run("CONTAINERS_CONF is noted", func(t *testing.T) {
		m := newMachine(t, "4.3.1")
		m.env["CONTAINERS_CONF"] = "/x.conf"
		if c := m.plan(Options{}); len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "/x.conf") {
			t.Errorf("notes %q", c.Notes)
		}
	})
}

func TestBadScope(t *testing.T) {
	m := newMachine(t, "4.3.1")
	if _, err := Plan(t.Context(), m.host(), Options{Scope: "galaxy"}); err == nil {
		t.Error("no error")
	}
}
