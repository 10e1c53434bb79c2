// Package imageinfo finds out which image a podman container was made from, and
// what that image brings of its own: its manifests' annotations and its
// environment. podman copies both into config.json, so whoever built the image
// could otherwise steer the runtime.
//
// It reads containers/storage's files directly: podman itself holds its locks
// while it runs a runtime, and replaces these files by rename. Layout (checked
// against podman 4.3 and containers/storage 1.59):
//
//	<graphroot>/<driver>-containers/<id>/userdata          the bundle
//	<graphroot>/<driver>-containers/containers.json        id → image id
//	<graphroot>/<driver>-containers/volatile-containers.json   the same, for --rm
//	<runroot>/<driver>-containers/volatile-containers.json     … with a transient store
//	<store>/<driver>-images/images.json                    id → names, uppermost layer
//	<store>/vfs/dir/<layer>                                a layer's whole file tree
//	<store>/<driver>-images/<image id>/manifest            and manifest-<digest>
//	<store>/<driver>-images/<image id>/=<base64 of the config's digest>
package imageinfo

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/BurntSushi/toml"
)

// ErrUnknown is returned for a bundle that is not in podman's storage: docker's,
// containerd's, buildah's, or a hand-made one. Of these only podman's containers
// get annotations from images.
var ErrUnknown = errors.New("not a bundle of podman's")

// Upper bounds of what is read, in bytes.
const (
	maxIndex    = 64 << 20 // containers.json: about a kilobyte a container
	maxManifest = 4 << 20  // as containers/image has it
	maxConf     = 1 << 20
	maxEntries  = 256 // files of one image
)

// Info is what an image brings. It is empty for a container without an image
// (podman run --rootfs).
type Info struct {
	ImageID string // 64 hex digits
	Digest  string // of the image's manifest, as in "sha256:…"
	// Annotations are those of all manifests that storage has for the image, each
	// name with every value: one image may have been pulled by several manifests.
	Annotations map[string][]string
	Env         []string // NAME=value
	Name        string   // one that the user gave it, "" for none
	// Tree is the directory with all files of the image, "" where storage keeps them
	// in layers.
	Tree string
}

// FromBundle finds the image of the container whose bundle this is. getenv is for
// storage.conf's place and the run root (XDG_RUNTIME_DIR, HOME …). Where the
// bundle is podman's but its image cannot be read the error is not ErrUnknown, and
// says why: what the image wrote is then not known, and nothing that it may have
// written should be trusted.
func FromBundle(bundle string, getenv func(string) string) (Info, error) {
	abs, err := filepath.Abs(bundle)
	if err != nil {
		return Info{}, fmt.Errorf("bundle %s: %w", bundle, err)
	}
	dir, last := filepath.Split(abs)
	id := filepath.Base(dir)
	containers := filepath.Dir(filepath.Clean(dir))
	driver, ok := strings.CutSuffix(filepath.Base(containers), "-containers")
	if !ok || driver == "" || last != "userdata" || !isID(id) {
		return Info{}, fmt.Errorf("%s: %w", abs, ErrUnknown)
	}
	s := storage{graphRoot: filepath.Dir(containers), driver: driver, getenv: getenv}
	image, err := s.imageOf(id)
	if err != nil {
		return Info{}, fmt.Errorf("image of container %s: %w", id, err)
	}
	if image == "" {
		return Info{}, nil
	}
	info, err := s.load(image)
	if err != nil {
		return Info{}, fmt.Errorf("image %s of container %s: %w", image, id, err)
	}
	return info, nil
}

func isID(s string) bool { return regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(s) }

type storage struct {
	graphRoot, driver string
	getenv            func(string) string
}

// imageOf finds a container's image id; empty for a container without an image.
func (s storage) imageOf(id string) (string, error) {
	dir := s.driver + "-containers"
	files := []string{
		filepath.Join(s.graphRoot, dir, "containers.json"),
		filepath.Join(s.graphRoot, dir, "volatile-containers.json"),
	}
	for _, root := range s.runRoots() {
		files = append(files, filepath.Join(root, dir, "volatile-containers.json"))
	}
	for _, file := range files {
		data, err := readFile(file, maxIndex)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
			continue
		}
		if err != nil {
			return "", err
		}
		var all []struct {
			ID    string `json:"id"`
			Image string `json:"image"`
		}
		if err := json.Unmarshal(data, &all); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		for _, c := range all {
			if c.ID != id {
				continue
			}
			if c.Image != "" && !isID(c.Image) {
				return "", fmt.Errorf("%s: %q is not an image id", file, c.Image)
			}
			return c.Image, nil
		}
	}
	return "", fmt.Errorf("not listed in %s", strings.Join(files, ", "))
}

// load reads the image from the first store that has it.
func (s storage) load(image string) (Info, error) {
	stores := append([]string{s.graphRoot}, s.imageStores()...)
	var tried []string
	for _, store := range stores {
		dir := filepath.Join(store, s.driver+"-images", image)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			tried = append(tried, dir)
			continue
		}
		info, err := readImage(dir, image)
		if err != nil {
			return Info{}, err
		}
		return info, s.describe(&info, store)
	}
	return Info{}, fmt.Errorf("not found in %s; an image store that only podman's --imagestore names belongs into storage.conf",
		strings.Join(tried, ", "))
}

