#!/usr/bin/env bash
# Runs all tests, or with the argument race, those that find data races, with the race detector
# in every process (docs/development/testing.md).
#
# Half of what tests do is to wait for processes, so several packages run side by side. The longest
# come first.
set -euo pipefail
GO=${GO:-go}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cores=$(nproc)
# The compiler and the linker are short-lived: they collect garbage only above a gigabyte.
tools=('-toolexec=env GOGC=off GOMEMLIMIT=1GiB')
flags=("${tools[@]}" -vet=off -p $((cores * 2)) -parallel $((cores * 2)) -timeout "${TIMEOUT:-30m}") # make check vets

# failures LOG prints the tests that failed: TEST/SUBTEST where subtests did.
failures() {
	sed -nE 's/^( {4})?--- FAIL: ([^/ ]+(\/[^/ ]+)?).*/\2/p' "$1" | sort -u |
		awk -F/ '{ names[NR] = $0; if (NF > 1) parents[$1] } END { for (i = 1; i <= NR; i++) if (!(names[i] in parents)) print names[i] }'
}

# passes NAME LOG prints how often a test or subtest passed. The name of a subtest may go on after a
# slash: some differ from run to run.
passes() {
	sed -nE 's/^( {4})?--- PASS: (\S+) .*/\2/p' "$2" | awk -v name="$1" '$0 == name || index(name, "/") && index($0, name "/") == 1' | wc -l
}

# tests PACKAGE... FLAG... is go test. Up to three tests that fail run three times more, alone: one
# that is too impatient for a busy machine then passes, and is reported as FLAKY, to be fixed; what it
# had printed is shown behind bars. Where subtests fail, only those run again, and only the packages
# that failed. A panic, a timeout or a data race is never repeated.
tests() {
	local log again failed word pattern packages=() others=()
	log=$(mktemp -p "$work") again=$(mktemp -p "$work")
	$GO test "$@" 2>&1 | tee "$log" | grep --line-buffered '^ok' && return
	mapfile -t failed < <(failures "$log")
	if ((${#failed[@]} < 1 || ${#failed[@]} > 3)) || grep -qE '^panic: |DATA RACE|\[build failed\]' "$log"; then
		grep -v '^ok' "$log" && return 1
	fi
	for word in "$@"; do
		[[ $word == ./* ]] || others+=("$word")
	done
	mapfile -t packages < <(sed -nE 's/^FAIL\s+([^ \t]*\/[^ \t]+)\s.*/\1/p' "$log")
	pattern=$(printf '%s\n' "${failed[@]}" | sed 's/[][().*+?^$|{}\\]/\\&/g; s,/,$/^,; s/.*/^&$/' | paste -sd '|')
	$GO test "${packages[@]}" "${others[@]}" -run "$pattern" -count 3 -v >"$again" 2>&1 || { cat "$log" "$again" && return 1; }
	for word in "${failed[@]}"; do
		(($(passes "$word" "$again") == 3)) || { cat "$log" "$again" && return 1; }
	done
	grep -v '^ok' "$log" | sed 's/^/| /'
	echo "FLAKY: ${failed[*]} failed, and passed three times when repeated"
}

# all runs every test. What tests need besides Go is installed while the program is built, which
# commands run: it starts in half the time of its test binary.
all() {
	{
		[[ -z ${CI:-} ]] || ./scripts/tools.sh slurm-wlm:slurmctld
		make --no-print-directory venv
		# Tests that must leave no files in the source would compile these modules at each start.
		[[ ! -x .venv/bin/python3 ]] || .venv/bin/python3 -m compileall -q python/gpurun plugins/python/runner
	} &
	$GO build "${tools[@]}" -buildvcs=false '-ldflags=-s -w' -o "$work/" ./cmd/gpurun
	wait $!
	export GPURUN_TEST_PROGRAM=$work/gpurun
	# The Python of make venv starts in a third of the time of one with many packages, or with the shell
	# script of a version manager in front of it, and has numpy and pyarrow.
	[[ ! -x .venv/bin/python3 ]] || PATH=$PWD/.venv/bin:$PATH
	command -v slurmctld >/dev/null || echo "SKIPPED: no Slurm: jobs on a cluster are not tested (make slurm-test installs it)"
	if command -v chromium chromium-browser google-chrome >/dev/null; then
		flags+=(-tags browser) # without one, its client is not compiled
	else
		echo "SKIPPED: no Chromium: the page is not tested in a browser (make browser-test installs it)"
	fi
	local first=(./orchestrator ./cmd/gpurun ./plugins/python ./python/wheel ./worker) others status=0
	mapfile -t others < <($GO list ./... | sed 's,^github.com/gpurun/gpurun,.,' | grep -vxF -e ./internal/arch -f <(printf '%s\n' "${first[@]}")) # make check tests the rules of the code
	((${#others[@]} >= 80)) || { echo "test.sh: found only ${#others[@]} packages" >&2 && exit 1; }
	tests "${first[@]}" "${others[@]}" "${flags[@]}" || status=1
	(cd bench && $GO test "${flags[@]}" ./scale) || status=1
	return $status
}

# races runs the tests of packages that start goroutines, and a selection of jobs and commands. What is
# compiled for the race detector alone needs nothing for debuggers.
races() {
	local concurrent=() package dir
	export GORACE=atexit_sleep_ms=0 # child processes must not sleep at exit
	flags+=(-race -gcflags=all=-dwarf=false '-ldflags=-s -w')
	while read -r package dir; do
		case $package in ./orchestrator | ./cmd/gpurun | ./plugins/python) continue ;; esac
		! grep -lE '^\s*go (func|[[:alnum:]_.]+)\(|errgroup|sync\.WaitGroup|\.Go\(' "$dir"/*.go | grep -qv _test.go || concurrent+=("$package")
	done < <($GO list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./... | sed '/^$/d; s,^github.com/gpurun/gpurun,.,')
	((${#concurrent[@]} >= 15)) || { echo "test.sh: found only ${#concurrent[@]} packages" >&2 && exit 1; }
	local jobs='TestInvariant1CountsAddUp|TestInvariant2.*|TestEcho|TestConcurrent([^D].*|Deaths)|TestFetch.*|TestStopDoesNotWaitForAWindow|TestTenPoisonRecords|TestStopTwice|TestPause|TestTrim|TestStragglers?|TestBadLines'
	local commands='TestServe.*|TestSignal.*' scripts='run|listen|serve|signals|status|streams|shards|steps|gpus'
	local sweeps='TestDamagedBytes|TestDamagedOutputIsFound|TestEncodedDamageIsFound|TestPageOfAFewBytes|TestMemoryIsFlat|TestCourseIsBounded|TestDamagedEnd' # compute much and start nothing
	tests ./orchestrator ./cmd/gpurun "${flags[@]}" -run "^($jobs|$commands)\$|^TestScripts\$/^($scripts)\$" &&
		tests "${concurrent[@]}" "${flags[@]}" -skip "^($sweeps)\$"
}

case ${1:-all} in
race) races ;;
*) all ;;
esac
