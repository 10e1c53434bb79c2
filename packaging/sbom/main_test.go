package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// inventoryOfThisTest reads the running test's own program.
func inventoryOfThisTest(t *testing.T) inventory {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inv := inventory{version: "1.2.3", when: time.Unix(0, 0).UTC()}
	if err := inv.add(self); err != nil {
		t.Fatal(err)
	}
	return inv
}

func TestDocumentNamesWhatIsLinked(t *testing.T) {
	inv := inventoryOfThisTest(t)
	first, err := inv.document()
	if err != nil {
		t.Fatal(err)
	}
	second, err := inv.document()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first), string(second)); diff != "" {
		t.Errorf("two documents of one build differ: %s", diff)
	}
	var d document
	if err := json.Unmarshal(first, &d); err != nil {
		t.Fatal(err)
	}
	refs := map[string]bool{d.Metadata.Component.Ref: true}
	var names []string
	for _, c := range d.Components {
		if refs[c.Ref] {
			t.Errorf("%s is there twice", c.Ref)
		}
		refs[c.Ref] = true
		names = append(names, c.Name)
	}
	for _, want := range []string{"std", "golang.org/x/sys", "github.com/google/uuid"} {
		if !strings.Contains(strings.Join(names, " "), want) {
			t.Errorf("%s is linked into this test and not listed: %v", want, names)
		}
	}
	for _, dep := range d.Dependencies {
		for _, on := range append(dep.DependsOn, dep.Ref) {
			if !refs[on] {
				t.Errorf("%s is depended on and is no component", on)
			}
		}
	}
	if !strings.HasPrefix(d.SerialNumber, "urn:uuid:") || d.Metadata.Timestamp != "1970-01-01T00:00:00Z" {
		t.Errorf("serial number %q, time %q", d.SerialNumber, d.Metadata.Timestamp)
	}
	inv.programs[0].sha256 = "other"
	if third, err := inv.document(); err != nil || strings.Contains(string(third), d.SerialNumber) {
		t.Errorf("another build has the same serial number (%v)", err)
	}
}

func TestLicenses(t *testing.T) {
	inv := inventory{programs: []program{{modules: []module{{path: "example.org/a", version: "v1"}, {path: "example.org/b", version: "v2"}}}}}
	root := t.TempDir()
	for name, text := range map[string]string{"a/LICENSE": "text of a", "a/license.go": "package a", "b/COPYING.md": "text of b", "b/NOTICE": "notice of b"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dirOf := func(m module) (string, error) { return filepath.Join(root, filepath.Base(m.path)), nil }
	out, err := inv.licenses(dirOf)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"example.org/a v1: LICENSE", "text of a", "text of b", "notice of b"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "package a") {
		t.Error("a Go file was taken for a licence")
	}
	if err := os.Remove(filepath.Join(root, "a/LICENSE")); err != nil {
		t.Fatal(err)
	}
	if _, err := inv.licenses(dirOf); err == nil || !strings.Contains(err.Error(), "example.org/a v1 has no licence file") {
		t.Errorf("a module without a licence: %v", err)
	}
}

func TestProgramsOfAnotherKind(t *testing.T) {
	inv := inventoryOfThisTest(t)
	inv.goarch = "other"
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := inv.add(self); err == nil {
		t.Error("programs of two architectures in one list")
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := inv.add(plain); err == nil {
		t.Error("a shell script has been read as a Go program")
	}
}
