package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lazaret-dev/lazaret/internal/audit"
	"github.com/lazaret-dev/lazaret/internal/domain"
)

func TestAuditTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct{ in, want string }{
		{"2026-11-29T15:04:05+01:00", "2026-11-29T14:04:05Z"},
		{"2026-11-29", "2026-11-29T00:00:00Z"},
		{"90m", "2026-11-30T10:30:00Z"},
		{"7d", "2026-11-23T12:00:00Z"},
		{"-90m", ""},
		{"-7d", ""},
		{"yesterday", ""},
		{"99999999d", ""},
	} {
		got, err := auditTime(tt.in, now)
		if tt.want == "" {
			if err == nil {
				t.Errorf("%s was taken for %s", tt.in, got)
			}
			continue
		}
		if err != nil || got.UTC().Format(time.RFC3339) != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.in, got, err, tt.want)
		}
	}
}

func recordOf(t *testing.T, seq uint64, at int, kind, verdict, session string, payload any) audit.Entry {
	t.Helper()
	r, err := audit.New(seq-1, audit.Hash{}, audit.Event{
		Time: time.Unix(int64(1_800_000_000+at), 0), Kind: kind, Verdict: verdict, Session: session, Container: "c1", Payload: audit.Payload(payload),
	})
	if err != nil {
		t.Fatal(err)
	}
	return audit.Entry{Record: r}
}

