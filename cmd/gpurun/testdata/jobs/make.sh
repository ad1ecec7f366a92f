#!/usr/bin/env bash
# Writes NAME.tar.gz: the folder of a job that the gpurun of a commit began, stopped, resumed,
# and then lost by kill -9, so that it has durable results, results in parts, and records
# that are not computed yet. NAME-finished.tar.gz is a finished job with failed records.
#
#   make.sh COMMIT NAME [OUTPUT] [FLAG...]
#
# TestOlderJobs resumes, retries and reports on them. The folder's path is in the files as
# /gpurun-fixture, which has the same length as any other path that nobody has.
set -euo pipefail
commit=$1 name=$2 output=${3:-out.jsonl} here=$(cd "$(dirname "$0")" && pwd)
shift $(($# < 3 ? $# : 3))
work=$(mktemp -d)
trap 'git -C "$here" worktree remove --force "$work/source"; rm -rf "$work" /tmp/gpurun-fixture' EXIT
git -C "$here" worktree add --quiet --detach "$work/source" "$commit"
(cd "$work/source" && CGO_ENABLED=0 go build -o "$work/gpurun" ./cmd/gpurun)

begin() {
	rm -rf /tmp/gpurun-fixture && mkdir /tmp/gpurun-fixture && cd /tmp/gpurun-fixture
	python3 -c '
for i in range(400):
    print("no JSON" if i % 50 == 7 else "{\"id\":%d,\"text\":\"%s\"}" % (i, "word " * (i % 5)))' >in.jsonl
	cat >kernel.py <<'KERNEL'
import os, time

def process(batch):
    time.sleep(float(os.environ.get("FIXTURE_SLEEP", "0")))
    return [dict(record, words=len(record["text"].split())) for record in batch]
KERNEL
	printf '%s\n' run -k kernel.py in.jsonl -o "$output" --gpus cpu:1 --batch-size 8 --chunks-per-gpu 5 "$@" >arguments
}

job() { xargs -d '\n' "$work/gpurun" <arguments 2>>"$work/log" || true; }

begin "$@"
job
tar -C /tmp/gpurun-fixture -czf "$here/$name-finished.tar.gz" .
begin "$@"
FIXTURE_SLEEP=0.1 job &
until [[ $(grep -c '"segment"' ./*.gpurun/journal 2>/dev/null || true) -ge 2 ]]; do sleep 0.05; done
kill -TERM "$(pgrep -n -f "^$work/gpurun run")" && wait
GPURUN_CRASH_AT=journalled:2 FIXTURE_SLEEP=0.01 job
tar -C /tmp/gpurun-fixture -czf "$here/$name.tar.gz" .
cat "$work/log"
tar -tvzf "$here/$name.tar.gz"
