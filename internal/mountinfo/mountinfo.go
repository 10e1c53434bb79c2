// Package mountinfo reads which file systems are mounted where.
package mountinfo

import (
	"fmt"
	"os"
	"strings"
)

// Entry is a line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
type Entry struct {
	Point   string // mount point, without symbolic links
	FSType  string
	Options string // of the file system, as the kernel escapes them
}

// All are the mounts of this mount namespace, in the order in which they were made.
func All() ([]Entry, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("look for mounts: %w", err)
	}
	return Parse(string(data)), nil
}

// Parse leaves out lines that are not what the kernel writes.
func Parse(data string) []Entry {
	var all []Entry
	for line := range strings.Lines(data) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(super) < 3 {
			continue
		}
		all = append(all, Entry{Point: Unescape(fields[4]), FSType: super[0], Options: super[2]})
	}
	return all
}

// Unescape takes the kernel's octal escapes back.
func Unescape(s string) string {
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

// At is the uppermost mount at a path without symbolic links.
func At(point string) (top Entry, found bool, err error) {
	all, err := All()
	if err != nil {
		return Entry{}, false, err
	}
	for _, m := range all {
		if m.Point == point {
			top, found = m, true
		}
	}
	return top, found, nil
}
