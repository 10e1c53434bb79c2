#!/usr/bin/env bash
# Prepares a Debian machine for Lazaret's tests, benchmarks and demo.
#
# Installs only what is missing, so a second run takes about a second. Run it as
# root, or as an ordinary user who may use sudo:
#   root           a test user "lazaret-test" is made; tests run as that user
#   ordinary user  tests run as this user, with stores and settings of their own
#
# With --tools it also makes the image that the git tests and the benchmark need:
# some minutes the first time. With --also come the Debian packages named after it,
# which one target of make's needs and the tests do not.
#
# What it leaves behind (remove it with: test/scripts/setup.sh --undo):
#   Debian packages              see PACKAGES below
#   /usr/local/lib/lazaret-test  the pinned runsc
#   /usr/local/bin/runsc         a link to it, only where there was no runsc
#   /var/cache/lazaret-test      root trees of the test images
#   /var/lib/lazaret-test        root's image store
#   ~/.local/share/lazaret-test  the test user's image store
set -euo pipefail

readonly TEST_USER=lazaret-test
# Keep these four in step with test/e2e/harness/machine.go.
readonly RUNSC=/usr/local/lib/lazaret-test/runsc
readonly BUSYBOX_IMAGE=localhost/lazaret-test/busybox:1
readonly DEBIAN_IMAGE=localhost/lazaret-test/debian:1
readonly TOOLS_IMAGE=localhost/lazaret-test/tools:1

readonly RUNSC_MODULE=gvisor.dev/gvisor
readonly RUNSC_VERSION=v0.0.0-20260905035102-160fafc42237
readonly CACHE=/var/cache/lazaret-test
readonly ROOT_STORE=/var/lib/lazaret-test/storage
readonly DEBIAN_SUITE=trixie
readonly OLDER_SUITE=bookworm

# passt and runsc are not in every Debian release: those two may be missing.
readonly PACKAGES=(podman conmon runc catatonit netavark aardvark-dns iptables fuse-overlayfs uidmap slirp4netns
	nftables iproute2
	busybox-static debootstrap debian-archive-keyring tmux shellcheck git jq make
	util-linux procps ca-certificates ncurses-bin dbus-daemon
	default-jdk-headless libjgit-java)
readonly OPTIONAL_PACKAGES=(passt runsc)

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly repo
work=
sudo=()
user=
home=
uid=
started=$SECONDS

say() { printf 'setup: %s\n' "$*"; }
die() {
	printf 'setup: error: %s\n' "$*" >&2
	exit 1
}

