package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lazaret-dev/lazaret/internal/audit"
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
	_, err = fmt.Fprintf(w, "%s\n", data)
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
		return 99 // another, as type_name tells
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
	return 6008, 99, "Application Error" // guards, changes of policy and state, the chain itself
}

// fields are what formats for other programs have a name for.
type fields struct {
	Command string `json:"command"`
	Name    string `json:"name"`
	Addr    string `json:"addr"`
	Port    int    `json:"port"`
	Proto   string `json:"proto"`
	Reason  string `json:"reason"`
	Up      int64  `json:"bytes_up"`
	Down    int64  `json:"bytes_down"`
}

func fieldsOf(e placed) (f fields) {
	_ = json.Unmarshal(e.Payload, &f) // what does not fit stays out: the payload is there as well
	return f
}

func exportOCSF(w io.Writer, r resolved, e placed) error {
	class, activity, name := ocsfClass(e)
	f := fieldsOf(e)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	status, disposition, severity := 1, 1, 1 // success, allowed, informational
	if refusing(e.Verdict) {
		status, disposition, severity = 2, 2, 3
	}
	if e.Kind == audit.ChainBroken || e.Damage != "" {
		status, severity = 2, 5
	}
	v := map[string]any{
		"class_uid": class, "class_name": name, "category_uid": class / 1000, "activity_id": activity,
		"type_uid": class*100 + activity, "type_name": e.Kind, "severity_id": severity,
		"status_id": status, "status_detail": e.Verdict, "disposition_id": disposition,
		"time": e.Time.UnixMilli(), "message": strings.TrimSpace(e.Kind + " " + e.Verdict + " " + f.Reason),
		"metadata": map[string]any{
			"version": "1.3.0", "uid": e.place(), "sequence": e.Seq, "log_name": "lazaret audit", "profiles": []string{"container", "security_control"},
			"product": map[string]any{"name": "Lazaret", "vendor_name": "Lazaret", "version": version.Version},
		},
		"device":    map[string]any{"hostname": host, "type_id": 0},
		"container": map[string]any{"uid": e.Container},
		"actor":     map[string]any{"app_name": "lazaret " + r.anchor.Profile, "session": map[string]any{"uid": e.Session}},
		"unmapped":  map[string]any{"domain": r.anchor.Hash, "profile": r.anchor.Profile, "chain": e.Chain, "payload": e.Payload, "prev": e.Prev, "hash": e.Hash, "damage": e.Damage},
	}
	switch class {
	case 1007:
		v["process"] = map[string]any{"cmd_line": f.Command}
	case 4001:
		v["dst_endpoint"] = map[string]any{"hostname": f.Name, "ip": f.Addr, "port": f.Port}
		v["connection_info"] = map[string]any{"protocol_name": f.Proto, "direction_id": 2}
		v["traffic"] = map[string]any{"bytes_out": f.Up, "bytes_in": f.Down}
	case 3002:
		v["user"] = map[string]any{"uid": r.anchor.Profile}
	case 6002:
		v["app"] = map[string]any{"name": "lazaret " + r.anchor.Profile, "uid": e.Container}
	}
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
	port := ""
	if f.Port != 0 {
		port = fmt.Sprint(f.Port)
	}
	for i, kv := range [][2]string{
		{"rt", fmt.Sprint(e.Time.UnixMilli())},
		{"externalId", e.place()},
		{"outcome", e.Verdict},
		{"dhost", f.Name},
		{"dst", f.Addr},
		{"dpt", port},
		{"proto", f.Proto},
		{"reason", f.Reason},
		{"dproc", f.Command},
		{"cs1Label", "domain"},
		{"cs1", r.anchor.Hash},
		{"cs2Label", "session"},
		{"cs2", e.Session},
		{"cs3Label", "container"},
		{"cs3", e.Container},
		{"cs4Label", "hash"},
		{"cs4", e.Hash.String()},
		{"msg", e.Damage + string(e.Payload)},
	} {
		if kv[1] == "" {
			continue
		}
		if i > 0 {
			line += " "
		}
		line += kv[0] + "=" + cefValue(kv[1])
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

func cefHeader(s string) string {
	return strings.NewReplacer(`\`, `\\`, "|", `\|`, "\n", " ", "\r", " ").Replace(s)
}

func cefValue(s string) string {
	return strings.NewReplacer(`\`, `\\`, "=", `\=`, "\n", `\n`, "\r", `\r`).Replace(s)
}
