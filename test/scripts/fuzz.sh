#!/usr/bin/env bash
# Runs every fuzz target of the module for a time, two at once.
#   fuzz.sh 60s
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=test/scripts/lib.sh
. test/scripts/lib.sh

time=${1:-60s}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Compiling all of them at first keeps the clock for fuzzing.
targets=()
while IFS=: read -r file line; do
	name=${line#func }
	targets+=("$(dirname "$file") ${name%%(*}")
done < <(git ls-files -z --cached --others --exclude-standard -- '*_test.go' | xargs -0 -r grep -H '^func Fuzz[A-Z0-9_]' /dev/null)
if ((${#targets[@]} == 0)); then
	echo "fuzz: no fuzz target found" >&2
	exit 1
fi
echo "fuzz: ${#targets[@]} targets, $time each"

one() {
	local dir=$1 name=$2 log
	# The script was ended and has cleaned up: 255 ends xargs as well.
	[[ -d $3 ]] || exit 255
	log=$3/$(tr / _ <<<"$dir").$name
	# One worker: three targets share the machine's cores.
	if "$GO" test -run='^$' -fuzz="^$name\$" -fuzztime="$4" -fuzzminimizetime=100x -parallel=1 "./$dir" >"$log" 2>&1; then
		printf 'ok    %s %s: %s\n' "$dir" "$name" "$(grep '^fuzz: elapsed' "$log" | tail -n 1 | sed 's/^fuzz: //')"
	elif grep -q '^ *context deadline exceeded$' "$log" && ! grep -qE 'Failing input written|_test\.go:|panic' "$log"; then
		# The end of the time came in the middle of an input, which the go command
		# takes for a failure (go.dev/issue/56238). Nothing was found.
		printf 'ok    %s %s: its time ended within an input\n' "$dir" "$name"
	else
		cat "$log"
		printf 'FAIL  %s %s\n' "$dir" "$name"
		return 1
	fi
}
export -f one
export GO

status=0
# shellcheck disable=SC2016 # the inner shell expands these
printf '%s\n' "${targets[@]}" | xargs -P 3 -L 1 bash -c 'one "$2" "$3" "$0" "$1"' "$work" "$time" | tee "$work/summary" || status=1
failed=$(grep -c '^FAIL  ' "$work/summary" || true)
passed=$(grep -c '^ok    ' "$work/summary" || true)
echo "fuzz: $passed passed, $failed failed"
if ((status != 0 || failed != 0 || passed != ${#targets[@]})); then
	exit 1
fi