# as_user runs a command as the test user in a clean environment, from / since
# the checkout may be in a place that this user cannot read.
as_user() {
	local clean=(env -i "HOME=$home" "USER=$user" "LANG=C.UTF-8" "XDG_RUNTIME_DIR=/run/user/$uid"
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
	if [[ -S /run/user/$uid/bus ]]; then
		clean+=("DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$uid/bus")
	fi
	if ((EUID == 0)); then
		(cd / && setpriv --reuid="$uid" --regid="$(id -g "$user")" --init-groups "${clean[@]}" "$@")
	else
		(cd / && "${clean[@]}" "$@")
	fi
}

who() {
	if ((EUID == 0)); then
		user=$TEST_USER
		return
	fi
	user=$(id -un)
	sudo=(sudo -n)
	# A cached or password-less sudo is used silently; only a terminal is asked.
	if ! sudo -n true 2>/dev/null; then
		[[ -t 0 ]] || die "this user needs sudo without a password, or run this once in a terminal"
		sudo=(sudo)
	fi
}

# packages installs what is missing of PACKAGES and of the packages that it is given.
packages() {
	local missing=() p
	for p in "${PACKAGES[@]}" "$@"; do
		installed "$p" || missing+=("$p")
	done
	local optional=()
	for p in "${OPTIONAL_PACKAGES[@]}"; do
		installed "$p" || optional+=("$p")
	done
	((${#missing[@]} + ${#optional[@]} > 0)) || return 0
	command -v apt-get >/dev/null || die "not a Debian machine: install ${missing[*]} ${optional[*]} yourself"
	# What a release lacks would be looked for again at each run: remember it.
	local marker=$CACHE/not-in-this-release
	if ((${#missing[@]} == 0)) && [[ -f $marker ]]; then
		[[ $(<"$marker") != "${optional[*]}" ]] || return 0
	fi
	say "apt-get update"
	"${sudo[@]}" apt-get -qq update
	local absent=()
	for p in "${optional[@]}"; do
		if [[ -n $(apt-cache policy "$p" 2>/dev/null | sed -n 's/^ *Candidate: *\((none)\)\?//p') ]]; then
			missing+=("$p")
		else
			absent+=("$p")
		fi
	done
	if ((${#absent[@]} > 0)); then
		say "not in this Debian release, tests that need it will say so: ${absent[*]}"
		"${sudo[@]}" install -d -m 0755 "$CACHE"
		"${sudo[@]}" tee "$marker" >/dev/null <<<"${absent[*]}"
	fi
	if ((${#missing[@]} > 0)); then
		say "installing ${missing[*]}"
		"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "${missing[@]}" >/dev/null
	fi
}

installed() { [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null) == "ii " ]]; }

# go_command finds a Go that can build this module: an older one is enough where
# it may fetch the toolchain that go.mod names.
go_command() {
	local g
	for g in "${GO:-go}" /usr/local/go/bin/go /usr/lib/go/bin/go; do
		if command -v "$g" >/dev/null && (cd "$repo" && "$g" list -m) >/dev/null 2>&1; then
			command -v "$g"
			return
		fi
	done
	die "Go $(sed -n 's/^go //p' "$repo/go.mod") or newer is needed (Debian 13: apt-get install golang-go, then GOTOOLCHAIN=auto)"
}

gvisor() {
	if [[ -x $RUNSC ]] && [[ $("$RUNSC" --version 2>/dev/null) == *"${RUNSC_VERSION#v}"* ]]; then
		link_runsc
		return
	fi
	local go t=$SECONDS
	go=$(go_command)
	say "building runsc $RUNSC_VERSION (some minutes the first time)"
	(cd "$work" && env CGO_ENABLED=0 GOBIN="$work" GOFLAGS=-buildvcs=false "$go" install \
		-ldflags "-s -w -X $RUNSC_MODULE/runsc/version.version=${RUNSC_VERSION#v}" \
		"$RUNSC_MODULE/runsc@$RUNSC_VERSION")
	"${sudo[@]}" install -D -m 0755 "$work/runsc" "$RUNSC"
	link_runsc
	say "runsc is at $RUNSC ($((SECONDS - t)) s)"
}

link_runsc() {
	if [[ ! -e /usr/local/bin/runsc && ! -L /usr/local/bin/runsc ]]; then
		"${sudo[@]}" ln -s "$RUNSC" /usr/local/bin/runsc
		say "linked /usr/local/bin/runsc to it"
	fi
}

account() {
	if ! id "$user" >/dev/null 2>&1; then
		useradd --create-home --shell /bin/bash --comment "Lazaret tests" "$user"
		say "made the user $user"
	fi
	uid=$(id -u "$user")
	home=$(getent passwd "$user" | cut -d: -f6)
	local kind
	for kind in uid gid; do
		grep -q "^$user:" "/etc/sub$kind" 2>/dev/null && continue
		# Above every range that is in use.
		local from
		from=$(awk -F: 'BEGIN { m = 100000 } { if ($2 + $3 > m) m = $2 + $3 } END { print m }' /etc/subuid /etc/subgid 2>/dev/null || echo 100000)
		"${sudo[@]}" usermod "--add-sub${kind}s" "$from-$((from + 65535))" "$user"
		say "gave $user sub${kind}s from $from"
	done
	local run=/run/user/$uid
	if [[ ! -d $run ]]; then
		if [[ -d /run/systemd/system ]] && command -v loginctl >/dev/null; then
			"${sudo[@]}" loginctl enable-linger "$user"
			local i
			for ((i = 0; i < 50; i++)); do
				[[ ! -d $run ]] || break
				sleep 0.1
			done
		fi
		if [[ ! -d $run ]]; then
			"${sudo[@]}" install -d -m 0755 /run/user
			"${sudo[@]}" install -d -m 0700 -o "$user" -g "$(id -g "$user")" "$run"
		fi
		say "made $run"
	fi
}

devices() {
	local d
	for d in /dev/fuse /dev/net/tun; do
		if [[ ! -c $d ]]; then
			local module=${d##*/}
			"${sudo[@]}" modprobe "$module" 2>/dev/null || true
		fi
		[[ -c $d ]] || die "$d is missing: load its kernel module"
		if [[ $(stat -c %a "$d") != 666 ]]; then
			"${sudo[@]}" chmod 0666 "$d"
			say "opened $d to every user"
		fi
	done
	local knob=/proc/sys/kernel/unprivileged_userns_clone
	if [[ -r $knob && $(<"$knob") == 0 ]]; then
		"${sudo[@]}" tee "$knob" >/dev/null <<<1
		say "allowed user namespaces to ordinary users until the next boot"
	fi
}

# busybox_tree makes the root tree of the small image.
busybox_tree() {
	local root=$work/busybox applet
	mkdir -p "$root"/{bin,dev,etc,home/agent,opt,proc,root,run,sys,tmp,usr/bin,usr/lib,usr/local/bin,usr/share,var/lib,var/tmp}
	cp /bin/busybox "$root/bin/busybox"
	for applet in $(/bin/busybox --list); do
		[[ $applet == busybox ]] || ln -s busybox "$root/bin/$applet"
	done
	ln -s /bin/env "$root/usr/bin/env"
	printf 'root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n' >"$root/etc/passwd"
	printf 'root:x:0:\nagent:x:1000:\n' >"$root/etc/group"
	chmod 1777 "$root/tmp" "$root/var/tmp"
	tar -C "$root" --owner=0 --group=0 --mtime=@0 -cf "$1" .
}

# site is the mirror that this machine's apt uses; apt expands the format itself.
site() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(SITE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
		awk '$2 == "main" && $1 !~ /security/ { print $1; exit }'
}

# debian_tree makes the root tree of the image with git, tmux, vim and terminfo tools.
debian_tree() {
	local root=$work/debian site mirror=()
	site=$(site)
	[[ -z $site ]] || mirror=("$site")
	if ! "${sudo[@]}" debootstrap --variant=minbase \
		--include=git,ncurses-bin,tmux,vim-tiny,procps,python3-minimal \
		"$DEBIAN_SUITE" "$root" "${mirror[@]}" >"$work/debootstrap.log" 2>&1; then
		tail -n 20 "$work/debootstrap.log" >&2
		die "debootstrap failed"
	fi
	"${sudo[@]}" tar -C "$root" --exclude='./var/cache/apt/*' --exclude='./usr/share/doc/*' \
		--exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' --exclude='./dev/*' -cf "$1" .
	"${sudo[@]}" rm -rf --one-file-system "$root"
}

# tools_tree adds to the debian image what people use beside git, an older git
# (/opt/git-bookworm), and packages of npm's with a cache of them (/opt/node).
tools_tree() {
	local root=$work/tools log=$work/tools.log
	tree debian
	mkdir "$root"
	"${sudo[@]}" tar -C "$root" -xpf "$CACHE/debian-1.tar"
	"${sudo[@]}" install -d "$root/opt/node"
	"${sudo[@]}" install -m 0644 "$repo"/test/clients/node/package{,-lock}.json "$root/opt/node"
	"${sudo[@]}" install -m 0644 /etc/resolv.conf "$root/etc/resolv.conf"
	# The machine's own authorities: its registry may be a mirror.
	"${sudo[@]}" install -m 0644 /etc/ssl/certs/ca-certificates.crt "$root/opt/ca.crt"
	"${sudo[@]}" tee "$root/etc/dpkg/dpkg.cfg.d/tests" <<<force-unsafe-io >/dev/null
	"${sudo[@]}" tee "$root/usr/sbin/policy-rc.d" <<<$'#!/bin/sh\nexit 101' >/dev/null
	"${sudo[@]}" chmod 0755 "$root/usr/sbin/policy-rc.d"
	# shellcheck disable=SC2016 # the script inside has arguments of its own
	if ! "${sudo[@]}" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive \
		chroot "$root" bash -euxc '
			sed -i "s/ $1 / $2 /w /etc/apt/sources.list.d/older.list" /etc/apt/sources.list
			sed -i "s/ $2 / $1 /" /etc/apt/sources.list
			apt-get -qq update
			apt-get -qq -y --no-install-recommends -t "$1" install ca-certificates ripgrep nodejs npm python3-pygit2
			cd /tmp
			apt-get -qq -o APT::Sandbox::User=root download "git/$2"
			dpkg-deb -x git_*.deb "/opt/git-$2"
			rm git_*.deb /etc/apt/sources.list.d/older.list
			rm -rf /var/lib/apt/lists/*
			cd /opt/node
			npm ci --ignore-scripts --no-fund --no-audit --cache /opt/node/cache --cafile /opt/ca.crt
		' tools "$DEBIAN_SUITE" "$OLDER_SUITE" >"$log" 2>&1; then
		tail -n 20 "$log" >&2
		die "making the tools image failed"
	fi
	"${sudo[@]}" rm -f "$root/etc/dpkg/dpkg.cfg.d/tests" "$root/usr/sbin/policy-rc.d" "$root/opt/ca.crt"
	"${sudo[@]}" tar -C "$root" --exclude='./var/cache/apt/*' --exclude='./usr/share/doc/*' \
		--exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' --exclude='./dev/*' -cf "$1" .
	"${sudo[@]}" rm -rf --one-file-system "$root"
}

# tree NAME makes the named root tree unless it is there from an earlier run.
tree() {
	local name=$1 tar=$CACHE/$1-1.tar t=$SECONDS
	[[ ! -f $tar ]] || return 0
	say "making the root tree of the $name image"
	"${name}_tree" "$work/$name.tar"
	"${sudo[@]}" install -D -m 0644 "$work/$name.tar" "$tar.new"
	"${sudo[@]}" mv "$tar.new" "$tar"
	"${sudo[@]}" rm -f "$work/$name.tar"
	say "$tar ($((SECONDS - t)) s)"
}

# The rootless store is shared read-only by all tests, each of which has a store of its own.
user_podman() {
	as_user podman --root "$home/.local/share/lazaret-test/storage" --runroot "/run/user/$uid/lazaret-test" \
		--storage-driver overlay "$@"
}

root_podman() {
	"${sudo[@]}" env -C / podman --root "$ROOT_STORE" --runroot /run/lazaret-test --storage-driver overlay "$@"
}

# images NAME… imports the test images for the test user and for root.
images() {
	local name image store have
	local -A image_of=([busybox]=$BUSYBOX_IMAGE [debian]=$DEBIAN_IMAGE [tools]=$TOOLS_IMAGE)
	for store in user root; do
		have=$("${store}_podman" images --format '{{.Repository}}:{{.Tag}}' 2>/dev/null || true)
		for name in "$@"; do
			image=${image_of[$name]}
			grep -qxF "$image" <<<"$have" && continue
			# No test of root's needs the tools.
			[[ $store != root || $name != tools ]] || continue
			tree "$name"
			"${store}_podman" import -q "$CACHE/$name-1.tar" "$image" >/dev/null
			say "imported $image for $store"
		done
	done
}

undo() {
	uid=$(id -u "$user" 2>/dev/null) || uid=
	if [[ -n $uid ]]; then
		home=$(getent passwd "$user" | cut -d: -f6)
		if [[ -d $home/.local/share/lazaret-test ]]; then
			as_user podman unshare rm -rf "$home/.local/share/lazaret-test"
		fi
	fi
	[[ $(readlink /usr/local/bin/runsc 2>/dev/null) != "$RUNSC" ]] || "${sudo[@]}" rm /usr/local/bin/runsc
	"${sudo[@]}" rm -rf --one-file-system "$CACHE" /var/lib/lazaret-test "${RUNSC%/*}"
	say "removed images and runsc; packages and the user $TEST_USER stay"
}

main() {
	who
	local images=(busybox debian) also=()
	case ${1:-} in
	"") ;;
	--tools) images+=(tools) ;;
	--also) also=("${@:2}") ;;
	--undo)
		undo
		return
		;;
	*) die "usage: setup.sh [--tools|--also PACKAGE…|--undo]" ;;
	esac
	# Two runs at once would import the same images twice.
	local lock=${XDG_CACHE_HOME:-$HOME/.cache}/lazaret
	mkdir -p "$lock"
	exec 9>"$lock/setup.lock"
	flock 9
	work=$(mktemp -d /var/tmp/lazaret-setup.XXXXXXXX)
	trap '"${sudo[@]}" rm -rf --one-file-system "$work"' EXIT
	packages "${also[@]}"
	account
	devices
	gvisor
	images "${images[@]}"
	say "ready in $((SECONDS - started)) s: tests run as $user, runsc is $("$RUNSC" --version | sed -n '1s/^runsc version //p')"
}

main "$@"
