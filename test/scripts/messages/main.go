// Command messages makes docs/messages.md out of the sources: every error of the product
// that tells what to do about it, where it comes from, and the document that says more.
//
// An error tells what to do by its last part: after a colon or semicolon it speaks to the
// reader, in the imperative, or names a command. STYLE of the project's messages: what
// failed, on what, why, what to do.
//
//	go run ./test/scripts/messages > docs/messages.md
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	text, err := document(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "messages:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

// message is an error's text, its verbs made dots.
type message struct{ folder, says, helps string }

// roots are the product's folders.
func roots() []string {
	return []string{"cmd", "internal", "shim", "hooks", "spec", "escalate", "netrouter", "containers.conf.d"}
}

// makers are the functions that make an error of a text.
func makers() []string { return []string{"Errorf", "New", "usageError", "refuse", "refused"} }

// collect reads every error of the product below dir.
func collect(dir string) ([]message, error) {
	var out []message
	for _, root := range roots() {
		err := filepath.WalkDir(filepath.Join(dir, root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(dir, filepath.Dir(path))
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 || !slices.Contains(makers(), callee(call)) {
					return true
				}
				if s, ok := text(call.Args[0]); ok {
					// One that is only what another error says is found by that.
					if says, helps := split(s); helps != "" && len(regexp.MustCompile(`[a-z]`).FindAllString(readable(says), 3)) == 3 {
						out = append(out, message{filepath.ToSlash(rel), readable(says), readable(helps)})
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b message) int {
		return cmp.Or(strings.Compare(a.folder, b.folder), strings.Compare(a.says, b.says), strings.Compare(a.helps, b.helps))
	})
	return slices.Compact(out), nil
}

func callee(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// text is the value of a literal, or of several that are added.
func text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, ok := text(e.X)
		b, ok2 := text(e.Y)
		return a + b, e.Op == token.ADD && ok && ok2
	case *ast.ParenExpr:
		return text(e.X)
	}
	return "", false
}

// addressed is what a part that speaks to the reader begins with.
func addressed() *regexp.Regexp {
	return regexp.MustCompile(`[:;] (?:and )?(?:add|answer|ask|build|check|choose|copy|delete|drop|edit|end|free|give|have|install|keep|leave|load|look|make|mend|mount|move|name|open|pass|pull|put|raise|read|register|reinstall|remove|replace|run|say|see|set|start|stop|take|try|unset|upgrade|use|wait|write)\b|[:;] (?:lazaret|podman|modprobe) `)
}

// split parts what a message says from what it tells to do; helps is "" where it tells
// nothing. "open FILE: %w" is no advice though it begins like one.
func split(s string) (says, helps string) {
	wrap := regexp.MustCompile(`^[^:;]*: %w`)
	for _, at := range addressed().FindAllStringIndex(s, -1) {
		rest := strings.TrimPrefix(s[at[0]+2:], "and ")
		if !wrap.MatchString(rest) {
			return s[:at[0]], rest
		}
	}
	return s, ""
}

// readable puts dots in the place of what differs from case to case.
func readable(s string) string {
	s = regexp.MustCompile(`%[-+# 0]*[0-9]*(\.[0-9]+)?(\[[0-9]+\])?[a-zA-Z]`).ReplaceAllString(s, "…")
	return strings.ReplaceAll(strings.ReplaceAll(s, "%%", "%"), "\n", " ")
}

// topic is a part of the document: the folders whose messages it has, the longest name first.
type topic struct {
	title, more string
	folders     []string
}

func topics() []topic {
	return []topic{
		{"Installing and registering", "install.md", []string{"internal/install", "internal/layout", "internal/podmanconf", "internal/fixedpath", "containers.conf.d"}},
		{"Configuration and trust", "configuration.md", []string{"internal/config"}},
		{"Starting a container", "run.md", []string{"shim", "spec", "hooks", "internal/imageinfo", "internal/containerstate", "internal/terminfo", "internal/ociargv"}},
		{"The workspace and the domain", "operations.md", []string{"internal/domain", "internal/wire", "internal/coordinator", "internal/hostenv", "internal/hostpath"}},
		{"Git", "git-sentry.md", []string{"internal/gitsentry", "internal/hostgit", "internal/gitwrap"}},
		{"The agent's branch", "git-branch.md", []string{"internal/gitbranch"}},
		{"What is kept", "state-anchor.md", []string{"internal/stateanchor"}},
		{"The network", "network.md", []string{"netrouter", "internal/netrule", "internal/coordinator/network"}},
		{"Commands on the host", "escalation.md", []string{"escalate", "internal/coordinator/broker", "internal/sessionkey", "internal/console", "internal/trust"}},
		{"Records and review", "audit.md", []string{"internal/store", "internal/audit", "internal/review"}},
		{"The commands of lazaret", "operations.md", []string{"internal/cli", "internal/doctor"}},
		{"Everything else", "troubleshooting.md", []string{""}},
	}
}

// place is the topic with the longest folder that holds this one.
func place(folder string) int {
	best, length := 0, -1
	for i, t := range topics() {
		for _, f := range t.folders {
			if (f == "" || folder == f || strings.HasPrefix(folder, f+"/")) && len(f) > length {
				best, length = i, len(f)
			}
		}
	}
	return best
}

func document(dir string) (string, error) {
	messages, err := collect(dir)
	if err != nil {
		return "", err
	}
	if len(messages) == 0 {
		return "", fmt.Errorf("no errors found below %s: run it in the checkout's root", dir)
	}
	var b strings.Builder
	b.WriteString("# Messages\n\n" +
		"<!-- generated by go run ./test/scripts/messages, do not edit -->\n\n" +
		"Every error of Lazaret's that tells what helps, with dots for what differs from case to case. A message often has\n" +
		"another one before it, which says what was being done. What has no message, or one of another program's, is in\n" +
		"[troubleshooting.md](troubleshooting.md).\n")
	cell := func(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
	for i, t := range topics() {
		head := false
		for _, m := range messages {
			if place(m.folder) != i {
				continue
			}
			if !head {
				fmt.Fprintf(&b, "\n## %s\n\nMore: [%s](%[2]s)\n\n| it says | what helps |\n| --- | --- |\n", t.title, t.more)
				head = true
			}
			fmt.Fprintf(&b, "| %s | %s |\n", code(cell(m.says)), cell(plain(m.helps)))
		}
	}
	return b.String(), nil
}

// code makes s a code span, whatever is in it.
func code(s string) string {
	if strings.Contains(s, "`") {
		return "`` " + s + " ``"
	}
	return "`" + s + "`"
}

// plain keeps Markdown from taking signs of a message for its own.
func plain(s string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`).Replace(s)
}
