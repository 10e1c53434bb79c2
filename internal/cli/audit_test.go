package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/audit"
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
