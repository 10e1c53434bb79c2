#!/usr/bin/env bash
# Makes dist/ of the current commit a second time, from a clone in another directory with
# an empty build cache, as if on another day, and compares the bytes. Minutes on two cores.
#   reproduce.sh [ARCH…]      REPRODUCE_CACHE=shared keeps Go's build cache (seconds)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
GO=${GO:-go}
VERSION=${VERSION:?reproduce.sh is called by make reproduce}
[[ -z $(git status --porcelain --untracked-files=no) ]] || {
	echo "reproduce: the checkout has changes that no commit has: commit them first" >&2
	exit 1
}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/lazaret-reproduce.XXXXXXXX")
trap 'rm -rf "$work"' EXIT
git clone -q --no-hardlinks . "$work/somewhere/else"
unset MAKEFLAGS MFLAGS MAKELEVEL
export GO VERSION
OUT=$work/first packaging/dist.sh "$@" >/dev/null
(
	[[ ${REPRODUCE_CACHE:-} == shared ]] || export GOCACHE=$work/cache
	umask 077
	cd "$work/somewhere/else"
	OUT=$work/second TZ=Pacific/Auckland LANG=de_DE.UTF-8 packaging/dist.sh "$@" >/dev/null
)
cmp "$work/first/SHA256SUMS" "$work/second/SHA256SUMS" || {
	diff "$work/first/SHA256SUMS" "$work/second/SHA256SUMS" || true
	echo "reproduce: FAIL: two builds of one commit differ" >&2
	exit 1
}
(cd "$work/first" && sha256sum --quiet -c SHA256SUMS)
(cd "$work/second" && sha256sum --quiet -c SHA256SUMS)
echo "reproduce: $(wc -l <"$work/first/SHA256SUMS") files, the same bytes twice"
