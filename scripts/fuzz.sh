#!/usr/bin/env bash
# Runs every fuzz target of the module for $1 (60s, or 10000x). It builds each package's
# targets once: linking takes longer than a short run. With GUIDED=no it does not look at
# which code an input reaches: that needs a build of everything with counters, which pays
# off only in a longer run.
set -euo pipefail
go=${GO:-go}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log
cache=$("$go" env GOCACHE)/fuzz

# Before Go 1.27, timed fuzzing may fail with a bare "context deadline exceeded" although
# it found nothing (golang.org/issue/75804). A real finding is reported with the failing
# input or lines, so ignore only that message on its own.
onlyTimedOut() {
	! grep -qE 'Failing input|panic:|fatal error|fuzzing process|_test\.go:|DATA RACE' "$log" &&
		sed -n '/^--- FAIL/{n;p}' "$log" | grep -qE '^ +context deadline exceeded$'
}

"$go" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./... >"$work/packages"
while read -r package dir; do
	targets=$(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null | sed 's/^func //' || true)
	[[ -n $targets ]] || continue
	if [[ ${GUIDED:-} == no ]]; then
		"$go" test -c -vet=off "-ldflags=-s -w" -o "$work/test" "$package"
	else
		"$go" test -c -vet=off -fuzz . -o "$work/test" "$package"
	fi
	for target in $targets; do
		echo "== $package $target"
		if (cd "$dir" && "$work/test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$1" -test.fuzzminimizetime 5x \
			-test.fuzzcachedir "$cache/$package" </dev/null) >"$log" 2>&1; then
			tail -n 2 "$log"
		else
			onlyTimedOut || { cat "$log" && exit 1; }
			echo "NOTE: found nothing; go reported the end of the fuzz time as a failure (golang.org/issue/75804)"
		fi
	done
done <"$work/packages"