// describe adds what the store's list of images tells.
func (s storage) describe(info *Info, store string) error {
	file := filepath.Join(store, s.driver+"-images", "images.json")
	data, err := readFile(file, maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []struct {
		ID    string   `json:"id"`
		Names []string `json:"names"`
		Layer string   `json:"layer"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, i := range all {
		if i.ID != info.ImageID {
			continue
		}
		if len(i.Names) > 0 {
			info.Name = i.Names[0]
		}
		if s.driver == "vfs" && isID(i.Layer) {
			info.Tree = filepath.Join(store, "vfs/dir", i.Layer)
		}
	}
	return nil
}

type manifest struct {
	Annotations map[string]string `json:"annotations"`
	Config      struct {
		Digest string `json:"digest"`
	} `json:"config"`
}

func readImage(dir, image string) (Info, error) {
	data, err := readFile(filepath.Join(dir, "manifest"), maxManifest)
	if err != nil {
		return Info{}, err
	}
	sum := sha256.Sum256(data)
	info := Info{ImageID: image, Digest: "sha256:" + hex.EncodeToString(sum[:]), Annotations: make(map[string][]string)}
	m, err := info.addManifest(data)
	if err != nil {
		return Info{}, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Info{}, err
	}
	if len(entries) > maxEntries {
		return Info{}, fmt.Errorf("%s has %d entries, more than %d", dir, len(entries), maxEntries)
	}
	for _, e := range entries {
		if !strings.HasPrefix(bigDataKey(e.Name()), "manifest-") {
			continue
		}
		other, err := readFile(filepath.Join(dir, e.Name()), maxManifest)
		if err != nil {
			return Info{}, err
		}
		if _, err := info.addManifest(other); err != nil {
			return Info{}, err
		}
	}
	if m.Config.Digest == "" {
		return Info{}, fmt.Errorf("%s/manifest names no configuration (an image in docker's first schema); build or pull it anew", dir)
	}
	info.Env, err = readEnv(dir, m.Config.Digest)
	return info, err
}

// addManifest takes a manifest's annotations in; a list of manifests has some too.
func (i *Info) addManifest(data []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	for name, value := range m.Annotations {
		if !slices.Contains(i.Annotations[name], value) {
			i.Annotations[name] = append(i.Annotations[name], value)
		}
	}
	return m, nil
}

// readEnv reads the environment of an image's configuration. The digest comes out
// of the manifest, so whoever built the image chose it.
func readEnv(dir, digest string) ([]string, error) {
	if !regexp.MustCompile(`^[a-z0-9]+:[0-9a-f]{32,128}$`).MatchString(digest) {
		return nil, fmt.Errorf("the manifest's configuration digest %q is malformed", digest)
	}
	data, err := readFile(filepath.Join(dir, bigDataName(digest)), maxManifest)
	if err != nil {
		return nil, err
	}
	var c struct {
		Config struct {
			Env []string `json:"Env"`
		} `json:"config"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", digest, err)
	}
	return c.Config.Env, nil
}

// bigDataName is the file name that storage gives to a piece of data called key:
// the key, or "=" and its base64 where it has anything but a-z, 0-9 and dots.
func bigDataName(key string) string {
	for _, c := range key {
		if c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return "=" + base64.StdEncoding.EncodeToString([]byte(key))
		}
	}
	return key
}

func bigDataKey(name string) string {
	if encoded, ok := strings.CutPrefix(name, "="); ok {
		if key, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			return string(key)
		}
	}
	return name
}

// storageConf is the part of storage.conf that says where things are.
type storageConf struct {
	Storage struct {
		RunRoot    string `toml:"runroot"`
		ImageStore string `toml:"imagestore"`
		Options    struct {
			AdditionalImageStores []string `toml:"additionalimagestores"`
		} `toml:"options"`
	} `toml:"storage"`
}

// confs reads every storage.conf that podman may have read. Taking them all
// together can only make more images known. One that cannot be read is podman's
// to complain about.
func (s storage) confs() []storageConf {
	var files []string
	if f := s.getenv("CONTAINERS_STORAGE_CONF"); f != "" {
		files = append(files, f)
	}
	if dir := s.getenv("XDG_CONFIG_HOME"); dir != "" {
		files = append(files, filepath.Join(dir, "containers/storage.conf"))
	} else if home := s.getenv("HOME"); home != "" {
		files = append(files, filepath.Join(home, ".config/containers/storage.conf"))
	}
	files = append(files, "/etc/containers/storage.conf", "/usr/share/containers/storage.conf")
	var all []storageConf
	for _, file := range files {
		data, err := readFile(file, maxConf)
		if err != nil {
			continue
		}
		var c storageConf
		if toml.Unmarshal(data, &c) == nil {
			all = append(all, c)
		}
	}
	return all
}

func (s storage) imageStores() []string {
	var stores []string
	for _, c := range s.confs() {
		stores = append(stores, c.Storage.ImageStore)
		stores = append(stores, c.Storage.Options.AdditionalImageStores...)
	}
	for _, option := range strings.Split(s.getenv("STORAGE_OPTS"), ",") {
		if name, store, ok := strings.Cut(option, "="); ok && strings.HasSuffix(name, ".imagestore") {
			stores = append(stores, store)
		}
	}
	return absolute(stores)
}

func (s storage) runRoots() []string {
	roots := []string{"/run/containers/storage"}
	if dir := s.getenv("XDG_RUNTIME_DIR"); dir != "" {
		roots = append(roots, filepath.Join(dir, "containers"))
	}
	for _, c := range s.confs() {
		roots = append(roots, c.Storage.RunRoot)
	}
	return absolute(roots)
}

func absolute(all []string) []string {
	return slices.DeleteFunc(all, func(p string) bool { return !filepath.IsAbs(p) })
}

// readFile reads a regular file of at most limit bytes, never waiting for a FIFO.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return data, nil
}
