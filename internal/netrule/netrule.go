// Package netrule owns the entries of a profile's network lists: how they are
// written, and which of them says more than another.
package netrule

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/spell"
)

// presets lists the names of ready-made host lists; the network sidecar owns
// what they hold.
func presets() []string {
	return []string{"@anthropic", "@debian", "@github", "@go", "@google-ai", "@npm", "@openai", "@pypi"}
}

// Rule is one parsed entry of a network list. Exactly one of Preset, Host and
// Prefix is set.
type Rule struct {
	Preset   string       // "@debian"
	Host     string       // lower-case DNS name, without "*."
	Wildcard bool         // every name below Host, at any depth, but not Host itself
	Prefix   netip.Prefix // a CIDR, or one address as /32 or /128
	Port     uint16       // 0 = not limited by this rule
}

// Parse reads host, *.host, host:port, an address, a CIDR or @preset.
// Names are lower-cased, as DNS compares them so (RFC 4343).
func Parse(s string) (Rule, error) {
	if strings.HasPrefix(s, "@") {
		if slices.Contains(presets(), s) {
			return Rule{Preset: s}, nil
		}
		why := fmt.Sprintf("unknown preset %q (allowed: %s", s, strings.Join(presets(), ", "))
		if n := spell.Nearest(s, presets()); n != "" {
			why += fmt.Sprintf("; did you mean %q?", n)
		}
		return Rule{}, errors.New(why + ")")
	}
	if strings.Contains(s, "://") {
		return Rule{}, fmt.Errorf("%q is a URL: write the host alone, such as \"example.org\"", s)
	}
	if strings.Contains(s, "/") {
		return parseCIDR(s)
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return addrRule(a, 0)
	}
	host, port, err := splitPort(s)
	if err != nil {
		return Rule{}, err
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		return addrRule(a, port)
	}
	return parseName(s, host, port)
}

func parseCIDR(s string) (Rule, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return Rule{}, fmt.Errorf("%q is no host and no CIDR: write a host without a path, or an address with a prefix length such as 192.0.2.0/24", s)
	}
	if p.Bits() == 0 {
		return Rule{}, fmt.Errorf("%q is every address: use mode = \"open\" or \"none\" instead", s)
	}
	if p.Addr().Is4In6() {
		return Rule{}, fmt.Errorf("%q is an IPv4 address in IPv6 form: write it as IPv4", s)
	}
	if p != p.Masked() {
		return Rule{}, fmt.Errorf("%q has bits beyond its prefix length: write %s", s, p.Masked())
	}
	return Rule{Prefix: p}, nil
}

func addrRule(a netip.Addr, port uint16) (Rule, error) {
	if a.Zone() != "" || a.Is4In6() {
		return Rule{}, fmt.Errorf("address %s: zones and IPv4 in IPv6 form are not supported", a)
	}
	return Rule{Prefix: netip.PrefixFrom(a, a.BitLen()), Port: port}, nil
}

func splitPort(s string) (string, uint16, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, 0, nil
	}
	n, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil || n == 0 || s[i+1] == '0' || s[i+1] == '+' {
		return "", 0, fmt.Errorf("%q: the port must be a number from 1 to 65535", s)
	}
	return s[:i], uint16(n), nil
}

func parseName(s, host string, port uint16) (Rule, error) {
	r := Rule{Host: strings.ToLower(host), Port: port}
	if h, ok := strings.CutPrefix(r.Host, "*."); ok {
		r.Host, r.Wildcard = h, true
		if !strings.Contains(h, ".") {
			return Rule{}, fmt.Errorf("%q is a whole top-level domain: name at least two labels, such as \"*.example.org\"", s)
		}
	}
	if r.Host == "*" {
		return Rule{}, fmt.Errorf("%q is every host: use mode = \"open\" instead, or name the hosts", s)
	}
	if len(r.Host) > 253 {
		return Rule{}, fmt.Errorf("%q is longer than a DNS name can be", s)
	}
	labels := strings.Split(r.Host, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return Rule{}, fmt.Errorf("%q is not a DNS name: labels are 1 to 63 letters, digits, hyphens or underscores", s)
		}
		for _, c := range []byte(l) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return Rule{}, fmt.Errorf("%q is not a DNS name: labels are letters, digits, hyphens or underscores (other scripts in their xn-- form; * only as a leading \"*.\")", s)
			}
		}
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return Rule{}, fmt.Errorf("%q looks like an address but is none", s) // resolvers read 127.1 and 0x7f.1 as addresses
	}
	return r, nil
}

// String is the canonical spelling; Parse reads it back.
func (r Rule) String() string {
	s := r.Preset
	switch {
	case r.Host != "":
		s = r.Host
		if r.Wildcard {
			s = "*." + s
		}
	case r.Prefix.IsValid() && !r.Prefix.IsSingleIP():
		s = r.Prefix.String()
	case r.Prefix.IsValid():
		s = r.Prefix.Addr().String()
		if r.Port != 0 && r.Prefix.Addr().Is6() {
			s = "[" + s + "]"
		}
	}
	if r.Port != 0 {
		s += ":" + strconv.Itoa(int(r.Port))
	}
	return s
}

// Covers reports whether everything that other matches is matched by r too.
func (r Rule) Covers(other Rule) bool {
	if r.Port != 0 && r.Port != other.Port {
		return false
	}
	switch {
	case r.Preset != "":
		return r.Preset == other.Preset
	case r.Prefix.IsValid():
		return other.Prefix.IsValid() && r.Prefix.Bits() <= other.Prefix.Bits() && r.Prefix.Contains(other.Prefix.Addr())
	case other.Host == "":
		return false
	case !r.Wildcard:
		return !other.Wildcard && r.Host == other.Host
	case other.Wildcard && r.Host == other.Host:
		return true
	default:
		return strings.HasSuffix(other.Host, "."+r.Host)
	}
}

// Uncovered returns the entries of list that nothing in by covers. Both hold
// only entries that Parse accepted.
func Uncovered(list, by []string) []string {
	var rules []Rule
	for _, s := range by {
		if r, err := Parse(s); err == nil {
			rules = append(rules, r)
		}
	}
	var out []string
	for _, s := range list {
		r, err := Parse(s)
		if err != nil || !slices.ContainsFunc(rules, func(b Rule) bool { return b.Covers(r) }) {
			out = append(out, s)
		}
	}
	return out
}
