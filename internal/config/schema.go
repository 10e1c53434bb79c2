package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/lazaret-dev/lazaret/internal/netrule"
)

// kind is the TOML type of a field, and with it the Go type of its value.
type kind int

const (
	kindString   kind = iota // string
	kindBool                 // bool
	kindStrings              // []string
	kindArgvs                // [][]string
	kindEnv                  // one string value a variable, each a key of its own
	kindDuration             // time.Duration, written "5m"
)

func (k kind) want() string {
	switch k {
	case kindString:
		return "a string"
	case kindBool:
		return "true or false"
	case kindStrings:
		return `an array of strings, such as ["a", "b"]`
	case kindArgvs:
		return `an array of arrays of words, such as [["notify-send", "--urgency=low"]]`
	case kindEnv:
		return `a table NAME = "value", or an array of "NAME=value"`
	case kindDuration:
		return `a string such as "90s", "5m" or "1h"`
	}
	return "unknown"
}

// field describes one key. The checks return why a value is wrong.
type field struct {
	name    string
	kind    kind
	allowed []string                     // the only accepted values of a string, nil = any
	fix     func(string) (string, error) // checks a string or an element, and gives its canonical spelling
	argv    func([]string) error         // checks an element of kindArgvs
	whole   func([]string) (int, error)  // checks a list; the index blames an element, -1 the list
	dur     func(time.Duration) error    // checks kindDuration
}

// table is a section: its fields and sub-tables. Under each, names are free.
type table struct {
	fields []field
	tables []section
	each   *table
}

type section struct {
	name string
	*table
}

func (t *table) field(name string) *field {
	for i := range t.fields {
		if t.fields[i].name == name {
			return &t.fields[i]
		}
	}
	return nil
}

func (t *table) sub(name string) *table {
	for _, s := range t.tables {
		if s.name == name {
			return s.table
		}
	}
	return nil
}

// names lists what may stand in the table.
func (t *table) names() []string {
	var out []string
	for _, f := range t.fields {
		out = append(out, f.name)
	}
	for _, s := range t.tables {
		out = append(out, s.name)
	}
	return out
}

// schema is the whole language of a configuration file. The order is that of
// `lazaret config show`.
func schema(home string) *table {
	general := []field{
		{name: "data_root", fix: hostDir(home)},
		{name: "default_profile", fix: profileName},
		{name: "control_dir", fix: hostDir(home)},
		{name: "log_level", allowed: []string{"debug", "info", "warn", "error"}},
	}
	runtime := []field{
		{name: "sandbox", fix: program(home)},
		{name: "sidecar", fix: program(home)},
		{name: "platform", allowed: []string{"systrap", "ptrace", "kvm"}},
		{name: "args", kind: kindStrings, fix: runtimeFlag},
	}
	escalation := []field{
		{name: "enabled", kind: kindBool},
		{name: "socket_dir", fix: checked(func(s string) error { _, err := hostPath(s, exampleHome(home), exampleVars); return err })},
		{name: "auto_approve", kind: kindArgvs, argv: CheckAutoApprove},
		{name: "timeout", kind: kindDuration, dur: approvalTimeout},
	}
	return &table{tables: []section{
		{"general", &table{fields: general}},
		{"runtime", &table{fields: runtime}},
		{"escalation", &table{fields: escalation}},
		{"profiles", &table{each: profileTable(home)}},
	}}
}

func profileTable(home string) *table {
	home = exampleHome(home)
	inSandbox := checked(func(s string) error { _, err := sandboxPath(s, exampleVars); return err })
	inWorkspace := func(s string) (string, error) {
		_, err := workspacePath(s, "/w", exampleVars)
		return path.Clean(s), err
	}
	free := checked(func(s string) error { _, err := expand(s, home, exampleVars); return err })
	volume := checked(func(s string) error { return checkVolume(s, home) })
	rule := func(s string) (string, error) { r, err := netrule.Parse(s); return r.String(), err }
	return &table{
		fields: []field{
			{name: "image", fix: image(home)},
			{name: "command", kind: kindStrings, fix: free, whole: firstWord},
			{name: "env", kind: kindEnv, fix: free},
			{name: "pass_env", kind: kindStrings, fix: checked(envName)},
			{name: "volumes", kind: kindStrings, fix: volume},
			{name: "persist", kind: kindStrings, fix: inSandbox, whole: notSystem},
			{name: "state_paths", kind: kindStrings, fix: inSandbox, whole: statePaths},
			{name: "state_driver", allowed: []string{"auto", "overlay", "fuse-overlayfs"}},
			{name: "git", allowed: []string{"sentry", "branch", "off"}},
			{name: "masks", kind: kindStrings, fix: inWorkspace},
			{name: "read_only", kind: kindStrings, fix: inWorkspace},
			{name: "allow_broad_workspace", kind: kindBool},
		},
		tables: []section{
			{"network", &table{fields: []field{
				{name: "mode", allowed: []string{"filtered", "learn", "none", "open"}},
				{name: "inbound", kind: kindBool},
				{name: "allow", kind: kindStrings, fix: rule},
				{name: "deny", kind: kindStrings, fix: rule},
			}}},
			{"escalation", &table{fields: []field{
				{name: "auto_approve", kind: kindArgvs, argv: CheckAutoApprove},
			}}},
		},
	}
}

// exampleHome lets "~" be checked where the home is unknown; using it fails later.
func exampleHome(home string) string {
	if home == "" {
		return "/h"
	}
	return home
}

// checked makes a fix that never changes the value.
func checked(f func(string) error) func(string) (string, error) {
	return func(s string) (string, error) { return s, f(s) }
}

