package stateanchor

import (
	"strings"

	"github.com/lazaret-dev/lazaret/internal/mountinfo"
)

// lowerDirs reads an overlay's lower directories, the uppermost first, out of its
// options: lowerdir=a:b, or one lowerdir+= for each. Colons, commas and
// backslashes in them have a backslash before them, all of that escaped once more
// by the kernel.
func lowerDirs(options string) []string {
	var dirs []string
	for _, o := range splitEscaped(options, ',') {
		if list, ok := strings.CutPrefix(o, "lowerdir="); ok {
			for _, d := range splitEscaped(mountinfo.Unescape(list), ':') {
				dirs = append(dirs, unbackslash(d))
			}
		} else if one, ok := strings.CutPrefix(o, "lowerdir+="); ok {
			dirs = append(dirs, mountinfo.Unescape(one))
		}
	}
	return dirs
}

// splitEscaped splits at each sep that no backslash stands before. The pieces keep
// their backslashes.
func splitEscaped(s string, sep byte) []string {
	var parts []string
	from := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case sep:
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}

func unbackslash(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
