package hooks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/containerstate"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

func TestReadState(t *testing.T) {
	tests := []struct {
		name, in string
		want     State
		fails    bool
	}{
		{"runsc's", `{"ociVersion":"1.0.2","id":"abc","status":"created","pid":42,"bundle":"/b","annotations":{"a":"b"}}`, State{ID: "abc", PID: 42}, false},
		{"stopped", `{"id":"abc","status":"stopped"}`, State{ID: "abc"}, false},
		{"empty", "", State{}, true},
		{"truncated", `{"id":"abc","pid":4`, State{}, true},
		{"no object", `[]`, State{}, true},
		{"two objects", `{"id":"a"}{"id":"b"}`, State{}, true},
		{"no id", `{"pid":42}`, State{}, true},
		{"an id that is a path", `{"id":"../x","pid":42}`, State{}, true},
		{"too large", `{"id":"` + strings.Repeat("a", maxState) + `"}`, State{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadState(strings.NewReader(tt.in))
			if (err != nil) != tt.fails || got != tt.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestRunWithoutCoordinator(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "containers", "abc")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"LAZARET_CONTROL_SOCKET": filepath.Join(dir, "none.sock"), "LAZARET_STATE_DIR": state}
	getenv := func(k string) string { return env[k] }

	t.Run("prestart fails, so that the create does", func(t *testing.T) {
		err := Run("prestart", strings.NewReader(`{"id":"abc","pid":42}`), getenv)
		if !errors.Is(err, wire.ErrNoCoordinator) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("prestart without a sandbox fails", func(t *testing.T) {
		if err := Run("prestart", strings.NewReader(`{"id":"abc"}`), getenv); err == nil {
			t.Error("accepted")
		}
	})
	t.Run("another container's directory is not touched", func(t *testing.T) {
		if err := Run("poststop", strings.NewReader(`{"id":"other"}`), getenv); err == nil {
			t.Error("accepted")
		}
		if _, err := os.Stat(state); err != nil {
			t.Error(err)
		}
	})
	t.Run("an unknown hook fails", func(t *testing.T) {
		if err := Run("poststart", strings.NewReader(`{"id":"abc"}`), getenv); err == nil {
			t.Error("accepted")
		}
	})
	t.Run("poststop removes what the coordinator would have", func(t *testing.T) {
		for range 2 { // and is idempotent
			if err := Run("poststop", strings.NewReader(`{"id":"abc"}`), getenv); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
			t.Error("state is left")
		}
	})
	t.Run("without its environment it fails", func(t *testing.T) {
		if err := Run("prestart", strings.NewReader(`{"id":"abc","pid":42}`), func(string) string { return "" }); err == nil {
			t.Error("accepted")
		}
	})
}

func FuzzReadState(f *testing.F) {
	for _, s := range []string{`{"id":"abc","pid":42}`, `{"id":"a"}{}`, `{"id":".."}`, `{"pid":1e9}`, "null", `{"id":"a","pid":-1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ReadState(strings.NewReader(string(data)))
		if err == nil && (!containerstate.ValidID(s.ID) || filepath.Base(s.ID) != s.ID) {
			t.Fatalf("accepted id %q", s.ID)
		}
	})
}
