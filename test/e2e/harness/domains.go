package harness

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each runs a test once for every runsc of the machine, each in a place of its
// own and in parallel.
func Each(t *testing.T, opts Options, test func(t *testing.T, h *Harness)) {
	t.Helper()
	t.Parallel()
	for _, s := range Sandboxes() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			o := opts
			o.Sandbox = s.Path
			test(t, New(t, o))
		})
	}
}

// Debian tells whether this place runs the distribution's runsc, of 2022.
func (h *Harness) Debian() bool { return h.Sandbox == SandboxDebian }

// Runc tells whether this place runs runc in runsc's stead.
func (h *Harness) Runc() bool { return h.Sandbox == filepath.Join(h.Dir, "runsc") }

// Fails fails the test unless the command exited with this code and said exactly
// one line on stderr, with all of these words in it.
func (r Result) Fails(t testing.TB, code int, words ...string) {
	t.Helper()
	r.Exit(t, code)
	if strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("%s\nwant one line on stderr, got:\n%s", r.Args, r.Stderr)
	}
	for _, w := range words {
		if !strings.Contains(r.Stderr, w) {
			t.Errorf("%s\nstderr lacks %q: %s", r.Args, w, r.Stderr)
		}
	}
}

// Detached is podman run -d --runtime=lazaret with a name, in a workspace ("" for
// none).
func (h *Harness) Detached(workspace, name string, args ...string) {
	h.t.Helper()
	run := []string{"run", "-d", "--runtime=lazaret", "--name=" + name}
	if workspace != "" {
		run = append(run, "-v", workspace+":/workspace")
	}
	h.Podman(append(run, args...)...).OK(h.t)
}

// Inspect is one field of podman inspect's answer about a container.
func (h *Harness) Inspect(container, field string) string {
	h.t.Helper()
	return h.Podman("container", "inspect", "--format", "{{"+field+"}}", container).OK(h.t)
}

// Domain is what a live coordinator tells of its domain.
type Domain struct {
	PID    int    `json:"pid"`
	Memory uint64 `json:"memory_bytes"`
	Guard  struct {
		State string `json:"state"`
		PID   int    `json:"pid"`
		Cut   bool   `json:"cut"`
	} `json:"guard"`
	Anchor struct {
		Hash      string `json:"hash"`
		Profile   string `json:"profile"`
		Workspace string `json:"workspace"`
		Root      string `json:"root"`
	} `json:"domain"`
	Containers []struct {
		ID    string   `json:"id"`
		State string   `json:"state"`
		Notes []string `json:"notes"`
	} `json:"containers"`
	Sessions []struct {
		ID       string `json:"id"`
		Kind     string `json:"kind"`
		Terminal bool   `json:"terminal"`
	} `json:"sessions"`
}

// Domains lists the domains in use whose Domain Root is in this test's place.
func (h *Harness) Domains() []Domain {
	h.t.Helper()
	var status struct {
		Domains []Domain `json:"domains"`
	}
	out := h.Run("lazaret", "status", "--json").OK(h.t)
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		h.t.Fatalf("lazaret status --json: %v\n%s", err, out)
	}
	var mine []Domain
	for _, d := range status.Domains {
		if strings.HasPrefix(d.Anchor.Root, h.DataRoot()+"/") {
			mine = append(mine, d)
		}
	}
	return mine
}

// Domain is the domain of a profile and a workspace; its PID is 0 while nobody
// uses it.
func (h *Harness) Domain(profile, workspace string) Domain {
	h.t.Helper()
	hash, err := DomainHash(profile, workspace)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, d := range h.Domains() {
		if d.Anchor.Hash == hash {
			return d
		}
	}
	return Domain{}
}

// DomainEnds waits for the end of a domain's coordinator.
func (h *Harness) DomainEnds(profile, workspace string) {
	h.t.Helper()
	h.Eventually("the coordinator has ended", 20*time.Second, func() bool { return h.Domain(profile, workspace).PID == 0 })
}

// DataRoot is the Storage Root where the configuration sets no other.
func (h *Harness) DataRoot() string {
	if h.User.UID == 0 {
		return "/var/lib/lazaret"
	}
	return filepath.Join(h.Home, ".local/share/lazaret")
}
