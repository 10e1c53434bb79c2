// Package imports holds the rule that imports only point down, over the whole
// graph that the go command sees.
package imports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/lazaret-dev/lazaret"

// layers from the top down. A package may import what is in a lower layer, and
// packages of its own component; a component is the folder named here with all
// that is below it. Folders of internal/ that are not named are small helpers:
// the lowest layer, in which they may import each other. internal/domain is one:
// it is the vocabulary that even the control protocol is written in.
func layers() [][]string {
	return [][]string{
		{"cmd"},
		{"internal/cli"},
		{"shim", "hooks", "internal/console", "internal/install", "internal/coordinator", "internal/doctor"},
		{"internal/review"},
		{"escalate", "netrouter", "internal/gitsentry", "internal/stateanchor", "internal/store", "internal/trust"},
		{"spec", "internal/config", "internal/wire", "containers.conf.d", "packaging/images"},
	}
}

// lean programs are started by the engine, several times for one container.
func lean() map[string][]string {
	heavy := []string{
		"net/http", "crypto/tls", "html/template", "text/template",
		"github.com/urfave/cli", "go.etcd.io/bbolt", "github.com/google/nftables",
		"github.com/hanwen/go-fuse", "github.com/miekg/dns", "charm.land", "github.com/charmbracelet",
		"google.golang.org/protobuf", "google.golang.org/grpc",
	}
	return map[string][]string{"cmd/lazaret-runtime": heavy, "cmd/lazaret-hook": heavy}
}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, args...)...)
	cmd.Dir = "../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, &stderr)
	}
	var pkgs []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// place finds a package's layer (0 is the top) and component. The lowest layer
// is one component.
func place(path string) (layer int, component string, err error) {
	rel := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	for i, folders := range layers() {
		for _, f := range folders {
			if within(rel, f) {
				return i, f, nil
			}
		}
	}
	if within(rel, "internal") {
		return len(layers()), "helpers", nil
	}
	return 0, "", fmt.Errorf("%s is in no layer: add its folder to layers()", path)
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// check lists what is wrong with one import; "" when nothing is.
func check(from, to string) string {
	fromLayer, fromPart, err := place(from)
	if err != nil {
		return err.Error()
	}
	toLayer, toPart, err := place(to)
	switch {
	case err != nil:
		return err.Error()
	case toLayer > fromLayer, toPart == fromPart && fromLayer > 0:
		return ""
	case toLayer == fromLayer:
		return fmt.Sprintf("%s imports %s of its own layer", from, to)
	default:
		return fmt.Sprintf("%s imports %s of a higher layer", from, to)
	}
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, p := range list(t, "./...") {
		if within(p.ImportPath, module+"/test") || within(p.ImportPath, module+"/packaging") {
			continue
		}
		seen++
		if _, _, err := place(p.ImportPath); err != nil {
			t.Error(err)
			continue
		}
		for _, dep := range p.Imports {
			if within(dep, module) {
				if fault := check(p.ImportPath, dep); fault != "" {
					t.Error(fault)
				}
			}
		}
	}
	if seen == 0 {
		t.Fatal("go list found no package of the product")
	}
}

func TestProductDoesNotReachItsTests(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "./cmd/...") {
		for _, dep := range p.Deps {
			if dep == "testing" || within(dep, module+"/test") {
				t.Errorf("%s reaches %s", p.ImportPath, dep)
			}
		}
	}
}

func TestRuntimeAndHookStayLean(t *testing.T) {
	t.Parallel()
	for program, heavy := range lean() {
		pkgs := list(t, "./"+program)
		if len(pkgs) != 1 {
			t.Fatalf("%s: %d packages", program, len(pkgs))
		}
		for _, dep := range pkgs[0].Deps {
			if slices.ContainsFunc(heavy, func(h string) bool { return within(dep, h) }) {
				t.Errorf("%s reaches %s", program, dep)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		from, to string
		fault    string // a part of it; "" for none
	}{
		{"down", "cmd/lazaret-runtime", "shim", ""},
		{"down over layers", "cmd/lazaret", "internal/atomicfile", ""},
		{"up", "internal/config", "internal/coordinator", "higher layer"},
		{"helper up", "internal/atomicfile", "internal/wire", "higher layer"},
		{"sideways", "shim", "hooks", "own layer"},
		{"sideways among services", "internal/store", "internal/trust", "own layer"},
		{"inside one component", "netrouter/apply", "netrouter/plan", ""},
		{"a name that only begins alike", "internal/storefront", "internal/store", "higher layer"},
		{"helper to helper", "internal/hostenv", "internal/atomicfile", ""},
		{"between programs", "cmd/lazaret", "cmd/lazaret-hook", "own layer"},
		{"unknown folder", "cmd/lazaret", "pkg/util", "in no layer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := check(module+"/"+tt.from, module+"/"+tt.to)
			if (tt.fault == "") != (got == "") || !strings.Contains(got, tt.fault) {
				t.Errorf("fault %q, want one with %q", got, tt.fault)
			}
		})
	}
}
