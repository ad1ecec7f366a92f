#!/usr/bin/env bash
# Runs all tests with the race detector, which makes programs take three times as long.
# Where a test starts workers as processes of their own, these run without it: the packages
# of workers and kernels have tests of their own. Some jobs then run with it in every
# process, those that use most of a worker's code. make test-race uses it everywhere.
set -euo pipefail
GO=${GO:-go}
export CGO_ENABLED=1
# Half of what tests do is to wait for processes.
parallel=${PARALLEL:-$(($(nproc) * 2))}
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
$GO test -c -o "$plain/" ./orchestrator ./cmd/gpurun
GPURUN_TEST_WORKERS=$plain $GO test -race -timeout 20m -parallel "$parallel" ./...
echo "again, with the race detector in workers and kernels"
$GO test -race -timeout 10m -parallel "$parallel" ./orchestrator -run \
	'^(TestInvariant1CountsAddUp|TestInvariant2.*|TestEcho|TestConcurrent.*|TestFetch.*|TestGrouped.*|TestTenPoisonRecords|TestStopTwice|TestPause|TestTrim|TestStragglers?|TestBadLines)$'
echo "again, without the race detector: what is too slow with it"
(cd cmd/gpurun && "$plain/gpurun.test" -test.timeout 20m -test.run '^(TestManyTinyLines|TestDocs.*)$')
