#!/usr/bin/env bash
# golangci-lint over the Go code, shellcheck over the scripts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=test/scripts/lib.sh
. test/scripts/lib.sh

golangci=$(tool github.com/golangci/golangci-lint/v2/cmd/golangci-lint github.com/golangci/golangci-lint/v2 v2.15.0)
"$golangci" config verify 2>/dev/null || true # needs its schema from the network
"$golangci" run --timeout 10m ./...

mapfile -d '' -t scripts < <(git ls-files -z --cached --others --exclude-standard -- '*.sh' .ci/run)
command -v shellcheck >/dev/null || {
	echo "lint: shellcheck is missing: run test/scripts/setup.sh" >&2
	exit 1
}
shellcheck -x "${scripts[@]}"
echo "lint: clean (golangci-lint, shellcheck on ${#scripts[@]} scripts)"
