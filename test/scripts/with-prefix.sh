#!/usr/bin/env bash
# Installs this checkout into a fresh prefix that the test user can read, and
# runs a command with LAZARET_TEST_PREFIX naming it. Nothing of an installed
# Lazaret is touched.
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
"$@"
