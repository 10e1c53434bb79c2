package config

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
)

// runner is a family of programs that an automatic approval must never name,
// and why. A prefix fixes only the first words: the agent writes the rest, and
// also the files of the workspace that such programs read.
type runner struct {
	why   string
	names string // blank-separated; "foo-*" covers every name that begins with "foo-", "*-foo" every name that ends so
}

func runners() []runner {
	return []runner{
		{"is a shell", `sh bash dash ash zsh ksh mksh lksh pdksh oksh ksh93 fish csh tcsh rbash rksh rzsh busybox toybox sash
			elvish nu nushell pwsh powershell xonsh yash osh ysh oil murex ion scsh eshell`},
		{"is an interpreter, which runs any program text", `python pypy ipython bpython python* micropython perl* raku ruby irb jruby node nodejs
			deno bun bunx tsx ts-node php php-cgi lua luajit texlua tclsh wish jimsh expect java javac jshell kotlin kotlinc scala
			scala-cli groovy clojure clj bb r rscript julia guile racket ghci ghc runghc runhaskell erl escript elixir iex ocaml
			sbcl clisp ecl gst swipl gprolog octave gnuplot maxima m4 dc awk gawk mawk nawk original-awk sed gsed ed red
			sqlite sqlite3 psql mysql mariadb mongosh mongo redis-cli ftp lftp lynx links elinks w3m gdb lldb cling ngn qjs quickjs d8 rhino
			dotnet mono csi fsi swift zig crystal nim v forth gforth tex latex pdftex pdflatex xetex xelatex luatex lualatex
			groff troff nroff gs ghostscript starlark cue dhall osascript coffee`},
		{"runs the command that its arguments name", `env sudo sudoedit sudo-rs doas su runuser pkexec run0 please nice ionice nohup setsid timeout
			stdbuf unbuffer time chrt taskset numactl unshare nsenter chroot setpriv capsh setarch linux32 linux64 i386 x86_64
			uname26 prlimit xargs parallel find gfind bfs fd fdfind watch viddy entr watchexec fswatch script
			scriptreplay strace ltrace perf bpftrace valgrind rr flock command exec eval builtin source . trap coproc
			systemd-run systemd-inhibit systemd-cat systemd-nspawn systemd-* systemctl loginctl machinectl busctl dbus-send gdbus
			dbus-run-session dbus-launch qdbus run-parts start-stop-daemon daemonize daemon firejail bwrap bubblewrap proot
			fakeroot fakechroot faketime xvfb-run xdg-open open gio gtk-launch exo-open kde-open kioclient startx xinit xterm
			gnome-terminal konsole alacritty kitty foot ghostty wezterm urxvt rxvt st screen tmux byobu zellij abduco dtach
			at batch atd crontab cron anacron incrontab rlwrap catchsegv sg newgrp cpulimit cgexec chpst softlimit
			envdir runsv runsvdir s6-* execlineb tini dumb-init gosu su-exec direnv dotenv asdf mise nvm pyenv rbenv fzf sk
			hyperfine entr moreutils ifne chronic pee mispipe setuidgid ld.so ld-linux* ldd logsave
			ip ssh-agent gpg gpg2 gpgconf gpg-agent gpgsm openssl pinentry split sort less more most
			pg man info pinfo bat batcat delta lesspipe journalctl zip tcpdump dumpcap nmap ncat socat nc netcat telnet
			wget wget2 aria2c mutt neomutt mail mailx sendmail procmail logrotate rg ugrep ack ag lazaret lazaret-*`},
		{"opens a session on another machine, with commands of its own", `ssh slogin autossh sshpass mosh mosh-client scp sftp rsync rsh rlogin
			rexec pdsh pssh parallel-ssh et teleport tsh tailscale cloudflared ngrok`},
		{"runs hooks, filters and commands out of a repository that the agent writes", `git git-* hg svn bzr brz jj sl fossil darcs cvs gh glab hub tig
			lazygit gitui tea pre-commit repo gerrit etckeeper`},
		{"runs what the build files say, and the agent writes those", `make gmake bmake pmake remake cmake ctest cpack ninja samu meson muon bazel bazelisk
			buck buck2 pants gradle gradlew mvn mvnw mvnd ant sbt mill lein boot rake just task go-task mage scons waf tup redo
			xmake premake qmake autoconf autoreconf automake aclocal autom4te libtool configure dune opam cargo cargo-* rustc
			rustdoc rustup go gotestsum golangci-lint govulncheck dlv gcc g++ cc c++ c89 c99 cpp clang clang++ clang-* tcc
			*-gcc *-g++ *-cc *-cpp *-clang ld gold lld mold ld.* as *-ld ccache sccache distcc node-gyp tsc jest mocha
			ava vitest karma cypress playwright pytest py.test nosetests tox nox hatch unittest coverage mypy pylint
			ruff-* eslint prettier stylelint webpack vite rollup parcel turbo nx lerna gulp grunt bower
			next nuxt astro svelte-kit ng vue expo react-native storybook sphinx-build mkdocs jekyll hugo protoc buf bundle
			rspec cucumber rails phpunit artisan composer behat mix rebar rebar3 stack cabal shake pio platformio arduino-cli
			flutter dart pub fastlane pod xcodebuild debuild dpkg-buildpackage sbuild pbuilder rpmbuild mock makepkg abuild`},
		{"installs packages, whose scripts run", `apt apt-get apt-* aptitude dpkg dpkg-* dselect synaptic nala rpm rpm-* dnf dnf5 microdnf yum zypper
			pacman yay paru makepkg apk emerge ebuild portage xbps-* eopkg swupd opkg pkg pkgin port brew nix nix-* guix
			flatpak snap appimage* pip pip-* pipx uv uvx easy_install poetry pdm pipenv conda mamba micromamba pixi npm npx
			pnpm pnpx yarn yarnpkg corepack gem bundler cpan cpanm luarocks nuget vcpkg conan spack alien debconf ucf
			update-alternatives update-* dkms checkinstall stow`},
		{"starts containers or virtual machines, which see the host", `docker docker-* dockerd podman podman-* buildah nerdctl ctr crictl cri-*
			containerd conmon runc crun youki runsc kata-* lxc lxc-* lxd incus incus-* multipass vagrant packer virsh virt-*
			qemu qemu-* kvm firecracker cloud-hypervisor limactl lima colima minikube kind k3s k3d k9s kubectl kubectl-* oc helm
			helmfile kustomize skaffold tilt distrobox distrobox-* toolbox apptainer singularity charliecloud udocker
			devcontainer terraform tofu terragrunt pulumi ansible ansible-* salt salt-* puppet chef cdk nomad`},
		{"is an archiver that can run programs and overwrite files anywhere", `tar gtar bsdtar star cpio bsdcpio pax 7z 7za 7zr`},
		{"writes any file, also those that are run or read as settings later", `cp mv dd tee install ln patch curl curlie http https xh
			unzip gunzip unxz bunzip2 unzstd gzip bzip2 xz zstd uncompress unrar unar ar csplit sponge truncate shred
			objcopy strip ldconfig xxd uudecode iconv setfacl setfattr chmod chown crudini yq`},
		{"is an editor, which starts programs and writes any file", `vi vim* nvim neovim view rview rvim vimdiff ex elvis nvi vile gvim nano rnano pico
			emacs emacs-* emacsclient jed joe jmacs jstar rjoe mg micro helix hx kak kakoune code codium cursor subl
			sublime_text gedit kate kwrite mousepad geany lapce zed zeditor sensible-* editor select-editor visudo vipw vigr
			edit acme sam mcedit mc ranger nnn lf vifm`},
	}
}

