package policy

import (
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in string
		words    []string
		marks    string
		fails    bool
	}{
		{"plain", "aws sts get-caller-identity", []string{"aws", "sts", "get-caller-identity"}, "", false},
		{"blanks around and between", "  a   b ", []string{"a", "b"}, "", false},
		{"single quotes", "a 'b  c' d", []string{"a", "b  c", "d"}, "", false},
		{"double quotes", `a "b 'c'" d`, []string{"a", "b 'c'", "d"}, "", false},
		{"quotes within a word", `a'b c'"d"e`, []string{"ab cde"}, "", false},
		{"a word of nothing", "a '' b", []string{"a", "", "b"}, "", false},
		{"nothing but quotes", `''`, []string{""}, "", false},
		{"nothing", "", nil, "", false},
		{"nothing but blanks", "   ", nil, "", false},
		{"one token", "'git status'", []string{"git status"}, "", false},
		{"quoted specials are plain", `ls '*' "?[a]{b}~#!"`, []string{"ls", "*", "?[a]{b}~#!"}, "", false},
		{"open specials are told once", "ls * *? ~/x", []string{"ls", "*", "*?", "~/x"}, "*?~", false},
		{"assignment", "A=b ls", []string{"A=b", "ls"}, "=", false},
		{"comment", "ls # x", []string{"ls", "#", "x"}, "#", false},
		{"subshell", "(ls)", []string{"(ls)"}, "()", false},
		{"open single quote", "a 'b", nil, "", true},
		{"open double quote", `a "b`, nil, "", true},
		{"a quote in the other's", `a "'`, nil, "", true},
		{"letters beyond ASCII", "a grün 日本", []string{"a", "grün", "日本"}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			words, marks, err := Split(tt.in)
			if (err != nil) != tt.fails || err == nil && (!slices.Equal(words, tt.words) || marks != tt.marks) {
				t.Errorf("Split(%q) = %q, %q, %v", tt.in, words, marks, err)
			}
		})
	}
	for _, c := range []string{";", "|", "&", "$", "`", ">", "<", "\n", "\r", "\\", "\t", "\x00", "\x1b", "\x7f", "\u0085", "\u009b"} {
		for _, in := range []string{"a" + c + "b", "a '" + c + "'", c, "a " + c} {
			if words, _, err := Split(in); err == nil {
				t.Errorf("Split(%q) = %q, want an error", in, words)
			}
		}
	}
}

// FuzzSplit holds Split against a shell's own parser: what has no special
// character outside of quotes has the same words there.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"a b", "a 'b c'", `"a"'b'c`, "'' \"\"", "a '", "(a)", "A=b c", "{ a", "if x", "! a", "a # b", "~ *"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		words, marks, err := Split(in)
		if strings.IndexFunc(in, isMeta) >= 0 && err == nil {
			t.Fatalf("Split(%q) passes a metacharacter", in)
		}
		if err != nil || marks != "" {
			return
		}
		file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(in), "")
		if err != nil {
			return // reserved words: no program of such a name
		}
		want, simple := shellWords(file)
		if simple && !slices.Equal(words, want) {
			t.Fatalf("Split(%q) = %q, the shell's are %q", in, words, want)
		}
	})
}

// shellWords are the words of a file that is one simple command of literals.
func shellWords(file *syntax.File) (out []string, simple bool) {
	if len(file.Stmts) == 0 {
		return nil, true
	}
	call, ok := file.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(file.Stmts) > 1 || len(call.Assigns) > 0 {
		return nil, false
	}
	for _, w := range call.Args {
		var word strings.Builder
		for _, part := range w.Parts {
			switch p := part.(type) {
			case *syntax.Lit:
				word.WriteString(p.Value)
			case *syntax.SglQuoted:
				word.WriteString(p.Value)
			case *syntax.DblQuoted:
				for _, in := range p.Parts {
					lit, ok := in.(*syntax.Lit)
					if !ok {
						return nil, false
					}
					word.WriteString(lit.Value)
				}
			default:
				return nil, false
			}
		}
		out = append(out, word.String())
	}
	return out, true
}
