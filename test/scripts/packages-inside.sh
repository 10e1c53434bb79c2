#!/usr/bin/env bash
# The life of the package in a clean Debian tree; packages.sh runs it in there as root.
#   packages-inside.sh SUITE [alone]      alone: without what the package depends on
set -euo pipefail
suite=$1 alone=${2:-}
readonly DROPIN=/etc/containers/containers.conf.d/50-lazaret.conf
die() {
	printf 'packages: FAIL: %s: %s\n' "$suite" "$*" >&2
	exit 1
}
ok() { printf 'ok: %s: %s\n' "$suite" "$*"; }
quiet() { "$@" >/tmp/log 2>&1 || {
	tail -n 40 /tmp/log >&2
	die "$*"
}; }

# As a container's image has it: nothing is started by packages.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 0755 /usr/sbin/policy-rc.d
echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/tests
if [[ -z $alone ]]; then
	quiet apt-get -qq -o APT::Sandbox::User=root update
	apt() { quiet apt-get -qq -y --no-install-recommends -o APT::Sandbox::User=root "$@"; }
else
	apt() {
		case $1 in
		install) quiet dpkg --force-depends -i "$2" ;;
		remove) quiet dpkg -r "$2" ;;
		purge) quiet dpkg -P "$2" ;;
		esac
	}
fi

