package config

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lazaret-dev/lazaret/internal/netrule"
)

// isRestriction names the lists that only take something away from the agent.
// An untrusted workspace's file adds to them.
func isRestriction(key string) bool {
	_, rest, ok := splitProfile(key)
	return ok && (rest == "masks" || rest == "read_only" || rest == "network.deny")
}

// loosened compares the effective settings with a file to those without it, and
// tells of each key of the file that gives the agent more. Comparing the results
// instead of the file's lines means that no order of layers can be played off:
// whatever the other layers say, the agent ends up with no more than without the
// file. A key that changes nothing loosens nothing.
func loosened(without, with *settings, file string) Errors {
	var errs Errors
	newProfile := map[string]bool{}
	for name, o := range with.profiles {
		if _, ok := without.profiles[name]; !ok && o.File == file {
			newProfile[name] = true
			errs = append(errs, &Error{File: file, Line: o.Line, Key: "profiles." + name, Why: "defines a new profile"})
		}
	}
	for key, v := range with.values {
		name, rest, inProfile := splitProfile(key)
		i := slices.IndexFunc(v.origins, func(o Origin) bool { return o.File == file })
		if i < 0 || inProfile && newProfile[name] {
			continue
		}
		group := key
		if inProfile {
			group = "profiles.*." + rest
		}
		if why := loosens(without, with, key, group, name); why != "" {
			errs = append(errs, &Error{File: file, Line: v.origins[i].Line, Key: key, Why: why})
		}
	}
	sort.Slice(errs, func(i, j int) bool {
		if errs[i].Line != errs[j].Line {
			return errs[i].Line < errs[j].Line
		}
		return errs[i].Key < errs[j].Key
	})
	return errs
}

// loosens says in which way key gives the agent more, "" if it does not.
func loosens(without, with *settings, key, group, profile string) string {
	old, now := without.get(key).v, with.get(key).v
	switch group {
	case "profiles.*.masks", "profiles.*.read_only":
		return gone(missing(toStrings(old), toStrings(now)))
	case "profiles.*.network.deny":
		return gone(netrule.Uncovered(toStrings(old), toStrings(now)))
	case "profiles.*.network.mode":
		rank := []string{"open", "learn", "filtered", "none"}
		if slices.Index(rank, now.(string)) < slices.Index(rank, old.(string)) {
			return change(old, now)
		}
		return ""
	case "profiles.*.network.allow":
		// With an open network every list is less, with none no list matters:
		// mode itself is compared by its own key.
		if get[string](without, "profiles."+profile+".network.mode") != "filtered" {
			return ""
		}
		if more := netrule.Uncovered(toStrings(now), toStrings(old)); len(more) > 0 {
			return "allows " + quoteList(more) + ", which nothing allows so far"
		}
		return ""
	case "profiles.*.git":
		// "off" is not taken for tighter: it gives up the guard over nested
		// repositories, and from "branch" the separate working tree as well.
		if old == now || old == "sentry" && now == "branch" {
			return ""
		}
		return change(old, now)
	case "profiles.*.allow_broad_workspace", "profiles.*.network.inbound":
		if now == true && old == false {
			return change(old, now)
		}
		return ""
	case "escalation.enabled":
		if now == true && old == false {
			return change(old, now)
		}
		return ""
	case "escalation.timeout":
		if now.(time.Duration) > old.(time.Duration) {
			return change(old, now)
		}
		return ""
	case "escalation.auto_approve":
		return approves(prefixesUncovered(now.([][]string), old.([][]string)))
	case "profiles.*.escalation.auto_approve":
		return approves(prefixesUncovered(now.([][]string), without.autoApprove(profile)))
	default:
		if reflect.DeepEqual(old, now) {
			return ""
		}
		return change(old, now)
	}
}

func toStrings(v any) []string { l, _ := v.([]string); return l }

func missing(old, now []string) []string {
	var out []string
	for _, s := range old {
		if !slices.Contains(now, s) {
			out = append(out, s)
		}
	}
	return out
}

func gone(l []string) string {
	if len(l) == 0 {
		return ""
	}
	return "removes " + quoteList(l)
}

func approves(l [][]string) string {
	if len(l) == 0 {
		return ""
	}
	words := make([]string, len(l))
	for i, a := range l {
		words[i] = strings.Join(a, " ")
	}
	return "approves " + quoteList(words) + " without asking, which nothing does so far"
}

func quoteList(l []string) string {
	const most = 5
	var b strings.Builder
	for i, s := range l {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(l)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", s)
	}
	return b.String()
}

func change(old, now any) string {
	if old == nil {
		return "sets " + show(now)
	}
	return fmt.Sprintf("changes %s to %s", show(old), show(now))
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string, []string, [][]string:
		s := fmt.Sprintf("%q", v)
		if len(s) > 200 {
			s = strings.ToValidUTF8(s[:200], "") + "…"
		}
		return s
	default:
		return fmt.Sprint(v)
	}
}

// refuse turns what loosens into errors that say what to do.
func refuse(errs Errors, state Trust, workspace string) Errors {
	for _, e := range errs {
		if state == Changed {
			e.Why += ": the workspace's file has changed since it was trusted, so it may only tighten; read it, then run: lazaret trust " + workspace
			continue
		}
		e.Why += ": the workspace's file may only tighten until you have read it and run: lazaret trust " + workspace
	}
	return errs
}
