#!/usr/bin/env bash
# Runs a job to its end: nightly.sh INPUT OUTPUT
#
# A job that stopped (a full disk, a time limit, a signal from outside) is resumed by the same
# command, up to three times. Records that failed are computed again once. The exit status is
# gpurun's: 0 done, 3 done with failed records, anything else needs a person.
set -u
input=$1 output=$2

run() {
	gpurun run -q -k "${KERNEL:-embed.py}" "$input" -o "$output" --report "$output.report.json" --max-time "${MAX_TIME:-8h}"
}

for attempt in 1 2 3 4; do
	run
	status=$?
	case $status in
		0 | 3) break ;;                                # the output is complete
		7 | 143) echo "attempt $attempt stopped with status $status; resuming" >&2; sleep "${PAUSE:-60}" ;;
		*) exit $status ;;                             # a mistake, or ^C: trying again would not help
	esac
done

if [ $status = 3 ]; then
	gpurun retry -q "$output"
	status=$?
fi
gpurun report "$output"
exit $status
