package stateanchor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
)

// Drivers of the overlays, and the word by which the profile leaves the choice.
const (
	DriverAuto    = "auto"
	DriverOverlay = "overlay"
	DriverFUSE    = "fuse-overlayfs"
)

// RecordFile in the Domain Root tells what its changes were made over.
const RecordFile = "state.json"

// recordVersion is the record's form; a newer one is refused.
const recordVersion = 1

// Record is what a Domain Root's changes were made over, and by what. It is
// written before the first container may change anything.
type Record struct {
	Version int `json:"version"`
	// Driver made the changes. It never changes under them: the drivers tell
	// deleted files and replaced directories in different ways.
	Driver string `json:"driver"`
	Image  Image  `json:"image"`
	// Other is the last image that asked and does not fit, for a rebase; nil for none
	// since the last one that does.
	Other *Image `json:"other,omitempty"`
	// IDMap is the containers' user namespace, in the engine's: "" for none of
	// its own, else what Options.IDMap says. Files have their owners in it.
	IDMap string `json:"id_map,omitempty"`
	// Workspace tells the domain's directory from a later one at the same path; ""
	// where the file system does not.
	Workspace string `json:"workspace,omitempty"`
	// Paths are the state paths that have changes here, in the order of the
	// profile; see Layout.
	Paths []string `json:"paths"`
	// Targets are files and directories in the state paths that were made, empty,
	// for engines' and users' mounts to lie on, as absolute paths in the container.
	// Unless the agent has filled them they are nobody's changes.
	Targets []string `json:"targets,omitempty"`
}

// Image is the image below the changes.
type Image struct {
	Name   string `json:"name,omitempty"`   // as the user called it; for messages
	ID     string `json:"id,omitempty"`     // the engine's, "" where it is not known
	Digest string `json:"digest,omitempty"` // of its manifest, likewise
	// Layers are the host directories of its files, the uppermost first; a single
	// one may be a whole tree. Key tells whether two images are the same.
	Layers  []string `json:"layers"`
	Release Release  `json:"release"`
	// Packages is a sum over its package databases: the same for the same packages.
	Packages string `json:"packages,omitempty"`
}

// Release is a distribution's release, of os-release(5); zero where it has none.
type Release struct {
	ID        string `json:"id,omitempty"`
	VersionID string `json:"version_id,omitempty"`
	Codename  string `json:"codename,omitempty"`
	Name      string `json:"name,omitempty"` // PRETTY_NAME; for messages
}

// Same reports whether changes made over one release may lie over the other. A
// release without a version keeps changing, and is never the same.
func (r Release) Same(o Release) bool {
	return r.ID == o.ID && r.VersionID == o.VersionID && r.Codename == o.Codename && (r.VersionID != "" || r.Codename != "")
}

func (r Release) String() string {
	switch {
	case r.Name != "":
		return r.Name
	case r.ID != "":
		return strings.TrimSpace(r.ID + " " + r.VersionID)
	}
	return "an unknown release"
}

// Key is the same for the same image: its id where the engine tells one, else
// its layers.
func (i Image) Key() string {
	if i.ID != "" {
		return i.ID
	}
	return strings.Join(i.Layers, ":")
}

func (i Image) String() string {
	id := i.ID
	if len(id) > 12 {
		id = id[:12]
	}
	switch {
	case i.Name != "" && id != "":
		return fmt.Sprintf("%s (%s)", i.Name, id)
	case i.Name != "":
		return i.Name
	case id != "":
		return id
	case len(i.Layers) > 0:
		return i.Layers[0]
	}
	return "an unknown image"
}

// ReadRecord reads a Domain Root's record; fs.ErrNotExist is in the error's chain
// where nothing was ever kept there.
func ReadRecord(root string) (Record, error) {
	name := filepath.Join(root, RecordFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return Record{}, fmt.Errorf("read the state's record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("the state's record %s is damaged: %w: lazaret state reset starts anew", name, err)
	}
	if r.Version > recordVersion {
		return Record{}, fmt.Errorf("the state's record %s was written by a newer Lazaret (version %d): install that", name, r.Version)
	}
	if r.Driver != DriverOverlay && r.Driver != DriverFUSE || CheckPaths(r.Paths) != nil {
		return Record{}, fmt.Errorf("the state's record %s is damaged: lazaret state reset starts anew", name)
	}
	return r, nil
}

// WriteRecord replaces a Domain Root's record, and flushes it to the disk.
func WriteRecord(root string, r Record) error {
	r.Version = recordVersion
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("record the state: %w", err)
	}
	return atomicfile.Write(filepath.Join(root, RecordFile), append(data, '\n'), 0o600, true)
}

// Layout names the directories of a clean state path in a Domain Root: what was
// changed in it, the driver's own, and where the whole is mounted.
func Layout(root, statePath string) (changes, work, merged string) {
	base := filepath.Join(root, Name(statePath))
	return base + "_changes", base + "_work", base + "_merged"
}

// Name is a clean absolute path as one file name, a different one for each:
// "/usr" is "usr", "/var/lib" is "var_lib".
func Name(p string) string {
	// fuse-overlayfs takes no colons.
	p = strings.NewReplacer("%", "%25", "_", "%5f", ":", "%3a").Replace(strings.TrimPrefix(p, "/"))
	return strings.ReplaceAll(p, "/", "_")
}

// maxName keeps Name and its endings within a file name, in bytes.
const maxName = 240

// CheckPaths refuses state paths that cannot be kept, or overlap.
func CheckPaths(all []string) error {
	for i, p := range all {
		switch {
		case strings.ContainsAny(p, "\x00\n\r"):
			return fmt.Errorf("state path %q has a line break or NUL in it", p)
		case !path.IsAbs(p) || path.Clean(p) != p:
			return fmt.Errorf("state path %q is not a clean absolute path", p)
		case p == "/":
			return errors.New("state path /: the whole root cannot be kept: name the directories")
		case len(Name(p)) > maxName:
			return fmt.Errorf("state path %.40q… is too long: its name has %d bytes of at most %d", p, len(Name(p)), maxName)
		}
		if sys := reserved(p); sys != "" {
			return fmt.Errorf("state path %s cannot be kept: %s belongs to the sandbox or to the workspace", p, sys)
		}
		if j := slices.IndexFunc(all[:i], func(o string) bool { return under(p, o) || under(o, p) }); j >= 0 {
			return fmt.Errorf("state paths %s and %s overlap: keep the outer one", all[j], p)
		}
	}
	return nil
}

// reserved is the directory of the sandbox's own in which p lies, or which lies
// in p, else "".
func reserved(p string) string {
	for _, sys := range []string{"/proc", "/sys", "/dev", "/run", "/workspace"} {
		if under(p, sys) || under(sys, p) {
			return sys
		}
	}
	return ""
}

// under tells whether name is dir or below it; both clean and absolute.
func under(name, dir string) bool {
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}