// hostDir checks a path of a section where placeholders mean nothing yet.
func hostDir(home string) func(string) (string, error) {
	return checked(func(s string) error {
		_, err := hostPath(s, exampleHome(home), noVarsHere)
		return err
	})
}

func noVarsHere(name string) (string, bool, error) {
	if _, known, _ := exampleVars(name); known {
		return "", true, fmt.Errorf("{%s} has no value in this section: only \"~\" expands here", name)
	}
	return "", false, nil
}

// onlyOf reports whether s is not empty and made of the ASCII letters a-z, A-Z
// where upper is set, digits, and the bytes of more.
func onlyOf(s string, upper bool, more string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (!upper || c < 'A' || c > 'Z') && strings.IndexByte(more, c) < 0 {
			return false
		}
	}
	return s != ""
}

// ProfileNames says what a profile may be called.
const ProfileNames = "2 to 32 of a-z, 0-9, _ and -"

// ValidProfileName reports whether name can be a profile's.
func ValidProfileName(name string) bool {
	return len(name) >= 2 && len(name) <= 32 && onlyOf(name, false, "_-")
}

func profileName(s string) (string, error) {
	if !ValidProfileName(s) {
		return "", fmt.Errorf("%q is not a profile name: it must be %s", s, ProfileNames)
	}
	return s, nil
}

// program accepts a name, which is looked for in fixed directories, or an absolute
// path.
func program(home string) func(string) (string, error) {
	return checked(func(s string) error {
		if strings.ContainsAny(s, "/~") {
			_, err := hostPath(s, exampleHome(home), noVarsHere)
			return err
		}
		if err := pathText(s); err != nil {
			return err
		}
		if s == "." || s == ".." || strings.ContainsFunc(s, unicode.IsSpace) || s[0] == '-' {
			return fmt.Errorf("%q is not a program's name: arguments go to runtime.args", s)
		}
		return nil
	})
}

func runtimeFlag(s string) (string, error) {
	if err := pathText(s); err != nil {
		return "", err
	}
	name, ok := strings.CutPrefix(s, "--")
	if !ok || name == "" {
		return "", fmt.Errorf("%q: each argument is one flag of the sandbox's runtime, such as \"--directfs=false\"", s)
	}
	name, _, _ = strings.Cut(name, "=")
	// The engine passes these, and reads what they name.
	if slices.Contains([]string{"root", "log", "log-format", "systemd-cgroup", "rootless"}, name) {
		return "", fmt.Errorf("--%s is set by the container engine and by Lazaret", name)
	}
	return s, nil
}

func approvalTimeout(d time.Duration) error {
	if d < time.Second || d > 24*time.Hour {
		return fmt.Errorf("%s is out of range: it must be from 1s to 24h", d)
	}
	return nil
}

func image(home string) func(string) (string, error) {
	return checked(func(s string) error {
		out, err := expand(s, home, exampleVars)
		if err != nil {
			return err
		}
		if !onlyOf(out, true, "._:/@+-") || out[0] == '-' {
			return fmt.Errorf("%q is not an image reference, such as \"docker.io/library/debian:bookworm\"", s)
		}
		return nil
	})
}

func envName(s string) error {
	if !onlyOf(s, true, "_") || s[0] >= '0' && s[0] <= '9' {
		return fmt.Errorf("%q is not the name of an environment variable: letters, digits and _, not a digit first", s)
	}
	if strings.HasPrefix(s, "LAZARET_") {
		return fmt.Errorf("%q: names that begin with LAZARET_ are Lazaret's own", s)
	}
	return nil
}

func firstWord(argv []string) (int, error) {
	if len(argv) > 0 && argv[0] == "" {
		return 0, errors.New("the first word is the program and cannot be empty")
	}
	return -1, nil
}

func checkVolume(s, home string) error {
	vol, err := parseVolume(s)
	if err != nil {
		return err
	}
	if !strings.ContainsAny(vol.Source[:1], "/~{") {
		return fmt.Errorf("%q: the host path must be absolute or begin with \"~/\"; named volumes are not supported", s)
	}
	if _, err = vol.resolve(home, exampleVars); err != nil {
		return err
	}
	known := []string{"ro", "rw", "exec", "noexec", "nosuid", "nodev", "bind", "rbind", "z", "Z", "U"}
	for _, o := range vol.Options {
		if !slices.Contains(known, o) {
			return fmt.Errorf("%q: unknown mount option %q (allowed: %s)", s, o, strings.Join(known, ", "))
		}
	}
	return nil
}

// notSystem refuses directories that belong to the kernel, the engine or Lazaret.
func notSystem(list []string) (int, error) {
	for i, s := range list {
		p, err := sandboxPath(s, exampleVars)
		if err != nil {
			continue // already told
		}
		for _, sys := range []string{"/proc", "/sys", "/dev", "/run", "/workspace"} {
			if within(p, sys) {
				return i, fmt.Errorf("%q: %s cannot be kept: it belongs to the sandbox or to the workspace", s, sys)
			}
		}
		if p == "/" {
			return i, fmt.Errorf("%q: the whole root cannot be kept: name the directories", s)
		}
	}
	return -1, nil
}

func statePaths(list []string) (int, error) {
	if i, err := notSystem(list); err != nil {
		return i, err
	}
	for i, s := range list {
		for j, t := range list[:i] {
			if within(s, t) || within(t, s) {
				return i, fmt.Errorf("%q and %q (element %d) overlap: keep the outer one", s, t, j+1)
			}
		}
	}
	return -1, nil
}