# Install: apt finds what the package depends on.
apt install /files/lazaret_0.0.1*.deb
if [[ -z $alone ]]; then
	for p in podman runc uidmap; do
		[[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$p") == ii* ]] || die "$p did not come with it"
	done
	ok "apt installs it with what it depends on: $(podman --version), $(dpkg-query -W -f '${db:Status-Abbrev}${Package} ' passt slirp4netns 2>/dev/null || true)"
fi
[[ $(lazaret --version) == *0.0.1* ]] || die "version: $(lazaret --version)"
lazaret-runtime --version >/dev/null || die "lazaret-runtime does not run"
[[ -f $DROPIN ]] || die "no $DROPIN after the install: $(cat /tmp/log)"
[[ $(stat -c '%U:%a' "$DROPIN") == root:644 ]] || die "owner and mode of the drop-in: $(stat -c '%U:%a' "$DROPIN")"
cp "$DROPIN" /tmp/dropin
[[ $(lazaret init --scope system) == "already registered"* ]] || die "the drop-in is not what lazaret init --scope system writes"
grep -q '"/usr/bin/lazaret-runtime"' "$DROPIN" || die "the drop-in names another runtime"
ok "the drop-in is what lazaret init --scope system writes"
[[ -f /usr/share/man/man1/lazaret.1 && -f /usr/share/man/man8/lazaret-runtime.8 ]] || die "no man pages"
bash -c '. /usr/share/bash-completion/completions/lazaret && complete -p lazaret' >/dev/null || die "bash has no completion"
dpkg --verify lazaret || die "dpkg --verify"

# Use: a sandbox of an ordinary user, who was made after the install.
useradd --create-home --shell /bin/bash dev
uid=$(id -u dev)
install -d -m 0700 -o dev -g dev "/run/user/$uid"
user() {
	(cd /home/dev && setpriv --reuid="$uid" --regid="$(id -g dev)" --init-groups env -i HOME=/home/dev USER=dev LC_ALL=C.UTF-8 \
		XDG_RUNTIME_DIR="/run/user/$uid" PATH=/usr/local/bin:/usr/bin:/bin "$@")
}

use() {
	install -m 0755 /files/runsc /usr/local/bin/runsc
	grep -q '^dev:' /etc/subuid || usermod --add-subuids 200000-265535 --add-subgids 200000-265535 dev
	user mkdir -p /home/dev/.config/containers /home/dev/project
	# The tree is on memory, on which vfs needs nothing of the kernel.
	printf '[storage]\ndriver = "vfs"\n' | user tee /home/dev/.config/containers/storage.conf >/dev/null
	printf '[engine]\nevents_logger = "file"\ncgroup_manager = "cgroupfs"\n[containers]\nlog_driver = "k8s-file"\n' |
		user tee /home/dev/.config/containers/containers.conf >/dev/null
	user lazaret doctor >/tmp/doctor || true
	grep -E '^ok +registration' /tmp/doctor >/dev/null || {
		cat /tmp/doctor >&2
		die "lazaret doctor does not find it registered"
	}
	user timeout 120 podman import -q /files/busybox.tar localhost/busybox >/dev/null 2>/tmp/log || {
		cat /tmp/log >&2
		die "podman import"
	}
	# A repository, as git init makes it.
	user sh -c 'cd project && mkdir -p .git/objects .git/refs/heads .git/hooks && echo "ref: refs/heads/main" >.git/HEAD &&
		printf "[core]\n\trepositoryformatversion = 0\n" >.git/config && cp .git/config ../config.was'
	main_path
}

# box ARGUMENTS runs podman with lazaret on the project, and puts what it prints in out.
box() {
	local status=0
	out=$(user timeout 300 podman run --runtime=lazaret -v /home/dev/project:/workspace -w /workspace "$@" 2>&1) || status=$?
	return $status
}

# told ends with what was seen, as another try would show something else.
told() {
	printf '%s\n--- doctor:\n' "${out:-}" >&2
	cat /tmp/doctor >&2
	die "$@"
}

# main_path is what a sandbox is for, with the podman of this release.
main_path() {
	local version status
	version=$(podman --version)
	case $suite in
	bookworm) [[ $version == *" 4."* ]] || die "bookworm's podman is $version" ;;
	trixie) [[ $version == *" 5."* ]] || die "trixie's podman is $version" ;;
	esac

	box --rm localhost/busybox sh -c 'echo inside >made; dmesg' || told "podman run --runtime=lazaret"
	grep -qi gvisor <<<"$out" || told "it is not gVisor's kernel"
	[[ $(cat /home/dev/project/made) == inside && $(stat -c %U /home/dev/project/made) == dev ]] || told "the workspace"
	ok "an ordinary user starts a sandbox: $version"

	box --rm localhost/busybox sh -c '
		echo x >>.git/config && echo config was written
		mv .git other && echo .git was moved
		mkdir -p .vscode; echo x >.vscode/tasks.json
		echo x >.git/hooks/pre-commit || echo hooks are refused
		echo kept >/usr/kept' || told "a guarded repository"
	! grep -q 'was written\|was moved\|hooks are' <<<"$out" || told "the guard"
	cmp /home/dev/project/.git/config /home/dev/config.was || told "git's configuration"
	[[ -z $(ls -A /home/dev/project/.git/hooks) && ! -e /home/dev/project/.vscode ]] || told "planted: $(ls -AR /home/dev/project)"
	box --rm localhost/busybox cat /usr/kept || told "what was installed is not kept"
	ok "the guard holds, and what was installed is kept: $version"

	box --rm localhost/busybox sh -c '
		grep -q "nameserver 198\.18\." /etc/resolv.conf || echo another resolver
		nslookup example.org 2>&1 | grep -q NXDOMAIN || echo no answer for a name
		! wget -q -T 5 -O /dev/null http://192.0.2.1 || echo an address was reached' || told "the filtered network"
	! grep -q 'another resolver\|no answer\|was reached' <<<"$out" || told "the filtered network"
	ok "the network is filtered: $version"

	status=0
	box --rm localhost/busybox /nosuch || status=$?
	((status == 127)) || told "a missing command: status $status"
	box -d --name box localhost/busybox sleep 300 || told "podman run -d"
	out=$(user timeout 60 podman exec -w /workspace box sh -c 'cat made; env' 2>&1) || told "podman exec"
	[[ $out == *inside*LAZARET_SESSION_ID=????????-* ]] || told "podman exec"
	status=0
	user timeout 60 podman exec box sh -c 'lazaret-escalate --timeout 1s -- true; exit $?' >/tmp/log 2>&1 || status=$?
	out=$(cat /tmp/log)
	((status == 124)) || told "an escalation that nobody answers: status $status"
	user timeout 60 podman rm -f -t 1 box >/dev/null || told "podman rm"
	status=0
	out=$(user sh -c 'cd project && exec timeout 300 lazaret run --image localhost/busybox -- sh -c "cat made; exit 7"' 2>&1) || status=$?
	[[ $status:$out == 7:*inside* ]] || told "lazaret run: status $status"
	ok "podman exec, lazaret-escalate and lazaret run work: $version"

	out=$(user lazaret audit verify -w project 2>&1) || told "lazaret audit verify"
	for ((i = 0; i < 100; i++)); do
		out=$(user lazaret status 2>&1) || true
		[[ $out != "no domain is in use"* ]] || break
		sleep 0.1
	done
	((i < 100)) || told "a domain is still in use"
	ok "nothing runs on, and the audit is whole: $version"
}
if [[ -z $alone ]]; then use; fi
user mkdir -p /home/dev/.local/share/lazaret

