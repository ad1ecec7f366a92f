#!/usr/bin/env bash
# Runs all tests, each where it finds most for its time (docs/development/testing.md):
#
#   - packages that start goroutines, or whose tests do: with the race detector, which makes
#     programs take three times as long. Processes that tests start run without it.
#   - other packages, the command line, and sweeps that damage a file byte by byte: without it
#   - some jobs and commands: with the race detector in every process
#
# Half of what tests do is to wait for processes, so these run side by side. What is compiled
# twice is compiled first, in one place. make test-race uses the race detector everywhere;
# make test-all leaves nothing out. make check tests the rules of the code (internal/arch).
set -euo pipefail
GO=${GO:-go}
export CGO_ENABLED=1
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
timeout=${TIMEOUT:-30m} parallel=${PARALLEL:-$(($(nproc) * 2))}
# The compiler and the linker are short-lived: they collect garbage only above a gigabyte.
tools=('-toolexec=env GOGC=off GOMEMLIMIT=1GiB')
flags=("${tools[@]}" -vet=off -timeout "$timeout" -parallel "$parallel") # make check vets
binary=("${tools[@]}" -vet=off '-ldflags=-s -w')                         # as go test links without -c
program=("${tools[@]}" -buildvcs=false '-ldflags=-s -w')                 # gpurun starts in half the time of its test
race=(-race -gcflags=all=-dwarf=false)                                   # what is compiled for these binaries alone needs nothing for debuggers

# Tests in orchestrator, and tests and scripts in cmd/gpurun, that run with the race detector
# in every process, and nowhere else.
raceJobs='^(TestInvariant1CountsAddUp|TestInvariant2.*|TestEcho|TestConcurrent([^D].*|Deaths)|TestFetch.*|TestStopDoesNotWaitForAWindow|TestTenPoisonRecords|TestStopTwice|TestPause|TestTrim|TestStragglers?|TestBadLines)$'
raceCommands='^(TestServe.*|TestSignal.*)$'
raceScripts='^TestScripts$/^(run|listen|serve|signals|status|streams|shards|steps|gpus)$'

# Tests of other packages that compute much and start nothing: ten times slower with it.
sweeps='TestDamagedBytes|TestDamagedOutputIsFound|TestEncodedDamageIsFound|TestPageOfAFewBytes|TestMemoryIsFlat|TestCourseIsBounded|TestDamagedEnd|TestEqualToMinhash'

# Packages whose tests start themselves again, many times: as a build without the race detector.
again=(./chunk/commit ./worker ./plugins/exec ./plugins/process ./plugins/serve)

concurrent=() others=() sweeping=()
while read -r package dir; do
	case $package in
	./orchestrator | ./cmd/gpurun) ;; # below
	./internal/arch) ;; # make check
	# Only their tests start goroutines, which share nothing.
	./internal/jsonline | ./web) others+=("$package") ;;
	*)
		if grep -qE '^\s*go (func|[[:alnum:]_.]+)\(|errgroup|sync\.WaitGroup|\.Go\(' "$dir"/*.go; then
			concurrent+=("$package")
			! grep -qE "^func ($sweeps)\(" "$dir"/*_test.go || sweeping+=("$package")
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

# run BINARY FOLDER FLAG... runs a compiled test.
run() {
	local binary=$1 folder=$2
	shift 2
	(cd "$root/$folder" && exec "$binary" -test.timeout "$timeout" -test.parallel "$parallel" "$@")
}

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

# repeated COMMAND... runs tests by go test or run. Up to three that fail run three times more, alone:
# one that is too impatient for a busy machine then passes, and is reported as FLAKY, to be
# fixed; what it had printed is shown behind bars. Where subtests fail, only those run again, and
# only the packages that failed. A panic, a timeout or a data race is never repeated.
repeated() {
	local log again failed word pattern command=() prefix=-
	log=$(mktemp -p "$work") again=$(mktemp -p "$work")
	"$@" >"$log" 2>&1 && { cat "$log" && return; }
	mapfile -t failed < <(failures "$log")
	if ((${#failed[@]} < 1 || ${#failed[@]} > 3)) || grep -qE '^panic: |DATA RACE|\[build failed\]' "$log"; then
		cat "$log" && return 1
	fi
	for word in "$@"; do
		[[ $word != ./* ]] || grep -qE "^FAIL\s+\S+/${word#./}\s" "$log" || continue
		command+=("$word")
	done
	[[ $1 != run ]] || prefix=-test.
	pattern=$(printf '%s\n' "${failed[@]}" | sed 's/[][().*+?^$|{}\\]/\\&/g; s,/,$/^,; s/.*/^&$/' | paste -sd '|')
	"${command[@]}" "${prefix}run=$pattern" "${prefix}count=3" "${prefix}v" >"$again" 2>&1 || { cat "$log" "$again" && return 1; }
	for word in "${failed[@]}"; do
		(($(passes "$word" "$again") == 3)) || { cat "$log" "$again" && return 1; }
	done
	sed 's/^/| /' "$log"
	echo "FLAKY: ${failed[*]} failed, and passed three times when repeated"
}

