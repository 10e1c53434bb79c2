package netrouter

import (
	"bytes"
	"strings"
	"testing"
)

func TestMainRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--help"}, {"run"}, {"--version", "x"}} {
		var out, err bytes.Buffer
		if code := Main(args, &out, &err); code == 0 || !strings.Contains(err.String(), "the coordinator starts it") {
			t.Errorf("%q: status %d, stderr %q", args, code, err.String())
		}
	}
	var out bytes.Buffer
	if code := Main([]string{"--version"}, &out, &out); code != 0 || !strings.HasPrefix(out.String(), "lazaret-netrouter ") {
		t.Errorf("--version: status %d, %q", code, out.String())
	}
}
