package stateanchor

import (
	"fmt"
	"os"
	"strings"
)

// mountEntry is a line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
type mountEntry struct {
	point   string // mount point, without symbolic links
	fstype  string
	options string // of the file system, as the kernel escapes them
}

func mounts() ([]mountEntry, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("look for mounts: %w", err)
	}
	return parseMounts(string(data)), nil
}

// parseMounts leaves out lines that are not what the kernel writes.
func parseMounts(data string) []mountEntry {
	var all []mountEntry
	for line := range strings.Lines(data) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(super) < 3 {
			continue
		}
		all = append(all, mountEntry{point: unescape(fields[4]), fstype: super[0], options: super[2]})
	}
	return all
}

// unescape takes the kernel's octal escapes back.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1:i+4]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(s string) bool { return s[0] <= '3' && strings.Trim(s, "01234567") == "" }

// mountedAt is the uppermost mount at a path without symbolic links.
func mountedAt(point string) (top mountEntry, found bool, err error) {
	all, err := mounts()
	if err != nil {
		return mountEntry{}, false, err
	}
	for _, m := range all {
		if m.point == point {
			top, found = m, true
		}
	}
	return top, found, nil
}

// lowerDirs reads an overlay's lower directories, the uppermost first, out of its
// options: lowerdir=a:b, or one lowerdir+= for each. Colons, commas and
// backslashes in them have a backslash before them, all of that escaped once more
// by the kernel.
func lowerDirs(options string) []string {
	var dirs []string
	for _, o := range splitEscaped(options, ',') {
		if list, ok := strings.CutPrefix(o, "lowerdir="); ok {
			for _, d := range splitEscaped(unescape(list), ':') {
				dirs = append(dirs, unbackslash(d))
			}
		} else if one, ok := strings.CutPrefix(o, "lowerdir+="); ok {
			dirs = append(dirs, unescape(one))
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
