package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

func record(t testing.TB, seq uint64, prev Hash, kind string, payload any) Record {
	t.Helper()
	r, err := New(seq, prev, Event{
		Time: time.Unix(1_800_000_000, 123_456_789), Kind: kind, Verdict: "approved", Session: "s", Container: "c", Payload: Payload(payload),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecordComesBackBothWays(t *testing.T) {
	t.Parallel()
	r := record(t, 6, Hash{1}, EscalationAsked, map[string]string{"command": "a <b> & \u2028 \x00 \xff \u202e"})
	kept, err := Decode(r.Encode())
	if err != nil || kept.Sum() != r.Hash || !bytes.Equal(kept.Encode(), r.Encode()) {
		t.Fatalf("kept: %+v, %v", kept, err)
	}
	data, err := json.Marshal(Entry{Record: r}) // as the coordinator answers
	if err != nil {
		t.Fatal(err)
	}
	var sent Entry
	if err := json.Unmarshal(data, &sent); err != nil || sent.Sum() != r.Hash || !bytes.Equal(sent.Encode(), r.Encode()) {
		t.Fatalf("sent: %+v, %v", sent, err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	long := string(bytes.Repeat([]byte("x"), maxText+1))
	for name, e := range map[string]Event{
		"no kind":           {Payload: Payload(nil)},
		"one word":          {Kind: "escalation", Payload: Payload(nil)},
		"upper case":        {Kind: "Escalation.asked", Payload: Payload(nil)},
		"a long session":    {Kind: "a.b", Session: long, Payload: Payload(nil)},
		"not UTF-8":         {Kind: "a.b", Verdict: "\xff", Payload: Payload(nil)},
		"no payload":        {Kind: "a.b"},
		"a list":            {Kind: "a.b", Payload: json.RawMessage("[]")},
		"half an object":    {Kind: "a.b", Payload: json.RawMessage(`{"a":`)},
		"what JSON has not": {Kind: "a.b", Payload: Payload(func() {})},
		"a large payload":   {Kind: "a.b", Payload: Payload(map[string]string{"a": string(bytes.Repeat([]byte("x"), MaxPayload))})},
	} {
		if _, err := New(0, Hash{}, e); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// Each way to change one byte of the encoding is refused, or gives another hash.
func TestEveryByteCounts(t *testing.T) {
	t.Parallel()
	r := record(t, 1, Hash{9}, EscalationRun, map[string]int{"exit_code": 3})
	whole := r.Encode()
	for i := range whole {
		for _, flip := range []byte{1, 0x20, 0x80, 0xff} {
			data := bytes.Clone(whole)
			data[i] ^= flip
			if got, err := Decode(data); err == nil && got.Sum() == got.Hash {
				t.Errorf("byte %d ^ %#x is not found", i, flip)
			}
		}
	}
	for i := range whole {
		if _, err := Decode(whole[:i]); err == nil {
			t.Errorf("the first %d bytes were taken", i)
		}
	}
}

// chains is a pager over records in memory.
type chains map[string][]Entry

func (c chains) page(heads map[string]Head) Pager {
	return func(chain string, after uint64) (Page, error) {
		p := Page{Heads: heads}
		for _, e := range c[chain] {
			if e.Seq > after {
				if len(p.Entries) == 3 {
					p.More = true
					break
				}
				p.Entries = append(p.Entries, e)
			}
		}
		return p, nil
	}
}

func build(t testing.TB, kinds ...string) (all []Entry, head Head) {
	t.Helper()
	for i, kind := range kinds {
		r := record(t, head.Seq, head.Hash, kind, map[string]int{"n": i})
		head = Head{r.Seq, r.Hash}
		all = append(all, Entry{Record: r})
	}
	return all, head
}

func TestVerify(t *testing.T) {
	t.Parallel()
	main, mainHead := build(t, CoordinatorStart, EscalationAsked, EscalationDecided, EscalationRun, CoordinatorEnd)
	egress, egressHead := build(t, EgressDecision, EgressDecision, EgressDecision, EgressDecision)
	heads := map[string]Head{Main: mainHead, Egress: egressHead}
	dropped, err := New(mainHead.Seq, mainHead.Hash, Event{Time: time.Unix(1, 0), Kind: EgressDropped, Payload: Payload(Dropped{Egress, 1, Head{2, egress[1].Hash}})})
	if err != nil {
		t.Fatal(err)
	}
	told := append(slices.Clone(main), Entry{Record: dropped})
	other, otherHead := build(t, CoordinatorStart, SessionStarted, SessionEnded, SessionEnded, SessionEnded)
	cut := func(all []Entry, i int) []Entry { return slices.Delete(slices.Clone(all), i, i+1) }
	swap := func(all []Entry, i, j int) []Entry {
		all = slices.Clone(all)
		all[i], all[j] = all[j], all[i]
		return all
	}
	changed := slices.Clone(main)
	changed[2].Verdict = "denied"
	sealed := slices.Clone(main) // with the hash made to fit
	sealed[2].Verdict = "denied"
	sealed[2].Hash = sealed[2].Sum()
	for _, tt := range []struct {
		name      string
		main, net []Entry
		heads     map[string]Head
		elsewhere map[string]Head
		bad       string
	}{
		{"whole", main, egress, heads, nil, ""},
		{"grown since", main, egress, map[string]Head{Main: {2, main[1].Hash}}, nil, ""},
		{"signed before", main, egress, heads, map[string]Head{Main: {3, main[2].Hash}}, ""},
		{"dropped by rule", told, egress[2:], heads, nil, ""},
		{"no heads", main, egress, nil, nil, "main 1"},
		{"changed", changed, egress, heads, nil, "main 3"},
		{"changed and sealed", sealed, egress, heads, nil, "main 4"},
		{"damaged", append(slices.Clone(main[:1]), Entry{Record: Record{Seq: 2}, Damage: "x"}), egress, heads, nil, "main 2"},
		{"first removed", cut(main, 0), egress, heads, nil, "main 1"},
		{"middle removed", cut(main, 2), egress, heads, nil, "main 3"},
		{"last removed", cut(main, 4), egress, heads, nil, "main 5"},
		{"all removed", nil, egress, heads, nil, "main 1"},
		{"exchanged", swap(main, 1, 2), egress, heads, nil, "main 2"},
		{"beginning dropped untold", main, egress[2:], heads, nil, "egress 2"},
		{"more dropped than told", told, egress[3:], heads, nil, "egress 3"},
		{"egress cut", main, egress[:2], heads, nil, "egress 3"},
		{"written anew", other, egress, map[string]Head{Main: otherHead}, map[string]Head{Main: mainHead}, "main 5"},
		{"written anew, shorter than signed", other[:2], egress, map[string]Head{Main: {2, other[1].Hash}}, map[string]Head{Main: mainHead}, "main 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Verify(chains{Main: tt.main, Egress: tt.net}.page(tt.heads), tt.elsewhere)
			var bad *BadError
			got := ""
			if errors.As(err, &bad) {
				got = fmt.Sprint(bad.Chain, " ", bad.Seq)
			} else if err != nil {
				t.Fatal(err)
			}
			if got != tt.bad {
				t.Errorf("got %v, want %q", err, tt.bad)
			}
		})
	}
}

// A store that answers with the same for ever is no reason to read for ever.
func TestEachEnds(t *testing.T) {
	t.Parallel()
	all, _ := build(t, SessionStarted, SessionEnded)
	pages := 0
	err := Pager(func(string, uint64) (Page, error) {
		if pages++; pages > 10 {
			t.Fatal("read for ever")
		}
		return Page{Entries: all, More: true}, nil
	}).Each(Main, 0, func(map[string]Head, []Entry) error { return nil })
	if err == nil {
		t.Error("is not told")
	}
}

func FuzzDecode(f *testing.F) {
	r := record(f, 1, Hash{}, EscalationAsked, map[string]string{"command": "x"})
	f.Add(r.Encode())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		if err != nil {
			return
		}
		if !bytes.Equal(r.Encode(), data) {
			t.Fatalf("%x has two encodings", data)
		}
		if again, err := New(r.Seq-1, r.Prev, r.Event); err != nil || again.Sum() != r.Sum() {
			t.Fatalf("%x is taken, but could not be made: %v", data, err)
		}
	})
}
