#!/usr/bin/env bash
# Installs this checkout into a fresh prefix that the test user can read, and
# runs a command with LAZARET_TEST_PREFIX naming it. Nothing of an installed
# Lazaret is touched. A program of ours that outlives the command is a failure.
#   with-prefix.sh COMMAND…
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
prefix=$(mktemp -d /var/tmp/lazaret-prefix.XXXXXXXX)
trap 'rm -rf "$prefix"' EXIT
chmod 0755 "$prefix"
make -s -C "$repo" GO="${GO:-go}" DESTDIR= PREFIX="$prefix" install >/dev/null
export LAZARET_TEST_PREFIX=$prefix
# make's job server is not for the command.
unset MAKEFLAGS MFLAGS MAKELEVEL
cd "$repo"
status=0
"$@" || status=$?

# running lists what still runs from the prefix.
running() {
	local exe
	for exe in /proc/[0-9]*/exe; do
		if [[ $(readlink "$exe" 2>/dev/null) == "$prefix"/* ]]; then
			tr '\0' ' ' <"${exe%/exe}/cmdline" 2>/dev/null || true
			echo "(process ${exe//[!0-9]/})"
		fi
	done
}
for ((i = 0; i < 600; i++)); do
	left=$(running)
	[[ -n $left ]] || exit "$status"
	sleep 0.1
done
printf 'FAIL: still running a minute after the end:\n%s\n' "$left" >&2
((status != 0)) || status=1
exit "$status"
