#!/usr/bin/env bash
# Makes what is released, for each architecture: deb, rpm, an archive with install.sh, a
# CycloneDX list of what is in the programs; the release notes, and SHA256SUMS of all.
#   dist.sh [ARCH…]      VERSION, OUT (dist), SOURCE_DATE_EPOCH (the commit's) may be set
# The same commit gives the same bytes, wherever and whenever it is built:
# packaging/reproduce.sh compares.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=test/scripts/lib.sh
. test/scripts/lib.sh

umask 022
export LC_ALL=C TZ=UTC
# Nothing of the builder's may show in the programs.
export GOFLAGS=-buildvcs=false GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOWORK=off
unset MAKEFLAGS MFLAGS MAKELEVEL SUDO_UID
VERSION=${VERSION:?dist.sh is called by make dist}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
out=${OUT:-dist}
(($# > 0)) || set -- amd64 arm64
[[ $VERSION =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || {
	echo "dist: version $VERSION: want three numbers, such as 1.2.3 or 1.2.3-rc.1" >&2
	exit 1
}

nfpm=$(tool github.com/goreleaser/nfpm/v2/cmd/nfpm github.com/goreleaser/nfpm/v2 v2.45.2)
work=$(mktemp -d "${TMPDIR:-/var/tmp}/lazaret-dist.XXXXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/out"
"$GO" build -o "$work/sbom" ./packaging/sbom

for arch; do
	stage=$work/$arch
	make -s GO="$GO" GOARCH="$arch" VERSION="$VERSION" DESTDIR="$stage" PREFIX=/usr install
	programs=("$stage"/usr/bin/* "$stage"/usr/libexec/lazaret/*)
	name=lazaret-$VERSION-linux-$arch
	"$work/sbom" -version "$VERSION" -epoch "$SOURCE_DATE_EPOCH" -go "$GO" \
		-licenses "$stage/usr/share/doc/lazaret/THIRD_PARTY_LICENSES" \
		-out "$work/out/$name.cdx.json" "${programs[@]}"
	find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

	{
		cat packaging/nfpm.yaml
		echo contents:
		for dir in /usr/libexec/lazaret /usr/share/doc/lazaret /usr/share/doc/lazaret/docs; do
			printf '  - { dst: "%s", type: dir, file_info: { mode: 0o755, mtime: %s } }\n' "$dir" "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
		done
		(cd "$stage" && find . -type f -printf '%P\n' | sort) | while read -r f; do
			printf '  - { src: "%s", dst: "/%s" }\n' "$stage/$f" "$f"
		done
		printf '  - { src: packaging/copyright, dst: /usr/share/doc/lazaret/copyright, packager: deb, file_info: { mode: 0o644, mtime: %s } }\n' "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
	} >"$work/nfpm.yaml"
	for packager in deb rpm; do
		NFPM_ARCH=$arch NFPM_VERSION=$VERSION "$nfpm" package -f "$work/nfpm.yaml" -p "$packager" -t "$work/out/" >/dev/null
	done

	top=$work/tar/$name
	mkdir -p "$work/tar"
	cp -a "$stage/usr" "$top"
	install -m 0755 packaging/install.sh "$top/"
	printf 'version: %s\n' "$VERSION" >"$top/VERSION"
	(cd "$top" && find . -type f -printf '%P\n' | sort | xargs sha256sum >"$work/sums" && mv "$work/sums" SHA256SUMS)
	tar -C "$work/tar" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
		--mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -9n >"$work/out/$name.tar.gz"
done
packaging/release-notes.sh "$VERSION" >"$work/out/RELEASE_NOTES.md"
(cd "$work/out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
rm -rf "$out"
mkdir -p "$(dirname "$out")"
cp -r "$work/out" "$out"
ls -l "$out"
