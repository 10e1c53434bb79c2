#!/usr/bin/env bash
# govulncheck against a pinned state of the Go vulnerability database, which is
# itself a Go module: so this check needs only the module proxy and its result
# can be repeated. Raise VULNDB from time to time.
#   VULNDB=latest make vuln     the newest state that the proxy has
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=test/scripts/lib.sh
. test/scripts/lib.sh

readonly MODULE=golang.org/x/vulndb
VULNDB=${VULNDB:-v0.0.0-20261105234957-e22db6528018}

govulncheck=$(tool golang.org/x/vuln/cmd/govulncheck golang.org/x/vuln v1.9.0)
info=$(cd / && GOFLAGS=-mod=mod "$GO" mod download -json "$MODULE@$VULNDB") || {
	printf 'vuln: the vulnerability database could not be fetched: %s\n' "$info" >&2
	exit 1
}
field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\{0,1\}$/\1/p" <<<"$info"; }
version=$(field Version)
db=${XDG_CACHE_HOME:-$HOME/.cache}/lazaret/vulndb-$version
if [[ ! -f $db/index/modules.json ]]; then
	mkdir -p "${db%/*}"
	new=$(mktemp -d "$db.XXXXXX")
	"$GO" run ./test/scripts/vulndb -from "$(field Dir)/data/osv" -to "$new"
	rm -rf "$db"
	mv "$new" "$db"
fi
echo "vuln: database $version"
"$govulncheck" -db "file://$db" ./...
