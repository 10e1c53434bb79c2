package spell

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"debain": "debian", "NPM": "npm", "zzzzzz": "", "": "", "gti": "git", strings.Repeat("debian", 20): ""} {
		if got := Nearest(word, []string{"debian", "npm", "git"}); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
