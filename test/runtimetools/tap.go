package runtimetools

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// outcome is what one validation program found.
type outcome struct {
	passed map[string]int // assertions that held, by description, and how often
	failed map[string]int
	faults []string // what the program could not do at all: its own errors
	code   int      // its exit code; -1 for a time-out
	stderr string
}

// Run-dependent parts of a description: container ids, bundle folders, inodes.
var varying = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|ocitest[0-9]+|\[[0-9]+\]|[0-9]{5,}|exit status [0-9]+`)

var assertion = regexp.MustCompile(`^(not )?ok\s+[0-9]+(?:\s+-)?\s*(.*)$`)

// parse reads TAP version 13 as these programs write it. The program in the
// container writes TAP too, which its outer program keeps in the "stdout" of a
// diagnostic: its assertions count as well.
func parse(tap string) outcome {
	o := outcome{passed: map[string]int{}, failed: map[string]int{}}
	o.read(tap)
	slices.Sort(o.faults)
	return o
}

func (o *outcome) read(tap string) {
	lines := strings.Split(tap, "\n")
	asserted := false
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if m := assertion.FindStringSubmatch(line); m != nil {
			asserted = true
			// Not tested, and known not to hold: neither says anything.
			if strings.Contains(m[2], "# SKIP") || strings.Contains(m[2], "# TODO") {
				continue
			}
			description := varying.ReplaceAllString(m[2], "*")
			if m[1] == "" {
				o.passed[description]++
			} else {
				o.failed[description]++
			}
			continue
		}
		if strings.TrimSpace(line) != "---" {
			continue
		}
		var block strings.Builder
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "..."; i++ {
			block.WriteString(lines[i] + "\n")
		}
		var diagnostic map[string]any
		if json.Unmarshal([]byte(block.String()), &diagnostic) != nil {
			continue
		}
		if inner, ok := diagnostic["stdout"].(string); ok && strings.Contains(inner, "TAP version") {
			o.read(inner)
		}
		// An error that belongs to no assertion is a check that was not reached.
		if text, ok := diagnostic["error"].(string); ok && !asserted {
			o.faults = append(o.faults, varying.ReplaceAllString(text, "*"))
		}
	}
}

// held is how many assertions held.
func (o outcome) held() int {
	sum := 0
	for _, n := range o.passed {
		sum += n
	}
	return sum
}

// worse lists what held or worked in bare and does not in shim.
func worse(bare, shim outcome) []string {
	var list []string
	for description, n := range bare.passed {
		if shim.passed[description] < n {
			list = append(list, "no longer ok: "+description)
		}
	}
	// A check that stops early asserts less; one that fails more is caught even
	// where descriptions repeat.
	for description, n := range shim.failed {
		if bare.failed[description] < n {
			list = append(list, "newly not ok: "+description)
		}
	}
	if len(bare.faults) == 0 && len(shim.faults) > 0 {
		list = append(list, "new error: "+strings.Join(shim.faults, "; "))
	}
	if bare.code == 0 && shim.code != 0 {
		list = append(list, "ends with an error: "+strings.TrimSpace(shim.stderr))
	}
	slices.Sort(list)
	return list
}
