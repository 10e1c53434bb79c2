# Shared by the scripts beside it; sourced, not run.
# shellcheck shell=bash

GO=${GO:-go}
# Tools outlive a checkout: building golangci-lint takes minutes.
TOOLS=${XDG_CACHE_HOME:-$HOME/.cache}/lazaret/tools

# tool PACKAGE MODULE VERSION prints the path of a tool of exactly this version,
# and builds it where neither the cache nor GOPATH has it.
tool() {
	local package=$1 module=$2 version=$3
	local name=${1##*/} path
	for path in "$TOOLS/$name-$version" "$("$GO" env GOPATH)/bin/$name"; do
		if [[ -x $path ]] && "$GO" version -m "$path" 2>/dev/null | grep -qP "^\tmod\t\Q$module\E\t\Q$version\E(\s|$)"; then
			printf '%s\n' "$path"
			return
		fi
	done
	echo "building $name $version" >&2
	mkdir -p "$TOOLS"
	local out
	out=$(mktemp -d "$TOOLS/.build.XXXXXX")
	# The checkout's go.mod has no say in a tool's dependencies.
	(cd "$out" && CGO_ENABLED=0 GOBIN="$out" GOFLAGS=-buildvcs=false "$GO" install "$package@$version") >&2 || {
		rm -rf "$out"
		return 1
	}
	mv -f "$out/$name" "$TOOLS/$name-$version"
	rmdir "$out"
	printf '%s\n' "$TOOLS/$name-$version"
}
