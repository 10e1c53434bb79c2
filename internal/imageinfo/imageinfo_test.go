package imageinfo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	containerID = "f4a2e13f0b85a23c6f4a01cd47573af785ea795734113b1f7b59aae62ad343b8"
	imageID     = "4b51cc32b2f1cec88251190fcae4457fbc2a208f353d65698884ba91812aadc4"
	otherID     = "16a81661a5b9617717b3d709378ce78443321cb349b1885721d7a5d3902bef5b"
	manifestOne = `{"schemaVersion":2,"config":{"digest":"sha256:` + imageID + `"},"annotations":{"dev.lazaret.profile":"evil","run.oci.x":"1"}}`
	manifestTwo = `{"schemaVersion":2,"config":{"digest":"sha256:` + imageID + `"},"annotations":{"dev.lazaret.profile":"other"}}`
	configJSON  = `{"config":{"Env":["PATH=/bin","LAZARET_PROFILE=evil"]}}`
	list        = `[{"id":"` + otherID + `","image":"` + otherID + `"},{"id":"` + containerID + `","image":"` + imageID + `","metadata":"{}"}]`
)

// files are what podman 4.3 really wrote, under the names that it gave them.
func files() map[string]string {
	return map[string]string{
		"vfs-containers/containers.json":                       list,
		"vfs-containers/" + containerID + "/userdata/x":        "",
		"vfs-images/" + imageID + "/manifest":                  manifestOne,
		"vfs-images/" + imageID + "/=bWFuaWZlc3Qtc2hhMjU2OmFh": manifestTwo, // manifest-sha256:aa
		"vfs-images/" + imageID + "/=c2hhMjU2OjRiNTFjYzMyYjJmMWNlYzg4MjUxMTkwZmNhZTQ0NTdmYmMyYTIwOGYzNTNkNjU2OTg4ODRiYTkxODEyYWFkYzQ=": configJSON,
		"vfs-images/" + imageID + "/=c2lnbmF0dXJlLWFh": "not JSON", // signature-aa
	}
}

