package doctor

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/BurntSushi/toml"
)

// storage tells of podman's slowest storage driver. podman itself is not asked: that
// would leave a process of its own running.
func (d *examiner) storage() Check {
	const name = "podman storage"
	own := d.Root + "/etc/containers/storage.conf"
	graph := d.Root + "/var/lib/containers/storage"
	if d.UID != 0 && d.Layout.ConfigHome != "" {
		own = filepath.Join(d.Layout.ConfigHome, "containers/storage.conf")
		graph = filepath.Join(cmp.Or(d.Getenv("XDG_DATA_HOME"), filepath.Join(d.Getenv("HOME"), ".local/share")), "containers/storage")
	}
	var conf struct {
		Storage struct {
			Driver    string
			GraphRoot string
		}
	}
	fix := "mkdir -p " + filepath.Dir(own) + ` && printf '[storage]\ndriver = "overlay"\n' > ` + own
	for _, file := range []string{own, d.Root + "/etc/containers/storage.conf", d.Root + "/usr/share/containers/storage.conf"} {
		if _, err := toml.DecodeFile(file, &conf); err != nil {
			continue // none, or one that podman complains of itself
		}
		if file == own {
			fix = "${EDITOR:-vi} " + own + `  # driver = "overlay" in [storage]`
		}
		break
	}
	if conf.Storage.GraphRoot != "" {
		graph = os.Expand(conf.Storage.GraphRoot, d.Getenv)
	}
	driver := cmp.Or(d.Getenv("STORAGE_DRIVER"), conf.Storage.Driver)
	if driver == "" && isDir(filepath.Join(graph, "vfs-images")) && !isDir(filepath.Join(graph, "overlay-images")) {
		driver = "vfs" // what podman has once chosen it keeps
	}
	if driver == "vfs" {
		return warn(name, fix, "vfs copies the whole image for each container: starts are slow and take its size on the disk; with overlay images have to be pulled again")
	}
	return ok(name, "%s", cmp.Or(driver, "overlay where podman can"))
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
