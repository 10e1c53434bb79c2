package config

import (
	"strings"
	"testing"
)

func TestAutoApproveRefusesProgramsThatRunOthers(t *testing.T) {
	for _, p := range strings.Fields(`
		sh bash dash zsh fish busybox python python3 python3.11 python3.11-dbg PYTHON3 /usr/bin/python3 perl5.36.0 ruby3.1 node nodejs lua5.4
		awk gawk mawk sed ed git GIT Git /usr/bin/git /usr/bin/../bin/git //usr//bin//git git-upload-pack env /usr/bin/env sudo doas su pkexec
		xargs find fd ssh scp rsync make gmake cmake ninja tar bsdtar docker podman buildah kubectl apt apt-get dpkg rpm dnf
		pip pip3 pip3.11 pipx uv npm npx pnpm yarn cargo go go1.22 gem bundle vi vim vim.basic vim.tiny nvim nano emacs emacs-nox
		less more man nice nohup setsid timeout time watch strace gdb systemd-run systemctl busctl flatpak snap nix nix-shell
		gcc gcc-12 x86_64-linux-gnu-gcc clang++-15 rustc javac java pytest tox jest eslint pre-commit gh crontab at screen tmux
		xdg-open wget socat nc openssl gpg sqlite3 psql sort zip terraform ansible-playbook qemu-system-x86_64 lazaret lazaret-escalate
		ld-linux-x86-64.so.2 /lib64/ld-linux-x86-64.so.2 command exec eval . source`) {
		if err := CheckAutoApprove([]string{p, "--version"}); err == nil {
			t.Errorf("%q is accepted", p)
		} else if !strings.Contains(err.Error(), "needs a person") && !strings.Contains(err.Error(), "need a person") {
			t.Errorf("%q: no reason in %q", p, err)
		}
	}
}

func TestAutoApproveRefusesBadPrefixes(t *testing.T) {
	for name, prefix := range map[string][]string{
		"nothing":                     {},
		"an empty program":            {""},
		"a blank program":             {" "},
		"an empty word":               {"date", ""},
		"a command line in one word":  {"notify-send hello"},
		"a relative path":             {"./date"},
		"a relative path in a folder": {"bin/date"},
		"a directory":                 {"/usr/bin/"},
		"the root":                    {"/"},
		"dot-dot":                     {"/usr/.."},
		"a home":                      {"~/bin/date"},
		"an option":                   {"-x"},
		"an assignment":               {"A=1", "date"},
		"a pipe":                      {"date", "|"},
		"a substitution":              {"date", "$(id)"},
		"a line end":                  {"date", "a\nb"},
		"a backslash":                 {"da\\te"},
		"a control character":         {"date\x1b"},
		"writes any file":             {"cp"},
		"saves what it gets anywhere": {"curl", "--head"},
	} {
		if err := CheckAutoApprove(prefix); err == nil {
			t.Errorf("%s: %q is accepted", name, prefix)
		}
	}
}

func TestAutoApproveAcceptsPlainPrograms(t *testing.T) {
	for _, prefix := range [][]string{
		{"date"},
		{"uptime", "-p"},
		{"notify-send", "--urgency=low"},
		{"ls"},
		{"cat"},
		{"df", "-h"},
		{"/usr/bin/date"},
		{"sha256sum"},
		{"hostname"},
		{"lsusb"},
		{"echo"},
		{"id"},
		{"adb", "devices"},
		{"true"},
		{"whoami"},
		{"xclip"},
	} {
		if err := CheckAutoApprove(prefix); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}
