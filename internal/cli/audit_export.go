package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/version"
)

func auditExport(c *cli.Context) error {
	if c.NArg() > 0 {
		return usageError("export takes no arguments: it prints to standard output")
	}
	formats := map[string]func(io.Writer, resolved, placed) error{"jsonl": exportJSON, "ocsf": exportOCSF, "cef": exportCEF}
	format := formats[c.String("format")]
	if format == nil {
		return usageError("--format: %q is none of jsonl, ocsf and cef", c.String("format"))
	}
	r, err := auditDomain(c)
	if err != nil {
		return err
	}
	return eachWanted(c, r, func(e placed) error { return format(c.App.Writer, r, e) })
}

func exportJSON(w io.Writer, r resolved, e placed) error {
	return printLine(w, struct {
		Domain  string `json:"domain"`
		Profile string `json:"profile"`
		placed
	}{r.anchor.Hash, r.anchor.Profile, e})
}

func printLine(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	line := string(data)
	if terminalOf(w) != nil { // a file has the payload's very bytes
		line = inertJSON(line)
	}
	_, err = fmt.Fprintln(w, line)
	return err
}

// refusing are the verdicts by which something was not let through.
func refusing(verdict string) bool {
	return slices.Contains([]string{"blocked", "denied", "timeout", "failed", "refused", "deny"}, verdict)
}

// ocsfClass is an event class of the Open Cybersecurity Schema Framework with its
// activity.
func ocsfClass(e placed) (class, activity int, name string) {
	group, what, _ := strings.Cut(e.Kind, ".")
	pick := func(of map[string]int) int {
		if n, ok := of[what]; ok {
			return n
		}
		return ocsfOther
	}
	switch {
	case group == "escalation":
		return 1007, pick(map[string]int{"run": 1}), "Process Activity"
	case e.Kind == audit.EgressDecision && refusing(e.Verdict):
		return 4001, 5, "Network Activity"
	case e.Kind == audit.EgressDecision:
		return 4001, 1, "Network Activity"
	case group == "session":
		return 3002, pick(map[string]int{"started": 1, "ended": 2}), "Authentication"
	case group == "container", group == "coordinator":
		return 6002, pick(map[string]int{"started": 3, "ended": 4}), "Application Lifecycle"
	}
	return 0, ocsfOther, "Base Event" // guards, changes of policy and state, the chain itself
}

// ocsfOther is the activity that activity_name tells.
const ocsfOther = 99

// fields are what formats for other programs have a name for.
type fields struct {
	Request string `json:"request_id"`
	Command string `json:"command"`
	Name    string `json:"name"`
	Addr    string `json:"addr"`
	Port    int    `json:"port"`
	Proto   string `json:"proto"`
	Reason  string `json:"reason"`
	Up      int64  `json:"bytes_up"`
	Down    int64  `json:"bytes_down"`
	Exit    int    `json:"exit_code"`
}

func fieldsOf(e placed) (f fields) {
	_ = json.Unmarshal(e.Payload, &f) // what does not fit stays out: the payload is there as well
	return f
}

// object is one of OCSF's, in which what is not known is left out.
type object map[string]any

func (o object) set(key string, v any) {
	switch v {
	case "", 0, int64(0):
	default:
		o[key] = v
	}
}

