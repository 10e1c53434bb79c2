package cli

import (
	"bufio"
	"errors"
	goflag "flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/doctor"
	"github.com/lazaret-dev/lazaret/internal/hostenv"
)

// The guide with answers typed, and with nobody there.
func TestGuide(t *testing.T) {
	lacking := doctor.Report{}
	lacking.Add(
		doctor.Check{Name: "podman", Status: doctor.OK, Detail: "there"},
		doctor.Check{Name: "uidmap", Status: doctor.Fail, Detail: "newuidmap is missing", Fix: "apt install -y uidmap"},
	)
	for _, c := range []struct {
		name, typed string // "-" for nobody
		image       string // of the flag
		mended      int    // at which look the machine is fit
		there       bool   // a configuration
		built       string
		written     bool
		says, not   []string
	}{
		{"return throughout", "\n\n\n", "", 2, false, "", true, []string{"fail uidmap: newuidmap is missing\n       apt install -y uidmap", "wrote", "next:  lazaret image build claude"}, []string{"podman: there", "first:"}},
		{"an image, after a wrong one", "\nnosuch\ncodex\n", "", 1, false, "codex", true, []string{"nosuch is none of them", "next:  cd PROJECT && lazaret run codex"}, []string{"this machine"}},
		{"no to all", "n\nn\nnone\n", "", 9, false, "", false, []string{"first: what is said above"}, []string{"wrote"}},
		{"the end of the input", "", "", 1, false, "", true, []string{"lazaret image build claude"}, nil},
		{"nobody there", "-", "", 9, false, "", true, []string{"apt install -y uidmap", "first:"}, []string{"[Y/n]"}},
		{"nobody there, an image", "-", "shell", 1, true, "shell", false, []string{"is there", "lazaret run shell"}, []string{"[Y/n]", "wrote"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			example := filepath.Join(dir, "example.toml")
			if err := os.WriteFile(example, []byte("# example\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			env := hostenv.Env{Home: dir}
			if c.there {
				if err := os.MkdirAll(filepath.Dir(configPath(env)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(configPath(env), []byte("# mine\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			flags := goflag.NewFlagSet("init", goflag.ContinueOnError)
			flags.String("image", c.image, "")
			var out strings.Builder
			looks, built := 0, ""
			g := &guide{
				c: cli.NewContext(newApp(), flags, nil), env: env, example: example, p: &printer{w: &out},
				check: func() (doctor.Report, error) {
					if looks++; looks >= c.mended {
						return doctor.Report{}, nil
					}
					return lacking, nil
				},
				build: func(image string) error {
					if built != "" {
						return errors.New("built twice")
					}
					built = image
					return nil
				},
			}
			if c.typed != "-" {
				g.keys = bufio.NewReader(strings.NewReader(c.typed))
			}
			if err := g.run(); err != nil {
				t.Fatal(err)
			}
			if built != c.built {
				t.Errorf("built %q, want %q", built, c.built)
			}
			text, err := os.ReadFile(configPath(env))
			if (err == nil && string(text) == "# example\n") != c.written {
				t.Errorf("configuration %q, %v; written should be %v", text, err, c.written)
			}
			for _, s := range c.says {
				if !strings.Contains(out.String(), s) {
					t.Errorf("no %q in\n%s", s, &out)
				}
			}
			for _, s := range c.not {
				if strings.Contains(out.String(), s) {
					t.Errorf("%q in\n%s", s, &out)
				}
			}
		})
	}
}

func TestFold(t *testing.T) {
	for _, c := range []struct {
		name, text string
		width      int
		want       string
	}{
		{"no terminal", "one two three\n", 0, "one two three\n"},
		{"it fits", "one two\n", 9, "one two\n"},
		{"between words", "one two three\n", 10, "one two\n  three\n"},
		{"behind its beginning", "  fail uidmap: is missing\n", 18, "  fail uidmap:\n    is missing\n"},
		{"lines of their own", "\none two\nthree four [Y/n]", 9, "\none two\nthree\n  four\n  [Y/n]"},
		{"a word that is too long", "wrote /a/very/long/path\n", 10, "wrote\n  /a/very/long/path\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fold(c.text, c.width); got != c.want {
				t.Errorf("got\n%q, want\n%q", got, c.want)
			}
		})
	}
}

func TestInHome(t *testing.T) {
	for _, c := range []struct{ home, path, want string }{
		{"/home/dev", "/home/dev/.config/lazaret/config.toml", "~/.config/lazaret/config.toml"},
		{"/home/dev/", "/home/dev/x", "~/x"},
		{"/home/dev", "/home/developer/x", "/home/developer/x"},
		{"", "/x", "/x"},
	} {
		if got := inHome(hostenv.Env{Home: c.home}, c.path); got != c.want {
			t.Errorf("%q in %q: got %q, want %q", c.path, c.home, got, c.want)
		}
	}
}
