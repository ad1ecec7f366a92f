#!/usr/bin/env bash
# Runs every fuzz target of the module for $1 (60s, or 10000x).
set -euo pipefail
go=${GO:-go}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Before Go 1.27, timed fuzzing may fail with a bare "context deadline exceeded" although
# it found nothing (golang.org/issue/75804). A real finding is reported with the failing
# input or lines, so ignore only that message on its own.
onlyTimedOut() {
	! grep -qE 'Failing input|panic:|fatal error|fuzzing process|_test\.go:|DATA RACE' "$log" &&
		sed -n '/^--- FAIL/{n;p}' "$log" | grep -qE '^ +context deadline exceeded$'
}

for package in $("$go" list ./...); do
	dir=$("$go" list -f '{{.Dir}}' "$package")
	for target in $(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null | sed 's/^func //'); do
		echo "== $package $target"
		if ! "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 5x "$package" 2>&1 | tee "$log"; then
			onlyTimedOut || exit 1
			echo "NOTE: found nothing; go reported the end of the fuzz time as a failure (golang.org/issue/75804)"
		fi
	done
done
