package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Error is one fault of one configuration file, told so that the developer can
// mend it without the manual.
type Error struct {
	File    string // path as opened
	Line    int    // 1-based, 0 when the fault is the file's as a whole
	Key     string // dotted key, "" when there is none
	Why     string
	Allowed string // what would be accepted, "" when Why says it
	Nearest string // the key or value that was probably meant
}

// Error renders FILE:LINE: key "x.y": why (allowed: …; did you mean "…"?) on
// one line. Nothing taken from the file reaches the terminal unescaped.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(printable(e.File))
	if e.Line > 0 {
		b.WriteString(":" + strconv.Itoa(e.Line))
	}
	b.WriteString(": ")
	if e.Key != "" {
		fmt.Fprintf(&b, `key "%s": `, printable(e.Key))
	}
	b.WriteString(printable(e.Why))
	var hints []string
	if e.Allowed != "" {
		hints = append(hints, "allowed: "+printable(e.Allowed))
	}
	if e.Nearest != "" {
		hints = append(hints, fmt.Sprintf(`did you mean "%s"?`, printable(e.Nearest)))
	}
	if len(hints) > 0 {
		b.WriteString(" (" + strings.Join(hints, "; ") + ")")
	}
	return b.String()
}

// Errors are all faults that were found, in the order of the files and lines.
type Errors []*Error

// Error is one line a fault. A file that is wrong everywhere does not flood the
// terminal.
func (es Errors) Error() string {
	const most = 20
	lines := make([]string, 0, most+1)
	for i, e := range es {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more", len(es)-most))
			break
		}
		lines = append(lines, e.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the single faults.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// orNil keeps an empty list from becoming a non-nil error.
func (es Errors) orNil() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

// printable escapes everything that could move the cursor, reorder or hide text.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRuneToASCII(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// Printable is printable for the command line, which shows what files hold.
func Printable(s string) string { return printable(s) }
