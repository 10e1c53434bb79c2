// Package hostenv owns the question who the developer is and where his files
// are, when the answer must not depend on HOME, PATH or a user name.
//
// Engines start their runtime with very different environments: podman gives
// create almost everything, start only PATH and XDG_RUNTIME_DIR, the clean-up's
// delete only XDG_RUNTIME_DIR, and in its user namespace the developer is uid 0
// (user_namespaces(7)).
package hostenv

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Env is what was found out about the developer and this process.
type Env struct {
	UID        int    // the developer's uid in the initial user namespace
	Rootless   bool   // this process is, or acts for, an ordinary user
	Home       string // his home, "" when nobody knows it
	ConfigHome string // XDG_CONFIG_HOME when set to an absolute path, else ""
	DataHome   string // XDG_DATA_HOME likewise
	RuntimeDir string // Lazaret's own directory on memory: <XDG_RUNTIME_DIR>/lazaret, for root /run/lazaret
}

// Source is where Detect reads from; tests replace it.
type Source struct {
	Getenv func(string) string
	EUID   int
	UIDMap string // path of /proc/self/uid_map
	Passwd string // path of /etc/passwd
	RunDir string // /run
	TmpDir string // /tmp
}

// Host is the Source of the running process.
func Host() Source {
	return Source{
		Getenv: os.Getenv,
		EUID:   os.Geteuid(),
		UIDMap: "/proc/self/uid_map",
		Passwd: "/etc/passwd",
		RunDir: "/run",
		TmpDir: "/tmp",
	}
}

// Detect finds the developer. It fails only where no safe runtime directory
// can be named, and then tells all but that; an unknown home is no error.
func Detect(src Source) (Env, error) {
	e := Env{UID: src.EUID, Rootless: src.EUID != 0}
	if src.EUID == 0 {
		if uid, ok := rootlessUID(src); ok {
			e.UID, e.Rootless = uid, true
		}
	}
	e.Home = home(src, e.UID)
	e.ConfigHome = absolute(src.Getenv("XDG_CONFIG_HOME"))
	e.DataHome = absolute(src.Getenv("XDG_DATA_HOME"))
	dir, err := runtimeDir(src, e)
	if err != nil {
		return e, err
	}
	e.RuntimeDir = dir
	return e, nil
}

// rootlessUID tells whose user namespace we are root of: a map whose uid 0 is
// exactly one foreign id is a rootless engine's (newuidmap(1) maps the caller
// alone to 0). podman says it in _CONTAINERS_ROOTLESS_UID too, which counts only
// where the map does not say that we are the host's root: a variable that came
// along with sudo must not turn root's containers into somebody's.
func rootlessUID(src Source) (int, bool) {
	data, err := os.ReadFile(src.UIDMap)
	if err == nil {
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) != 3 || f[0] != "0" {
				continue
			}
			uid, err := strconv.Atoi(f[1])
			switch {
			case err == nil && uid == 0:
				return 0, false
			case err == nil && f[2] == "1":
				return uid, true
			}
		}
	}
	if v := src.Getenv("_CONTAINERS_ROOTLESS_UID"); v != "" {
		if uid, err := strconv.Atoi(v); err == nil && uid > 0 {
			return uid, true
		}
	}
	return 0, false
}

func home(src Source, uid int) string {
	if h := absolute(src.Getenv("HOME")); h != "" {
		// sudo keeps HOME on some systems: root must not read a user's configuration.
		if ownedBy(h, src.EUID) {
			return h
		}
	}
	f, err := os.Open(src.Passwd)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		p := strings.Split(sc.Text(), ":")
		if len(p) >= 6 && p[2] == strconv.Itoa(uid) {
			return absolute(p[5])
		}
	}
	return ""
}

func runtimeDir(src Source, e Env) (string, error) {
	if !e.Rootless {
		// Not XDG_RUNTIME_DIR: under sudo it can be another user's.
		return filepath.Join(src.RunDir, "lazaret"), nil
	}
	for _, d := range []string{
		absolute(src.Getenv("XDG_RUNTIME_DIR")),
		filepath.Join(src.RunDir, "user", strconv.Itoa(e.UID)),
	} {
		if d != "" && ownedBy(d, src.EUID) {
			return filepath.Join(d, "lazaret"), nil
		}
	}
	d := filepath.Join(src.TmpDir, "lazaret-runtime-"+strconv.Itoa(e.UID))
	if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("no runtime directory for uid %d: XDG_RUNTIME_DIR is not set to a directory of his and %w", e.UID, err)
	}
	fi, err := os.Lstat(d)
	if err != nil {
		return "", fmt.Errorf("runtime directory: %w", err)
	}
	if !fi.IsDir() || fi.Mode().Perm() != 0o700 || !ownedBy(d, src.EUID) {
		return "", fmt.Errorf("runtime directory %s belongs to another user or is open to others: remove it or set XDG_RUNTIME_DIR", d)
	}
	return filepath.Join(d, "lazaret"), nil
}

func absolute(p string) string {
	if !filepath.IsAbs(p) {
		return ""
	}
	return filepath.Clean(p)
}

func ownedBy(path string, uid int) bool {
	fi, err := os.Stat(path)
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid && fi.IsDir()
}
