package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// metacharacters make a command the shell's; every control character does too.
const metacharacters = ";|&$`><\\"

// special are the characters that a POSIX shell, or one that people use in its
// place, does more with than pass them on where they stand outside of quotes.
// Lazaret does not: it passes them on.
const special = "*?[]{}()~#!^="

// errQuote tells of a quotation that does not end.
var errQuote = errors.New("a quote is not closed")

// Split takes a command without metacharacters apart as a POSIX shell would:
// blanks part the words, quotes of both kinds keep them together and go away.
// With no backslash and no dollar sign about there is no more to it. marks holds
// the special characters that stood outside of quotes, each once.
func Split(command string) (words []string, marks string, err error) {
	if i := strings.IndexFunc(command, isMeta); i >= 0 {
		return nil, "", fmt.Errorf("%q is the shell's to understand", command[i:i+1])
	}
	var word strings.Builder
	open := false // a word has begun, be it of no characters: ''
	for rest := command; rest != ""; {
		c := rest[0]
		rest = rest[1:]
		switch c {
		case ' ':
			if open {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
		case '\'', '"':
			text, after, closed := strings.Cut(rest, string(c))
			if !closed {
				return nil, "", errQuote
			}
			word.WriteString(text)
			rest, open = after, true
		default:
			if strings.IndexByte(special, c) >= 0 && strings.IndexByte(marks, c) < 0 {
				marks += string(c)
			}
			word.WriteByte(c)
			open = true
		}
	}
	if open {
		words = append(words, word.String())
	}
	return words, marks, nil
}

func isMeta(r rune) bool {
	return strings.ContainsRune(metacharacters, r) || unicode.IsControl(r)
}

// Plain reports whether r is what a reader sees it as: neither a control
// character, nor one of no width, of changed direction, or a space that is not
// the ASCII one, nor a mark that joins its neighbour, nor unassigned.
func Plain(r rune) bool {
	if r == ' ' {
		return true
	}
	if r == utf8.RuneError || !unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) {
		return false
	}
	// Letters and symbols that are shown as nothing.
	return !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) && r != '\u2800'
}

// matches reports whether prefix is the beginning of words, word by word. The
// first is not looked at: it names a program, which is compared as a file.
func matches(prefix, words []string) bool {
	if len(prefix) == 0 || len(prefix) > len(words) {
		return false
	}
	for i := 1; i < len(prefix); i++ {
		if prefix[i] != words[i] {
			return false
		}
	}
	return true
}
