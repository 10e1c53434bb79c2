#!/usr/bin/env bash
# Prints what CHANGELOG.md says of a version; of one that was never tagged, what is unreleased.
#   release-notes.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=${1:?usage: release-notes.sh VERSION}
heading=$version
[[ $version != *-dev ]] || heading=Unreleased
notes=$(awk -v want="## [$heading]" '
	index($0, "## [") == 1 { inside = index($0, want) == 1; next }
	/^\[[^]]+\]: / { next }
	inside { print }' CHANGELOG.md)
if [[ -z ${notes//[[:space:]]/} ]]; then
	echo "release-notes: CHANGELOG.md has no section [$heading], or an empty one: write it first" >&2
	exit 1
fi
printf '# Lazaret %s\n\n%s\n' "$version" "$(sed '/./,$!d' <<<"$notes")"
