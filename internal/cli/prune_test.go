package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/domain"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
)

// Which domains go, and that only those go.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	r := resolved{
		env: hostenv.Env{RuntimeDir: filepath.Join(dir, "run")},
		cfg: &config.Config{General: config.General{ControlDir: dir, DataRoot: data}},
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	must(os.WriteFile(file, nil, 0o600))
	anchors := map[string]domain.Anchor{
		"there":     domain.New("default", dir, data),
		"gone":      domain.New("default", dir+"/gone", data),
		"file":      domain.New("default", file, data),
		"ephemeral": domain.Ephemeral("default", "0123", data),
		"below":     domain.New("other", file+"/x", data), // ENOTDIR: nobody knows what is there
	}
	for _, a := range anchors {
		must(os.MkdirAll(filepath.Join(a.Root, "usr_changes/x"), 0o700))
		must(domain.WriteRecord(a))
	}
	domains := filepath.Join(data, "domains")
	for _, d := range []string{"0123456789ab/usr_changes", removing + "0123456789ac/x", removing + "me", "notes"} {
		must(os.MkdirAll(filepath.Join(domains, d), 0o700))
	}
	found, unfinished, err := leftovers(r)
	must(err)
	var got []string
	for _, l := range found {
		for name, a := range anchors {
			if a.Hash == l.anchor.Hash {
				got = append(got, name)
			}
		}
	}
	slices.Sort(got)
	if want := []string{"ephemeral", "file", "gone"}; !slices.Equal(got, want) || len(found) != len(want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if len(unfinished) != 1 || filepath.Base(unfinished[0]) != removing+"0123456789ac" {
		t.Errorf("unfinished: %q", unfinished)
	}
	// One whose workspace comes back meanwhile stays; what an earlier removal left
	// is in nobody's way.
	must(os.Mkdir(dir+"/gone", 0o700))
	must(os.MkdirAll(filepath.Join(domains, removing+anchors["ephemeral"].Hash, "old"), 0o700))
	for _, l := range found {
		err := l.remove(t.Context())
		if back := l.anchor.Hash == anchors["gone"].Hash; (err != nil) != back || back && !strings.Contains(err.Error(), "there again") {
			t.Errorf("remove %s: %v", l.why, err)
		}
	}
	left, err := os.ReadDir(domains)
	must(err)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	want := []string{anchors["there"].Hash, anchors["gone"].Hash, anchors["below"].Hash, "0123456789ab", removing + "0123456789ac", removing + "me", "notes"}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("left %q\nwant %q", names, want)
	}
}
