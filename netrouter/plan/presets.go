package plan

import (
	_ "embed"
	"fmt"

	"github.com/BurntSushi/toml"

	"github.com/lazaret-dev/lazaret/internal/config"
)

//go:embed presets.toml
var presetsFile string

// preset are the rules behind a name such as @debian.
func preset(name string) ([]config.Rule, error) {
	var all map[string][]string
	if _, err := toml.Decode(presetsFile, &all); err != nil {
		return nil, fmt.Errorf("presets: %w", err)
	}
	entries, ok := all[name]
	if !ok {
		return nil, fmt.Errorf("there is no preset %q", name)
	}
	var out []config.Rule
	for _, e := range entries {
		r, err := config.ParseRule(e)
		if err != nil {
			return nil, fmt.Errorf("preset %s: %w", name, err)
		}
		out = append(out, r)
	}
	return out, nil
}
