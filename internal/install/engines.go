package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	dropin "github.com/lazaret-dev/lazaret/containers.conf.d"
)

// Engine is a program that starts containers through an OCI runtime.
type Engine string

// The engines. Podman is Plan's; the others are registered for the whole machine.
const (
	Podman     Engine = "podman"
	Docker     Engine = "docker"
	Containerd Engine = "containerd"
	CRIO       Engine = "crio"
)

// Files of the engines, as their packages have them.
const (
	dockerFile     = "/etc/docker/daemon.json"
	containerdFile = "/etc/containerd/config.toml"
	crioFile       = "/etc/crio/crio.conf.d/50-lazaret.conf"

	blockBegin = "# BEGIN lazaret: written by lazaret init; lazaret init --uninstall takes it away\n"
	blockEnd   = "# END lazaret\n"
)

// Reload is the command after which the engine knows the change.
func (e Engine) Reload() string {
	switch e {
	case Docker:
		return "systemctl reload docker"
	case Containerd:
		return "systemctl restart containerd"
	case CRIO:
		return "systemctl restart crio"
	}
	return ""
}

// PlanEngine finds out what has to be done to register Lazaret with an engine other
// than podman, whose configuration is the file, "" for where its packages have it.
// What else the file holds stays byte for byte. It reads only.
func PlanEngine(h Host, engine Engine, file string, o Options) (*Change, error) {
	edit := map[Engine]struct {
		file   string
		change func(before []byte, runtime string) ([]byte, error)
	}{
		Docker: {dockerFile, editDocker}, Containerd: {containerdFile, editContainerd}, CRIO: {crioFile, editCRIO},
	}[engine]
	if edit.change == nil {
		return nil, fmt.Errorf("engine %q: want podman, docker, containerd or crio", engine)
	}
	if o.Scope == User {
		return nil, fmt.Errorf("%s is registered for the whole machine only: leave --scope out", engine)
	}
	c := &Change{Scope: System, Engine: engine, Path: file}
	if c.Path == "" {
		c.Path = edit.file
	}
	var err error
	if c.Before, err = os.ReadFile(c.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the configuration of %s: %w", engine, err)
	}
	if !o.Uninstall {
		if err := c.findRuntime(h, o.RuntimePath); err != nil {
			return nil, err
		}
	}
	if c.After, err = edit.change(c.Before, c.Runtime); err != nil {
		return nil, fmt.Errorf("configuration of %s, %s: %w", engine, c.Path, err)
	}
	switch {
	case bytes.Equal(c.Before, c.After):
		c.Action = Keep
	case len(c.After) == 0:
		c.Action, c.After = Remove, nil
	case c.Before == nil:
		c.Action = Create
	default:
		c.Action = Update
	}
	return c, nil
}

// editDocker sets or, without a runtime, deletes runtimes.lazaret in daemon.json
// (dockerd(8)). A file with nothing else in it becomes none.
func editDocker(before []byte, runtime string) ([]byte, error) {
	const key = "runtimes." + dropin.RuntimeName
	if len(bytes.TrimSpace(before)) == 0 {
		if runtime == "" {
			return before, nil
		}
		return json.MarshalIndent(map[string]any{"runtimes": map[string]any{dropin.RuntimeName: map[string]any{"path": runtime}}}, "", "  ")
	}
	if !json.Valid(before) || !gjson.ParseBytes(before).IsObject() {
		return nil, errors.New("it is not a JSON object: mend it first (dockerd --validate)")
	}
	if r := gjson.GetBytes(before, "runtimes"); r.Exists() && !r.IsObject() {
		return nil, errors.New("runtimes is not an object: mend it first (dockerd --validate)")
	}
	if runtime != "" {
		if gjson.GetBytes(before, key+".path").String() == runtime {
			return before, nil
		}
		return sjson.SetBytes(before, key, map[string]any{"path": runtime})
	}
	if !gjson.GetBytes(before, key).Exists() {
		return before, nil
	}
	after, err := sjson.DeleteBytes(before, key)
	if err == nil && len(gjson.GetBytes(after, "runtimes").Map()) == 0 {
		after, err = sjson.DeleteBytes(after, "runtimes")
	}
	if err == nil && len(gjson.ParseBytes(after).Map()) == 0 {
		return nil, nil
	}
	return after, err
}

// editContainerd keeps a block of our own at the end of config.toml. No drop-in:
// containerd before 2.0 takes an imported file's section of a plugin for the whole
// of that plugin's configuration, and the other runtimes would be gone.
func editContainerd(before []byte, runtime string) ([]byte, error) {
	rest, found, err := withoutBlock(before)
	if err != nil {
		return nil, err
	}
	if runtime == "" {
		if !found {
			return before, nil
		}
		if strings.TrimSpace(string(rest)) == "version = 2" {
			return nil, nil
		}
		return rest, nil
	}
	var conf struct {
		Version int `toml:"version"`
	}
	if len(bytes.TrimSpace(rest)) == 0 {
		rest, conf.Version = []byte("version = 2\n"), 2
	} else if err := toml.Unmarshal(rest, &conf); err != nil {
		return nil, fmt.Errorf("%w: mend it first (containerd config dump)", err)
	}
	plugin := map[int]string{2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime", 4: "io.containerd.cri.v1.runtime"}[conf.Version]
	if plugin == "" {
		return nil, fmt.Errorf("version %d of it is not known here: bring it to version 2 or 3 first (containerd config migrate)", conf.Version)
	}
	if !bytes.HasSuffix(rest, []byte("\n")) {
		rest = append(slices.Clone(rest), '\n')
	}
	table := fmt.Sprintf("plugins.%q.containerd.runtimes.%s", plugin, dropin.RuntimeName)
	after := fmt.Appendf(slices.Clone(rest), "%s[%s]\nruntime_type = \"io.containerd.runc.v2\"\n[%[2]s.options]\nBinaryName = %s\n%s",
		blockBegin, table, strconv.Quote(runtime), blockEnd)
	if err := toml.Unmarshal(after, &map[string]any{}); err != nil {
		return nil, fmt.Errorf("%w: remove what it says of a runtime %s first", err, dropin.RuntimeName)
	}
	return after, nil
}

// withoutBlock takes our block out.
func withoutBlock(data []byte) (rest []byte, found bool, err error) {
	head, tail, found := bytes.Cut(data, []byte(blockBegin))
	if !found {
		return data, false, nil
	}
	_, tail, ended := bytes.Cut(tail, []byte(blockEnd))
	if !ended || bytes.Contains(tail, []byte(blockBegin)) {
		return nil, false, fmt.Errorf("the block that begins with %q does not end: remove it by hand", strings.TrimSpace(blockBegin))
	}
	return slices.Concat(head, tail), true, nil
}

// editCRIO makes the whole of a drop-in (crio.conf.d(5)).
func editCRIO(before []byte, runtime string) ([]byte, error) {
	if len(before) > 0 && !bytes.HasPrefix(before, []byte(blockBegin)) {
		return nil, fmt.Errorf("%w: move it away", ErrEdited)
	}
	if runtime == "" {
		return nil, nil
	}
	return fmt.Appendf(nil, "%s[crio.runtime.runtimes.%s]\nruntime_path = %s\nruntime_type = \"oci\"\nruntime_root = \"/run/crio-%[2]s\"\n%[4]s",
		blockBegin, dropin.RuntimeName, strconv.Quote(runtime), blockEnd), nil
}
