package network

import (
	"testing"

	"github.com/lazaret-dev/lazaret/internal/wire"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	n := &Network{
		o:       Options{Request: wire.Network{Mode: "filtered", Allow: []string{"a.test"}, Deny: []string{"d.test"}}},
		session: []wire.NetworkChange{{Entry: "s.test"}, {Entry: "x.test", Deny: true}},
	}
	for _, tt := range []struct {
		name string
		r    wire.Network
		want bool
	}{
		{"the same", wire.Network{Mode: "filtered", Allow: []string{"a.test"}, Deny: []string{"d.test"}}, true},
		{"with what a person has added", wire.Network{Mode: "filtered", Allow: []string{"a.test", "s.test"}, Deny: []string{"d.test"}}, true},
		{"more", wire.Network{Mode: "filtered", Allow: []string{"a.test", "b.test"}, Deny: []string{"d.test"}}, false},
		{"what is denied now", wire.Network{Mode: "filtered", Allow: []string{"a.test", "x.test"}, Deny: []string{"d.test"}}, false},
		{"less", wire.Network{Mode: "filtered", Allow: []string{"s.test"}, Deny: []string{"d.test"}}, false},
		{"denies less", wire.Network{Mode: "filtered", Allow: []string{"a.test"}}, false},
		{"another mode", wire.Network{Mode: "learn", Allow: []string{"a.test"}, Deny: []string{"d.test"}}, false},
	} {
		if got := n.Matches(tt.r); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
