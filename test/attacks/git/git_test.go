package git

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// Each technique has a name of its own: its canary.
func TestNames(t *testing.T) {
	seen, groups := map[string]bool{}, map[string]bool{}
	for _, g := range Groups() {
		if groups[g.Name] {
			t.Errorf("two groups %q", g.Name)
		}
		groups[g.Name] = true
		for _, tech := range g.Techniques {
			if seen[tech.Name] || strings.Trim(tech.Name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
				t.Errorf("%s: a name used twice, or odd", tech.Name)
			}
			seen[tech.Name] = true
			if tech.Hold == "" && tech.Try == "" && tech.After == "" {
				t.Errorf("%s does nothing", tech.Name)
			}
		}
	}
	t.Logf("%d techniques in %d groups", len(seen), len(groups))
}

// places share the groups; in each of them one group follows the other.
const places = 4

// inPlaces calls play for each group, in a few places at the same time.
func inPlaces(t *testing.T, target Target, groups []Group, play func(t *testing.T, h *harness.Harness, g Group)) {
	t.Helper()
	for i := range places {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			h := harness.New(t, target.Options)
			for j := i; j < len(groups); j += places {
				t.Run(groups[j].Name, func(t *testing.T) { play(t, h, groups[j]) })
			}
		})
	}
}

// attackAll plays groups against a target; not one technique may succeed.
func attackAll(t *testing.T, target Target, groups []Group) {
	t.Helper()
	inPlaces(t, target, groups, func(t *testing.T, h *harness.Harness, g Group) {
		o := Play(t, h, target, g)
		if len(o.Fell) > 0 {
			t.Errorf("fell to\n%s", o.Report())
		}
		if len(o.Changes) > 0 {
			t.Errorf("the sandbox changed what is guarded:\n\t%s", strings.Join(o.Changes, "\n\t"))
		}
		if len(o.Trouble) > 0 {
			t.Errorf("the host had trouble:\n\t%s", strings.Join(o.Trouble, "\n\t"))
		}
	})
}

// reduced are those played with other runtimes and as root: one group of each kind.
func reduced() []Group {
	names := []string{"config", "config-replace", "hooks", "modules", "linked-worktree", "gitlink", "bare-inside", "index-held-fd", "links", "special-files", "masks", "replace-rename"}
	return slices.DeleteFunc(Groups(), func(g Group) bool { return !slices.Contains(names, g.Name) })
}

func TestLazaret(t *testing.T) {
	t.Parallel()
	attackAll(t, Lazaret(harness.Options{}), Groups())
}

func TestLazaretOtherRuntimes(t *testing.T) {
	t.Parallel()
	for _, s := range append(harness.Sandboxes(), harness.Sandbox{Name: "runc", Path: harness.SandboxRunc}) {
		if s.Path == harness.SandboxCurrent {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			attackAll(t, Lazaret(harness.Options{Sandbox: s.Path}), reduced())
		})
	}
}

func TestLazaretRootful(t *testing.T) {
	t.Parallel()
	attackAll(t, Lazaret(harness.Options{Rootful: true}), reduced())
}

// Naive mounts fall to what they are known to fall to: else these attacks are none.
func TestNaiveMountsFall(t *testing.T) {
	t.Parallel()
	groups := slices.DeleteFunc(Groups(), func(g Group) bool {
		return !slices.ContainsFunc(g.Techniques, func(tech Technique) bool { return tech.Naive })
	})
	target := Naive(harness.SandboxCurrent)
	inPlaces(t, target, groups, func(t *testing.T, h *harness.Harness, g Group) {
		o := Play(t, h, target, g)
		t.Logf("fell to\n%s", o.Report())
		for _, tech := range g.Techniques {
			if tech.Naive && o.Fell[tech.Name] == "" {
				t.Errorf("naive mounts withstood %s: this attack is none", tech.Name)
			}
		}
	})
}
