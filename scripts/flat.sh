#!/usr/bin/env bash
# Shows that memory does not grow with the input: prints the resident memory of the
# orchestrator and of its workers while it computes a stream of $SIZE (10G), and 10,000
# compressed files ($FILES). Fails if the orchestrator's peak exceeds $LIMIT MB (100).
set -euo pipefail
gpurun=${GPURUN:-bin/gpurun}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
line='{"id":12345678,"text":"'$(printf 'word %.0s' $(seq 190))'"}'
failed=0

# watch PID NAME prints the first and the highest resident memory until the process ends.
watch() {
	local first=0 most=0 workers=0 now
	while now=$(awk '/^VmRSS/ {print $2}' "/proc/$1/status" 2>/dev/null) && [ -n "$now" ]; do
		[ "$first" = 0 ] && [ "$now" -gt 20000 ] && first=$now
		[ "$now" -gt "$most" ] && most=$now
		for pid in $(pgrep -P "$1" 2>/dev/null; pgrep -P "$(pgrep -P "$1" 2>/dev/null | paste -sd, -)" 2>/dev/null); do
			now=$(awk '/^VmRSS/ {a=$2} /^RssShmem/ {a-=$2} END {print a}' "/proc/$pid/status" 2>/dev/null || true)
			[ -n "$now" ] && [ "$now" -gt "$workers" ] && workers=$now
		done
		sleep 0.2
	done
	echo "$2: orchestrator $((first / 1000)) MB at first, $((most / 1000)) MB at most; a worker or guard $((workers / 1000)) MB at most"
	[ "$most" -le "$((${LIMIT:-100} * 1000))" ] || failed=1
}

mkfifo "$dir/in"
(yes "$line" || true) | head -c "${SIZE:-10G}" > "$dir/in" &
"$gpurun" run -k echo - -o - --gpus cpu:2 -q < "$dir/in" > /dev/null 2> /dev/null & # the last line is cut off
watch $! "a stream of ${SIZE:-10G}"

mkdir "$dir/files"
(yes "$line" || true) | head -n 200 | gzip -1 > "$dir/one.gz"
for i in $(seq -w "${FILES:-10000}"); do cp "$dir/one.gz" "$dir/files/$i.jsonl.gz"; done
"$gpurun" run -k echo "$dir/files" -o "$dir/out.jsonl" --gpus cpu:2 -q &
watch $! "${FILES:-10000} compressed files"
exit $failed
