package terminfo

import (
	"path/filepath"
	"slices"
	"strings"
)

// systemDirs are where distributions' libraries look by default.
func systemDirs() []string {
	return []string{
		"/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/lib/terminfo",
		"/usr/share/lib/terminfo", "/usr/local/share/terminfo", "/usr/local/lib/terminfo",
	}
}

// searchPath lists the directories to look in, first the ones that ncurses would
// use, in its order, each once. Relative ones are left out: where they lead
// depends on where we were started.
func searchPath(env func(string) string, home string) []string {
	var dirs []string
	add := func(more ...string) {
		for _, dir := range more {
			if !filepath.IsAbs(dir) {
				continue
			}
			if dir = filepath.Clean(dir); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	inHome := func(more ...string) {
		if filepath.IsAbs(home) {
			for _, dir := range more {
				add(filepath.Join(home, dir))
			}
		}
	}
	below := func(name string, more ...string) {
		if base := env(name); filepath.IsAbs(base) {
			for _, dir := range more {
				add(filepath.Join(base, dir))
			}
		}
	}

	add(env("TERMINFO"))
	inHome(".terminfo")
	if list := env("TERMINFO_DIRS"); list != "" {
		for _, dir := range strings.Split(list, ":") {
			if dir == "" { // the library's own default
				add(systemDirs()...)
			}
			add(dir)
		}
	}
	add(systemDirs()...)

	// What the terminals say of themselves.
	below("KITTY_INSTALLATION_DIR", "terminfo", "../../share/terminfo")
	below("GHOSTTY_RESOURCES_DIR", "../terminfo", "terminfo")
	below("SNAP", "usr/share/terminfo", "share/terminfo")

	// Package managers.
	if list := env("XDG_DATA_DIRS"); list != "" {
		for _, dir := range strings.Split(list, ":") {
			if filepath.IsAbs(dir) {
				add(filepath.Join(dir, "terminfo"))
			}
		}
	}
	below("XDG_DATA_HOME", "terminfo")
	inHome(".local/share/terminfo", ".nix-profile/share/terminfo", ".local/state/nix/profile/share/terminfo", ".guix-profile/share/terminfo")
	add("/run/current-system/sw/share/terminfo", "/nix/var/nix/profiles/default/share/terminfo",
		"/run/current-system/profile/share/terminfo", // Guix
		"/home/linuxbrew/.linuxbrew/share/terminfo")
	if user := env("USER"); validName(user) {
		add("/etc/profiles/per-user/" + user + "/share/terminfo")
	}
	below("HOMEBREW_PREFIX", "share/terminfo", "opt/ncurses/share/terminfo")

	// The terminals' own folders.
	inHome(".local/kitty.app/share/terminfo", ".local/kitty.app/lib/kitty/terminfo", ".cargo/share/terminfo")
	for _, dir := range []string{"kitty", "ghostty", "foot", "alacritty", "wezterm", "contour", "rio", "tmux"} {
		add("/usr/share/"+dir+"/terminfo", "/usr/lib/"+dir+"/terminfo", "/usr/lib64/"+dir+"/terminfo",
			"/opt/"+dir+"/share/terminfo", "/opt/"+dir+"/terminfo", "/usr/local/share/"+dir+"/terminfo")
	}
	add("/opt/kitty.app/share/terminfo", "/opt/kitty.app/lib/kitty/terminfo",
		"/snap/ghostty/current/share/terminfo", "/snap/alacritty/current/usr/share/terminfo",
		"/var/lib/snapd/snap/ghostty/current/share/terminfo",
		"/app/share/terminfo") // inside a Flatpak
	return dirs
}