// The chains come in the order of their times, and only what the filters let
// through.
func TestAuditFilters(t *testing.T) {
	t.Parallel()
	chains := map[string][]audit.Entry{
		audit.Main: {
			recordOf(t, 1, 0, audit.SessionStarted, "", "s1", nil),
			recordOf(t, 2, 20, audit.EscalationDecided, "denied", "s2", nil),
			{Record: audit.Record{Seq: 3}, Damage: "x"},
			recordOf(t, 4, 40, audit.EscalationRun, "exited", "s1", nil),
		},
		audit.Egress: {
			recordOf(t, 1, 10, audit.EgressDecision, "blocked", "", nil),
			recordOf(t, 2, 30, audit.EgressDecision, "allowed", "", nil),
		},
	}
	pager := func(chain string, after uint64) (audit.Page, error) {
		i := slices.IndexFunc(chains[chain], func(e audit.Entry) bool { return e.Seq > after })
		if i < 0 {
			return audit.Page{}, nil
		}
		return audit.Page{Entries: chains[chain][i : i+1], More: true}, nil
	}
	at := func(s int) time.Time { return time.Unix(int64(1_800_000_000+s), 0) }
	for _, tt := range []struct {
		name   string
		filter auditFilter
		want   string
	}{
		{"all", auditFilter{}, "[main:1 egress:1 main:2 main:3 egress:2 main:4]"},
		{"a group", auditFilter{kinds: []string{"escalation"}}, "[main:2 main:3 main:4]"},
		{"a kind", auditFilter{kinds: []string{audit.EscalationRun}}, "[main:3 main:4]"},
		{"the network", auditFilter{kinds: []string{"egress"}, verdicts: []string{"blocked"}}, "[egress:1 main:3]"},
		{"a session", auditFilter{session: "s1"}, "[main:1 main:3 main:4]"},
		{"verdicts", auditFilter{verdicts: []string{"denied", "exited"}}, "[main:2 main:3 main:4]"},
		{"a time", auditFilter{since: at(10), until: at(30)}, "[egress:1 main:2 main:3]"},
	} {
		var got []string
		if err := eachPlaced(pager, tt.filter.chains(), func(e placed) error {
			if tt.filter.wants(e.Entry) {
				got = append(got, e.place())
			}
			return nil
		}); err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("%s: got %v, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}

// What an agent has written stays one line, and within its field.
func TestExportsAreOneLine(t *testing.T) {
	t.Parallel()
	e := placed{audit.Main, recordOf(t, 1, 0, audit.EscalationDecided, "denied", "s|=1", map[string]string{"command": "a=b\r\nCEF:0|x|\\", "reason": "n\no"})}
	for name, export := range map[string]func(*strings.Builder) error{
		"cef":   func(b *strings.Builder) error { return exportCEF(b, resolved{}, e) },
		"ocsf":  func(b *strings.Builder) error { return exportOCSF(b, resolved{}, e) },
		"jsonl": func(b *strings.Builder) error { return exportJSON(b, resolved{}, e) },
	} {
		var b strings.Builder
		if err := export(&b); err != nil {
			t.Fatal(err)
		}
		line := b.String()
		if strings.Count(line, "\n") != 1 || strings.Contains(line, "\r") {
			t.Errorf("%s: %q", name, line)
		}
		if name == "cef" {
			for _, want := range []string{"CEF:0|Lazaret|Lazaret|", "|escalation.decided|escalation.decided denied|5|rt=1800000000000 ", `dproc=a\=b\r\nCEF:0|x|\\ `, `reason=n\no `, `cs2=s|\=1 `} {
				if !strings.Contains(line, want) {
					t.Errorf("no %q in %q", want, line)
				}
			}
		} else if !json.Valid([]byte(line)) {
			t.Errorf("%s: %q", name, line)
		}
		if name == "ocsf" && !strings.Contains(line, `"type_uid":100799`) {
			t.Errorf("%s: %q", name, line)
		}
	}
}

func exporting() resolved {
	return resolved{anchor: domain.Anchor{Profile: "claude", Hash: "0123456789ab"}}
}

// ocsfAttributes are what OCSF 1.3.0 knows of the classes that are exported, as far
// as it is used, by class: all that is required first.
func ocsfAttributes() map[float64][2]string {
	const base = "activity_id category_uid class_uid metadata severity_id time type_uid"
	const more = "activity_name class_name message status_id status_detail type_name unmapped "
	return map[float64][2]string{
		0:    {base, more},
		1007: {base + " action_id actor device process", more + "disposition_id exit_code"},
		3002: {base + " user", more + "actor device service session"},
		4001: {base + " action_id dst_endpoint", more + "actor device disposition_id connection_info traffic"},
		6002: {base + " app", more + "actor device"},
	}
}

// What is exported of each kind of a record is what OCSF 1.3.0 has for its class.
func TestOCSFHasWhatItsClassesRequire(t *testing.T) {
	t.Parallel()
	// One of these must be in each object of that name.
	oneOf := map[string]string{
		"process": "pid uid", "actor": "app_name process session user", "dst_endpoint": "hostname ip name", "user": "name uid", "service": "name uid",
		"container": "name uid", "app": "vendor_name", "device": "type_id", "connection_info": "direction_id", "product": "vendor_name", "metadata": "version",
	}
	activities := map[float64]string{0: "[99]", 1007: "[1 99]", 3002: "[1 2 99]", 4001: "[1 5]", 6002: "[3 4 99]"}
	payload := map[string]any{"request_id": "r1", "command": "make", "name": "example.org", "addr": "2001:db8::1", "port": 443, "proto": "tcp", "bytes_up": 7}
	for _, kind := range []string{
		audit.EscalationAsked, audit.EscalationShown, audit.EscalationDecided, audit.EscalationRun, audit.EscalationRefused,
		audit.EgressDecision, audit.EgressLost, audit.EgressDropped, audit.NetworkChanged, audit.SessionStarted, audit.SessionEnded,
		audit.ContainerPrepared, audit.ContainerStarted, audit.ContainerEnded, audit.CoordinatorStart, audit.CoordinatorEnd,
		audit.GuardChanged, audit.StateChanged, audit.ChainBroken, audit.ChainLost, "",
	} {
		for _, what := range []any{payload, nil} {
			for _, verdict := range []string{"", "denied"} {
				e := placed{audit.Main, audit.Entry{Record: audit.Record{Seq: 1}, Damage: "x"}}
				if kind != "" {
					e = placed{audit.Main, recordOf(t, 1, 0, kind, verdict, "", what)}
				}
				var b strings.Builder
				if err := exportOCSF(&b, exporting(), e); err != nil {
					t.Fatal(err)
				}
				var v map[string]any
				if err := json.Unmarshal([]byte(b.String()), &v); err != nil {
					t.Fatal(err)
				}
				class, ok := v["class_uid"].(float64)
				known, there := ocsfAttributes()[class]
				if !ok || !there {
					t.Fatalf("%s: class %v", kind, v["class_uid"])
				}
				for _, name := range strings.Fields(known[0]) {
					if _, there := v[name]; !there {
						t.Errorf("%s: no %s in %s", kind, name, &b)
					}
				}
				for name := range v {
					if !slices.Contains(strings.Fields(known[0]+" "+known[1]), name) {
						t.Errorf("%s: class %v has no %s", kind, class, name)
					}
				}
				activity, _ := v["activity_id"].(float64)
				if v["type_uid"] != class*100+activity || v["category_uid"] != float64(int(class)/1000) || !slices.Contains(strings.Fields(strings.Trim(activities[class], "[]")), fmt.Sprint(activity)) {
					t.Errorf("%s: class %v, activity %v, type %v", kind, class, activity, v["type_uid"])
				}
				if name, _ := v["activity_name"].(string); activity == 99 && name == "" {
					t.Errorf("%s: another activity has no name", kind)
				}
				var walk func(name string, v any)
				walk = func(name string, v any) {
					m, is := v.(map[string]any)
					if !is {
						if v == "" {
							t.Errorf("%s: %s is empty", kind, name)
						}
						return
					}
					if want := strings.Fields(oneOf[name]); len(want) > 0 && !slices.ContainsFunc(want, func(k string) bool { return m[k] != nil }) {
						t.Errorf("%s: %s has none of %v", kind, name, want)
					}
					for k, v := range m {
						if k != "unmapped" && k != "session" {
							walk(k, v)
						}
					}
				}
				walk("", v)
			}
		}
	}
}

// CEF's own dictionary: no field is longer than it may be, an address of IPv6 has a
// field of its own, each label has its field, and nothing could be taken for another.
func TestCEFFieldsAreItsDictionarys(t *testing.T) {
	t.Parallel()
	most := map[string]int{
		"rt": 20, "externalId": 40, "act": 63, "outcome": 63, "dhost": 1023, "dst": 15, "c6a3": 45, "dpt": 5, "proto": 31, "reason": 1023, "dproc": 1023,
		"cs1": 4000, "cs2": 4000, "cs3": 4000, "cs4": 4000, "cs5": 4000, "msg": 1023,
	}
	long := strings.Repeat("é", 9000)
	for _, payload := range []map[string]any{
		{"command": long, "reason": long, "name": "a=b cs1=x\x1b[2J\u202e\u0085 \\", "addr": "192.0.2.1", "port": 1},
		{"addr": "2001:db8::1"},
		{},
	} {
		var b strings.Builder
		if err := exportCEF(&b, exporting(), placed{audit.Egress, recordOf(t, 1, 0, audit.EgressDecision, "blocked", "", payload)}); err != nil {
			t.Fatal(err)
		}
		for _, r := range strings.TrimSuffix(b.String(), "\n") {
			if !unicode.IsPrint(r) {
				t.Errorf("%q is in it", r)
			}
		}
		parts := strings.SplitN(b.String(), "|", 8)
		if len(parts) != 8 || parts[0] != "CEF:0" {
			t.Fatalf("%q", &b)
		}
		// A field begins after a blank, at a key with a bare equals sign.
		fields := map[string]string{}
		at := regexp.MustCompile(`(?:^| )([A-Za-z0-9]+)=`).FindAllStringSubmatchIndex(parts[7], -1)
		for i, m := range at {
			end := len(parts[7]) - 1
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			fields[parts[7][m[2]:m[3]]] = parts[7][m[1]:end]
		}
		for k, v := range fields {
			if label, is := strings.CutSuffix(k, "Label"); is {
				if _, there := fields[label]; !there {
					t.Errorf("%s without its field", k)
				}
				continue
			}
			n := utf8.RuneCountInString(v) - strings.Count(v, `\`) // escapes count as one
			if most[k] == 0 || n > most[k] && !strings.Contains(v, `\u`) {
				t.Errorf("%s has %d characters, %d are allowed", k, n, most[k])
			}
		}
		addr, _ := payload["addr"].(string)
		if strings.Contains(addr, ":") && (fields["c6a3"] != addr || fields["dst"] != "") || !strings.Contains(addr, ":") && fields["dst"] != addr {
			t.Errorf("address %q: %v", addr, fields)
		}
		if len(payload) == 0 && len(fields) != 12 {
			t.Errorf("fields %v", fields)
		}
	}
}

// No text of an agent's goes on as if it were the next field of a line.
func TestSummaryKeepsItsFields(t *testing.T) {
	t.Parallel()
	got := summary(audit.Payload(map[string]any{"command": "ls exit_code=0 \"desk\"", "exit_code": 3}))
	if want := `command="ls exit_code=0 \"desk\"" exit_code=3`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHeadStatement(t *testing.T) {
	t.Parallel()
	heads := map[string]audit.Head{audit.Main: {Seq: 7, Hash: audit.Hash{1}}, audit.Egress: {}}
	data := headStatement("0123456789ab", heads, time.Unix(1_800_000_000, 0))
	if got, err := parseHead(data, "0123456789ab"); err != nil || got[audit.Main] != heads[audit.Main] || got[audit.Egress] != heads[audit.Egress] {
		t.Errorf("got %v, %v", got, err)
	}
	text := string(data)
	for name, bad := range map[string]string{
		"another domain": strings.Replace(text, "0123456789ab", "0123456789ac", 1),
		"a line more":    text + "x\n",
		"a line less":    text[:strings.LastIndex(text[:len(text)-1], "\n")+1],
		"a sign":         strings.Replace(text, "main 7", "main +7", 1),
		"no time":        strings.Replace(text, "time 2027", "time 20x7", 1),
		"nothing":        "",
	} {
		if _, err := parseHead([]byte(bad), "0123456789ab"); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
