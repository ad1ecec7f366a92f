#!/usr/bin/env bash
# Runs all tests, each where it finds most for its time (docs/development/testing.md):
#
#   - packages that start goroutines, or whose tests do: with the race detector, which makes
#     programs take three times as long. Processes that tests start run without it.
#   - other packages, and the command line: without it
#   - some jobs again, with the race detector in every process
#
# make test-race uses it everywhere; make test-all leaves nothing out.
set -euo pipefail
GO=${GO:-go}
export CGO_ENABLED=1
# Half of what tests do is to wait for processes.
parallel=${PARALLEL:-$(($(nproc) * 2))}
# make check vets.
flags=(-vet=off -timeout 20m -parallel "$parallel")
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT

concurrent=(./orchestrator) others=(./cmd/gpurun) # those that take longest first
while read -r package dir; do
	case $package in
	./orchestrator | ./cmd/gpurun) ;;
	*)
		if grep -qE '^\s*go (func|[[:alnum:]_.]+)\(|errgroup|sync\.WaitGroup|\.Go\(' "$dir"/*.go; then
			concurrent+=("$package")
		else
			others+=("$package")
		fi
		;;
	esac
done < <($GO list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./... | sed '/^$/d; s,^github.com/gpurun/gpurun,.,')
if ((${#concurrent[@]} < 20 || ${#others[@]} < 20)); then
	echo "test.sh: found only ${#concurrent[@]} and ${#others[@]} packages" >&2
	exit 1
fi

$GO test -c -vet=off -o "$plain/" ./orchestrator
$GO test "${flags[@]}" "${others[@]}"
echo "with the race detector: ${#concurrent[@]} packages that start goroutines"
GPURUN_TEST_WORKERS=$plain $GO test -race "${flags[@]}" "${concurrent[@]}"
echo "again, with the race detector in every process: some jobs, and the commands that serve and share them"
$GO test -race "${flags[@]}" ./orchestrator -run \
	'^(TestInvariant1CountsAddUp|TestInvariant2.*|TestEcho|TestConcurrent.*|TestFetch.*|TestGrouped.*|TestTenPoisonRecords|TestStopTwice|TestPause|TestTrim|TestStragglers?|TestBadLines)$'
$GO test -race -c -vet=off -o "$plain/race.test" ./cmd/gpurun
cd cmd/gpurun
"$plain/race.test" -test.timeout 20m -test.run '^(TestServe.*|TestSignal.*)$'
"$plain/race.test" -test.timeout 20m -test.run '^TestScripts$/^(run|resume|retry|listen|serve|signals|status|streams|shards|steps|fetch|gpus)$'
