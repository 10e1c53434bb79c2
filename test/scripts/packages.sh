#!/usr/bin/env bash
# Tests the packages in clean Debian trees, one for each of SUITES, with the packages of the
# distribution that they depend on: install, a sandbox started by an ordinary user, upgrade,
# remove, purge; the archive's install.sh; what the rpm holds. Root only; minutes.
#   SUITES="trixie bookworm" packages.sh
#   ALONE=1 packages.sh      without the distribution's packages and a sandbox: needs no network
# The trees are minimal ones of debootstrap's, kept in CACHE; each test has a copy on a
# temporary file system with namespaces of its own, so it leaves nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=test/scripts/lib.sh
. test/scripts/lib.sh

readonly CACHE=/var/cache/lazaret-test
readonly RUNSC=/usr/local/lib/lazaret-test/runsc
ALONE=${ALONE:+alone}
default="trixie bookworm"
[[ -z $ALONE ]] || default=trixie
SUITES=${SUITES:-$default}
ARCH=$("$GO" env GOHOSTARCH)
passed=0

die() {
	printf 'packages: FAIL: %s\n' "$*" >&2
	exit 1
}
held() {
	passed=$((passed + 1))
	printf 'ok: %s\n' "$*"
}
((EUID == 0)) || die "it makes chroots and namespaces: run it as root"
for tool in debootstrap dpkg-deb unshare rpm; do
	command -v "$tool" >/dev/null || die "$tool is missing: run test/scripts/setup.sh --also rpm"
done

work=$(mktemp -d /var/tmp/lazaret-packages.XXXXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT

# DIST names what an earlier VERSION=0.0.1-dev packaging/dist.sh made.
if [[ -n ${DIST:-} ]]; then
	cp -r "$DIST" "$work/dist"
else
	GO="$GO" VERSION=0.0.1-dev OUT=$work/dist packaging/dist.sh "$ARCH" >/dev/null
fi
(cd "$work/dist" && sha256sum --quiet --strict -c SHA256SUMS) || die "SHA256SUMS"
held "dist for $ARCH, and its SHA256SUMS"
deb=$(echo "$work"/dist/*.deb)
# A newer version of the same programs, to have something to upgrade to.
dpkg-deb -R "$deb" "$work/newer"
sed -i 's/^Version: .*/Version: 0.0.2~dev/' "$work/newer/DEBIAN/control"
dpkg-deb -Zgzip -z1 --root-owner-group -b "$work/newer" "$work/lazaret_0.0.2~dev_$ARCH.deb" >/dev/null
rm -r "$work/newer"
rpm=$(echo "$work"/dist/*.rpm)
tarball=$(echo "$work"/dist/*.tar.gz)

# What is in them, against the archive's own list.
listed=$(tar -xOzf "$tarball" --wildcards '*/SHA256SUMS' | awk '{print $2}' | grep -E '^(bin|lib|libexec|share)/' | sort)
[[ $(grep -c '^bin/' <<<"$listed") == 2 && $(grep -c '^libexec/lazaret/' <<<"$listed") == 4 ]] || die "programs of the archive: $listed"
for f in share/man/man1/lazaret.1 share/man/man8/lazaret-runtime.8 share/bash-completion/completions/lazaret \
	share/zsh/site-functions/_lazaret share/fish/vendor_completions.d/lazaret.fish lib/systemd/user/lazaret-console.service \
	share/doc/lazaret/example.toml share/doc/lazaret/README.md share/doc/lazaret/THIRD_PARTY_LICENSES share/doc/lazaret/docs/install.md; do
	grep -qxF "$f" <<<"$listed" || die "$f is not in the archive"
done
in_deb=$(dpkg-deb --fsys-tarfile "$deb" | tar -t | sed -n 's|^\./usr/\(.*[^/]\)$|\1|p' | sort)
diff <(printf '%s\n' "$listed" share/doc/lazaret/copyright | sort) - <<<"$in_deb" || die "deb and archive hold other files"
! dpkg-deb --fsys-tarfile "$deb" | tar -tv | grep -v ' root/root ' || die "files of the deb that are not root's"
held "programs, man pages, completions, systemd unit, documents and example are in deb and archive"
diff <(awk '{ print "/usr/" $0 }' <<<"$listed") <(rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$rpm" | sed -n 's|^-[^ ]* ||p' | sort) || die "rpm and archive hold other files"
requires=$(rpm -qp --requires "$rpm")
for need in podman runc passt shadow-utils; do
	grep -q "^$need" <<<"$requires" || die "the rpm does not require $need"
done
rpm -K --nosignature "$rpm" >/dev/null || die "digests of the rpm"
[[ $(rpm -qp --qf '%{BUILDHOST}' "$rpm") == lazaret ]] || die "the rpm names the machine that built it"
held "the rpm holds the same, with dependencies and digests"

# site is the mirror that this machine's apt uses; apt expands the format itself.
site() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(SITE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
		awk '$2 == "main" && $1 !~ /security/ { print $1; exit }'
}

# minimal SUITE prints the archive of a minimal tree of that release.
minimal() {
	local tar=$CACHE/minbase-$1.tar mirror
	# The test image's tree is a minimal one of trixie, with git and a few more.
	[[ $1 != trixie || ! -f $CACHE/debian-1.tar ]] || tar=$CACHE/debian-1.tar
	if [[ ! -f $tar ]]; then
		echo "making a minimal tree of $1" >&2
		mirror=$(site)
		debootstrap --variant=minbase "$1" "$work/base" ${mirror:+"$mirror"} >"$work/debootstrap.log" 2>&1 || {
			tail -n 20 "$work/debootstrap.log" >&2
			die "debootstrap $1"
		}
		mkdir -p "$CACHE"
		tar -C "$work/base" --exclude='./var/cache/apt/archives/*.deb' --exclude='./dev/*' -cf "$tar.new" .
		mv "$tar.new" "$tar"
		rm -rf --one-file-system "$work/base"
	fi
	echo "$tar"
}

for suite in $SUITES; do
	base=$(minimal "$suite")
	mkdir -p "$work/in"
	cp "$deb" "$work"/lazaret_0.0.2*.deb "$tarball" "$work/in/"
	cp "$CACHE/busybox-1.tar" "$work/in/busybox.tar"
	cp -L "$RUNSC" "$work/in/runsc"
	cp test/scripts/packages-inside.sh "$work/in/"
	mkdir -p "$work/root"
	# A namespace of mounts and processes: what is started and mounted in there ends with it.
	unshare --mount --pid --fork --kill-child --propagation private \
		test/scripts/packages-enter.sh "$work/root" "$base" "$work/in" "$suite" ${ALONE:+"$ALONE"} || die "$suite"
	held "$suite${ALONE:+, alone}"
done
echo "$passed passed, 0 failed"