func write(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func wanted() Info {
	return Info{
		ImageID:     imageID,
		Digest:      "sha256:df2320ffa3f6cb0aff52887418e482803bec28dd7f040d251465665bda617b90",
		Annotations: map[string][]string{"dev.lazaret.profile": {"evil", "other"}, "run.oci.x": {"1"}},
		Env:         []string{"PATH=/bin", "LAZARET_PROFILE=evil"},
	}
}

func TestFromBundle(t *testing.T) {
	moveImages := func(t *testing.T, root, store string) {
		if err := os.MkdirAll(store, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(root, "vfs-images"), filepath.Join(store, "vfs-images")); err != nil {
			t.Fatal(err)
		}
	}
	moveList := func(t *testing.T, root, to string) {
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(root, "vfs-containers/containers.json"), to); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name string
		edit func(t *testing.T, root, aside string) map[string]string // the environment
	}{
		{"as podman 4 has it", func(*testing.T, string, string) map[string]string { return nil }},
		{"listed as volatile", func(t *testing.T, root, _ string) map[string]string {
			moveList(t, root, filepath.Join(root, "vfs-containers/volatile-containers.json"))
			write(t, root, map[string]string{"vfs-containers/containers.json": "[]"})
			return nil
		}},
		{"a transient store in the run directory", func(t *testing.T, root, aside string) map[string]string {
			moveList(t, root, filepath.Join(aside, "containers/vfs-containers/volatile-containers.json"))
			return map[string]string{"XDG_RUNTIME_DIR": aside}
		}},
		{"a transient store that storage.conf names", func(t *testing.T, root, aside string) map[string]string {
			moveList(t, root, filepath.Join(aside, "rr/vfs-containers/volatile-containers.json"))
			write(t, aside, map[string]string{"s.conf": fmt.Sprintf("[storage]\nrunroot = %q\n", filepath.Join(aside, "rr"))})
			return map[string]string{"CONTAINERS_STORAGE_CONF": filepath.Join(aside, "s.conf")}
		}},
		{"an image store", func(t *testing.T, root, aside string) map[string]string {
			moveImages(t, root, filepath.Join(aside, "images"))
			write(t, aside, map[string]string{".config/containers/storage.conf": fmt.Sprintf("[storage]\nimagestore = %q\n", filepath.Join(aside, "images"))})
			return map[string]string{"HOME": aside}
		}},
		{"an additional image store", func(t *testing.T, root, aside string) map[string]string {
			moveImages(t, root, filepath.Join(aside, "more"))
			write(t, aside, map[string]string{"containers/storage.conf": fmt.Sprintf(
				"[storage]\ndriver = \"vfs\"\n[storage.options]\nadditionalimagestores = [\"relative\", %q]\n", filepath.Join(aside, "more"))})
			return map[string]string{"XDG_CONFIG_HOME": aside, "HOME": "/no/such"}
		}},
		{"an image store in STORAGE_OPTS", func(t *testing.T, root, aside string) map[string]string {
			moveImages(t, root, aside)
			return map[string]string{"STORAGE_OPTS": "vfs.ignore_chown_errors=true,vfs.imagestore=" + aside}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, aside := t.TempDir(), t.TempDir()
			write(t, root, files())
			vars := tt.edit(t, root, aside)
			got, err := FromBundle(filepath.Join(root, "vfs-containers", containerID, "userdata"), env(vars))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wanted(), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFromBundleWithoutAnImage(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"overlay-containers/containers.json": `[{"id":"` + containerID + `"}]`})
	got, err := FromBundle(filepath.Join(root, "overlay-containers", containerID, "userdata"), env(nil))
	if err != nil || got.ImageID != "" || len(got.Annotations)+len(got.Env) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFromBundleNotPodmans(t *testing.T) {
	for _, bundle := range []string{
		"/run/containerd/io.containerd.runtime.v2.task/moby/" + containerID, "/var/tmp/buildah3379708396", "/", "", "userdata",
		"/a/vfs-containers/short/userdata", "/a/vfs-containers/" + containerID, "/a/-containers/" + containerID + "/userdata",
		"/a/vfs-images/" + containerID + "/userdata", "/a/vfs-containers/" + strings.ToUpper(containerID) + "/userdata",
		"/a/vfs-containers/" + containerID + "/other", "/a/vfs-containers/x/../" + containerID[:63] + "/userdata",
	} {
		if _, err := FromBundle(bundle, env(nil)); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", bundle, err)
		}
	}
}

// What cannot be read is an error of its own, never an image that brings nothing.
func TestFromBundleFailsClosed(t *testing.T) {
	manifestName := "vfs-images/" + imageID + "/manifest"
	tests := []struct {
		name, file, content, want string
	}{
		{"container not listed", "vfs-containers/containers.json", "[]", "not listed"},
		{"truncated list", "vfs-containers/containers.json", list[:40], "containers.json"},
		{"image id with a path in it", "vfs-containers/containers.json", `[{"id":"` + containerID + `","image":"../../../etc"}]`, "not an image id"},
		{"image gone", "vfs-containers/containers.json", `[{"id":"` + containerID + `","image":"` + otherID + `"}]`, "not found in"},
		{"truncated manifest", manifestName, `{"annotations":{`, "manifest"},
		{"annotations of the wrong type", manifestName, `{"annotations":["dev.lazaret.profile"]}`, "manifest"},
		{"no configuration", manifestName, `{}`, "names no configuration"},
		{"configuration digest with a path in it", manifestName, `{"config":{"digest":"../../manifest"}}`, "malformed"},
		{"configuration missing", manifestName, `{"config":{"digest":"sha256:` + otherID + `"}}`, "no such file"},
		{"another manifest broken", "vfs-images/" + imageID + "/=bWFuaWZlc3Qtc2hhMjU2OmFh", "{", "manifest"},
		{"huge manifest", manifestName, strings.Repeat(" ", maxManifest+1), "larger than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			all := files()
			all[tt.file] = tt.content
			write(t, root, all)
			_, err := FromBundle(filepath.Join(root, "vfs-containers", containerID, "userdata"), env(nil))
			if err == nil || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("a FIFO for a manifest", func(t *testing.T) {
		root := t.TempDir()
		write(t, root, files())
		name := filepath.Join(root, manifestName)
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := FromBundle(filepath.Join(root, "vfs-containers", containerID, "userdata"), env(nil)); err == nil || !strings.Contains(err.Error(), "regular") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("more files than an image has", func(t *testing.T) {
		root := t.TempDir()
		all := files()
		for i := range maxEntries {
			all[fmt.Sprintf("vfs-images/%s/x%d", imageID, i)] = ""
		}
		write(t, root, all)
		if _, err := FromBundle(filepath.Join(root, "vfs-containers", containerID, "userdata"), env(nil)); err == nil || !strings.Contains(err.Error(), "entries") {
			t.Errorf("got %v", err)
		}
	})
}

// FuzzReadImage: whatever an image's author writes is refused or bounded.
func FuzzReadImage(f *testing.F) {
	f.Add([]byte(manifestOne), []byte(configJSON))
	f.Add([]byte(`{"config":null,"annotations":null}`), []byte(`null`))
	f.Fuzz(func(t *testing.T, manifest, config []byte) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"manifest": string(manifest), bigDataName("sha256:" + imageID): string(config)})
		info, err := readImage(dir, imageID)
		if err == nil && info.ImageID != imageID {
			t.Errorf("got %+v", info)
		}
	})
}