# goTest FLAG... is go test; packages come first, because flags may be appended.
goTest() { $GO test "$@"; }

packages() { repeated goTest "${others[@]}" "${flags[@]}" && (cd bench && $GO test "${flags[@]}" ./scale); }
racePackages() { GPURUN_TEST_WORKERS=$work/plain repeated goTest "${concurrent[@]}" "${race[@]}" "${flags[@]}" -skip "^($sweeps)\$"; }
sweep() { $GO test "${flags[@]}" -run "^($sweeps)\$" "${sweeping[@]}"; }
commandLine() { GPURUN_TEST_WORKERS=$work/plain repeated run "$work/plain/gpurun.test" cmd/gpurun -test.skip "$raceCommands|$raceScripts"; }
jobsInOneProcess() { GPURUN_TEST_WORKERS=$work/plain repeated run "$work/race/orchestrator.test" orchestrator -test.skip "$raceJobs"; }
everyJobProcess() { repeated run "$work/race/orchestrator.test" orchestrator -test.run "$raceJobs"; }
everyCommandProcess() { GPURUN_TEST_WORKERS=$work/race repeated run "$work/race/gpurun.test" cmd/gpurun -test.run "$raceCommands|$raceScripts"; }

# start TITLE FUNCTION... runs functions one after another in the background. Job control makes
# each of these jobs a process group, so that Ctrl-C can end it: without it, bash would start
# them with SIGINT ignored, and so would be the programs whose signals are tested.
titles=() pids=()
start() {
	local log=$work/${#pids[@]}.log
	titles+=("$1")
	shift
	set -m
	(
		SECONDS=0 status=0
		for step in "$@"; do "$step" || status=1; done
		times >"$log.cpu" # in a pipe, it would be about the pipe
		echo "took $((SECONDS / 60)) min $((SECONDS % 60)) s; CPU time, of programs and of the system: $(tail -n 1 "$log.cpu")"
		exit $status
	) </dev/null >"$log" 2>&1 &
	pids+=($!)
	set +m
}

# finish waits for the jobs and prints what each has printed.
finish() {
	local status=0 i
	for i in "${!pids[@]}"; do
		wait "${pids[i]}" || { status=1 && titles[i]+=": FAILED"; }
		echo "== ${titles[i]}"
		cat "$work/$i.log"
	done
	pids=() titles=()
	return $status
}

end() {
	for pid in "${pids[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
	rm -rf "$work"
}
trap end EXIT

# What tests need besides Go is installed while Go compiles.
needs() {
	[[ -z ${CI:-} ]] || ./scripts/tools.sh slurm-wlm:slurmctld
	make --no-print-directory venv
	# Tests that must leave no files in the source would compile these modules at each start.
	[[ ! -x .venv/bin/python3 ]] || .venv/bin/python3 -m compileall -q python/gpurun plugins/python/runner
}
start "tools of the tests" needs
$GO test -c "${binary[@]}" -o "$work/plain/" ./orchestrator ./cmd/gpurun "${again[@]}"
$GO build "${program[@]}" -o "$work/plain/" ./cmd/gpurun
finish
# The Python of make venv starts in a third of the time of one with many packages, or with the shell
# script of a version manager in front of it, and has numpy and pyarrow.
[[ ! -x .venv/bin/python3 ]] || PATH=$root/.venv/bin:$PATH
command -v slurmctld >/dev/null || echo "SKIPPED: no Slurm: jobs on a cluster are not tested (make slurm-test installs it)"
if command -v chromium chromium-browser google-chrome >/dev/null; then
	flags+=(-tags browser) # without one, its client is not compiled
else
	echo "SKIPPED: no Chromium: the page is not tested in a browser (make browser-test installs it)"
fi

echo "running the tests; the results of each group are shown when it is complete"
start "the command line" commandLine
start "${#others[@]} packages without the race detector, and sweeps" packages sweep
$GO test "${race[@]}" -c "${binary[@]}" -o "$work/race/" ./orchestrator ./cmd/gpurun
$GO build "${race[@]}" "${program[@]}" -o "$work/race/" ./cmd/gpurun
start "${#concurrent[@]} packages that start goroutines, with the race detector" racePackages
start "jobs, with the race detector" jobsInOneProcess everyJobProcess everyCommandProcess
failed=0
finish || failed=1
grep -h '^FLAKY' "$work"/*.log || true # once more, where it is seen
exit $failed