// CheckAutoApprove tells why prefix, the first words of an argv, must not be
// approved without a person; nil means that it may be. The list of programs
// cannot be complete: a prefix is a promise of the developer, and this catches
// those that would give everything away.
func CheckAutoApprove(prefix []string) error {
	if len(prefix) == 0 {
		return errors.New("an empty prefix would approve every command")
	}
	for i, w := range prefix {
		if w == "" || strings.TrimSpace(w) == "" {
			return fmt.Errorf("word %d is empty: each word of the command is one string", i+1)
		}
		for _, r := range w {
			if strings.ContainsRune(";|&$`><\\", r) || unicode.IsControl(r) {
				return fmt.Errorf("%q holds %q: commands with shell metacharacters are never approved automatically", w, r)
			}
		}
	}
	prog := prefix[0]
	if strings.IndexFunc(prog, unicode.IsSpace) >= 0 {
		return fmt.Errorf("%q has a blank in the program's name: write each word as its own string, such as [\"notify-send\", \"--urgency=low\"]", prog)
	}
	if strings.Contains(prog, "/") && !strings.HasPrefix(prog, "/") {
		return fmt.Errorf("%q is a relative path, which may lead into the workspace: write the program's name or an absolute path", prog)
	}
	if strings.Contains(prog, "=") || strings.HasPrefix(prog, "-") || strings.HasPrefix(prog, "~") {
		return fmt.Errorf("%q is not a program's name", prog)
	}
	base := strings.ToLower(path.Base(prog))
	if base == "/" || base == ".." || strings.HasSuffix(prog, "/") {
		return fmt.Errorf("%q is a directory, not a program", prog)
	}
	spellings := programSpellings(base)
	for _, r := range runners() {
		for _, name := range strings.Fields(r.names) {
			for _, s := range spellings {
				if matchName(name, s) {
					return fmt.Errorf("%q %s: commands of it need a person's approval each time", prog, r.why)
				}
			}
		}
	}
	return nil
}

// programSpellings strips versions and variants: python3.11 and vim.basic are
// python and vim, gcc-12 is gcc, clang++-15 is clang++.
func programSpellings(base string) []string {
	out := []string{base}
	add := func(s string) {
		if s != "" {
			out = append(out, s)
		}
	}
	add(strings.TrimRight(base, "0123456789.-_"))
	if dot := strings.IndexByte(base, '.'); dot > 0 {
		add(base[:dot])
		add(strings.TrimRight(base[:dot], "0123456789-_"))
	}
	return out
}

func matchName(pattern, name string) bool {
	if p, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, p)
	}
	if p, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(name, p)
	}
	return name == pattern
}

// prefixesUncovered returns the prefixes of list that begin with none of by.
func prefixesUncovered(list, by [][]string) [][]string {
	var out [][]string
next:
	for _, p := range list {
		for _, b := range by {
			if len(b) <= len(p) && equalWords(b, p[:len(b)]) {
				continue next
			}
		}
		out = append(out, p)
	}
	return out
}

func equalWords(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
