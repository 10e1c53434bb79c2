package early

import (
	"slices"
	"strings"
	"testing"

	"github.com/lazaret-dev/lazaret/internal/ociargv"
)

func TestPlainID(t *testing.T) {
	long := strings.Repeat("x", 256)
	tests := []struct {
		args, want string // "" where Go has to look at it
	}{
		{"state c1", "c1"},
		{"start c_1+x.y-z", "c_1+x.y-z"},
		{"delete c1", "c1"},
		{"delete --force c1", "c1"},
		{"kill c1 SIGTERM", "c1"},
		{"kill c1 9", "c1"},
		{"kill --all c1 KILL", "c1"},
		{"", ""},
		{"state", ""},
		{"state --help", ""},
		{"state -- c1", ""},
		{"state c1 c2", ""},
		{"state .", ""},
		{"state ..", ""},
		{"state ../c1", ""},
		{"state a/b", ""},
		{"state " + long, ""},
		{"start -d c1", ""},
		{"delete c1 --force", ""},
		{"delete --force", ""},
		{"delete --force=false c1", ""},
		{"delete -f c1", ""},
		{"delete --force -- c1", ""},
		{"kill c1", ""},
		{"kill --all c1", ""},
		{"kill c1 --all", ""},
		{"kill -s KILL c1", ""},
		{"kill --all=true c1 9", ""},
		{"create c1", ""},
		{"run c1", ""},
		{"exec c1 sh", ""},
		{"update c1", ""},
		{"pause c1", ""},
		{"--root /x state c1", ""},
		{"--version state c1", ""},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			c := callOf(t, append([]string{"lazaret-runtime"}, strings.Fields(tt.args)...), nil)
			if got := text(c.plainID()); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for _, odd := range []string{"", "a b", "a\nb", "ä", "\xff"} {
		if id := callOf(t, []string{"lazaret-runtime", "state", odd}, nil).plainID(); id != nil {
			t.Errorf("%q is taken for an id", odd)
		}
	}
}

// FuzzPlainID: what is taken here means to ociargv, which reads every other call,
// the same container and the same words for runsc.
func FuzzPlainID(f *testing.F) {
	f.Add("state\x00c1")
	f.Add("kill\x00--all\x00c1\x009")
	f.Add("delete\x00--force\x00--force")
	f.Fuzz(func(t *testing.T, in string) {
		args := strings.Split(in, "\x00")
		id := callOf(t, append([]string{"lazaret-runtime"}, args...), nil).plainID()
		if id == nil {
			return
		}
		cmd, err := ociargv.Parse(args)
		if err != nil {
			t.Fatal(err)
		}
		if cmd.ID() != text(id) || cmd.Refused != "" || !slices.Equal(cmd.Argv("runsc"), append([]string{"runsc"}, args...)) {
			t.Errorf("%q is container %q and %q to ociargv", args, cmd.ID(), cmd.Argv("runsc"))
		}
	})
}
