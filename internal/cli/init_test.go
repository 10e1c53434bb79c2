package cli

import (
	"errors"
	"io/fs"
	"testing"
)

// lazaret init goes on without podman, as packages do that are set up before it.
func TestPodmanThatIsNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := podmanVersion(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
