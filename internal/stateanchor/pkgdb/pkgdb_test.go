package pkgdb

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseDpkg(t *testing.T) {
	t.Parallel()
	const status = `Package: jq
Status: install ok installed
Priority: optional
Architecture: amd64
Version: 1.7.1-6
Description: a filter
 Package: not-a-field
 Version: 9

Package: gone
Status: deinstall ok config-files
Version: 1
Architecture: all

Package: half
Status: install ok half-configured
Architecture: all
Version: 2

Package: static
Architecture: all
Version: 3
`
	got, err := ParseDpkg([]byte(status))
	want := []Package{
		{Manager: Apt, Name: "jq", Version: "1.7.1-6", Arch: "amd64"},
		{Manager: Apt, Name: "half", Version: "2", Arch: "all"},
		{Manager: Apt, Name: "static", Version: "3", Arch: "all"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := ParseDpkg([]byte(strings.Repeat("Package: a\n\n", MaxPackages+1))); err == nil {
		t.Error("too many packages were taken")
	}
	auto := ParseAptAuto([]byte("Package: libonig5\nArchitecture: amd64\nAuto-Installed: 1\n\nPackage: jq\nArchitecture: amd64\nAuto-Installed: 0\n"))
	if !reflect.DeepEqual(auto, map[string]bool{"libonig5:amd64": true}) {
		t.Errorf("auto: %v", auto)
	}
}

func TestParseApk(t *testing.T) {
	t.Parallel()
	got, err := ParseApk([]byte("C:Q1x\nP:jq\nV:1.7-r0\nA:x86_64\nF:usr/bin\nR:jq\na:0:0:755\nF:usr/../../x\n\nP:musl\nV:1.2\n"))
	want := []ApkPackage{
		{Package{Manager: Apk, Name: "jq", Version: "1.7-r0"}, []string{"/usr/bin", "/usr/bin/jq"}},
		{Package{Manager: Apk, Name: "musl", Version: "1.2"}, nil},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	got := ParseList([]byte("/.\n/usr\n/usr/bin/../bin/jq\nrelative\n/..\n/usr//share/./doc\n"))
	if want := []string{"/usr", "/usr/bin/jq", "/usr/share/doc"}; !reflect.DeepEqual(got, want) {
		t.Errorf("list: %q", got)
	}
	got = ParseRecord([]byte("six.py,sha256=x,1\n../../../bin/tool,,\n\"a,b.py\",,\n\"open\n../../../../../../../etc/passwd,,\n"), "/usr/lib/python3/dist-packages")
	want := []string{"/usr/lib/python3/dist-packages/six.py", "/usr/bin/tool", "/usr/lib/python3/dist-packages/a,b.py"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("record: %q", got)
	}
}

func TestPip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entry, name, version string
		ok                   bool
	}{
		{"requests-2.32.3.dist-info", "requests", "2.32.3", true},
		{"ruamel.yaml-0.18.dist-info", "ruamel.yaml", "0.18", true},
		{"PyYAML-6.0.1-py3.11.egg-info", "PyYAML", "6.0.1", true},
		{"distro.egg-info", "distro", "", true},
		{"-.dist-info", "", "", false},
		{"requests", "", "", false},
	} {
		name, version, ok := DistName(c.entry)
		if ok != c.ok || ok && (name != c.name || version != c.version) {
			t.Errorf("%s: %q %q %v", c.entry, name, version, ok)
		}
	}
	if n, v := ParseMetadata([]byte("Metadata-Version: 2.1\nName: typing_extensions\nVersion: 4.12\n\nName: other\n")); n != "typing_extensions" || v != "4.12" {
		t.Errorf("metadata: %q %q", n, v)
	}
}

// What an agent may have written into a database never becomes an option, another
// source or a second word.
func TestSpec(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    Package
		want string // "" for an error
	}{
		{Package{Manager: Apt, Name: "g++", Version: "anything at all"}, "g++"},
		{Package{Manager: Apt, Name: "python3.13"}, "python3.13"},
		{Package{Manager: Apt, Name: "bash-"}, ""},
		{Package{Manager: Apt, Name: "-o"}, ""},
		{Package{Manager: Apt, Name: "./x.deb"}, ""},
		{Package{Manager: Apt, Name: "jq/unstable"}, ""},
		{Package{Manager: Apt, Name: "jq=1"}, ""},
		{Package{Manager: Apt, Name: "jq rm"}, ""},
		{Package{Manager: Apt, Name: "jq\n"}, ""},
		{Package{Manager: Apt, Name: "ab*"}, ""},
		{Package{Manager: Apt, Name: strings.Repeat("a", 200)}, ""},
		{Package{Manager: Pip, Name: "six", Version: "1.16.0"}, "six==1.16.0"},
		{Package{Manager: Pip, Name: "torch", Version: "2.3+cu118"}, "torch==2.3+cu118"},
		{Package{Manager: Pip, Name: "six", Version: "1.0 --index-url=x"}, ""},
		{Package{Manager: Pip, Name: "six @ https://x", Version: "1"}, ""},
		{Package{Manager: Pip, Name: "-r", Version: "1"}, ""},
		{Package{Manager: Pip, Name: "six", Version: ""}, ""},
		{Package{Manager: Npm, Name: "cowsay", Version: "1.6.0"}, "cowsay@1.6.0"},
		{Package{Manager: Npm, Name: "@scope/a.b", Version: "1.0.0-rc.1"}, "@scope/a.b@1.0.0-rc.1"},
		{Package{Manager: Npm, Name: "a", Version: "npm:other@1.0.0"}, ""},
		{Package{Manager: Npm, Name: "git+https://x", Version: "1.0.0"}, ""},
		{Package{Manager: Npm, Name: "user/repo", Version: "1.0.0"}, ""},
		{Package{Manager: Npm, Name: "../x", Version: "1.0.0"}, ""},
		{Package{Manager: "rpm", Name: "jq"}, ""},
	} {
		got, err := c.p.Spec()
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c.p, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("Package: jq\nStatus: install ok installed\nVersion: 1\n\n"), uint8(0))
	f.Add([]byte("P:jq\nV:1\nF:usr/bin\nR:jq\n"), uint8(2))
	f.Add([]byte("six.py,sha256=x,1\n\"a\n"), uint8(4))
	f.Add([]byte(`{"name":"a\nb","version":"1"}`), uint8(5))
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		clean := func(paths []string) {
			for _, p := range paths {
				if !strings.HasPrefix(p, "/") || strings.Contains(p+"/", "/../") || strings.ContainsAny(p, "\n\x00") {
					t.Errorf("path %q", p)
				}
			}
		}
		plain := func(words ...string) {
			for _, w := range words {
				if strings.Contains(w, "\n") || len(w) > maxField {
					t.Errorf("field %q", w)
				}
			}
		}
		switch kind % 6 {
		case 0:
			all, _ := ParseDpkg(data)
			for _, p := range all {
				plain(p.Name, p.Version, p.Arch)
				if spec, err := p.Spec(); err == nil && (spec[0] == '-' || strings.ContainsAny(spec, " /=\t")) {
					t.Errorf("spec %q", spec)
				}
			}
		case 1:
			ParseAptAuto(data)
		case 2:
			all, _ := ParseApk(data)
			for _, p := range all {
				plain(p.Name, p.Version)
				clean(p.Files)
			}
		case 3:
			clean(ParseList(data))
		case 4:
			clean(ParseRecord(data, "/usr/lib/python3/dist-packages"))
			name, version := ParseMetadata(data)
			plain(name, version)
		case 5:
			name, version, _ := ParsePackageJSON(data)
			plain(name, version)
			if spec, err := (Package{Manager: Npm, Name: name, Version: version}).Spec(); err == nil && spec[0] == '-' {
				t.Errorf("spec %q", spec)
			}
		}
	})
}
