// Package dotgit owns the question which file names are ".git" or ".gitmodules"
// in disguise: for git itself, or for a file system on which somebody may check
// the repository out. It knows what git's core.protectNTFS and core.protectHFS
// refuse, and what Linux's case-insensitive directories fold besides.
package dotgit

import (
	"unicode"
	"unicode/utf8"
)

// Name is one path component, without a slash.
type Name interface{ string | []byte }

// Is tells whether name means ".git" somewhere: in any case, with ignorable code
// points in it (HFS+, ext4 with casefold), or as NTFS reads it: with dots, blanks
// or a stream's name behind it, as git~1, before or behind a backslash.
func Is[N Name](name N) bool {
	return folded(name, ".git") || anyPiece(name, func(p N) bool {
		return prefixed(p, ".git") && blank(p[4:]) || prefixed(p, "git~1") && blank(p[5:])
	})
}

// IsGitmodules tells the same of ".gitmodules", whose short names on NTFS are
// gitmod~1 to gitmod~4 and those made from its hash.
func IsGitmodules[N Name](name N) bool {
	return folded(name, ".gitmodules") || anyPiece(name, func(p N) bool {
		switch {
		case prefixed(p, ".gitmodules"):
			return blank(p[11:])
		case len(p) < 8 || !blank(p[8:]):
			return false
		case prefixed(p, "gitmod~"):
			return '1' <= p[7] && p[7] <= '4'
		default:
			return hashed(p[:8], "gi7eba")
		}
	})
}

// folded tells whether name is want for a file system that ignores case and some
// code points. As for git, the first byte that is not UTF-8 ends the name.
func folded[N Name](name N, want string) bool {
	n := 0
	for i := 0; i < len(name); {
		r, size := rune(name[i]), 1
		if r >= utf8.RuneSelf {
			var buf [utf8.UTFMax]byte
			r, size = utf8.DecodeRune(buf[:copy(buf[:], name[i:])])
			if r == utf8.RuneError && size == 1 || r == '\ufffe' || r == '\uffff' {
				break
			}
			if ignorable(r) {
				i += size
				continue
			}
			r = unicode.ToUpper(r)
		}
		if n == len(want) || unicode.ToLower(r) != rune(want[n]) {
			return false
		}
		n++
		i += size
	}
	return n == len(want)
}

// ignorable holds for more code points than HFS+ ignores: ext4's folding drops
// all that Unicode calls ignorable by default.
func ignorable(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// anyPiece tells whether is holds for a piece of name between backslashes.
func anyPiece[N Name](name N, is func(N) bool) bool {
	start := 0
	for i := 0; i < len(name); i++ {
		if name[i] == '\\' {
			if is(name[start:i]) {
				return true
			}
			start = i + 1
		}
	}
	return is(name[start:])
}

// prefixed ignores the case of ASCII letters. lower is in lower case.
func prefixed[N Name](p N, lower string) bool {
	if len(p) < len(lower) {
		return false
	}
	for i := range len(lower) {
		c := p[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// blank tells whether NTFS drops all of rest: dots and blanks, then perhaps the
// name of a stream.
func blank[N Name](rest N) bool {
	for i := range len(rest) {
		switch rest[i] {
		case '.', ' ':
		case ':':
			return true
		default:
			return false
		}
	}
	return true
}

// hashed tells whether p, of eight bytes, is a short name that NTFS makes when
// the plain ones are taken: a part of stem, a tilde, a number.
func hashed[N Name](p N, stem string) bool {
	tilde := 0
	for tilde < len(stem) && p[tilde] != '~' {
		tilde++
	}
	if !prefixed(p, stem[:tilde]) || p[tilde] != '~' || p[tilde+1] == '0' {
		return false
	}
	for i := tilde + 1; i < len(p); i++ {
		if p[i] < '0' || p[i] > '9' {
			return false
		}
	}
	return true
}
