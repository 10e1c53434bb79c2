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
	ok "apt installs it with what it depends on: $(podman --version), $(dpkg-query -W -f '${Package} ' passt slirp4netns 2>/dev/null || true)"
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
	out=$(user timeout 300 podman run --rm --runtime=lazaret -v /home/dev/project:/workspace -w /workspace localhost/busybox \
		sh -c 'uname -v; echo inside > made; nslookup example.org 2>&1 | head -3; cat /proc/version' 2>&1) || {
		printf '%s\n' "$out" >&2
		cat /tmp/doctor >&2
		die "podman run --runtime=lazaret"
	}
	grep -qi gvisor <<<"$(user timeout 300 podman run --rm --runtime=lazaret localhost/busybox dmesg 2>&1)" || die "it is not gVisor's kernel"
	[[ $(cat /home/dev/project/made) == inside && $(stat -c %U /home/dev/project/made) == dev ]] || die "the workspace: $out"
	ok "an ordinary user starts a guarded sandbox"
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
