package runtimetools

import (
	"reflect"
	"strings"
	"testing"
)

const nested = `TAP version 13
  ---
  {
    "stderr": "",
    "stdout": "TAP version 13\nok 1 # SKIP hostname not set\nok 3 - has a name\nnot ok 4 # TODO bind\nnot ok 2 - mounts[0] (/proc) found\n1..2\n"
  }
  ...
not ok 1 - check hostname "h"
  ---
  {
    "error": "of the assertion above"
  }
  ...
ok 2 - bundle /tmp/ocitest123 of 06e9ff21-ecff-4b01-930f-95659fd7b928
1..2
`

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		tap            string
		passed, failed []string
		faults         []string
	}{
		{
			"inner assertions count, names are stable, skipped ones are none", nested,
			[]string{"has a name", "bundle /tmp/* of *"},
			[]string{"mounts* (/proc) found", `check hostname "h"`},
			nil,
		},
		{
			"an error without an assertion is a fault",
			"TAP version 13\n  ---\n  {\n    \"error\": \"hooks MUST be called\"\n  }\n  ...\n1..0\n",
			nil, nil,
			[]string{"hooks MUST be called"},
		},
		{"nothing", "", nil, nil, nil},
		{"broken diagnostic", "ok 1 - a\n  ---\n  {\"stdout\n", []string{"a"}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := parse(tt.tap)
			if !reflect.DeepEqual(o.passed, count(tt.passed)) || !reflect.DeepEqual(o.failed, count(tt.failed)) || !reflect.DeepEqual(o.faults, tt.faults) {
				t.Errorf("passed %v, failed %v, faults %v", o.passed, o.failed, o.faults)
			}
		})
	}
}

func count(list []string) map[string]int {
	m := map[string]int{}
	for _, s := range list {
		m[s]++
	}
	return m
}

func TestWorse(t *testing.T) {
	t.Parallel()
	bare := parse(nested)
	tests := []struct {
		name string
		shim func(*outcome)
		want string // a part of the only complaint; "" for none
	}{
		{"the same", func(*outcome) {}, ""},
		{"better", func(o *outcome) { o.passed["more"], o.failed = 1, nil }, ""},
		{"lost", func(o *outcome) { o.passed["bundle /tmp/* of *"] = 0 }, "no longer ok: bundle"},
		{"a repeated one fails more often", func(o *outcome) { o.failed["mounts* (/proc) found"]++ }, "newly not ok: mounts"},
		{"an error of its own", func(o *outcome) { o.faults = []string{"x"} }, "new error: x"},
		{"breaks off", func(o *outcome) { o.code, o.stderr = 1, "cannot create\n" }, "ends with an error: cannot create"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			shim := parse(nested)
			tt.shim(&shim)
			got := strings.Join(worse(bare, shim), "\n")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("complaints %q, want one with %q", got, tt.want)
			}
		})
	}
}
