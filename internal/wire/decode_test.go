package wire

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	tests := []struct{ name, in, err string }{
		{"plain", `{"version":1,"container_id":"c"}`, ""},
		{"nested", `{"version":1,"domain":{"hash":"a","profile":"p"},"masks":["a","A",{}]}`, "cannot unmarshal"},
		{"same names in different objects", `{"version":1,"domain":{"hash":"h"},"container_id":"hash"}`, ""},
		{"values are not names", `{"container_id":"version","pid_file":"version","notes":["notes","notes","X"],"version":1}`, ""},
		{"another case", `{"version":1,"Container_ID":"c"}`, "lower case"},
		{"another case beside the right one", `{"container_id":"a","CONTAINER_ID":"b"}`, "lower case"},
		{"the long s, which folds to s", `{"ver\u017fion":1}`, "lower case"},
		{"the kelvin sign, which folds to k", `{"\u212aind":"exec"}`, "lower case"},
		{"twice", `{"version":1,"version":1}`, "twice"},
		{"twice, once escaped", `{"version":1,"\u0076ersion":2}`, "twice"},
		{"twice, with objects and arrays between", `{"domain":{"hash":"h"},"masks":[["x"],{"y":1}],"domain":{}}`, "twice"},
		{"twice inside", `{"domain":{"hash":"a","hash":"b"}}`, "twice"},
		{"twice inside an array", `{"masks":[{"a":1,"a":2}]}`, "twice"},
		{"another case inside", `{"domain":{"Hash":"a"}}`, "lower case"},
		{"unknown", `{"version":1,"x":1}`, "unknown field"},
		{"more after it", `{"version":1}{"version":2}`, "after"},
		{"a bracket after it", `{"version":1}]`, "after"},
		{"cut off", `{"version":1`, "EOF"},
		{"no JSON", `version`, "invalid"},
		{"nothing", ``, "EOF"},
		{"deep", strings.Repeat(`[`, 20000), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var req PrepareRequest
			err := Decode([]byte(tt.in), &req)
			if tt.name == "deep" {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
}

// FuzzDecode: what is taken means one thing, whichever of two equal names a
// reader follows and however it compares them.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"domain":{"hash":"a","hash":"b"},"masks":["a"]}`))
	f.Add([]byte(`{"version":1,"Version":2,"container_id":"c"}`))
	f.Add([]byte(`{"version":1}[]`))
	f.Add([]byte(`[{"a":{}},1,"x",null,true]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var req PrepareRequest
		if Decode(data, &req) != nil {
			return
		}
		var loose any
		if err := json.Unmarshal(data, &loose); err != nil {
			t.Fatalf("taken, but no JSON: %v", err)
		}
		again, err := json.Marshal(loose)
		if err != nil {
			t.Fatal(err)
		}
		// A map has lost what was there twice, and sorts the cases of a name anew.
		if got, want := tokens(again), tokens(data); got != want {
			t.Errorf("%d tokens, %d without doubles: %s", want, got, data)
		}
		var second PrepareRequest
		if err := json.Unmarshal(again, &second); err != nil || !reflect.DeepEqual(req, second) {
			t.Errorf("two meanings: %s", data)
		}
	})
}

func tokens(data []byte) (n int) {
	for dec := json.NewDecoder(strings.NewReader(string(data))); ; n++ {
		if _, err := dec.Token(); errors.Is(err, io.EOF) || err != nil {
			return n
		}
	}
}
