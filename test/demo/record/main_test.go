package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.cast")
	var screen bytes.Buffer
	err := record(t.Context(), path, "a title", []string{"sh", "-c", `test -t 1 && stty size && printf 'caf\303' && sleep 0.2 && printf '\251 <ok>\n'`}, &screen, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	var h header
	if err := dec.Decode(&h); err != nil || h.Version != 2 || h.Title != "a title" || h.Width != columns {
		t.Fatalf("header %+v, %v", h, err)
	}
	var said strings.Builder
	last := 0.0
	for {
		var event []any
		if err := dec.Decode(&event); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		at, ok := event[0].(float64)
		if !ok || at < last || event[1] != "o" {
			t.Fatalf("event %v after %v", event, last)
		}
		last = at
		said.WriteString(event[2].(string))
	}
	if got, want := said.String(), "34 110\r\ncafé <ok>\r\n"; got != want || screen.String() != want {
		t.Errorf("recorded %q, shown %q, want %q", got, screen.String(), want)
	}
}

func TestNoRecordingOfAFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.cast")
	if err := os.WriteFile(path, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := record(t.Context(), path, "", []string{"sh", "-c", "echo half; exit 3"}, io.Discard, time.Now); err == nil {
		t.Fatal("a failure was recorded")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(path); string(data) != "before" || len(entries) != 1 {
		t.Errorf("%q, and %d files", data, len(entries))
	}
}
