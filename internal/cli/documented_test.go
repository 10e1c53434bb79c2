package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// What README and documents tell people to type is what the program takes: commands,
// their flags, and the profiles and images that example.toml and the packages have.
func TestDocumentedCommands(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := 0
	for _, f := range append(files, "../../README.md", "../../example.toml") {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range typed(string(data)) {
			found++
			if complaint := refused(strings.Fields(line)[1:]); complaint != "" {
				t.Errorf("%s: %q: %s", filepath.Base(f), line, complaint)
			}
		}
	}
	if found < 150 {
		t.Errorf("only %d commands found in the documents", found)
	}
}

// A test of the test: what no document may say.
func TestDocumentedCommandsAreJudged(t *testing.T) {
	text := "`lazaret nope` or `sudo lazaret init --nope`:\n```sh\ncd x && lazaret state -p claude diff --nope # lazaret fine\n" +
		"sudo lazaret-0/install.sh\nlazaret run claude --fresh -- sh -c 'x | --nope'\n```\n\"lazaret image build --none\""
	var complaints []string
	for _, line := range typed(text) {
		if c := refused(strings.Fields(line)[1:]); c != "" {
			complaints = append(complaints, line)
		}
	}
	want := []string{"lazaret state -p claude diff --nope", "lazaret nope", "lazaret init --nope", "lazaret image build --none"}
	slices.Sort(complaints)
	slices.Sort(want)
	if !slices.Equal(complaints, want) {
		t.Errorf("refused: %q, want %q", complaints, want)
	}
}

// typed are the command lines of lazaret in a text, without what follows them.
func typed(text string) []string {
	var lines []string
	add := func(code string) {
		code, _, _ = strings.Cut(code, " #")
		for _, part := range regexp.MustCompile(`&&|\|\s|;\s|\$\(|\)`).Split(code, -1) {
			part = strings.TrimPrefix(strings.TrimSpace(part), "sudo ")
			// With a line end in it, it is the first line of something that is signed.
			if strings.HasPrefix(part, "lazaret ") && !strings.Contains(part, `\n`) {
				lines = append(lines, strings.TrimSpace(part))
			}
		}
	}
	block := regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		if m[1] == "sh" {
			for l := range strings.Lines(m[2]) {
				add(l)
			}
		}
	}
	for _, m := range regexp.MustCompile("`([^`]+)`|\"(lazaret [^\"]+)\"").FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		add(strings.ReplaceAll(m[1]+m[2], "\n", " "))
	}
	return lines
}

// refused tells why a command line cannot be one of ours, or "".
func refused(words []string) string {
	app := newApp()
	commands, flags := app.Commands, app.Flags
	known := true // still among commands and subcommands
	for i := 0; i < len(words); i++ {
		w := strings.Trim(words[i], "[],.")
		switch {
		case w == "--" || w == "|" || w == "…" || w == "":
			return "" // what follows is another program's, or more of the same kind
		case strings.HasPrefix(w, "-"):
			name, _, given := strings.Cut(strings.TrimLeft(w, "-"), "=")
			f := flagNamed(flags, name)
			if f == nil {
				return "no flag " + w
			}
			if d, ok := f.(cli.DocGenerationFlag); ok && d.TakesValue() && !given {
				i++
			}
		case known && len(commands) > 0:
			at := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(w) })
			if at < 0 {
				return "no command " + w
			}
			flags = append(slices.Clone(commands[at].Flags), cli.HelpFlag)
			commands = commands[at].Subcommands
		default:
			known = false // an argument
		}
	}
	return ""
}

func flagNamed(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}