func exportOCSF(w io.Writer, r resolved, e placed) error {
	class, activity, name := ocsfClass(e)
	f := fieldsOf(e)
	status, severity := 1, 1 // success, informational
	allowed := 1             // the same number for the action and the disposition, 2 where it was not
	if refusing(e.Verdict) {
		status, allowed, severity = 2, 2, 3
	}
	if e.Kind == audit.ChainBroken || e.Damage != "" {
		status, severity = 2, 5
	}
	_, what, _ := strings.Cut(e.Kind, ".")
	v := object{
		"class_uid": class, "class_name": name, "category_uid": class / 1000, "activity_id": activity,
		"type_uid": class*100 + activity, "severity_id": severity, "status_id": status, "time": e.Time.UnixMilli(),
		"message":  cmp.Or(strings.Join(strings.Fields(e.Kind+" "+e.Verdict+" "+f.Reason), " "), "damaged record"),
		"unmapped": object{"domain": r.anchor.Hash, "profile": r.anchor.Profile, "chain": e.Chain, "payload": e.Payload, "prev": e.Prev, "hash": e.Hash},
	}
	v.set("activity_name", what)
	v.set("type_name", e.Kind)
	v.set("status_detail", e.Verdict)
	if e.Damage != "" {
		v["unmapped"] = object{"domain": r.anchor.Hash, "profile": r.anchor.Profile, "chain": e.Chain, "damage": e.Damage}
		v.set("activity_name", "damaged")
	}
	var profiles []string
	if class != 0 {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		profiles = append(profiles, "host")
		device, actor := object{"hostname": host, "type_id": 0}, object{"app_name": "lazaret " + r.anchor.Profile}
		if e.Container != "" {
			profiles = append(profiles, "container")
			device["container"] = object{"uid": e.Container}
		}
		if e.Session != "" {
			actor["session"] = object{"uid": e.Session}
		}
		v["device"], v["actor"] = device, actor
	}
	switch class {
	case 1007:
		process := object{"uid": cmp.Or(f.Request, e.place())}
		process.set("cmd_line", f.Command)
		v["process"] = process
		if e.Kind == audit.EscalationRun {
			v["exit_code"] = f.Exit
		}
	case 4001:
		dst := object{}
		dst.set("hostname", f.Name)
		dst.set("ip", f.Addr)
		if len(dst) == 0 {
			dst["name"] = "unknown"
		}
		dst.set("port", f.Port)
		info := object{"direction_id": 2}
		info.set("protocol_name", f.Proto)
		v["dst_endpoint"], v["connection_info"] = dst, info
		if f.Up+f.Down > 0 {
			v["traffic"] = object{"bytes_out": f.Up, "bytes_in": f.Down}
		}
	case 3002:
		v["user"], v["service"] = object{"name": r.anchor.Profile}, object{"name": "lazaret"}
		v["session"] = object{"uid": e.Session}
	case 6002:
		app := object{"name": "lazaret " + r.anchor.Profile, "vendor_name": "Lazaret"}
		app.set("uid", e.Container)
		v["app"] = app
	}
	if class == 1007 || class == 4001 {
		profiles = append(profiles, "security_control")
		v["action_id"], v["disposition_id"] = allowed, allowed
		if e.Kind == audit.EscalationAsked || e.Kind == audit.EscalationShown {
			v["action_id"], v["disposition_id"] = 0, 0 // nothing is decided yet
		}
	}
	metadata := object{
		"version": "1.3.0", "uid": e.place(), "sequence": e.Seq, "log_name": "lazaret audit",
		"product": object{"name": "Lazaret", "vendor_name": "Lazaret", "version": version.Version},
	}
	if profiles != nil {
		metadata["profiles"] = profiles
	}
	v["metadata"] = metadata
	return printLine(w, v)
}

func exportCEF(w io.Writer, r resolved, e placed) error {
	f := fieldsOf(e)
	severity := 2
	switch {
	case e.Kind == audit.ChainBroken, e.Damage != "":
		severity = 10
	case refusing(e.Verdict):
		severity = 5
	}
	kind := e.Kind
	if kind == "" {
		kind = "damaged"
	}
	line := fmt.Sprintf("CEF:0|Lazaret|Lazaret|%s|%s|%s|%d|", cefHeader(version.Version), cefHeader(kind), cefHeader(strings.TrimSpace(kind+" "+e.Verdict)), severity)
	var port, result string
	if f.Port != 0 {
		port = fmt.Sprint(f.Port)
	}
	if e.Verdict != "" {
		if result = "success"; refusing(e.Verdict) {
			result = "failure"
		}
	}
	dst, dst6 := f.Addr, ""
	if addr, err := netip.ParseAddr(f.Addr); err == nil && addr.Unmap().Is6() {
		dst, dst6 = "", f.Addr // dst is for IPv4 alone
	}
	// The numbers are the dictionary's, in characters. What has a label is a field that
	// the dictionary leaves to each program.
	var words []string
	for _, kv := range []struct {
		key, value string
		most       int
		label      string
	}{
		{"rt", fmt.Sprint(e.Time.UnixMilli()), 20, ""},
		{"externalId", e.place(), 40, ""},
		{"act", e.Verdict, 63, ""},
		{"outcome", result, 63, ""},
		{"dhost", f.Name, 1023, ""},
		{"dst", dst, 45, ""},
		{"c6a3", dst6, 45, "Destination IPv6 Address"},
		{"dpt", port, 5, ""},
		{"proto", f.Proto, 31, ""},
		{"reason", f.Reason, 1023, ""},
		{"dproc", f.Command, 1023, ""},
		{"cs1", r.anchor.Hash, 4000, "domain"},
		{"cs2", e.Session, 4000, "session"},
		{"cs3", e.Container, 4000, "container"},
		{"cs4", e.Hash.String(), 4000, "hash"},
		{"cs5", string(e.Payload), 4000, "payload"},
		{"msg", e.Damage, 1023, ""},
	} {
		if kv.value == "" {
			continue
		}
		if kv.label != "" {
			words = append(words, kv.key+"Label="+kv.label)
		}
		words = append(words, kv.key+"="+cefValue(kv.value, kv.most))
	}
	_, err := fmt.Fprintln(w, line+strings.Join(words, " "))
	return err
}

func cefHeader(s string) string {
	return strings.NewReplacer(`\`, `\\`, "|", `\|`).Replace(config.Printable(s))
}

// cefValue makes a field of text: most characters of it, on one line, with nothing
// that a terminal would obey.
func cefValue(s string, most int) string {
	var b strings.Builder
	for _, r := range s {
		if most--; most < 0 {
			break
		}
		switch r {
		case '\\', '=':
			b.WriteString(`\` + string(r))
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		default:
			b.WriteString(strings.ReplaceAll(config.Printable(string(r)), `\`, `\\`))
		}
	}
	return b.String()
}
