package gitconf

import (
	"path"
	"regexp"
	"strings"
)

// unknown stands in a word for what the shell would put there.
const unknown = "\x00"

// command keeps the files that a command line names. A shell could compute any
// path: what is found here is what stands there, read in several ways, as too
// much is only read-only, and too little is run.
func (f *finder) command(v Var, alias bool, src Source) error {
	values := []string{strings.TrimPrefix(v.Value, "!")}
	if url, ok := strings.CutPrefix(v.Subsection, "ext::"); ok { // url.ext::….insteadOf
		values = append(values, url)
	}
	for _, value := range values {
		value = strings.TrimPrefix(value, "ext::")
		plain := f.unexpand(value)
		for i, words := range [][]string{{value}, quoted(plain), pieces(plain), pieces(value)} {
			script := false
			for j, word := range words {
				// The whole line is a file only if it is there, blanks and all.
				w := shellWord{text: word, first: j == 0, alias: alias, there: i == 0, script: script}
				if err := f.word(w, src); err != nil {
					return err
				}
				script = runsScripts(word) || script && strings.HasPrefix(word, "-")
			}
		}
	}
	return nil
}

type shellWord struct {
	text   string
	first  bool // of its line
	alias  bool // in an alias
	there  bool // counts only when there is such a file
	script bool // follows an interpreter: names a script
}

func (f *finder) word(w shellWord, src Source) error {
	text := w.text
	slash := strings.Contains(text, "/")
	if i := strings.LastIndex(text, unknown); i >= 0 {
		// "$(git rev-parse --show-toplevel)/x": most likely from the worktree's root.
		text = strings.TrimLeft(text[i+len(unknown):], "/")
	}
	text, err := f.expand(text)
	if err != nil || text == "" {
		return nil //nolint:nilerr // a tilde that is no home is a name, which cannot be met
	}
	for _, p := range f.absolute(text) {
		if f.Free[p] {
			f.free[p] = true
			continue
		}
		looked := f.looked
		if !slash && !w.script {
			f.looked = map[string]Stamp{} // it counts only while it is there
		}
		t, err := f.trace(p)
		f.looked = looked
		if err != nil {
			return err
		}
		var keep bool
		switch {
		case t.info == nil && len(t.links) == 0:
			// git's own words (commit, origin) must stay free as names of files.
			keep = !w.there && (slash || w.script)
			f.free[p] = !keep
		case t.info != nil && t.info.IsDir():
			// An alias may well name a directory as data: lint src/lib.
			keep = !w.there && (slash && !w.alias || w.script || slash && w.first)
		default:
			keep = true
		}
		if keep {
			f.keep(f.programs, t, src)
		}
	}
	return nil
}

// runsScripts names programs whose argument is a program.
func runsScripts(word string) bool {
	name := path.Base(word)
	switch strings.TrimRight(name, "0123456789.") {
	case "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "source",
		"python", "pypy", "perl", "ruby", "node", "deno", "bun", "php", "lua", "Rscript", "java", "tclsh":
		return true
	}
	return name == "."
}

// unexpand replaces what the shell expands by unknown, but for the home.
func (f *finder) unexpand(line string) string {
	line = regexp.MustCompile(`\$HOME\b|\$\{HOME\}`).ReplaceAllLiteralString(line, f.Home)
	expansion := regexp.MustCompile(`\$\([^()]*\)|\$\{[^{}]*\}|` + "`[^`]*`" + `|\$[A-Za-z_][A-Za-z_0-9]*|\$[0-9@*#?!$-]`)
	for range 8 { // as deep as they nest
		line = expansion.ReplaceAllString(line, unknown)
	}
	return line
}

// quoted splits a line at blanks and the shell's operators, and takes quotes away.
func quoted(line string) []string {
	var words []string
	var word strings.Builder
	var quote byte
	end := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
		}
		word.Reset()
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && strings.IndexByte(" \t\r\n;|&<>(){}=", c) >= 0:
			end()
		default:
			word.WriteByte(c)
		}
	}
	end()
	return words
}

// pieces splits a line at everything that seldom is part of a path, so that it
// sees into scripts within quotes.
func pieces(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n;|&<>(){}=\"'`$\\,:*?![]", r) })
}