# Upgrade: the drop-in follows; one that was changed by hand is left alone.
apt install /files/lazaret_0.0.2*.deb
[[ $(dpkg-query -W -f '${Version}' lazaret) == 0.0.2* ]] || die "version after the upgrade: $(dpkg-query -W lazaret)"
cmp "$DROPIN" /tmp/dropin || die "the upgrade changed the drop-in"
rm "$DROPIN"
quiet dpkg --force-depends -i /files/lazaret_0.0.2*.deb
cmp "$DROPIN" /tmp/dropin || die "configuring it again does not write the drop-in"
echo '# mine' >>"$DROPIN"
quiet dpkg --force-depends -i /files/lazaret_0.0.1*.deb
grep -q '^# mine' "$DROPIN" || die "a downgrade has overwritten what was changed by hand"
grep -q 'not as lazaret init wrote it' /tmp/log || die "the downgrade does not say why the drop-in stays: $(cat /tmp/log)"
quiet dpkg --force-depends -i /files/lazaret_0.0.2*.deb
: >"$DROPIN"
quiet dpkg --force-depends -i /files/lazaret_0.0.2*.deb
[[ -f $DROPIN && ! -s $DROPIN ]] || die "an empty drop-in, which opts out, was replaced"
ok "upgrade and downgrade keep the drop-in, and leave a changed one alone"

# Remove: an intact drop-in goes, a changed one stays until the purge.
cp /tmp/dropin "$DROPIN"
apt remove lazaret
[[ ! -e $DROPIN ]] || die "the drop-in is left after remove"
[[ -n $alone ]] || user timeout 60 podman info >/dev/null || die "podman does not work after remove"
[[ -z $(find /usr -path '*lazaret*' ! -path /usr/local/bin/runsc 2>/dev/null) ]] || die "left in /usr: $(find /usr -path '*lazaret*')"
apt install /files/lazaret_0.0.2*.deb
cmp "$DROPIN" /tmp/dropin || die "install after remove does not register"
echo '# mine' >>"$DROPIN"
apt remove lazaret
[[ -e $DROPIN ]] || die "remove took a drop-in that was changed by hand"
[[ -d /home/dev/.local/share/lazaret ]] || die "remove took the user's data"
apt purge lazaret
[[ ! -e $DROPIN ]] || die "the drop-in is left after purge"
! dpkg-query -W lazaret >/dev/null 2>&1 || [[ $(dpkg-query -W -f '${db:Status-Abbrev}' lazaret) == un* ]] || die "dpkg still knows it"
[[ -z $(find /etc /usr /var/lib /var/cache -xdev -path '*lazaret*' ! -path '/var/lib/apt/*' 2>/dev/null) ]] ||
	die "left after purge: $(find /etc /usr /var/lib /var/cache -xdev -path '*lazaret*')"
[[ -d /home/dev/.local/share/lazaret ]] || die "purge took the user's data"
ok "remove and purge leave nothing but the users' data"

# The archive.
mkdir /tmp/archive
tar -C /tmp/archive -xzf /files/lazaret-0.0.1*-linux-*.tar.gz
cd /tmp/archive/lazaret-*
quiet ./install.sh
[[ $(lazaret --version) == *0.0.1* && $(command -v lazaret) == /usr/local/bin/lazaret ]] || die "install.sh: $(command -v lazaret)"
user lazaret init >/dev/null || die "lazaret init after install.sh"
quiet ./install.sh --uninstall
rm -f /home/dev/.config/containers/containers.conf.d/50-lazaret.conf
[[ -z $(find /usr/local -name '*lazaret*') ]] || die "install.sh --uninstall leaves $(find /usr/local -name '*lazaret*')"
quiet ./install.sh --prefix /opt/l --destdir /tmp/dest
[[ -x /tmp/dest/opt/l/libexec/lazaret/lazaret-coordinator ]] || die "install.sh --prefix --destdir"
printf x >>share/doc/lazaret/README.md
! ./install.sh --prefix /opt/l >/tmp/log 2>&1 || die "install.sh installs a damaged archive"
grep -q damaged /tmp/log || die "install.sh on a damaged archive: $(cat /tmp/log)"
[[ ! -e /opt/l ]] || die "install.sh has installed part of a damaged archive"
ok "install.sh installs, removes, and refuses a damaged archive"
