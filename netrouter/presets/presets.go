// Package presets owns the named lists of hosts, such as @debian, that a network
// list can hold. They are put in on the coordinator's side: the sidecar does not
// know of them.
package presets

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

//go:embed presets.toml
var file string

// Expand returns the entries with each preset's own in its place. An unknown
// preset is an error.
func Expand(entries []string) ([]string, error) {
	var all map[string][]string
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		if !strings.HasPrefix(e, "@") {
			out = append(out, e)
			continue
		}
		if all == nil {
			if _, err := toml.Decode(file, &all); err != nil {
				return nil, fmt.Errorf("presets: %w", err)
			}
		}
		more, ok := all[e]
		if !ok {
			return nil, fmt.Errorf("there is no preset %q", e)
		}
		out = append(out, more...)
	}
	return out, nil
}
