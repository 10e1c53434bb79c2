package netrule

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{"example.org", "example.org"},
		{"Example.ORG", "example.org"},
		{"*.example.org", "*.example.org"},
		{"example.org:443", "example.org:443"},
		{"*.example.org:8443", "*.example.org:8443"},
		{"registry", "registry"},
		{"_dmarc.example.org", "_dmarc.example.org"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"192.0.2.1", "192.0.2.1"},
		{"192.0.2.1:22", "192.0.2.1:22"},
		{"192.0.2.0/24", "192.0.2.0/24"},
		{"2001:db8::1", "2001:db8::1"},
		{"[2001:db8::1]:443", "[2001:db8::1]:443"},
		{"2001:db8::/32", "2001:db8::/32"},
		{"@debian", "@debian"},
		{"@npm", "@npm"},
		{"@pypi", "@pypi"},
		{"@go", "@go"},
		{"@github", "@github"},
		{"@anthropic", "@anthropic"},
		{"@openai", "@openai"},
		{"@google-ai", "@google-ai"},
	}
	for _, tt := range tests {
		r, err := Parse(tt.in)
		if err != nil || r.String() != tt.want {
			t.Errorf("Parse(%q) = %q, %v; want %q", tt.in, r, err, tt.want)
		}
		if again, err := Parse(r.String()); err != nil || again != r {
			t.Errorf("%q does not read back: %v, %v", r, again, err)
		}
	}
	refused := []string{
		"", ".", "*", "*.", "*.com", "**.example.org", "a.*.example.org", "*example.org", "example.org.", ".example.org",
		"exa mple.org", "example..org", "-a.example.org", "https://example.org", "https://example.org/x", "example.org/x",
		"example.org:", "example.org:0", "example.org:65536", "example.org:+80", "example.org:080", "example.org:https", "example.org:443:1",
		"bücher.example", "example.org\n", "exam\x00ple.org", "user@example.org",
		"0.0.0.0/0", "::/0", "192.0.2.1/24", "192.0.2.0/33", "::ffff:192.0.2.1", "::ffff:192.0.2.0/120", "fe80::1%eth0",
		"127.1", "256.1.1.1", "0x7f.0x1", "1.2.3.4.5",
		"@", "@debain", "@Debian", "@debian:443", "@debian ",
		strings.Repeat("a", 64) + ".org", strings.Repeat("a.", 130) + "org",
	}
	for _, in := range refused {
		if r, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) is accepted as %q", in, r)
		}
	}
	if _, err := Parse("@debain"); !strings.Contains(err.Error(), `did you mean "@debian"?`) {
		t.Errorf("no hint: %v", err)
	}
}

func TestRuleCovers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		by, rule string
		want     bool
	}{
		{"example.org", "example.org", true},
		{"example.org", "EXAMPLE.org:443", true},
		{"example.org:443", "example.org", false},
		{"example.org:443", "example.org:80", false},
		{"example.org", "*.example.org", false},
		{"example.org", "a.example.org", false},
		{"*.example.org", "a.example.org", true},
		{"*.example.org", "b.a.example.org:1", true},
		{"*.example.org", "*.a.example.org", true},
		{"*.example.org", "*.example.org", true},
		{"*.example.org", "example.org", false},
		{"*.example.org", "evilexample.org", false},
		{"*.a.example.org", "*.example.org", false},
		{"192.0.2.0/24", "192.0.2.7", true},
		{"192.0.2.0/24", "192.0.2.7:80", true},
		{"192.0.2.0/24", "192.0.2.128/25", true},
		{"192.0.2.0/24", "192.0.2.0/23", false},
		{"192.0.2.7:80", "192.0.2.7", false},
		{"192.0.2.0/24", "2001:db8::1", false},
		{"192.0.2.0/24", "example.org", false},
		{"example.org", "192.0.2.7", false},
		{"@npm", "@npm", true},
		{"@npm", "@pypi", false},
		{"@npm", "example.org", false},
		{"*.example.org", "@npm", false},
	}
	for _, tt := range tests {
		by, err1 := Parse(tt.by)
		rule, err2 := Parse(tt.rule)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if got := by.Covers(rule); got != tt.want {
			t.Errorf("%s covers %s: %v, want %v", tt.by, tt.rule, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"example.org", "*.example.org:443", "192.0.2.0/24", "[2001:db8::1]:443", "@npm", "127.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(r.String()); err != nil || again != r {
			t.Errorf("%q reads as %q, which reads as %q, %v", s, r, again, err)
		}
		if !r.Covers(r) {
			t.Errorf("%q does not cover itself", r)
		}
	})
}
