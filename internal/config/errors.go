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

// nearest picks the candidate with the smallest edit distance to word, or ""
// when none is near enough to be what was meant. Letter case does not count.
func nearest(word string, candidates []string) string {
	word = strings.ToLower(word)
	if len(word) > 64 { // the distance is quadratic, and nobody mistypes 64 letters into a key
		return ""
	}
	best, bestDist := "", len(word)/3+2
	for _, c := range candidates {
		if d := editDistance(word, strings.ToLower(c)); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours, the usual slips of typing.
func editDistance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
