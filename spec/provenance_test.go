package spec

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestImageAnnotations(t *testing.T) {
	podmanOwn := map[string]string{
		"io.container.manager": "libpod", "io.podman.annotations.init": "FALSE",
		"org.opencontainers.image.stopSignal": "15", "io.kubernetes.cri-o.TTY": "false",
		"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.SandboxID": "f05b",
	}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{podmanOwn, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	tests := []struct {
		name  string
		have  map[string]string
		image map[string][]string
		want  []string
	}{
		{"an image without annotations", with(map[string]string{"dev.lazaret.profile": "claude"}), nil, nil},
		{
			"every runtime's hints go, sorted",
			with(map[string]string{
				"run.oci.keep_original_groups": "1", "dev.gvisor.flag.network": "host", "dev.lazaret.profile": "evil",
				"io.kubernetes.cri.container-type": "sandbox", "anything.else": "x",
			}),
			map[string][]string{
				"run.oci.keep_original_groups": {"1"}, "dev.gvisor.flag.network": {"host"}, "dev.lazaret.profile": {"evil"},
				"io.kubernetes.cri.container-type": {"sandbox"}, "anything.else": {"x"},
			},
			[]string{
				"anything.else", "dev.gvisor.flag.network", "dev.lazaret.profile",
				"io.kubernetes.cri.container-type", "run.oci.keep_original_groups",
			},
		},
		{
			"what the user set instead stays", with(map[string]string{"dev.lazaret.profile": "claude"}),
			map[string][]string{"dev.lazaret.profile": {"evil"}},
			nil,
		},
		{
			"any of several manifests' values counts", with(map[string]string{"dev.lazaret.profile": "evil"}),
			map[string][]string{"dev.lazaret.profile": {"nice", "evil"}},
			[]string{"dev.lazaret.profile"},
		},
		{
			"descriptions stay", with(map[string]string{"org.opencontainers.image.title": "t"}),
			map[string][]string{"org.opencontainers.image.title": {"t"}, "org.opencontainers.image.stopSignal": {"15"}},
			nil,
		},
		{
			"a forged pair of podman's goes, the others stay", with(nil),
			map[string][]string{"io.kubernetes.cri-o.ContainerType": {"container"}, "io.container.manager": {"evil"}},
			[]string{"io.kubernetes.cri-o.ContainerType"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			drop := ImageAnnotations(tt.have, tt.image)
			if diff := cmp.Diff(tt.want, drop); diff != "" {
				t.Error(diff)
			}
			in, err := json.Marshal(specs.Spec{Annotations: tt.have, Process: &specs.Process{Cwd: "/"}})
			if err != nil {
				t.Fatal(err)
			}
			out, err := Rewrite(in, Plan{DropAnnotations: drop})
			if err != nil {
				t.Fatal(err)
			}
			if left := mustParse(t, out).Annotations(); len(left) != len(tt.have)-len(tt.want) {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestNeedsProvenance(t *testing.T) {
	for _, name := range []string{"plain", "keepid", "hostnet"} {
		if NeedsProvenance(mustParse(t, read(t, "testdata/podman-"+name+".json"))) {
			t.Errorf("%s: an ordinary container pays for the look-up", name)
		}
	}
	for name, in := range map[string]string{
		"a pod's container": string(read(t, "testdata/podman-pod.json")),
		"profile variable":  `{"process":{"env":["LAZARET_PROFILE=x"]}}`,
		"runsc's flag":      `{"annotations":{"dev.gvisor.flag.debug":"1"}}`,
		"an unknown name":   `{"annotations":{"x":"1"}}`,
	} {
		if !NeedsProvenance(mustParse(t, []byte(in))) {
			t.Errorf("%s: not looked up", name)
		}
	}
}

func TestImageProfile(t *testing.T) {
	d := mustParse(t, []byte(`{"process":{"env":["LAZARET_PROFILE=evil"]}}`))
	for _, tt := range []struct {
		image []string
		want  bool
	}{
		{nil, false},
		{[]string{"LAZARET_PROFILE=evil"}, true},
		{[]string{"LAZARET_PROFILE=other"}, false},
		{[]string{"X=LAZARET_PROFILE=evil"}, false},
		// As podman takes them in: with white space before, from its own environment.
		{[]string{" LAZARET_PROFILE=evil"}, true},
		{[]string{"\t\u00a0LAZARET_PROFILE=evil"}, true},
		{[]string{" LAZARET_PROFILE=other"}, false},
		{[]string{"LAZARET_PROFILE"}, true},
		{[]string{"LAZARET_*"}, true},
		{[]string{"*"}, true},
		{[]string{"OTHER*"}, false},
		{[]string{"LAZARET_PROFILE*"}, true},
	} {
		if got := ImageProfile(d, tt.image); got != tt.want {
			t.Errorf("%q: %v", tt.image, got)
		}
	}
	if ImageProfile(mustParse(t, []byte(`{}`)), []string{"LAZARET_PROFILE="}) {
		t.Error("no variable, yet the image's")
	}
}
